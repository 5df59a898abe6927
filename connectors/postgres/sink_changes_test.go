package postgres

import (
	"context"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// startSink opens and starts a sink; it is closed when the test ends.
func startSink(t testing.TB, cfg *SinkConfig, mode connector.WriteMode, fence uint64) *Sink {
	t.Helper()
	snk := openSink(t, cfg)
	if err := snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: fence, Mode: mode}); err != nil {
		t.Fatal(err)
	}
	return snk
}

func openSink(t testing.TB, cfg *SinkConfig) *Sink {
	t.Helper()
	opened, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	snk, ok := opened.(*Sink)
	if !ok {
		t.Fatalf("a %T", opened)
	}
	t.Cleanup(func() {
		if err := snk.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return snk
}

func position(n int) record.Progress {
	return record.Progress{Run: "r", Position: record.Position{Shape: 1, Data: []byte(strconv.Itoa(n))}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sqlExec(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
