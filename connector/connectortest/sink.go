package connectortest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Target is one place that a sink writes to.
type Target struct {
	// Config returns a new configuration of the same target, each time it is called: what a restarted process has.
	Config func() connector.SinkConfig
	// Read returns the rows of a dataset as the target holds them, as [Rows] prints them, in any order, and whether the dataset
	// exists. It does not use the sink. The schema is the one that was written.
	Read func(t testing.TB, s *record.Schema) (rows []string, exists bool)
	// Leftovers lists what is staged in the target, by any name, and not published; of a sink that publishes epochs. Nil: not tested.
	Leftovers func(t testing.TB) []string
}

// SinkCase is a sink under test.
type SinkCase struct {
	// New returns a target that is empty, each time.
	New func(t testing.TB) Target
	// Cases are the columns that are written; nil: all of [Cases]. Where the sink is a Mapper, columns that it can't keep exactly
	// and values outside of the limits that it states are left out.
	Cases []Case
	// OneDataset: the target holds a single dataset, as a file does.
	OneDataset bool
	// OneOwner: the target can be open only once at a time; Read is called only when no sink is open.
	OneOwner bool
	// Refused prepares a target so that it refuses some rows, and returns a batch with such rows and their indexes. Nil: not tested.
	Refused func(t testing.TB, target Target) (b *record.Batch, rows []int)
	// Unreachable returns a configuration whose system can't be reached. Nil: not tested.
	Unreachable func(t testing.TB) connector.SinkConfig
	// Secrets are the credentials in the configurations: no error, log, probe or URI may show them.
	Secrets []string
	// Activity counts what the sink holds open outside: connections, transactions, locks. Nil: not counted.
	Activity func(t testing.TB) int
}

// Sink proves what every sink promises, in every write mode of its contract:
//
//   - every value that the mapping calls exact, or that is within the limits of a checked one, comes out as it went in;
//   - what was not committed (or finished) leaves nothing; rows and progress are one (E5), under a fence;
//   - an epoch that was prepared shows nowhere and survives, one that is published is there once, and one that is aborted leaves
//     nothing (E4, E16);
//   - Finish is idempotent, a replacement shows only when it is finished, one begun by another run is discarded;
//   - upserts and deletes by key, also within one batch and applied again;
//   - refused rows are named exactly and all others written; empty datasets exist; names are kept apart;
//   - contract and identity are pure (S15); Close at any time and twice leaves nothing (S12); secrets stay secret.
func Sink(t *testing.T, c SinkCase) {
	t.Helper()
	sink(t, c)
}

func sink(t testing.TB, c SinkCase) {
	t.Helper()
	contract, err := c.New(t).Config().Contract()
	if err != nil {
		t.Fatalf("Contract: %v", err)
	}
	if len(contract.Modes) == 0 {
		t.Fatalf("the contract names no write mode")
	}
	if c.Cases == nil {
		c.Cases = Cases()
	}
	s := &sinkSuite{SinkCase: c, contract: contract}
	run(t, "Pure", s.pure)
	for _, mode := range contract.Modes {
		run(t, "Types/"+mode.String(), func(t testing.TB) { s.types(t, mode) })
		run(t, "Names/"+mode.String(), func(t testing.TB) { s.names(t, mode) })
		run(t, "Empty/"+mode.String(), func(t testing.TB) { s.empty(t, mode) })
		run(t, "Uncommitted/"+mode.String(), func(t testing.TB) { s.uncommitted(t, mode) })
		run(t, "Finish/"+mode.String(), func(t testing.TB) { s.finish(t, mode) })
	}
	run(t, "Append", s.appends)
	run(t, "Upsert", s.upserts)
	run(t, "Replace", s.replaces)
	run(t, "Commit", s.commits)
	run(t, "Fence", s.fences)
	run(t, "TwoPhase", s.twoPhase)
	run(t, "Rejects", s.rejects)
	run(t, "Evolve", s.evolves)
	run(t, "Check", s.check)
	run(t, "Close", s.close)
	if c.Unreachable != nil {
		run(t, "Unreachable", s.unreachable)
	}
}

// sinkSuite is one run of the suite.
type sinkSuite struct {
	SinkCase
	contract connector.SinkContract
}

func (s *sinkSuite) supports(m connector.WriteMode) bool { return slices.Contains(s.contract.Modes, m) }

// session is one sink value with its environment.
type session struct {
	suite *sinkSuite
	snk   connector.Sink
	env   *env
	seen  []sighting
	ended bool
}

func (s *sinkSuite) openConfig(t testing.TB, cfg connector.SinkConfig) *session {
	t.Helper()
	x := &session{suite: s, env: newEnv()}
	snk, err := cfg.Open(x.env.Env)
	if err != nil {
		secrets(s.Secrets).err(t, err)
		t.Fatalf("Open: %v", err)
	}
	x.snk = snk
	t.Cleanup(func() { x.end(t) })
	return x
}

// request is a start request of run r1.
func request(mode connector.WriteMode) connector.SinkStart {
	return connector.SinkStart{Pipeline: "kit", Lane: "target", Run: "r1", Fence: 1, Mode: mode}
}

// start opens a sink of the target and starts it.
func (s *sinkSuite) start(t testing.TB, target Target, req connector.SinkStart) *session {
	t.Helper()
	x := s.openConfig(t, target.Config())
	if err := x.snk.Start(deadline(t), req); err != nil {
		x.end(t)
		t.Fatalf("Start: %v", err)
	}
	return x
}

// offer writes a batch and returns the sink's answer.
func (x *session) offer(t testing.TB, b *record.Batch) error {
	t.Helper()
	x.seen = append(x.seen, sighting{batch: b, digest: Digest(b)})
	err := x.snk.Write(deadline(t), b)
	secrets(x.suite.Secrets).err(t, err)
	return err //nolint:wrapcheck // the sink's own words are under test
}

// write must work.
func (x *session) write(t testing.TB, batches ...*record.Batch) {
	t.Helper()
	for _, b := range batches {
		if err := x.offer(t, b); err != nil {
			x.end(t)
			t.Fatalf("Write of %d rows to %s: %v", b.NumRows(), b.Schema.Dataset, err)
		}
	}
}

// progress is a lane's progress with everything set.
func progress(run string, n int) record.Progress {
	return record.Progress{
		Run: run, Position: record.Position{Shape: 3, Data: json.RawMessage(fmt.Sprintf(`{"at":%d,"big":9007199254740993}`, n))},
		Ledger: json.RawMessage(fmt.Sprintf(`[{"chunk":%d}]`, n)),
	}
}

// settle makes durable what was written, as the engine does in the middle of a run.
func (x *session) settle(ctx context.Context, p record.Progress) error {
	if x.suite.contract.Atomicity == connector.TwoPhaseCommit {
		return x.epoch(ctx, p)
	}
	if ps, ok := connector.As[connector.PositionStore](x.snk); ok {
		return ps.Commit(ctx, p) //nolint:wrapcheck // the sink's own words are under test
	}
	return x.snk.Flush(ctx) //nolint:wrapcheck // the sink's own words are under test
}

// complete ends the run, as the engine does behind the last batch.
func (x *session) complete(ctx context.Context, p record.Progress) error {
	p.Done = true
	_, store := connector.As[connector.PositionStore](x.snk)
	f, finisher := connector.As[connector.Finisher](x.snk)
	if !store || !finisher {
		if err := x.settle(ctx, p); err != nil {
			return err
		}
	}
	if finisher {
		return f.Finish(ctx, p) //nolint:wrapcheck // the sink's own words are under test
	}
	return nil
}

// mustComplete ends the run and closes the sink.
func (x *session) mustComplete(t testing.TB, p record.Progress) {
	t.Helper()
	if err := x.complete(deadline(t), p); err != nil {
		x.end(t)
		t.Fatalf("ending the run: %v", err)
	}
	x.end(t)
}

// end closes the sink, twice, and checks what it leaves. It may be called again.
func (x *session) end(t testing.TB) {
	t.Helper()
	if x.ended {
		return
	}
	x.ended = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	x.env.mu.Lock()
	x.env.sealed = true
	x.env.mu.Unlock()
	for i := range 2 {
		if err := x.snk.Close(ctx); err != nil {
			t.Errorf("Close, call %d: %v", i+1, err)
		}
	}
	x.env.stop()
	x.env.wait(t)
	for _, s := range x.seen {
		if Digest(s.batch) != s.digest {
			t.Errorf("the sink changed a batch of %s", s.batch.Schema.Dataset)
		}
	}
	secrets(x.suite.Secrets).check(t, "the log", x.env.log.String())
}

// load is a whole run of its own: start, write, end.
func (s *sinkSuite) load(t testing.TB, target Target, req connector.SinkStart, batches ...*record.Batch) {
	t.Helper()
	x := s.start(t, target, req)
	x.write(t, batches...)
	x.mustComplete(t, progress(req.Run, 1))
}

// holds compares a dataset with the rows of batches. No batch of at least one row: the dataset has no rows.
func holds(t testing.TB, target Target, what string, schema *record.Schema, batches ...*record.Batch) {
	t.Helper()
	want := []string{}
	for _, b := range batches {
		want = append(want, Rows(b)...)
	}
	got, exists := target.Read(t, schema)
	if !exists {
		t.Errorf("%s: the dataset %s does not exist", what, schema.Dataset)
		return
	}
	same(t, what+": "+schema.Dataset, want, got)
}

// lacks: the dataset has no rows, or does not exist.
func lacks(t testing.TB, target Target, what string, schema *record.Schema) {
	t.Helper()
	if got, _ := target.Read(t, schema); len(got) > 0 {
		t.Errorf("%s: %s has %d rows: want none", what, schema.Dataset, len(got))
	}
}

func same(t testing.TB, what string, want, got []string) {
	t.Helper()
	want, got = slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))
	if !slices.Equal(want, got) {
		t.Errorf("%s has other rows (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

// pure proves clause S15.
func (s *sinkSuite) pure(t testing.TB) {
	configs := map[string]connector.SinkConfig{"the configuration": s.New(t).Config()}
	if s.Unreachable != nil {
		configs["a configuration that points nowhere"] = s.Unreachable(t)
	}
	for what, cfg := range configs {
		one, err := cfg.Contract()
		if err != nil {
			t.Errorf("Contract of %s: %v", what, err)
			continue
		}
		if two, err := cfg.Contract(); err != nil || !cmp.Equal(one, two) {
			t.Errorf("Contract of %s answers %+v, then %+v (%v)", what, one, two, err)
		}
		first := cfg.Identity()
		if diff := cmp.Diff(first, cfg.Identity()); diff != "" {
			t.Errorf("Identity of %s differs when it is asked again:\n%s", what, diff)
		}
		secrets(s.Secrets).check(t, "Identity", fmt.Sprint(first))
		secrets(s.Secrets).check(t, "printing the configuration", fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg))
		x := s.openConfig(t, cfg)
		if n := x.env.roundtrips(); n > 0 {
			t.Errorf("Open of %s made %d round trips: it must do no I/O", what, n)
		}
		promises(t, x, one)
		x.end(t)
	}
}

// promises: the contract and the capabilities say the same.
func promises(t testing.TB, x *session, c connector.SinkContract) {
	t.Helper()
	_, store := connector.As[connector.PositionStore](x.snk)
	_, finisher := connector.As[connector.Finisher](x.snk)
	if (c.Atomicity == connector.PositionInTransaction) != store {
		t.Errorf("the contract says atomicity %q, and being a PositionStore is %v", c.Atomicity, store)
	}
	if _, two := connector.As[connector.TwoPhase](x.snk); (c.Atomicity == connector.TwoPhaseCommit) != two {
		t.Errorf("the contract says atomicity %q, and being TwoPhase is %v", c.Atomicity, two)
	}
	if (c.Atomicity == connector.Whole || slices.Contains(c.Modes, connector.Replace)) && !finisher {
		t.Errorf("the contract promises what shows as a whole, and the sink is no Finisher")
	}
	if slices.Contains(c.Modes, connector.Upsert) && c.Input < connector.Keyed {
		t.Errorf("the contract has mode upsert and takes only inserts")
	}
}
