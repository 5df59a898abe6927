package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

func at(n int) record.Position {
	if n == 0 {
		return record.Position{}
	}
	return record.Position{Shape: 1, Data: json.RawMessage(strconv.Itoa(n))}
}

func numbers(a, b record.Position) (int, bool) {
	var x, y int
	if json.Unmarshal(a.Data, &x) != nil || json.Unmarshal(b.Data, &y) != nil {
		return 0, false
	}
	return x - y, true
}

func saved(run string, pos int, done bool) *state.Record {
	return &state.Record{Pipeline: "p", Attempt: 7, Progress: record.Progress{Run: run, Position: at(pos), Done: done}}
}

// Which run an attempt serves: none was, one goes on, one is done, one is done and goes on behind its end, and what was changed.
//
// clauses S2, S3, S16.
func TestChooseRun(t *testing.T) {
	full := connector.SourceContract{Replay: connector.Deterministic, Bounded: true}
	inc := full
	inc.Incremental = true
	stdin := connector.SourceContract{Bounded: true}
	origin := saved("r", 0, false)
	origin.Origin = at(3)
	failed := saved("r", 9, true)
	failed.Progress.Ledger = notes{Failed: map[string][]string{"s": {"d"}}}.encode()
	based := saved("r2", 0, false)
	based.Progress.Ledger = notes{Base: &base{Run: "r", Attempt: 5, Position: at(4)}}.encode()

	initial := connector.From{}
	behind := func(attempt uint64, n int) connector.From {
		return connector.From{Origin: connector.Resume, Attempt: attempt, Position: at(n)}
	}
	cases := []struct {
		name    string
		rec     *state.Record
		src     connector.SourceContract
		changes []string
		policy  ChangedIdentity
		want    choice
		code    string
	}{
		{name: "nothing saved", src: full, want: choice{origin: initial}},
		{name: "never ran", rec: saved("", 0, false), src: full, want: choice{origin: initial}},
		{name: "interrupted", rec: saved("r", 4, false), src: full, want: choice{run: "r", saved: at(4), attempt: 7}},
		{name: "interrupted before the first position", rec: saved("r", 0, false), src: full, want: choice{run: "r", attempt: 7}},
		{
			name: "origin resolved", rec: origin, src: full,
			want: choice{run: "r", attempt: 7, origin: connector.From{Origin: connector.Initialised, Position: at(3)}},
		},
		{name: "done", rec: saved("r", 4, true), src: full, want: choice{complete: true}},
		{
			name: "done, incremental", rec: saved("r", 4, true), src: inc,
			want: choice{origin: behind(7, 4), attempt: 7, base: &base{Run: "r", Attempt: 7, Position: at(4)}},
		},
		{
			name: "second run of an incremental source interrupted", rec: based, src: inc,
			want: choice{run: "r2", attempt: 7, origin: behind(5, 4), base: &base{Run: "r", Attempt: 5, Position: at(4)}},
		},
		{name: "datasets failed", rec: failed, src: full, want: choice{only: map[string][]string{"s": {"d"}}}},
		{name: "changed", rec: saved("r", 4, false), src: full, changes: []string{"the key"}, code: "engine.identity"},
		{name: "changed, incremental", rec: saved("r", 4, true), src: inc, changes: []string{"the key"}, code: "engine.identity"},
		{
			name: "changed, adopted", rec: saved("r", 4, false), src: full, changes: []string{"x"}, policy: AdoptChanged,
			want: choice{run: "r", saved: at(4), attempt: 7},
		},
		{name: "changed, reset", rec: saved("r", 4, false), src: full, changes: []string{"x"}, policy: ResetChanged},
		{name: "changed with nothing to mix up", rec: saved("r", 0, false), src: full, changes: []string{"x"}},
		{name: "changed after a full copy", rec: saved("r", 4, true), src: full, changes: []string{"x"}, want: choice{complete: true}},
		{name: "no replay", rec: saved("r", 4, false), src: stdin, code: "engine.no_replay"},
		{name: "no replay, nothing durable", rec: saved("r", 0, false), src: stdin},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := chooseRun(c.rec, c.src, c.changes, c.policy)
			checkCode(t, err, c.code)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(choice{}, base{})); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func checkCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *connector.Error
	switch {
	case code == "" && err != nil:
		t.Fatal(err)
	case code != "" && (!errors.As(err, &e) || e.Code != code || e.Hint == ""):
		t.Fatalf("want code %s with a hint, got %v", code, err)
	}
}

// Where the source starts and what lanes skip: the sink of the same run wins, ahead or behind, and another run's never does.
//
// clauses E5, S4.
func TestChooseStart(t *testing.T) {
	store := func(sink, run string, pos int, done bool) laneState {
		return laneState{sink: sink, kind: stores, has: run != "", committed: record.Progress{Run: run, Position: at(pos), Done: done}}
	}
	flush := laneState{sink: "f", kind: flushes}
	file := laneState{sink: "w", kind: whole}
	onward := func(pos int) choice { return choice{run: "r", saved: at(pos), attempt: 7} }
	second := choice{run: "", attempt: 7, base: &base{Run: "r0", Attempt: 7, Position: at(4)}, origin: connector.From{Origin: connector.Resume, Attempt: 7, Position: at(4)}}
	cases := []struct {
		name     string
		c        choice
		lanes    []laneState
		acks     bool
		restarts bool
		plain    bool // the source can't order positions
		from     int
		skips    map[string]skip
		finished bool
		code     string
	}{
		{name: "fresh", lanes: []laneState{store("a", "", 0, false)}},
		{name: "another run's progress never wins", lanes: []laneState{store("a", "old", 5, true)}},
		{name: "sink ahead of state", c: onward(3), lanes: []laneState{store("a", "r", 5, false)}, from: 5},
		{name: "sink ahead, nothing saved", c: onward(0), lanes: []laneState{store("a", "r", 5, false)}, from: 5, plain: true},
		{name: "sink behind state, the source still has it", c: onward(5), lanes: []laneState{store("a", "r", 3, false)}, from: 3},
		{name: "sink behind what was released", c: onward(5), lanes: []laneState{store("a", "r", 3, false)}, acks: true, code: "engine.sink_behind"},
		{name: "sink emptied", c: onward(5), lanes: []laneState{store("a", "", 0, false)}, acks: true, code: "engine.sink_behind"},
		{name: "sink emptied, the source still has it", c: onward(5), lanes: []laneState{store("a", "", 0, false)}},
		{name: "flushing sink", c: onward(5), lanes: []laneState{flush}, from: 5},
		{
			name: "two lanes apart", c: onward(3), lanes: []laneState{store("a", "r", 5, false), flush}, from: 3,
			skips: map[string]skip{"a": {until: at(5)}},
		},
		{
			name: "a whole file starts over, others skip", c: onward(3), lanes: []laneState{store("a", "r", 5, false), file, flush},
			skips: map[string]skip{"a": {until: at(5)}, "f": {until: at(3)}},
		},
		{
			name: "one is done", c: onward(3), lanes: []laneState{store("a", "r", 9, true), store("b", "r", 5, false)}, from: 5,
			skips: map[string]skip{"a": {all: true}},
		},
		{name: "all are done", c: onward(3), lanes: []laneState{store("a", "r", 9, true)}, finished: true},
		{name: "apart, and no order", c: onward(3), lanes: []laneState{store("a", "r", 5, false), flush}, plain: true, code: "engine.unordered"},
		{
			name: "counted rows start over", c: onward(3), lanes: []laneState{store("a", "r", 5, false)}, restarts: true,
			skips: map[string]skip{"a": {until: at(5)}},
		},
		{name: "second run, sink has the first", c: second, lanes: []laneState{store("a", "r0", 4, true)}, from: 4},
		{name: "second run, sink was emptied", c: second, lanes: []laneState{store("a", "", 0, false)}, code: "engine.sink_behind"},
		{name: "second run, sink has an older one", c: second, lanes: []laneState{store("a", "older", 2, true)}, code: "engine.sink_behind"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := startFacts{run: "r", acks: c.acks, restarts: c.restarts, lanes: c.lanes, compare: numbers}
			if c.plain {
				f.compare = nil
			}
			got, err := chooseStart(c.c, f)
			checkCode(t, err, c.code)
			if err != nil {
				if connector.ClassOf(err) != connector.ClassPosition {
					t.Fatalf("class %v", connector.ClassOf(err))
				}
				return
			}
			if !got.from.Position.Equal(at(c.from)) || got.finished != c.finished {
				t.Fatalf("got %+v", got)
			}
			if err := (connector.SourceStart{From: got.from}).Validate(); err != nil {
				t.Fatal(err)
			}
			if c.skips == nil {
				c.skips = map[string]skip{}
			}
			if diff := cmp.Diff(c.skips, got.skips, cmp.AllowUnexported(skip{})); diff != "" && !c.finished {
				t.Fatal(diff)
			}
			for _, s := range got.skips {
				if !s.all && !strings.Contains(fmt.Sprint(got.cuts), s.until.String()) {
					t.Fatalf("no cut at %s: %v", s.until, got.cuts)
				}
			}
		})
	}
}

// A lane that is ahead passes over exactly what it has, and notices a source that does not cut where it should.
//
// clauses E5, S7.
func TestSkipper(t *testing.T) {
	s := skipper{skip: skip{until: at(5)}, compare: numbers}
	for i, c := range []struct {
		pos  int
		over bool
	}{{0, true}, {3, true}, {0, true}, {5, true}, {0, false}, {6, false}, {5, false}} {
		over, err := s.over(at(c.pos), "")
		if err != nil || over != c.over {
			t.Fatalf("item %d: %v, %v", i, over, err)
		}
	}
	s = skipper{skip: skip{until: at(5)}, compare: numbers}
	if _, err := s.over(at(6), ""); connector.ClassOf(err) != connector.ClassPosition {
		t.Fatalf("a missed cut passed: %v", err)
	}
	if s.missed() == nil {
		t.Fatal("a source that ended too early passed")
	}
	plain := skipper{skip: skip{until: at(5)}}
	for _, p := range []int{9, 0, 5} {
		if over, err := plain.over(at(p), ""); err != nil || !over {
			t.Fatalf("%d: %v, %v", p, over, err)
		}
	}
	if over, err := plain.over(at(0), ""); over || err != nil {
		t.Fatal("skips on")
	}
}

// offsets is a position of several parts, and vectors is their order.
func offsets(ns ...int) record.Position {
	doc, err := json.Marshal(ns)
	if err != nil {
		panic(err)
	}
	return record.Position{Shape: 1, Data: doc}
}

func vectors(a, b record.Position) (int, bool) {
	var x, y []int
	if json.Unmarshal(a.Data, &x) != nil || json.Unmarshal(b.Data, &y) != nil || len(x) != len(y) {
		return 0, false
	}
	less, more := false, false
	for i := range x {
		less, more = less || x[i] < y[i], more || x[i] > y[i]
	}
	switch {
	case less && more:
		return 0, false
	case less:
		return -1, true
	case more:
		return 1, true
	}
	return 0, true
}

// Positions of several parts are no line: the cuts are a chain, lanes that are at places of which neither covers the other can't be
// brought together, and a sink that lacks anything of what was released is behind, whatever it has besides.
//
// clauses E5, S4.
func TestChooseStartOfParts(t *testing.T) {
	store := func(sink string, at record.Position) laneState {
		return laneState{sink: sink, kind: stores, has: true, committed: record.Progress{Run: "r", Position: at}}
	}
	cases := []struct {
		name  string
		saved record.Position
		lanes []laneState
		acks  bool
		from  record.Position
		cuts  []record.Position
		code  string
	}{
		{
			name: "a chain, in any order", saved: offsets(1, 1), acks: true,
			lanes: []laneState{store("a", offsets(5, 1)), store("b", offsets(5, 7)), store("c", offsets(2, 1)), store("d", offsets(5, 1))},
			from:  offsets(2, 1), cuts: []record.Position{offsets(5, 1), offsets(5, 7)},
		},
		{
			name: "behind a flushing sink", saved: offsets(2, 2),
			lanes: []laneState{store("a", offsets(2, 9)), {sink: "f", kind: flushes}}, from: offsets(2, 2), cuts: []record.Position{offsets(2, 9)},
		},
		{
			name: "the same place, written in another way", saved: offsets(0, 0),
			lanes: []laneState{store("a", offsets(2, 2)), store("b", record.Position{Shape: 1, Data: []byte("[ 2,2 ]")})}, from: offsets(2, 2),
		},
		{
			name: "apart from each other", saved: offsets(1, 1), lanes: []laneState{store("a", offsets(5, 1)), store("b", offsets(1, 5))},
			code: "engine.unordered",
		},
		{
			name: "apart from each other, behind a third", saved: offsets(1, 1),
			lanes: []laneState{store("a", offsets(1, 1)), store("b", offsets(5, 1)), store("c", offsets(1, 5))}, code: "engine.unordered",
		},
		{
			name: "apart from what was released", saved: offsets(3, 3), acks: true, lanes: []laneState{store("a", offsets(9, 2))},
			code: "engine.sink_behind",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := chooseStart(choice{run: "r", saved: c.saved, attempt: 7}, startFacts{run: "r", acks: c.acks, lanes: c.lanes, compare: vectors})
			checkCode(t, err, c.code)
			if err != nil {
				return
			}
			if !got.from.Position.Equal(c.from) || !slices.EqualFunc(got.cuts, c.cuts, record.Position.Equal) {
				t.Fatalf("from %s, cuts %v; want %s, %v", got.from.Position, got.cuts, c.from, c.cuts)
			}
			if len(c.cuts) == 0 && len(got.skips) > 0 {
				t.Fatalf("skips %v", got.skips)
			}
		})
	}
	if !lost(choice{saved: offsets(3, 3), durable: true}, vectors, lane.Mark{Position: offsets(9, 2)}, true) {
		t.Error("lanes that lack something of what was released count as whole")
	}
	s := skipper{skip: skip{until: offsets(2, 2)}, compare: vectors}
	if over, err := s.over(offsets(1, 2), ""); err != nil || !over {
		t.Fatalf("covered: %v, %v", over, err)
	}
	if over, err := s.over(offsets(3, 1), ""); over || connector.ClassOf(err) != connector.ClassPosition {
		t.Fatalf("rows that the sink lacks are skipped: %v, %v", over, err)
	}
}

// What is a change of the pipeline, and what is not: new datasets and columns are none.
//
// clause S16.
func TestIdentityChanges(t *testing.T) {
	was := map[string]string{"source": "pg", "source.query": "a", "dataset t key": "id", columnsOf("t"): "id int64\nv string"}
	cases := []struct {
		key, value string
		want       string
	}{
		{"source.query", "b", "source.query"},
		{"dataset t key", "", "dataset t key"},
		{columnsOf("t"), "id int64\nv string\nnew bool", ""},
		{columnsOf("t"), "v string\nid int64", ""},
		{columnsOf("t"), "id int64", "v string"},
		{columnsOf("t"), "id string\nv string", "id int64"},
		{columnsOf("u"), "id int64", ""},
		{"transforms", "drop v", "transforms is new"},
	}
	for _, c := range cases {
		is := map[string]string{}
		maps.Copy(is, was)
		is[c.key] = c.value
		got := strings.Join(identityChanges(was, is), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s=%q: got %q, want %q", c.key, c.value, got, c.want)
		}
	}
	delete(was, "source.query")
	if got := identityChanges(map[string]string{"source.query": "a"}, map[string]string{}); len(got) != 1 {
		t.Errorf("an option that is gone: %v", got)
	}
}

// What a failure leads to, over all that is looked at: only what is known to be safe is tried again.
//
// clause E14.
func TestJudge(t *testing.T) {
	transient := &connector.Error{Class: connector.ClassTransient, Err: errors.New("x")}
	outcome := &connector.Error{Class: connector.ClassOutcome, Err: errors.New("x")}
	full := failure{err: transient, sink: true, retry: Retry{Attempts: 3}, replay: connector.Deterministic, kind: stores}
	with := func(f func(*failure)) failure { g := full; f(&g); return g }
	cases := []struct {
		name string
		f    failure
		want verdict
	}{
		{"transient", full, again},
		{"unknown outcome", with(func(f *failure) { f.err = outcome }), again},
		{"unknown outcome of a source", with(func(f *failure) { f.err, f.sink = outcome, false }), giveUp},
		{"permanent", with(func(f *failure) { f.err = errors.New("x") }), giveUp},
		{"too often", with(func(f *failure) { f.tries = 3 }), giveUp},
		{"plain append with rows on the way", with(func(f *failure) { f.kind, f.repeats = flushes, true }), giveUp},
		{"the same, asked for", with(func(f *failure) { f.kind, f.repeats, f.asked = flushes, true, connector.AtLeastOnce }), again},
		{"plain append with nothing on the way", with(func(f *failure) { f.kind = flushes }), again},
		{"whole", with(func(f *failure) { f.kind = whole }), restart},
		{"released", with(func(f *failure) { f.released = true }), restart},
		{"released, no replay", with(func(f *failure) { f.released, f.replay = true, connector.NoReplay }), giveUp},
		{"source", with(func(f *failure) { f.sink = false }), restart},
		{"source, no replay", with(func(f *failure) { f.sink, f.replay = false, connector.NoReplay }), giveUp},
		{"source, rows on the way into a plain append", with(func(f *failure) { f.sink, f.repeats = false, true }), giveUp},
		{"stuck", with(func(f *failure) { f.err = &connector.Error{Class: connector.ClassTransient, Err: errStuck} }), giveUp},
		{"fenced", with(func(f *failure) { f.err = &connector.Error{Class: connector.ClassFenced, Err: errors.New("x")} }), giveUp},
	}
	for _, c := range cases {
		got, err := judge(c.f)
		if got != c.want || (err != nil) != (got == giveUp) {
			t.Errorf("%s: got %d, %v, want %d", c.name, got, err, c.want)
		}
	}
}

func TestColumnNames(t *testing.T) {
	got := columnNames("id int32\nat timestamp[us, UTC]\nmy total decimal(12,2)\nm map<string, int32>\nmood enum(a b)")
	want := []string{"id", "at", "my total", "m", "mood"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
