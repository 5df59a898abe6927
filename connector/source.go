package connector

import (
	"context"
	"encoding/json"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/record"
)

// Limit is what one Read should return at most. Rows 0: do not split, one batch for the whole result. Both are targets that only
// a replay unit that can't be cut may exceed, up to the contract's hard limits.
type Limit struct {
	Rows  int
	Bytes int64
}

// Origin says what a start position is.
type Origin uint8

// The origins.
const (
	Initial     Origin = iota // the configured default; Position is zero
	Initialised               // a default that was resolved once and saved before the first read
	Resume                    // a saved position; Attempt is nonzero
)

// From says where a source starts.
type From struct {
	Origin   Origin
	Attempt  uint64 // the attempt that saved Position; nonzero exactly where Origin is Resume
	Position record.Position
}

// SourceStart is a start request. The engine validates it before any I/O, see Validate.
type SourceStart struct {
	From      From
	Guarantee Guarantee
	Datasets  []string          // resolved selection; empty: all that the configuration selects
	Splits    []Split           // empty: the whole
	Cuts      []record.Position // places ahead where a batch must end, see Positions; earliest first, each covers those before it
	Encoded   []string          // of an EncodedSource: datasets whose rows are to come in its own encoding
}

// Source reads batches. Methods are never called concurrently. A value is one generation: after an error or a cancelled call it is
// closed and replaced, unless its contract says that cancelling is safe.
type Source interface {
	// Start installs the position and makes the source active in one step. After an error nothing is left behind outside; the
	// value is closed and discarded.
	Start(ctx context.Context, s SourceStart) error
	// Read returns the next batch; nil and no error: nothing now; io.EOF: a bounded source is done. A bounded source returns at
	// least one batch, if an empty one, for every dataset, so that sinks learn its schema. The position of the last batch before
	// io.EOF covers all that came before it.
	Read(ctx context.Context, want Limit) (*record.Batch, error)
	// Close releases everything. It is safe after a failed Start and may be called more than once.
	Close(ctx context.Context) error
}

// SourceConfig is the typed configuration of a source, and builds it. Implementations are pointers to structs whose exported
// fields are options, see [Options].
type SourceConfig interface {
	// Contract says what a source of exactly this configuration promises. Pure: no I/O, the same answer each time. It also
	// validates the configuration.
	Contract() (SourceContract, error)
	// Identity returns the options that decide what the positions mean (which tables, which query), never endpoints, credentials
	// or buffer sizes. Pure.
	Identity() map[string]string
	// Open builds the source without I/O.
	Open(env Env) (Source, error)
}

// Capabilities of a source.
type (
	// Acknowledger releases upstream what is durable in every sink and saved. Idempotent; an older position is ignored; one
	// that was never delivered is an error.
	Acknowledger interface {
		Acknowledge(ctx context.Context, p record.Position) error
	}
	// Notifier has a channel that says that Read may have something. Lost and spurious wake-ups do no harm.
	Notifier interface {
		Ready() <-chan struct{}
	}
	// Positions orders the source's positions by what they cover: all that a read from the beginning delivers up to there. Pure; may be
	// called before Start.
	//
	// The order need not be total. A position of several parts (an offset for each partition, a set of transactions of several servers)
	// covers another one if it does so in every part; of two that each lack something of the other, none is the later one. But what one
	// source delivers is a chain: each position covers those before it. Where lanes stand at different places of that chain, the source
	// starts at the first and gets the others as SourceStart.Cuts. It ends a batch exactly at each of them, and delivers nothing that a
	// cut does not cover before it was there: a part that has come to the cut waits for the others.
	Positions interface {
		// Compare returns -1 where b covers all that a covers, and more, 1 the other way round, and 0 where both cover the same. It is
		// false where neither covers the other, or where one is no position of this source.
		Compare(a, b record.Position) (order int, ok bool)
		// Migrate reads a position of an older shape; an error of class ClassPosition refuses a newer shape or another
		// source's position.
		Migrate(p record.Position) (record.Position, error)
	}
	// Originator resolves the configured default start to a position, reading metadata only. The engine saves it before the
	// first read.
	Originator interface {
		ResolveOrigin(ctx context.Context) (record.Position, error)
	}
	// Anchor makes the server-side resume point exist and returns it, consuming nothing. The engine calls it where nothing is saved,
	// and saves what it returned before the first read.
	Anchor interface {
		Anchor(ctx context.Context) (record.Position, error)
	}
	// Discoverer lists the datasets that the configuration selects, with schema, key and estimates. It reads catalogues, or a
	// bounded sample of files; it is called before Start, and what it saw of a stream is not lost for Read.
	Discoverer interface {
		Discover(ctx context.Context) ([]Dataset, error)
	}
	// Snapshotter cuts a dataset into chunks and reads them. Both methods may be called concurrently with all others, each on a
	// connection of its own.
	Snapshotter interface {
		// PlanChunks yields consecutive chunks in key order that cover everything behind after (nil: from the beginning) to
		// the open end, each of about target bytes; 0: what the source is configured for. A dataset that can't be cut is one chunk.
		PlanChunks(ctx context.Context, dataset string, after []byte, target int64) ChunkSeq
		// ReadChunk reads one chunk in one consistent transaction. Batches have no position. All that it emits carries the same
		// Chunk.Snapshot; a chunk without rows emits one empty batch, so that its snapshot and its schema are known.
		ReadChunk(ctx context.Context, c record.Chunk, emit func(*record.Batch) error) error
	}
	// Merger lets chunks of a Snapshotter be merged with the stream of changes that Read returns, so that a lane sees a row as of one
	// snapshot and then exactly the changes of the transactions which that snapshot does not include. Every batch of changes of such a
	// source has Txns, and its chunks say which snapshot they were read under: after Start one that sees every transaction that ended
	// before the position of the start, and before any position of the Cuts. All methods may be called concurrently with all others.
	Merger interface {
		// Now returns a snapshot of this moment, of the same kind as record.Chunk.Snapshot.
		Now(ctx context.Context) (record.Position, error)
		// Includes reports whether the snapshot sees the transaction whose run has position txn. Pure.
		Includes(snapshot, txn record.Position) bool
		// Outlived reports that the snapshot surely includes no transaction that ends behind at, a position of the stream. Pure.
		Outlived(snapshot, at record.Position) bool
		// Locate returns for each row the number of bounds that its key lies behind, by the order that the chunks are cut in: i for
		// bounds[i-1] < key <= bounds[i]. bounds are ends of chunks (Chunk.To), ascending. The key columns of rows are those of the
		// schema; other columns may be missing values.
		Locate(ctx context.Context, s *record.Schema, rows arrow.RecordBatch, bounds []json.RawMessage) ([]int, error)
		// KeyOf returns the key of row i in the form of record.Chunk.Keys; equal keys have equal bytes. Pure.
		KeyOf(s *record.Schema, rows arrow.RecordBatch, i int) json.RawMessage
	}
	// Conditional is a Snapshotter whose chunks may have a condition, record.Chunk.Where: one expression of the source's own language about
	// the columns of the dataset. Both methods may be called concurrently with all others.
	Conditional interface {
		// CheckWhere says what is wrong with a condition; it evaluates nothing. Error: class ClassPermanent where the source refuses it.
		CheckWhere(ctx context.Context, dataset, where string) error
		// PlanWhere is PlanChunks for the rows that meet a condition: chunks of about target bytes of these rows. It may have one chunk
		// where they are few. The chunks cover all keys, and have no condition.
		PlanWhere(ctx context.Context, dataset, where string, after []byte, target int64) ChunkSeq
	}
	// Tip says where the stream ends at this moment: a position behind all that is committed. A run that is to end there has succeeded
	// only once it came that far.
	Tip interface {
		Tip(ctx context.Context) (record.Position, error)
	}
	// Dropper removes what the source keeps on the server for a pipeline that has retired (a slot, a publication). Describe says what
	// Drop would remove, one line each, and changes nothing. Both are called on a source that was not started.
	Dropper interface {
		Describe(ctx context.Context) ([]string, error)
		Drop(ctx context.Context) error
	}
	// Splitter lists independent parts with stable ids; target is a hint of how many.
	Splitter interface {
		Splits(ctx context.Context, target int) ([]Split, error)
	}
	// EncodedSource can hand out rows in its own encoding, as it gets them: batches of the datasets of SourceStart.Encoded have
	// record.Batch.Encoded instead of Rows. All else about them is the same: order, chunks, positions and sizes.
	EncodedSource interface {
		// Encoding returns record.Encoded.Format of a dataset, or else why its rows have to be decoded, in words. It is called after
		// Discover and before Start.
		Encoding(ctx context.Context, dataset string) (format, why string, err error)
	}
	// Checker looks for what would go wrong, with the fix of each. It changes nothing and consumes nothing. Sinks have it too.
	Checker interface {
		Check(ctx context.Context) ([]Probe, error)
	}
	// LagReporter says how far behind the source is. Cheap and read-only; may be called before Start, and concurrently with all others;
	// an error never fails a run.
	LagReporter interface {
		Lag(ctx context.Context) (Lag, error)
	}
	// Controlled is a source whose control plane (an assignment, a membership) must agree with what it reads. The engine calls
	// DriveControl, which never blocks, on every turn; while Reconciled is false the source is neither read nor checkpointed, and an
	// error of it fails the generation.
	Controlled interface {
		DriveControl()
		Reconciled() (bool, error)
	}
	// Named is a dataset's URI for lineage, by the OpenLineage naming rules, without credentials. Sinks have it too.
	Named interface {
		URI(dataset string) string
	}
)
