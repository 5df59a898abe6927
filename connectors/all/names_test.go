package all_test

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/all"
	"github.com/leatdata/leat/state"
)

// The names of connectors go into metrics, state and files: they are short, in lower case, no two alike, and there always is one.
//
// clause S30
func TestNames(t *testing.T) {
	short := regexp.MustCompile(`^[a-z][a-z0-9]{1,15}$`)
	for range 2 {
		reg, err := all.All()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, d := range reg.All() {
			if !short.MatchString(d.Name) || seen[d.Name] || state.ValidateName(d.Name) != nil {
				t.Errorf("connector %q", d.Name)
			}
			seen[d.Name] = true
			for _, s := range d.Schemes {
				if !short.MatchString(s) {
					t.Errorf("connector %s, scheme %q", d.Name, s)
				}
			}
		}
		if len(seen) < 5 {
			t.Errorf("only %d connectors", len(seen))
		}
	}
}

const password = "p@ss/w0rd#?&%"

// A dataset's URI for lineage follows the naming rules of OpenLineage, scheme:[//authority]path: it can be parsed, it is the same for whoever
// reads the dataset and whoever writes it, in whatever folder and under whatever spelling, and it has no credentials.
//
// clause S30, case C103
func TestURIs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("a b#1.csv", []byte("id\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	encoded := url.QueryEscape(password)
	file := (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
	for _, c := range []struct {
		raw      string // of the source and of the sink
		readOnly bool
		dataset  string
		want     string
	}{
		{"postgres://app:" + encoded + "@db.example:6432/shop?sslkey=/secret", false, "public.orders", "postgres://db.example:6432/shop.public.orders"},
		{"postgres://app:" + encoded + "@db.example/shop", false, "sales.orders", "postgres://db.example:5432/shop.sales.orders"},
		{"postgres://app:" + encoded + "@[::1]/shop", false, "orders", "postgres://[::1]:5432/shop.public.orders"},
		{"postgres:///shop?host=/var/run/postgresql&user=app", false, "public.orders", "postgres://localhost:5432/shop.public.orders"},
		{"postgres://app:" + encoded + "@one.example:1,two.example:2/shop", false, "public.orders", "postgres://one.example:1/shop.public.orders"},
		{"postgres://app:" + encoded + "@db.example/shop", false, `public."odd #name%?"`, "postgres://db.example:5432/shop.public.odd%20%23name%25%3F"},
		{"mysql://app:" + encoded + "@db.example:3307/shop?ssl_key=/secret&ssl_cert=/c", false, "orders", "mysql://db.example:3307/shop.orders"},
		{"mariadb://app:" + encoded + "@[::1]/shop", false, `shop."odd #name%?"`, "mysql://[::1]:3306/shop.odd%20%23name%25%3F"},
		{"mysql://app@%2Frun%2Fmysqld.sock/shop", false, "shop.orders", "mysql://localhost:3306/shop.orders"},
		{"sqlite:app.db", false, "orders", file + "/app.db#orders"},
		{"sqlite:" + dir + "/app.db", false, "orders", file + "/app.db#orders"},
		{"sqlite::memory:", false, "orders", "sqlite:memory#orders"},
		{"duckdb:app.duckdb", false, "main.orders", file + "/app.duckdb#main.orders"},
		{"csv:a b#1.csv", true, "a b#1", file + "/a%20b%231.csv"},
		{"csv:-", true, "stdin", "file:///dev/stdin"},
	} {
		src, snk := opened(t, c.raw, c.readOnly)
		for who, v := range map[string]any{"source": src, "sink": snk} {
			if v == nil {
				continue
			}
			named, ok := connector.As[connector.Named](v)
			if !ok {
				t.Errorf("the %s of %s has no URIs", who, c.raw)
				continue
			}
			got := named.URI(c.dataset)
			u, err := url.Parse(got)
			switch {
			case got != c.want || got != named.URI(c.dataset):
				t.Errorf("the %s of %s calls %s %q, want %q", who, strings.ReplaceAll(c.raw, encoded, "***"), c.dataset, got, c.want)
			case err != nil || u.Scheme == "" || u.User != nil || u.RawQuery != "":
				t.Errorf("%q: %+v, %v", got, u, err)
			case strings.Contains(got, password) || strings.Contains(got, encoded) || strings.Contains(got, "secret"):
				t.Errorf("%q has credentials", got)
			}
		}
	}
}

// opened builds what a URL selects, without I/O.
func opened(t *testing.T, raw string, readOnly bool) (src connector.Source, snk connector.Sink) {
	t.Helper()
	reg, err := all.All()
	if err != nil {
		t.Fatal(err)
	}
	def, err := reg.Resolve(raw)
	if err != nil {
		t.Fatal(err)
	}
	set := func(cfg any) {
		u, ok := cfg.(connector.URLSetter)
		if !ok {
			t.Fatalf("%s takes no URL", def.Name)
		}
		if err := u.SetURL(raw); err != nil {
			t.Fatal(err)
		}
	}
	source := def.Source()
	set(source)
	if src, err = source.Open(connectortest.Env(t)); err != nil {
		t.Fatal(err)
	}
	if readOnly {
		return src, nil
	}
	sink := def.Sink()
	set(sink)
	if snk, err = sink.Open(connectortest.Env(t)); err != nil {
		t.Fatal(err)
	}
	return src, snk
}
