package engine

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
)

var update = flag.Bool("update", false, "rewrite testdata")

var (
	replays     = []connector.Replay{connector.NoReplay, connector.Replayable, connector.Deterministic}
	inputs      = []connector.Input{connector.AppendOnly, connector.Keyed, connector.Changelog}
	atomicities = []connector.Atomicity{
		connector.NoAtomicity, connector.KeyedWrites, connector.PositionInTransaction, connector.TwoPhaseCommit, connector.Whole,
	}
	modes      = []connector.WriteMode{connector.Append, connector.Upsert, connector.Replace}
	guarantees = []connector.Guarantee{
		connector.BestGuarantee, connector.AtLeastOnce, connector.EffectivelyOnce, connector.ExactlyOnce,
	}
	bools = []bool{false, true}
)

// TestAdmissionTable holds what every kind of source and sink reach together against a table that a person has read.
//
// clause E7.
func TestAdmissionTable(t *testing.T) {
	var b strings.Builder
	for _, replay := range replays {
		for _, atomicity := range atomicities {
			for _, mode := range modes {
				for _, durable := range bools {
					src := connector.SourceContract{Replay: replay, Bounded: true}
					sink := SinkOffer{Name: "s", Mode: mode, Contract: connector.SinkContract{Modes: modes, Atomicity: atomicity, Durable: durable}}
					a := Admit(src, []SinkOffer{sink}, connector.BestGuarantee)
					volatile := ""
					if !durable {
						volatile = ", volatile"
					}
					fmt.Fprintf(&b, "replay %s, sink %s, %s%s: %s\n", replay, atomicity, mode, volatile, GuaranteeName(a.Reached))
				}
			}
		}
	}
	const file = "testdata/admission.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(b.String(), "\n") {
		if w := strings.Split(string(want), "\n"); i >= len(w) || w[i] != line {
			t.Errorf("line %d: got %q, want %q", i+1, line, w[min(i, len(w)-1)])
		}
	}
}

// eachAdmission goes through the whole product of contracts and guarantees, for one sink.
func eachAdmission(f func(src connector.SourceContract, s SinkOffer, g connector.Guarantee)) {
	for _, replay := range replays {
		for _, in := range inputs {
			for _, bounded := range bools {
				for _, incremental := range bools {
					src := connector.SourceContract{Replay: replay, Input: in, Bounded: bounded, Incremental: incremental}
					eachOffer(func(s SinkOffer) {
						for _, g := range guarantees {
							f(src, s, g)
						}
					})
				}
			}
		}
	}
}

func eachOffer(f func(SinkOffer)) {
	for _, atomicity := range atomicities {
		for _, mode := range modes {
			for _, in := range inputs {
				for _, durable := range bools {
					for _, only := range [][]connector.WriteMode{{connector.Append}, {connector.Append, connector.Upsert}, modes} {
						c := connector.SinkContract{Modes: only, Input: in, Atomicity: atomicity, Durable: durable}
						f(SinkOffer{Name: "s", Mode: mode, Contract: c})
					}
				}
			}
		}
	}
}

// TestAdmissionProduct checks on every combination what must hold, told from the other side: what may go wrong there.
//
// clause E7.
func TestAdmissionProduct(t *testing.T) {
	codes := func(a Admission) []string {
		var cs []string
		for _, p := range a.Problems {
			cs = append(cs, p.Code)
		}
		return cs
	}
	n := 0
	eachAdmission(func(src connector.SourceContract, s SinkOffer, g connector.Guarantee) {
		n++
		a := Admit(src, []SinkOffer{s}, g)
		fail := func(format string, args ...any) {
			t.Fatalf("%+v into %+v, asked %s: %s: %+v", src, s, g, fmt.Sprintf(format, args...), a)
		}
		again := Admit(src, []SinkOffer{s}, g)
		if fmt.Sprint(a) != fmt.Sprint(again) {
			fail("not pure: %+v", again)
		}
		doubles := s.Contract.Atomicity != connector.Whole && s.Mode != connector.Upsert &&
			(s.Contract.Atomicity != connector.PositionInTransaction && s.Contract.Atomicity != connector.TwoPhaseCommit ||
				src.Replay != connector.Deterministic)
		if a.Reached >= connector.EffectivelyOnce && doubles {
			fail("claims more than at-least-once where rows can double")
		}
		if a.Reached != connector.BestGuarantee && (src.Replay == connector.NoReplay || !s.Contract.Durable) {
			fail("claims a guarantee where rows can be lost")
		}
		if got, want := slices.Contains(codes(a), "admit.guarantee"), g > a.Reached; got != want {
			fail("asked for more than is reached: refused %v, want %v", got, want)
		}
		if got, want := slices.Contains(codes(a), "admit.mode"), !slices.Contains(s.Contract.Modes, s.Mode); got != want {
			fail("unknown mode: refused %v, want %v", got, want)
		}
		loses := src.Input > s.Contract.Input ||
			(src.Input > connector.AppendOnly && s.Mode == connector.Append && slices.Contains(s.Contract.Modes, connector.Upsert))
		if got := slices.Contains(codes(a), "admit.input"); got != loses {
			fail("updates would be lost: refused %v, want %v", got, loses)
		}
		atEnd := s.Contract.Atomicity == connector.Whole || s.Mode == connector.Replace
		if got, want := slices.Contains(codes(a), "admit.bounded"), atEnd && !src.Bounded; got != want {
			fail("never shown: refused %v, want %v", got, want)
		}
		if got, want := slices.Contains(codes(a), "admit.incremental"), atEnd && src.Incremental; got != want {
			fail("replaced by a part: refused %v, want %v", got, want)
		}
		for _, p := range a.Problems {
			if p.Hint == "" || p.Sink != "s" {
				fail("a problem without a way out: %+v", p)
			}
		}
		if a.Why == "" || (a.Err() == nil) != (len(a.Problems) == 0) {
			fail("no reason, or an error without a problem")
		}
	})
	if n < 25_000 {
		t.Fatalf("only %d combinations", n)
	}
}

// The weakest lane decides; names are unique; all problems of all lanes are listed at once.
//
// clause E7.
func TestAdmissionOfSeveralSinks(t *testing.T) {
	src := connector.SourceContract{Replay: connector.Deterministic, Bounded: true}
	offer := func(name string, a connector.Atomicity) SinkOffer {
		return SinkOffer{Name: name, Contract: connector.SinkContract{Modes: modes, Atomicity: a, Durable: true}}
	}
	a := Admit(src, []SinkOffer{offer("x", connector.PositionInTransaction), offer("y", connector.NoAtomicity)}, connector.ExactlyOnce)
	if a.Reached != connector.AtLeastOnce || a.Lanes[0].Reached != connector.ExactlyOnce || len(a.Problems) != 1 || a.Problems[0].Sink != "y" {
		t.Fatalf("%+v", a)
	}
	a = Admit(src, []SinkOffer{offer("x", connector.NoAtomicity), offer("x", connector.NoAtomicity)}, connector.ExactlyOnce)
	if len(a.Problems) != 3 {
		t.Fatalf("want two guarantees and a name, got %+v", a.Problems)
	}
	if a = Admit(src, nil, 0); a.Err() == nil {
		t.Fatal("no sink was admitted")
	}
}

// A sink that would take changes if it were configured for them says so itself.
func TestHintForChanges(t *testing.T) {
	src := connector.SourceContract{Replay: connector.Deterministic, Input: connector.Changelog}
	c := connector.SinkContract{
		Modes: []connector.WriteMode{connector.Replace}, Atomicity: connector.Whole, Durable: true, ForChanges: "say log=true",
	}
	a := Admit(src, []SinkOffer{{Name: "s", Contract: c, Mode: connector.Replace}}, connector.BestGuarantee)
	for _, p := range a.Problems {
		if p.Hint != c.ForChanges {
			t.Errorf("%s: hint %q, want %q", p.Code, p.Hint, c.ForChanges)
		}
	}
	if len(a.Problems) != 2 {
		t.Errorf("problems: %v", a.Problems)
	}
}
