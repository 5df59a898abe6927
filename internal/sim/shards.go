package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Shards is the configuration of a simulated source of several parts, such as the partitions of a log: a position says how far each
// part is, and which part goes on next is another one each time that it is read.
type Shards struct {
	World   *World
	Rows    [][]Row // of one dataset, by part
	Bounded bool
	Durable func(at []int) string // why so much may not be released; empty: it may
	Starts  []connector.SourceStart
}

// shardsAt is how many rows of each part a position covers.
func shardsAt(p record.Position) []int {
	var v struct {
		Parts []int `json:"parts"`
	}
	if err := json.Unmarshal(p.Data, &v); err != nil {
		return nil
	}
	return v.Parts
}

func shardsPosition(at []int) record.Position {
	doc, err := json.Marshal(map[string][]int{"parts": at})
	if err != nil {
		panic(err)
	}
	return record.Position{Shape: 1, Data: doc}
}

// Contract implements connector.SourceConfig.
func (s *Shards) Contract() (connector.SourceContract, error) {
	return connector.SourceContract{Replay: connector.Deterministic, Topology: connector.Splittable, Bounded: s.Bounded}, nil
}

// Identity implements connector.SourceConfig.
func (*Shards) Identity() map[string]string { return nil }

// Open implements connector.SourceConfig.
func (s *Shards) Open(connector.Env) (connector.Source, error) { return &shards{cfg: s}, nil }

// Before returns the rows that are covered, part by part.
func (s *Shards) Before(at []int) []Row {
	var out []Row
	for i, rows := range s.Rows {
		if i < len(at) {
			rows = rows[:at[i]]
		}
		out = append(out, rows...)
	}
	return out
}

// Check compares what a sink has durably with what the source sent: each row once, those of a part in their order.
func (s *Shards) Check(sink *Sink) error {
	byPart := make([][]Row, len(s.Rows))
	for _, r := range sink.Rows {
		part := slices.IndexFunc(s.Rows, func(rows []Row) bool { return slices.Contains(rows, r) })
		if part < 0 {
			return fmt.Errorf("sink %s: row %v was not sent", sink.Name, r)
		}
		byPart[part] = append(byPart[part], r)
	}
	for i, rows := range byPart {
		if !slices.Equal(rows, s.Rows[i]) {
			return fmt.Errorf("sink %s: of part %d it has %v, want %v", sink.Name, i, rows, s.Rows[i])
		}
	}
	return nil
}

// shards is one generation of the source.
type shards struct {
	cfg       *Shards
	at        []int
	told      []int
	cuts      [][]int
	schema    *record.Schema
	announced bool
}

var (
	_ connector.Positions    = (*shards)(nil)
	_ connector.Acknowledger = (*shards)(nil)
	_ connector.Discoverer   = (*shards)(nil)
	_ connector.Originator   = (*shards)(nil)
	_ connector.Tip          = (*shards)(nil)
)

// Discover implements connector.Discoverer.
func (s *shards) Discover(context.Context) ([]connector.Dataset, error) {
	return []connector.Dataset{{Name: "t", Schema: s.of(), Rows: -1, Bytes: -1}}, nil
}

func (s *shards) of() *record.Schema {
	if s.schema == nil {
		s.schema = Schema("t")
	}
	return s.schema
}

// ResolveOrigin implements connector.Originator.
func (s *shards) ResolveOrigin(context.Context) (record.Position, error) {
	return shardsPosition(make([]int, len(s.cfg.Rows))), nil
}

// Tip implements connector.Tip.
func (s *shards) Tip(context.Context) (record.Position, error) { return shardsPosition(s.ends()), nil }

func (s *shards) ends() []int {
	ends := make([]int, len(s.cfg.Rows))
	for i, rows := range s.cfg.Rows {
		ends[i] = len(rows)
	}
	return ends
}

// Start implements connector.Source.
func (s *shards) Start(ctx context.Context, req connector.SourceStart) error {
	if err := req.Validate(); err != nil {
		return err
	}
	return s.cfg.World.do(ctx, Event{Who: "source", What: "start", At: req.From.Position.String()}, func() error {
		s.cfg.Starts = append(s.cfg.Starts, req)
		s.at = make([]int, len(s.cfg.Rows))
		copy(s.at, shardsAt(req.From.Position))
		s.told = slices.Clone(s.at)
		for _, c := range req.Cuts {
			cut := shardsAt(c)
			if !within(s.at, cut) || (len(s.cuts) > 0 && !within(s.cuts[len(s.cuts)-1], cut)) {
				s.cfg.World.violateLocked("cut %s does not lie ahead, or not behind the one before it: %v", c, req)
			}
			s.cuts = append(s.cuts, cut)
		}
		return nil
	})
}

// within reports whether b covers a.
func within(a, b []int) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}

// Read implements connector.Source: a few rows of a part that may go on.
func (s *shards) Read(ctx context.Context, _ connector.Limit) (b *record.Batch, err error) {
	if !s.announced {
		s.announced = true
		return batchOf(s.of(), nil, nil), nil
	}
	err = s.cfg.World.do(ctx, Event{Who: "source", What: "read"}, func() error {
		limit := s.ends()
		for len(s.cuts) > 0 && slices.Equal(s.cuts[0], s.at) {
			s.cuts = s.cuts[1:]
		}
		if len(s.cuts) > 0 {
			limit = s.cuts[0]
		}
		var open []int
		for i := range s.at {
			if s.at[i] < limit[i] {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			return nil
		}
		w := s.cfg.World
		part := open[w.rand.IntN(len(open))]
		from := s.at[part]
		to := min(limit[part], from+1+w.rand.IntN(3))
		s.at[part] = to
		b = batchOf(s.of(), s.cfg.Rows[part][from:to], nil)
		if w.rand.IntN(3) > 0 || slices.Equal(s.at, limit) {
			b.Position = shardsPosition(s.at)
			s.told = slices.Clone(s.at)
		}
		return nil
	})
	switch {
	case err != nil || b != nil:
		return b, err
	case s.cfg.Bounded:
		return nil, io.EOF
	}
	return nil, nil //nolint:nilnil // nothing now
}

// Acknowledge implements connector.Acknowledger.
func (s *shards) Acknowledge(ctx context.Context, p record.Position) error {
	return s.cfg.World.do(ctx, Event{Who: "source", What: "acknowledge", At: p.String()}, func() error {
		if !within(shardsAt(p), s.told) {
			return fmt.Errorf("position %s was never delivered", p)
		}
		if why := s.cfg.Durable(shardsAt(p)); why != "" {
			s.cfg.World.violateLocked("acknowledged %s: %s", p, why)
		}
		return nil
	})
}

// Compare implements connector.Positions.
func (*shards) Compare(p, q record.Position) (int, bool) {
	a, b := shardsAt(p), shardsAt(q)
	switch {
	case len(a) == 0 || len(a) != len(b):
		return 0, false
	case slices.Equal(a, b):
		return 0, true
	case within(a, b):
		return -1, true
	case within(b, a):
		return 1, true
	}
	return 0, false
}

// Migrate implements connector.Positions.
func (*shards) Migrate(p record.Position) (record.Position, error) { return p, nil }

// Close implements connector.Source.
func (*shards) Close(context.Context) error { return nil }
