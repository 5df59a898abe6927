// Package sqlgen is what connectors of embedded databases have in common: a URL or file name taken apart, the selection of tables
// by pattern, quoted names, and placeholders. It knows no database: dialects stay in their connectors.
//
// Everything is a pure function. Names are always quoted, so that reserved words, blanks, quotes and any script are names like
// all others.
package sqlgen
