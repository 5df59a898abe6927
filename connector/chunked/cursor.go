package chunked

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// cursorShape is the version of CursorPosition's layout.
const cursorShape = 1

// CursorPosition is the position of a source that reads by cursor: how far each dataset was read by complete rounds, and how far the
// open one got. S is how far one dataset was read. A persisted format.
type CursorPosition[S any] struct {
	Round   int64        `json:"round"`             // complete rounds over all datasets
	Cursors map[string]S `json:"cursors"`           // of each dataset, as its last read left it
	Dataset string       `json:"dataset,omitempty"` // being read; those before it are done in this round
	Open    *S           `json:"open,omitempty"`    // how far Dataset is read
	Step    int64        `json:"step,omitempty"`    // grows with Open: cursors are compared only by the server
}

// Encode returns the position for the engine.
func (p CursorPosition[S]) Encode() record.Position {
	doc, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("chunked: encoding a cursor position: %v", err)) // strings and numbers always marshal
	}
	return record.Position{Shape: cursorShape, Data: doc}
}

// DecodeCursors reads what Encode made. The error has class ClassPosition.
func DecodeCursors[S any](p record.Position) (CursorPosition[S], error) {
	var out CursorPosition[S]
	d := json.NewDecoder(bytes.NewReader(p.Data))
	d.DisallowUnknownFields()
	err := d.Decode(&out)
	switch {
	case p.Shape != cursorShape:
		err = fmt.Errorf("the position has shape %d, this version knows shape %d", p.Shape, cursorShape)
	case err != nil || out.Cursors == nil:
		err = errors.New("the position is not one of this source")
	default:
		return out, nil
	}
	return CursorPosition[S]{}, &connector.Error{
		Class: connector.ClassPosition, Code: "position.unknown", Doing: "resuming from a saved position", Err: err,
		Hint: "reset the pipeline's state to read everything again",
	}
}

// CompareCursors orders positions by round, dataset and step, see connector.Positions. Between two rounds the dataset is empty, which
// comes first.
func CompareCursors[S any](a, b record.Position) (int, bool) {
	p, errA := DecodeCursors[S](a)
	q, errB := DecodeCursors[S](b)
	if errA != nil || errB != nil {
		return 0, false
	}
	return cmp.Or(cmp.Compare(p.Round, q.Round), strings.Compare(p.Dataset, q.Dataset), cmp.Compare(p.Step, q.Step)), true
}

// With returns a position whose dataset is read up to state.
func (p CursorPosition[S]) With(dataset string, open S, step int64) CursorPosition[S] {
	p.Dataset, p.Open, p.Step = dataset, &open, step
	return p
}

// Finished returns a position behind a dataset: next is the one that follows, empty at the end of the round.
func (p CursorPosition[S]) Finished(dataset string, state S, next string) CursorPosition[S] {
	p.Cursors = maps.Clone(p.Cursors)
	p.Cursors[dataset] = state
	p.Dataset, p.Open, p.Step = next, nil, 0
	if next == "" {
		p.Round++
	}
	return p
}

// cursorQueue is how many batches are read ahead.
const cursorQueue = 4

// Cursors reads what is new behind a cursor, one dataset after another, each in the order of (cursor, key): a bounded source, whose next
// run goes on behind this one. It is the part that does not depend on the system: Dataset reads one dataset.
type Cursors[S any] struct {
	Env      connector.Env
	Datasets []string // sorted
	// Dataset reads what is new of dataset i, emits it, and moves At: to places within the dataset (CursorPosition.With), which it gives
	// batches where one can be, and in the end behind it (CursorPosition.Finished; next is the dataset that follows, or empty). Batches end
	// exactly at the Cuts of the dataset. It runs in a goroutine of its own.
	Dataset func(ctx context.Context, i int, next string) error

	At   CursorPosition[S]   // belongs to Dataset
	Cuts []CursorPosition[S] // places ahead where batches have to end, in order

	queue  chan *record.Batch
	cancel context.CancelFunc
	reader sync.WaitGroup
	rest   *record.Batch
	failed error // of the reader; read after queue was closed
	closed bool
}

// Start implements connector.Source.
func (c *Cursors[S]) Start(ctx context.Context, start connector.SourceStart) error {
	c.At = CursorPosition[S]{Cursors: map[string]S{}}
	if p := start.From.Position; !p.Zero() {
		var err error
		if c.At, err = DecodeCursors[S](p); err != nil {
			return err
		}
	}
	for _, p := range start.Cuts {
		cut, err := DecodeCursors[S](p)
		if err != nil {
			return err
		}
		if order, _ := CompareCursors[S](p, c.At.Encode()); order > 0 && cut.Open != nil {
			c.Cuts = append(c.Cuts, cut)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting to read by cursor: %w", err)
	}
	c.queue = make(chan *record.Batch, cursorQueue)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	c.reader.Add(1)
	err := c.Env.Go(func(ctx context.Context) {
		defer c.reader.Done()
		stop := context.AfterFunc(ctx, cancel)
		defer stop()
		defer close(c.queue)
		c.failed = c.run(run)
	})
	if err != nil {
		c.reader.Done()
		return fmt.Errorf("starting to read by cursor: %w", err)
	}
	return nil
}

// run reads all datasets of the round that are not done.
func (c *Cursors[S]) run(ctx context.Context) error {
	if n := len(c.Datasets); c.At.Dataset != "" && (n == 0 || c.Datasets[n-1] < c.At.Dataset) {
		c.At.Dataset, c.At.Open, c.At.Step = "", nil, 0 // the rest of the round is gone: a new one begins
		c.At.Round++
	}
	for i, dataset := range c.Datasets {
		if dataset < c.At.Dataset {
			continue
		}
		next := ""
		if i+1 < len(c.Datasets) {
			next = c.Datasets[i+1]
		}
		if err := c.Dataset(ctx, i, next); err != nil {
			return err
		}
	}
	return nil
}

// Emit queues a batch: Dataset calls it.
func (c *Cursors[S]) Emit(ctx context.Context, b *record.Batch) error {
	select {
	case c.queue <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller says what was being done
	}
}

// Read implements connector.Source.
func (c *Cursors[S]) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if c.cancel == nil || c.closed {
		return nil, errors.New("reading a source that is not open")
	}
	if c.rest == nil {
		b, err := c.next(ctx)
		if err != nil {
			return nil, err
		}
		if want.Rows == 0 {
			if b, err = c.whole(ctx, b); err != nil {
				return nil, err
			}
		}
		c.rest = b
	}
	var b *record.Batch
	b, c.rest = Split(c.rest, want)
	return b, nil
}

// whole joins the batches up to the end of the dataset, or to a cut.
func (c *Cursors[S]) whole(ctx context.Context, b *record.Batch) (*record.Batch, error) {
	all := []*record.Batch{b}
	for !c.ends(b) {
		var err error
		if b, err = c.next(ctx); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return Join(all)
}

func (c *Cursors[S]) ends(b *record.Batch) bool {
	if b.Position.Zero() {
		return false
	}
	p, err := DecodeCursors[S](b.Position)
	cut := func(at CursorPosition[S]) bool { return at.Encode().Equal(b.Position) }
	return err != nil || p.Open == nil || slices.ContainsFunc(c.Cuts, cut)
}

func (c *Cursors[S]) next(ctx context.Context) (*record.Batch, error) {
	select {
	case b, ok := <-c.queue:
		switch {
		case ok:
			return b, nil
		case c.failed != nil:
			return nil, c.failed
		}
		return nil, io.EOF
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for rows: %w", ctx.Err())
	}
}

// Close implements connector.Source.
func (c *Cursors[S]) Close(context.Context) error {
	c.closed = true
	if c.cancel == nil {
		return nil
	}
	c.cancel()
	c.reader.Wait()
	return nil
}
