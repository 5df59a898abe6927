package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/backfill"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// newSchema is a dataset's columns from some place of the stream on.
type newSchema struct {
	dataset, columns string
	at               record.Position // zero: not known yet
}

func (b *backfiller) schemaOf(dataset string) *record.Schema {
	for _, d := range b.g.blue.datasets {
		if d.Name == dataset && d.Schema != nil {
			return d.Schema
		}
	}
	return &record.Schema{Dataset: dataset}
}

// datasets is how many there are, those that joined included.
func (g *generation) datasets() int {
	if g.back == nil {
		return len(g.blue.schemas)
	}
	g.back.mu.Lock()
	defer g.back.mu.Unlock()
	return len(g.back.sources)
}

// know notes a dataset of the source, and what the lanes call it.
func (b *backfiller) know(s *record.Schema) {
	b.known[s.Dataset] = true
	b.mu.Lock()
	defer b.mu.Unlock()
	name := b.laneName(s)
	b.sources[name] = append(b.sources[name], s.Dataset)
}

// meet takes note of a dataset that joined, and of columns that changed.
func (b *backfiller) meet(ctx context.Context, s *record.Schema) error {
	if !b.known[s.Dataset] {
		b.know(s)
		b.g.blue.datasets = append(b.g.blue.datasets, connector.Dataset{Name: s.Dataset, Schema: s, Rows: -1, Bytes: -1})
		b.g.r.log.Info("a dataset joined", slog.String("dataset", s.Dataset))
		for i := range b.g.lanes {
			if err := b.lack(ctx, i, s, backfill.First); err != nil {
				return err
			}
		}
		b.phase(s.Dataset)
		return nil
	}
	i := slices.IndexFunc(b.g.blue.datasets, func(d connector.Dataset) bool { return d.Name == s.Dataset })
	if i < 0 || b.g.blue.datasets[i].Schema == s {
		return nil
	}
	was := b.g.blue.datasets[i].Schema
	b.g.blue.datasets[i].Schema = s
	d := record.Diff(was, s)
	if d.Empty() {
		return nil
	}
	b.g.r.log.Info("the columns of a dataset changed", slog.String("dataset", s.Dataset), slog.Any("change", d))
	if rewritten(was, s, d) && !b.merge.Open(s.Dataset) {
		// The values may be others, and the stream says nothing of that.
		if err := b.merge.Request(ctx, s, refill(s), b.lanes...); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		b.phase(s.Dataset)
	}
	if out, err := transformed(b.g.r.plan.Source.Transforms, s); err == nil && out != nil {
		b.mu.Lock()
		b.schemas = append(b.schemas, newSchema{dataset: out.Dataset, columns: columnsText(out)})
		b.mu.Unlock()
	}
	return nil
}

// rewritten reports whether a column got another type: the database may have computed new values for all rows.
func rewritten(was, s *record.Schema, d record.Difference) bool {
	return slices.ContainsFunc(d.Retyped, func(name string) bool {
		before := was.Column(name)
		for _, r := range d.Renamed {
			if r.To == name {
				before = was.Column(r.From)
			}
		}
		return before < 0 || was.Columns.Field(before).Type.ID() != s.Columns.Field(s.Column(name)).Type.ID()
	})
}

// sawPosition dates the schemas that are new.
func (b *backfiller) sawPosition(at record.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at.Zero() {
		return
	}
	for i := range b.schemas {
		if b.schemas[i].at.Zero() {
			b.schemas[i].at = at
		}
	}
}

// phase brings the dataset's phase up to date.
func (b *backfiller) phase(dataset string) {
	p, failed := Live, 0
	for _, o := range b.merge.Backfills(dataset) {
		switch {
		case o.ID != 0: // the dataset is complete meanwhile
		case o.Failed:
			failed += len(o.Lanes)
		case o.Begun:
			p = Snapshotting
		case p == Live:
			p = Waiting
		}
	}
	switch {
	case b.paused[dataset]:
		p = Resting
	case failed == len(b.lanes):
		p = Broken
	}
	b.g.r.ctl.dataset(dataset, func(d *DatasetStatus) { d.Phase = p })
	for _, l := range b.lanes {
		filling := b.merge.FillingAny(l)
		b.g.r.ctl.sink(l, func(s *SinkStatus) { s.Filling = filling })
	}
}

// save brings a saved record to a mark: the ledger, and the columns of datasets as they are there.
func (b *backfiller) save(rec *state.Record, at lane.Mark) error {
	n, err := decodeNotes(rec.Progress.Ledger)
	if err != nil {
		return err
	}
	n.Backfill = json.RawMessage(at.Ledger)
	for _, d := range b.g.lanes {
		if names := b.failures(d.spec.Name); len(names) > 0 {
			n.Backfill = b.without(string(n.Backfill), d.spec.Name, names)
		}
	}
	rec.Progress.Ledger = n.encode()
	order, _ := positionsOf(b.g.src)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.schemas = slices.DeleteFunc(b.schemas, func(s newSchema) bool {
		if s.at.Zero() || order == nil {
			return false
		}
		if !order.covers(at.Position, s.at) {
			return false
		}
		id := maps.Clone(rec.Identity)
		id[columnsOf(s.dataset)] = s.columns
		rec.Identity = id
		return true
	})
	return nil
}

// failures are the datasets that failed for a sink while it was written to.
func (b *backfiller) failures(sink string) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.failed[sink])
}

// lost notes that a dataset failed for a sink, from the sink's goroutine.
func (b *backfiller) lost(sink, dataset string, err error) {
	b.mu.Lock()
	if b.failed[sink] == nil {
		b.failed[sink] = map[string]bool{}
	}
	b.failed[sink][dataset] = true
	b.mu.Unlock()
	b.g.r.failed(sink, dataset, err)
}

// without is a ledger in which a sink has nothing of some datasets, named as its lane carries them.
func (b *backfiller) without(ledger, sink string, datasets map[string]bool) json.RawMessage {
	names := make([]string, 0, len(datasets))
	b.mu.Lock()
	for d := range datasets {
		names = append(names, b.sources[d]...)
	}
	b.mu.Unlock()
	slices.Sort(names)
	return backfill.Without(json.RawMessage(ledger), sink, names)
}

// watchLag asks the source from time to time how far behind it is (S22).
func (g *generation) watchLag(done <-chan struct{}) {
	l, ok := connector.As[connector.LagReporter](g.src)
	if !ok {
		return
	}
	warned := false
	ask := func() {
		ctx, cancel := context.WithTimeout(g.hard, lagEvery)
		lag, err := l.Lag(ctx)
		cancel()
		switch {
		case err == nil:
			g.r.ctl.set(func() { g.r.ctl.status.Lag = lag })
		case !warned:
			warned = true
			g.r.log.Warn("asking for the lag", slog.Any("error", err))
		}
	}
	ask()
	g.every(lagEvery, done, ask)
}

const lagEvery = 3 * time.Second
