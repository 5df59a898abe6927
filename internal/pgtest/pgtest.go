package pgtest

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// cleanUpTimeout bounds what a test does after its end.
const cleanUpTimeout = 30 * time.Second

// URL returns the URL of the test server's own database, for tests that change nothing there.
// Without a server the test is skipped, in CI it fails.
func URL(t testing.TB) string {
	t.Helper()
	return variable(t, "LEAT_TEST_POSTGRES")
}

// CA returns the path of the certificate authority to verify the server with, under the name localhost.
func CA(t testing.TB) string {
	t.Helper()
	return variable(t, "LEAT_TEST_PG_CA")
}

// SocketDir returns the folder of the server's unix socket.
func SocketDir(t testing.TB) string {
	t.Helper()
	return variable(t, "LEAT_TEST_PG_SOCKET")
}

// Database makes an empty database with a random name and returns its URL. The database is dropped
// when the test ends, whoever is still connected to it.
func Database(t testing.TB) string {
	t.Helper()
	base, err := url.Parse(URL(t))
	if err != nil {
		t.Fatalf("LEAT_TEST_POSTGRES is not a URL: %v", err)
	}
	name := "leat_test_" + strings.ToLower(rand.Text()[:12])
	exec(t.Context(), t, base.String(), "CREATE DATABASE "+name+" TEMPLATE template0")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanUpTimeout)
		defer cancel()
		exec(ctx, t, base.String(), "DROP DATABASE "+name+" WITH (FORCE)")
	})
	own := *base
	own.Path = "/" + name
	return own.String()
}

// Conn connects to the URL and closes the connection when the test ends.
func Conn(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connecting to the test server: %v", err)
	}
	t.Cleanup(func() { closeConn(t, conn) })
	return conn
}

func variable(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	switch {
	case value != "":
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is not set, and in CI it must be: run the tests with `make test`", name)
	default:
		t.Skipf(`%s is not set: dev/services start && eval "$(dev/services env)"`, name)
	}
	return value
}

// exec runs one statement on a connection of its own, which no test can have left in a bad state.
func exec(ctx context.Context, t testing.TB, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connecting to the test server: %v", err)
	}
	defer closeConn(t, conn)
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func closeConn(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanUpTimeout)
	defer cancel()
	if err := conn.Close(ctx); err != nil {
		t.Logf("closing a connection to the test server: %v", err)
	}
}
