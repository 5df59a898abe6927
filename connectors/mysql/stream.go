package mysql

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
	"github.com/leatdata/leat/format/mybinlog"
	"github.com/leatdata/leat/record"
)

// Waiting of a stream.
const (
	idleEvery  = time.Second           // between two positions without changes
	lingerPart = 16                    // a stream that is behind waits for this part of that, so that batches are larger
	lingerMost = 50 * time.Millisecond // and no longer than this
	lingerStep = 5 * time.Millisecond  // how often it looks meanwhile
	askEvery   = 256                   // events between two looks at the context
)

// stream reads the changes of the tables from the binary log, as the server sends it.
//
// A goroutine reads from the connection into the inbox, as far as there is room. All decoding happens in Read, which takes whole
// transactions from the inbox into a group, and hands over one batch for each dataset, the last one with the position. A transaction that
// is too large for that is handed over in pieces, of which only the last one has a position: a stream that is resumed begins with the
// transaction's first change again.
//
// Columns, and what a table is called, change in the stream where the statements stand that changed them: see history.
type stream struct {
	s    *Source
	db   querier
	srv  server
	wire *wire
	in   *inbox
	stop context.CancelFunc
	work sync.WaitGroup
	once sync.Once

	code       *positionCode
	byPlace    bool // the server has no GTIDs
	datasets   map[string]*streamDataset
	excluded   map[string]bool // selected by the configuration, and not by the start
	cuts       []mark
	history    *history
	collations map[uint16]collation
	caughtUp   place // where the log ended when the stream was started
	charsets   map[string]*charset

	// What follows belongs to the goroutine that reads.
	want      connector.Limit
	group     group
	partial   bool // a piece of the present transaction was handed over
	out       []handed
	gtids     *mybinlog.GTIDSet // all up to what was read
	text      []byte            // of gtids
	now       place             // behind the present event
	place     place             // behind the last transaction, or what concerns nobody
	at        txnEnd            // what was handed over ends here, or will once out was taken
	quiet     bool              // something ended since that concerns nobody
	told      time.Time
	began     time.Time     // when the first change of the group was taken
	behind    time.Duration // from the commit of the newest transaction to its coming, as far as the clocks agree
	txn       *transaction  // nil, or &present
	present   transaction
	open      bool            // the transaction has an end of its own
	rows      *pendingRows    // an event of which rows are left
	payload   *payload        // a compressed transaction of which events are left
	xa        *prepared       // the transaction that is being prepared
	pending   []*prepared     // those that wait to be committed
	again     *preparedReplay // one that is committed now
	maps      map[uint64]*logTable
	format    mybinlog.Format
	zeros     int             // dates that became NULL
	only      bool            // no table joins: somebody looks what happened to one
	order     []mybinlog.GTID // with only: the transactions that were read, in order
	unknownXA bool            // a transaction was committed that was prepared before the stream began
	failed    error

	newestAt  atomic.Int64 // when the newest transaction that was handed over was committed; nanoseconds since 1970
	heard     atomic.Int64 // when something was read last; nanoseconds since 1970
	mu        sync.Mutex   // guards what follows
	delivered place        // of the newest position that was handed over
}

// handed is a batch on its way out.
type handed struct {
	batch *record.Batch
	end   place // of its position; zero: it has none
}

func newStream(s *Source) *stream {
	return &stream{
		s: s, in: newInbox(s.ready), stop: func() {}, datasets: map[string]*streamDataset{}, excluded: map[string]bool{},
		history: newHistory(), charsets: map[string]*charset{}, maps: map[uint64]*logTable{},
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
		if err == nil && !more {
			more, err = f.rest(ctx)
		}
		switch {
		case err != nil && f.group.whole && (f.txn == nil || f.txn.at < 0) && ctx.Err() == nil:
			if e := f.emit(ctx); e != nil { // what is complete is not lost
				return nil, f.fail(ctx, e)
			}
			_ = f.fail(ctx, err) // the next call returns it
		case err != nil:
			return nil, f.fail(ctx, err)
		case !more:
			return nil, nil
		}
	}
	next := f.out[0]
	f.out = f.out[1:]
	if next.end != (place{}) {
		f.mu.Lock()
		f.delivered = next.end
		f.mu.Unlock()
	}
	return next.batch, nil
}

// fail translates an error. One that the context caused may be over with the next call.
func (f *stream) fail(ctx context.Context, err error) error {
	cancelled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || connectionLost(err)
	if cause := ctx.Err(); cause != nil && cancelled {
		return fmt.Errorf("reading the stream of changes: %w", cause)
	}
	f.failed = f.streamError("reading the stream of changes", err)
	return f.failed
}

// rest is what happens when there is nothing to read: what was collected is handed over, or news without changes. It returns false
// where there is nothing to tell either.
func (f *stream) rest(ctx context.Context) (more bool, err error) {
	if f.txn != nil {
		return false, nil
	}
	if f.group.whole && f.linger(ctx) {
		return true, nil
	}
	if len(f.group.parts) == 0 && (!f.quiet || time.Since(f.told) < idleEvery || f.undecided()) {
		return false, nil
	}
	return true, f.emit(ctx)
}

// linger waits a moment for more, where the stream is behind anyway: by a fraction of that.
func (f *stream) linger(ctx context.Context) bool {
	rest := min(f.behind/lingerPart, lingerMost) - time.Since(f.began)
	if rest <= 0 || len(f.group.parts) == 0 {
		return false
	}
	t := time.NewTimer(min(rest, lingerStep)) // not until something comes: that would be one event at a time
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return true
}

// flush hands over a piece of a transaction that is too large for one batch. Its memory does not grow with it.
func (f *stream) flush() error {
	batches, err := f.take()
	for _, b := range batches {
		f.out = append(f.out, handed{batch: b})
	}
	f.txn.at = -1
	f.partial = true
	return err
}

// here is the end of what was read.
func (f *stream) here() txnEnd {
	if f.text == nil {
		f.text = f.gtids.Append(nil)
	}
	return txnEnd{gtids: f.text, place: f.place}
}

// undecided reports whether transactions wait to be committed whose changes were read: a stream that is resumed has to read them again,
// so that nothing behind them may be a position.
func (f *stream) undecided() bool { return len(f.pending) > 0 }

// emit hands over what was collected, up to the end of the last transaction; without one, up to where nothing happened.
func (f *stream) emit(ctx context.Context) error {
	end := f.here()
	if f.group.whole {
		end = f.group.end
		if f.quiet {
			end.gtids, end.place = f.here().gtids, f.place
			end.gtid = mybinlog.GTID{}
		}
	}
	batches, err := f.take()
	if err != nil {
		return err
	}
	if len(batches) == 0 {
		batches = append(batches, &record.Batch{})
	}
	for _, b := range batches {
		f.out = append(f.out, handed{batch: b})
	}
	f.partial, f.told, f.quiet = false, time.Now(), false
	if !end.time.IsZero() {
		f.newestAt.Store(end.time.UnixNano())
	}
	f.warnZeros(ctx)
	if f.undecided() {
		return nil
	}
	last := &f.out[len(f.out)-1]
	last.batch.Position, last.end = f.code.encode(end.gtids, end.gtid, end.place, true), end.place
	f.at = end
	f.passCuts()
	return nil
}

func (f *stream) warnZeros(ctx context.Context) {
	if f.zeros > 0 {
		f.s.env.Log.WarnContext(ctx, "dates that no calendar has were read as NULL", slog.Int("values", f.zeros))
		f.zeros = 0
	}
}

// mark is the present place in the form of cuts.
func (f *stream) mark() mark {
	return mark{flavor: f.code.flavor, gtids: f.gtids, place: f.place, server: f.code.server}
}

// passCuts forgets the cuts that were reached.
func (f *stream) passCuts() {
	if len(f.cuts) == 0 {
		return
	}
	now := f.mark()
	f.cuts = slices.DeleteFunc(f.cuts, func(c mark) bool {
		order, ok := now.compare(c)
		return ok && order >= 0
	})
}

// reachCut ends a batch at a cut that lies in front of what comes next: a transaction, or (gtid zero) what ends at next. It returns false
// where there is none.
func (f *stream) reachCut(ctx context.Context, gtid mybinlog.GTID, next place) (bool, error) {
	if len(f.cuts) == 0 {
		return false, nil
	}
	c := f.cuts[0]
	switch {
	case !gtid.Zero() && !c.gtids.IsEmpty():
		if c.gtids.Has(gtid) {
			return false, nil
		}
	case c.server != f.code.server || next.compare(c.place) <= 0:
		return false, nil
	}
	if f.group.whole || len(f.group.parts) > 0 {
		if err := f.emit(ctx); err != nil {
			return false, err
		}
	}
	if len(f.cuts) > 0 && f.cuts[0].place == c.place && f.cuts[0].server == c.server {
		if c.server == f.code.server && f.place.compare(c.place) < 0 {
			f.place = c.place
		}
		if err := f.emit(ctx); err != nil {
			return false, err
		}
		f.cuts = slices.DeleteFunc(f.cuts, func(o mark) bool { return o.place == c.place && o.server == c.server })
	}
	return true, nil
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

// Acknowledge implements connector.Acknowledger: the server keeps nothing for a reader of its log.
func (f *stream) Acknowledge(_ context.Context, p record.Position) error {
	at, err := decodeStream(p)
	if err != nil {
		return err
	}
	f.mu.Lock()
	delivered := f.delivered
	f.mu.Unlock()
	if at.Server == f.code.server && at.place.compare(delivered) > 0 {
		return &connector.Error{
			Class: connector.ClassPosition, Code: "mysql.position", Doing: "acknowledging " + at.place.String(),
			Err: errors.New("this position was never delivered"), Hint: "this is a mistake of the program: please report it",
		}
	}
	return nil
}

// Close implements connector.Source.
func (f *stream) Close(ctx context.Context) error {
	f.once.Do(func() {
		f.stop()
		f.work.Wait()
		if f.wire != nil {
			f.wire.broken = true // the server sends without an end: there is nobody to say goodbye to
			_ = f.wire.close()
		}
		if f.payload != nil {
			f.payload.close()
		}
		for _, x := range f.pending {
			x.drop(ctx, f.s.env.Log)
		}
		if f.xa != nil {
			f.xa.drop(ctx, f.s.env.Log)
		}
	})
	return nil
}
