package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// notes is what the engine keeps in the ledger of a saved record, besides the position: part of the persisted format.
type notes struct {
	Base   *base               `json:"base,omitempty"`   // the finished run that this one goes on behind
	Only   map[string][]string `json:"only,omitempty"`   // this run repairs just these datasets, by sink
	Failed map[string][]string `json:"failed,omitempty"` // datasets that failed in this run, by sink
	// Backfill is the ledger of open backfills at the saved position, of a source that sends changes.
	Backfill json.RawMessage `json:"backfill,omitempty"`
	// Frozen are the columns that targets keep though their datasets got others, by sink and dataset: the policy said so.
	Frozen map[string]map[string][]string `json:"frozen,omitempty"`
}

// base is where the last finished run of an incremental source ended.
type base struct {
	Run      string          `json:"run"`
	Attempt  uint64          `json:"attempt"`
	Position record.Position `json:"position"`
}

func (n notes) encode() json.RawMessage {
	if n.Base == nil && len(n.Only) == 0 && len(n.Failed) == 0 && len(n.Backfill) == 0 && len(n.Frozen) == 0 {
		return nil
	}
	b, err := json.Marshal(n)
	if err != nil {
		panic(fmt.Sprintf("engine: notes: %v", err)) // strings, numbers and valid JSON always marshal
	}
	return b
}

func decodeNotes(raw json.RawMessage) (notes, error) {
	var n notes
	if len(raw) == 0 {
		return n, nil
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return n, &connector.Error{
			Class: connector.ClassPosition, Code: "state.ledger", Doing: "reading the saved state", Err: err,
			Hint: "leat state reset starts over",
		}
	}
	return n, nil
}

// choice is which run this attempt serves, decided before any sink is opened.
type choice struct {
	run      string // empty: a new one
	saved    record.Position
	origin   connector.From // where the run begins
	attempt  uint64         // that saved the positions; 0: none
	base     *base
	only     map[string][]string
	failed   map[string][]string
	complete bool                           // the last run is done, and this one starts over
	frozen   map[string]map[string][]string // columns that targets keep, by sink and dataset
	ledger   json.RawMessage                // of open backfills, at saved
	again    bool                           // an earlier run of the pipeline was forgotten: sinks may have rows of it
	joined   []string                       // sinks that the pipeline did not have before
	durable  bool                           // the run's positions rely on durable lanes
	stale    []string                       // datasets whose columns are not those that were saved, by more than additions
}

// chooseRun decides which run goes on, or that a new one starts (S2, S3, S16). rec is nil where nothing is saved; changes says what
// is different about the pipeline since it was saved.
func chooseRun(rec *state.Record, src connector.SourceContract, changes []string, policy ChangedIdentity) (choice, error) {
	fresh := choice{origin: connector.From{Origin: connector.Initial}}
	if rec == nil || rec.Progress.Run == "" {
		return fresh, nil
	}
	n, err := decodeNotes(rec.Progress.Ledger)
	if err != nil {
		return choice{}, err
	}
	p := rec.Progress
	resumes := !p.Done || src.Incremental
	if resumes && len(changes) > 0 && (!p.Position.Zero() || n.Base != nil) {
		switch policy {
		case ResetChanged:
			return fresh, nil
		case AdoptChanged:
		case RefuseChanged:
			return choice{}, changedError(rec.Pipeline, changes)
		}
	} else if resumes && len(changes) > 0 {
		return fresh, nil // nothing is durable that could be mixed up
	}
	switch {
	case p.Done && len(n.Failed) > 0:
		fresh.only = n.Failed
		return fresh, nil
	case p.Done && src.Incremental && !p.Position.Zero():
		b := &base{Run: p.Run, Attempt: rec.Attempt, Position: p.Position}
		return choice{origin: b.from(), attempt: rec.Attempt, base: b}, nil
	case p.Done:
		fresh.complete = true
		return fresh, nil
	case src.Replay == connector.NoReplay && p.Position.Zero():
		return fresh, nil
	}
	return interrupted(rec, n, src.Replay)
}

// interrupted goes on with a run that is not done.
func interrupted(rec *state.Record, n notes, replay connector.Replay) (choice, error) {
	p := rec.Progress
	if replay == connector.NoReplay {
		return choice{}, &connector.Error{
			Class: connector.ClassPosition, Code: "engine.no_replay", Doing: "resuming " + rec.Pipeline,
			Err:  fmt.Errorf("the last run stopped behind %s, and this source can't be read a second time", p.Position),
			Hint: "clear what it wrote, then: leat state reset " + rec.Pipeline,
		}
	}
	c := choice{
		run: p.Run, saved: p.Position, attempt: rec.Attempt, base: n.Base, only: n.Only, failed: n.Failed, ledger: n.Backfill,
		frozen: n.Frozen,
	}
	switch {
	case n.Base != nil:
		c.origin = n.Base.from()
	case !rec.Origin.Zero():
		c.origin = connector.From{Origin: connector.Initialised, Position: rec.Origin}
	}
	return c, nil
}

func (b *base) from() connector.From {
	return connector.From{Origin: connector.Resume, Attempt: b.Attempt, Position: b.Position}
}

func changedError(pipeline string, changes []string) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "engine.identity", Doing: "resuming " + pipeline,
		Err:  fmt.Errorf("the pipeline is not the one that the saved position belongs to: %s", strings.Join(changes, "; ")),
		Hint: "undo the change, or go on from the saved position with --adopt, or start over with --restart",
	}
}

// laneKind is what a lane's sink keeps.
type laneKind uint8

const (
	flushes laneKind = iota // what it was given is durable after Flush; it keeps no position
	stores                  // a PositionStore
	phased                  // TwoPhase: its progress is saved with the decision
	whole                   // nothing is durable before the end
)

// laneState is what is known of one lane when a generation starts.
type laneState struct {
	sink      string
	kind      laneKind
	committed record.Progress // of a sink that keeps it
	has       bool            // it has committed any
}

// skip says which items a lane does not need, because its sink has them.
type skip struct {
	until record.Position // up to and with this one; zero: none
	all   bool            // the sink has the whole run
}

// start is where the source starts and what each lane skips.
type start struct {
	from     connector.From
	cuts     []record.Position
	skips    map[string]skip
	finished bool // every sink has the whole run
	resumed  bool
}

// startFacts is what chooseStart looks at, besides the choice of the run.
type startFacts struct {
	run      string
	acks     bool     // the source releases upstream what was acknowledged
	joined   []string // sinks that the pipeline did not have before, and that get their own snapshot
	restarts bool     // the run can only be read from its beginning: a row limit
	compare  compare
	lanes    []laneState
}

// need is where one lane has to go on; zero: at the beginning of the run.
type need struct {
	at  record.Position
	all bool
}

// chooseStart decides where the source starts: at the earliest position that any lane needs. Lanes that are ahead skip what they
// have, which the source's cuts make possible. A sink's own position of this run wins over the saved one (E5).
func chooseStart(c choice, f startFacts) (start, error) {
	s := start{from: c.origin, skips: map[string]skip{}, finished: len(f.lanes) > 0}
	needs := make([]need, len(f.lanes))
	for i, l := range f.lanes {
		n, err := laneNeed(c, f, l)
		if err != nil {
			return start{}, err
		}
		needs[i] = n
		s.finished = s.finished && n.all
		s.resumed = s.resumed || n.all || !n.at.Zero()
	}
	if s.finished {
		return s, nil
	}
	low, cuts, err := inOrder(needs, f)
	if err != nil {
		return start{}, err
	}
	s.cuts = cuts
	if !low.Zero() {
		s.from = connector.From{Origin: connector.Resume, Attempt: c.attempt, Position: low}
	}
	for i, n := range needs {
		switch {
		case n.all:
			s.skips[f.lanes[i].sink] = skip{all: true}
		case !n.at.Zero() && !f.compare.covers(s.from.Position, n.at):
			s.skips[f.lanes[i].sink] = skip{until: n.at}
		}
	}
	return s, nil
}

// laneNeed is where one lane goes on.
func laneNeed(c choice, f startFacts, l laneState) (need, error) {
	switch l.kind {
	case whole:
		return need{}, nil
	case flushes:
		return need{at: c.saved}, nil
	case stores, phased:
	}
	p := l.committed
	switch {
	case l.has && p.Run == f.run:
		if outdated(c, f, l) {
			return need{at: c.saved}, nil
		}
		if behind(f, p.Position, c.saved) {
			return need{}, behindError(l.sink, p.Position, c.saved)
		}
		return need{at: p.Position, all: p.Done}, nil
	case c.base != nil && (!l.has || p.Run != c.base.Run || !p.Position.Equal(c.base.Position)):
		return need{}, behindError(l.sink, p.Position, c.base.Position)
	case !c.saved.Zero() && slices.Contains(f.joined, l.sink):
		return need{at: c.saved}, nil
	case !c.saved.Zero() && f.acks:
		return need{}, behindError(l.sink, record.Position{}, c.saved)
	}
	return need{}, nil
}

// outdated reports whether what a sink has is of a time before it was taken out of the pipeline, so that it has to be filled anew.
func outdated(c choice, f startFacts, l laneState) bool {
	return slices.Contains(f.joined, l.sink) && l.has && l.committed.Run == f.run && behind(f, l.committed.Position, c.saved)
}

// behind reports whether a sink lacks what the source has already released.
func behind(f startFacts, sink, saved record.Position) bool {
	if !f.acks || saved.Zero() || f.compare == nil {
		return false
	}
	return !f.compare.covers(sink, saved)
}

func behindError(sink string, has, saved record.Position) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "engine.sink_behind", Doing: fmt.Sprintf("resuming sink %q", sink),
		Err: fmt.Errorf("it has what came up to %s, and the pipeline has already gone on to %s: the sink was restored or emptied",
			has, saved),
		Hint: "restore the sink, or empty it and copy everything again with --restart",
	}
}

// inOrder returns the lowest place that a lane needs (zero: the beginning of the run) and all others behind it, earliest first. Each of
// them has to cover the ones before it: the source passes them one after the other.
func inOrder(needs []need, f startFacts) (low record.Position, cuts []record.Position, err error) {
	beginning := f.restarts
	for i, n := range needs {
		switch {
		case n.all:
			continue
		case n.at.Zero():
			beginning = true
			continue
		}
		at := 0
		for at < len(cuts) && f.compare.covers(n.at, cuts[at]) {
			at++
		}
		if at > 0 && f.compare.covers(cuts[at-1], n.at) {
			continue // the same place
		}
		if at < len(cuts) && !f.compare.covers(cuts[at], n.at) {
			return low, nil, orderError(f, i, cuts[at])
		}
		cuts = slices.Insert(cuts, at, n.at)
	}
	if beginning {
		if len(cuts) > 0 && f.compare == nil {
			return low, nil, orderError(f, slices.IndexFunc(needs, func(n need) bool { return n.at.Equal(cuts[0]) }), low)
		}
		return low, cuts, nil
	}
	return cuts[0], cuts[1:], nil // lanes that are all done have ended the run
}

func orderError(f startFacts, lane int, other record.Position) error {
	err := errors.New("it stands elsewhere than the run has to start, and this source can't order its positions")
	if f.compare != nil {
		err = fmt.Errorf("another sink stands at %s, and neither has all that the other one has: one of them was restored", other)
	}
	return &connector.Error{
		Class: connector.ClassPosition, Code: "engine.unordered", Doing: fmt.Sprintf("resuming sink %q", f.lanes[lane].sink), Err: err,
		Hint: "empty the sinks, then start over with --restart",
	}
}
