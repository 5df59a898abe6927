// Package records lets a connector be written record by record. [Source] polls one record at a time, [Sink] takes one at a time, and
// [FromRecords] and [ToRecords] make of them what package connector asks for, with the same guarantees:
//
//   - a position rides on the batch that ends with a whole unit, and is taken from the source only there;
//   - a cancelled poll loses nothing: the value is retired, and a new one seeks what was saved;
//   - upstream is told what is durable everywhere, and saved, if the source is a connector.Acknowledger;
//   - a sink with transactions that keep a position ([Transactor]) has each row once; one without them gets rows again after a crash.
//
// Rows are typed all the way: a poll appends values to the columns of a batch ([Row]), and a put reads them there ([Record]). No row is
// a map, and no value is boxed.
//
// Every capability of package connector that the source or sink has besides is found by the engine: the adapters unwrap to it.
// docs/spi.md has a worked example.
package records
