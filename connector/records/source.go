package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Source reads records one by one. Methods are never called concurrently, and a value is used for one generation: after an error it is
// closed and replaced.
//
// It may have any capability of a source of package connector: connector.Discoverer where it knows its datasets in advance,
// connector.Positions where more than one sink is to follow it, connector.Acknowledger where it can release what is durable,
// connector.Notifier, connector.Tip, connector.Checker and so on. Positions are the same everywhere, see [Form].
type Source interface {
	// Seek makes the source go on behind a position; zero: where the configuration begins. It is called once, before the first Poll. An
	// error of class ClassPosition says that the position can't be resumed from.
	Seek(ctx context.Context, at record.Position) error
	// Poll puts the next record into row; false: nothing now; io.EOF: a bounded source is done. It does not wait for long: what was polled
	// before is handed out when there is nothing more.
	Poll(ctx context.Context, row *Row) (ok bool, err error)
	// Checkpoint returns the position behind all records that were polled, and of a source that moves on while it has none, behind
	// those that it passed. It is called only where no unit is open, see [Row.More].
	Checkpoint(ctx context.Context) (record.Position, error)
	// Close releases everything. It is called once, also after a failed Seek.
	Close(ctx context.Context) error
}

// Narrower is a source of records that is a connector.Splitter, too: before Seek it hears which splits it is to read; it reads no others.
type Narrower interface {
	Narrow(splits []connector.Split) error
}

// FromRecords makes a connector.Source of a source of single records.
//
// The rows of a batch are as many as are wanted, or as are there. Records of several datasets that come in turns are sorted out: the
// batches of one gathering have their position on the last one, and rows of one dataset keep their order; such a source is Interleaved by
// its contract. A unit of several records (Row.More) is kept together where it fits, else its batches have no position before the last.
func FromRecords(src Source) connector.Source {
	s := &source{src: src}
	if d, ok := src.(connector.Discoverer); ok {
		return &discovering{source: s, discoverer: d}
	}
	return s
}

// source is one generation of a source of records.
type source struct {
	src     Source
	started bool
	closed  bool
	ended   bool // Poll returned io.EOF
	row     Row
	rows    gathering
	told    record.Position   // the newest that was handed out, or started from
	cuts    []record.Position // that lie ahead
	ready   []*record.Batch   // to be handed out
	open    bool              // the newest record is not the last one of its unit
	whole   int               // rows up to the end of the last whole unit
	longest int               // rows of the longest unit so far
	tell    map[string]*record.Schema
}

var (
	_ connector.Source     = (*source)(nil)
	_ connector.Discoverer = (*discovering)(nil)
)

// Unwrap lets the source's own capabilities be found.
func (s *source) Unwrap() any { return s.src }

// Start implements connector.Source.
func (s *source) Start(ctx context.Context, req connector.SourceStart) error {
	if err := req.Validate(); err != nil {
		return err //nolint:wrapcheck // speaks for itself
	}
	if err := s.narrow(req.Splits); err != nil {
		return err
	}
	s.cuts, s.told = slices.Clone(req.Cuts), req.From.Position
	s.rows.only(req.Datasets)
	if err := s.src.Seek(ctx, req.From.Position); err != nil {
		return err //nolint:wrapcheck // the source's own words
	}
	s.started = true
	return nil
}

// narrow passes on which splits are to be read.
func (s *source) narrow(splits []connector.Split) error {
	if len(splits) == 0 {
		return nil
	}
	n, ok := s.src.(Narrower)
	if !ok {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "records.split", Doing: "starting a source",
			Err: errors.New("it is to read a part, and can only read the whole"), Hint: "read it on one node",
		}
	}
	return n.Narrow(splits) //nolint:wrapcheck // the source's own words
}

// Read implements connector.Source.
func (s *source) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if !s.started || s.closed {
		return nil, errors.New("reading a source that is not open")
	}
	if len(s.ready) == 0 && !s.ended {
		if err := s.gather(ctx, want); err != nil {
			return nil, err
		}
	}
	if len(s.ready) > 0 {
		b := s.ready[0]
		s.ready = s.ready[1:]
		return b, nil
	}
	if s.ended {
		return nil, io.EOF
	}
	return nil, nil //nolint:nilnil // nothing now
}

// patience bounds how long records are gathered: what is there should not wait for what comes slowly.
const patience = 100 * time.Millisecond

// gather polls until there is enough or nothing more, and makes batches of it. Before an error nothing of what was polled is lost: where
// a cancelled value goes on, the next call has it.
func (s *source) gather(ctx context.Context, want connector.Limit) error {
	began := time.Now()
	for !s.full(want) && (want.Rows == 0 || time.Since(began) < patience) {
		ok, err := s.poll(ctx)
		switch {
		case err == io.EOF: //nolint:errorlint // one inside of another error is a connection that was cut
			if s.open {
				return errOpenUnit
			}
			s.ended = true
			return s.hand(ctx)
		case err != nil:
			return err
		case !ok:
			return s.hand(ctx)
		}
		cut, err := s.atCut(ctx)
		if err != nil {
			return err
		}
		if cut {
			break
		}
	}
	return s.hand(ctx)
}

var errOpenUnit = errors.New("the source ended inside of a unit: its last record says that there is more")

// poll takes one record.
func (s *source) poll(ctx context.Context) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("polling: %w", err)
	}
	s.row.begin(&s.rows)
	ok, err := s.src.Poll(ctx, &s.row)
	if err != nil || !ok {
		if e := s.row.drop(); err == nil {
			err = e
		}
		return false, err //nolint:wrapcheck // the source's own words
	}
	if err := s.row.end(); err != nil {
		return false, err
	}
	if s.open = s.row.more; !s.open {
		s.longest = max(s.longest, s.rows.n-s.whole)
		s.whole = s.rows.n
	}
	return true, nil
}

// full reports whether a batch should end here: at the wanted size, or at the end of a unit where another one may no longer fit.
func (s *source) full(want connector.Limit) bool {
	switch {
	case want.Rows > 0 && s.rows.n >= want.Rows, want.Bytes > 0 && s.rows.bytes >= want.Bytes && s.rows.n > 0:
		return true
	}
	return !s.open && s.longest > 1 && s.rows.n > 0 && want.Rows > 0 && s.rows.n+s.longest > want.Rows
}

// atCut reports whether the source stands where a batch has to end.
func (s *source) atCut(ctx context.Context) (bool, error) {
	if len(s.cuts) == 0 || s.open {
		return false, nil
	}
	at, err := s.src.Checkpoint(ctx)
	if err != nil {
		return false, err //nolint:wrapcheck // the source's own words
	}
	i := slices.IndexFunc(s.cuts, at.Equal)
	if i < 0 {
		return false, nil
	}
	s.cuts = s.cuts[i+1:]
	return true, nil
}

// hand makes batches of what was gathered.
func (s *source) hand(ctx context.Context) error {
	at := record.Position{}
	if !s.open {
		var err error
		if at, err = s.src.Checkpoint(ctx); err != nil {
			return err //nolint:wrapcheck // the source's own words
		}
	}
	s.whole -= s.rows.n // below 0: the open unit has rows that were handed out
	batches := s.rows.take()
	for _, b := range batches {
		delete(s.tell, b.Schema.Dataset)
	}
	if s.ended {
		batches = append(batches, s.silent()...)
	}
	if at.Equal(s.told) && len(batches) == 0 {
		return nil
	}
	if !at.Zero() {
		if len(batches) == 0 {
			batches = []*record.Batch{{}}
		}
		batches[len(batches)-1].Position = at
		s.told = at
	}
	s.ready = batches
	return nil
}

// silent returns an empty batch for every dataset that had no record, so that sinks learn its schema.
func (s *source) silent() []*record.Batch {
	var out []*record.Batch
	for _, name := range sortedKeys(s.tell) {
		if s.rows.selects(name) {
			out = append(out, emptyBatch(s.tell[name]))
		}
	}
	s.tell = nil
	return out
}

// Close implements connector.Source.
func (s *source) Close(ctx context.Context) error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.src.Close(ctx) //nolint:wrapcheck // the source's own words
}

// discovering is a source of records that knows its datasets in advance.
type discovering struct {
	*source
	discoverer connector.Discoverer
	asked      bool
}

// Discover implements connector.Discoverer.
func (d *discovering) Discover(ctx context.Context) ([]connector.Dataset, error) {
	found, err := d.discoverer.Discover(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // the source's own words
	}
	d.asked, d.tell = true, map[string]*record.Schema{}
	for _, ds := range found {
		if ds.Schema != nil {
			d.tell[ds.Name] = ds.Schema
		}
	}
	return found, nil
}

// Start implements connector.Source.
func (d *discovering) Start(ctx context.Context, req connector.SourceStart) error {
	if !d.asked {
		if _, err := d.Discover(ctx); err != nil {
			return err
		}
	}
	return d.source.Start(ctx, req)
}
