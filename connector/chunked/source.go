package chunked

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Dataset is one dataset to read.
type Dataset struct {
	Name   string
	Schema *record.Schema // of the empty batch that stands for a chunk without rows
	Whole  bool           // chunks can't be resumed behind: there is one position, at the dataset's end
}

// Options are the sizes of a Source. The zero value is the default.
type Options struct {
	ChunkBytes int64 // size of a chunk; 0: 16 MiB
	Readers    int   // chunks that are read at the same time; 0: 3
	Buffer     int64 // bytes that are read ahead at most, but for the batch being emitted; 0: 64 MiB, within Env.Memory
}

const (
	defaultChunkBytes = 16 << 20
	defaultReaders    = 3
	defaultBuffer     = 64 << 20
)

// Source is a bounded source over chunks. Its contract: replayable, cancel-safe, singleton.
type Source struct {
	snap     connector.Snapshotter
	datasets []Dataset
	env      connector.Env
	opt      Options

	cancel  context.CancelFunc
	readers sync.WaitGroup
	baton   chan *planner // whoever holds the planner may plan

	rest *record.Batch // a batch of which a part was delivered

	mu       sync.Mutex // guards all below
	changed  *sync.Cond
	slots    []*slot // planned chunks that are not emitted yet, in order
	planned  bool    // there are no more chunks
	buffered int64
	closed   bool
	started  bool
}

// slot is a chunk that is being read.
type slot struct {
	planned
	batches []*record.Batch
	done    bool
	err     error
}

var (
	_ connector.Source    = (*Source)(nil)
	_ connector.Positions = (*Source)(nil)
)

// New makes a source of datasets, which are read in the order of their names whatever the order given. It starts nothing.
func New(snap connector.Snapshotter, datasets []Dataset, env connector.Env, o Options) *Source {
	if o.ChunkBytes <= 0 {
		o.ChunkBytes = defaultChunkBytes
	}
	if o.Readers <= 0 {
		o.Readers = defaultReaders
	}
	if o.Buffer <= 0 {
		o.Buffer = env.Buffer(defaultBuffer)
	}
	s := &Source{snap: snap, datasets: slices.Clone(datasets), env: env, opt: o, baton: make(chan *planner, 1)}
	slices.SortFunc(s.datasets, func(a, b Dataset) int { return strings.Compare(a.Name, b.Name) })
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Compare implements connector.Positions.
func (*Source) Compare(a, b record.Position) (int, bool) { return Compare(a, b) }

// Migrate implements connector.Positions.
func (*Source) Migrate(p record.Position) (record.Position, error) { return Migrate(p) }

// Start implements connector.Source. Only the position and the cuts of the request count: the datasets are those of New.
func (s *Source) Start(ctx context.Context, start connector.SourceStart) error {
	p := &planner{snap: s.snap, datasets: s.datasets, target: s.opt.ChunkBytes, cuts: map[string][]position{}}
	var from position
	if !start.From.Position.Zero() {
		var err error
		if from, err = decode(start.From.Position); err != nil {
			return err
		}
		s.resume(p, from)
	}
	for _, c := range start.Cuts {
		cut, err := decode(c)
		if err != nil {
			return err
		}
		ahead := 1
		if from.Dataset != "" {
			ahead, _ = Compare(c, start.From.Position)
		}
		if ahead > 0 && !cut.Done {
			p.cuts[cut.Dataset] = append(p.cuts[cut.Dataset], cut)
		}
	}
	for name, cuts := range p.cuts {
		slices.SortFunc(cuts, func(a, b position) int { return cmp.Compare(a.At, b.At) })
		p.cuts[name] = slices.CompactFunc(cuts, func(a, b position) bool { return a.At == b.At })
	}
	return s.launch(ctx, p)
}

// resume moves the planner behind a position.
func (s *Source) resume(p *planner, from position) {
	for p.at < len(s.datasets) && s.datasets[p.at].Name < from.Dataset {
		p.at++
	}
	if p.at == len(s.datasets) || s.datasets[p.at].Name != from.Dataset {
		return
	}
	switch {
	case from.Done:
		p.at++
	case !s.datasets[p.at].Whole:
		p.after, p.mark = from.After, from.At
	}
}

// launch starts the readers.
func (s *Source) launch(ctx context.Context, p *planner) error {
	s.mu.Lock()
	usable := !s.started && !s.closed
	s.started = true
	s.mu.Unlock()
	if !usable {
		return errors.New("starting a chunked source a second time")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting to read chunks: %w", err)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	context.AfterFunc(run, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	s.baton <- p
	for range s.opt.Readers {
		s.readers.Add(1)
		err := s.env.Go(func(ctx context.Context) {
			defer s.readers.Done()
			stop := context.AfterFunc(ctx, cancel)
			defer stop()
			s.read(run)
		})
		if err != nil {
			s.readers.Done()
			cancel()
			return fmt.Errorf("starting a reader of chunks: %w", err)
		}
	}
	return nil
}

// read is the life of a reader: plan a chunk, read it, and so on.
func (s *Source) read(ctx context.Context) {
	for {
		c, ok := s.plan(ctx)
		if !ok {
			return
		}
		err := s.wait(ctx, func() bool { return s.isNext(c) || s.buffered <= s.opt.Buffer/2 })
		if err == nil {
			err = s.snap.ReadChunk(ctx, c.chunk, func(b *record.Batch) error { return s.push(ctx, c, b) })
		}
		s.mu.Lock()
		c.done, c.err = true, err
		s.changed.Broadcast()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// isNext reports, with mu held, whether all chunks in front of c are read, if not emitted.
func (s *Source) isNext(c *slot) bool {
	for _, o := range s.slots {
		if o == c || !o.done {
			return o == c
		}
	}
	return true
}

// plan appends the next chunk to the slots.
func (s *Source) plan(ctx context.Context) (*slot, bool) {
	var p *planner
	select {
	case p = <-s.baton:
	case <-ctx.Done():
		return nil, false
	}
	defer func() { s.baton <- p }()
	s.mu.Lock()
	over := s.planned
	s.mu.Unlock()
	if over {
		return nil, false
	}
	next, ok, err := p.chunk(ctx)
	c := &slot{planned: next, done: err != nil, err: err}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned = !ok
	if ok || err != nil {
		s.slots = append(s.slots, c)
	}
	s.changed.Broadcast()
	return c, ok
}

// wait returns when ready is true, which is asked with mu held.
func (s *Source) wait(ctx context.Context, ready func() bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !ready() {
		if err := ctx.Err(); err != nil {
			return err //nolint:wrapcheck // callers say what was being done
		}
		s.changed.Wait()
	}
	return nil
}

// push hands a batch over to the emitter. The chunk in front is never kept waiting while nothing of it is there to emit.
func (s *Source) push(ctx context.Context, c *slot, b *record.Batch) error {
	size := b.Bytes()
	err := s.wait(ctx, func() bool {
		return s.buffered+size <= s.opt.Buffer || (s.slots[0] == c && len(c.batches) < 2)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.batches = append(c.batches, b)
	s.buffered += size
	s.changed.Broadcast()
	return nil
}

// Close implements connector.Source: it ends the readers and waits for them.
func (s *Source) Close(context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	if s.cancel == nil {
		return nil
	}
	s.cancel()
	s.readers.Wait()
	select {
	case p := <-s.baton:
		p.close()
	default:
	}
	s.mu.Lock()
	s.slots, s.rest, s.buffered = nil, nil, 0
	s.mu.Unlock()
	return nil
}

var errClosed = errors.New("reading a source that is closed or not started")

// Read implements connector.Source.
func (s *Source) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if s.rest == nil {
		if err := s.fill(ctx, want); err != nil {
			return nil, err
		}
	}
	var b *record.Batch
	b, s.rest = Split(s.rest, want)
	return b, nil
}

// Split cuts a batch to what a Read wants. The rest, nil if there is none, keeps the position; the head has the rejects.
func Split(b *record.Batch, want connector.Limit) (head, rest *record.Batch) {
	n := fitting(b, want)
	if n == b.NumRows() {
		return b, nil
	}
	first, tail := *b, *b
	if b.Encoded != nil {
		first.Encoded, tail.Encoded = b.Encoded.Slice(0, n), b.Encoded.Slice(n, b.NumRows())
	} else {
		first.Rows, tail.Rows = b.Rows.NewSlice(0, int64(n)), b.Rows.NewSlice(int64(n), b.Rows.NumRows())
	}
	first.Position, first.Size = record.Position{}, b.Size*int64(n)/int64(b.NumRows())
	tail.Rejects, tail.Size = nil, b.Size-first.Size
	return &first, &tail
}

// fitting is how many rows of b the limit allows, at least one.
func fitting(b *record.Batch, want connector.Limit) int {
	n := b.NumRows()
	if want.Rows == 0 || n == 0 {
		return n
	}
	fit := min(n, want.Rows)
	if size := b.Bytes(); want.Bytes > 0 && size > want.Bytes {
		fit = min(fit, max(1, int(int64(n)*want.Bytes/size)))
	}
	return fit
}

// fill takes the next batch, or all of a dataset where nothing is to be split.
func (s *Source) fill(ctx context.Context, want connector.Limit) error {
	b, last, err := s.pop(ctx)
	if err != nil {
		return err
	}
	if want.Rows != 0 || last {
		s.rest = b
		return nil
	}
	all := []*record.Batch{b}
	for !last {
		if b, last, err = s.pop(ctx); err != nil {
			return err
		}
		all = append(all, b)
	}
	s.rest, err = Join(all)
	return err
}

// pop waits for the next batch of the chunk in front. Its last batch is held back until the chunk is complete, because it carries
// the position. last: the batch ends its dataset, or a cut.
func (s *Source) pop(ctx context.Context) (b *record.Batch, last bool, err error) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	err = s.wait(ctx, func() bool {
		if s.closed || !s.started || (len(s.slots) == 0 && s.planned) {
			return true
		}
		return len(s.slots) > 0 && (s.slots[0].done || len(s.slots[0].batches) > 1)
	})
	if err != nil {
		return nil, false, fmt.Errorf("waiting for a chunk: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || !s.started:
		return nil, false, errClosed
	case len(s.slots) == 0:
		return nil, false, io.EOF
	case s.slots[0].err != nil:
		return nil, false, s.slots[0].err
	}
	b, last = s.take(s.slots[0])
	s.changed.Broadcast()
	return b, last, nil
}

// take removes a batch from the chunk in front, and the chunk with its last one.
func (s *Source) take(c *slot) (*record.Batch, bool) {
	b := &record.Batch{Schema: c.dataset.Schema, Chunk: &c.chunk}
	if len(c.batches) > 0 {
		b = c.batches[0]
		c.batches[0] = nil
		c.batches = c.batches[1:]
		s.buffered -= b.Bytes()
	}
	if !c.done || len(c.batches) > 0 {
		return b, false
	}
	s.slots = s.slots[1:]
	out := *b
	out.Position = c.position
	return &out, c.last
}
