package sqlite_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// cases C001, C002, C026: random tables of random types: what was written is read back, type and value.
func TestRandomTables(t *testing.T) {
	cases := connectortest.Cases()
	rapid.Check(t, func(rt *rapid.T) {
		var picked []connectortest.Case
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(cases)-1), 1, 6, rapid.ID).Draw(rt, "columns") {
			c := cases[i]
			c.Values = rapid.SliceOfN(rapid.SampledFrom(fitting(c)), 1, 8).Draw(rt, c.Name)
			picked = append(picked, c)
		}
		path := filepath.Join(t.TempDir(), "t.db")
		target := connectortest.Target{Config: func() connector.SinkConfig { return sinkOf(path) }}
		b := connectortest.Batch("t", picked...)
		write(t, target, connector.Append, connectortest.Sliced(b))
		batches, err := readAll(t, sourceOf(path, nil))
		if err != nil {
			rt.Fatal(err)
		}
		if bad := rejects(batches); len(bad) > 0 {
			rt.Fatalf("rejected: %q", bad)
		}
		if diff := cmp.Diff(texts(b), texts(batches...)); diff != "" {
			rt.Fatalf("(-written +read):\n%s", diff)
		}
		for i, c := range picked {
			want, err := record.TypeOf(c.Type)
			if err != nil {
				rt.Fatal(err)
			}
			got, err := record.TypeOf(batches[0].Schema.Columns.Field(i + 1).Type)
			if err != nil {
				rt.Fatal(err)
			}
			if !sameType(want, got) {
				rt.Fatalf("column %s of type %s is read as %s", c.Name, want, got)
			}
		}
	})
}

// fitting leaves out what SQLite can't hold.
func fitting(c connectortest.Case) []string {
	return slices.DeleteFunc(slices.Clone(c.Values), func(v string) bool {
		k, err := record.TypeOf(c.Type)
		return err != nil || ((k.Kind == record.Float32 || k.Kind == record.Float64) && (v == `"NaN"` || v == "-0"))
	})
}

// sameType: nested values are read back as JSON, labels and foreign types as text, all else as it was.
func sameType(wrote, got record.Type) bool {
	switch wrote.Kind {
	case record.Array, record.List, record.Struct, record.Map:
		return got.Kind == record.JSON
	case record.Enum, record.Foreign:
		return got.Kind == record.String
	case record.Decimal:
		return got.Kind == record.Decimal && got.Precision == wrote.Precision && got.Scale == wrote.Scale
	case record.Date, record.Timestamp:
		return got.Kind == wrote.Kind && got.Unit == wrote.Unit && got.Zoned == wrote.Zoned
	default:
		return got.Kind == wrote.Kind
	}
}

// texts are the canonical texts of all values.
func texts(batches ...*record.Batch) []string {
	var out []string
	for _, b := range batches {
		for i := range b.NumRows() {
			var row []byte
			for c := range int(b.Rows.NumCols()) {
				row = append(row, '|')
				if b.Rows.Column(c).IsNull(i) {
					row = append(row, "NULL"...)
					continue
				}
				row = record.AppendText(row, b.Rows.Column(c), i)
			}
			out = append(out, string(row))
		}
	}
	return out
}

// clauses E5, E12: random transactions of inserts, updates, key moves, swaps and deletes, cut into batches anywhere, with values
// that are not sent: the table ends as the model.
func TestRandomChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path := filepath.Join(t.TempDir(), "t.db")
		s := pairSchema()
		snk := openSink(t, sinkOf(path), connector.SinkStart{Mode: connector.Upsert, Run: "r"})
		m := changeModel{rows: map[int][2]string{}}
		position := 0
		for range rapid.IntRange(1, 6).Draw(rt, "transactions") {
			txn := m.transaction(rt)
			for len(txn) > 0 {
				n := rapid.IntRange(1, len(txn)).Draw(rt, "batch")
				b := batchOf(s, txn[:n])
				if txn = txn[n:]; len(txn) == 0 {
					position++
					b.Position = record.Position{Shape: 1, Data: []byte(strconv.Itoa(position))}
				}
				if err := snk.Write(t.Context(), b); err != nil {
					rt.Fatal(err)
				}
			}
		}
		finish(t, snk, "r")
		if diff := cmp.Diff(m.all(), query(t, path, `SELECT id||' '||v||' '||w FROM t ORDER BY id`)); diff != "" {
			rt.Fatalf("(-model +table):\n%s", diff)
		}
	})
}

type change struct {
	op        record.Op
	id, from  int
	v, w      string
	unchanged bool // w was not sent
}

// changeModel is a table with a key, changed in transactions whose key may be violated until they end.
type changeModel struct {
	rows  map[int][2]string
	stamp int
}

func (m *changeModel) transaction(rt *rapid.T) []change {
	var txn []change
	for range rapid.IntRange(1, 6).Draw(rt, "changes") {
		m.stamp++
		id := rapid.IntRange(0, 9).Draw(rt, "id")
		row, exists := m.rows[id]
		v := "v" + strconv.Itoa(m.stamp)
		switch {
		case !exists:
			m.rows[id] = [2]string{v, "w" + v}
			txn = append(txn, change{op: record.Insert, id: id, v: v, w: "w" + v})
		case rapid.Bool().Draw(rt, "delete"):
			delete(m.rows, id)
			txn = append(txn, change{op: record.Delete, id: id})
		case rapid.Bool().Draw(rt, "update"):
			m.rows[id] = [2]string{v, row[1]}
			txn = append(txn, change{op: record.Update, id: id, from: id, v: v, w: row[1], unchanged: rapid.Bool().Draw(rt, "unchanged")})
		default:
			txn = append(txn, m.rotate(rt, id)...)
		}
	}
	return txn
}

// rotate moves a row to a free key, or several in a ring.
func (m *changeModel) rotate(rt *rapid.T, id int) []change {
	ring := []int{id}
	keys := slices.Sorted(maps.Keys(m.rows))
	for range rapid.IntRange(0, 2).Draw(rt, "ring") {
		if k := rapid.SampledFrom(keys).Draw(rt, "member"); !slices.Contains(ring, k) {
			ring = append(ring, k)
		}
	}
	if len(ring) == 1 {
		to := rapid.IntRange(10, 19).Draw(rt, "to")
		if _, taken := m.rows[to]; taken {
			return nil
		}
		m.rows[to] = m.rows[id]
		delete(m.rows, id)
		return []change{{op: record.Update, id: to, from: id, v: m.rows[to][0], w: m.rows[to][1], unchanged: true}}
	}
	before := maps.Clone(m.rows)
	var txn []change
	for i, from := range ring {
		to := ring[(i+1)%len(ring)]
		m.rows[to] = before[from]
		txn = append(txn, change{op: record.Update, id: to, from: from, v: before[from][0], w: before[from][1], unchanged: i%2 == 0})
	}
	return txn
}

func (m *changeModel) all() []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(m.rows)) {
		out = append(out, fmt.Sprintf("%d %s %s", id, m.rows[id][0], m.rows[id][1]))
	}
	return out
}

func batchOf(s *record.Schema, list []change) *record.Batch {
	var ops []record.Op
	var rows, old [][]string
	bits := make([]uint64, (len(list)+63)/64)
	for i, c := range list {
		ops = append(ops, c.op)
		v, w := "null", "null"
		if c.op != record.Delete {
			v, w = strconv.Quote(c.v), strconv.Quote(c.w)
		}
		if c.unchanged {
			w = "null"
			bits[i/64] |= 1 << (i % 64)
		}
		from := "null"
		if c.op == record.Update {
			from = strconv.Itoa(c.from)
		}
		rows = append(rows, []string{strconv.Itoa(c.id), v, w})
		old = append(old, []string{from, "null", "null"})
	}
	b := changes(s, ops, rows, old)
	b.Unchanged = map[int][]uint64{2: bits}
	return b
}
