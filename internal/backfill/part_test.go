package backfill

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/record"
)

// live is a merge with one lane that has the table.
func live(t *testing.T, ledgers ...string) (*Merge, *sim.Database) {
	t.Helper()
	db := sim.NewDatabase(rand.New(rand.NewPCG(1, 2)))
	ledger := `{"seeded":{"lane":["t"]}}`
	if len(ledgers) > 0 {
		ledger = ledgers[0]
	}
	m, err := New(db, sim.ComparePlaces, []Lane{{Name: "lane", Ledger: json.RawMessage(ledger)}})
	if err != nil {
		t.Fatal(err)
	}
	return m, db
}

func open(t *testing.T, m *Merge, p Part) {
	t.Helper()
	if err := m.Part(t.Context(), sim.Table("t"), p, "lane"); err != nil {
		t.Fatal(err)
	}
}

// next returns the work of a chunk, with all that has to be planned before planned as one chunk.
func next(t *testing.T, m *Merge) *Work {
	t.Helper()
	for {
		w := m.Next(4)
		if w == nil || !w.Plan {
			return w
		}
		m.Planned(w, nil)
	}
}

// What can't be read once more is refused with a reason, and leaves nothing behind.
func TestPartRefused(t *testing.T) {
	m, _ := live(t)
	bare := *sim.Table("t")
	bare.Key = nil
	for want, c := range map[string]struct {
		s *record.Schema
		p Part
	}{
		"no number":             {sim.Table("t"), Part{}},
		"no key":                {&bare, Part{ID: 1}},
		"either by a condition": {sim.Table("t"), Part{ID: 1, Where: "id%2=0", Keys: []json.RawMessage{[]byte(`{"id":1}`)}}},
		"no complete copy":      {sim.Table("other"), Part{ID: 1}},
		`"v" is not part of`:    {sim.Table("t"), Part{ID: 1, Keys: []json.RawMessage{[]byte(`{"id":1,"v":2}`)}}},
		"is missing":            {sim.Table("t"), Part{ID: 1, Keys: []json.RawMessage{[]byte(`{}`)}}},
		"no JSON object":        {sim.Table("t"), Part{ID: 1, Keys: []json.RawMessage{[]byte(`[1]`)}}},
		`column "id"`:           {sim.Table("t"), Part{ID: 1, Keys: []json.RawMessage{[]byte(`{"id":"one"}`)}}},
	} {
		if err := m.Part(t.Context(), c.s, c.p, "lane"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if m.Busy() || len(m.Backfills("t")) > 0 {
		t.Error("something was opened")
	}
}

// The dataset stays complete, the ledger tells of the part and of its end until that is forgotten, and a part that is over is not run again.
//
// clause W13.
func TestPartLedger(t *testing.T) {
	m, _ := live(t)
	open(t, m, Part{ID: 3, Where: "id%2=0"})
	open(t, m, Part{ID: 4, Keys: []json.RawMessage{[]byte(`{"id":7}`), []byte(`{"id":7}`), []byte(`{"id":9}`)}})
	open(t, m, Part{ID: 4, Keys: []json.RawMessage{[]byte(`{"id":8}`)}}) // it is open already
	const want = `{"seeded":{"lane":["t"]},"parts":[{"id":3,"dataset":"t","lanes":["lane"],"where":"id%2=0"},` +
		`{"id":4,"dataset":"t","lanes":["lane"],"keys":[{"id":7},{"id":9}],"keyed":true}]}`
	if got := string(m.Ledger()); got != want {
		t.Fatalf("the ledger is\n%s, want\n%s", got, want)
	}
	m, db := live(t, want)
	m.Describe(sim.Table("t"))
	if !m.Has("lane", "t") || m.Open("t") || !m.Busy() {
		t.Error("the dataset is not complete, or no part is open")
	}
	over := 0
	for range 2 {
		w := next(t, m)
		at := db.Snap()
		if !m.Due(w, at) {
			m.arrive(sim.Place(1))
		}
		if _, err := m.Refresh(t.Context(), w, sim.ChunkBatch(sim.Table("t"), at, nil)); err != nil {
			t.Fatal(err)
		}
		out, err := m.Publish(t.Context(), w, at)
		if err != nil {
			t.Fatal(err)
		}
		if w.Part == 4 && (len(out) != 1 || out[0].Batch.NumRows() != 2 || out[0].Batch.Op(1) != record.Delete) {
			t.Errorf("keys without a row: %v", out)
		}
		for _, d := range m.Turn(sim.Place(1)) {
			over += int(d.Part)
		}
	}
	const ended = `{"seeded":{"lane":["t"]},"ended":{"lane":[{"id":3,"dataset":"t"},{"id":4,"dataset":"t"}]}}`
	if got := string(m.Ledger()); got != ended || over != 7 || m.Busy() {
		t.Fatalf("the ledger is\n%s, want\n%s (%d)", got, ended, over)
	}
	finished, err := Finished(m.Ledger())
	if err != nil || !slices.Equal(finished["lane"][3], []string{"t"}) {
		t.Errorf("finished: %v, %v", finished, err)
	}
	open(t, m, Part{ID: 3, Where: "id%2=0"})
	if out := m.Turn(sim.Place(1)); len(out) != 1 || out[0].Part != 3 || next(t, m) != nil {
		t.Errorf("a part that is over: %v", out)
	}
	m.Retain(4)
	if f, _ := Finished(m.Ledger()); f["lane"][3] != nil || f["lane"][4] == nil {
		t.Errorf("retained: %v", f)
	}
}

// Columns that change while chunks are read: what was read before is read again. With another key, keys that were asked for mean nothing.
func TestPartSchemaChange(t *testing.T) {
	m, db := live(t)
	open(t, m, Part{ID: 1, Where: "id%2=0"})
	open(t, m, Part{ID: 2, Keys: []json.RawMessage{[]byte(`{"id":7}`)}})
	a, b := next(t, m), next(t, m)
	wider := *sim.Table("t")
	wider.Columns = arrow.NewSchema(append(wider.Columns.Fields(), arrow.Field{Name: "more", Type: arrow.BinaryTypes.String, Nullable: true}), nil)
	wider.Version = 1
	if _, err := m.Change(t.Context(), &record.Batch{Schema: &wider}, []string{"lane"}); err != nil {
		t.Fatal(err)
	}
	if !a.Stale() || !b.Stale() {
		t.Fatal("chunks of the columns before are not read again")
	}
	w := next(t, m)
	m.arrive(sim.Place(1))
	at := db.Snap()
	if out, err := m.Refresh(t.Context(), w, sim.ChunkBatch(sim.Table("t"), at, map[int64]sim.Image{2: {}})); err != nil || out != nil || !w.Stale() {
		t.Errorf("rows of the columns before were delivered: %v, %v", out, err)
	}
	other := wider
	other.Key = []int{1}
	if _, err := m.Change(t.Context(), &record.Batch{Schema: &other}, []string{"lane"}); err != nil {
		t.Fatal(err)
	}
	out := m.Turn(sim.Place(1))
	if len(out) != 1 || out[0].Part != 2 || out[0].Err == nil {
		t.Errorf("keys of another key: %+v", out)
	}
	if w := next(t, m); w == nil || w.Part != 1 {
		t.Errorf("the condition is not read again: %+v", w)
	}
}

// A copy of the whole dataset takes the place of its parts; keys wait for a refill, which would not delete what has no row.
func TestPartAndWhole(t *testing.T) {
	for how, want := range map[How][]uint64{Truncate: {1, 2}, Refill: {1}} {
		m, _ := live(t)
		open(t, m, Part{ID: 1, Where: "id%2=0"})
		open(t, m, Part{ID: 2, Keys: []json.RawMessage{[]byte(`{"id":7}`)}})
		w := next(t, m)
		if err := m.Request(t.Context(), sim.Table("t"), how, "lane"); err != nil {
			t.Fatal(err)
		}
		if m.Due(w, sim.Place(0)) {
			t.Error("rows of a part are due while the whole is copied")
		}
		var over []uint64
		for _, d := range m.Turn(sim.Place(1)) {
			if d.Part != 0 {
				over = append(over, d.Part)
			}
		}
		if !slices.Equal(over, want) {
			t.Errorf("%v: parts %v are over, want %v", how, over, want)
		}
		for w := next(t, m); w != nil; w = next(t, m) {
			if w.Part != 0 {
				t.Errorf("part %d is read beside the copy", w.Part)
			}
		}
	}
}

// A refill of what is being filled begins anew: deletes were let go for the sake of chunks that nobody reads any more.
func TestRefillOfWhatIsFilled(t *testing.T) {
	m, _ := live(t)
	for _, how := range []How{Truncate, Refill} {
		if err := m.Request(t.Context(), sim.Table("t"), how, "lane"); err != nil {
			t.Fatal(err)
		}
	}
	if out := m.Turn(sim.Place(1)); len(out) != 1 || !out[0].Batch.Truncate {
		t.Errorf("the lane is not emptied: %v", out)
	}
}
