package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
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

// changeRow is a row of the model's source.
type changeRow struct{ a, b string }

// changeLog builds batches of changes as a source would send them.
type changeLog struct {
	ops       []record.Op
	rows, old [][]string
	unchanged map[int][]uint64
	moved     bool
}

func (l *changeLog) add(op record.Op, id int, r changeRow, oldID int) int {
	i := len(l.ops)
	l.ops = append(l.ops, op)
	l.rows = append(l.rows, []string{strconv.Itoa(id), r.a, r.b})
	image := []string{strconv.Itoa(oldID), "null", "null"}
	if oldID == 0 {
		image[0] = "null"
	}
	l.moved = l.moved || oldID != 0
	l.old = append(l.old, image)
	return i
}

func (l *changeLog) keep(col, row int) {
	if l.unchanged == nil {
		l.unchanged = map[int][]uint64{}
	}
	for len(l.unchanged[col]) <= row/64 {
		l.unchanged[col] = append(l.unchanged[col], 0)
	}
	l.unchanged[col][row/64] |= 1 << (row % 64)
	l.rows[row][col] = "null"
}

func (l *changeLog) batch(s, oldSchema *record.Schema) *record.Batch {
	b := connectortest.BatchOf(s, l.rows...)
	b.Ops = l.ops
	if l.moved {
		b.Old = connectortest.BatchOf(oldSchema, l.old...).Rows
	}
	words := (len(l.ops) + 63) / 64
	for c, bits := range l.unchanged {
		for len(bits) < words {
			bits = append(bits, 0)
		}
		l.unchanged[c] = bits
	}
	b.Unchanged = l.unchanged
	return b
}

// Random changes, key moves and values that the source did not send, cut into random batches, end as the source did.
// clause E12
func TestSinkChangesEndAsTheSource(t *testing.T) {
	url := pgtest.Database(t)
	conn := pgtest.Conn(t, url)
	text := func(name string) connectortest.Case {
		return connectortest.Case{Name: name, Type: arrow.BinaryTypes.String}
	}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		s := connectortest.Schema("t"+strconv.Itoa(round), text("a"), text("b"))
		fields := s.Columns.Fields()
		fields[0].Nullable = true
		oldSchema := &record.Schema{Dataset: s.Dataset, Columns: arrow.NewSchema(fields, nil)}
		model := map[int]changeRow{}
		snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
		value := rapid.Custom(func(rt *rapid.T) string {
			return strconv.Quote("v" + strconv.Itoa(rapid.IntRange(0, 99).Draw(rt, "v")))
		})
		for range rapid.IntRange(1, 6).Draw(rt, "batches") {
			log := &changeLog{}
			truncate := rapid.IntRange(0, 9).Draw(rt, "truncate") == 0
			if truncate {
				clear(model)
			}
			for range rapid.IntRange(0, 12).Draw(rt, "changes") {
				step(rt, model, log, value)
			}
			b := log.batch(s, oldSchema)
			b.Truncate = truncate
			must(t, snk.Write(t.Context(), b))
			if rapid.Bool().Draw(rt, "commit") {
				must(t, snk.Commit(t.Context(), position(1)))
			}
		}
		must(t, snk.Commit(t.Context(), position(2)))
		must(t, snk.Close(t.Context()))
		want := make([]string, 0, len(model))
		for _, id := range slices.Sorted(maps.Keys(model)) {
			want = append(want, fmt.Sprintf(`{"id":%d,"a":%s,"b":%s}`, id, model[id].a, model[id].b))
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, append([]string{}, rowsOf(t, conn, s)...)); diff != "" {
			rt.Fatalf("the target differs from the source (-want +got):\n%s", diff)
		}
	})
}

// step makes one change to the model and logs it.
func step(rt *rapid.T, model map[int]changeRow, log *changeLog, value *rapid.Generator[string]) {
	ids := slices.Sorted(maps.Keys(model))
	id := rapid.IntRange(1, 6).Draw(rt, "id")
	_, exists := model[id]
	switch {
	case !exists:
		model[id] = changeRow{a: value.Draw(rt, "a"), b: value.Draw(rt, "b")}
		log.add(rapid.SampledFrom([]record.Op{record.Insert, record.Upsert}).Draw(rt, "op"), id, model[id], 0)
	case rapid.IntRange(0, 3).Draw(rt, "delete") == 0:
		delete(model, id)
		log.add(record.Delete, id, changeRow{a: "null", b: "null"}, 0)
	default:
		from := 0
		r := model[id]
		if to := rapid.IntRange(1, 6).Draw(rt, "to"); !slices.Contains(ids, to) {
			from = id
			delete(model, id)
			id = to
		}
		keepA, keepB := rapid.Bool().Draw(rt, "keep a"), rapid.Bool().Draw(rt, "keep b")
		if !keepA {
			r.a = value.Draw(rt, "a")
		}
		if !keepB {
			r.b = value.Draw(rt, "b")
		}
		model[id] = r
		i := log.add(record.Update, id, r, from)
		if keepA {
			log.keep(1, i)
		}
		if keepB {
			log.keep(2, i)
		}
	}
}
