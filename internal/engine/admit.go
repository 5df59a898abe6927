package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
)

// SinkOffer is what Admit looks at of a sink.
type SinkOffer struct {
	Name     string
	Contract connector.SinkContract
	Mode     connector.WriteMode
	Input    connector.Input // what the source sends
}

// Problem is one reason why a plan is refused.
type Problem struct {
	Code    string // stable, such as admit.guarantee
	Sink    string // empty: the source, or the plan as a whole
	Dataset string
	Column  string
	Message string
	Hint    string // what to type
}

// String returns the problem as one line, without its hint.
func (p Problem) String() string {
	var where []string
	if p.Sink != "" {
		where = append(where, fmt.Sprintf("sink %q", p.Sink))
	}
	if p.Dataset != "" {
		where = append(where, p.Dataset)
	}
	if p.Column != "" {
		where = append(where, fmt.Sprintf("column %q", p.Column))
	}
	if len(where) == 0 {
		return p.Message
	}
	return strings.Join(where, ", ") + ": " + p.Message
}

// LaneAdmission is what one lane reaches.
type LaneAdmission struct {
	Sink    string
	Mode    connector.WriteMode
	Reached connector.Guarantee // zero: none, see GuaranteeName
	Why     string
}

// Admission is the outcome of Admit.
type Admission struct {
	Asked    connector.Guarantee
	Reached  connector.Guarantee // the weakest of the lanes; zero: none, see GuaranteeName
	Why      string
	Lanes    []LaneAdmission // in the order of the sinks
	Problems []Problem       // empty: admitted
}

// Err returns nil where the plan is admitted, else one error of class ClassConfig that names every problem.
func (a Admission) Err() error { return problemsError(a.Problems) }

// GuaranteeName names a reached guarantee for people: the zero value, where nothing can be resumed, is none.
func GuaranteeName(g connector.Guarantee) string {
	if g == connector.BestGuarantee {
		return "none"
	}
	return g.String()
}

// Admit decides which guarantee a source and sinks reach, lane by lane, and whether that is what was asked for. It lists every
// problem, and is pure.
//
// A source that can't be replayed reaches none: a crash means starting over by hand. Beyond that:
//
//	at-least-once     a source that can be resumed, and a durable sink
//	effectively-once  + upserts by key, whatever comes again
//	exactly-once      + a deterministic replay, and the position in the sink's own transaction, or decided with its two-phase epoch;
//	                  or a sink that shows nothing before the whole run is in it
//
// Keys of datasets are checked where schemas are known, after Admit.
func Admit(src connector.SourceContract, sinks []SinkOffer, g connector.Guarantee) Admission {
	a := Admission{Asked: g}
	if len(sinks) == 0 {
		a.Problems = append(a.Problems, Problem{
			Code: "admit.sinks", Message: "the pipeline has no sink", Hint: "name at least one sink",
		})
		return a
	}
	seen := map[string]bool{}
	for i, s := range sinks {
		if s.Name == "" || seen[s.Name] {
			a.Problems = append(a.Problems, Problem{
				Code: "admit.names", Sink: s.Name, Message: "every sink needs a name of its own", Hint: "give each sink a different name",
			})
		}
		seen[s.Name] = true
		lane := LaneAdmission{Sink: s.Name, Mode: s.Mode}
		lane.Reached, lane.Why = reached(src, s)
		a.Lanes = append(a.Lanes, lane)
		a.Problems = append(a.Problems, laneProblems(src, s)...)
		if i == 0 || lane.Reached < a.Reached {
			a.Reached, a.Why = lane.Reached, lane.Why
		}
		if g > lane.Reached {
			a.Problems = append(a.Problems, guaranteeProblem(g, lane))
		}
	}
	return a
}

func guaranteeProblem(g connector.Guarantee, lane LaneAdmission) Problem {
	p := Problem{
		Code: "admit.guarantee", Sink: lane.Sink,
		Message: fmt.Sprintf("%s was asked for, and %s is reached: %s", g, GuaranteeName(lane.Reached), lane.Why),
		Hint:    "leave the guarantee out to take the best that is reached",
	}
	if lane.Reached != connector.BestGuarantee {
		p.Hint = fmt.Sprintf("ask for %s, or leave the guarantee out", lane.Reached)
	}
	return p
}

// reached is the guarantee of one lane, and why.
func reached(src connector.SourceContract, s SinkOffer) (connector.Guarantee, string) {
	switch {
	case src.Replay == connector.NoReplay:
		return connector.BestGuarantee, "the source can't be read a second time, so a crash means starting over"
	case !s.Contract.Durable:
		return connector.BestGuarantee, "what the sink was given does not survive loss of power"
	case s.Contract.Atomicity == connector.Whole:
		return connector.ExactlyOnce, "the sink shows nothing before the whole run is in it, and a crash starts the run again"
	case s.Contract.Atomicity == connector.PositionInTransaction && src.Replay == connector.Deterministic:
		return connector.ExactlyOnce, "rows and position are committed in one transaction of the sink"
	case s.Contract.Atomicity == connector.TwoPhaseCommit && src.Replay == connector.Deterministic:
		return connector.ExactlyOnce, "rows are staged by epoch, and the epoch is decided together with the position"
	case s.Mode == connector.Upsert && s.Contract.Atomicity >= connector.KeyedWrites:
		return connector.EffectivelyOnce, "rows that come again are written by key, with the same outcome"
	case s.Contract.Atomicity >= connector.PositionInTransaction:
		return connector.AtLeastOnce, "the source may send rows again after a crash, and they are appended"
	case s.Contract.Atomicity == connector.KeyedWrites:
		return connector.AtLeastOnce, "the sink writes by key, but the mode is " + s.Mode.String()
	default:
		return connector.AtLeastOnce, "rows and position are not made durable together, so a crash in between sends rows again"
	}
}

// laneProblems is what makes a source and a sink unfit for each other, whatever the guarantee.
func laneProblems(src connector.SourceContract, s SinkOffer) []Problem {
	var ps []Problem
	add := func(code, hint, format string, args ...any) {
		ps = append(ps, Problem{Code: code, Sink: s.Name, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if !slices.Contains(s.Contract.Modes, s.Mode) {
		modes := make([]string, len(s.Contract.Modes))
		for i, m := range s.Contract.Modes {
			modes[i] = m.String()
		}
		add("admit.mode", "use mode "+strings.Join(modes, " or "), "it has no mode %s", s.Mode)
	}
	if src.Input > s.Contract.Input {
		add("admit.input", hintForChanges(s, "choose a sink that takes updates and deletes"),
			"the source sends updates and deletes, and this sink only takes rows to append")
	}
	if src.Input > connector.AppendOnly && s.Mode == connector.Append && slices.Contains(s.Contract.Modes, connector.Upsert) {
		add("admit.input", "use mode upsert", "the source sends updates and deletes, which mode append can't apply")
	}
	whole := s.Contract.Atomicity == connector.Whole || s.Mode == connector.Replace
	if whole && !src.Bounded {
		add("admit.bounded", hintForChanges(s, "use mode append or upsert, into a sink that can be written bit by bit"),
			"it shows its rows when the run ends, and this source never ends")
	}
	if whole && src.Incremental {
		add("admit.incremental", "use mode append or upsert into a table, or read without the cursor",
			"each run would replace what the last one wrote by what is new since then")
	}
	return ps
}

// hintForChanges is what the sink says about how it takes changes, or else the general hint.
func hintForChanges(s SinkOffer, otherwise string) string {
	if s.Contract.ForChanges != "" {
		return s.Contract.ForChanges
	}
	return otherwise
}

// problemsError makes one error of all problems: the message has a line for each, the hint is that of the first.
func problemsError(ps []Problem) error {
	if len(ps) == 0 {
		return nil
	}
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
		if p.Hint != "" && len(ps) > 1 {
			lines[i] += " (" + p.Hint + ")"
		}
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: ps[0].Code, Doing: "planning",
		Err: &PlanError{Problems: ps, text: strings.Join(lines, "\n")}, Hint: ps[0].Hint,
	}
}

// PlanError is every reason why a plan is refused. It is found with errors.As in what Run returns.
type PlanError struct {
	Problems []Problem
	text     string
}

// Error returns a line for each problem.
func (e *PlanError) Error() string { return e.text }
