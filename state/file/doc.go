// Package file keeps the state of pipelines in one folder, in one readable JSON file for each pipeline.
//
// A record is replaced by writing a temporary file, syncing it, renaming it over the old one and syncing the folder: after loss of
// power there is the old record or the new one, never anything between. A lock file makes compare-and-set hold between processes
// on one machine; a folder on a network file system must not be used from several.
//
// The layout is described in docs/formats/state.md.
package file
