// Package vfs is file systems for tests of what must be durable: one in memory that can lose power ([Mem]), and a wrapper that sees
// every operation before it happens and can let it fail ([Hooked]).
//
// Durable means that data and name were synced: [Mem.CrashClone] returns what a disk may hold after loss of power, from nothing that
// was not synced up to all of it. A test fails operation 0, then 1, then 2, until a run is untouched, or clones at each operation,
// and opens what is left.
//
// The types satisfy the small interfaces that packages such as state/file declare for what they need of a file system; nothing is
// imported from there.
package vfs
