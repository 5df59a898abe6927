package engine

import (
	"math"
	"runtime/debug"
)

// shares are what the parts of a run may keep in buffers, in bytes. They are parts of one budget, Plan.Memory, so that all of them
// together stay within it, and nobody waits for memory that another one holds. More than the most of each is of no use.
type shares struct {
	source int64 // what the source reads ahead, or keeps of transactions that are open: its Env.Memory
	chunk  int64 // a chunk that is larger is passed on while it is read, and the stream waits for it
	held   int64 // changes that wait for chunks: the stream waits when there are more
	lane   int64 // what waits in each lane
	sink   int64 // what each sink collects before a commit: its Env.Memory
}

const (
	leastShare = 1 << 20
	mostLane   = 8 << 20
	mostCommit = 16 << 20
	mostShare  = 64 << 20
)

// sharesOf divides the budget: a quarter each for the source, for chunks and the changes that wait for them, for lanes, and for sinks.
func sharesOf(memory int64, sinks, readers int) shares {
	part := func(of, most int64, among int) int64 {
		return min(max(memory/of/int64(max(among, 1)), leastShare), most)
	}
	return shares{
		source: part(4, mostShare, 1),
		chunk:  part(8, mostShare, readers),
		held:   part(8, mostShare, 1),
		lane:   part(4, mostLane, sinks),
		sink:   part(4, mostShare, sinks),
	}
}

// unlimited is the budget of a process whose memory has no limit.
const unlimited = 256 << 20

// bufferMemory is the budget of a plan that names none: half of the limit that Go's memory has, as the rest is garbage not collected yet.
func bufferMemory() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 { // it only tells
		return limit / 2
	}
	return unlimited
}

// share divides the plan's memory, and fills in the sizes that the plan leaves to it.
func (r *runner) share() {
	r.shares = sharesOf(r.plan.Memory, len(r.plan.Sinks), r.contract.Readers)
	r.plan.QueueBytes = orDefault(r.plan.QueueBytes, r.shares.lane)
	r.plan.Commit.Bytes = orDefault(r.plan.Commit.Bytes, min(r.shares.sink, mostCommit))
}
