package engine_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/record"
)

// A sink with row groups gets commits that end where one does, though others would be due before; one of wide rows, and one whose source
// is slow, does not wait for that for long.
func TestRowGroups(t *testing.T) {
	rows := func(n int, value string) []sim.Unit {
		units := steady(n)
		for i := range units {
			for j := range units[i] {
				for k := range units[i][j] {
					units[i][j][k].Dataset, units[i][j][k].Value = "a", value
				}
			}
		}
		return units
	}
	const size = 4_000
	for name, c := range map[string]struct {
		value string
		pause time.Duration
		want  func(rows []int) bool
	}{
		"at the ends": {value: "v", want: func(rows []int) bool {
			return len(rows) > 2 && !slices.ContainsFunc(rows[:len(rows)-1], func(n int) bool { return n%20 != 0 })
		}},
		"wide": {value: string(make([]byte, size/2)), want: func(rows []int) bool { return len(rows) > 10 && rows[0] < 10 }},
		"slow": {value: "v", pause: 50 * time.Millisecond, want: func(rows []int) bool { return rows[0] < 10 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1, rows(130, c.value), sim.Transactional)
				w.plan.Commit.Bytes = size
				w.sinks[0].RowGroup = 20
				w.src.OnRead = func(int) error { time.Sleep(c.pause); return nil }
				var durable []int // rows, behind each commit
				w.sinks[0].OnCommit = func() error {
					durable = append(durable, len(w.sinks[0].Rows))
					return nil
				}
				if _, err := w.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				durable = append(durable, len(w.sinks[0].Rows))[1:] // OnCommit comes in front of the commit
				if err := w.check(); err != nil || !c.want(durable) {
					t.Errorf("durable were %d rows, %v", durable, err)
				}
			})
		})
	}
}

// numbers is a bounded source of numbered rows in batches that are as large as it may make them.
type numbers struct {
	connector.SourceConfig

	rows int
}

// Open implements connector.SourceConfig.
func (n numbers) Open(env connector.Env) (connector.Source, error) {
	src, err := n.SourceConfig.Open(env)
	return &numbering{Source: src, rows: n.rows}, err //nolint:wrapcheck // a test
}

type numbering struct {
	connector.Source

	at, rows int
}

// Read implements connector.Source.
func (n *numbering) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if n.at == n.rows {
		return n.Source.Read(ctx, want)
	}
	size := min(want.Rows, n.rows-n.at)
	b := connectortest.Numbered("a", n.at+1, size)
	n.at += size
	b.Position = sim.Position(n.at)
	return b, nil
}

// What is read is cut at the ends of row groups, whatever sizes batches have.
func TestRowGroupsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, nil, sim.Transactional)
		w.src.Datasets = []string{"a"}
		w.src.Schemas = map[string]*record.Schema{"a": connectortest.Numbered("a", 0, 1).Schema}
		w.plan.Source.Config = numbers{w.src, 1_000}
		w.plan.Batch = connector.Limit{Rows: 7, Bytes: 1 << 20}
		w.sinks[0].RowGroup = 100
		at, ends := 0, 0
		w.sinks[0].OnWrite = func(b *record.Batch) error {
			if n := b.NumRows(); n > 7 {
				t.Errorf("a batch of %d rows", n)
			} else if at += n; at%100 == 0 {
				ends++
			}
			return nil
		}
		if _, err := engine.Run(t.Context(), w.plan, w.deps()); err != nil {
			t.Fatal(err)
		}
		if at != 1_000 || ends != 10 {
			t.Errorf("%d rows were written, and %d row groups ended with a batch: want 1000 and 10", at, ends)
		}
	})
}
