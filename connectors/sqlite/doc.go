// Package sqlite reads and writes SQLite files, through an engine in Go: no C compiler, no other program.
//
// # Reading
//
// Tables are read in the order of their names, each in the order of its row id or, without one, of its primary key. A position
// holds the exact key of the last row delivered, so that a run can stop anywhere and go on behind it. Each page is a statement and
// a snapshot of its own, so that writers are never held up for long; snapshot=run reads everything in one. Views and queries are
// one statement; with the option key they can be resumed in their middle, without it only as a whole.
//
// SQLite stores values of any type in any column. The declared type says how a column is meant; the values decide: up to
// scan rows are looked at before reading. Where all fit the declaration, it holds. Where not, the column is read as the first
// wider type that loses nothing (whole numbers to float64 while both are exact, to numeric, to text). A value that fits no such
// type, or turns up behind the rows looked at, is rejected with row id, column and value; it is never cut, rounded or nulled.
//
// With a cursor, a run reads what changed: from the last run's highest value on, that value included. Rows at the boundary are
// recognised by a hash of all their columns, so none is missed and none comes twice. Deleted rows are not noticed.
//
// # Writing
//
// Tables are created with types that SQLite's affinity leaves alone and that this package reads back: see [Rules]. Rows and the
// lane's progress are committed in one transaction, synced to the disk. A replacement is collected in a table beside the old one
// and takes its place in the last transaction; indexes and triggers are kept.
//
// Changes of a stream are applied one by one, in the order of the source. A value that was not sent stays, wherever its row moves. Two
// rows may have one key for a moment inside a transaction of the source: the second one waits until the first has left. Rows of a
// dataset without a key are found by all their columns, one for each change. A row that can't be applied (a value that nobody knows, a
// row that is not there, a constraint) is refused by name, and all others are written. Columns follow the source inside the same
// transaction; SQLite can't change a declared type or a key, so a table made here is made anew for that.
//
// Neighbours: package sqlgen quotes names and selects tables.
package sqlite
