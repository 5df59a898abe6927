// Package sqlite keeps the state of pipelines in one SQLite file: the default store.
//
// The file is in WAL mode with synchronous=FULL, so that a record that was saved survives loss of power; many processes may use it
// at a time, each change being one short transaction. Its layout is described in docs/formats/state.md. It must not be on a network
// file system, where SQLite's locks don't hold.
package sqlite
