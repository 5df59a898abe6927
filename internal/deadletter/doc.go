// Package deadletter keeps the rows that pipelines set aside, and takes them up again.
//
// [Store] is the engine's reject store: one SQLite file for all pipelines of a state folder. It counts what comes twice instead of
// keeping it twice, so that each bad row is one letter: letters of a sink that counts its commits are removed with the epoch that was
// not committed, see [Store.Forget]; all others are told apart by what they hold.
//
// [Forwarder] stands before a store and passes every letter on to a sink of any kind. [Replay] is a source over the letters of one sink.
// The layout of the file, and the rows that a sink gets, are described in docs/formats/dead-letters.md.
package deadletter
