package records_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connector/records"
	"github.com/leatdata/leat/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logConfig is a source that is a log in memory: one entry after the other, of several datasets, in units of one to three entries.
type logConfig struct {
	Only string `leat:"only" doc:"the one dataset to read"`

	follow    bool
	unordered bool // it can't order its positions
	split     bool // each dataset is a split
}

const logEntries = 41

// entry is what the log has at a place.
type entry struct {
	dataset string
	id      int64
	more    bool
}

func entryAt(n int) entry {
	return entry{dataset: []string{"one", "two", "one"}[n%3], id: int64(n), more: n%7 == 2 || n%7 == 3 || n%11 == 5}
}

func logSchema(dataset string) *record.Schema { return connectortest.Numbered(dataset, 0, 0).Schema }

func (c *logConfig) Contract() (connector.SourceContract, error) {
	return connector.SourceContract{Replay: connector.Deterministic, Interleaved: true, Bounded: !c.follow, CancelSafe: true}, nil
}

func (c *logConfig) Identity() map[string]string { return map[string]string{"only": c.Only} }

func (c *logConfig) Open(connector.Env) (connector.Source, error) {
	l := &memLog{cfg: c, schemas: map[string]*record.Schema{}}
	for _, d := range []string{"none", "one", "two"} {
		if c.follow && d == "none" { // nothing is said of it before there is something
			continue
		}
		if c.Only == "" || c.Only == d {
			l.schemas[d] = logSchema(d)
		}
	}
	switch {
	case c.unordered:
		return records.FromRecords(l), nil
	case c.split:
		return records.FromRecords(splitLog{orderedLog{l}}), nil
	}
	return records.FromRecords(orderedLog{l}), nil
}

// memLog is one generation of the source.
type memLog struct {
	cfg     *logConfig
	schemas map[string]*record.Schema
	at      int
	splits  map[string]bool // nil: the whole
}

type place struct {
	Entry int `json:"entry"`
}

var logForm = records.Form{System: "log-in-memory", Shape: 2}

func (l *memLog) Discover(context.Context) ([]connector.Dataset, error) {
	var out []connector.Dataset
	for _, d := range slices.Sorted(maps.Keys(l.schemas)) {
		out = append(out, connector.Dataset{Name: d, Schema: l.schemas[d], Rows: -1, Bytes: -1, Patch: map[string]string{"only": d}})
	}
	return out, nil
}

func (l *memLog) Seek(ctx context.Context, at record.Position) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var p place
	if !at.Zero() {
		if err := logForm.Decode(at, &p); err != nil {
			return err
		}
	}
	l.at = p.Entry
	return nil
}

func (l *memLog) Poll(_ context.Context, row *records.Row) (bool, error) {
	for l.at < logEntries {
		e := entryAt(l.at)
		l.at++
		s := l.schemas[e.dataset]
		if s == nil || (l.splits != nil && !l.splits[e.dataset]) {
			continue
		}
		row.Begin(s, record.Insert)
		row.Int(0, e.id)
		row.Text(1, fmt.Sprintf("value %d", e.id))
		if e.more && l.at < logEntries-1 && !l.cfg.split {
			row.More()
		}
		return true, nil
	}
	if l.cfg.follow {
		return false, nil
	}
	return false, io.EOF
}

func (l *memLog) Checkpoint(context.Context) (record.Position, error) {
	return logForm.Encode(place{l.at})
}

func (*memLog) Close(context.Context) error { return nil }

type orderedLog struct{ *memLog }

func (orderedLog) Compare(a, b record.Position) (int, bool) {
	var x, y place
	if logForm.Decode(a, &x) != nil || logForm.Decode(b, &y) != nil {
		return 0, false
	}
	return min(max(x.Entry-y.Entry, -1), 1), true
}

func (orderedLog) Migrate(p record.Position) (record.Position, error) {
	return p, logForm.Decode(p, new(place))
}

// splitLog has a split for each dataset.
type splitLog struct{ orderedLog }

func (splitLog) Splits(context.Context, int) ([]connector.Split, error) {
	return []connector.Split{{ID: "none"}, {ID: "one"}, {ID: "two"}}, nil
}

func (l splitLog) Narrow(splits []connector.Split) error {
	l.splits = map[string]bool{}
	for _, s := range splits {
		l.splits[s.ID] = true
	}
	return nil
}

func logRows() map[string][]string {
	want := map[string][]string{"none": {}}
	for n := range logEntries {
		e := entryAt(n)
		want[e.dataset] = append(want[e.dataset], connectortest.Rows(connectortest.Numbered(e.dataset, n, 1))...)
	}
	return want
}

// A source of single records keeps what every source promises, bounded and without an end, in units of several records, with positions
// that it orders and without.
//
// clauses S1, S5–S9, S12, S14, S24, S25.
func TestSource(t *testing.T) {
	for name, cfg := range map[string]logConfig{
		"bounded": {}, "follow": {follow: true}, "unordered": {unordered: true}, "one dataset": {Only: "one"},
		"split": {split: true}, "split, follow": {split: true, follow: true},
	} {
		t.Run(name, func(t *testing.T) {
			want := logRows()
			if cfg.Only != "" {
				want = map[string][]string{cfg.Only: want[cfg.Only]}
			}
			if cfg.follow {
				delete(want, "none")
			}
			connectortest.Source(t, connectortest.SourceCase{
				New: func(testing.TB) connector.SourceConfig { c := cfg; return &c }, Want: want,
				Part: func(dataset, _ string) string { return dataset },
			})
		})
	}
}

// store is a system that sinks write to.
type store struct {
	mu       sync.Mutex
	datasets map[string]map[string]string // rows by key, as JSON objects; of one without a key by number
	progress map[string]record.Progress
	fences   map[string]uint64
	open     int // transactions
}

func newStore() *store {
	return &store{datasets: map[string]map[string]string{}, progress: map[string]record.Progress{}, fences: map[string]uint64{}}
}

func (s *store) read(sch *record.Schema) ([]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, ok := s.datasets[sch.Dataset]
	return slices.Collect(maps.Values(rows)), ok
}

// storeConfig writes to a store.
type storeConfig struct {
	to           *store
	transactions bool
}

func (c *storeConfig) Contract() (connector.SinkContract, error) {
	out := connector.SinkContract{
		Modes: []connector.WriteMode{connector.Append, connector.Upsert}, Input: connector.Keyed, Durable: true, NeedsKey: true,
		Atomicity: connector.KeyedWrites,
	}
	if c.transactions {
		out.Atomicity = connector.PositionInTransaction
	}
	return out, nil
}

func (*storeConfig) Identity() map[string]string { return nil }

func (c *storeConfig) Open(connector.Env) (connector.Sink, error) {
	w := &storing{to: c.to}
	if c.transactions {
		return records.ToRecords(&storingTx{w}), nil
	}
	return records.ToRecords(w), nil
}

// storing is one generation of a sink: what was put is applied by Flush.
type storing struct {
	to    *store
	start connector.SinkStart
	todo  []func(*store)
}

type storingTx struct{ *storing }

var (
	_ records.Sink       = (*storing)(nil)
	_ records.Definer    = (*storing)(nil)
	_ records.Transactor = (*storingTx)(nil)
)

func (w *storing) lane() string { return w.start.Pipeline + "/" + w.start.Lane }

// fenced refuses an older owner. The mutex is held.
func (w *storing) fenced() error {
	if w.start.Fence < w.to.fences[w.lane()] {
		return &connector.Error{Class: connector.ClassFenced, Code: "store.fenced", Err: errors.New("another owner took over")}
	}
	w.to.fences[w.lane()] = w.start.Fence
	return nil
}

func (w *storing) Start(ctx context.Context, s connector.SinkStart) error {
	w.start = s
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.fenced()
}

func (w *storing) Define(_ context.Context, s *record.Schema) error {
	name := s.Dataset
	w.todo = append(w.todo, func(to *store) {
		if to.datasets[name] == nil {
			to.datasets[name] = map[string]string{}
		}
	})
	return nil
}

func (w *storing) Put(_ context.Context, r records.Record) error {
	if v := r.AppendText(nil, 1); bytes.Contains(v, []byte("refuse")) {
		return fmt.Errorf("putting it: %w", record.Reject{Column: "v", Message: "a constraint"})
	}
	name, key, row, op := r.Schema().Dataset, string(r.Key()), string(r.AppendObject(nil)), r.Op()
	appends := w.start.Mode == connector.Append
	w.todo = append(w.todo, func(to *store) {
		rows := to.datasets[name]
		switch {
		case op == record.Delete:
			delete(rows, key)
		case appends:
			rows[strconv.Itoa(len(rows))] = row
		default:
			rows[key] = row
		}
	})
	return nil
}

// apply makes visible what was put. The mutex is held.
func (w *storing) apply() {
	for _, f := range w.todo {
		f(w.to)
	}
	w.todo = nil
}

func (w *storing) Flush(context.Context) error {
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	if err := w.fenced(); err != nil {
		return err
	}
	w.apply()
	return nil
}

func (*storing) Close(context.Context) error { return nil }

func (w *storingTx) Begin(context.Context) error {
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	w.to.open++
	return nil
}

func (w *storingTx) Abort(context.Context) error {
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	w.to.open--
	w.todo = nil
	return nil
}

func (w *storingTx) Commit(_ context.Context, p record.Progress) error {
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	if err := w.fenced(); err != nil {
		return err
	}
	w.to.open--
	w.apply()
	w.to.progress[w.lane()] = p
	return nil
}

func (w *storingTx) Committed(context.Context) (record.Progress, bool, error) {
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	p, ok := w.to.progress[w.lane()]
	return p, ok, nil
}

// A sink of single records keeps what every sink promises, with transactions and without.
//
// clauses E5, E12, E13, S12, S15.
func TestSink(t *testing.T) {
	for name, transactions := range map[string]bool{"transactions": true, "flushes": false} {
		t.Run(name, func(t *testing.T) {
			var all []*store
			connectortest.Sink(t, connectortest.SinkCase{
				New: func(testing.TB) connectortest.Target {
					s := newStore()
					all = append(all, s)
					return connectortest.Target{
						Config: func() connector.SinkConfig { return &storeConfig{to: s, transactions: transactions} },
						Read:   func(_ testing.TB, sch *record.Schema) ([]string, bool) { return s.read(sch) },
					}
				},
				Refused: func(testing.TB, connectortest.Target) (*record.Batch, []int) {
					b := connectortest.BatchOf(connectortest.Numbered("refused", 0, 0).Schema,
						[]string{"1", `"a"`}, []string{"2", `"refuse"`}, []string{"3", `"b"`})
					return b, []int{1}
				},
				Activity: func(testing.TB) int {
					n := 0
					for _, s := range all {
						n += s.open
					}
					return n
				},
			})
		})
	}
}

// What a source or a sink of records can do besides is found through the adapters.
func TestCapabilities(t *testing.T) {
	connectortest.Wrapped(t, orderedLog{&memLog{}}, func(inner any) any {
		return records.FromRecords(inner.(records.Source)) //nolint:forcetypeassert // by construction
	})
	connectortest.Wrapped(t, &storingTx{&storing{}}, func(inner any) any {
		return records.ToRecords(inner.(records.Sink)) //nolint:forcetypeassert // by construction
	})
	err := records.FromRecords(&memLog{cfg: &logConfig{}}).Start(t.Context(), connector.SourceStart{Splits: []connector.Split{{ID: "one"}}})
	if connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("a source that can't be split is to read a part: %v", err)
	}
	if _, ok := connector.As[connector.PositionStore](records.ToRecords(&storing{})); ok {
		t.Error("a sink without transactions is a PositionStore")
	}
	if _, ok := connector.As[connector.Positions](records.FromRecords(&memLog{})); ok {
		t.Error("a source that can't order its positions says that it can")
	}
}
