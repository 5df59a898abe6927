package discard_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/discard"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
)

// everything is batches of every kind that a source can send.
func everything() map[string]*record.Batch {
	id, name := connectortest.Case{Name: "n", Type: record.NumericType()}, connectortest.Pick("text")[0]
	keyed := connectortest.Schema("app.orders", id, name)
	keyless := *keyed
	keyless.Dataset, keyless.Key = "app.log", nil
	changes := []connectortest.Change{
		{Op: record.Insert, Row: []string{"1", "1.50", `"a"`}},
		{Op: record.Update, Row: []string{"2", "2", connectortest.Unsent}, Old: []string{"1", "null", "null"}},
		{Op: record.Upsert, Row: []string{"2", `"NaN"`, "null"}},
		{Op: record.Delete, Row: []string{"9", "null", "null"}},
	}
	return map[string]*record.Batch{
		"every type":      connectortest.Batch("app.types", connectortest.Cases()...),
		"a window":        connectortest.Sliced(connectortest.Batch("app.types", connectortest.Cases()...)),
		"changes":         connectortest.Changes(keyed, changes...),
		"keyless changes": connectortest.Changes(&keyless, changes...),
		"a truncate":      {Schema: keyed, Truncate: true, Changes: 1},
		"no rows":         connectortest.BatchOf(keyed),
		"a position":      {Position: record.Position{Shape: 1, Data: []byte(`{"at":1}`)}},
	}
}

// Every kind of batch is taken in every mode, under any schema, again and again, and stays as it was for the other lanes.
func TestTakesEverything(t *testing.T) {
	cfg := discard.NewSink()
	contract, err := cfg.Contract()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range contract.Modes {
		for name, b := range everything() {
			t.Run(mode.String()+"/"+name, func(t *testing.T) { take(t, cfg, mode, b) })
		}
	}
}

func take(t *testing.T, cfg *discard.SinkConfig, mode connector.WriteMode, b *record.Batch) {
	t.Helper()
	ctx := t.Context()
	snk, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	evolver, evolves := connector.As[connector.Evolver](snk)
	finisher, finishes := connector.As[connector.Finisher](snk)
	if !evolves || !finishes {
		t.Fatalf("evolves %t, finishes %t", evolves, finishes)
	}
	before := connectortest.Digest(b)
	steps := []error{snk.Start(ctx, connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 1, Mode: mode})}
	for range 2 {
		if b.Schema != nil {
			steps = append(steps, evolver.Evolve(ctx, nil, b.Schema))
		}
		steps = append(steps, snk.Write(ctx, b), snk.Flush(ctx))
	}
	steps = append(steps, finisher.Finish(ctx, record.Progress{Run: "r", Done: true}), snk.Close(ctx), snk.Close(ctx))
	if err := errors.Join(steps...); err != nil {
		t.Error(err)
	}
	if connectortest.Digest(b) != before {
		t.Error("the batch was changed")
	}
}

// clause S15
// No call of the configuration does I/O or depends on anything; a cancelled call says so.
func TestPure(t *testing.T) {
	a, errA := discard.NewSink().Contract()
	b, errB := discard.NewSink().Contract()
	if err := errors.Join(errA, errB); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%+v and %+v, %v", a, b, err)
	}
	if id := discard.NewSink().Identity(); len(id) != 0 {
		t.Errorf("identity %v", id)
	}
	snk, err := discard.NewSink().Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := snk.Write(ctx, connectortest.Numbered("d", 1, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled Write returned %v", err)
	}
}

// What the plan says of it: the best that can be said of nothing, whatever is read, and no more than that. It takes from no other lane
// more than the claim that the whole pipeline is exactly-once.
func TestAdmission(t *testing.T) {
	contract, err := discard.NewSink().Contract()
	if err != nil {
		t.Fatal(err)
	}
	table := connector.SinkContract{
		Modes: []connector.WriteMode{connector.Upsert}, Input: connector.Changelog, Atomicity: connector.PositionInTransaction, Durable: true,
	}
	offers := []engine.SinkOffer{{Name: "table", Contract: table, Mode: connector.Upsert}, {Name: "nothing", Contract: contract}}
	for _, mode := range contract.Modes[:2] {
		offers[1].Mode = connector.Upsert
		for _, src := range []connector.SourceContract{
			{Replay: connector.Deterministic, Bounded: true},
			{Replay: connector.Deterministic, Bounded: true, Incremental: true},
			{Replay: connector.Deterministic, Input: connector.Changelog},
			{Replay: connector.Replayable, Input: connector.Keyed},
		} {
			a := engine.Admit(src, offers, connector.BestGuarantee)
			if err := a.Err(); err != nil || a.Reached != connector.EffectivelyOnce {
				t.Errorf("mode %s, %+v: reached %s, %v", mode, src, a.Reached, err)
			}
		}
	}
	src := connector.SourceContract{Replay: connector.Deterministic, Input: connector.Changelog}
	a := engine.Admit(src, offers, connector.ExactlyOnce)
	if len(a.Problems) != 1 || a.Problems[0].Sink != "nothing" || !strings.Contains(a.Problems[0].Hint, "effectively-once") {
		t.Errorf("%+v", a.Problems)
	}
	if a.Lanes[0].Reached != connector.ExactlyOnce {
		t.Errorf("the other lane reaches %s", a.Lanes[0].Reached)
	}
}

func TestURL(t *testing.T) {
	for raw, ok := range map[string]bool{
		"discard:": true, "DISCARD:": true, "discard://": true, "discard:/": true, "discard:?": true,
		"discard:orders": false, "discard://host/db": false, "discard:?mode=upsert": false,
	} {
		err := discard.NewSink().SetURL(raw)
		if (err == nil) != ok {
			t.Errorf("%s: %v", raw, err)
		}
		if err != nil && (connector.ClassOf(err) != connector.ClassConfig || connector.HintOf(err) == "") {
			t.Errorf("%s: class %s, hint %q", raw, connector.ClassOf(err), connector.HintOf(err))
		}
	}
	if d := discard.Definition(); d.Source != nil || bytes.ContainsAny([]byte(d.Name), " :") || len(d.Extensions) > 0 {
		t.Errorf("%+v", d)
	}
}

// Whoever writes to it writes through it without a copy: what it costs is a call.
func BenchmarkWrite(b *testing.B) {
	snk, err := discard.NewSink().Open(connector.Env{})
	if err != nil {
		b.Fatal(err)
	}
	batch := connectortest.Numbered("d", 0, 8192)
	b.ReportAllocs()
	for b.Loop() {
		if err := snk.Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}
