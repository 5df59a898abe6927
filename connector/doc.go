// Package connector is what a connector implements and nothing more: [Source] and [Sink], their contracts, optional capabilities,
// error classes, and the [Registry] that finds a connector for a URL or a file name.
//
// Required interfaces are small. Everything else is a capability: an interface of one or two methods that the engine finds with
// [As], which follows Unwrap so that no wrapper hides one.
//
// Life of a source: its configuration ([SourceConfig]) is decoded; Contract and Identity are asked, without I/O; Open builds a
// value, without I/O; Discover may look at the system; Start installs the position; Read is called until io.EOF or a stop;
// Close releases everything. A value is one generation and is never started twice. Methods of one value are never called
// concurrently, but for the capabilities that say otherwise.
//
// Life of a sink: the same with Map (may look at the system, changes nothing), Start, Write and Flush (or Commit), Close.
//
// A batch that was handed over is never changed by anybody. See package record.
//
// What hands out or takes single records is more easily written with package connector/records: its FromRecords and ToRecords make a
// Source and a Sink of it. docs/spi.md is for authors of connectors.
package connector
