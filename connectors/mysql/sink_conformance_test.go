package mysql

import (
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// newTarget is a database of its own.
func newTarget(t testing.TB, kind mysqltest.Flavor) connectortest.Target {
	t.Helper()
	url := mysqltest.Database(t, kind)
	db := watcher(t, url)
	return connectortest.Target{
		Config: func() connector.SinkConfig { return sinkConfig(t, url) },
		Read: func(t testing.TB, s *record.Schema) ([]string, bool) {
			t.Helper()
			return readTable(t, db, sinkConfig(t, url), s)
		},
	}
}

// clauses S12, S15, S23, E5, E12, E15, K7, W10
// cases C001, C005, C008, C012, C020, C021, C026, C099, C100
func TestSinkConformance(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		connectortest.Sink(t, connectortest.SinkCase{
			New: func(t testing.TB) connectortest.Target {
				t.Helper()
				return newTarget(t, kind)
			},
			Refused: func(t testing.TB, target connectortest.Target) (*record.Batch, []int) {
				t.Helper()
				cfg, ok := target.Config().(*SinkConfig)
				if !ok {
					t.Fatal("not ours")
				}
				base := mysqltest.URL(t, kind)
				mysqltest.Exec(t, base[:strings.LastIndexByte(base, '/')+1]+cfg.Database,
					`CREATE TABLE refused (id bigint PRIMARY KEY, v varchar(20) CHECK (v NOT IN ('value 0', 'value 500', 'value 501', 'value 999')))`)
				return connectortest.Numbered("refused", 0, 1000), []int{0, 500, 501, 999}
			},
			Unreachable: func(t testing.TB) connector.SinkConfig {
				t.Helper()
				return sinkConfig(t, "mysql://nobody:s3cret-word@127.0.0.1:1/none?connect_timeout=2s")
			},
			Secrets: []string{"s3cret-word", "leat-test"},
		})
	})
}

// clauses E12, E15
// cases C029, C030, C033, C034, C036, C037, C038
func TestSinkChangeStream(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		connectortest.ChangeStream(t, connectortest.SinkCase{New: func(t testing.TB) connectortest.Target {
			t.Helper()
			return newTarget(t, kind)
		}})
	})
}
