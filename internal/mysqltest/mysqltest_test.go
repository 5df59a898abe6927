package mysqltest_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/leatdata/leat/internal/mysqltest"
)

func TestDatabase(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			var name string
			t.Run("exists and is empty while the test runs", func(t *testing.T) {
				var tables int
				err := mysqltest.DB(t, mysqltest.Database(t, f)).QueryRowContext(t.Context(),
					`SELECT DATABASE(), (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE())`).Scan(&name, &tables)
				if err != nil || tables != 0 {
					t.Errorf("%d tables in a fresh database, error %v", tables, err)
				}
			})
			var left int
			err := mysqltest.DB(t, mysqltest.URL(t, f)).QueryRowContext(t.Context(),
				`SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?`, name).Scan(&left)
			if err != nil || left != 0 {
				t.Errorf("database %s is left behind: %d, error %v", name, left, err)
			}
		})
	}
}

// The setup that tests of login, TLS and change capture count on.
func TestServerSetup(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			config := func(t *testing.T) *mysql.Config {
				t.Helper()
				u, err := url.Parse(mysqltest.URL(t, f))
				if err != nil {
					t.Fatal(err)
				}
				c := mysql.NewConfig()
				c.Net, c.Addr, c.User = "tcp", "localhost:"+u.Port(), u.User.Username()
				c.Passwd, _ = u.User.Password()
				return c
			}
			ask := func(t *testing.T, c *mysql.Config, sql string) (answer string, err error) {
				t.Helper()
				connector, err := mysql.NewConnector(c)
				if err != nil {
					t.Fatal(err)
				}
				conn, err := connector.Connect(t.Context())
				if err != nil {
					return "", err
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
				db := mysqltest.DB(t, mysqltest.URL(t, f))
				return answer, db.QueryRowContext(t.Context(), sql).Scan(&answer)
			}
			t.Run("a wrong password is refused", func(t *testing.T) {
				c := config(t)
				c.Passwd = "not the password"
				if _, err := ask(t, c, "SELECT 1"); err == nil {
					t.Error("it was accepted")
				}
			})
			t.Run("TLS verifies against the authority", func(t *testing.T) {
				pem, err := os.ReadFile(mysqltest.CA(t))
				if err != nil {
					t.Fatal(err)
				}
				c := config(t)
				c.TLS = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}
				c.TLS.RootCAs.AppendCertsFromPEM(pem)
				if _, err := ask(t, c, "SELECT 1"); err != nil {
					t.Error(err)
				}
			})
			t.Run("the socket takes the password", func(t *testing.T) {
				c := config(t)
				c.Net, c.Addr = "unix", mysqltest.Socket(t, f)
				if _, err := ask(t, c, "SELECT 1"); err != nil {
					t.Error(err)
				}
			})
			settings := map[string]string{
				"log_bin": "1", "binlog_format": "ROW", "binlog_row_image": "FULL", "time_zone": "+00:00", "local_infile": "1",
			}
			if f == mysqltest.MySQL {
				settings["gtid_mode"] = "ON"
			}
			for name, want := range settings {
				t.Run(name+" is "+want, func(t *testing.T) {
					if got, err := ask(t, config(t), "SELECT @@GLOBAL."+name); err != nil || got != want {
						t.Errorf("got %s, error %v", got, err)
					}
				})
			}
		})
	}
}

func TestServer(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			s := mysqltest.Server(t, f, "TZ=Asia/Kathmandu", "default_time_zone=SYSTEM", "binlog_row_metadata=FULL")
			var zone, metadata string
			err := mysqltest.DB(t, s.URL()).QueryRowContext(t.Context(), `SELECT TIMEDIFF(NOW(), UTC_TIMESTAMP()), @@binlog_row_metadata`).
				Scan(&zone, &metadata)
			if err != nil || zone != "05:45:00" || metadata != "FULL" {
				t.Errorf("zone %s, row metadata %s, error %v", zone, metadata, err)
			}
			mysqltest.Exec(t, s.URL(), `CREATE TABLE t (a INT PRIMARY KEY)`, `INSERT INTO t VALUES (1)`)

			t.Run("a killed server starts again with what it had", func(t *testing.T) {
				s.Kill()
				s.Start()
				wantRows(t, s.URL(), 1)
			})
			t.Run("a replica follows, and leads when it is promoted", func(t *testing.T) {
				r := s.Replica()
				mysqltest.Exec(t, s.URL(), `INSERT INTO t VALUES (2)`)
				r.CatchUp(s)
				wantRows(t, r.URL(), 2)
				r.Promote()
				mysqltest.Exec(t, r.URL(), `INSERT INTO t VALUES (3)`)
			})
		})
	}
}

func wantRows(t *testing.T, url string, want int) {
	t.Helper()
	var n int
	if err := mysqltest.DB(t, url).QueryRowContext(t.Context(), `SELECT COUNT(*) FROM t`).Scan(&n); err != nil || n != want {
		t.Errorf("%d rows, want %d, error %v", n, want, err)
	}
}
