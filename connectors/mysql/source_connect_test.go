package mysql_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/mysql"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// discover connects and reads the catalogue.
func discover(t testing.TB, cfg *mysql.SourceConfig) error {
	t.Helper()
	src, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		return err
	}
	d, ok := connector.As[connector.Discoverer](src)
	if !ok {
		t.Fatal("no discoverer")
	}
	_, err = d.Discover(t.Context())
	if closing := src.Close(t.Context()); closing != nil {
		t.Errorf("Close: %v", closing)
	}
	return err
}

// Errors of connecting say what was wrong, where, and what to type, and never show the password.
func TestConnectErrors(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			address := mysqltest.Database(t, f)
			mysqltest.Exec(t, address, "CREATE TABLE orders (id int PRIMARY KEY)")
			for _, c := range []struct {
				name   string
				change func(c *mysql.SourceConfig)
				code   string
				class  connector.Class
				text   string
			}{
				{"password", func(c *mysql.SourceConfig) { c.Password = "wr'ong" }, "mysql.auth", connector.ClassConfig, "Access denied"},
				{"user", func(c *mysql.SourceConfig) { c.User = "nobody" }, "mysql.auth", connector.ClassConfig, `as "nobody"`},
				{"database", func(c *mysql.SourceConfig) { c.Database = "nosuch" }, "mysql.database", connector.ClassConfig, "nosuch"},
				{"table", func(c *mysql.SourceConfig) { c.Table = "order" }, "mysql.table", connector.ClassConfig, "did you mean"},
				{"port", func(c *mysql.SourceConfig) { c.Port = 1 }, "mysql.host", connector.ClassTransient, "refused"},
				{"host", func(c *mysql.SourceConfig) { c.Host = "no-such-host.invalid" }, "mysql.host", connector.ClassConfig, "no-such-host.invalid"},
				{"socket", func(c *mysql.SourceConfig) { c.Host, c.Socket = "", "/no/such/socket" }, "mysql.host", connector.ClassConfig, "socket"},
				{"column", func(c *mysql.SourceConfig) { c.Table, c.Columns = "orders", []string{"idd"} }, "mysql.column", connector.ClassConfig, `"id"`},
			} {
				t.Run(c.name, func(t *testing.T) {
					cfg := sourceConfig(t, address, nil)
					c.change(cfg)
					err := discover(t, cfg)
					e := deepest(err)
					if e == nil || e.Code != c.code || connector.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.text) {
						t.Fatalf("%v: want code %s, class %s and %q", err, c.code, c.class, c.text)
					}
					if connector.HintOf(err) == "" {
						t.Errorf("no hint: %v", err)
					}
					if strings.Contains(fmt.Sprintf("%v %+v", err, e), testPassword) || strings.Contains(err.Error(), "wr'ong") {
						t.Errorf("the password shows: %v", err)
					}
				})
			}
		})
	}
}

// deepest returns the innermost error with a code.
func deepest(err error) *connector.Error {
	var found *connector.Error
	for err != nil {
		if e, ok := err.(*connector.Error); ok { //nolint:errorlint // the chain is walked here
			found = e
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			break
		}
		err = u.Unwrap()
	}
	return found
}

// Encryption is what ssl_mode says, on control connections and on those that read rows.
func TestEncryption(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			address := mysqltest.Database(t, f)
			mysqltest.Exec(t, address, "CREATE TABLE one (id int PRIMARY KEY)", "INSERT INTO one VALUES (1)")
			ca := mysqltest.CA(t)
			for _, c := range []struct {
				host, mode, ca, code string
				plain                bool
			}{
				{"127.0.0.1", "disabled", "", "", true},
				{"127.0.0.1", "preferred", "", "", false},
				{"127.0.0.1", "REQUIRED", "", "", false},
				{"127.0.0.1", "verify-ca", ca, "", false},
				{"localhost", "verify_identity", ca, "", false},
				{"localhost", "verify_identity", "", "mysql.tls.authority", false},
				{"localhost", "verify_ca", "", "mysql.tls.authority", false},
			} {
				t.Run(c.host+"/"+c.mode+"/"+c.code, func(t *testing.T) {
					cfg := sourceConfig(t, address, map[string]string{
						"ssl_ca": c.ca,
						"query":  "SELECT variable_value AS v FROM performance_schema.session_status WHERE variable_name = 'Ssl_version'",
					})
					if f == mysqltest.MariaDB {
						cfg.Query = "SELECT variable_value AS v FROM information_schema.session_status WHERE variable_name = 'Ssl_version'"
					}
					cfg.Host, cfg.SSLMode = c.host, c.mode
					p, err := readFrom(t, cfg, record.Position{})
					if c.code != "" {
						if e := deepest(err); e == nil || e.Code != c.code {
							t.Fatalf("%v, want %s", err, c.code)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					rows, _ := p.only(t)
					if plain := rows[0] == `{"v":""}`; plain != c.plain {
						t.Errorf("Ssl_version is %s", rows[0])
					}
				})
			}
		})
	}
}

// What is left out comes from the option file and the environment.
func TestDefaults(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			address := mysqltest.Database(t, f)
			mysqltest.Exec(t, address, "CREATE TABLE one (id int PRIMARY KEY)", "INSERT INTO one VALUES (1)")
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "my.cnf")
			text := fmt.Sprintf("[mysqld]\nuser=wrong\n[client]\n# comment\nhost = %s\nport=%s\nuser = \"leat\"\nssl-mode=REQUIRED\n", u.Hostname(), u.Port())
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("MYSQL_PWD", testPassword)
			cfg := sourceConfig(t, "mysql:///"+u.Path[1:], map[string]string{"defaults_file": file, "table": "one"})
			if err := discover(t, cfg); err != nil {
				t.Fatal(err)
			}
			socket := sourceConfig(t, "mysql://leat@/"+u.Path[1:], map[string]string{"socket": mysqltest.Socket(t, f), "table": "one"})
			if err := discover(t, socket); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A read takes no lock that anybody waits for: a user without RELOAD reads while a long SELECT runs, and writers go on.
// case C057.
func TestNoLocks(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			s := mysqltest.Server(t, f)
			address := s.Database()
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			mysqltest.Exec(t, address, "CREATE TABLE busy (id int PRIMARY KEY, v int)", "INSERT INTO busy VALUES (1, 0), (2, 0), (3, 0)",
				"CREATE USER reader IDENTIFIED BY 'leat-test'", "GRANT SELECT ON "+u.Path[1:]+".busy TO reader")
			db := mysqltest.DB(t, address)
			long := make(chan error, 1)
			go func() {
				_, err := db.ExecContext(t.Context(), "SELECT count(*), SLEEP(3) FROM busy")
				long <- err
			}()
			stop, slowest := make(chan struct{}), make(chan time.Duration, 1)
			go func() {
				worst := time.Duration(0)
				for {
					select {
					case <-stop:
						slowest <- worst
						return
					default:
					}
					start := time.Now()
					if _, err := db.ExecContext(t.Context(), "UPDATE busy SET v = v + 1"); err != nil {
						t.Error(err)
					}
					worst = max(worst, time.Since(start))
				}
			}()
			cfg := sourceConfig(t, s.As("reader", testPassword, u.Path[1:]), map[string]string{"table": "busy", "chunk_bytes": "200"})
			for range 5 {
				p, err := readFrom(t, cfg, record.Position{})
				if err != nil {
					t.Fatal(err)
				}
				if rows, _ := p.only(t); len(rows) < 3 {
					t.Errorf("%d rows", len(rows))
				}
			}
			close(stop)
			if worst := <-slowest; worst > 2*time.Second {
				t.Errorf("a writer waited for %s", worst)
			}
			if err := <-long; err != nil {
				t.Error(err)
			}
		})
	}
}
