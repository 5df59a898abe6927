package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// memConfig is a correct source of two datasets in memory, unless fault names what it does wrong.
type memConfig struct {
	Only  string           `leat:"only" doc:"the one dataset to read"`
	Token connector.Secret `leat:"token" doc:"a credential"`

	fault   string
	nowhere bool
	asked   *int
}

const memToken = "hunter2-token"

func memData() []*record.Batch {
	empty := Numbered("empty", 0, 1)
	empty.Rows = empty.Rows.NewSlice(0, 0)
	return []*record.Batch{Numbered("one", 0, 23), empty, Numbered("two", 100, 9)}
}

func (c *memConfig) Contract() (connector.SourceContract, error) {
	*c.asked++
	contract := connector.SourceContract{Replay: connector.Deterministic, Bounded: true}
	if c.fault == "contract changes" && *c.asked%2 == 0 {
		contract.Replay = connector.Replayable
	}
	return contract, nil
}

func (c *memConfig) Identity() map[string]string {
	id := map[string]string{"only": c.Only}
	if c.fault == "identity has the secret" {
		id["token"] = c.Token.Reveal()
	}
	return id
}

func (c *memConfig) Open(env connector.Env) (connector.Source, error) {
	if c.fault == "open does I/O" {
		env.Roundtrip("open")
	}
	return &memSource{cfg: *c, env: env}, nil
}

type memSource struct {
	cfg     memConfig
	env     connector.Env
	data    []*record.Batch
	at      memAt
	cuts    []memAt
	last    *record.Batch
	ended   bool
	started bool
	closed  int
}

// memAt is a position: a dataset's index and the rows that were read of it.
type memAt struct {
	Source  string `json:"source"`
	Dataset int    `json:"dataset"`
	Row     int    `json:"row"`
}

func (a memAt) before(b memAt) bool {
	return a.Dataset < b.Dataset || (a.Dataset == b.Dataset && a.Row < b.Row)
}

func (s *memSource) position(a memAt) record.Position {
	a.Source = "mem"
	doc, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	return record.Position{Shape: 1, Data: doc}
}

func (s *memSource) parse(p record.Position) (memAt, error) {
	var a memAt
	err := json.Unmarshal(p.Data, &a)
	if s.cfg.fault == "any position is taken" {
		return a, nil
	}
	if err != nil || a.Source != "mem" || p.Shape != 1 {
		return a, &connector.Error{Class: connector.ClassPosition, Code: "mem.position", Err: fmt.Errorf("position %s is not ours", p), Hint: "leat state reset"}
	}
	return a, nil
}

func (s *memSource) Migrate(p record.Position) (record.Position, error) {
	_, err := s.parse(p)
	return p, err
}

func (s *memSource) Compare(p, q record.Position) (int, bool) {
	a, _ := s.parse(p)
	b, _ := s.parse(q)
	switch {
	case s.cfg.fault == "positions are not ordered" && a != b:
		return 1, true
	case a.before(b):
		return -1, true
	case b.before(a):
		return 1, true
	}
	return 0, true
}

func (s *memSource) Discover(context.Context) ([]connector.Dataset, error) {
	var out []connector.Dataset
	for _, b := range s.selected() {
		ds := connector.Dataset{Name: b.Schema.Dataset, Schema: b.Schema, Rows: -1, Bytes: -1, Patch: map[string]string{"only": b.Schema.Dataset}}
		switch s.cfg.fault {
		case "discover has another key":
			ds.Schema = &record.Schema{Dataset: ds.Name, Columns: b.Schema.Columns}
		case "patch selects nothing":
			ds.Patch = nil
		case "patch has the secret":
			ds.Patch["token"] = s.cfg.Token.Reveal()
		}
		out = append(out, ds)
	}
	if s.cfg.fault == "discover consumes" {
		s.at.Row = 1
	}
	return out, nil
}

func (s *memSource) selected() []*record.Batch {
	var out []*record.Batch
	for _, b := range memData() {
		if s.cfg.Only == "" || s.cfg.Only == b.Schema.Dataset {
			out = append(out, b)
		}
	}
	return out
}

func (s *memSource) Start(ctx context.Context, start connector.SourceStart) error {
	if s.cfg.fault == "start leaks" {
		go func() { <-context.Background().Done() }()
	}
	if s.cfg.nowhere {
		err := errors.New("dialing: refused")
		if s.cfg.fault == "error has the secret" {
			err = errors.New("dialing mem://user:" + s.cfg.Token.Reveal() + "@host")
		}
		return &connector.Error{Class: connector.ClassTransient, Code: "mem.dial", Err: err, Hint: "start the server"}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting: %w", err)
	}
	switch s.cfg.fault {
	case "calls have no name":
		s.env.Roundtrip("")
	case "names of calls have values":
		s.env.Roundtrip("SELECT 1")
	}
	s.data = s.selected()
	if len(start.Splits) > 0 {
		s.data = s.parts(start.Splits)
	}
	if start.From.Origin == connector.Resume {
		at, err := s.parse(start.From.Position)
		if err != nil {
			return err
		}
		s.at = at
	}
	for _, c := range start.Cuts {
		at, err := s.parse(c)
		if err != nil {
			return err
		}
		s.cuts = append(s.cuts, at)
	}
	s.started = true
	return nil
}

// Splits cuts every dataset in two; the rows are numbered over all of it.
func (s *memSource) Splits(context.Context, int) ([]connector.Split, error) {
	*s.cfg.asked++
	var out []connector.Split
	for _, b := range s.selected() {
		half, name := strconv.Itoa(b.NumRows()/2), b.Schema.Dataset
		first, second := connector.Split{ID: name + "/1", To: []byte(half)}, connector.Split{ID: name + "/2", From: []byte(half)}
		switch {
		case s.cfg.fault == "splits overlap" && b.NumRows() > 2:
			second.From = []byte("1")
		case s.cfg.fault == "a split is missing" && b.NumRows() > 0:
			first = second
		case s.cfg.fault == "a split has no id":
			second.ID = ""
		case s.cfg.fault == "splits have new ids":
			second.ID += "/" + strconv.Itoa(*s.cfg.asked)
		}
		out = append(out, first, second)
	}
	if s.cfg.fault == "a split is missing" {
		out = slices.CompactFunc(out, func(a, b connector.Split) bool { return a.ID == b.ID })
	}
	return out, nil
}

// parts are the rows of splits.
func (s *memSource) parts(splits []connector.Split) []*record.Batch {
	var out []*record.Batch
	for _, b := range s.selected() {
		for _, split := range splits {
			if name, _, _ := strings.Cut(split.ID, "/"); name != b.Schema.Dataset {
				continue
			}
			from, to := 0, b.NumRows()
			if split.From != nil {
				from, _ = strconv.Atoi(string(split.From))
			}
			if split.To != nil {
				to, _ = strconv.Atoi(string(split.To))
			}
			part := *b
			part.Rows = b.Rows.NewSlice(int64(from), int64(to))
			out = append(out, &part)
		}
	}
	return out
}

func (s *memSource) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if !s.started || s.closed > 0 {
		return nil, errors.New("reading a source that is not started")
	}
	if s.at.Dataset >= len(s.data) {
		if s.ended && s.cfg.fault == "the end is told once" {
			return nil, nil //nolint:nilnil // the fault
		}
		s.ended = true
		return nil, io.EOF
	}
	if s.cfg.fault == "cancel loses rows" && ctx.Err() != nil {
		s.at.Row++
	}
	if err := ctx.Err(); err != nil && s.cfg.fault != "cancel loses rows" {
		return nil, fmt.Errorf("reading: %w", err)
	}
	d := s.data[s.at.Dataset]
	from, to := s.at.Row, d.NumRows()
	if want.Rows > 0 && to-from > want.Rows && s.cfg.fault != "size is ignored" {
		to = from + want.Rows
	}
	if want.Rows == 0 && s.cfg.fault == "zero splits" {
		to = min(to, from+5)
	}
	for _, c := range s.cuts {
		if c.Dataset == s.at.Dataset && c.Row > from && c.Row < to && s.cfg.fault != "cuts are ignored" {
			to = c.Row
		}
	}
	out := &record.Batch{Schema: d.Schema, Rows: d.Rows.NewSlice(int64(from), int64(to))}
	if s.cfg.fault == "schema is new each time" {
		c := *d.Schema
		out.Schema = &c
	}
	if s.cfg.fault == "batches change" && s.last != nil && s.last.NumRows() > 0 {
		s.last.Rows.Column(0).(*array.Int64).Int64Values()[0] = -1 //nolint:forcetypeassert // by construction
	}
	s.last = out
	s.at.Row = to
	if to == d.NumRows() {
		s.at = memAt{Dataset: s.at.Dataset + 1}
	}
	out.Position = s.position(s.at)
	switch s.cfg.fault {
	case "position is one row behind":
		if to < d.NumRows() {
			out.Position = s.position(memAt{Dataset: s.at.Dataset, Row: to - 1})
		}
	case "position is one row ahead":
		if to < d.NumRows() {
			out.Position = s.position(memAt{Dataset: s.at.Dataset, Row: to + 1})
		}
	case "last rows have no position":
		if s.at.Dataset == len(s.data) {
			out.Position = record.Position{}
		}
	case "empty datasets are left out":
		if d.NumRows() == 0 {
			return s.Read(ctx, want)
		}
	case "a row is lost at batch ends":
		if to < d.NumRows() {
			s.at.Row++
		}
	case "position is no JSON":
		out.Position.Data = json.RawMessage("mem " + strconv.Itoa(to))
	case "rows are of another schema":
		out.Schema = &record.Schema{Dataset: d.Schema.Dataset, Columns: arrow.NewSchema(d.Schema.Columns.Fields()[:1], nil)}
	}
	return out, nil
}

func (s *memSource) Close(context.Context) error {
	s.closed++
	if s.closed > 1 && s.cfg.fault == "second close fails" {
		return errors.New("already closed")
	}
	return nil
}

func memCase(fault string) SourceCase {
	asked := new(int)
	want := map[string][]string{}
	for _, b := range memData() {
		want[b.Schema.Dataset] = append([]string{}, Rows(b)...)
	}
	return SourceCase{
		New: func(testing.TB) connector.SourceConfig {
			return &memConfig{fault: fault, asked: asked, Token: memToken}
		},
		Unreachable: func(testing.TB) connector.SourceConfig {
			return &memConfig{fault: fault, asked: asked, Token: memToken, nowhere: true}
		},
		Want:    want,
		Secrets: []string{memToken},
	}
}

// A correct source passes the whole suite.
func TestSourceAcceptsACorrectSource(t *testing.T) {
	Source(t, memCase(""))
	unstated := memCase("")
	unstated.Want = nil
	Source(t, unstated)
}

// Each fault is caught, by the sub-test that is meant to.
// clauses S25, S30
func TestSourceCatches(t *testing.T) {
	for fault, by := range map[string]string{
		"contract changes":            "Pure",
		"identity has the secret":     "Pure",
		"open does I/O":               "Pure",
		"any position is taken":       "Refuse",
		"positions are not ordered":   "Positions",
		"discover has another key":    "Discover",
		"patch selects nothing":       "Discover",
		"patch has the secret":        "Discover",
		"discover consumes":           "Discover",
		"start leaks":                 "Refuse",
		"error has the secret":        "Unreachable",
		"the end is told once":        "Read",
		"cancel loses rows":           "Cancel",
		"size is ignored":             "WantedSize",
		"zero splits":                 "WantedSize",
		"cuts are ignored":            "Cuts",
		"schema is new each time":     "WantedSize",
		"batches change":              "WantedSize",
		"position is one row behind":  "Resume",
		"position is one row ahead":   "Resume",
		"last rows have no position":  "Read",
		"empty datasets are left out": "Read",
		"a row is lost at batch ends": "WantedSize",
		"position is no JSON":         "Read",
		"rows are of another schema":  "Read",
		"second close fails":          "Close",
		"calls have no name":          "Read",
		"names of calls have values":  "Read",
		"splits overlap":              "Splits",
		"a split is missing":          "Splits",
		"a split has no id":           "Splits",
		"splits have new ids":         "Splits",
	} {
		t.Run(fault, func(t *testing.T) {
			failures := recordFailures(t, func(t testing.TB) { source(t, memCase(fault)) })
			for _, f := range failures {
				if len(f) > len(by) && f[:len(by)] == by {
					return
				}
			}
			t.Errorf("no failure in %s; the failures are %q", by, failures)
		})
	}
}
