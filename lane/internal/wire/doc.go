// Package wire is the persisted form of what durable lanes hold: items become frames, frames are put together into packs, and a pack
// becomes one or more entries of a log. It does no I/O. docs/formats/lanes.md describes every byte.
//
// A pack is complete in itself: it has the schemas of its items, so entries before it may be removed. Its head says what recovery has to
// know, so that opening a log reads a few entries, however many there are.
package wire
