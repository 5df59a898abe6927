package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgoutput"
	"github.com/leatdata/leat/record"
)

// Waiting of a stream.
const (
	idleEvery  = time.Second           // between two positions without changes
	lingerPart = 16                    // a stream that is behind waits for this part of that, so that batches are larger
	lingerMost = 50 * time.Millisecond // and no longer than this
	lingerStep = 5 * time.Millisecond  // how often it looks meanwhile
	askEvery   = 256                   // messages between two looks at the context
)

// stream reads the changes of the tables from a replication slot, as the server sends them.
//
// Three goroutines serve it. One reads from the connection into the inbox, as far as there is room. One tells the server on its own
// timer what arrived and what was acknowledged, so that the server waits patiently however long nobody reads. One looks for new
// tables. All decoding happens in Read, which takes whole transactions from the inbox into a group, and hands over one batch for each
// dataset, the last one with the position.
//
// Transactions that the server sends while they are open are kept in spools and handed over when they are committed.
type stream struct {
	s    *Source
	wire *wire
	in   *inbox
	stop context.CancelFunc
	work sync.WaitGroup
	once sync.Once

	code     *positionCode
	binary   bool
	datasets map[string]*streamDataset
	excluded map[string]bool // selected by the configuration, and not by the start
	cuts     []lsn
	spools   *spools

	// What follows belongs to the goroutine that reads.
	want      connector.Limit
	group     group
	partial   bool // a piece of the present transaction was handed over
	out       []handed
	at        txnEnd // what was handed over ends here, or will once out was taken
	idle      lsn    // nothing that ends before is still to come, but for what is collected
	told      time.Time
	began     time.Time     // when the first change of the group was taken
	sent      time.Time     // when the server sent the present message
	behind    time.Duration // from the commit of the newest transaction to its coming, on the server's clock
	txn       *transaction  // nil, or &present
	present   transaction
	block     *spool // of the open transaction whose block is being read
	replay    *replay
	newest    uint64 // transaction
	relations map[uint32]*streamRelation
	overlay   map[uint32]*streamRelation // descriptions within the transaction that is being replayed
	described uint64
	last      *streamRelation
	types     map[uint32]pgoutput.Type
	names     map[uint32]string // datasets of relations
	failed    error

	joining chan struct{} // capacity 1: held while tables join
	mu      sync.Mutex    // guards what follows
	joined  []*sourceTable

	received  atomic.Uint64 // the server sent all before
	confirmed atomic.Uint64 // acknowledged
	delivered atomic.Uint64 // handed over
	newestAt  atomic.Int64  // when the newest transaction that was handed over was committed; nanoseconds since 1970
	heard     atomic.Int64  // when something was read last; nanoseconds since 1970
	waiting   atomic.Bool   // for the server to send something
	asked     chan struct{} // capacity 1: the server wants an answer
}

// handed is a batch on its way out.
type handed struct {
	batch *record.Batch
	end   lsn // of its position; 0: it has none
}

func newStream(s *Source) *stream {
	return &stream{
		s: s, in: newInbox(s.ready), stop: func() {}, datasets: map[string]*streamDataset{}, excluded: map[string]bool{},
		relations: map[uint32]*streamRelation{}, overlay: map[uint32]*streamRelation{},
		types: map[uint32]pgoutput.Type{}, names: map[uint32]string{},
		joining: make(chan struct{}, 1), asked: make(chan struct{}, 1),
	}
}

// Read implements connector.Source. It waits for nothing but, for a moment, for more where a lot came just now. Nothing is lost where it
// is cancelled.
func (f *stream) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	f.want = limits(want)
	for n := 0; len(f.out) == 0; n++ {
		if n%askEvery == 0 {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("reading the stream of changes: %w", err)
			}
		}
		if f.failed != nil {
			return nil, f.failed
		}
		more, err := f.step(ctx)
		if err != nil {
			if f.group.whole && (f.txn == nil || f.txn.at < 0) {
				f.emit() // what is complete is not lost
				break
			}
			return nil, f.fail(ctx, err)
		}
		if !more && !f.rest(ctx) {
			return nil, nil
		}
	}
	next := f.out[0]
	f.out = f.out[1:]
	if next.end > 0 {
		f.delivered.Store(uint64(next.end))
	}
	return next.batch, nil
}

// fail translates an error. One that the context caused may be over with the next call.
func (f *stream) fail(ctx context.Context, err error) error {
	if cause := over(ctx); cause != nil {
		return fmt.Errorf("reading the stream of changes: %w", cause)
	}
	f.failed = f.streamError("reading the stream of changes", err)
	return f.failed
}

// over is why the context is over; nil: it is not. A connection may notice the end a moment before the context itself.
func over(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err() //nolint:wrapcheck // callers say what was being done
}

// rest is what happens when there is nothing to read: what was collected is handed over, or news without changes. It returns false
// where there is nothing to tell either.
func (f *stream) rest(ctx context.Context) bool {
	if f.txn != nil {
		return false
	}
	if f.group.whole && f.linger(ctx) {
		return true
	}
	f.announce()
	if len(f.group.parts) == 0 && (f.idle <= f.at.lsn || time.Since(f.told) < idleEvery) {
		return false
	}
	f.emit()
	return true
}

// linger waits a moment for more, where the stream is behind anyway: by a fraction of that.
func (f *stream) linger(ctx context.Context) bool {
	rest := min(f.behind/lingerPart, lingerMost) - time.Since(f.began)
	if rest <= 0 || len(f.group.parts) == 0 {
		return false
	}
	t := time.NewTimer(min(rest, lingerStep)) // not until something comes: that would be one message at a time
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return true
}

// announce lets datasets join that are new: an empty batch says so.
func (f *stream) announce() {
	f.mu.Lock()
	joined := f.joined
	f.joined = nil
	f.mu.Unlock()
	for _, t := range joined {
		if f.datasets[t.dataset] != nil {
			continue
		}
		d := &streamDataset{table: t, schema: t.schema}
		f.datasets[t.dataset] = d
		f.group.part(d)
	}
}

// flush hands over a piece of a transaction that is too large for one batch. Its memory does not grow with it.
func (f *stream) flush() {
	for _, b := range f.group.take(f.code) {
		f.out = append(f.out, handed{batch: b})
	}
	f.txn.at = -1
	f.partial = true
}

// emit hands over what was collected, up to the end of the last transaction; without one, up to where nothing happened.
func (f *stream) emit() {
	f.announce()
	end := f.at
	switch {
	case f.group.whole && (len(f.group.parts) > 0 || f.group.end.lsn >= f.idle):
		end = f.group.end
	case f.idle > f.at.lsn:
		end = txnEnd{lsn: f.idle}
	}
	batches := f.group.take(f.code)
	if len(batches) == 0 {
		batches = append(batches, &record.Batch{})
	}
	for _, b := range batches {
		f.out = append(f.out, handed{batch: b})
	}
	last := &f.out[len(f.out)-1]
	last.batch.Position, last.end = f.code.encode(end), end.lsn
	f.at, f.partial, f.told = end, false, time.Now()
	f.idle = max(f.idle, end.lsn)
	f.cuts = slices.DeleteFunc(f.cuts, func(c lsn) bool { return c <= end.lsn })
	if !end.time.IsZero() {
		f.newestAt.Store(end.time.UnixNano())
	}
}

// reachCut ends a batch at a cut that lies before next, the next place at which something may be handed over. It returns false where
// there is none.
func (f *stream) reachCut(next lsn) bool {
	if len(f.cuts) == 0 || f.cuts[0] > next {
		return false
	}
	if f.group.whole || len(f.group.parts) > 0 {
		f.emit()
	}
	if len(f.cuts) > 0 && f.cuts[0] <= next {
		f.idle = f.cuts[0]
		f.emit()
	}
	return true
}

// age is how long ago the newest transaction was committed that was handed over, where more is waiting; 0: nothing is, -1: unknown. It may
// be called concurrently with everything.
func (f *stream) age() time.Duration {
	newest := f.newestAt.Load()
	switch {
	case f.in.empty():
		return 0
	case newest == 0:
		return -1
	}
	return max(time.Since(time.Unix(0, newest)), 1)
}

// acknowledge is connector.Acknowledger's method.
func (f *stream) acknowledge(p record.Position) error {
	at, err := decodeStream(p)
	if err != nil {
		return err
	}
	if at.System != f.code.origin.System || at.Slot != f.code.origin.Slot || uint64(at.LSN) > f.delivered.Load() {
		return &connector.Error{
			Class: connector.ClassPosition, Code: "postgres.position", Doing: "acknowledging " + at.LSN.String(),
			Err: errors.New("this position was never delivered"), Hint: "this is a mistake of the program: please report it",
		}
	}
	for {
		was := f.confirmed.Load()
		if uint64(at.LSN) <= was || f.confirmed.CompareAndSwap(was, uint64(at.LSN)) {
			return nil
		}
	}
}

// Close implements connector.Source. The server hears of the last acknowledgement, and gives the slot free.
func (f *stream) Close(ctx context.Context) error {
	f.once.Do(func() {
		f.stop()
		f.work.Wait()
		if f.wire != nil {
			_ = f.wire.conn.Close()
		}
		if f.spools == nil {
			return
		}
		if err := f.spools.close(); err != nil {
			f.s.env.Log.WarnContext(ctx, "removing the files of open transactions", slog.Any("error", err))
		}
	})
	return nil
}
