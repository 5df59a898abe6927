package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/internal/pgtest"
)

func TestDatabase(t *testing.T) {
	var name string
	t.Run("exists and is empty while the test runs", func(t *testing.T) {
		conn := pgtest.Conn(t, pgtest.Database(t))
		var tables int
		err := conn.QueryRow(t.Context(), `
			SELECT current_database(), count(c.oid)
			FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid
			WHERE n.nspname = 'public'`).Scan(&name, &tables)
		if err != nil {
			t.Fatal(err)
		}
		if tables != 0 {
			t.Errorf("%d relations in a fresh database", tables)
		}
	})

	conn := pgtest.Conn(t, pgtest.URL(t))
	var left bool
	err := conn.QueryRow(t.Context(), `SELECT exists (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&left)
	if err != nil {
		t.Fatal(err)
	}
	if left {
		t.Errorf("database %s is left behind", name)
	}
}

// The setup that tests of login, TLS and change capture count on.
func TestServerSetup(t *testing.T) {
	url := pgtest.URL(t)

	t.Run("a wrong password is refused over TCP", func(t *testing.T) {
		config := parse(t, url)
		config.Password = "not the password"
		if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
			_ = conn.Close(t.Context())
			t.Error("it was accepted")
		}
	})
	t.Run("TLS verifies against the authority", func(t *testing.T) {
		conn := pgtest.Conn(t, url+"&sslmode=verify-full&sslrootcert="+pgtest.CA(t))
		var encrypted bool
		err := conn.QueryRow(t.Context(), `SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`).Scan(&encrypted)
		if err != nil || !encrypted {
			t.Errorf("encrypted %t, error %v", encrypted, err)
		}
	})
	t.Run("the socket asks no password", func(t *testing.T) {
		config := parse(t, url)
		config.Host, config.Password = pgtest.SocketDir(t), ""
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	for name, want := range map[string]string{
		"wal_level":           "logical",
		"server_encoding":     "UTF8",
		"password_encryption": "scram-sha-256",
	} {
		t.Run(name+" is "+want, func(t *testing.T) {
			var got string
			if err := pgtest.Conn(t, url).QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("got %s", got)
			}
		})
	}
	t.Run("contrib extensions can be made", func(t *testing.T) {
		conn := pgtest.Conn(t, pgtest.Database(t))
		for _, extension := range []string{"citext", "hstore", "ltree"} {
			if _, err := conn.Exec(t.Context(), "CREATE EXTENSION "+extension); err != nil {
				t.Errorf("%s: %v", extension, err)
			}
		}
	})
}

func parse(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
