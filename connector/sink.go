package connector

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/leatdata/leat/record"
)

// SinkStart is a sink's start request.
type SinkStart struct {
	Pipeline  string // stable name; with Lane the key of what a position store keeps
	Lane      string
	Run       string // the run being served: a replace that was begun by another run is discarded
	Fence     uint64 // grows with every owner; a sink that saw a higher one refuses with class ClassFenced
	Guarantee Guarantee
	Mode      WriteMode
}

// Sink writes batches. Methods are never called concurrently; a value is one generation.
type Sink interface {
	Start(ctx context.Context, s SinkStart) error
	// Write takes a batch, and may buffer it. The first batch of a dataset makes the dataset exist. Rows that the target refuses
	// are reported as *RowErrors where the sink is a RowRejecter: then all other rows are written. Any other error poisons the
	// value: nothing that was not yet durable becomes durable.
	Write(ctx context.Context, b *record.Batch) error
	// Flush returns when everything written survives loss of power. A PositionStore is asked for Commit instead.
	Flush(ctx context.Context) error
	// Close releases everything; what was not flushed or committed is rolled back. It is safe after a failed Start and may be
	// called more than once.
	Close(ctx context.Context) error
}

// SinkConfig is the typed configuration of a sink, and builds it; see SourceConfig.
type SinkConfig interface {
	Contract() (SinkContract, error)
	Identity() map[string]string
	Open(env Env) (Sink, error)
}

// Capabilities of a sink.
type (
	// PositionStore commits what was written since the last commit together with the lane's progress, in one transaction, under
	// the start's fence.
	PositionStore interface {
		Commit(ctx context.Context, p record.Progress) error
		// Committed reads the progress of the lane that Start named; false: none. A read error is never "none".
		Committed(ctx context.Context) (record.Progress, bool, error)
	}
	// TwoPhase makes what was written visible epoch by epoch, in two steps. The engine keeps the decision between them: it saves the
	// intent before the first Write of an epoch, calls Prepare, saves by one compare-and-set that the epoch is decided, with what Prepare
	// returned, and then calls Publish. After a crash it calls Publish once more where the epoch was decided, else Abort; so Start
	// removes nothing that was prepared. There is no Flush and no Commit. A value of an older fence publishes and aborts nothing.
	TwoPhase interface {
		// Prepare stages durably all that was written since the last epoch, under p.Epoch, which grows. Nothing of it is visible. What
		// it returns (JSON) is all that Publish needs to know, of this value or of a later one, also in another process.
		Prepare(ctx context.Context, p record.Progress) (staged json.RawMessage, err error)
		// Publish makes a prepared epoch visible, all at once, with p as the progress of the lane. Idempotent: an epoch that is visible
		// already stays as it is.
		Publish(ctx context.Context, p record.Progress, staged json.RawMessage) error
		// Abort removes all that the lane has staged and not published. Idempotent; valid without a Prepare, and right after Start.
		Abort(ctx context.Context) error
		// Committed reads back the progress of the newest epoch that is visible; false: none. A read error is never "none".
		Committed(ctx context.Context) (record.Progress, bool, error)
	}
	// Finisher makes visible what becomes visible only as a whole: the files, or the replacement of a dataset (mode Replace).
	// The engine calls it once, after the last Write, when the whole bounded run was written; with a PositionStore the progress
	// (Done) is committed in the same transaction. It is idempotent: after an unknown outcome it is called again.
	Finisher interface {
		Finish(ctx context.Context, p record.Progress) error
	}
	// Mapper says how the columns of a dataset will be stored. It may look at the target, changes nothing, and is called
	// before Start.
	Mapper interface {
		Map(ctx context.Context, s *record.Schema) ([]Mapping, error)
	}
	// Evolver brings what the sink holds to another schema, idempotently, also on replay: it adds columns (filled with
	// record.MissingOf where the field says so), and widens, renames and drops them, as record.Diff tells. The engine calls it
	// before the first Write of a batch whose schema differs from the last one of that dataset; from is nil for the first batch of a
	// value of a source that sends changes: then it only adds the columns that the target lacks.
	Evolver interface {
		Evolve(ctx context.Context, from, to *record.Schema) error
	}
	// EncodedSink takes rows in a source's own encoding, record.Batch.Encoded, in modes Append and Replace. A Write of such a batch that
	// needs single rows after all (the target refused one, or is no longer what it was) writes nothing of it and returns an error with
	// ErrNeedsRows in its tree: the engine comes again with the same rows decoded.
	EncodedSink interface {
		// TakesEncoding says why rows of the schema in this format have to be decoded, in words; empty: they can be written as they are.
		// It is asked before Start, as Mapper.Map is, and changes nothing.
		TakesEncoding(ctx context.Context, s *record.Schema, format string) (why string, err error)
	}
	// RowRejecter promises that Write reports refused rows as *RowErrors and writes the others.
	RowRejecter interface {
		RejectsRows()
	}
	// Readback hands out the configuration of a source over what the sink wrote.
	Readback interface {
		Readback(dataset string) (SourceConfig, error)
	}
)

// ErrNeedsRows says that a batch of an EncodedSink can't be written without decoding it.
var ErrNeedsRows = errors.New("the rows have to be decoded")
