package mysql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/chunked"
	"github.com/leatdata/leat/record"
)

// queueLength is how many batches are read ahead.
const queueLength = 4

// incremental reads what is new behind a cursor, one dataset after another, each in one transaction and in the order of (cursor,
// key).
type incremental struct {
	src    *Source
	tables []*sourceTable

	queue  chan *record.Batch
	cancel context.CancelFunc
	reader sync.WaitGroup
	rest   *record.Batch

	at   cursorPosition
	cuts []cursorPosition

	failed error // of the reader; read after queue was closed
}

func newIncremental(s *Source, tables []*sourceTable) *incremental {
	return &incremental{src: s, tables: tables, queue: make(chan *record.Batch, queueLength)}
}

// Start implements connector.Source.
func (in *incremental) Start(ctx context.Context, start connector.SourceStart) error {
	in.at = cursorPosition{Cursors: map[string]cursorState{}}
	if p := start.From.Position; !p.Zero() {
		var err error
		if in.at, err = decodeCursors(p); err != nil {
			return err
		}
	}
	for _, c := range start.Cuts {
		cut, err := decodeCursors(c)
		if err != nil {
			return err
		}
		if order, _ := compareCursors(c, in.at.encode()); order > 0 && cut.Open != nil {
			in.cuts = append(in.cuts, cut)
		}
	}
	slices.SortFunc(in.cuts, func(a, b cursorPosition) int {
		order, _ := compareCursors(a.encode(), b.encode())
		return order
	})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting to read by cursor: %w", err)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	in.cancel = cancel
	in.reader.Add(1)
	err := in.src.env.Go(func(ctx context.Context) {
		defer in.reader.Done()
		stop := context.AfterFunc(ctx, cancel)
		defer stop()
		defer close(in.queue)
		in.failed = in.run(run)
	})
	if err != nil {
		in.reader.Done()
		return fmt.Errorf("starting to read by cursor: %w", err)
	}
	return nil
}

// run reads all datasets of the round that are not done.
func (in *incremental) run(ctx context.Context) error {
	if n := len(in.tables); in.at.Dataset != "" && (n == 0 || in.tables[n-1].dataset < in.at.Dataset) {
		in.at.Dataset, in.at.Open, in.at.Step = "", nil, 0 // the rest of the round is gone: a new one begins
		in.at.Round++
	}
	for i, t := range in.tables {
		if t.dataset < in.at.Dataset {
			continue
		}
		next := ""
		if i+1 < len(in.tables) {
			next = in.tables[i+1].dataset
		}
		if err := in.dataset(ctx, t, next); err != nil {
			return in.src.tableError("reading by cursor", t, err)
		}
	}
	return nil
}

// emit queues a batch.
func (in *incremental) emit(ctx context.Context, b *record.Batch) error {
	select {
	case in.queue <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller says what was being done
	}
}

// Read implements connector.Source.
func (in *incremental) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if in.rest == nil {
		b, err := in.next(ctx)
		if err != nil {
			return nil, err
		}
		if want.Rows == 0 {
			if b, err = in.whole(ctx, b); err != nil {
				return nil, err
			}
		}
		in.rest = b
	}
	var b *record.Batch
	b, in.rest = chunked.Split(in.rest, want)
	return b, nil
}

// whole joins the batches up to the end of the dataset, or to a cut.
func (in *incremental) whole(ctx context.Context, b *record.Batch) (*record.Batch, error) {
	all := []*record.Batch{b}
	for !in.ends(b) {
		var err error
		if b, err = in.next(ctx); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return chunked.Join(all) //nolint:wrapcheck // says what it did
}

func (in *incremental) ends(b *record.Batch) bool {
	if b.Position.Zero() {
		return false
	}
	p, err := decodeCursors(b.Position)
	return err != nil || p.Open == nil || slices.ContainsFunc(in.cuts, func(c cursorPosition) bool { return c.encode().Equal(b.Position) })
}

func (in *incremental) next(ctx context.Context) (*record.Batch, error) {
	select {
	case b, ok := <-in.queue:
		switch {
		case ok:
			return b, nil
		case in.failed != nil:
			return nil, in.failed
		}
		return nil, io.EOF
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for rows: %w", ctx.Err())
	}
}

// Close implements connector.Source.
func (in *incremental) Close(context.Context) error {
	if in.cancel == nil {
		return nil
	}
	in.cancel()
	in.reader.Wait()
	return nil
}

var errNoCursor = errors.New("the cursor is not among the columns that are read")
