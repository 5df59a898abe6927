package chunked_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/chunked"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// growing is a source of datasets whose rows are numbered and only added to; its cursor is the number.
type growing struct {
	rows map[string]int
}

// upTo is how many rows of a dataset were read.
type upTo struct {
	Rows int `json:"rows"`
}

func (g *growing) Contract() (connector.SourceContract, error) {
	return connector.SourceContract{Replay: connector.Deterministic, Bounded: true, Incremental: true, CancelSafe: true}, nil
}

func (*growing) Identity() map[string]string { return nil }

func (g *growing) Open(env connector.Env) (connector.Source, error) {
	s := &growingSource{g: g, schemas: map[string]*record.Schema{}}
	for name := range g.rows {
		s.schemas[name] = connectortest.Numbered(name, 0, 0).Schema
		s.Datasets = append(s.Datasets, name)
	}
	slices.Sort(s.Datasets)
	s.Env, s.Dataset = env, s.dataset
	return s, nil
}

type growingSource struct {
	chunked.Cursors[upTo]

	g       *growing
	schemas map[string]*record.Schema
}

func (*growingSource) Compare(a, b record.Position) (int, bool) {
	return chunked.CompareCursors[upTo](a, b)
}

func (*growingSource) Migrate(p record.Position) (record.Position, error) {
	_, err := chunked.DecodeCursors[upTo](p)
	return p, err
}

// dataset reads two rows at a time, up to each cut and then to the end.
func (s *growingSource) dataset(ctx context.Context, i int, next string) error {
	name := s.Datasets[i]
	at := s.At.Cursors[name]
	if s.At.Dataset == name && s.At.Open != nil {
		at = *s.At.Open
	}
	end := s.g.rows[name]
	for at.Rows < end {
		to := min(at.Rows+2, end)
		for _, cut := range s.Cuts {
			if cut.Dataset == name && cut.Open.Rows > at.Rows {
				to = min(to, cut.Open.Rows)
			}
		}
		b := *connectortest.Numbered(name, at.Rows, to-at.Rows)
		b.Schema, at = s.schemas[name], upTo{to}
		b.Position = s.At.With(name, at, int64(to)).Encode()
		if err := s.Emit(ctx, &b); err != nil {
			return err
		}
	}
	s.At = s.At.Finished(name, at, next)
	return s.Emit(ctx, &record.Batch{Schema: s.schemas[name], Position: s.At.Encode()})
}

// What reads by cursor keeps what every source promises, and its next run has what was added since: each row once, of every dataset.
//
// clauses S5–S9, S14.
func TestCursors(t *testing.T) {
	want := map[string][]string{}
	g := &growing{rows: map[string]int{"a": 7, "b": 0, "c": 5}}
	for name, n := range g.rows {
		want[name] = append([]string{}, connectortest.Rows(connectortest.Numbered(name, 0, n))...)
	}
	connectortest.Source(t, connectortest.SourceCase{New: func(testing.TB) connector.SourceConfig { return g }, Want: want})

	got := map[string][]string{}
	at := record.Position{}
	for range 3 {
		src, err := g.Open(connectortest.Env(t))
		if err != nil {
			t.Fatal(err)
		}
		start := connector.SourceStart{}
		if !at.Zero() {
			start.From = connector.From{Origin: connector.Resume, Attempt: 1, Position: at}
		}
		if err := src.Start(t.Context(), start); err != nil {
			t.Fatal(err)
		}
		for {
			b, err := src.Read(t.Context(), connector.Limit{Rows: 3})
			if b == nil || err != nil {
				break
			}
			got[b.Schema.Dataset] = append(got[b.Schema.Dataset], connectortest.Rows(b)...)
			if !b.Position.Zero() {
				at = b.Position
			}
		}
		if err := src.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.rows = map[string]int{"a": g.rows["a"] + 4, "b": g.rows["b"] + 1, "c": g.rows["c"]}
	}
	full := map[string][]string{}
	for name, n := range map[string]int{"a": 15, "b": 2, "c": 5} {
		full[name] = connectortest.Rows(connectortest.Numbered(name, 0, n))
	}
	if diff := cmp.Diff(full, got); diff != "" {
		t.Error(diff)
	}
}
