package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// A run by cursor delivers what is new, also rows that have exactly the last cursor, and nothing twice.
func TestCursor(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			for _, c := range []struct{ typ, one, two, three string }{
				{"datetime(6)", "'2026-01-01 00:00:00'", "'2026-01-01 00:00:00.5'", "'2026-01-02'"},
				{"timestamp", "'2026-03-29 01:59:59'", "'2026-03-29 02:00:00'", "'2026-03-29 03:00:00'"},
				{"bigint unsigned", "1", "9223372036854775808", "18446744073709551615"},
				{"decimal(30,10)", "0.1", "0.2", "10"},
				{"varchar(10) COLLATE utf8mb4_general_ci", "'a'", "'B'", "'c'"},
				{"time(3)", "'-10:00:00'", "'09:00:00'", "'100:00:00'"},
				{"binary(3)", "X'00'", "X'0001'", "X'ff'"},
			} {
				t.Run(c.typ, func(t *testing.T) {
					url := mysqltest.Database(t, f)
					mysqltest.Exec(t, url, "CREATE TABLE c (id int PRIMARY KEY, at "+c.typ+" NULL)",
						fmt.Sprintf("SET time_zone = '+00:00'; INSERT INTO c VALUES (1, %s), (2, %s), (5, %s)", c.one, c.two, c.two))
					cfg := sourceConfig(t, url, map[string]string{"table": "c", "cursor": "at"})
					run := func(from record.Position, want string) record.Position {
						t.Helper()
						p, err := readFrom(t, cfg, from)
						if err != nil {
							t.Fatalf("%v (%s)", err, connector.HintOf(err))
						}
						var ids []string
						for _, rows := range p.rows {
							for _, r := range rows {
								ids = append(ids, strings.TrimPrefix(r[:strings.IndexByte(r, ',')], `{"id":`))
							}
						}
						if got := strings.Join(ids, " "); got != want {
							t.Errorf("ids %q, want %q", got, want)
						}
						return p.end
					}
					end := run(record.Position{}, "1 2 5")
					end = run(end, "")
					mysqltest.Exec(t, url, fmt.Sprintf("SET time_zone = '+00:00'; INSERT INTO c VALUES (3, %s), (4, %s), (6, %s)", c.two, c.three, c.one))
					end = run(end, "3 4")
					end = run(end, "")
					mysqltest.Exec(t, url, fmt.Sprintf("SET time_zone = '+00:00'; INSERT INTO c VALUES (9, %s)", c.three))
					run(end, "9")
					mysqltest.Exec(t, url, "INSERT INTO c VALUES (7, NULL)")
					if _, err := readFrom(t, cfg, end); connector.ClassOf(err) != connector.ClassPermanent {
						t.Errorf("a row without a cursor: %v", err)
					}
				})
			}
		})
	}
}

// A lag finds what was committed late.
func TestCursorLag(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			url := mysqltest.Database(t, f)
			mysqltest.Exec(t, url, "CREATE TABLE c (id int PRIMARY KEY, at datetime NOT NULL, n int unsigned NOT NULL)",
				"INSERT INTO c VALUES (1, '2026-01-01 10:00:00', 100), (2, '2026-01-01 12:00:00', 200)")
			for cursor, lag := range map[string]string{"at": "1h", "n": "60"} {
				cfg := sourceConfig(t, url, map[string]string{"table": "c", "cursor": cursor, "lag": lag})
				first, err := readFrom(t, cfg, record.Position{})
				if err != nil {
					t.Fatal(err)
				}
				mysqltest.Exec(t, url, "INSERT INTO c VALUES (3, '2026-01-01 11:30:00', 150)")
				for range 2 {
					p, err := readFrom(t, cfg, first.end)
					if err != nil {
						t.Fatal(err)
					}
					rows, _ := p.only(t)
					if len(rows) != 2 || !strings.HasPrefix(rows[0], `{"id":3,`) || !strings.HasPrefix(rows[1], `{"id":2,`) {
						t.Errorf("%s: %v", cursor, rows)
					}
					first.end = p.end
				}
				mysqltest.Exec(t, url, "DELETE FROM c WHERE id = 3")
			}
			cfg := sourceConfig(t, url, map[string]string{"table": "c", "cursor": "at", "lag": "many"})
			first, err := readFrom(t, cfg, record.Position{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := readFrom(t, cfg, first.end); connector.ClassOf(err) != connector.ClassConfig || connector.HintOf(err) == "" {
				t.Errorf("a lag that is none: %v", err)
			}
		})
	}
}

// A column that is added, dropped or changed while a table is read is an error that may be tried again, and never a wrong value.
func TestChangedTable(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			url := mysqltest.Database(t, f)
			for _, alter := range []string{
				"MODIFY t varchar(5) CHARACTER SET gbk", "MODIFY v bigint", "MODIFY v int unsigned", "DROP COLUMN v", "RENAME COLUMN v TO w",
				"MODIFY v varchar(20)",
			} {
				mysqltest.Exec(t, url, "DROP TABLE IF EXISTS a", "CREATE TABLE a (id int PRIMARY KEY, v int, t varchar(5) CHARACTER SET latin1)",
					"INSERT INTO a VALUES (1, 10, 'a'), (2, 20, 'é'), (3, 30, NULL)")
				src, err := sourceConfig(t, url, map[string]string{"table": "a", "chunk_bytes": "1", "parallel": "1"}).Open(connectortest.Env(t))
				if err != nil {
					t.Fatal(err)
				}
				d, ok := connector.As[connector.Discoverer](src)
				if !ok {
					t.Fatal("no discoverer")
				}
				if _, err := d.Discover(t.Context()); err != nil {
					t.Fatal(err)
				}
				mysqltest.Exec(t, url, "ALTER TABLE a "+alter)
				if err := src.Start(t.Context(), connector.SourceStart{}); err != nil {
					t.Fatal(err)
				}
				for err == nil {
					_, err = src.Read(t.Context(), connector.Limit{Rows: 10, Bytes: 1000})
				}
				if errors.Is(err, io.EOF) || !strings.Contains(fmt.Sprint(err), "test") {
					t.Errorf("%s: %v", alter, err)
				}
				if err := src.Close(context.Background()); err != nil {
					t.Errorf("Close: %v", err)
				}
			}
		})
	}
}

// A condition is one expression about the columns, whatever it looks like.
func TestConditions(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			url := mysqltest.Database(t, f)
			mysqltest.Exec(t, url, "CREATE TABLE a (id int PRIMARY KEY, v varchar(10))", "INSERT INTO a VALUES (1, 'x'), (2, 'y'), (3, NULL)")
			src, err := sourceConfig(t, url, map[string]string{"table": "a"}).Open(connectortest.Env(t))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := src.Close(context.Background()); err != nil {
					t.Errorf("Close: %v", err)
				}
			}()
			d, okD := connector.As[connector.Discoverer](src)
			c, okC := connector.As[connector.Conditional](src)
			snap, okS := connector.As[connector.Snapshotter](src)
			if !okD || !okC || !okS {
				t.Fatal("a capability is missing")
			}
			found, err := d.Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			name := found[0].Name
			for _, bad := range []string{"", " ", "nosuch = 1", "id = 1) OR (id = 2", "id = ?", "id = 1; DROP TABLE a", "(id", "/* x"} {
				if err := c.CheckWhere(t.Context(), name, bad); connector.ClassOf(err) != connector.ClassPermanent || connector.HintOf(err) == "" {
					t.Errorf("%q: %v", bad, err)
				}
			}
			for good, want := range map[string]int{"id > 1": 2, "v = 'x' -- comment": 1, "v IS NULL # comment": 1, "id IN (1, 3) OR v = 'y'": 3} {
				if err := c.CheckWhere(t.Context(), name, good); err != nil {
					t.Errorf("%q: %v", good, err)
				}
				rows := 0
				for chunk, err := range c.PlanWhere(t.Context(), name, good, nil, 1) {
					if err != nil {
						t.Fatal(err)
					}
					chunk.Where = good
					err = snap.ReadChunk(t.Context(), chunk, func(b *record.Batch) error {
						rows += b.NumRows()
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				if rows != want {
					t.Errorf("%q: %d rows, want %d", good, rows, want)
				}
			}
		})
	}
}
