package lane

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane/internal/wire"
	"github.com/leatdata/leat/record"
)

// Inspection is what a storage holds, for people. It takes nothing over: whoever has the lanes open goes on.
type Inspection struct {
	Pipeline string
	Run      string
	Owners   uint64 // how many there were
	Lanes    []InspectedLane
	Stored   Mark // the newest position; zero: none

	d     *durable
	n     *note
	first uint64 // the oldest entry that a lane may need
	last  uint64
}

// InspectedLane is one lane of an Inspection.
type InspectedLane struct {
	Sink string
	Holding
}

// Published is an item that a log holds, without its rows.
type Published struct {
	Number   uint64
	Time     time.Time
	To       []string // sinks; nil: all
	Complete bool     // the mark of a complete snapshot
	Dataset  string   // empty: none
	Rows     int64
	Changes  int64
	Ops      map[string]int64 // how many rows are insert, update, delete
	Bytes    int64            // in the log
	Position record.Position
	// Void says that it does not count: it was published behind the newest position when an owner ended.
	Void bool
}

// Inspect looks at the lanes of a pipeline. The error has code lanes.none where there are none.
func Inspect(ctx context.Context, st Storage, pipeline string) (*Inspection, error) {
	d, err := newDurable(ctx, st, Spec{Pipeline: pipeline}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	b, version, err := st.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking at the lanes of %s: %w", pipeline, err)
	}
	if version == 0 {
		return nil, NoLanes(pipeline)
	}
	n, err := decodeNote(b, pipeline)
	if err != nil {
		return nil, err
	}
	d.cuts, d.opened = n.Cuts, ^uint64(0)
	t, last, err := d.tail(ctx, n)
	if err != nil {
		return nil, err
	}
	i := &Inspection{Pipeline: pipeline, Run: n.Run, Owners: n.Epoch, d: d, n: n, first: t.first, last: last}
	if t.last.Number > 0 {
		at, err := d.markIn(t.pack, t.last)
		if err != nil {
			return nil, err
		}
		i.Stored = at.Mark
	}
	return i, i.lanes(ctx, t)
}

// NoLanes is the error for a pipeline that has no durable lanes.
func NoLanes(pipeline string) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "lanes.none", Doing: "looking at the lanes of " + pipeline,
		Err: errors.New("there are none: no run has kept its lanes here"),
	}
}

// lanes works out what each lane holds, from the head of the last pack.
func (i *Inspection) lanes(ctx context.Context, t *tail) error {
	if i.first > i.last {
		return nil
	}
	start, err := i.d.lastPack(ctx, i.first, i.last)
	if err != nil {
		return err
	}
	p, _, err := i.d.readPack(ctx, start)
	if err != nil {
		return i.d.readFailed(start, err)
	}
	if p.Items == 0 { // nothing was published since the lanes were opened
		p = t.pack
	}
	for _, l := range i.n.Lanes {
		h := Holding{Acked: l.Acked, Last: t.number, Fresh: t.last.Number <= l.Began, Detached: l.Detached}
		if held := i.held(p, l); held.Items > 0 {
			h.Count, h.Bytes = countIn(held), held.Stored
			if o, _, err := i.d.readPack(ctx, over(i.n.Cuts, l.Entry)); err == nil {
				h.Oldest = time.Unix(0, o.Time)
			}
		}
		i.Lanes = append(i.Lanes, InspectedLane{l.Sink, h})
	}
	return nil
}

// held is what a lane holds up to the end of a pack, which may be nil.
func (i *Inspection) held(p *wire.Opened, l laneNote) wire.Sum {
	if p == nil || l.Detached || l.Number+1 >= p.First+uint64(p.Items) {
		return wire.Sum{}
	}
	sum, ok := p.Sums[l.Sink]
	if !ok {
		return wire.Sum{}
	}
	for k := range p.Items {
		if isFor(p.To(k), l.Sink) && !void(i.n.Cuts, p.First+uint64(k)) {
			sum = sum.Add(p.Sum(k))
		}
	}
	return sum.Sub(l.Passed)
}

// Items lists what the log holds, the oldest first. An error ends the list; what a running owner removes meanwhile is left out.
func (i *Inspection) Items(ctx context.Context) iter.Seq2[Published, error] {
	return func(yield func(Published, error) bool) {
		for at := i.first; at <= i.last; {
			p, last, err := i.d.readPack(ctx, at)
			if errors.Is(err, ErrMissing) { // removed, or an entry of a pack that was never finished
				at++
				continue
			}
			if err != nil {
				yield(Published{}, i.d.readFailed(at, err))
				return
			}
			for k := range p.Items {
				if !yield(i.published(p, k), nil) {
					return
				}
			}
			at = last + 1
		}
	}
}

func (i *Inspection) published(p *wire.Opened, k int) Published {
	a, number := p.About(k), p.First+uint64(k)
	return Published{
		Number: number, Time: time.Unix(0, p.Time), To: a.To, Complete: a.Complete, Dataset: a.Dataset, Rows: a.Rows, Changes: a.Changes,
		Ops: a.Ops, Bytes: p.Sum(k).Stored, Position: a.Position, Void: void(i.n.Cuts, number),
	}
}
