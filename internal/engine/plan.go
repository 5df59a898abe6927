package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/transform"
)

// Plan is a pipeline, ready to run. It is only read.
type Plan struct {
	Name       string              // stable: the key of all state, of positions inside sinks, and of dead letters
	Guarantee  connector.Guarantee // what is asked for; BestGuarantee takes what source and sinks reach
	Source     SourceSpec
	Sinks      []SinkSpec      // at least one, names unique
	BadRows    BadRows         // for rows that the source can't read or a transform can't take; sinks may differ
	Limit      int64           // rows per dataset; 0: all
	Batch      connector.Limit // wanted size of a batch; zero: 8,192 rows, 4 MiB
	Memory     int64           // of all buffers together; 0: half of the limit that Go's memory has, else 256 MiB
	QueueBytes int64           // what waits in each lane in memory; 0: a share of Memory, 8 MiB at most
	Lanes      Lanes           // where lanes are kept
	Retry      Retry
	Commit     Commit
	Changed    ChangedIdentity
	Snapshot   Snapshot      // for a source that sends changes: what is copied of what is there already
	Once       bool          // for a source that sends changes: end where its stream ends at the start of the run
	Resnapshot []string      // datasets to copy once more, from a source that sends changes
	Drain      time.Duration // how long a stop may take; 0: 30 s
}

// Snapshot says what a run of a source that sends changes copies of what is there already, into lanes that do not have it yet.
type Snapshot uint8

// The choices.
const (
	SnapshotFirst Snapshot = iota // everything, while changes are followed
	SnapshotNone                  // nothing: only the changes from now on
	SnapshotOnly                  // everything, and then the run ends
)

// String returns the name that configurations use.
func (s Snapshot) String() string {
	switch s {
	case SnapshotNone:
		return "none"
	case SnapshotOnly:
		return "only"
	case SnapshotFirst:
	}
	return "first"
}

// ParseSnapshot reads what String returns; empty is SnapshotFirst.
func ParseSnapshot(s string) (Snapshot, error) {
	for _, v := range []Snapshot{SnapshotFirst, SnapshotNone, SnapshotOnly} {
		if s == v.String() || s == "" {
			return v, nil
		}
	}
	return 0, fmt.Errorf("unknown snapshot %q: want first, none or only", s)
}

// SchemaPolicy is what happens when the columns of a dataset change while it is followed (E15).
type SchemaPolicy uint8

// The policies.
const (
	Evolve         SchemaPolicy = iota // the target follows: columns are added, renamed, widened and dropped
	IgnoreSchema                       // the target stays as it is: new columns are left out, of dropped ones it gets nothing more
	SetAsideSchema                     // rows under the new columns are set aside, until the policy or the target changes
	FailSchema                         // the dataset stops, the others go on
)

// String returns the name that configurations use.
func (p SchemaPolicy) String() string {
	names := []string{"evolve", "ignore", "set_aside", "fail"}
	if int(p) < len(names) {
		return names[p]
	}
	return "unknown"
}

// ParseSchemaPolicy reads what String returns; empty is Evolve.
func ParseSchemaPolicy(s string) (SchemaPolicy, error) {
	for p := Evolve; p <= FailSchema; p++ {
		if s == p.String() || s == "" {
			return p, nil
		}
	}
	return 0, fmt.Errorf("unknown schema policy %q: want evolve, ignore, set_aside or fail", s)
}

// SourceSpec is the source of a plan.
type SourceSpec struct {
	Connector  string // the connector's name
	Config     connector.SourceConfig
	Transforms []transform.Step // applied once, before the lanes
	// Text is the canonical text of the transforms: part of the pipeline's durable identity.
	Text string
}

// SinkSpec is one sink of a plan.
type SinkSpec struct {
	Name       string // unique in the plan, stable: the lane's name
	Connector  string
	Config     connector.SinkConfig
	Mode       *connector.WriteMode // nil: the sink's default
	Key        []string             // key of every dataset; empty: what the source says
	Keys       map[string][]string  // key by dataset, before Key
	Transforms []transform.Step     // applied for this sink alone
	Text       string               // canonical text of these transforms
	// Policies says what happens to values that the sink can't hold, by column, or by dataset and column ("orders.total"), or by "*"
	// for all columns. A column without one fails: see connector.PolicyFail.
	Policies map[string]connector.Policy
	BadRows  *BadRows // for rows that this sink can't take; nil: the plan's
	// Schema says what happens when a dataset's columns change, by dataset or by "*"; a dataset without one evolves.
	Schema map[string]SchemaPolicy
}

// BadAction is what happens to a row that can't be carried.
type BadAction uint8

// The actions.
const (
	// Stop ends the run with the row's error. What came before it is durable, and the position stays in front of the row, so that
	// the next run meets it again.
	Stop BadAction = iota
	// SetAside writes the row to the reject store, before the position moves past it, and goes on.
	SetAside
)

// String returns the name that configurations use.
func (a BadAction) String() string {
	if a == SetAside {
		return "set_aside"
	}
	return "stop"
}

// BadRows is the policy for rows that can't be carried. The zero value stops at the first one.
type BadRows struct {
	Action BadAction
	Limit  int64 // with SetAside: more than this many rows of a run stop it, once the good rows are durable; 0: no limit
	// PerDataset is the same for the rows of each dataset.
	PerDataset int64
}

// Retry bounds how often transient failures are tried again. Progress resets the count.
type Retry struct {
	Attempts int           // tries without progress before giving up; 0: 10; negative: none
	Min      time.Duration // first wait; 0: 500 ms
	Max      time.Duration // longest wait; 0: 1 min
}

// Commit says how often a sink makes durable what it was given: at the end of a replay unit once either bound is passed; where the
// source never ends, also whenever the lane is empty.
type Commit struct {
	Bytes int64         // 0: a share of Plan.Memory, 16 MiB at most
	Every time.Duration // 0: 5 s
}

// ChangedIdentity is what happens when a pipeline's durable identity is not the one that its saved position belongs to.
type ChangedIdentity uint8

// The choices.
const (
	RefuseChanged ChangedIdentity = iota // stop, and say what changed
	AdoptChanged                         // go on from the saved position under the changed identity
	ResetChanged                         // forget the saved position and start a new run
)

// Deps is what a run is handed. Store is needed; everything else has a default.
type Deps struct {
	Store   state.Store
	Rejects RejectStore      // nil: a row to be set aside is an error that says so
	Log     *slog.Logger     // nil: silence
	Now     func() time.Time // nil: time.Now
	Rand    *rand.Rand       // for run ids and jitter; nil: seeded by the system
	Control *Control         // nil: nobody looks

	// DurableLanes opens lanes that outlive the process; nil: there is no place for such.
	DurableLanes func(ctx context.Context, s lane.Spec) (lane.Durable, error)

	lanes       func(sinks []string, o lane.Options) (lane.Stream, error) // nil: lane.NewMemory
	chunkBuffer int64                                                     // 0: a share of Plan.Memory
}

const (
	defaultRows     = 8192
	defaultBytes    = 4 << 20
	defaultEvery    = 5 * time.Second
	defaultDrain    = 30 * time.Second
	defaultAttempts = 10
	defaultMinWait  = 500 * time.Millisecond
	defaultMaxWait  = time.Minute
)

// withDefaults fills in what was left zero.
func (p Plan) withDefaults() Plan {
	if p.Batch == (connector.Limit{}) {
		p.Batch = connector.Limit{Rows: defaultRows, Bytes: defaultBytes}
	}
	p.Memory = orDefault(p.Memory, bufferMemory())
	p.Commit.Every = orDefault(p.Commit.Every, defaultEvery)
	p.Drain = orDefault(p.Drain, defaultDrain)
	p.Retry.Attempts = orDefault(p.Retry.Attempts, defaultAttempts)
	p.Retry.Min = orDefault(p.Retry.Min, defaultMinWait)
	p.Retry.Max = orDefault(p.Retry.Max, defaultMaxWait)
	return p
}

func (s SinkSpec) badRows(p Plan) BadRows {
	if s.BadRows != nil {
		return *s.BadRows
	}
	return p.BadRows
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}
