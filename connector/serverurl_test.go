package connector_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
)

// case C103.
func TestParseServerURL(t *testing.T) {
	const raw = `p@s/s:w#d%^?&`
	schemes, parameters := []string{"db", "dbs"}, []string{"table", "where", "ssl_mode"}
	hosts := func(list ...string) (out []connector.ServerAddress) {
		for _, h := range list {
			name, port, _ := strings.Cut(h, " ")
			out = append(out, connector.ServerAddress{Host: name, Port: port})
		}
		return out
	}
	for in, want := range map[string]connector.ServerURL{
		"db://":                        {Scheme: "db"},
		"DBS://h":                      {Scheme: "dbs", Hosts: hosts("h")},
		"db://u:p@h:5/shop":            {Scheme: "db", User: "u", Password: "p", Hosts: hosts("h 5"), Path: "shop"},
		"db://u@h1:1,h2,[::1]:3/a%20b": {Scheme: "db", User: "u", Hosts: hosts("h1 1", "h2", "::1 3"), Path: "a b"},
		"db://u@%2Frun%2Fdb/d":         {Scheme: "db", User: "u", Hosts: hosts("/run/db"), Path: "d"},
		"db:///d?where=a%3D'x@y'&ssl-mode=a+b": {
			Scheme: "db", Path: "d", Query: [][2]string{{"where", "a='x@y'"}, {"ssl-mode", "a+b"}},
		},
		"db://u:" + raw + "@h/d":         {Scheme: "db", User: "u", Password: raw, Hosts: hosts("h"), Path: "d"},
		"db://u:" + raw + "@h/d?table=t": {Scheme: "db", User: "u", Password: raw, Hosts: hosts("h"), Path: "d", Query: [][2]string{{"table", "t"}}},
		"db://u:/s?x-y@h:5/d?table=t": { // up to the first question mark it looks whole
			Scheme: "db", User: "u", Password: "/s?x-y", Hosts: hosts("h 5"), Path: "d", Query: [][2]string{{"table", "t"}},
		},
		"db://u:100%@h":        {Scheme: "db", User: "u", Password: "100%", Hosts: hosts("h")},
		"db://a%40b:p%25%40@h": {Scheme: "db", User: "a@b", Password: "p%@", Hosts: hosts("h")},
		"db://u:p@h/d?other=1": {Scheme: "db", User: "u", Password: "p", Hosts: hosts("h"), Path: "d", Query: [][2]string{{"other", "1"}}},
	} {
		got, err := connector.ParseServerURL(in, schemes, parameters)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" || got.Password.Reveal() != want.Password.Reveal() {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
	for _, in := range []string{
		"hush", "http://hush@h", "db://u:hush/1@h/d?where=a@b", "db://u:hush@h:port/d", "db://u:hush@h/d/e", "db://u:hush@h/d?table",
		"db://u:hush@h/d?where=100%", "db://u:hush#@h/d?nonsense=1", "db://u:hush@h,/d e?x", "db://u:hush@h/%zz",
	} {
		if u, err := connector.ParseServerURL(in, schemes, parameters); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %+v, %v", in, u, err)
		}
	}
}
