// Package mysql reads from and writes to MySQL 8 and newer and MariaDB 10.6 and newer.
//
// # Source
//
// A [Source] reads tables, views or one query, all columns or some, with every value exact (see [TypeRules]). Rows travel in the binary
// protocol, because the text protocol cuts float to six digits, and text in the character set of its column, which is decoded here by
// tables that the server itself makes: so a snapshot and the log agree on every character. Sessions are in UTC, by an offset, and without
// SQL modes but the one that allows every date; neither the zone of the server nor that of the process, nor its character sets, change a
// value.
//
// Tables with a key (the primary one, or a unique one of columns that are NOT NULL) are cut into chunks by walking the key's index: any
// type that the server can order will do, and values are compared by the server, in the order of the key's own collation. Each chunk is
// read in one short REPEATABLE READ transaction of its own, several at a time as far as the run has memory for them, and a position stands
// behind each. Nothing takes a lock that a writer would wait for. Rows that change while a table is being read are seen as they are when
// their chunk is read; a row whose key changes may be seen twice or not at all, as in any read without one long transaction. Tables
// without a key, views and queries are one chunk and one replay unit, unless the option key names columns that identify their rows. Rows
// whose key has a NULL are all in the first chunk.
//
// Dates that no calendar has (0000-00-00, 2023-05-00, and 2023-02-31 under ALLOW_INVALID_DATES) are never turned into other dates: the
// option zero_dates says whether their rows are set aside, the values are NULL, or all dates are read as text.
//
// With the option cursor a run reads what is new behind the last one, in the order of (cursor, key): from the last cursor on, but for the
// rows of exactly that cursor which were delivered already. What was committed late, with a smaller cursor, is found again only where the
// option lag says how far back to look; then rows may come twice, so an incremental pipeline writes by key. Deleted rows are not seen.
//
// Privileges: SELECT on what is read; leat check lists what is missing with its GRANT.
//
// # Snapshot and stream
//
// With the option follow, every change comes from the binary log (binlog_format=ROW), as whole transactions in the order of the log; a
// transaction that is larger than wanted comes in pieces, of which only the last one has a position. A position has the GTIDs of all that
// was delivered, of either server's kind, so that another primary can go on from there; without GTIDs it is a place in one server's files.
// It also keeps the columns that the tables had there, so that old events are read with their own columns. A resume is refused, with what
// is missing, where the log was purged or the server is another one.
//
// Chunks are merged with the stream by the transactions that each chunk's snapshot includes: MariaDB says which they are, MySQL is asked
// before and after. Nothing is locked for that, but on a MySQL without GTIDs: there a table is locked for writers for a moment, with a
// bound.
//
// Rows of a transaction of XA stand in the log where it is prepared, and come where it is committed. A stream does not begin while one is
// prepared: its rows would be neither in the stream nor in the snapshot.
//
// Privileges besides SELECT: REPLICATION SLAVE, and REPLICATION CLIENT (MariaDB: BINLOG MONITOR); MySQL lists prepared transactions to
// those who have XA_RECOVER_ADMIN.
//
// # Sink
//
// A [Sink] writes to InnoDB tables. One transaction is open from the first row to the next commit, and the lane's progress is written in
// it, under a fence: a commit checks, saves and commits in one message. Tables that are missing are made, with the narrowest types that
// hold every value, and with a collation in which only equal texts are equal, trailing blanks included.
//
//   - append adds rows: many in a file (LOAD DATA LOCAL) where the server allows that, else by INSERT.
//   - upsert finds rows strictly by their key. Where the key's is the only unique index, and one that compares exactly, a statement
//     inserts or updates; else rows pass through a temporary table, those that are there are updated, the others inserted, so that a row
//     which has a value that another row has to itself is refused, never written over that row. Keys that an old table takes for equal
//     though they are not (a and A) do not meet either.
//   - replace writes to new tables that take the places of the old ones at once, see docs/formats/mysql-progress.md.
//
// No value is changed quietly: the session is strict, every statement that writes is asked for its warnings, and what the server would
// round, pad or cut without one (fractions of seconds, char, binary, float, enum, null in a column with a default) is looked at here.
// Refused rows are named one by one, and all others are written.
//
// The server commits whatever is open when a table is made or changed. So that is done on a second connection, and where the transaction is
// in the way it is rolled back, and its rows are written again behind the change. Each step of a change is noted, so that whoever goes
// on after a crash knows how far it came.
//
// Rows of datasets without a key are found by their whole image. Instants are kept in TIMESTAMP, which ends in 2038, or, by the option
// instants, in DATETIME as UTC. A TRUNCATE of the source deletes, since TRUNCATE would commit.
//
// Privileges: SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES and CREATE TEMPORARY TABLES on the database.
//
// # Connections
//
// Two libraries share the work: go-sql-driver/mysql runs the statements whose answers are few, go-mysql connects and logs in for what
// streams. Rows are read by this package's own reader from the connection's bytes straight into columns.
//
// TLS is that of the server's own programs: preferred (the default) encrypts where the server can and checks nobody, required does not
// go without, verify_ca and verify_identity check who the server is. What is left out of the configuration comes from the section client
// of an option file, where one is named, and from MYSQL_HOST, MYSQL_TCP_PORT, MYSQL_UNIX_PORT and MYSQL_PWD.
//
// Neighbours: connector/chunked reads chunks ahead and in order.
package mysql
