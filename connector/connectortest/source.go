package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// SourceCase is a source under test.
type SourceCase struct {
	// New returns a configuration over the same data each time. What it starts is ended by t.Cleanup.
	New func(t testing.TB) connector.SourceConfig
	// Want is what a read from the beginning delivers: for each dataset its rows in order, as [Rows] prints them; an empty list
	// is a dataset without rows. Nil: what the first read delivers is right, if it has rows. A source without an end is read
	// until it has delivered all of them.
	Want map[string][]string
	// Part says which part of the source a row is of, where the contract says that parts are interleaved: the order of rows counts
	// only within a part. The row is as [Rows] prints it.
	Part func(dataset, row string) string
	// Datasets is the selection that the source is started with; nil: all that the configuration selects.
	Datasets []string
	// Unreachable returns a configuration whose system can't be reached (a closed port, a missing file). Nil: not tested.
	Unreachable func(t testing.TB) connector.SourceConfig
	// Secrets are the credentials in the configurations: no error, log, patch or URI may show them.
	Secrets []string
	// Activity counts what the source holds open outside: connections, slots, locks. Nil: not counted.
	Activity func(t testing.TB) int
}

// Source proves what every source promises; see the package's list of clauses in docs/clauses.md.
//
//   - S1, S12, S15: nothing happens before Start; a failed Start leaves nothing; Close may be called at any time and twice.
//   - S5, S6: a bounded source ends and stays ended; the wanted size is a target; 0 is one batch.
//   - S7, S8, S9: a resume from every position that was delivered gives exactly what follows it, byte for byte; empty batches
//     with positions count; after a cancelled read nothing is missing.
//   - S14: positions survive JSON; a newer shape and another source's position are refused before anything is read.
//   - S24, S25: Discover tells what Read delivers, patches select it, splits and chunks add up to the whole.
//   - Where parts are interleaved, all that counts within each part.
//   - Batches are never changed after they were handed over; cuts are honoured; positions are ordered; secrets stay secret.
func Source(t *testing.T, c SourceCase) {
	t.Helper()
	source(t, c)
}

func source(t testing.TB, c SourceCase) {
	t.Helper()
	contract, err := c.New(t).Contract()
	if err != nil {
		t.Fatalf("Contract: %v", err)
	}
	if contract.Interleaved && c.Part == nil {
		t.Fatalf("the contract says that parts are interleaved: SourceCase.Part has to tell them apart")
	}
	s := &sourceSuite{SourceCase: c, contract: contract}
	run(t, "Pure", s.pure)
	run(t, "Read", s.whole)
	if s.Want == nil {
		t.Fatalf("reading the whole did not work: nothing else can be tested")
	}
	run(t, "WantedSize", s.wantedSize)
	run(t, "Resume", s.resume)
	run(t, "RandomResume", s.randomResume)
	run(t, "Cuts", s.cuts)
	run(t, "Positions", s.positions)
	run(t, "Refuse", s.refuse)
	run(t, "Cancel", s.cancel)
	run(t, "Close", s.close)
	run(t, "Discover", s.discover)
	run(t, "Check", s.check)
	run(t, "Splits", s.splits)
	run(t, "Chunks", s.chunks)
	if c.Unreachable != nil {
		run(t, "Unreachable", s.unreachable)
	}
}

// sourceSuite is one run of the suite.
type sourceSuite struct {
	SourceCase
	contract connector.SourceContract
}

// generation is one source value with its environment.
type generation struct {
	suite *sourceSuite
	src   connector.Source
	env   *env
	seen  []sighting
}

// sighting is the digest of a batch when it was handed over.
type sighting struct {
	batch  *record.Batch
	digest uint64
}

// open builds a source of a new configuration.
func (s *sourceSuite) open(t testing.TB) *generation {
	t.Helper()
	return s.openConfig(t, s.New(t))
}

func (s *sourceSuite) openConfig(t testing.TB, cfg connector.SourceConfig) *generation {
	t.Helper()
	g := &generation{suite: s, env: newEnv()}
	src, err := cfg.Open(g.env.Env)
	if err != nil {
		secrets(s.Secrets).err(t, err)
		t.Fatalf("Open: %v", err)
	}
	g.src = src
	return g
}

// start opens a source and starts it.
func (s *sourceSuite) start(t testing.TB, ctx context.Context, from record.Position, cuts ...record.Position) *generation {
	t.Helper()
	g := s.open(t)
	if err := g.src.Start(ctx, s.request(from, cuts...)); err != nil {
		g.end(t)
		t.Fatalf("Start at %s: %v", from, err)
	}
	return g
}

func (s *sourceSuite) request(from record.Position, cuts ...record.Position) connector.SourceStart {
	req := connector.SourceStart{Datasets: s.Datasets, Cuts: cuts}
	if !from.Zero() {
		req.From = connector.From{Origin: connector.Resume, Attempt: 7, Position: from}
	}
	return req
}

// end closes the generation and checks what it leaves.
func (g *generation) end(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	g.env.mu.Lock()
	g.env.sealed = true
	g.env.mu.Unlock()
	for i := range 2 {
		if err := g.src.Close(ctx); err != nil {
			t.Errorf("Close, call %d: %v", i+1, err)
		}
	}
	g.env.stop()
	g.env.wait(t)
	for _, s := range g.seen {
		if Digest(s.batch) != s.digest {
			t.Errorf("a batch changed after it was handed over: %+v", s.batch)
		}
	}
	secrets(g.suite.Secrets).check(t, "the log", g.env.log.String())
}

// read returns the next batch; nil and io.EOF at the end.
func (g *generation) read(t testing.TB, ctx context.Context, want connector.Limit) (*record.Batch, error) {
	t.Helper()
	b, err := g.src.Read(ctx, want)
	secrets(g.suite.Secrets).err(t, err)
	if err != nil && b != nil {
		t.Errorf("Read returned a batch and the error %v", err)
	}
	if b == nil {
		return nil, err
	}
	g.seen = append(g.seen, sighting{batch: b, digest: Digest(b)})
	if problem := invalid(b); problem != nil {
		t.Errorf("batch %d: %v", len(g.seen), problem)
	}
	return b, nil
}

// invalid reports what is wrong with the shape of a batch.
func invalid(b *record.Batch) error {
	if b.Schema == nil {
		if b.Rows != nil || len(b.Rejects) > 0 || b.Truncate || b.Position.Zero() {
			return errors.New("it has no schema, and is more than a position")
		}
		return nil
	}
	if err := b.Schema.Validate(); err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	n := b.NumRows()
	if b.Rows != nil && !b.Rows.Schema().Equal(b.Schema.Columns) {
		return fmt.Errorf("its rows are of %s, its schema says %s", b.Rows.Schema(), b.Schema.Columns)
	}
	if b.Ops != nil && len(b.Ops) != n {
		return fmt.Errorf("%d operations for %d rows", len(b.Ops), n)
	}
	if b.Old != nil && int(b.Old.NumRows()) != n {
		return fmt.Errorf("%d old images for %d rows", b.Old.NumRows(), n)
	}
	txns := 0
	for _, x := range b.Txns {
		txns += x.Rows
	}
	if b.Txns != nil && txns != n {
		return fmt.Errorf("its transactions have %d rows, the batch %d", txns, n)
	}
	for i := range n {
		for _, k := range b.Schema.Key {
			if b.Rows.Column(k).IsNull(i) {
				return fmt.Errorf("row %d has a null in the key column %q", i, b.Schema.Columns.Field(k).Name)
			}
		}
	}
	return nil
}

// history is what a read delivered, flat.
type history struct {
	rows    []string // dataset, a tab, and the row
	marks   []mark
	batches []*record.Batch
}

// mark is a position and how many rows it covers.
type mark struct {
	position record.Position
	rows     int
}

func (h *history) add(b *record.Batch) {
	for _, r := range Rows(b) {
		h.rows = append(h.rows, b.Schema.Dataset+"\t"+r)
	}
	if !b.Position.Zero() {
		h.marks = append(h.marks, mark{position: throughJSON(b.Position), rows: len(h.rows)})
	}
	if b.Schema != nil { // else it says how far a stream came that has nothing to tell
		h.batches = append(h.batches, b)
	}
}

// byDataset sorts the rows out by dataset; a dataset with an empty batch has an empty list.
func (h *history) byDataset() map[string][]string {
	out := map[string][]string{}
	for _, b := range h.batches {
		out[b.Schema.Dataset] = append(append([]string{}, out[b.Schema.Dataset]...), Rows(b)...)
	}
	return out
}

// drain reads until the end; a source without one until want rows have come.
func (g *generation) drain(t testing.TB, ctx context.Context, limit func() connector.Limit, want int) *history {
	t.Helper()
	h := new(history)
	for g.suite.contract.Bounded || len(h.rows) < want {
		b, err := g.read(t, ctx, limit())
		if errors.Is(err, io.EOF) && g.suite.contract.Bounded {
			return h
		}
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		if b == nil {
			g.idle(t, ctx)
			continue
		}
		h.add(b)
	}
	return h
}

// idle waits until there may be something to read.
func (g *generation) idle(t testing.TB, ctx context.Context) {
	t.Helper()
	var ready <-chan struct{}
	if n, ok := connector.As[connector.Notifier](g.src); ok {
		ready = n.Ready()
	}
	select {
	case <-ready:
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
		t.Fatalf("the source delivered nothing more: %v", ctx.Err())
	}
}

// sorted brings the rows of each dataset into an order that does not depend on how parts are interleaved.
func (s *sourceSuite) sorted(byDataset map[string][]string) map[string][]string {
	if !s.contract.Interleaved {
		return byDataset
	}
	out := make(map[string][]string, len(byDataset))
	for dataset, rows := range byDataset {
		out[dataset] = slices.Clone(rows)
		slices.SortStableFunc(out[dataset], func(a, b string) int { return strings.Compare(s.Part(dataset, a), s.Part(dataset, b)) })
	}
	return out
}

// sortedRows does the same with the rows of a history.
func (s *sourceSuite) sortedRows(rows []string) []string {
	out := append([]string{}, rows...)
	if !s.contract.Interleaved {
		return out
	}
	part := func(row string) string {
		dataset, row, _ := strings.Cut(row, "\t")
		return dataset + "\t" + s.Part(dataset, row)
	}
	slices.SortStableFunc(out, func(a, b string) int { return strings.Compare(part(a), part(b)) })
	return out
}

// sameOrder reports whether both are the same rows, in the order that counts.
func (s *sourceSuite) sameOrder(want, got []string) bool {
	return slices.Equal(s.sortedRows(want), s.sortedRows(got))
}

// total is the number of rows of all datasets.
func (s *sourceSuite) total() int {
	n := 0
	for _, rows := range s.Want {
		n += len(rows)
	}
	return n
}

// all reads everything from the beginning in batches of n rows.
func (s *sourceSuite) all(t testing.TB, n int) *history {
	t.Helper()
	ctx := deadline(t)
	g := s.start(t, ctx, record.Position{})
	defer g.end(t)
	return g.drain(t, ctx, rowLimit(n), s.total())
}

func rowLimit(n int) func() connector.Limit {
	return func() connector.Limit { return connector.Limit{Rows: n, Bytes: 16 << 20} }
}

// clause S15
//
// pure proves clause S15: contract and identity are functions of the configuration, and Open does nothing.
func (s *sourceSuite) pure(t testing.TB) {
	configs := map[string]connector.SourceConfig{"the configuration": s.New(t)}
	if s.Unreachable != nil {
		configs["a configuration that points nowhere"] = s.Unreachable(t)
	}
	for what, cfg := range configs {
		one, err := cfg.Contract()
		if err != nil {
			t.Errorf("Contract of %s: %v", what, err)
			continue
		}
		if two, err := cfg.Contract(); err != nil || one != two {
			t.Errorf("Contract of %s answers %+v, then %+v (%v)", what, one, two, err)
		}
		first := cfg.Identity()
		if diff := cmp.Diff(first, cfg.Identity()); diff != "" {
			t.Errorf("Identity of %s differs when it is asked again:\n%s", what, diff)
		}
		secrets(s.Secrets).check(t, "Identity", fmt.Sprint(first))
		secrets(s.Secrets).check(t, "printing the configuration", fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg))
		g := s.openConfig(t, cfg)
		if n := g.env.roundtrips(); n > 0 {
			t.Errorf("Open of %s made %d round trips: it must do no I/O", what, n)
		}
		g.end(t)
	}
}

// whole proves clause S5, and the batches' shape: everything comes, every dataset has a batch, the end stays the end.
func (s *sourceSuite) whole(t testing.TB) {
	ctx := deadline(t)
	g := s.start(t, ctx, record.Position{})
	defer g.end(t)
	h := g.drain(t, ctx, rowLimit(1_000), s.total())
	got := h.byDataset()
	if s.Want == nil && len(h.rows) > 0 {
		s.Want = got
	}
	if diff := cmp.Diff(s.sorted(s.Want), s.sorted(got)); diff != "" {
		t.Errorf("what was read differs (-want +got):\n%s", diff)
	}
	checkSchemas(t, h)
	if s.contract.Replay != connector.NoReplay {
		if len(h.marks) == 0 {
			t.Errorf("the contract says that the source can be resumed (%s), and no batch had a position", s.contract.Replay)
		} else if last := h.marks[len(h.marks)-1]; s.contract.Bounded && last.rows != len(h.rows) {
			t.Errorf("the last position covers %d of %d rows", last.rows, len(h.rows))
		}
	}
	for range 2 {
		if !s.contract.Bounded {
			break
		}
		if b, err := g.read(t, ctx, connector.Limit{Rows: 1}); b != nil || !errors.Is(err, io.EOF) {
			t.Errorf("Read behind the end returned %v, %v: want io.EOF again", b, err)
		}
	}
}

// checkSchemas: one pointer for as long as nothing changes.
func checkSchemas(t testing.TB, h *history) {
	t.Helper()
	last := map[string]*record.Schema{}
	for _, b := range h.batches {
		prev := last[b.Schema.Dataset]
		last[b.Schema.Dataset] = b.Schema
		if prev == nil || prev == b.Schema {
			continue
		}
		if prev.Columns.Equal(b.Schema.Columns) && cmp.Equal(prev.Key, b.Schema.Key) {
			t.Errorf("dataset %s: a new *Schema value although nothing changed", b.Schema.Dataset)
		}
	}
}

// wantedSize proves clause S6.
func (s *sourceSuite) wantedSize(t testing.TB) {
	for _, n := range []int{1, 3, 7} {
		h := s.all(t, n)
		for _, b := range h.batches {
			if hard := max(int64(n), s.contract.MaxUnitRows); int64(b.NumRows()) > hard {
				t.Errorf("%d rows were wanted, the hard limit is %d, and a batch has %d", n, hard, b.NumRows())
			}
		}
		s.sameRows(t, fmt.Sprintf("in batches of %d rows", n), h)
		checkSchemas(t, h)
	}
	if !s.contract.Bounded {
		return
	}
	ctx := deadline(t)
	for what, limit := range map[string]connector.Limit{"0 rows": {}, "1 byte": {Rows: 1_000, Bytes: 1}} {
		g := s.start(t, ctx, record.Position{})
		h := g.drain(t, ctx, func() connector.Limit { return limit }, s.total())
		g.end(t)
		s.sameRows(t, "with a wanted size of "+what, h)
		full := map[string]int{}
		for _, b := range h.batches {
			if b.NumRows() > 0 {
				full[b.Schema.Dataset]++
			}
		}
		for d, n := range full {
			if limit.Rows == 0 && n > 1 {
				t.Errorf("dataset %s came in %d batches although 0 rows were wanted: do not split", d, n)
			}
		}
	}
}

func (s *sourceSuite) sameRows(t testing.TB, how string, h *history) {
	t.Helper()
	if diff := cmp.Diff(s.sorted(s.Want), s.sorted(h.byDataset())); diff != "" {
		t.Errorf("read %s, the rows differ (-want +got):\n%s", how, diff)
	}
}

// throughJSON is what the state store does to a position.
func throughJSON(p record.Position) record.Position {
	doc, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("connectortest: position %s is no JSON: %v", p, err))
	}
	var out record.Position
	if err := json.Unmarshal(doc, &out); err != nil {
		panic(fmt.Sprintf("connectortest: position %s does not survive JSON: %v", p, err))
	}
	return out
}
