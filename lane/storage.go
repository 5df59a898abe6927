package lane

import (
	"context"
	"errors"
)

// The errors of a Storage.
var (
	// ErrTaken says that somebody else wrote: the log's next number, or the note's next version, is taken.
	ErrTaken = errors.New("lane: somebody else wrote to the storage")
	// ErrNoRoom says that nothing more can be stored before something is removed, or somebody makes room.
	ErrNoRoom = errors.New("there is no room")
	// ErrStopped says that the storage is of no use before it is opened again.
	ErrStopped = errors.New("the storage has stopped")
	// ErrMissing says that the log has no such entry.
	ErrMissing = errors.New("lane: no such entry")
)

// Log is a sequence of entries, numbered from 1 without a gap, of which the oldest are removed as time goes by. Its methods may be
// called from any goroutine.
type Log interface {
	// Bounds returns the numbers of the oldest and of the newest entry; first = last + 1 where there is none. Numbers are never used
	// again: last stays what it was when entries are removed.
	Bounds(ctx context.Context) (first, last uint64, err error)
	// Append makes data the entry of this number, or changes nothing. It does not wait: done is called exactly once, from any goroutine,
	// when the entry is durable, or with an error: ErrTaken where the newest entry is not number - 1 when it is its turn; any other
	// error leaves open what happened. The data is not changed by either side afterwards.
	Append(number uint64, data []byte, done func(error))
	// Read returns an entry, which the caller does not change. Error: ErrMissing.
	Read(ctx context.Context, number uint64) ([]byte, error)
	// Trim removes all entries below number. The newest entry always stays.
	Trim(ctx context.Context, number uint64) error
	// Drop removes the entries from from to to, both included, which nobody needs any more; it need not succeed.
	Drop(ctx context.Context, from, to uint64) error
}

// Note is one small value that is replaced as a whole.
type Note interface {
	// Load returns the value and its version; nil and 0 where there is none.
	Load(ctx context.Context) ([]byte, uint64, error)
	// Save replaces the value of version prev and returns the version of the new one once it is durable. Error: ErrTaken where the
	// version is another one; after any other error it is open what happened.
	Save(ctx context.Context, value []byte, prev uint64) (uint64, error)
}

// Storage is what durable lanes stand on: a log of what was published, and a note that says how far lanes got. One pipeline has it for
// itself; several owners may have it open, and all but the last one find out by ErrTaken.
type Storage interface {
	Log
	Note
	// Limit is how many bytes an entry of the log may have.
	Limit() int
	// Close ends the use of the storage. Nothing is lost.
	Close() error
}
