package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// serverVersion is the server's version, as 150003.
func serverVersion(t testing.TB, conn *pgx.Conn) int {
	t.Helper()
	var n int
	must(t, conn.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int`).Scan(&n))
	return n
}

// A table is read as the stream has it: the publication's columns and rows, its replica identity as the key, no generated columns that
// are not sent, roots of partitions, and what inherits from a table apart from it.
// cases C031, C035.
func TestFollowedTables(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	generated := serverVersion(t, conn) >= generatedVersion
	sqlExec(t, conn, `CREATE TABLE plain (id int PRIMARY KEY, v text)`)
	sqlExec(t, conn, `CREATE TABLE part (id int PRIMARY KEY, secret text, v text); INSERT INTO part SELECT i, 's', 'v' || i FROM generate_series(1, 10) i`)
	sqlExec(t, conn, `CREATE TABLE gen (q int PRIMARY KEY, p int, total int GENERATED ALWAYS AS (q * p) STORED, v text); INSERT INTO gen VALUES (2, 3)`)
	sqlExec(t, conn, `CREATE TABLE tree (id int, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
		CREATE TABLE tree_n PARTITION OF tree FOR VALUES IN ('n'); CREATE TABLE tree_s PARTITION OF tree FOR VALUES IN ('s');
		INSERT INTO tree VALUES (1, 'n'), (2, 's')`)
	sqlExec(t, conn, `CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child () INHERITS (parent); ALTER TABLE child REPLICA IDENTITY FULL;
		INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2)`)
	sqlExec(t, conn, `CREATE TABLE indexed (id int PRIMARY KEY, a int NOT NULL, b text NOT NULL); CREATE UNIQUE INDEX i ON indexed (b, a) INCLUDE (id);
		ALTER TABLE indexed REPLICA IDENTITY USING INDEX i`)
	sqlExec(t, conn, `CREATE TABLE whole (id int PRIMARY KEY, v text); ALTER TABLE whole REPLICA IDENTITY FULL`)
	sqlExec(t, conn, `CREATE TABLE keyless (v text); ALTER TABLE keyless REPLICA IDENTITY FULL; INSERT INTO keyless SELECT 'x' FROM generate_series(1, 3)`)
	sqlExec(t, conn, `CREATE TABLE nothing (id int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING`)
	sqlExec(t, conn, `CREATE TABLE late (id int PRIMARY KEY DEFERRABLE)`) // such a key is no replica identity
	sqlExec(t, conn, `CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY); CREATE VIEW view AS SELECT 1 AS id`)
	sqlExec(t, conn, `CREATE PUBLICATION pub FOR TABLE plain, part (id, v) WHERE (id > 2 AND v <> 'v5'), gen, tree, indexed, whole, keyless, nothing, late,
		ONLY parent, child WITH (publish_via_partition_root = true)`)
	sqlExec(t, conn, `ANALYZE`)

	s := followSource(t, db, map[string]string{"where": "true -- all of it"})
	got := map[string]string{}
	list, err := s.Discover(t.Context())
	must(t, err)
	for _, d := range list {
		chunks, _ := planned(t, s, d.Name, 1<<20)
		if len(chunks) != 1 || chunks[0].From != nil || chunks[0].To != nil {
			t.Errorf("%s has the chunks %v", d.Name, chunks)
		}
		c := readChunk(t, s, chunks[0])
		if c.schema != d.Schema {
			t.Errorf("%s: the chunk has another schema than the one that was discovered", d.Name)
		}
		got[d.Name] = fmt.Sprintf("%v key %v: %d rows", c.schema.Names(), c.schema.KeyNames(), len(c.rows))
		for _, f := range c.schema.Columns.Fields() {
			if record.IDOf(f) == "" {
				t.Errorf("%s: column %s has no id", d.Name, f.Name)
			}
		}
	}
	want := map[string]string{
		"public.plain":   "[id v] key [id]: 0 rows",
		"public.part":    "[id v] key [id]: 7 rows",
		"public.gen":     "[q p v] key [q]: 1 rows",
		"public.tree":    "[id region] key [id region]: 2 rows",
		"public.parent":  "[id] key [id]: 1 rows",
		"public.child":   "[id] key []: 1 rows",
		"public.indexed": "[id a b] key [b a]: 0 rows",
		"public.whole":   "[id v] key [id]: 0 rows",
		"public.keyless": "[v] key []: 3 rows",
		"public.nothing": "[id] key []: 0 rows",
		"public.late":    "[id] key []: 0 rows",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if generated {
		sqlExec(t, conn, `ALTER PUBLICATION pub SET (publish_generated_columns = stored)`)
		c := readChunk(t, followSource(t, db, map[string]string{"table": "gen"}), record.Chunk{Dataset: "public.gen"})
		if want := []string{`{"q":2,"p":3,"total":6,"v":null}`}; !slices.Equal(c.rows, want) {
			t.Errorf("with generated columns published: %q, want %q", c.rows, want)
		}
	}
	for _, c := range []struct {
		options map[string]string
		want    string
	}{
		{map[string]string{"table": "view"}, "it is a view"},
		{map[string]string{"tables": "plain,unlogged"}, "it is unlogged"},
		{map[string]string{"table": "part", "columns": "id,secret"}, "does not send it"},
		{map[string]string{"table": "part", "columns": "v"}, "it is part of the key"},
		{map[string]string{"table": "plain", "key": "v"}, "replica identity"},
	} {
		_, err := followSource(t, db, c.options).Discover(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || connector.ClassOf(err) != connector.ClassConfig || connector.HintOf(err) == "" {
			t.Errorf("%v: %v (%s), want %q", c.options, err, connector.HintOf(err), c.want)
		}
	}
	for _, options := range []map[string]string{
		{"table": "whole", "key": "v"},
		{"table": "plain", "key": "id"},
		{"table": "tree_n"},
		{"table": "part", "columns": "v,id"},
		{"table": "plain", "chunks": "block"},
	} {
		if _, err := followSource(t, db, options).Discover(t.Context()); err != nil {
			t.Errorf("%v: %v", options, err)
		}
	}
}

// Before there is a publication a table has the columns that it will have with it.
// case C031.
func TestFollowedWithoutPublication(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE gen (q int PRIMARY KEY, total int GENERATED ALWAYS AS (q * 2) STORED)`)
	want := []string{"q"}
	if serverVersion(t, conn) >= generatedVersion {
		sqlExec(t, conn, `ALTER TABLE gen ADD virtual int GENERATED ALWAYS AS (q * 3) VIRTUAL`)
		want = []string{"q", "total"}
	}
	list, err := followSource(t, db, nil).Discover(t.Context())
	must(t, err)
	if got := list[0].Schema.Names(); !slices.Equal(got, want) {
		t.Errorf("columns %q, want %q", got, want)
	}
}

// Rows that a policy hides from the role are an error, and never a smaller snapshot: the stream does not hide them.
func TestFollowedRowSecurity(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	role := "leat_test_rls_" + strings.ToLower(nameHash(db))
	sqlExec(t, conn, `CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2); ALTER TABLE t ENABLE ROW LEVEL SECURITY;
		CREATE POLICY p ON t USING (id = 1); CREATE PUBLICATION pub FOR TABLE t`)
	sqlExec(t, conn, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'; GRANT SELECT ON t TO `+role)
	t.Cleanup(func() {
		for _, sql := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			if _, err := conn.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
				t.Error(err)
			}
		}
	})
	s := followSource(t, db, map[string]string{"user": role, "password": "secret"})
	_, err := tryChunk(t.Context(), s, record.Chunk{Dataset: "public.t"})
	if err == nil || connector.ClassOf(err) != connector.ClassPermanent || !strings.Contains(err.Error(), "row-level security") {
		t.Errorf("error %v", err)
	}
}

// A column's value of rows that are older than it is told with the column, in the form that values have.
func TestMissingValues(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TYPE mood AS ENUM ('x', 'y'); CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION pub FOR TABLE t;
		ALTER TABLE t ADD a int DEFAULT 7, ADD b timestamptz DEFAULT '2026-01-02 03:04:05+01', ADD c text DEFAULT 'it''s "\', ADD d int,
			ADD e int[] DEFAULT '{1,NULL}', ADD f bytea DEFAULT '\x00ff', ADD g mood NOT NULL DEFAULT 'y', ADD h numeric(6,2) DEFAULT 1.5,
			ADD l box DEFAULT '(1,1),(0,0)', ADD i int4range DEFAULT '[1,2]', ADD j interval DEFAULT '1 mon', ADD k date DEFAULT '-infinity'`)
	c := readChunk(t, followSource(t, db, nil), record.Chunk{Dataset: "public.t"})
	want := map[string]string{
		"a": "7", "b": "2026-01-02T02:04:05Z", "c": `it's "\`, "e": "[1,null]", "f": `\x00ff`, "g": "y", "h": "1.50", "i": "[1,3)", "j": "P1M", "k": "-infinity",
		"l": "(1,1),(0,0)",
	}
	got := map[string]string{}
	for i, f := range c.schema.Columns.Fields() {
		if text, ok := record.MissingOf(f); ok {
			got[f.Name] = text
			if have := string(record.AppendText(nil, c.batches[0].Rows.Column(i), 0)); have != text {
				t.Errorf("column %s: an older row has %q, told is %q", f.Name, have, text)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A table whose columns change is looked up again, in the middle of its chunks; where nothing changes the schema stays the same one. A
// table that comes later is found, and one whose key changed is not read by the bounds of the old one.
// cases C037, C050.
func TestRefresh(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 100) i; ANALYZE t;
		CREATE PUBLICATION pub FOR ALL TABLES`)
	s := followSource(t, db, map[string]string{"tables": "public.*"})
	chunks, ends := planned(t, s, "public.t", 2000)
	first := readChunk(t, s, chunks[0])
	again, err := s.refresh(t.Context(), "public.t")
	must(t, err)
	if again.schema != first.schema {
		t.Error("a table that did not change has another schema")
	}

	sqlExec(t, conn, `ALTER TABLE t ADD w text DEFAULT 'new'; CREATE INDEX ON t (v); UPDATE t SET w = 'set' WHERE id = 100`)
	last := readChunk(t, s, chunks[len(chunks)-1])
	if last.schema == first.schema || last.schema.Version != first.schema.Version+1 || last.rows[len(last.rows)-1] != `{"id":100,"v":100,"w":"set"}` {
		t.Errorf("schema %d %q, rows %q", last.schema.Version, last.schema.Names(), last.rows)
	}
	if d := record.Diff(first.schema, last.schema); !slices.Equal(d.Added, []string{"w"}) || len(d.Dropped)+len(d.Renamed)+len(d.Retyped) > 0 {
		t.Errorf("the difference is %+v", d)
	}
	sqlExec(t, conn, `ALTER TABLE t RENAME v TO x; ALTER TABLE t ALTER x TYPE bigint`)
	c := readChunk(t, s, chunks[0])
	if d := record.Diff(last.schema, c.schema); !slices.Equal(d.Renamed, []record.Renamed{{From: "v", To: "x"}}) || !slices.Equal(d.Retyped, []string{"x"}) {
		t.Errorf("the difference is %+v", d)
	}
	if c.batches[0].Rows.Column(1).DataType().Name() != "int64" {
		t.Errorf("the column has type %s", c.batches[0].Rows.Column(1).DataType())
	}
	// The stream may still be at the schema before: its keys are located all the same.
	at, err := s.Locate(t.Context(), first.schema, first.batches[0].Rows, ends)
	if err != nil || slices.Max(at) != 0 {
		t.Errorf("located in %v, %v", at, err)
	}

	sqlExec(t, conn, `CREATE TABLE joins (id int PRIMARY KEY); INSERT INTO joins VALUES (5)`)
	if c := readChunk(t, s, record.Chunk{Dataset: "public.joins"}); len(c.rows) != 1 {
		t.Errorf("rows %q of a table that came later", c.rows)
	}
	if _, err := tryChunk(t.Context(), s, record.Chunk{Dataset: "public.never"}); connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("a table that there is not: %v", err)
	}
	sqlExec(t, conn, `DROP TABLE joins`)
	if _, err := tryChunk(t.Context(), s, record.Chunk{Dataset: "public.joins"}); connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("a table that was dropped: %v", err)
	}

	sqlExec(t, conn, `ALTER TABLE t RENAME id TO "key"`)
	if again, _ := planned(t, s, "public.t", 2000); len(again) < 3 {
		t.Errorf("%d chunks by a key whose column was renamed", len(again))
	}
	sqlExec(t, conn, `ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (x)`)
	var e *connector.Error
	if _, err := tryChunk(t.Context(), s, chunks[1]); !errors.As(err, &e) || e.Code != "postgres.key_changed" {
		t.Errorf("a chunk of the old key: %v", err)
	}
	if _, err := tryChunk(t.Context(), s, record.Chunk{Dataset: "public.t", Keys: []json.RawMessage{[]byte(`{"key":["5"],"of":"1"}`)}}); !errors.As(err, &e) ||
		e.Code != "postgres.key_changed" {
		t.Errorf("keys of the old key: %v", err)
	}
	sqlExec(t, conn, `ALTER TABLE t DROP CONSTRAINT t_pkey`)
	if _, err := tryChunk(t.Context(), s, chunks[1]); err == nil {
		t.Error("a chunk of a key that is gone was read")
	}
	sqlExec(t, conn, `ALTER TABLE t ADD PRIMARY KEY (x)`)
	readChunk(t, s, record.Chunk{Dataset: "public.t"})
	now, err := s.find(t.Context(), "public.t")
	must(t, err)
	if _, err := s.Locate(t.Context(), now.schema, c.batches[0].Rows, ends); !errors.As(err, &e) || e.Code != "postgres.key_changed" {
		t.Errorf("bounds of the old key: %v", err)
	}
}

// After chunks were planned, read and located, no transaction of ours is open, also where an error or a slow reader came in between.
// case C065.
func TestNoTransactionIsLeft(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE t (id text PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 20000) i; ANALYZE t;
		CREATE PUBLICATION pub FOR ALL TABLES`)
	s := followSource(t, db, nil)
	open := func(when string) {
		t.Helper()
		var n int
		must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND (state LIKE 'idle in transaction%' OR backend_xmin IS NOT NULL)`).Scan(&n))
		if n > 0 {
			t.Errorf("%s: %d transactions are open", when, n)
		}
	}
	var ends []json.RawMessage
	for c, err := range s.PlanChunks(t.Context(), "public.t", nil, 200_000) {
		must(t, err)
		open("planning")
		b := readChunk(t, s, c).batches[0]
		open("after a chunk")
		if c.To != nil {
			ends = append(ends, c.To)
		}
		_, err = s.Locate(t.Context(), b.Schema, b.Rows, ends)
		must(t, err)
		_, err = s.Now(t.Context())
		must(t, err)
		open("after locating")
	}
	refused := errors.New("refused")
	err := s.ReadChunk(t.Context(), record.Chunk{Dataset: "public.t"}, func(*record.Batch) error { return refused })
	if !errors.Is(err, refused) {
		t.Errorf("the error of the reader became %v", err)
	}
	must(t, s.markBarrier(t.Context(), "public.t"))
	must(t, s.Close(t.Context()))
	var n int
	must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND state LIKE '%transaction%'`).Scan(&n))
	if n > 0 {
		t.Errorf("%d transactions are open at the end", n)
	}
}
