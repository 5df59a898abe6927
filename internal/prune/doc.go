// Package prune finds the rows of a sink whose keys are no longer in the source, and deletes them or marks them as deleted: what an
// incremental read, which only sees rows that are there, can't do.
//
// The keys of the sink are read first and those of the source afterwards, so that a row that arrives in between is never taken for a
// deleted one. Keys are compared by their canonical text through 128-bit digests, which are kept in temporary files by part of the
// digest: memory does not grow with the tables. Deletes go to the sink like any other change, and are committed together with the
// progress that it has.
package prune
