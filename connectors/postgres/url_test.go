package postgres

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
		user, password, host, port, database string
		table                                string
		params                               map[string]string
	}
	for raw, want := range map[string]parts{
		"postgres://app:secret@db.example.com:5433/shop?table=orders": {"app", "secret", "db.example.com", "5433", "shop", "orders", nil},
		"postgresql://db/shop": {"", "", "db", "", "shop", "", nil},
		"postgres://":          {},
		"postgres:///shop?host=/run/postgresql&user=app":                               {"app", "", "/run/postgresql", "", "shop", "", nil},
		"postgres://app@%2Frun%2Fpostgresql/shop":                                      {"app", "", "/run/postgresql", "", "shop", "", nil},
		"postgres://a:b@h1:1,h2:2,[::1]:3/d?target_session_attrs=any":                  {"a", "b", "h1,h2,::1", "1,2,3", "d", "", nil},
		"postgres://a%40b:p%40s%2Fs@h/d%20e":                                           {"a@b", "p@s/s", "h", "", "d e", "", nil},
		"postgres://a:p%40@h/d?channel_binding=require&dbname=other":                   {"a", "p@", "h", "", "other", "", map[string]string{"channel_binding": "require"}},
		"postgres://a:b@h/d?where=mail%3D'x@y.z'&table=t":                              {"a", "b", "h", "", "d", "t", nil},
		"postgres://a:b@h/d?where=mail='x@y'&table=t":                                  {"a", "b", "h", "", "d", "t", nil},
		"postgres://app:" + awkward + "@db.example.com:5433/shop":                      {"app", awkward, "db.example.com", "5433", "shop", "", nil},
		"postgres://app:" + awkward + "@localhost/shop?table=public.o":                 {"app", awkward, "localhost", "", "shop", "public.o", nil},
		"postgres://app:p%40s%2Fs%3Aw%23d%25%5E%3F%26@localhost/shop":                  {"app", awkward, "localhost", "", "shop", "", nil},
		"postgres://app:100%@localhost/shop":                                           {"app", "100%", "localhost", "", "shop", "", nil},
		"postgres://app:a+b@localhost/shop?table=a+b":                                  {"app", "a+b", "localhost", "", "shop", "a+b", nil},
		"postgres://app:secret@localhost/shop?sslmode=verify-full&sslrootcert=/ca.crt": {"app", "secret", "localhost", "", "shop", "", nil},
	} {
		cfg := NewSource().(*SourceConfig) //nolint:forcetypeassert // its own type
		if err := cfg.SetURL(raw); err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got := parts{cfg.User, cfg.Password.Reveal(), cfg.Host, cfg.Port, cfg.Database, cfg.Table, cfg.Params}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(parts{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
		if _, err := cfg.connConfig(); err != nil && !strings.Contains(raw, "sslrootcert") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// What can't be taken apart is refused with how to write it, and without the password.
// cases C103, C104.
func TestURLRefused(t *testing.T) {
	for _, raw := range []string{
		"postgres://app:hush/1@h/d?where=a@b", "postgres://app:hush#@h/d?nonsense", "postgres://app:hush@h/d?tabel=orders",
		"postgres://app:hush@h:port/d", "mysql://app:hush@h/d", "postgres://app:hush@h/d?table", "postgres://app:hush@h/d?parallel=many",
		"postgres://app:hush@h/d?sslmode=maybe", "postgres://app:hush@h/d?where=100%",
	} {
		cfg := NewSource().(*SourceConfig) //nolint:forcetypeassert // its own type
		err := cfg.SetURL(raw)
		if connector.ClassOf(err) != connector.ClassConfig || strings.Contains(err.Error()+connector.HintOf(err), "hush") {
			t.Errorf("%s: %v", raw, err)
		}
		if strings.Contains(raw, "tabel") && !strings.Contains(err.Error(), `"table"`) {
			t.Errorf("%s: %v does not name the nearest parameter", raw, err)
		}
	}
}

// case C103.
func TestSettingsNeedNoEscapes(t *testing.T) {
	for _, password := range []string{awkward, `it's \ "quoted"`, " padded ", `\`, `''`, "ünï"} {
		c := Connection{Host: "h", User: "u", Password: connector.Secret(password), Database: `d'b\`}
		cfg, err := c.connConfig()
		if err != nil {
			t.Errorf("%q: %v", password, err)
			continue
		}
		if cfg.Password != password || cfg.Database != `d'b\` {
			t.Errorf("password %q became %q, database %q", password, cfg.Password, cfg.Database)
		}
	}
}
