// Package state is the checkpoint store: for each pipeline one [Record], which says how far it got and under which identity.
//
// A [Store] keeps records and changes them by compare-and-set, so that two processes that run the same pipeline find out about each
// other. A Save that returned survives loss of power. state/sqlite is the default, state/file keeps one readable file per pipeline;
// both pass the tests of state/statetest.
//
// Records are persisted in the canonical form of [Encode], see docs/formats/state.md. [Decode] refuses what it does not know
// completely: a newer format, or a field it has no place for, is never dropped in silence.
//
// A pipeline's identity is the set of options that decide what its positions mean; [IdentityHash] makes it short and
// [ExplainIdentity] says to a person what changed.
package state
