package connector

import (
	"fmt"
	"time"
)

// Guarantee is what a pipeline promises.
type Guarantee uint8

// The guarantees, weakest first. The zero value asks for the best that source and sinks reach together.
const (
	BestGuarantee   Guarantee = iota
	AtLeastOnce               // nothing is lost; after a crash rows may come twice
	EffectivelyOnce           // rows may be written twice, with the same outcome
	ExactlyOnce               // each row is applied once
)

// String returns the name that configurations use.
func (g Guarantee) String() string {
	return name(int(g), "best", "at-least-once", "effectively-once", "exactly-once")
}

// ParseGuarantee reads what String returns; empty is BestGuarantee.
func ParseGuarantee(s string) (Guarantee, error) {
	for g := BestGuarantee; g <= ExactlyOnce; g++ {
		if s == g.String() || (s == "" && g == BestGuarantee) {
			return g, nil
		}
	}
	return 0, fmt.Errorf("unknown guarantee %q: want at-least-once, effectively-once or exactly-once", s)
}

// WriteMode is how rows of inserts meet what is already there.
type WriteMode uint8

// The write modes. The zero value is Append.
const (
	Append  WriteMode = iota // add rows
	Upsert                   // insert, update and delete by key
	Replace                  // the rows become all that the dataset holds, visible at once when the run ends
)

// String returns the name that configurations use.
func (m WriteMode) String() string { return name(int(m), "append", "upsert", "replace") }

// ParseWriteMode reads what String returns; empty is Append.
func ParseWriteMode(s string) (WriteMode, error) {
	for m := Append; m <= Replace; m++ {
		if s == m.String() || (s == "" && m == Append) {
			return m, nil
		}
	}
	return 0, fmt.Errorf("unknown mode %q: want append, upsert or replace", s)
}

// Replay is what a source does when it is started at a position a second time.
type Replay uint8

// The kinds of replay, weakest first.
const (
	NoReplay      Replay = iota // it can't: standard input, a queue that forgets
	Replayable                  // the same changes come again, perhaps more than needed
	Deterministic               // exactly what follows the position comes again, in the same order; see SourceContract.Interleaved
)

// String names the replay for people.
func (r Replay) String() string { return name(int(r), "none", "at-least-once", "deterministic") }

// Topology is how a source may be spread over nodes.
type Topology uint8

// The topologies.
const (
	Singleton  Topology = iota // one node reads all
	Splittable                 // splits may be read by different nodes
	NodeLocal                  // each node has its own
)

// Input is the kind of rows that a source sends or a sink takes.
type Input uint8

// The kinds of input, simplest first.
const (
	AppendOnly Input = iota // only inserts
	Keyed                   // upserts and deletes by key
	Changelog               // every change, with its operation
)

// Atomicity is what a sink can make one with its rows.
type Atomicity uint8

// The kinds of atomicity, weakest first.
const (
	NoAtomicity           Atomicity = iota // a crash may leave rows whose position was not saved
	KeyedWrites                            // writing a row again gives the same outcome
	PositionInTransaction                  // a PositionStore
	TwoPhaseCommit                         // prepare and publish by epoch, see TwoPhase
	Whole                                  // nothing is visible before Finish; a crash starts the run again
)

// String names the atomicity for people.
func (a Atomicity) String() string {
	return name(int(a), "none", "keyed", "position in the transaction", "two-phase", "whole")
}

// SourceContract is what a source promises for one exact configuration. The zero value is the weakest.
type SourceContract struct {
	Replay       Replay
	Interleaved  bool // it has parts, such as partitions: rows of one come in the same order each time, the parts among each other do not
	Topology     Topology
	Input        Input
	Bounded      bool  // Read ends with io.EOF
	CancelSafe   bool  // after a cancelled Read the value may go on
	Incremental  bool  // a run goes on behind where the last finished run ended
	MaxUnitRows  int64 // hard limits of one replay unit; 0: none can exceed the wanted size
	MaxUnitBytes int64
	Readers      int  // chunks of a Snapshotter that are read at the same time while changes are followed; 0: 1
	Conditions   bool // its Snapshotter takes record.Chunk.Where
}

// SinkContract is what a sink promises for one exact configuration.
type SinkContract struct {
	Modes     []WriteMode // supported; the first is the default
	Input     Input       // the strongest kind that it takes
	Atomicity Atomicity
	Durable   bool          // what was flushed survives loss of power; false: a terminal, a pipe
	Every     time.Duration // how long it likes to collect before a commit, also when nothing more is waiting; 0: not at all
	Bytes     int64         // likewise: how much, as record.Batch.Bytes counts; 0: no wish
	Rows      int           // how many it likes to be given at once while more are waiting, where it keeps positions; 0: no wish
	RowGroup  int           // commits of so many rows of a dataset, or a multiple, cost it least, as it stores so many at once; 0: any
	NeedsKey  bool          // Upsert needs a key on every dataset: true for all but sinks that never look at keys
	Keyless   bool          // Upsert also takes datasets without a key, if every update and delete has the full image before it
	// ForChanges is what to type so that the same target takes updates and deletes, and a source that never ends; empty: it can't.
	ForChanges string
}

func name(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}
