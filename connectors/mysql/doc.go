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
