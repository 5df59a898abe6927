// Package record is the data model: immutable batches of typed rows, what happened to them, and positions.
//
// A [Batch] holds rows of one dataset as Arrow columns, with an optional [Op] for each row. A [Position] rides on the batch that
// completes a replay unit; every other batch has none. A [Schema] names the columns, the key and the provenance of each type.
//
// Columns are of a closed vocabulary of types, read with [TypeOf]: Arrow's own, and the extension types of this package for what
// Arrow lacks (numbers of any precision, dates and timestamps with infinities, intervals, arrays of any rank, enums, bit strings,
// network addresses, and text that stands for a foreign type). [AppendText] and [ParseText] define one text form of every value,
// [AppendJSON] and [ParseJSON] one JSON form: all connectors use them, so that a value looks the same on every road.
//
// Invariants: a batch never changes after it was handed over, so that many lanes share it without copying; all of it lives on the
// Go heap (nothing counts references); a position is opaque to all but the source that made it.
//
// The package stands on the standard library and Arrow only.
package record
