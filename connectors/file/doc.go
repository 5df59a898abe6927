// Package file reads and writes files: CSV, JSON Lines, Parquet and Arrow IPC, compressed with gzip or zstd, one file or many, and
// standard input and output.
//
// Source: a path, a pattern (*, ?, […], ** for any depth) or a folder. The list of files is sorted and frozen for the run; a resume goes
// on at the exact row of the exact file, and refuses a file that changed or is gone. All files are one dataset, or each its own
// (datasets=per_file). Types of CSV and JSON Lines come from the data: all of it up to 16 MiB, else its first 4 MiB (or all, infer=all);
// a type is taken only if it can't lose a value, and a later value that contradicts it is set aside, never changed. Standard input can't
// be read twice, so it can't be resumed.
//
// Sink: one file, or a folder with a file for each dataset. A file appears as a whole at the end of the run: it is written under a
// temporary name beside its place, synced, renamed, and the folder is synced. What a killed run left is removed by the next one of the
// same pipeline. Standard output is written as rows come.
//
// Log (log=true): a folder that gets every change, each once and in order: numbered files of JSON Lines, Parquet or Debezium's events for
// each dataset, and a manifest, which has the position in the same commit. Files are prepared and published by epoch
// (connector.TwoPhase). See docs/formats/change-log.md.
//
// The formats are in packages below format; here is what has to do with files. See [SourceConfig] and [SinkConfig] for the options.
package file
