package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// partsConfig is a correct source of one dataset in three parts, which go on in another order each time, unless fault names what it does
// wrong.
type partsConfig struct {
	fault  string
	follow bool
	opened *uint64
}

const partsRows = 30 // the row with id n is of part n modulo 3

func (c *partsConfig) Contract() (connector.SourceContract, error) {
	return connector.SourceContract{
		Replay: connector.Deterministic, Interleaved: true, Topology: connector.Splittable, Bounded: !c.follow, CancelSafe: true,
	}, nil
}

func (*partsConfig) Identity() map[string]string { return nil }

func (c *partsConfig) Open(connector.Env) (connector.Source, error) {
	*c.opened++
	s := &partsSource{cfg: *c, rand: rand.New(rand.NewPCG(*c.opened, 1)), all: Numbered("parts", 0, partsRows)}
	return s, nil
}

type partsSource struct {
	cfg    partsConfig
	rand   *rand.Rand
	all    *record.Batch
	at     [3]int // rows that were read of each part
	only   []int
	cuts   [][3]int
	active bool
	began  bool
}

var errPartsPosition = &connector.Error{Class: connector.ClassPosition, Code: "parts.position", Err: errors.New("not ours"), Hint: "reset"}

func partsAt(p record.Position) (at [3]int, err error) {
	var v struct {
		Parts []int `json:"parts"`
	}
	if json.Unmarshal(p.Data, &v) != nil || len(v.Parts) != len(at) || p.Shape != 1 {
		return at, errPartsPosition
	}
	return [3]int(v.Parts), nil
}

func (*partsSource) Migrate(p record.Position) (record.Position, error) {
	_, err := partsAt(p)
	return p, err
}

func (*partsSource) Compare(p, q record.Position) (int, bool) {
	a, errA := partsAt(p)
	b, errB := partsAt(q)
	less, more := false, false
	for i := range a {
		less, more = less || a[i] < b[i], more || a[i] > b[i]
	}
	switch {
	case errA != nil || errB != nil || (less && more):
		return 0, false
	case less:
		return -1, true
	case more:
		return 1, true
	}
	return 0, true
}

func (*partsSource) Splits(context.Context, int) ([]connector.Split, error) {
	return []connector.Split{{ID: "0"}, {ID: "1"}, {ID: "2"}}, nil
}

func (s *partsSource) Start(_ context.Context, req connector.SourceStart) error {
	s.only = []int{0, 1, 2}
	if len(req.Splits) > 0 {
		s.only = nil
		for _, split := range req.Splits {
			part, err := strconv.Atoi(split.ID)
			if err != nil {
				return fmt.Errorf("split %q: %w", split.ID, err)
			}
			s.only = append(s.only, part)
			if s.cfg.fault == "a split has another one's rows" && part == 2 {
				s.only = append(s.only, 0)
			}
		}
	}
	if !req.From.Position.Zero() {
		at, err := partsAt(req.From.Position)
		if err != nil {
			return err
		}
		s.at = at
	}
	for _, c := range req.Cuts {
		cut, err := partsAt(c)
		if err != nil {
			return err
		}
		s.cuts = append(s.cuts, cut)
	}
	s.active = true
	return nil
}

// ends is how far each part may be read now.
func (s *partsSource) ends() [3]int {
	for len(s.cuts) > 0 && s.cuts[0] == s.at {
		s.cuts = s.cuts[1:]
	}
	if len(s.cuts) > 0 && s.cfg.fault != "a part passes a cut" {
		return s.cuts[0]
	}
	return [3]int{partsRows / 3, partsRows / 3, partsRows / 3}
}

func (s *partsSource) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if !s.active {
		return nil, errors.New("reading a source that is not started")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	ends := s.ends()
	open := slices.DeleteFunc(slices.Clone(s.only), func(p int) bool { return s.at[p] >= ends[p] })
	rows := 0
	keep := map[int]bool{}
	for (want.Rows == 0 || rows < want.Rows) && len(open) > 0 {
		part := open[s.rand.IntN(len(open))]
		row := s.at[part]
		if s.cfg.fault == "a part changes its order" && s.began && row < 2 {
			row = 1 - row
		}
		keep[3*row+part] = true
		s.at[part]++
		rows++
		open = slices.DeleteFunc(open, func(p int) bool { return s.at[p] >= ends[p] })
	}
	if rows == 0 && s.cfg.follow {
		return nil, nil //nolint:nilnil // nothing now
	}
	if rows == 0 && s.began {
		return nil, io.EOF
	}
	s.began = true
	b, err := s.all.Keep(func(i int) bool { return keep[i] })
	if err != nil {
		return nil, err
	}
	out := *b
	doc, err := json.Marshal(map[string][]int{"parts": s.at[:]})
	out.Position = record.Position{Shape: 1, Data: doc}
	return &out, err
}

func (s *partsSource) Close(context.Context) error {
	s.active = false
	return nil
}

func partsCase(fault string, follow bool) SourceCase {
	opened := new(uint64)
	return SourceCase{
		New: func(testing.TB) connector.SourceConfig {
			return &partsConfig{fault: fault, follow: follow, opened: opened}
		},
		Want: map[string][]string{"parts": Rows(Numbered("parts", 0, partsRows))},
		Part: func(_, row string) string {
			var doc struct {
				ID int `json:"id"`
			}
			if err := json.Unmarshal([]byte(row), &doc); err != nil {
				panic(err)
			}
			return strconv.Itoa(doc.ID % 3)
		},
	}
}

// A source of parts, with an end and without, passes the suite: only the order within a part counts, and splits add up to the whole.
//
// clause S25
func TestSourceOfParts(t *testing.T) {
	Source(t, partsCase("", false))
	Source(t, partsCase("", true))
}

// clause S25
func TestSourceOfPartsCatches(t *testing.T) {
	for _, follow := range []bool{false, true} {
		for fault, by := range map[string]string{
			"a part passes a cut":            "Cuts",
			"a part changes its order":       "WantedSize",
			"a split has another one's rows": "Splits",
		} {
			t.Run(fault, func(t *testing.T) {
				failures := recordFailures(t, func(t testing.TB) { source(t, partsCase(fault, follow)) })
				if !slices.ContainsFunc(failures, func(f string) bool { return len(f) > len(by) && f[:len(by)] == by }) {
					t.Errorf("no failure in %s; the failures are %q", by, failures)
				}
			})
		}
	}
}
