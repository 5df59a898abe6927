// Package discard is a sink that takes every row and keeps none: to measure how fast a source is read, to try a pipeline out, or to
// throw something away on purpose.
//
// It takes inserts, updates, deletes and truncations, of datasets with a key and without, in every mode and under every schema. It
// refuses nothing and changes nothing, and it holds the reader only for as long as a call of a function takes.
//
// What it promises is what can be said of nothing: nothing was kept, so nothing of it can be lost, and rows that come again after a crash
// leave the same behind as the first time. That is effectively-once. It is not exactly-once, which needs a place that keeps the
// position together with the rows: a pipeline that asks for exactly-once can't have this sink.
package discard
