package engine_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

// slow is a sink that takes its time to make durable what it was given.
type slow struct {
	connector.SinkConfig
	took time.Duration
}

func (c slow) Open(env connector.Env) (connector.Sink, error) {
	s, err := c.SinkConfig.Open(env)
	if err != nil {
		return nil, err
	}
	w := slowFlush{s, c.took}
	if store, ok := connector.As[connector.PositionStore](s); ok {
		return slowStore{w, store}, nil
	}
	return w, nil
}

type slowFlush struct {
	connector.Sink
	took time.Duration
}

func (s slowFlush) Unwrap() any { return s.Sink }

func (s slowFlush) Flush(ctx context.Context) error {
	time.Sleep(s.took)
	return s.Sink.Flush(ctx)
}

type slowStore struct {
	slowFlush
	store connector.PositionStore
}

func (s slowStore) Commit(ctx context.Context, p record.Progress) error {
	time.Sleep(s.took)
	return s.store.Commit(ctx, p)
}

func (s slowStore) Committed(ctx context.Context) (record.Progress, bool, error) {
	return s.store.Committed(ctx)
}

// While a sink is busy making something durable, neither the state nor the source hears of it: at every acknowledgement the source looks
// whether every sink has, durably, what it may release, and whether that was saved.
//
// clauses E1, E2, S11.
func TestSlowCommit(t *testing.T) {
	for which := range 2 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, steady(30), sim.Transactional, sim.KeyedTable)
			w.plan.Commit.Bytes = 1
			w.plan.Sinks[which].Config = slow{w.sinks[which], 3 * time.Second}
			w.src.OnRead = func(int) error { time.Sleep(50 * time.Millisecond); return nil }
			if _, err := w.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			acks := slices.IndexFunc(w.Events(), func(e sim.Event) bool { return e.What == "acknowledge" })
			if err := w.check(); err != nil || acks < 0 {
				t.Fatal(err, acks)
			}
		})
	}
}

// However often a run dies before anything of it is durable, it begins where the default start was resolved to the first time.
//
// clause S3.
func TestOriginOutlivesManyCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(5), sim.Transactional)
		w.src.Origin = true
		w.src.OnRead = func(int) error {
			return &connector.Error{Class: connector.ClassPermanent, Err: errors.New("no")}
		}
		for range 4 {
			if _, err := w.run(t.Context()); err == nil {
				t.Fatal("no error")
			}
		}
		w.src.OnRead = nil
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, s := range w.src.Starts {
			if s.From.Origin != connector.Initialised || !s.From.Position.Equal(w.src.Starts[0].From.Position) {
				t.Errorf("start %d: %+v", i, s.From)
			}
		}
		if w.src.Resolved != 1 || len(w.src.Starts) != 5 {
			t.Errorf("resolved %d times in %d starts", w.src.Resolved, len(w.src.Starts))
		}
		if err := w.check(); err != nil {
			t.Error(err)
		}
	})
}

// calling is a source or a sink that keeps what it was handed, and calls its system a few times in each generation.
type calling struct {
	mu   sync.Mutex
	envs []connector.Env
}

func (c *calling) opened(env connector.Env, calls int) {
	c.mu.Lock()
	c.envs = append(c.envs, env)
	c.mu.Unlock()
	for range calls {
		env.Roundtrip("hello")
	}
}

type callingSource struct {
	connector.SourceConfig
	*calling
}

func (c callingSource) Open(env connector.Env) (connector.Source, error) {
	c.opened(env, 2)
	return c.SourceConfig.Open(env)
}

type callingSink struct {
	connector.SinkConfig
	*calling
}

func (c callingSink) Open(env connector.Env) (connector.Sink, error) {
	c.opened(env, 3)
	return c.SinkConfig.Open(env)
}

// Every generation of every connector has the run's clock, and what it counts is counted for the run: a retry counts like the first try.
// What is saved is dated by the same clock.
//
// clause S29.
func TestClockAndRoundtrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(10), sim.Transactional)
		clock := time.Date(1999, 12, 31, 23, 59, 0, 0, time.UTC)
		src, snk := &calling{}, &calling{}
		w.plan.Source.Config = callingSource{w.src, src}
		w.plan.Sinks[0].Config = callingSink{w.sinks[0], snk}
		fails := 2
		w.sinks[0].OnWrite = func(*record.Batch) error {
			if fails--; fails >= 0 {
				return &connector.Error{Class: connector.ClassTransient, Err: errors.New("later")}
			}
			return nil
		}
		ctl := engine.NewControl()
		deps := w.deps()
		deps.Control, deps.Now = ctl, func() time.Time { return clock }
		sum, err := engine.Run(t.Context(), w.plan, deps)
		if err != nil {
			t.Fatal(err)
		}
		for who, c := range map[string]*calling{"source": src, "sink": snk} {
			for i, env := range c.envs {
				if !env.Now().Equal(clock) || env.Pipeline != w.plan.Name || env.Log == nil || env.Go == nil {
					t.Errorf("%s, generation %d: %+v at %s", who, i, env, env.Now())
				}
			}
		}
		if len(snk.envs) < 3 || sum.Sinks[0].Retries != 2 {
			t.Fatalf("%d generations of the sink, %d retries", len(snk.envs), sum.Sinks[0].Retries)
		}
		want := map[string]int64{"source": int64(2 * len(src.envs)), "sink0": int64(3 * len(snk.envs))}
		if got := ctl.Status().Roundtrips; !maps.Equal(got, want) {
			t.Errorf("roundtrips %v, want %v", got, want)
		}
		if !w.store.Record.Updated.Equal(clock) || !sum.Started.Equal(clock) {
			t.Errorf("saved at %s, started at %s", w.store.Record.Updated, sum.Started)
		}
	})
}

// tap counts what is published into each lane.
type tap struct {
	lane.Stream
	sinks    []string
	mu       sync.Mutex
	changes  map[string]int64
	rows     map[string]int64
	mistaken []lane.Item
}

func (s *tap) Publish(ctx context.Context, it lane.Item, to ...string) error {
	if err := s.Stream.Publish(ctx, it, to...); err != nil {
		return err
	}
	b, ok := it.(lane.Batch)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Chunk != nil && b.Changes != 0 {
		s.mistaken = append(s.mistaken, it)
	}
	if len(to) == 0 {
		to = s.sinks
	}
	for _, sink := range to {
		s.changes[sink] += int64(b.Changes)
		s.rows[sink] += int64(b.NumRows())
	}
	return nil
}

// Items say how many changes of the source they were built from, snapshot rows none; what was published, delivered and acknowledged adds
// up, and the numbers that people see are those.
//
// clause W16.
func TestChangesAddUp(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { addUp(t, seed) })
	}
}

func addUp(t *testing.T, seed uint64) {
	t.Helper()
	f := newFollowed(seed, true, true)
	var s *tap
	deps := engine.Deps{Store: f.store, Rand: rand.New(rand.NewPCG(seed, 7))}.WithLanes(func(sinks []string, o lane.Options) (lane.Stream, error) {
		m, err := lane.NewMemory(sinks, o)
		s = &tap{Stream: m, sinks: sinks, changes: map[string]int64{}, rows: map[string]int64{}}
		return s, err
	})
	for round := range 2 { // with a snapshot, and then without one
		sum, err := engine.Run(t.Context(), f.plan, deps)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.mistaken) > 0 {
			t.Errorf("seed %d: rows of a snapshot count as changes: %v", seed, s.mistaken[0])
		}
		d := sum.Datasets[0]
		for _, k := range sum.Sinks {
			got, err := s.Stats(k.Name)
			if err != nil {
				t.Fatal(err)
			}
			none := lane.Count{}
			switch {
			case got.Published != got.Acked || got.InFlight != none || got.Queued != none:
				t.Errorf("seed %d: at rest %+v", seed, got)
			case got.Published.Changes != s.changes[k.Name] || got.Published.Rows != s.rows[k.Name]:
				t.Errorf("seed %d: published %d changes, %d rows; counted %+v", seed, s.changes[k.Name], s.rows[k.Name], got.Published)
			case k.Durable+k.Skipped != got.Acked.Rows || k.Rows != k.Durable:
				t.Errorf("seed %d: people see %+v of %+v", seed, k, got.Acked)
			case round == 1 && got.Acked.Changes != d.Changes:
				t.Errorf("seed %d: the source sent %d changes, and %+v were acknowledged", seed, d.Changes, got.Acked)
			}
		}
		if round == 1 && (d.Snapshot != 0 || d.Changes == 0) {
			t.Errorf("seed %d: people see %+v", seed, d)
		}
		if round == 0 && d.Snapshot > s.rows["sink0"] {
			t.Errorf("seed %d: %d rows of the snapshot, and %d rows in all", seed, d.Snapshot, s.rows["sink0"])
		}
		f.src.Writes = 0
		for range 40 {
			f.db.Commit()
		}
		f.db.Settle()
	}
}

// watched is a sink whose writes are looked at before they happen.
type watched struct {
	connector.SinkConfig
	look func()
}

func (c watched) Open(env connector.Env) (connector.Sink, error) {
	s, err := c.SinkConfig.Open(env)
	return watchedWrites{s, c.look}, err
}

type watchedWrites struct {
	connector.Sink
	look func()
}

func (s watchedWrites) Unwrap() any { return s.Sink }

func (s watchedWrites) Write(ctx context.Context, b *record.Batch) error {
	s.look()
	return s.Sink.Write(ctx, b)
}

// Before a two-phase sink gets the first row of an epoch, it is saved that there will be that epoch, and that it is not decided.
//
// clause E4.
func TestIntentComesFirst(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			f := newFollowed(seed, true)
			f.plan.Commit.Bytes = 500
			sink := f.sinks[0]
			sink.TwoPhase = true
			writes := 0
			f.plan.Sinks[0].Config = watched{sink, func() {
				writes++
				f.Look(func() {
					e := f.store.Record.Lanes[sink.Name].Epoch
					if e == nil || e.Decided || (sink.Has && e.Number <= sink.Progress.Epoch) {
						t.Errorf("a row of the epoch behind %d is written, and %+v is saved", sink.Progress.Epoch, e)
					}
				})
			}}
			err := f.settle(t.Context())
			if err == nil {
				err = f.check()
			}
			if err != nil || writes == 0 || sink.Progress.Epoch < 3 {
				t.Errorf("%d writes, epoch %d: %v", writes, sink.Progress.Epoch, err)
			}
		})
	}
}

// A two-phase sink that has less than what was decided was restored or emptied: that is said, and nothing is written.
//
// clauses E4, S4.
func TestTwoPhaseSinkIsEmptied(t *testing.T) {
	for _, durable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFollowed(7, true)
			f.sinks[0].TwoPhase = true
			if durable {
				f.keepLanes()
			}
			if err := f.settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			empty := sim.NewTableSink(f.World, f.db, f.sinks[0].Name, true)
			f.sinks[0].Durable, f.sinks[0].Progress, f.sinks[0].Has = empty.Durable, record.Progress{}, false
			events := len(f.Events())
			for range 20 {
				f.db.Commit()
			}
			f.db.Settle()
			_, err := f.run(t.Context())
			if known, ok := errors.AsType[*connector.Error](err); !ok || known.Class != connector.ClassPosition || known.Hint == "" {
				t.Errorf("durable lanes %t: %v", durable, err)
			}
			for _, e := range f.Events()[events:] {
				if e.Who == f.sinks[0].Name && (e.What == "write" || e.What == "prepare") {
					t.Errorf("durable lanes %t: %s", durable, e)
				}
			}
		})
	}
}

// answering is durable lanes that look whether a request is acknowledged only once its answer is in the lane that asked.
type answering struct {
	lane.Durable
	mu    *sync.Mutex
	marks map[string]int // that a snapshot is complete, by sink
	early *int           // requests that were acknowledged too early
	acked *int
}

func (a answering) Publish(ctx context.Context, it lane.Item, to ...string) error {
	err := a.Durable.Publish(ctx, it, to...)
	if _, mark := it.(lane.SnapshotComplete); mark && err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, sink := range to {
			a.marks[sink]++
		}
	}
	return err
}

func (a answering) Requests() (lane.Consumer[lane.Request], error) {
	c, err := a.Durable.Requests()
	return answeringConsumer{c, a}, err
}

type answeringConsumer struct {
	lane.Consumer[lane.Request]
	a answering
}

func (c answeringConsumer) Receive(ctx context.Context) (lane.Delivery[lane.Request], error) {
	d, err := c.Consumer.Receive(ctx)
	if err != nil {
		return nil, err
	}
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	return answeringDelivery{d, c.a, c.a.marks[d.Item().Sink]}, nil
}

type answeringDelivery struct {
	lane.Delivery[lane.Request]
	a      answering
	before int
}

func (d answeringDelivery) Ack() error {
	d.a.mu.Lock()
	*d.a.acked++
	if d.a.marks[d.Item().Sink] == d.before {
		*d.a.early++
	}
	d.a.mu.Unlock()
	return d.Delivery.Ack()
}

// A sink whose lane was let go asks to be filled; that request is acknowledged only once the mark that ends its snapshot was published
// into its lane, so that a crash in between finds it again.
//
// clause W13.
func TestRequestsAreAnsweredFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(43, true, true)
		f.keepLanes()
		f.plan.Lanes.Quota = lane.Quota{Bytes: 40_000, Detach: true}
		a := answering{mu: &sync.Mutex{}, marks: map[string]int{}, early: new(int), acked: new(int)}
		deps := f.deps()
		deps.Control = engine.NewControl()
		deps.DurableLanes = func(ctx context.Context, s lane.Spec) (lane.Durable, error) {
			d, err := f.lanes.Open(ctx, s)
			a.Durable = d
			return a, err
		}
		f.plan.Once = false
		f.src.Writes = 10
		done := make(chan error, 1)
		go func() { _, err := engine.Run(context.Background(), f.plan, deps); done <- err }()
		time.Sleep(time.Minute)
		f.Look(func() { f.sinks[1].Broken = errors.New("out of order") })
		f.write(1000, 10*time.Minute)
		f.Look(func() { f.sinks[1].Broken = nil })
		f.write(20, 5*time.Minute)
		deps.Control.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if *a.acked == 0 || *a.early > 0 {
			t.Errorf("%d requests were acknowledged, %d before they were answered", *a.acked, *a.early)
		}
		if err := f.check(); err != nil {
			t.Error(err)
		}
	})
}
