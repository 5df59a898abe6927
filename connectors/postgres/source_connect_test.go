package postgres_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

const awkwardPassword = `p@s/s:w#d%^?&`

// tlsConfig is a connection by name or address with TLS settings.
func tlsOptions(t *testing.T, host, mode string, more map[string]string) map[string]string {
	t.Helper()
	options := map[string]string{"host": host, "sslmode": mode, "query": "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"}
	maps.Copy(options, more)
	return options
}

// TLS has libpq's meanings, and a failure names the check.
// case C102.
func TestTLS(t *testing.T) {
	db, ca := pgtest.URL(t), map[string]string{"sslrootcert": pgtest.CA(t)}
	other := map[string]string{"sslrootcert": filepath.Join(t.TempDir(), "other.pem")}
	if err := os.WriteFile(other["sslrootcert"], []byte(otherAuthority), 0o600); err != nil {
		t.Fatal(err)
	}
	elsewhere := forward(t, db)
	for _, c := range []struct {
		host, mode string
		more       map[string]string
		code       string // empty: it works
		encrypted  bool
	}{
		{"127.0.0.1", "disable", nil, "", false},
		{"127.0.0.1", "prefer", nil, "", true},
		{"127.0.0.1", "require", nil, "", true},
		{"127.0.0.1", "require", ca, "", true}, // as verify-ca
		{"127.0.0.1", "require", other, "postgres.tls.authority", false},
		{"127.0.0.1", "verify-ca", ca, "", true},
		{"127.0.0.1", "verify-ca", other, "postgres.tls.authority", false},
		{"localhost", "verify-full", ca, "", true},
		{"127.0.0.1", "verify-full", other, "postgres.tls.authority", false},
		{"127.0.0.2", "verify-ca", with(ca, "port", elsewhere), "", true},
		{"127.0.0.2", "verify-full", with(ca, "port", elsewhere), "postgres.tls.hostname", false},
		{"localhost", "verify-full", map[string]string{"sslrootcert": "/nowhere/ca.pem"}, "postgres.config", false},
		{"localhost", "verify-full", map[string]string{"sslrootcert": "system"}, "postgres.tls.authority", false},
	} {
		what := fmt.Sprintf("%s %s %v", c.host, c.mode, c.more)
		p, err := readFrom(t, sourceConfig(t, db, tlsOptions(t, c.host, c.mode, c.more)), record.Position{})
		if c.code != "" {
			wantError(t, what, err, connector.ClassConfig, c.code)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		sameRows(t, what, []string{fmt.Sprintf(`{"ssl":%t}`, c.encrypted)}, p.rows["query"])
	}
}

func with(options map[string]string, name, value string) map[string]string {
	out := map[string]string{name: value}
	maps.Copy(out, options)
	return out
}

// forward makes the server reachable under an address that its certificate does not name, and returns the port.
func forward(t *testing.T, db string) string {
	t.Helper()
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", u.Host)
			if err != nil {
				t.Error(err)
				return
			}
			pipe := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_, _ = near.Close(), far.Close()
			}
			open.Go(func() { pipe(far, near) })
			open.Go(func() { pipe(near, far) })
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		open.Wait()
	})
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // a TCP listener
}

// otherAuthority signed nothing here.
const otherAuthority = `-----BEGIN CERTIFICATE-----
MIIBjzCCATWgAwIBAgIUNukHTqFPYo8wiOOZWsOn0xrx9+gwCgYIKoZIzj0EAwIw
HDEaMBgGA1UEAwwRYW5vdGhlciBhdXRob3JpdHkwIBcNMjYxMTI5MTkzODE5WhgP
MjEyNjExMDUxOTM4MTlaMBwxGjAYBgNVBAMMEWFub3RoZXIgYXV0aG9yaXR5MFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEDRdr2JVU5IQAiK44Fe/i6i7L6QB5YEPE
Oyk1p2ERPwab2XQT88eCTTAwq3Tp3OsQFc/g1tokj6k1Ze2vtZr4JaNTMFEwHQYD
VR0OBBYEFKuJV2j8As7371Lv7PukpLfgX0auMB8GA1UdIwQYMBaAFKuJV2j8As73
71Lv7PukpLfgX0auMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIh
AK6H+LEGU9rGemZFiq1crJe5wXYcfSKpUqDWJf2BbrQUAiASrNbzBR4F38F2aN1F
PAA3YPXSPFuKjtw5jGMxazyWrw==
-----END CERTIFICATE-----
`

func wantError(t *testing.T, what string, err error, class connector.Class, code string) {
	t.Helper()
	var e *connector.Error
	switch {
	case err == nil:
		t.Errorf("%s: no error", what)
		return
	case connector.ClassOf(err) != class:
		t.Errorf("%s: class %s, want %s: %v", what, connector.ClassOf(err), class, err)
	case connector.HintOf(err) == "":
		t.Errorf("%s: no hint: %v", what, err)
	case strings.Contains(err.Error(), "\n"):
		t.Errorf("%s: more than one line: %q", what, err)
	}
	if !asError(err, &e) || e.Code != code {
		t.Errorf("%s: want code %s: %#v", what, code, err)
	}
	for _, secret := range []string{sourcePassword, awkwardPassword, "wrong-one"} {
		if strings.Contains(err.Error()+connector.HintOf(err), secret) {
			t.Errorf("%s: the error shows a password: %v", what, err)
		}
	}
}

func asError(err error, to **connector.Error) bool {
	for err != nil {
		if e, ok := err.(*connector.Error); ok { //nolint:errorlint // the walk is by hand, to the outermost one
			*to = e
			return true
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return false
		}
		err = u.Unwrap()
	}
	return false
}

// Each mistake gives one clear message with a class, a code and what to type.
// case C105.
func TestMistakes(t *testing.T) {
	db := pgtest.Database(t)
	must(t, pgtest.Conn(t, db), `CREATE TABLE orders (id int PRIMARY KEY, total numeric)`, `INSERT INTO orders VALUES (1, 2)`)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := closed.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCP listener
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		options map[string]string
		class   connector.Class
		code    string
		names   string
	}{
		"password":       {map[string]string{"password": "wrong-one"}, connector.ClassConfig, "postgres.auth", "leat"},
		"role":           {map[string]string{"user": "nobody_here"}, connector.ClassConfig, "postgres.auth", "nobody_here"},
		"database":       {map[string]string{"database": "nowhere"}, connector.ClassConfig, "postgres.database", "nowhere"},
		"host":           {map[string]string{"host": "nowhere.invalid"}, connector.ClassConfig, "postgres.host", "nowhere.invalid"},
		"port":           {map[string]string{"port": strconv.Itoa(port)}, connector.ClassTransient, "postgres.host", strconv.Itoa(port)},
		"socket":         {map[string]string{"host": "/nowhere"}, connector.ClassConfig, "postgres.host", "/nowhere"},
		"table":          {map[string]string{"table": "order"}, connector.ClassConfig, "postgres.table", "public.orders"},
		"pattern":        {map[string]string{"tables": "nothing*"}, connector.ClassConfig, "postgres.table", "nothing"},
		"schema":         {map[string]string{"table": "shop.orders"}, connector.ClassConfig, "postgres.table", "public.orders"},
		"column":         {map[string]string{"table": "orders", "columns": "id,totl"}, connector.ClassConfig, "postgres.column", `"total"`},
		"key":            {map[string]string{"table": "orders", "key": "ID"}, connector.ClassConfig, "postgres.column", `"id"`},
		"types":          {map[string]string{"table": "orders", "types": "x:text"}, connector.ClassConfig, "postgres.column", `"x"`},
		"where":          {map[string]string{"table": "orders", "where": "totl > 1"}, connector.ClassConfig, "postgres.column", "totl"},
		"where syntax":   {map[string]string{"table": "orders", "where": "total >"}, connector.ClassConfig, "postgres.syntax", "where"},
		"query":          {map[string]string{"query": "SELEC 1"}, connector.ClassConfig, "postgres.syntax", "syntax"},
		"query table":    {map[string]string{"query": "SELECT * FROM ordrs"}, connector.ClassConfig, "postgres.table", "ordrs"},
		"query columns":  {map[string]string{"query": "SELECT 1 AS a, 2 AS a"}, connector.ClassConfig, "postgres.column", `"a"`},
		"exclusive":      {map[string]string{"query": "SELECT 1", "table": "orders"}, connector.ClassConfig, "postgres.config", "exclude"},
		"parallel":       {map[string]string{"parallel": "0"}, connector.ClassConfig, "postgres.config", "parallel"},
		"division":       {map[string]string{"query": "SELECT 1 / (id - 1) AS x FROM orders"}, connector.ClassPermanent, "postgres.value", "division"},
		"timeout":        {map[string]string{"query": "SELECT pg_sleep(60)", "statement_timeout": "50ms"}, connector.ClassTransient, "postgres.timeout", "timeout"},
		"write in query": {map[string]string{"query": "SELECT nextval('orders_s')"}, connector.ClassConfig, "postgres.table", "orders_s"},
	} {
		_, err := readFrom(t, sourceConfig(t, db, c.options), record.Position{})
		if what == "exclusive" || what == "parallel" || what == "division" {
			if connector.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.names) {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		wantError(t, what, err, c.class, c.code)
		if err != nil && !strings.Contains(err.Error()+connector.HintOf(err), c.names) {
			t.Errorf("%s: the message does not name %s: %v", what, c.names, err)
		}
	}
}

// A password of any characters works in options and in URLs, and shows nowhere.
// case C103.
func TestAwkwardPassword(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	role := "leat_test_" + strings.ToLower(rand.Text()[:12])
	must(t, conn, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD '%s'`, role, awkwardPassword))
	dropRole(t, role, db)
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	raw := fmt.Sprintf("postgres://%s:%s@%s%s?sslmode=disable&query=SELECT 1 AS n", role, awkwardPassword, u.Host, u.Path)
	u.User = url.UserPassword(role, awkwardPassword)
	for what, cfg := range map[string]*struct {
		url     string
		options map[string]string
	}{
		"encoded": {u.String(), nil}, "raw": {raw, nil}, "fields": {db, map[string]string{"user": role, "password": awkwardPassword}},
	} {
		options := map[string]string{"query": "SELECT 1 AS n"}
		maps.Copy(options, cfg.options)
		p := readAll(t, cfg.url, options)
		sameRows(t, what, []string{`{"n":1}`}, p.rows["query"])
		options["port"] = "1"
		c := sourceConfig(t, cfg.url, options)
		_, err := readFrom(t, c, record.Position{})
		wantError(t, what, err, connector.ClassTransient, "postgres.host")
		if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, awkwardPassword) {
			t.Errorf("%s: printing the configuration shows the password", what)
		}
	}
}

// dropRole removes a role when the test ends, with what it was granted.
func dropRole(t *testing.T, role, db string) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, db)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, `DROP OWNED BY `+role+`; DROP ROLE `+role); err != nil {
			t.Error(err)
		}
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Check names every missing privilege at once, with the exact GRANT, and changes nothing.
// clause S23.
func TestCheckPrivileges(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	role := "leat_test_" + strings.ToLower(rand.Text()[:12])
	must(t, conn, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'x'`, role),
		`CREATE TABLE open (id int PRIMARY KEY)`, `CREATE TABLE shut (id int PRIMARY KEY)`, `CREATE TABLE "Half" (id int PRIMARY KEY, hidden int)`,
		`CREATE TABLE keyless (id int)`, `CREATE SCHEMA closed`, `CREATE TABLE closed.t (id int)`,
		`GRANT SELECT ON open, keyless TO `+role, `GRANT SELECT (id) ON "Half" TO `+role)
	dropRole(t, role, db)
	probe := func(options map[string]string) string {
		options["user"], options["password"] = role, "x"
		src, err := sourceConfig(t, db, options).Open(connectortest.Env(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := src.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		c, _ := connector.As[connector.Checker](src)
		probes, err := c.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range probes {
			if p.Status != connector.Pass {
				out = append(out, fmt.Sprintf("%s %s: %s -> %s", p.Status, p.Name, p.Detail, p.Fix))
			}
		}
		return strings.Join(out, "\n")
	}
	for _, c := range []struct {
		options map[string]string
		want    string
	}{
		{map[string]string{"tables": "public.*"}, fmt.Sprintf(
			`fail privileges: %[1]s may not read public.Half (hidden), public.shut -> `+
				"GRANT SELECT (\"hidden\") ON \"public\".\"Half\" TO \"%[1]s\";\nGRANT SELECT ON \"public\".\"shut\" TO \"%[1]s\";", role)},
		{map[string]string{"table": "open"}, ""},
		{map[string]string{"table": "Half", "columns": "id"}, ""},
		{map[string]string{"table": "closed.t"}, fmt.Sprintf(
			"fail schemas: %[1]s may not use the schemas: closed -> GRANT USAGE ON SCHEMA \"closed\" TO \"%[1]s\";\n"+
				"fail privileges: %[1]s may not read closed.t -> GRANT SELECT ON \"closed\".\"t\" TO \"%[1]s\";", role)},
		{map[string]string{"tables": "*.t,public.open"}, fmt.Sprintf(
			`warn schemas: %[1]s may not use these schemas, whose tables are left out: closed -> GRANT USAGE ON SCHEMA "closed" TO "%[1]s";`, role)},
		{map[string]string{"table": "keyless"}, `warn selection: 1 datasets; without a key, and so read again from their beginning after a crash: ` +
			`public.keyless -> give them a primary key, or name one of a view or query with key=COLUMNS`},
	} {
		if got := probe(c.options); got != c.want {
			t.Errorf("%v: got\n%s\nwant\n%s", c.options, got, c.want)
		}
	}
	_, err := readFrom(t, sourceConfig(t, db, map[string]string{"table": "shut", "user": role, "password": "x"}), record.Position{})
	wantError(t, "reading without privilege", err, connector.ClassPermanent, "postgres.privilege")
}

// A pooler that lets only the usual startup parameters through does not stop a source, and settings end with their transaction.
// case C050.
func TestStartupParameters(t *testing.T) {
	db := pgtest.Database(t)
	must(t, pgtest.Conn(t, db), `CREATE TABLE t (id int PRIMARY KEY)`, `INSERT INTO t VALUES (1)`)
	p := readAll(t, db, map[string]string{"query": `SELECT current_setting('application_name') AS app, current_setting('IntervalStyle') AS style,
		(SELECT count(*) FROM pg_prepared_statements) AS prepared, current_setting('transaction_isolation') AS isolation`})
	sameRows(t, "session", []string{`{"app":"leat","style":"postgres","prepared":0,"isolation":"repeatable read"}`}, p.rows["query"])
}
