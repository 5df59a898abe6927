package lane

import (
	"context"
	"errors"
	"time"

	"github.com/leatdata/leat/record"
)

// The errors of streams, consumers and deliveries. They are returned as they are, or wrapped with the name of the lane.
var (
	// ErrClosed says that the stream takes no more publications, or that this consumer was closed by its owner.
	ErrClosed = errors.New("lane: closed")
	// ErrFenced says that another consumer took over the lane: stop, and write nothing more.
	ErrFenced = errors.New("lane: another consumer took over")
	// ErrRevoked says that the delivery is no longer valid: its item went back to the lane and is delivered again.
	ErrRevoked = errors.New("lane: the delivery was taken back")
	// ErrDetached says that the lane would have held more than its quota and was let go: what waited in it is gone, and its sink has
	// to be filled anew.
	ErrDetached = errors.New("lane: detached, it held more than its quota")
	// ErrUnknownSink says that the stream was built without a lane of that name.
	ErrUnknownSink = errors.New("lane: unknown sink")
)

// Item is what lanes carry: a [Batch] or a [SnapshotComplete].
//
//sumtype:decl
type Item interface{ item() }

// Batch is an item of rows. Every lane shares the same batch; nobody changes it.
type Batch struct {
	*record.Batch
	// Ledger is the state of open backfills at the batch's position, the JSON of record.Progress; empty where there is no position, or
	// none is kept.
	Ledger string
}

// Mark is how far lanes got: the parts of a record.Progress that a stream carries.
type Mark struct {
	Position record.Position
	Ledger   string
}

// Equal reports whether both are the same bytes.
func (m Mark) Equal(n Mark) bool { return m.Ledger == n.Ledger && m.Position.Equal(n.Position) }

// SnapshotComplete marks in a lane the end of a snapshot that its sink asked for. It has no position.
type SnapshotComplete struct{ Datasets []string }

func (Batch) item()            {}
func (SnapshotComplete) item() {}

// Request is what a sink sends back up: snapshot these datasets into my lane.
type Request struct {
	Sink     string
	Datasets []string // sorted and unique once it was accepted
}

// Delivery is an item in the hand of a consumer. Its methods may be called from any goroutine, any number of times, in any order:
// the first Ack or Nack counts.
type Delivery[T any] interface {
	Item() T
	// Number is that of the publication: it grows along the lane, and stays the same when the item comes again.
	Number() uint64
	// Ack says that the item is durable in the sink. It returns nil exactly if this delivery has acknowledged the item, now or
	// by an earlier call; ErrRevoked if the item went back before (it will be delivered again); ErrFenced if another consumer
	// took over.
	Ack() error
	// Nack gives the item back, and with it takes back every later item that is in flight on the lane, so that they come again
	// in order. After an Ack, or once the delivery is no longer valid, it does nothing.
	Nack() error
}

// Consumer is the receiving end of a lane. Its methods are called by one goroutine at a time; deliveries may be used by others.
type Consumer[T any] interface {
	// Receive waits for the next item. It does not wait for earlier deliveries to be acknowledged: how many are in flight, and so
	// how much memory they hold, is up to the consumer. The error is io.EOF when the stream is closed and nothing is queued
	// (items given back after that are received again), ErrFenced, ErrClosed after Close, or the context's: then nothing is lost.
	Receive(ctx context.Context) (Delivery[T], error)
	// CaughtUp reports whether nothing waits behind what was received: a good moment to flush. It is a hint.
	CaughtUp() bool
	// Close gives back what is in flight and ends this consumer. Idempotent.
	Close() error
}

// Input is where the reader publishes. Its methods may be called from any goroutine; publications are served in order of arrival
// wherever they go to a common lane.
type Input interface {
	// Publish puts the item into the lanes of the named sinks, or of all sinks if none is named, under one publication number. It
	// waits for room in each of them, and enters all at the same time; after an error it entered none. An item with a position
	// goes to all lanes, else it is refused. Errors: ErrClosed, ErrUnknownSink, the context's.
	Publish(ctx context.Context, it Item, to ...string) error
	// Close ends publication; lanes drain and then give io.EOF. Idempotent.
	Close() error
}

// Requests is the way back up, from sinks to the reader.
type Requests interface {
	// Ask queues a request. It never waits, so that no cycle of full queues can arise: what a sink asks for while an earlier
	// request of it is still queued is merged into that one. Errors: ErrClosed, ErrUnknownSink.
	Ask(r Request) error
	// Requests attaches the consumer of requests, and fences the previous one. A request is acknowledged after the
	// SnapshotComplete that answers it was published into the lane that asked; unacknowledged ones come again.
	Requests() (Consumer[Request], error)
}

// Progress says how far all lanes got.
type Progress interface {
	// Watermark returns the position that every tracked lane has acknowledged, with its ledger; false until there is one. It never
	// goes back.
	Watermark() (Mark, bool)
	// Moved is a channel of capacity 1 that gets a value when the watermark has moved or the stream has become idle.
	Moved() <-chan struct{}
	// Idle reports whether, at one moment, nothing is queued and nothing is in flight: no item on any lane, tracked or not, and
	// no request.
	Idle() bool
}

// Stream is the lanes of one pipeline. The set of its sinks is fixed when it is built.
type Stream interface {
	Input
	Requests
	Progress
	// Lane attaches a consumer to the sink's lane. It fences the previous one; what that had not acknowledged comes again, in
	// order, before anything new. Error: ErrUnknownSink.
	Lane(sink string) (Consumer[Item], error)
	// Stats counts what went through the sink's lane. Error: ErrUnknownSink.
	Stats(sink string) (Stats, error)
}

// Spec says which stream is to be opened.
type Spec struct {
	Pipeline string // stable name
	Run      string // a stream that was written by another run of the pipeline is emptied first
	Sinks    []string
	Anew     []string // of Sinks: their lanes are created once more, whatever they hold
	Options
	Quota Quota // of each lane that outlives the process
}

// Quota bounds what one lane may hold on disk. The zero value is no bound.
type Quota struct {
	Bytes int64         // 0: no bound
	Age   time.Duration // of the oldest item that is not acknowledged; 0: no bound
	// Detach lets a lane go that is over its quota, and its sink is filled anew when it is back; false: the reader waits, and with it the
	// source.
	Detach bool
}

// Durable is a stream whose lanes outlive the process: what was published and is durable comes again after a crash, to each sink from
// behind what that has acknowledged. It is opened by one process at a time; opening it fences the one before.
//
// The reader has no need to wait for sinks: what Stored tells may be released by the source. Whatever was published behind that mark is
// removed when the stream is opened, as the source sends it again.
type Durable interface { //nolint:interfacebloat // one stream with one owner: nobody has a part of it
	Stream
	// Stored returns the mark of the newest item with a position that is durable, with all before it, in every lane; false: there is
	// none. It never goes back; Moved tells of it, too.
	Stored() (Mark, bool)
	// Found tells how a lane stood when the stream was opened. Error: ErrUnknownSink.
	Found(sink string) (Found, error)
	// Covered says that the sink has everything up to and with the item of this number, which is acknowledged. False: the lane has
	// acknowledged more than that, so the sink was put back to an older state. It is called before a consumer is attached.
	// Errors: ErrUnknownSink, ErrDetached; class ClassPosition where the lanes never had so much.
	Covered(sink string, number uint64) (bool, error)
	// Attach lets a detached lane take again what is published from now on. Error: ErrUnknownSink.
	Attach(sink string) error
	// Holds tells how much the sink's lane holds on disk. Error: ErrUnknownSink.
	Holds(sink string) (Holding, error)
	// Release ends the stream without losing anything: unlike Close it may come while items wait. Idempotent.
	Release() error
}

// Found is how a lane of a durable stream stood when that was opened.
type Found uint8

// The ways.
const (
	Created  Found = iota // there was no such lane: it takes what is published from now on
	Kept                  // it goes on behind what was acknowledged
	Detached              // it was let go, see ErrDetached
)

// Holding is what a durable lane holds: items that are stored, or about to be, and not acknowledged. Its bytes are those on disk.
type Holding struct {
	Count
	Oldest   time.Time // when the oldest of them was published; zero: none
	Acked    uint64    // number of the last item of the contiguous acknowledged ones; 0: none
	Last     uint64    // number of the newest item of the lane; 0: none
	Fresh    bool      // the lane was created or attached after the mark of Stored, which so tells nothing of it
	Detached bool
}

// Stats adds up: Published = Acked + InFlight + Queued, in each count.
type Stats struct {
	Published, Acked, InFlight, Queued Count
}

// Count is an amount of items. Changes are the source changes that items say they were built from: 0 for snapshot rows. Bytes are of
// memory.
type Count struct {
	Items, Rows, Changes, Bytes int64
}

func (c Count) plus(d Count) Count {
	return Count{c.Items + d.Items, c.Rows + d.Rows, c.Changes + d.Changes, c.Bytes + d.Bytes}
}

func (c Count) minus(d Count) Count {
	return Count{c.Items - d.Items, c.Rows - d.Rows, c.Changes - d.Changes, c.Bytes - d.Bytes}
}

// countOf returns what one item adds to the counts.
func countOf(it Item) Count {
	b, ok := it.(Batch)
	if !ok {
		return Count{Items: 1}
	}
	return Count{Items: 1, Rows: int64(b.NumRows()), Changes: int64(b.Changes), Bytes: b.Bytes()}
}

// markOf returns the item's position and ledger, zero where it has none.
func markOf(it Item) Mark {
	if b, ok := it.(Batch); ok && !b.Position.Zero() {
		return Mark{b.Position, b.Ledger}
	}
	return Mark{}
}
