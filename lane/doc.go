// Package lane carries items from the one reader of a pipeline to its sinks: one ordered queue, a lane, for each sink.
//
// A [Stream] is all lanes of a pipeline. The reader publishes each [Item] once, and every lane gets it, without copying. Each lane
// has one [Consumer] at a time, which receives a [Delivery] of each item in publication order and acknowledges it when its sink
// made it durable, or gives it back. What sinks lack they ask for with a [Request]; the answer is published into their lane alone.
//
// The frontier of a lane is the position of the last positioned item up to which everything on that lane is acknowledged, without
// a gap. The watermark is the lowest frontier: what may be saved, and what the source may release. Items are ordered by the number
// of their publication, so nobody here compares positions.
//
// Invariants (clauses W1 to W13 and W16 of docs/clauses.md):
//
//   - first deliveries come in publication order, and published = acknowledged + in flight + queued, always;
//   - an item is in the hand of at most one valid delivery; giving back item k takes back everything later that is held;
//   - the unacknowledged suffix of a lane comes back in order, before anything new; nothing acknowledged comes back;
//   - frontiers and the watermark never go back, and never pass an item that is not acknowledged;
//   - a publication is in all its lanes or, when it was cancelled, in none.
//
// [Memory] is the stream for one process: its queues are lost with it, and when one of them is full the reader waits, so a sink that
// stands still holds up the others once its own queue is full. [Open] lifts that: a [Durable] stream stands on a [Storage], an append-only
// log with a small note; what is stored there waits for each sink as long as that takes, or its quota allows. Package lane/jetstream is a
// storage; lane/lanetest has one in memory, whose crashes a test decides, and the tests that all streams pass. Clause W14.
package lane
