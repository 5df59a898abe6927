// Package jsonl reads and writes JSON Lines: one JSON object on each line.
//
// Reading takes every number from its literal. A column of numbers is int64 or float64 where all of them print back as the same
// number, else numeric, which keeps every digit; a quoted number stays text. Text that is exactly what a date, timestamp or instant
// prints as has that type. Objects and arrays are a struct or a list where all of them look alike and all of the input was seen; else,
// and where values of different kinds meet, the column is of type JSON, which keeps each value as its document. A missing key and a
// null are both NULL.
//
// A key that first appears behind the part that was looked at adds a column: the batch ends in front of it, and the next one has a
// new schema with a higher version. Its type comes from its first value: bool, numeric, text or JSON.
//
// Of equal keys in a row the last one counts; how often that happened is told, or such rows are set aside. What is no JSON object
// (syntax, bytes that are no UTF-8, half of a surrogate pair, more than 1,000 levels) is set aside with its line and byte.
//
// Writing is strict JSON in the form of package record: NaN and infinities are strings, decimals keep their digits.
package jsonl
