// Package transform is the functions from batch to batch that a pipeline may name between its source and its sinks: select, drop,
// rename, cast, set, filter, hash, mask, key and route. Each is a [Step]: it first says what becomes of a schema, so that a plan is
// checked before a row is read, and then transforms batches column by column.
package transform
