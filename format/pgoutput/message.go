package pgoutput

import "time"

// Message is one message of the stream: one of the types of this file, as a value.
//
// The XID of what comes between StreamStart and StreamStop, of which Parse is told, is that of the transaction or subtransaction that
// did it: what StreamAbort takes back by its SubXID. Elsewhere it is 0.
type Message interface{ message() }

// Begin starts a transaction that comes as a whole.
type Begin struct {
	FinalLSN uint64 // of its commit record: Commit.LSN
	Time     time.Time
	XID      uint32
}

// Commit ends what Begin started.
type Commit struct {
	LSN    uint64 // of the commit record
	EndLSN uint64 // behind it
	Time   time.Time
}

// Origin says that the transaction was replicated to the server from elsewhere; it follows Begin or StreamStart.
type Origin struct {
	LSN  uint64 // of the commit there
	Name string
}

// Relation describes a table; it comes before the first change of the table, and again after the table changed.
type Relation struct {
	XID       uint32
	ID        uint32 // the OID
	Namespace string
	Name      string
	Identity  byte // REPLICA IDENTITY as in pg_class: d default, n nothing, f full, i index
	Columns   []Column
}

// Column is one column of a Relation; tuples have their values in this order.
type Column struct {
	Name string
	Type uint32 // OID
	Mod  int32  // modifier, -1: none
	Key  bool   // part of the replica identity
}

// Type names a type that is not built in; it comes before the first Relation with it.
type Type struct {
	XID       uint32
	ID        uint32
	Namespace string
	Name      string
}

// Insert is a new row.
type Insert struct {
	XID, Relation uint32
	New           Tuple
}

// Update is a changed row. OldKind says what Old is: 0 nothing, for the key did not change; 'K' the columns of the replica identity,
// all others null; 'O' the whole row before.
type Update struct {
	XID, Relation uint32
	OldKind       byte
	Old, New      Tuple
}

// Delete is a deleted row. OldKind is 'K' or 'O', as in Update.
type Delete struct {
	XID, Relation uint32
	OldKind       byte
	Old           Tuple
}

// Truncate empties tables.
type Truncate struct {
	XID                      uint32
	Relations                []uint32
	Cascade, RestartIdentity bool
}

// LogicalMessage is what pg_logical_emit_message wrote.
type LogicalMessage struct {
	XID           uint32
	Transactional bool
	LSN           uint64
	Prefix        string
	Content       []byte
}

// StreamStart begins a block of changes of a transaction that is still open.
type StreamStart struct {
	XID   uint32
	First bool // of this transaction's blocks
}

// StreamStop ends the block.
type StreamStop struct{}

// StreamCommit commits a transaction that came in blocks.
type StreamCommit struct {
	XID         uint32
	LSN, EndLSN uint64
	Time        time.Time
}

// StreamAbort takes back a transaction that came in blocks, or the changes of one of its subtransactions.
type StreamAbort struct {
	XID, SubXID uint32 // equal: the whole transaction
	LSN         uint64 // only with protocol 4 and streaming = parallel, as Time
	Time        time.Time
}

// BeginPrepare starts a transaction that comes as a whole at its PREPARE TRANSACTION.
type BeginPrepare struct {
	LSN, EndLSN uint64
	Time        time.Time
	XID         uint32
	GID         string
}

// Prepare ends what BeginPrepare started.
type Prepare struct {
	LSN, EndLSN uint64
	Time        time.Time
	XID         uint32
	GID         string
}

// CommitPrepared commits a prepared transaction.
type CommitPrepared struct {
	LSN, EndLSN uint64
	Time        time.Time
	XID         uint32
	GID         string
}

// RollbackPrepared takes back a prepared transaction.
type RollbackPrepared struct {
	PrepareEndLSN uint64 // Prepare.EndLSN
	EndLSN        uint64 // behind the record of the rollback
	PrepareTime   time.Time
	Time          time.Time
	XID           uint32
	GID           string
}

// StreamPrepare prepares a transaction that came in blocks.
type StreamPrepare struct {
	LSN, EndLSN uint64
	Time        time.Time
	XID         uint32
	GID         string
}

func (Begin) message()            {}
func (Commit) message()           {}
func (Origin) message()           {}
func (Relation) message()         {}
func (Type) message()             {}
func (Insert) message()           {}
func (Update) message()           {}
func (Delete) message()           {}
func (Truncate) message()         {}
func (LogicalMessage) message()   {}
func (StreamStart) message()      {}
func (StreamStop) message()       {}
func (StreamCommit) message()     {}
func (StreamAbort) message()      {}
func (BeginPrepare) message()     {}
func (Prepare) message()          {}
func (CommitPrepared) message()   {}
func (RollbackPrepared) message() {}
func (StreamPrepare) message()    {}
