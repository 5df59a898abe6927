package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// memDB is a target in memory: what is committed.
type memDB struct {
	mu    sync.Mutex
	state memState
	fence uint64
}

type memState struct {
	tables   map[string]*memTable
	staged   map[string]*memTable // of a replacement, by dataset
	stagedBy string
	progress map[string]record.Progress
}

// memTable has rows as JSON, by key in mode upsert.
type memTable struct {
	schema *record.Schema
	keys   []string
	rows   []string
}

func (s memState) clone() memState {
	tables := func(in map[string]*memTable) map[string]*memTable {
		out := map[string]*memTable{}
		for k, v := range in {
			out[k] = &memTable{schema: v.schema, keys: slices.Clone(v.keys), rows: slices.Clone(v.rows)}
		}
		return out
	}
	return memState{
		tables: tables(s.tables), staged: tables(s.staged), stagedBy: s.stagedBy, progress: maps.Clone(s.progress),
	}
}

// memSinkConfig is a correct sink, unless fault names what it does wrong.
type memSinkConfig struct {
	Token connector.Secret `leat:"token" doc:"a credential"`

	db      *memDB
	fault   string
	nowhere bool
}

func (c *memSinkConfig) Contract() (connector.SinkContract, error) {
	modes := []connector.WriteMode{connector.Append, connector.Upsert, connector.Replace}
	return connector.SinkContract{Modes: modes, Input: connector.Changelog, Atomicity: connector.PositionInTransaction, Durable: true, NeedsKey: true}, nil
}

func (c *memSinkConfig) Identity() map[string]string { return map[string]string{"db": "memory"} }

func (c *memSinkConfig) Open(env connector.Env) (connector.Sink, error) {
	if c.fault == "open does I/O" {
		env.Roundtrip("open")
	}
	return &memSink{cfg: *c}, nil
}

type memSink struct {
	cfg    memSinkConfig
	start  connector.SinkStart
	tx     memState
	open   bool
	closed int
}

func (s *memSink) Map(_ context.Context, schema *record.Schema) ([]connector.Mapping, error) {
	out := make([]connector.Mapping, schema.Columns.NumFields())
	for i, f := range schema.Columns.Fields() {
		out[i] = connector.Mapping{Column: f.Name, Native: f.Type.String()}
		switch f.Name {
		case "date_infinite":
			out[i].Fidelity, out[i].Limits, out[i].Why = connector.Checked, connector.Limits{NoInfinity: true}, "no infinities"
		case "map":
			out[i].Fidelity, out[i].Why = connector.Inexact, "no maps"
		}
	}
	if s.cfg.fault == "mapping lacks a column" {
		return out[1:], nil
	}
	return out, nil
}

func (s *memSink) Start(ctx context.Context, start connector.SinkStart) error {
	if s.cfg.nowhere {
		return &connector.Error{Class: connector.ClassTransient, Code: "mem.dial", Err: errors.New("refused"), Hint: "start the server"}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	s.cfg.db.mu.Lock()
	defer s.cfg.db.mu.Unlock()
	if start.Fence < s.cfg.db.fence && s.cfg.fault != "fence is ignored" {
		return s.fenced()
	}
	s.cfg.db.fence = max(s.cfg.db.fence, start.Fence)
	s.start, s.open = start, true
	s.tx = s.cfg.db.state.clone()
	if s.tx.stagedBy != start.Run && s.cfg.fault != "an abandoned replacement is kept" {
		s.tx.staged, s.tx.stagedBy = map[string]*memTable{}, start.Run
	}
	return nil
}

func (s *memSink) fenced() error {
	return &connector.Error{Class: connector.ClassFenced, Code: "mem.fenced", Err: errors.New("another owner took over")}
}

func (s *memSink) name(dataset string) string {
	if s.cfg.fault == "long names are cut" && len(dataset) > 63 {
		return dataset[:63]
	}
	if s.cfg.fault == "case is folded" {
		return strings.ToLower(dataset)
	}
	return dataset
}

func (s *memSink) Write(ctx context.Context, b *record.Batch) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	if !s.open || s.closed > 0 {
		return errors.New("the sink is not open")
	}
	if s.cfg.fault == "batches change" && b.NumRows() > 0 {
		b.Rows.Column(0).(*array.Int64).Int64Values()[0] = 77 //nolint:forcetypeassert // by construction
	}
	tables := s.tx.tables
	if s.start.Mode == connector.Replace && s.cfg.fault != "replace appends" {
		tables = s.tx.staged
	}
	if b.NumRows() == 0 && s.cfg.fault == "empty datasets are left out" {
		return nil
	}
	t := tables[s.name(b.Schema.Dataset)]
	if t == nil {
		t = &memTable{schema: b.Schema}
		tables[s.name(b.Schema.Dataset)] = t
	}
	refused := s.writeRows(t, b)
	if s.cfg.fault == "writes are visible at once" {
		s.cfg.db.state = s.tx.clone()
	}
	if len(refused) > 0 {
		return &connector.RowErrors{Rows: refused}
	}
	return nil
}

func (s *memSink) writeRows(t *memTable, b *record.Batch) []connector.RowError {
	var refused []connector.RowError
	for i := range b.NumRows() {
		if v := b.Schema.Column("v"); v >= 0 && strings.Contains(b.Rows.Column(v).ValueStr(i), "refuse me") {
			refused = append(refused, s.refuse(b, i))
			continue
		}
		key, row := string(b.KeyJSON(i)), string(b.RowJSON(i))
		switch s.cfg.fault {
		case "backslashes are lost":
			row = strings.ReplaceAll(row, `back\\slash`, "backslash")
		case "offsets are ignored":
			full := b.Rows.Column(0).Data()
			if full.Offset() > 0 && i == 0 {
				row = strings.Replace(row, `:`, `:9`, 1)
			}
		}
		if s.start.Mode != connector.Upsert {
			t.keys, t.rows = append(t.keys, key), append(t.rows, row)
			continue
		}
		if b.Old != nil && s.cfg.fault != "old keys are ignored" {
			old := record.Batch{Schema: b.Schema, Rows: b.Old}
			t.remove(string(old.KeyJSON(i)))
		}
		t.remove(key)
		if b.Op(i) != record.Delete || s.cfg.fault == "deletes are ignored" {
			t.keys, t.rows = append(t.keys, key), append(t.rows, row)
		}
	}
	return refused
}

func (s *memSink) refuse(b *record.Batch, i int) connector.RowError {
	if s.cfg.fault == "another row is named" {
		i++
	}
	return connector.RowError{Index: i, Reject: record.Reject{Dataset: b.Schema.Dataset, Class: "refused_by_sink", Message: "refused"}}
}

func (t *memTable) remove(key string) {
	if i := slices.Index(t.keys, key); i >= 0 {
		t.keys, t.rows = slices.Delete(t.keys, i, i+1), slices.Delete(t.rows, i, i+1)
	}
}

func (s *memSink) Flush(context.Context) error { return nil }

func (s *memSink) lane() string { return s.start.Pipeline + "/" + s.start.Lane }

func (s *memSink) Commit(_ context.Context, p record.Progress) error {
	s.cfg.db.mu.Lock()
	defer s.cfg.db.mu.Unlock()
	if s.start.Fence < s.cfg.db.fence && s.cfg.fault != "fence is ignored" {
		return s.fenced()
	}
	switch s.cfg.fault {
	case "the ledger is lost":
		p.Ledger = nil
	case "numbers go through floats":
		var v any
		if err := json.Unmarshal(p.Position.Data, &v); err != nil {
			return fmt.Errorf("reading the position: %w", err)
		}
		p.Position.Data, _ = json.Marshal(v)
	}
	if s.cfg.fault != "progress is not saved" {
		s.tx.progress[s.lane()] = p
	}
	s.cfg.db.state = s.tx.clone()
	return nil
}

func (s *memSink) Committed(context.Context) (record.Progress, bool, error) {
	if s.cfg.fault == "all lanes share progress" {
		for _, p := range s.tx.progress {
			return p, true, nil
		}
	}
	p, ok := s.tx.progress[s.lane()]
	return p, ok, nil
}

func (s *memSink) Finish(ctx context.Context, p record.Progress) error {
	if s.start.Mode == connector.Replace {
		if s.cfg.fault == "finish is not idempotent" {
			s.tx.tables = map[string]*memTable{}
		}
		maps.Copy(s.tx.tables, s.tx.staged)
		s.tx.staged = map[string]*memTable{}
	}
	return s.Commit(ctx, p)
}

func (s *memSink) Evolve(_ context.Context, _, to *record.Schema) error {
	for _, t := range s.tx.tables {
		if t.schema.Columns.NumFields() == to.Columns.NumFields() && s.cfg.fault != "evolving twice adds twice" {
			continue
		}
		t.schema = to
		for i := range t.rows {
			t.rows[i] = strings.TrimSuffix(t.rows[i], "}") + `,"more":null}`
		}
	}
	return nil
}

func (s *memSink) RejectsRows() {}

func (s *memSink) Close(context.Context) error {
	s.closed++
	if s.closed > 1 && s.cfg.fault == "second close fails" {
		return errors.New("already closed")
	}
	return nil
}

func memSinkCase(fault string) SinkCase {
	config := func(db *memDB) *memSinkConfig { return &memSinkConfig{db: db, fault: fault, Token: memToken} }
	return SinkCase{
		New: func(testing.TB) Target {
			db := &memDB{state: memState{
				tables: map[string]*memTable{}, staged: map[string]*memTable{}, progress: map[string]record.Progress{},
			}}
			return Target{
				Config: func() connector.SinkConfig { return config(db) },
				Read: func(_ testing.TB, s *record.Schema) ([]string, bool) {
					db.mu.Lock()
					defer db.mu.Unlock()
					t := db.state.tables[(&memSink{cfg: *config(db)}).name(s.Dataset)]
					if t == nil {
						return nil, false
					}
					return slices.Clone(t.rows), true
				},
			}
		},
		Refused: func(testing.TB, Target) (*record.Batch, []int) {
			b := Numbered("one", 0, 1_000)
			rows := make([][]string, b.NumRows())
			for i := range rows {
				rows[i] = []string{strconv.Itoa(i), `"fine"`}
			}
			rows[500][1] = `"refuse me"`
			return BatchOf(b.Schema, rows...), []int{500}
		},
		Unreachable: func(testing.TB) connector.SinkConfig { return &memSinkConfig{nowhere: true} },
		Secrets:     []string{memToken},
	}
}

// A correct sink passes the whole suite.
func TestSinkAcceptsACorrectSink(t *testing.T) { Sink(t, memSinkCase("")) }

// Each fault is caught, by the sub-test that is meant to.
func TestSinkCatches(t *testing.T) {
	for fault, by := range map[string]string{
		"open does I/O":                    "Pure",
		"mapping lacks a column":           "Types",
		"backslashes are lost":             "Types",
		"offsets are ignored":              "Types",
		"batches change":                   "Types",
		"long names are cut":               "Names",
		"case is folded":                   "Names",
		"empty datasets are left out":      "Empty",
		"writes are visible at once":       "Uncommitted",
		"finish is not idempotent":         "Finish",
		"replace appends":                  "Replace",
		"an abandoned replacement is kept": "Replace",
		"deletes are ignored":              "Upsert",
		"old keys are ignored":             "Upsert",
		"progress is not saved":            "Commit",
		"the ledger is lost":               "Commit",
		"numbers go through floats":        "Commit",
		"all lanes share progress":         "Commit",
		"fence is ignored":                 "Fence",
		"another row is named":             "Rejects",
		"evolving twice adds twice":        "Evolve",
		"second close fails":               "Close",
	} {
		t.Run(fault, func(t *testing.T) {
			failures := recordFailures(t, func(t testing.TB) { sink(t, memSinkCase(fault)) })
			for _, f := range failures {
				if strings.HasPrefix(f, by) {
					return
				}
			}
			t.Errorf("no failure in %s; the failures are %.2000q", by, failures)
		})
	}
}

type wrapper struct{ inner any }

func (w wrapper) Unwrap() any { return w.inner }

type opaque struct{ connector.Sink }

func TestWrapped(t *testing.T) {
	inner := &memSink{}
	Wrapped(t, inner, func(v any) any { return wrapper{inner: v} })
	failures := recordFailures(t, func(t testing.TB) {
		Wrapped(t, inner, func(any) any { return opaque{Sink: inner} })
	})
	if len(failures) != 5 {
		t.Errorf("a wrapper that hides the sink's 5 capabilities gave the failures %q", failures)
	}
}
