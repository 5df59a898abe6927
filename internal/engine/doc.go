// Package engine runs pipelines: one source, transforms, one lane per sink.
//
// [Run] runs a [Plan] to its end. [Check] looks for all that Run would refuse or trip over, and changes nothing. [Admit] is the pure
// decision which guarantee source and sinks reach together. [Control] is the handle that shows where a run stands, and pauses,
// resumes and stops it.
//
// The one order of steps, from which nothing deviates: read, transform, publish, write, flush or commit, save the position,
// acknowledge the source. Decisions (admission, where to start, what to skip, what a failure means, what fits) are pure functions
// on plain state; the goroutines around them are thin:
//
//	reader       reads, transforms, publishes; acknowledges what the checkpointer saved, always before the next read
//	deliverer    one per sink: skips what the sink has, fits values, writes, commits, acknowledges its lane
//	checkpointer saves the watermark, then hands it to the reader
//	supervisor   starts a generation, waits for it, decides what its end means: done, again, or failed
//
// The engine knows no connector; it finds capabilities with connector.As.
package engine
