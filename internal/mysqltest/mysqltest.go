package mysqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// cleanUpTimeout bounds what a test does after its end.
const cleanUpTimeout = 30 * time.Second

// Flavor is one of the two kinds of server.
type Flavor string

// The kinds of server.
const (
	MariaDB Flavor = "MariaDB"
	MySQL   Flavor = "MySQL"
)

// Flavors are both, for a test that is run with each.
func Flavors() []Flavor { return []Flavor{MariaDB, MySQL} }

// URL returns the URL of the test server's own database, for tests that change nothing there.
// Without a server the test is skipped; in CI it fails, but for MySQL, which not every machine can have.
func URL(t testing.TB, f Flavor) string {
	t.Helper()
	return variable(t, f, "LEAT_TEST_"+strings.ToUpper(string(f)))
}

// CA returns the path of the certificate authority to verify a server with, under the name localhost.
func CA(t testing.TB) string {
	t.Helper()
	return variable(t, MariaDB, "LEAT_TEST_MYSQL_CA")
}

// Socket returns the path of the server's unix socket.
func Socket(t testing.TB, f Flavor) string {
	t.Helper()
	return variable(t, f, "LEAT_TEST_"+strings.ToUpper(string(f))+"_SOCKET")
}

// Database makes an empty database with a random name and returns its URL. The database is dropped when the test ends.
func Database(t testing.TB, f Flavor) string {
	t.Helper()
	return database(t, URL(t, f))
}

func database(t testing.TB, base string) string {
	t.Helper()
	own, err := url.Parse(base)
	if err != nil {
		t.Fatalf("the address of the test server is not a URL: %v", err)
	}
	name := "leat_test_" + strings.ToLower(rand.Text()[:12])
	exec(t.Context(), t, base, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanUpTimeout)
		defer cancel()
		exec(ctx, t, base, "DROP DATABASE IF EXISTS "+name)
	})
	own.Path = "/" + name
	return own.String()
}

// DB connects to the URL, for statements in any number at a time. It is closed when the test ends.
func DB(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := open(url)
	if err == nil {
		err = db.PingContext(t.Context())
	}
	if err != nil {
		t.Fatalf("connecting to the test server: %v", err)
	}
	t.Cleanup(func() { closeDB(t, db) })
	return db
}

// Exec runs statements on a connection of their own.
func Exec(t testing.TB, url string, statements ...string) {
	t.Helper()
	for _, s := range statements {
		exec(t.Context(), t, url, s)
	}
}

// open connects as soon as a statement is to be run. Options of leat's in the URL mean nothing here.
func open(address string) (*sql.DB, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what was being done
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.MultiStatements, c.AllowNativePasswords, c.InterpolateParams = true, true, true
	c.Logger = &mysql.NopLogger{} // what goes wrong is an error of the statement
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what was being done
	}
	return sql.OpenDB(connector), nil
}

func variable(t testing.TB, f Flavor, name string) string {
	t.Helper()
	value := os.Getenv(name)
	switch {
	case value != "":
	case os.Getenv("CI") == "true" && f == MariaDB:
		t.Fatalf("%s is not set, and in CI it must be: run the tests with `make test`", name)
	default:
		t.Skipf(`%s is not set: dev/services start && eval "$(dev/services env)"`, name)
	}
	return value
}

// exec runs one statement on a connection of its own, which no test can have left in a bad state.
func exec(ctx context.Context, t testing.TB, url, statement string) {
	t.Helper()
	db, err := open(url)
	if err != nil {
		t.Fatalf("connecting to the test server: %v", err)
	}
	defer closeDB(t, db)
	if _, err := db.ExecContext(ctx, statement); err != nil {
		t.Fatalf("%.300s: %v", statement, err)
	}
}

func closeDB(t testing.TB, db *sql.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Logf("closing a connection to the test server: %v", err)
	}
}
