package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connectors/sqlite"
	"github.com/leatdata/leat/record"
)

// clause E8: the target of a process that was killed in the middle of a transaction can be planned for and written to.
func TestTargetLeftByACrash(t *testing.T) {
	for _, mode := range []string{"delete", "wal"} {
		t.Run(mode, func(t *testing.T) {
			live := filepath.Join(t.TempDir(), "live.db")
			conn := open(t, live)
			defer conn.Close() //nolint:errcheck // a test's own connection
			for _, sql := range []string{
				"pragma journal_mode = " + mode, "create table d (v text)", "insert into d values ('kept')",
				"pragma cache_size = 1", "begin immediate",
				"insert into d with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) select 'lost ' || i from n",
			} {
				must(t, conn, sql)
			}
			crashed := filepath.Join(t.TempDir(), "crashed.db")
			for _, suffix := range []string{"", "-journal", "-wal", "-shm"} { // as they are on the disk at this moment
				data, err := os.ReadFile(live + suffix)
				if os.IsNotExist(err) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(crashed+suffix, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			must(t, conn, "rollback")
			cfg := sqlite.NewSink()
			cfg.Path = crashed
			snk, err := cfg.Open(testEnv(t))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = snk.Close(t.Context()) }()
			schema := &record.Schema{
				Dataset: "d", Columns: arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.BinaryTypes.String, Nullable: true}}, nil),
			}
			m, _ := connector.As[connector.Mapper](snk)
			columns, err := m.Map(t.Context(), schema)
			if err != nil || len(columns) != 1 {
				t.Fatalf("%v, %v", columns, err)
			}
			if err := snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 1}); err != nil {
				t.Fatal(err)
			}
			if got := query(t, crashed, "select count(*) || min(v) from d"); got[0] != "1kept" {
				t.Errorf("the target has %q", got)
			}
		})
	}
}

func must(t *testing.T, c *zombie.Conn, sql string) {
	t.Helper()
	if err := sqlitex.ExecuteTransient(c, sql, nil); err != nil {
		t.Fatal(err)
	}
}
