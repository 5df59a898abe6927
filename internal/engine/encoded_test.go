package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/transform"
)

// coded is a simulated source with an encoding of its own: a byte for each row, which only it understands.
type coded struct {
	*sim.Source
	why     string // why rows have to be decoded
	started []string
	unasked bool // it encodes what nobody asked for
}

func (c *coded) Open(env connector.Env) (connector.Source, error) {
	inner, err := c.Source.Open(env)
	return &codedValue{Source: inner, cfg: c}, err
}

type codedValue struct {
	connector.Source
	cfg *coded
}

func (v *codedValue) Unwrap() any { return v.Source }

func (v *codedValue) Encoding(context.Context, string) (format, why string, err error) {
	return "bytes", v.cfg.why, nil
}

func (v *codedValue) Start(ctx context.Context, s connector.SourceStart) error {
	v.cfg.started = s.Encoded
	return v.Source.Start(ctx, s)
}

func (v *codedValue) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	b, err := v.Source.Read(ctx, want)
	if err != nil || b == nil || b.NumRows() == 0 || !v.cfg.unasked && !slices.Contains(v.cfg.started, b.Schema.Dataset) {
		return b, err
	}
	out := *b
	out.Rows, out.Rejects = nil, nil
	out.Encoded = &record.Encoded{Format: "bytes", Decode: func([]byte) (*record.Batch, error) { return b, nil }}
	for i := range b.NumRows() {
		out.Encoded.Data, out.Encoded.Ends = append(out.Encoded.Data, byte(i)), append(out.Encoded.Ends, i+1)
	}
	return &out, nil
}

// taker is a simulated sink that takes that encoding.
type taker struct {
	*sim.Sink
	why     string
	asIs    int // batches that were taken as they came
	refuses int // every so many of them need rows after all; 0: none
}

func (k *taker) Contract() (connector.SinkContract, error) {
	c, err := k.Sink.Contract()
	c.Modes = []connector.WriteMode{connector.Append, connector.Upsert, connector.Replace}
	return c, err
}

func (k *taker) Open(env connector.Env) (connector.Sink, error) {
	inner, err := k.Sink.Open(env)
	return &takerValue{Sink: inner, cfg: k}, err
}

type takerValue struct {
	connector.Sink
	cfg *taker
}

func (v *takerValue) Unwrap() any { return v.Sink }

func (v *takerValue) TakesEncoding(_ context.Context, _ *record.Schema, format string) (string, error) {
	if format != "bytes" {
		return "", fmt.Errorf("asked about %q", format)
	}
	return v.cfg.why, nil
}

func (v *takerValue) Write(ctx context.Context, b *record.Batch) error {
	if b.Encoded == nil {
		return v.Sink.Write(ctx, b)
	}
	v.cfg.asIs++
	if v.cfg.refuses > 0 && v.cfg.asIs%v.cfg.refuses == 0 {
		return fmt.Errorf("a row was refused: %w", connector.ErrNeedsRows)
	}
	rows, err := b.Decoded()
	if err != nil {
		return err
	}
	return v.Sink.Write(ctx, rows)
}

// encodedWorld is a pipeline that passes rows on as they come.
func encodedWorld(seed uint64, units int) (*world, *coded, *taker) {
	w := newWorld(seed, steady(units), sim.Transactional)
	w.plan.BadRows = engine.BadRows{}
	src, sink := &coded{Source: w.src}, &taker{Sink: w.sinks[0]}
	w.plan.Source.Config, w.plan.Sinks[0].Config = src, sink
	return w, src, sink
}

// same is a transform that changes nothing.
type same struct{}

func (same) Schema(in *record.Schema) (*record.Schema, error) { return in, nil }
func (same) Apply(b *record.Batch) (*record.Batch, error)     { return b, nil }

// reasons is each thing that needs rows on their way, with words that the plan says of it.
func reasons() []struct {
	set func(w *world, src *coded, sink *taker)
	why string
} {
	text := []connector.Policy{connector.PolicyText}
	upsert := connector.Upsert
	return []struct {
		set func(w *world, src *coded, sink *taker)
		why string
	}{
		{func(w *world, _ *coded, _ *taker) {
			other := (&sim.Sink{Name: "other", Kind: sim.Transactional}).AddTo(w.World)
			w.plan.Sinks = append(w.plan.Sinks, engine.SinkSpec{Name: "other", Connector: "sim", Config: &taker{Sink: other}})
		}, "more than one sink"},
		{func(w *world, _ *coded, _ *taker) { w.plan.Source.Transforms = []transform.Step{same{}} }, "transforms"},
		{func(w *world, _ *coded, _ *taker) { w.plan.Sinks[0].Transforms = []transform.Step{same{}} }, "transforms"},
		{func(w *world, _ *coded, _ *taker) { w.plan.BadRows.Action = engine.SetAside }, "set aside"},
		{func(w *world, _ *coded, _ *taker) { w.plan.Sinks[0].BadRows = &engine.BadRows{Action: engine.SetAside} }, "set aside"},
		{func(w *world, _ *coded, _ *taker) { w.plan.Limit = 3 }, "number of rows"},
		{func(w *world, _ *coded, _ *taker) { w.plan.Sinks[0].Mode = &upsert }, "upsert"},
		{func(w *world, _ *coded, _ *taker) {
			w.sinks[0].OnMap = func(*record.Schema) ([]connector.Mapping, error) {
				m := connector.Mapping{Column: "value", Fidelity: connector.Checked, Limits: connector.Limits{MaxChars: 10}, Why: "short", Policies: text}
				return []connector.Mapping{m}, nil
			}
		}, `column "value" are checked: short`},
		{func(_ *world, src *coded, _ *taker) { src.why = "the source says so" }, "the source says so"},
		{func(_ *world, _ *coded, sink *taker) { sink.why = "the sink says so" }, "the sink says so"},
		{func(w *world, _ *coded, _ *taker) {
			asText := true // a column that has become text is asked about once more
			w.sinks[0].OnMap = func(*record.Schema) ([]connector.Mapping, error) {
				if asText = !asText; asText {
					return nil, nil
				}
				return []connector.Mapping{{Column: "value", Fidelity: connector.Inexact, Policies: text}}, nil
			}
			w.plan.Sinks[0].Policies = map[string]connector.Policy{"value": connector.PolicyText}
		}, "become text"},
	}
}

// Rows are passed on as they come only where nothing needs them: each reason, and each two of them, is enough, and the plan says one.
//
// clause S27.
func TestEncodedDecision(t *testing.T) {
	decide := func(set ...func(*world, *coded, *taker)) (asIs int, why []string) {
		synctest.Test(t, func(t *testing.T) {
			w, src, sink := encodedWorld(1, 6)
			for _, f := range set {
				f(w, src, sink)
			}
			r, err := engine.Check(t.Context(), w.plan, w.deps())
			if err != nil || !r.OK() {
				t.Fatal(err, r.Problems)
			}
			for _, s := range r.Sinks {
				for _, d := range s.Datasets {
					if (d.Encoding == "") != (d.WhyDecoded != "") {
						t.Fatalf("%s: encoding %q, decoded because %q", d.Dataset, d.Encoding, d.WhyDecoded)
					}
					why = append(why, d.WhyDecoded)
				}
			}
			if _, err := w.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if asIs = sink.asIs; asIs > 0 != (len(src.started) > 0) {
				t.Fatalf("%d batches were taken as they came, and %q was asked for", asIs, src.started)
			}
		})
		return asIs, why
	}
	if n, why := decide(); n == 0 || strings.Join(why, "") != "" {
		t.Fatalf("%d batches as they came: %q", n, why)
	}
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := encodedWorld(1, 6)
		w.src.Has.Bounded = false
		r, err := engine.Check(t.Context(), w.plan, w.deps())
		if err != nil || !strings.Contains(r.Sinks[0].Datasets[0].WhyDecoded, "changes") {
			t.Errorf("%v, %+v", err, r)
		}
	})
	all := reasons()
	for i, a := range all {
		n, why := decide(a.set)
		if n > 0 || len(why) == 0 || slices.ContainsFunc(why, func(w string) bool { return !strings.Contains(w, a.why) }) {
			t.Errorf("%s: %d batches as they came: %q", a.why, n, why)
		}
		for _, b := range all[:i] {
			told := func(w string) bool { return strings.Contains(w, a.why) || strings.Contains(w, b.why) }
			if n, why := decide(a.set, b.set); n > 0 || slices.ContainsFunc(why, func(w string) bool { return !told(w) }) {
				t.Errorf("%s and %s: %d batches as they came: %q", a.why, b.why, n, why)
			}
		}
	}
}

// Positions mean the same: crashes, faults and batches that need rows after all leave nothing out and nothing twice.
//
// clauses S27, E5, E8.
func TestEncodedRows(t *testing.T) {
	for refuses := range 4 {
		for crash := 1; crash < 60; crash += 3 {
			synctest.Test(t, func(t *testing.T) {
				w, _, sink := encodedWorld(uint64(crash), 12)
				sink.refuses, w.plan.Commit.Bytes = refuses, 500
				w.SetFaults(sim.Faults{CrashAt: crash, Transient: 0.05, Lost: 0.05})
				_, _ = w.run(t.Context()) // whatever comes of it
				w.Restart()
				w.SetFaults(sim.Faults{})
				if !w.store.Record.Progress.Done {
					if _, err := w.run(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.check(); err != nil || sink.asIs == 0 {
					t.Fatalf("crash %d, refuses %d: %v, %d as they came", crash, refuses, err, sink.asIs)
				}
			})
		}
	}
}

// A row that the target refuses ends the run as it does when rows are decoded; encoded rows that nobody asked for are a source's mistake.
//
// clause S27.
func TestEncodedRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var texts []string
		for _, why := range []string{"", "decoded"} {
			w, src, sink := encodedWorld(1, 6)
			src.why, sink.refuses, w.sinks[0].Refuses = why, 1, map[int64]bool{5: true}
			_, err := w.run(t.Context())
			texts = append(texts, fmt.Sprint(err))
		}
		if texts[0] != texts[1] || !strings.Contains(texts[0], `{"id":5}`) {
			t.Fatalf("%q", texts)
		}
		w, src, _ := encodedWorld(1, 6)
		src.why, src.unasked = "decoded", true
		if _, err := w.run(t.Context()); code(err) != "engine.bad_batch" {
			t.Fatal(err)
		}
	})
}
