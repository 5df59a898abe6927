package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// endless is a source of rows without an end and without snapshots, as a topic is: what it has, and then nothing for now.
type endless struct {
	batches []*record.Batch // without positions
	at      int
}

func (e *endless) Contract() (connector.SourceContract, error) {
	return connector.SourceContract{Replay: connector.Deterministic}, nil
}

func (*endless) Identity() map[string]string { return nil }

func (e *endless) Open(connector.Env) (connector.Source, error) {
	return &endless{batches: e.batches}, nil
}

func (e *endless) Start(_ context.Context, s connector.SourceStart) error {
	e.at = placeOf(s.From.Position)
	return nil
}

func placeOf(p record.Position) int {
	var n int
	if json.Unmarshal(p.Data, &n) != nil {
		return 0
	}
	return n
}

func placeAt(n int) record.Position {
	return record.Position{Shape: 1, Data: fmt.Appendf(nil, "%d", n)}
}

func (e *endless) Read(context.Context, connector.Limit) (*record.Batch, error) {
	if e.at >= len(e.batches) {
		return nil, nil //nolint:nilnil // nothing now
	}
	b := *e.batches[e.at]
	e.at++
	b.Position = placeAt(e.at)
	return &b, nil
}

func (*endless) Close(context.Context) error { return nil }

// Discover knows the newest schema of each dataset, as a registry does.
func (e *endless) Discover(context.Context) ([]connector.Dataset, error) {
	var out []connector.Dataset
	for _, b := range slices.Backward(e.batches) {
		if !slices.ContainsFunc(out, func(d connector.Dataset) bool { return d.Name == b.Schema.Dataset }) {
			out = append(out, connector.Dataset{Name: b.Schema.Dataset, Schema: b.Schema, Rows: -1, Bytes: -1})
		}
	}
	slices.Reverse(out)
	return out, nil
}

func (e *endless) Tip(context.Context) (record.Position, error) { return placeAt(len(e.batches)), nil }

func (*endless) Compare(a, b record.Position) (int, bool) { return placeOf(a) - placeOf(b), true }

func (*endless) Migrate(p record.Position) (record.Position, error) { return p, nil }

// rowOf is a batch of one row; columns behind the value are null.
func rowOf(dataset string, id int64, more ...string) *record.Batch {
	s := sim.Schema(dataset)
	fields := s.Columns.Fields()
	for _, name := range more {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true})
	}
	s.Columns = arrow.NewSchema(fields, nil)
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	rb.Field(0).(*array.Int64Builder).Append(id) //nolint:forcetypeassert // by construction
	for _, f := range rb.Fields()[1:] {
		f.AppendNull()
	}
	return &record.Batch{Schema: s, Rows: rb.NewRecordBatch()}
}

func (w *world) follow(batches ...*record.Batch) *endless {
	src := &endless{batches: batches}
	w.plan.Source.Config, w.plan.Once = src, true
	return src
}

// Columns that a topic gets reach the target before the first row that has them, also where nothing is known of what became of an earlier
// change; and a declared policy holds, though there are no snapshots.
//
// clauses E15, cases C037, C038.
func TestColumnsOfATopicChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, nil, sim.Transactional)
		var evolved []string
		w.sinks[0].OnEvolve = func(from, to *record.Schema) error {
			was := []string{"nothing known"}
			if from != nil {
				was = from.Names()
			}
			evolved = append(evolved, fmt.Sprint(was, " to ", to.Names()))
			return nil
		}
		src := w.follow(rowOf("a", 1), rowOf("a", 2))
		if sum, err := w.run(t.Context()); err != nil || !sum.Done {
			t.Fatal(sum.Done, err)
		}
		src.batches = append(src.batches, rowOf("a", 3, "note"), rowOf("a", 4, "note", "mood"))
		if sum, err := w.run(t.Context()); err != nil || !sum.Done {
			t.Fatal(sum.Done, err)
		}
		want := []string{
			"[nothing known] to [id value]", "[nothing known] to [id value note]", "[id value note] to [id value note mood]",
		}
		if !slices.Equal(evolved, want) || len(w.sinks[0].Rows) != 4 {
			t.Errorf("evolved %q, rows %v", evolved, w.sinks[0].Rows)
		}
		w.plan.Sinks[0].Schema = map[string]engine.SchemaPolicy{"*": engine.FailSchema}
		src.batches = append(src.batches, rowOf("a", 5, "note", "mood"), rowOf("a", 6))
		_, err := w.run(t.Context())
		var e *connector.Error
		if !errors.As(err, &e) || e.Hint == "" || len(w.sinks[0].Rows) > 5 {
			t.Errorf("a change that the policy refuses: %v, rows %v", err, w.sinks[0].Rows)
		}
	})
}

// Of a source without snapshots no dataset fails alone: nothing could give its rows again. The run stops, and goes on where it was.
//
// cases C064, C101.
func TestDatasetOfATopicFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, nil, sim.Transactional)
		w.follow(rowOf("a", 1), rowOf("b", 2), rowOf("a", 3), rowOf("b", 4))
		w.sinks[0].OnWrite = func(b *record.Batch) error {
			if b.Schema.Dataset == "b" {
				return &connector.Error{Class: connector.ClassPermanent, Code: "sim.denied", Err: errors.New("permission denied")}
			}
			return nil
		}
		if _, err := w.run(t.Context()); connector.ClassOf(err) != connector.ClassPermanent {
			t.Fatalf("got %v", err)
		}
		w.sinks[0].OnWrite = nil
		if sum, err := w.run(t.Context()); err != nil || !sum.Done {
			t.Fatal(sum.Done, err)
		}
		if err := w.sinks[0].Check([]sim.Row{{Dataset: "a", ID: 1}, {Dataset: "b", ID: 2}, {Dataset: "a", ID: 3}, {Dataset: "b", ID: 4}}); err != nil {
			t.Error(err)
		}
	})
}

// A backfill of what has no snapshots is taken off the list, with the reason; the run goes on.
func TestBackfillOfATopicIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, nil, sim.Transactional)
		w.follow(rowOf("a", 1))
		w.plan.Once = false
		w.store.Order(state.Orders{Last: 7, Backfills: []state.Backfill{{ID: 7, Datasets: []string{"a"}, Asked: time.Unix(1, 0)}}})
		deps := w.deps()
		deps.Control = engine.NewControl()
		ended := make(chan error, 1)
		go func() { _, err := engine.Run(context.WithoutCancel(t.Context()), w.plan, deps); ended <- err }()
		time.Sleep(time.Minute)
		deps.Control.Stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		o, _, err := w.store.Orders(t.Context(), w.plan.Name)
		if err != nil || len(o.Backfills) != 0 || len(o.Failed) != 1 || o.Failed[0].ID != 7 || o.Failed[0].Why == "" {
			t.Errorf("orders %+v, %v", o, err)
		}
		if err := w.sinks[0].Check([]sim.Row{{Dataset: "a", ID: 1}}); err != nil {
			t.Error(err)
		}
	})
}
