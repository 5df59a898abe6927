// Package chunked makes a bounded source of what can cut datasets into chunks and read one chunk at a time
// (connector.Snapshotter).
//
// Datasets are read one after another, in the order of their names. Chunks are planned lazily and read ahead by several readers into
// buffers that are bounded in bytes; they are emitted strictly in key order, chunk after chunk, so that the read is the same
// whatever the readers do. The replay unit is the chunk: a position exists only on the batch that completes one, and says up to
// which key a dataset has been read.
//
// Invariants: the chunk that is being emitted always makes progress, however full the buffers are; a reader does not begin a chunk
// that the buffers have no room for, unless all those in front of it are read to their end: so a slow sink keeps one transaction of a
// chunk waiting, and no more.
//
// [Cursors] is the other bounded source that databases have in common: what is new behind a cursor, dataset by dataset, run by run.
package chunked
