package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

// State is where a run stands.
type State uint8

// The states.
const (
	Starting State = iota // discovering, planning, opening, or waiting before another try
	Running
	Paused   // parked at the end of a replay unit; acknowledgements and keepalives go on
	Draining // reading has ended or was stopped; what was read is being delivered
	Stopped  // ended, at the source's end or when asked to; see Summary.Done
	Failed   // ended with an error
	Stuck    // a call into a connector does not return; nothing replaces it in this process
)

// String returns the lower-case name of the state.
func (s State) String() string {
	names := []string{"starting", "running", "paused", "draining", "stopped", "failed", "stuck"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// Status is what a person sees of a run.
type Status struct {
	State    State
	Doing    string // more about the state: what is being tried again and when, which call is stuck
	Err      error  // the last failure: of a failed run, or that which is being tried again
	Reached  connector.Guarantee
	Started  time.Time
	Datasets []DatasetStatus // in discovery order
	Sinks    []SinkStatus    // in plan order
	Lag      connector.Lag   // of a source that reports it, a few seconds old; all -1: unknown
	// Roundtrips counts the real calls to each system, retries included: by source and names of sinks.
	Roundtrips map[string]int64
	Lanes      LaneChoice // where lanes are kept: MemoryLanes or DurableLanes
	WhyLanes   string
}

// Phase is how far a dataset of a source that sends changes is.
type Phase uint8

// The phases.
const (
	NoPhase      Phase = iota // the source sends no changes
	Waiting                   // its snapshot has not begun
	Snapshotting              // its snapshot is being copied, and changes are merged
	Live                      // its snapshot is complete: changes are followed
	Broken                    // it failed; see SinkStatus.Failed
	Resting                   // somebody paused it; once it is resumed, it is copied once more
)

// String returns the lower-case name of the phase.
func (p Phase) String() string {
	names := []string{"", "waiting", "snapshot", "live", "failed", "paused"}
	if int(p) < len(names) {
		return names[p]
	}
	return "unknown"
}

// DatasetStatus is the source's side of one dataset.
type DatasetStatus struct {
	Name       string
	Rows       int64 // read, by this process
	Bytes      int64 // of the source, where it says; else of memory
	TotalRows  int64 // estimate; -1: unknown
	TotalBytes int64 // estimate; -1: unknown
	SetAside   int64 // rows that could not be read or transformed
	Phase      Phase // of the lane that is furthest behind
	Snapshot   int64 // of Rows: those of its snapshot
	Changes    int64 // of Rows: changes of the stream
}

// SinkStatus is one lane and its sink.
type SinkStatus struct {
	Name      string
	Rows      int64 // written, by this process
	Bytes     int64
	Durable   int64        // rows of those that are durable
	SetAside  int64        // rows that this sink could not take
	Altered   int64        // values that a declared policy changed (null, clamp, strip)
	Skipped   int64        // rows that the sink had already
	Queued    int64        // bytes that wait in the lane in memory
	Held      lane.Holding // what a durable lane holds, a second old
	State     string       // one of the Lane constants of package state; empty: it has not begun
	Err       error        // what is in the way of the sink
	Filling   bool         // a snapshot of it is not complete
	Retries   int64        // generations that replaced a failed one
	Position  record.Position
	Latencies Latencies         // of changes that became durable, by this process
	ByDataset map[string]int64  // rows written
	Failed    map[string]string // datasets that failed for this sink alone, with the reason
}

// Control is the handle of a run: it shows where the run stands, and pauses, resumes and stops it. Make it with [NewControl]; it
// serves one run. All methods may be called at any time from any goroutine.
type Control struct {
	mu       sync.Mutex
	status   Status
	paused   bool
	stopped  bool
	again    []string // datasets to copy once more
	orders   orders
	changed  chan struct{} // closed and replaced whenever paused, stopped or the state changes
	datasets map[string]int
	sinks    map[string]int
}

// NewControl returns the handle of a run that has not started yet.
func NewControl() *Control {
	return &Control{changed: make(chan struct{}), datasets: map[string]int{}, sinks: map[string]int{}}
}

// Pause parks the reader at the end of the replay unit that it is in. What was read is delivered; acknowledgements go on.
func (c *Control) Pause() { c.set(func() { c.paused = true }) }

// Resume lets a paused run go on.
func (c *Control) Resume() { c.set(func() { c.paused = false }) }

// Stop ends the run in good order: nothing more is read, what was read is delivered and checkpointed, within Plan.Drain.
func (c *Control) Stop() { c.set(func() { c.stopped = true }) }

// Resnapshot copies datasets of a source that sends changes once more, into every sink, while the run goes on. Each is emptied in the
// sink first. Names that the run does not know are logged and ignored.
func (c *Control) Resnapshot(datasets ...string) {
	c.set(func() { c.again = append(c.again, datasets...) })
}

// askedAgain takes what Resnapshot was asked for.
func (c *Control) askedAgain() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.again
	c.again = nil
	return names
}

// Changed returns a channel that is closed when the state next changes.
func (c *Control) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Status returns a copy of what there is to see.
func (c *Control) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.status
	s.Roundtrips = maps.Clone(s.Roundtrips)
	s.Datasets = slices.Clone(s.Datasets)
	s.Sinks = slices.Clone(s.Sinks)
	for i := range s.Sinks {
		s.Sinks[i].ByDataset = maps.Clone(s.Sinks[i].ByDataset)
		s.Sinks[i].Failed = maps.Clone(s.Sinks[i].Failed)
	}
	return s
}

// set changes something that waiters may wait for.
func (c *Control) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// wanted returns what was asked for and the channel that is closed when that changes.
func (c *Control) wanted() (paused, stopped bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused || c.orders.Paused, c.stopped, c.changed
}

func (c *Control) state(s State, doing string, err error) {
	c.set(func() { c.status.State, c.status.Doing, c.status.Err = s, doing, err })
}

// move changes the state between the turns of a reader, where that is news.
func (c *Control) move(s State) {
	c.mu.Lock()
	same := c.status.State == s
	c.mu.Unlock()
	if !same {
		c.state(s, "", nil)
	}
}

func (c *Control) roundtrip(who string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status.Roundtrips == nil {
		c.status.Roundtrips = map[string]int64{}
	}
	c.status.Roundtrips[who]++
}

func (c *Control) dataset(name string, f func(*DatasetStatus)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.datasets[name]
	if !ok {
		i = len(c.status.Datasets)
		c.datasets[name] = i
		c.status.Datasets = append(c.status.Datasets, DatasetStatus{Name: name, TotalRows: -1, TotalBytes: -1})
	}
	f(&c.status.Datasets[i])
}

func (c *Control) sink(name string, f func(*SinkStatus)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.sinks[name]
	if !ok {
		i = len(c.status.Sinks)
		c.sinks[name] = i
		c.status.Sinks = append(c.status.Sinks, SinkStatus{Name: name, ByDataset: map[string]int64{}, Failed: map[string]string{}})
	}
	f(&c.status.Sinks[i])
}
