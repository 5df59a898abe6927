package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// phaseDB is a target of epochs in memory: what is visible, and what is staged.
type phaseDB struct {
	rows     map[string][]string // by dataset
	progress map[string]record.Progress
	staged   map[string]map[string][]string // by epoch, then by dataset
	fence    uint64
	epochs   int // so far
}

// phaseConfig is a correct sink, unless fault names what it does wrong.
type phaseConfig struct {
	db    *phaseDB
	fault string
}

func (c *phaseConfig) Contract() (connector.SinkContract, error) {
	modes := []connector.WriteMode{connector.Append}
	return connector.SinkContract{Modes: modes, Input: connector.Changelog, Atomicity: connector.TwoPhaseCommit, Durable: true, NeedsKey: true}, nil
}

func (c *phaseConfig) Identity() map[string]string { return map[string]string{"db": "memory"} }

func (c *phaseConfig) Open(connector.Env) (connector.Sink, error) {
	return &phaseSink{phaseConfig: *c}, nil
}

type phaseSink struct {
	phaseConfig

	start connector.SinkStart
	open  map[string][]string
	name  string // of what this value prepared
}

var _ connector.TwoPhase = (*phaseSink)(nil)

func (s *phaseSink) faulty(f string) bool { return s.fault == f }

func (s *phaseSink) lane() string { return s.start.Pipeline + "/" + s.start.Lane }

func (s *phaseSink) fenced() error {
	if s.start.Fence < s.db.fence {
		return &connector.Error{Class: connector.ClassFenced, Code: "mem.fenced", Err: errors.New("another owner took over")}
	}
	return nil
}

func (s *phaseSink) Start(_ context.Context, start connector.SinkStart) error {
	s.start, s.open = start, map[string][]string{}
	if err := s.fenced(); err != nil {
		return err
	}
	s.db.fence = start.Fence
	if s.faulty("start removes what was prepared") {
		clear(s.db.staged)
	}
	return nil
}

func (s *phaseSink) Write(ctx context.Context, b *record.Batch) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	if s.open == nil {
		return errors.New("the sink is not open")
	}
	d := b.Schema.Dataset
	if s.open[d] == nil {
		s.open[d] = []string{}
	}
	for i := range b.NumRows() {
		s.open[d] = append(s.open[d], string(b.RowJSON(i)))
	}
	return nil
}

func (s *phaseSink) Flush(context.Context) error {
	return errors.New("an epoch is prepared and published")
}

func (s *phaseSink) Prepare(_ context.Context, p record.Progress) (json.RawMessage, error) {
	s.db.epochs++
	s.name = fmt.Sprintf("%s/%d", s.lane(), s.db.epochs)
	switch {
	case len(s.open) > 0:
		s.db.staged[s.name] = s.open
	case s.faulty("empty epochs leave something"):
		s.db.staged[s.name+"/note"] = nil
	}
	if s.faulty("prepare publishes") {
		return s.answer(), s.Publish(context.Background(), p, s.answer())
	}
	if s.faulty("progress is visible at once") {
		s.db.progress[s.lane()] = p
	}
	s.open = map[string][]string{}
	return s.answer(), nil
}

func (s *phaseSink) answer() json.RawMessage {
	if s.faulty("prepare answers no JSON") {
		return json.RawMessage(s.name)
	}
	return json.RawMessage(fmt.Sprintf(`{"name":%q}`, s.name))
}

func (s *phaseSink) Publish(_ context.Context, p record.Progress, staged json.RawMessage) error {
	if err := s.fenced(); err != nil && !s.faulty("an old owner publishes") {
		return err
	}
	var what struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(staged, &what); err != nil {
		return fmt.Errorf("reading what was prepared: %w", err)
	}
	if s.faulty("only the value that prepared publishes") {
		what.Name = s.name
	}
	last, found := s.db.progress[s.lane()]
	if found && last.Run == p.Run && last.Epoch >= p.Epoch {
		if s.faulty("publish is not idempotent") {
			s.db.rows["one"] = append(s.db.rows["one"], s.db.rows["one"]...)
		}
		if s.faulty("an older epoch puts progress back") {
			s.db.progress[s.lane()] = p
		}
		return nil
	}
	for _, d := range slices.Sorted(maps.Keys(s.db.staged[what.Name])) {
		s.db.rows[d] = append(s.db.rows[d], s.db.staged[what.Name][d]...)
		if s.faulty("one dataset is enough") {
			break
		}
	}
	if !s.faulty("what was published stays staged") {
		delete(s.db.staged, what.Name)
	}
	s.db.progress[s.lane()] = s.noted(p)
	return nil
}

// noted is the progress as it is kept.
func (s *phaseSink) noted(p record.Progress) record.Progress {
	switch s.fault {
	case "the epoch is lost":
		p.Epoch = 0
	case "the item is lost":
		p.Item = 0
	case "the ledger is lost":
		p.Ledger = nil
	case "it is done or not":
		p.Done = false
	case "positions are formatted":
		var v map[string]json.RawMessage
		if json.Unmarshal(p.Position.Data, &v) == nil {
			p.Position.Data, _ = json.Marshal(v)
		}
	}
	return p
}

func (s *phaseSink) Abort(context.Context) error {
	if err := s.fenced(); err != nil {
		if s.faulty("an old owner aborts") {
			clear(s.db.staged)
		}
		return err
	}
	s.open = map[string][]string{}
	gone := func(name string, _ map[string][]string) bool {
		return strings.HasPrefix(name, s.lane()+"/") && (s.name == name || !s.faulty("abort knows only its own"))
	}
	maps.DeleteFunc(s.db.staged, gone)
	switch {
	case s.faulty("abort removes what is published"):
		clear(s.db.rows)
	case s.faulty("abort goes on with what was written"):
		s.open["one"] = s.db.rows["one"]
	case s.faulty("abort needs something to abort") && s.name == "":
		return errors.New("there is nothing to abort")
	}
	return nil
}

func (s *phaseSink) Committed(context.Context) (record.Progress, bool, error) {
	p, found := s.db.progress[s.lane()]
	return p, found, nil
}

func (s *phaseSink) Close(context.Context) error {
	s.open = nil
	if s.faulty("close removes what was prepared") {
		delete(s.db.staged, s.name)
	}
	return nil
}

func phaseCase(fault string) SinkCase {
	return SinkCase{
		Cases: Pick("int32", "text"),
		New: func(testing.TB) Target {
			db := &phaseDB{rows: map[string][]string{}, progress: map[string]record.Progress{}, staged: map[string]map[string][]string{}}
			return Target{
				Config: func() connector.SinkConfig { return &phaseConfig{db: db, fault: fault} },
				Read: func(_ testing.TB, s *record.Schema) ([]string, bool) {
					rows, found := db.rows[s.Dataset]
					return slices.Clone(rows), found
				},
				Leftovers: func(testing.TB) []string { return slices.Sorted(maps.Keys(db.staged)) },
			}
		},
	}
}

// A correct sink of epochs passes the whole suite.
func TestTwoPhaseAcceptsACorrectSink(t *testing.T) { Sink(t, phaseCase("")) }

// Each fault of a sink of epochs is caught, by the sub-test that is meant to.
func TestTwoPhaseCatches(t *testing.T) {
	for fault, by := range map[string]string{
		"start removes what was prepared":        "Prepared",
		"close removes what was prepared":        "Prepared",
		"prepare publishes":                      "Prepared",
		"prepare answers no JSON":                "Prepared",
		"progress is visible at once":            "Prepared",
		"publish is not idempotent":              "Published",
		"an older epoch puts progress back":      "Published",
		"what was published stays staged":        "Published",
		"only the value that prepared publishes": "Another",
		"abort removes what is published":        "Aborted",
		"abort goes on with what was written":    "Aborted",
		"abort needs something to abort":         "Aborted",
		"abort knows only its own":               "Aborted",
		"an old owner publishes":                 "Fence",
		"an old owner aborts":                    "Fence",
		"the epoch is lost":                      "Progress",
		"the item is lost":                       "Progress",
		"the ledger is lost":                     "Progress",
		"it is done or not":                      "Progress",
		"positions are formatted":                "Progress",
		"empty epochs leave something":           "Empty",
		"one dataset is enough":                  "Datasets",
	} {
		t.Run(fault, func(t *testing.T) {
			failures := recordFailures(t, func(t testing.TB) { sink(t, phaseCase(fault)) })
			for _, f := range failures {
				if strings.HasPrefix(f, "TwoPhase/"+by) {
					return
				}
			}
			t.Errorf("no failure in %s; the failures are %.2000q", by, failures)
		})
	}
}
