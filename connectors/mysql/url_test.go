package mysql

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
)

const awkward = `p@s/s:w#d%^?&`

// case C103.
func TestURL(t *testing.T) {
	type parts struct {
		user, password, host string
		port                 int
		socket, database     string
		table, mode          string
	}
	for raw, want := range map[string]parts{
		"mysql://app:secret@db.example.com:3307/shop?table=orders": {"app", "secret", "db.example.com", 3307, "", "shop", "orders", "preferred"},
		"mariadb://db/shop": {"", "", "db", 0, "", "shop", "", "preferred"},
		"mysql://":          {mode: "preferred"},
		"mysql://app@%2Frun%2Fmysqld%2Fmysqld.sock/shop":               {"app", "", "", 0, "/run/mysqld/mysqld.sock", "shop", "", "preferred"},
		"mysql://app@[::1]:3306/shop?ssl-mode=VERIFY_CA":               {"app", "", "::1", 3306, "", "shop", "", "verify_ca"},
		"mysql://a%40b:p%40s%2Fs@h/d%20e":                              {"a@b", "p@s/s", "h", 0, "", "d e", "", "preferred"},
		"mysql://a:b@h/d?where=mail='x@y'&table=t":                     {"a", "b", "h", 0, "", "d", "t", "preferred"},
		"mysql://app:" + awkward + "@db.example.com:3307/shop":         {"app", awkward, "db.example.com", 3307, "", "shop", "", "preferred"},
		"mysql://app:" + awkward + "@localhost/shop?table=o&ssl_ca=/c": {"app", awkward, "localhost", 0, "", "shop", "o", "preferred"},
		"mysql://app:100%@localhost/shop":                              {"app", "100%", "localhost", 0, "", "shop", "", "preferred"},
		"mysql://app:a+b@localhost/shop?table=a+b":                     {"app", "a+b", "localhost", 0, "", "shop", "a+b", "preferred"},
	} {
		cfg := NewSource().(*SourceConfig) //nolint:forcetypeassert // its own type
		if err := cfg.SetURL(raw); err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got := parts{cfg.User, cfg.Password.Reveal(), cfg.Host, cfg.Port, cfg.Socket, cfg.Database, cfg.Table, cfg.SSLMode}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(parts{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
		if _, err := cfg.Contract(); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// What can't be taken apart is refused with how to write it, and without the password.
// cases C103, C104.
func TestURLRefused(t *testing.T) {
	for _, raw := range []string{
		"mysql://app:hush/1@h/d?where=a@b", "mysql://app:hush#@h/d?nonsense", "mysql://app:hush@h/d?tabel=orders",
		"mysql://app:hush@h:port/d", "postgres://app:hush@h/d", "mysql://app:hush@h/d?table", "mysql://app:hush@h/d?parallel=many",
		"mysql://app:hush@h:99999/d", "mysql://app:hush@h/d?where=100%",
	} {
		cfg := NewSource().(*SourceConfig) //nolint:forcetypeassert // its own type
		err := cfg.SetURL(raw)
		if err == nil {
			t.Errorf("%s is taken: %+v", raw, cfg.Connection)
			continue
		}
		if connector.ClassOf(err) != connector.ClassConfig || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// clause S15: what is wrong with a configuration is said without I/O, all at once.
func TestContract(t *testing.T) {
	for _, c := range []struct {
		change func(c *SourceConfig)
		want   string
	}{
		{func(c *SourceConfig) { c.Table, c.Query = "a", "SELECT 1" }, "exclude each other"},
		{func(c *SourceConfig) { c.SSLMode = "maybe" }, "ssl_mode"},
		{func(c *SourceConfig) { c.ZeroDates = "guess" }, "zero_dates"},
		{func(c *SourceConfig) { c.Types = map[string]string{"a": "int"} }, "neither bool nor text"},
		{func(c *SourceConfig) { c.Parallel = 0 }, "parallel"},
		{func(c *SourceConfig) { c.Follow, c.Cursor = true, "at" }, "follow and cursor"},
		{func(c *SourceConfig) { c.ServerID = 5 }, "follow=true"},
		{func(c *SourceConfig) { c.SSLCert = "x" }, "ssl_key"},
		{func(c *SourceConfig) { c.Host, c.Socket = "h", "/s" }, "socket and host"},
	} {
		cfg := NewSource().(*SourceConfig) //nolint:forcetypeassert // its own type
		c.change(cfg)
		if _, err := cfg.Contract(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
