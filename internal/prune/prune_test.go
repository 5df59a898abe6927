package prune_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/connector"
	sqliteconn "github.com/leatdata/leat/connectors/sqlite"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/prune"
	statedb "github.com/leatdata/leat/state/sqlite"
	"github.com/leatdata/leat/transform"
)

func query(t *testing.T, path, sql string) []string {
	t.Helper()
	c, err := sqlite.OpenConn(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's own reading
	var out []string
	err = sqlitex.ExecuteTransient(c, sql, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		cols := make([]string, s.ColumnCount())
		for i := range cols {
			cols[i] = s.ColumnText(i)
		}
		out = append(out, strings.Join(cols, "|"))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// case C076: an incremental read never sees a delete. Comparing the keys finds it: the row goes, or it is marked and keeps its values.
func TestDeletesAreFound(t *testing.T) {
	for _, tc := range []struct {
		mode  prune.Mode
		after []string
	}{
		{prune.Hard, []string{"1|a1", "3|a3", "4|new"}},
		{prune.Soft, []string{"1|a1|0", "2|a2|1", "3|a3|0", "4|new|0"}},
	} {
		t.Run(fmt.Sprint(tc.mode), func(t *testing.T) {
			dir := t.TempDir()
			from, to := filepath.Join(dir, "from.db"), filepath.Join(dir, "to.db")
			query(t, from, "create table t (id integer primary key, v text, at integer)")
			query(t, from, "insert into t values (1,'a1',1),(2,'a2',2),(3,'a3',3)")
			src := sqliteconn.NewSource()
			src.Path, src.Table, src.Cursor = from, "t", "at"
			snk := sqliteconn.NewSink()
			snk.Path = to
			var steps []transform.Step
			columns := "id, v"
			if tc.mode == prune.Soft {
				steps, columns = append(steps, prune.FlagStep()), "id, v, _deleted"
			}
			sync := func() prune.Result {
				t.Helper()
				return syncOnce(t, dir, src, snk, steps, tc.mode)
			}
			if res := sync(); len(res.Gone) != 0 {
				t.Errorf("nothing was deleted, and %v was taken for it", res.Gone)
			}
			query(t, from, "delete from t where id = 2")
			query(t, from, "insert into t values (4,'new',4)")
			if d := cmp.Diff(map[string]int64{"t": 1}, sync().Gone); d != "" {
				t.Errorf("deleted rows (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.after, query(t, to, "select "+columns+" from t order by id")); d != "" {
				t.Errorf("rows (-want +got):\n%s", d)
			}
			if res := sync(); len(res.Gone) != 0 {
				t.Errorf("a second pass took %v for deleted", res.Gone)
			}
		})
	}
}

func syncOnce(t *testing.T, dir string, src, snk any, steps []transform.Step, mode prune.Mode) prune.Result {
	t.Helper()
	ctx := context.Background()
	source, ok := src.(connector.SourceConfig)
	if !ok {
		t.Fatal("no source")
	}
	sink, ok := snk.(connector.SinkConfig)
	if !ok {
		t.Fatal("no sink")
	}
	store, err := statedb.Open(ctx, filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // read again below
	upsert := connector.Upsert
	sum, err := engine.Run(ctx, engine.Plan{
		Name: "p", Source: engine.SourceSpec{Connector: "sqlite", Config: source},
		Sinks: []engine.SinkSpec{{Name: "to", Connector: "sqlite", Config: sink, Mode: &upsert, Transforms: steps}},
	}, engine.Deps{Store: store, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	res, err := prune.Run(ctx, prune.Job{
		Pipeline: "p", Lane: "to", Run: sum.Run, Fence: sum.Attempt, Source: source, Sink: sink, Transforms: steps, Mode: mode, Dir: dir,
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A sink that can't be read back, and a dataset without a key, are refused before anything is touched.
func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from.db")
	query(t, from, "create table t (v text)")
	src := sqliteconn.NewSource()
	src.Path, src.Table = from, "t"
	snk := sqliteconn.NewSink()
	snk.Path = filepath.Join(dir, "to.db")
	_, err := prune.Run(context.Background(), prune.Job{
		Pipeline: "p", Lane: "to", Run: "r", Fence: 1, Source: src, Sink: snk, Mode: prune.Hard, Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	if connector.ClassOf(err) != connector.ClassConfig || connector.HintOf(err) == "" {
		t.Errorf("a dataset without a key: %v", err)
	}
}
