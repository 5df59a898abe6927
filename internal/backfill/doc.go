// Package backfill merges the chunks of snapshots with the live changes of a stream, exactly, for each lane that asked.
//
// What holds for each lane and each key: the lane sees the row as of one snapshot, then exactly the changes of the transactions that this
// snapshot does not include, in commit order, each once. Nothing older follows something newer.
//
// A log position does not say whether a snapshot includes a transaction: a commit is in the log before it is visible, and two commits
// may become visible in another order than they are logged. So the source is asked, transaction by transaction
// ([connector.Merger].Includes); the position only says when a snapshot may be forgotten.
//
// The keys of a dataset are cut into segments. A change of transaction T to a key goes by its segment's state:
//
//	planned    not delivered: the chunk that will be read includes T. T must be visible before the change is let go
//	reading    held until the chunk is published
//	published  delivered exactly if the chunk's snapshot does not include T
//	done       delivered: the stream has passed all that the snapshot could include
//
// A change of a key is a delete at the old key and an insert at the new one where the two are judged differently. An insert of that kind
// whose row has values that the source did not send can't be delivered: its key is opened again and read once more.
//
// A part reads rows once more that lanes have, those that meet a condition or those of some keys, while the dataset stays complete: see
// [Merge.Part], and the rules that its rows go by in refresh.go.
//
// [Merge] is the state of all backfills of one pipeline. It does no I/O but through the source that it is given, starts no goroutines and
// must not be used concurrently. Reading the chunks is its caller's business, see [Merge.Next].
package backfill
