// Package kafka reads from and writes to Apache Kafka 2.5 and newer, and to what speaks its protocol.
//
// # Source
//
// A [Source] reads topics that are named, or meant by patterns. A topic is a dataset. What messages are is up to the format, see package
// format/message. A run ends where the topics ended when it began; with follow it goes on for ever, and topics and partitions that come
// join from their first record on. With incremental every run reads what is new since the last one.
//
// Where a source stands is leat's own position: the cluster, and for each topic its id and for each partition the offset of the next
// record and the leader epoch of the one before. Consumer groups are not joined; with the option group one is told how far the run got,
// for tools that look at lag. A position is refused, with what is missing, where the cluster is another one, a topic was deleted or made
// anew, records were deleted before they were read, or the cluster lost records that were read (an unclean election of a leader): by
// name at a start, and as soon as it shows while reading.
//
// Only what is committed is read, unless read_uncommitted says otherwise. Partitions are read side by side: the order of records
// within a partition is always the same, that between partitions is not. Batches end exactly at the cuts of a start: a partition that has
// come to a cut waits for the others, and topics and partitions that came later wait behind it.
//
// Rights: Read and Describe of the topics; Read of the group, if there is one.
//
// # Sink
//
// A [Sink] writes each dataset to a topic, which is made if it is not there. The producer is idempotent and waits for all replicas in sync.
// Keys are those of the datasets, and partitions are chosen as the Java client does by default, so that a key is where other programs
// look for it. Where a row's key changes, the old key is deleted and the new one inserted, in one transaction. Two rows that have one key
// for a moment, as a key whose constraint is DEFERRABLE allows within a transaction, are one to such a log: what deletes the key of the one
// deletes the other. Messages that are larger than their topic allows are refused row by row.
//
// A [TransactionalSink], which is the default, writes rows and position in one transaction; readers have to read committed records only
// (isolation.level=read_committed). The position is a message of a compacted topic (leat_positions), keyed by pipeline and sink. All
// owners of a lane have one transactional id, and their fence stands in the message: an older owner is refused by the brokers, and by
// the fence. What became of a commit whose answer was lost is read back from the topic. Without transactions messages may come twice
// after a crash.
//
// Rights: Write, Describe and Create of the topics and of the position topic, whose messages are also read; Write and Describe of the
// transactional ids.
package kafka
