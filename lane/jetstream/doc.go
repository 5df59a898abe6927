// Package jetstream keeps durable lanes in NATS JetStream: in a server of its own inside of the process, with its files in a folder and no
// port open, or in a server or cluster that is reached by its URL.
//
// A pipeline has one stream, which holds what was published once for all lanes, and one key in the key-value bucket leat_lanes, which says
// how far each lane is. There is no JetStream consumer: lanes read by sequence number, so nothing is sent again by a timer however
// long a sink takes, and who may write is decided by the sequence number that a message expects. docs/formats/lanes.md has the details.
//
// The server inside syncs every message to disk before it counts as stored. An external one does what it is configured to do: without
// sync_interval: always, or replicas, it may lose what it acknowledged when its machine loses power.
package jetstream
