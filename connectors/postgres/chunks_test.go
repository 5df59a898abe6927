package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// pieces are the chunks of one dataset and the rows of each.
func pieces(t *testing.T, s connector.Snapshotter, dataset string, after []byte) (chunks []record.Chunk, rows [][]string) {
	t.Helper()
	for c, err := range s.PlanChunks(t.Context(), dataset, after, 1000) {
		if err != nil {
			t.Fatal(err)
		}
		chunks = append(chunks, c)
	}
	for _, c := range chunks {
		rows = append(rows, rowsOf(t, s, c))
	}
	return chunks, rows
}

func rowsOf(t *testing.T, s connector.Snapshotter, c record.Chunk) []string {
	t.Helper()
	rows := []string{}
	err := s.ReadChunk(t.Context(), c, func(b *record.Batch) error {
		rows = append(rows, connectortest.Rows(b)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// ids are the bounds of chunks, which name them.
func ids(chunks []record.Chunk) []string {
	out := make([]string, len(chunks))
	for i, c := range chunks {
		out[i] = string(c.From) + " to " + string(c.To)
	}
	return out
}

// A table is cut into parts whose bounds are the same each time; every row is in exactly one of them, also those whose key is NULL; a part
// without bounds is the table. After the table has changed, what lies behind a part that was read is cut anew: nothing of that part comes
// again, and no row behind it is missing.
//
// clause S25, case C062.
func TestChunksArePartsOfTheWhole(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE k (a int, b text)`,
		`INSERT INTO k SELECT i * i, 'r' || i FROM generate_series(1, 300) i; INSERT INTO k VALUES (NULL, 'n1'), (NULL, 'n2'), (NULL, NULL)`,
		`CREATE TABLE p (a text COLLATE "C", b int, PRIMARY KEY (a, b)); INSERT INTO p SELECT chr(65 + i % 5), i FROM generate_series(1, 300) i`,
		`CREATE VIEW w AS SELECT * FROM k`, `ANALYZE`)
	for name, table := range map[string]struct {
		options map[string]string
		dataset string
		change  string
		nulls   int
	}{
		"keys that may be NULL": {
			map[string]string{"table": "w", "key": "a"},
			"public.w",
			`DELETE FROM k WHERE a % 3 = 0; INSERT INTO k SELECT i * i + 1, 'new' FROM generate_series(2, 300, 7) i; INSERT INTO k VALUES (NULL, 'n4')`, 3,
		},
		"keys of two columns": {
			map[string]string{"table": "p"},
			"public.p",
			`DELETE FROM p WHERE b % 3 = 0; INSERT INTO p SELECT chr(65 + i % 7), 1000 + i FROM generate_series(1, 60) i`, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshotter(t, db, table.options)
			chunks, rows := pieces(t, s, table.dataset, nil)
			whole := rowsOf(t, s, record.Chunk{Dataset: table.dataset})
			if len(chunks) < 5 {
				t.Fatalf("only %d chunks", len(chunks))
			}
			again, _ := pieces(t, s, table.dataset, nil)
			if diff := cmp.Diff(ids(chunks), ids(again)); diff != "" {
				t.Errorf("asked again, the parts are others (-first +again)\n%s", diff)
			}
			isWhole(t, "the parts together", whole, slices.Concat(rows...))
			for i, r := range rows {
				n := len(slices.DeleteFunc(slices.Clone(r), func(row string) bool { return !strings.HasPrefix(row, `{"a":null`) }))
				if want := table.nulls; i < len(rows)-1 && n > 0 || i == len(rows)-1 && n != want {
					t.Errorf("part %d of %d has %d rows without a key", i, len(rows), n)
				}
			}

			half := len(chunks) / 2
			must(t, conn, table.change)
			now := rowsOf(t, s, record.Chunk{Dataset: table.dataset})
			_, behind := pieces(t, s, table.dataset, chunks[half].To)
			var before [][]string
			for _, c := range chunks[:half+1] {
				before = append(before, rowsOf(t, s, c))
			}
			isWhole(t, "old parts and new ones behind them", now, slices.Concat(slices.Concat(before...), slices.Concat(behind...)))
		})
	}
}

// snapshotter starts a source.
func snapshotter(t *testing.T, db string, options map[string]string) connector.Snapshotter {
	t.Helper()
	src, err := sourceConfig(t, db, options).Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	s, ok := connector.As[connector.Snapshotter](src)
	if !ok {
		t.Fatal("it cuts nothing")
	}
	if err := src.Start(t.Context(), connector.SourceStart{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// isWhole says which rows are missing, and which come more than once.
func isWhole(t *testing.T, what string, want, got []string) {
	t.Helper()
	n := map[string]int{}
	for _, r := range want {
		n[r]++
	}
	for _, r := range got {
		n[r]--
	}
	maps.DeleteFunc(n, func(_ string, n int) bool { return n == 0 })
	if len(n) > 0 {
		t.Errorf("%s are not the whole, %d rows (1: missing, -1: once more than there are): %s", what, len(want), fmt.Sprint(n))
	}
}
