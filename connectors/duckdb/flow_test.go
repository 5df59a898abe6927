//go:build cgo && duckdb_arrow

package duckdb_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/duckdb"
	"github.com/leatdata/leat/record"
)

func appending(t testing.TB, path string) connector.Sink {
	t.Helper()
	snk, err := (&duckdb.SinkConfig{Database: duckdb.Database{Path: path}}).Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = snk.Close(context.Background()) })
	if err := snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 1, Mode: connector.Append}); err != nil {
		t.Fatal(err)
	}
	return snk
}

// numbersOf are rows of a dataset that count from first.
func numbersOf(dataset string, first, n int) *record.Batch {
	s := columns(0, column("n", arrow.PrimitiveTypes.Int64))
	s.Dataset = dataset
	var rows []connectortest.Change
	for i := range n {
		rows = append(rows, ins(strconv.Itoa(first+i)))
	}
	return connectortest.Changes(s, rows...)
}

// clause E5: rows that are inserted while more are read keep their order, whatever else the sink does in between: datasets in turn,
// a table that is emptied, commits.
func TestRowsFlow(t *testing.T) {
	path := newFile(t)
	snk := appending(t, path)
	mustWrite(t, snk, numbersOf("a", 0, 3), numbersOf("b", 0, 2), numbersOf("a", 3, 2), numbersOf("b", 2, 3))
	commit(t, snk)
	mustWrite(t, snk, numbersOf("b", 5, 1), numbersOf("a", 5, 1), numbersOf("b", 6, 1))
	empty := numbersOf("c", 0, 1)
	mustWrite(t, snk, numbersOf("c", 7, 2), &record.Batch{Schema: empty.Schema, Truncate: true}, empty)
	end(t, snk)
	holds(t, path, `SELECT string_agg(n, ' ') FROM a`, "0 1 2 3 4 5")
	holds(t, path, `SELECT string_agg(n, ' ') FROM b`, "0 1 2 3 4 5 6")
	holds(t, path, `SELECT string_agg(n, ' ') FROM c`, "0")
}

// case C068: more than DuckDB is fed in one statement is inserted by several.
func TestManyRowsFlow(t *testing.T) {
	path := newFile(t)
	snk := appending(t, path)
	wide := `"` + strings.Repeat("x", 1<<20) + `"`
	s := columns(0, column("n", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	const batches = 20
	for n := range batches {
		var rows []connectortest.Change
		for i := range 3 {
			rows = append(rows, ins(strconv.Itoa(3*n+i), wide))
		}
		mustWrite(t, snk, connectortest.Changes(s, rows...))
	}
	end(t, snk)
	holds(t, path, `SELECT count(*), sum(length(v)), bool_and(n = rowid) FROM t`, fmt.Sprintf("%d|%d|true", 3*batches, 3*batches<<20))
}

// clause E5: what DuckDB refuses while rows flow is told at the latest by the commit, and nothing of it stays.
func TestFlowFails(t *testing.T) {
	path := newFile(t)
	script(t, path, `CREATE TABLE a (n BIGINT CHECK (n < 10))`)
	snk := appending(t, path)
	mustWrite(t, snk, numbersOf("a", 0, 2))
	var err error
	for n := 9; err == nil && n < 100; n += 2 {
		err = snk.Write(t.Context(), numbersOf("a", n, 2))
	}
	if err == nil || !strings.Contains(err.Error(), "CHECK") {
		t.Errorf("a row was refused, and Write says: %v", err)
	}
	if err := snk.Flush(t.Context()); err == nil {
		t.Error("a sink that failed commits")
	}
	if err := snk.Close(t.Context()); err != nil {
		t.Error(err)
	}
	holds(t, path, `SELECT count(*) FROM a`, "0")
}

// clause S12: rows that flow when a sink is closed are given up.
func TestCloseWhileRowsFlow(t *testing.T) {
	path := newFile(t)
	snk := appending(t, path)
	mustWrite(t, snk, numbersOf("a", 0, 2))
	commit(t, snk)
	mustWrite(t, snk, numbersOf("a", 2, 2), numbersOf("a", 4, 2))
	if err := snk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	holds(t, path, `SELECT count(*) FROM a`, "2")
}
