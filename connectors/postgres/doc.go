// Package postgres reads from and writes to PostgreSQL 13 and newer.
//
// # Source
//
// A [Source] reads tables, views or one query, all columns or some, with every value exact (see [TypeRules]). Values travel in the
// binary COPY format; types without a binary form that is known here travel as the text of their own output function. Between two
// servers whose tables have the very same built-in types, and with nothing in between that looks at rows, the server's bytes are passed
// on as they are: then even values that columns of other systems can't hold arrive, such as NaN in a numeric(12,2).
//
// Tables with a key are cut into chunks by walking the key's index: any type that the server can order will do. Each chunk is read in
// one short REPEATABLE READ transaction of its own, several at a time as far as the run has memory for them, and a position stands behind
// each. Rows that change while a table is being read are seen as they are when their chunk is read; a row whose key changes may be seen
// twice or not at all, as in any read without one long transaction. Tables without a key are cut by physical blocks, all under one
// exported snapshot so that no row can move between two ranges; row addresses mean nothing later, so such a table is one replay unit and
// starts again after a crash. Views and queries are read whole, unless the option key names columns that identify their rows.
//
// With the option cursor a run reads what is new behind the last one, in the order of (cursor, key). The position holds the server's
// exact text. What was committed late, by a transaction that was open when the last run looked, is found again by the transaction
// number of its row, so that nothing is missed; rows of transactions that overlapped the last run may come twice, so an incremental
// pipeline writes by key. For cursors of date and time the look back is bounded by the age of the oldest open transaction, if the role
// sees it (pg_read_all_stats), else, and for other cursors, the whole table is looked through unless the option lag bounds it. Views
// and queries have no transaction numbers: there the lower bound is inclusive, and lag is the only protection against late commits.
// Deleted rows are not seen.
//
// Privileges: CONNECT, USAGE of the schemas, SELECT on what is read; leat check lists what is missing with its GRANT. Partitioned
// tables are read through their root, inheriting tables through their parent.
//
// # Snapshot and stream
//
// Chunks of a source that is followed are merged with its stream. Each is read in a short transaction of its own and says which
// transactions that one sees; a log position could not, because a commit is in the log before it is visible. On a standby, whose own
// snapshots don't list the open transactions, these are looked up, and a chunk is read once they are known for certain. A chunk waits for
// the transactions of this database that were running when its table was published: the stream lacks what they wrote before.
//
// Keys are compared by the server, but for types whose order does not depend on its libraries (integers, booleans, uuid, bytea, dates and
// times, texts of the collations C, POSIX and ucs_basic). A table has the columns and rows that the publication sends, and the
// replica identity as its key; without a key it is one chunk. Tables that inherit are apart from their parent, as they are in the
// stream. Rows that a policy hides from the role are an error. Two spellings of a key that the server takes for equal (citext, collations
// that are not deterministic) are one row to it and two keys to a ledger of single keys.
//
// # Stream
//
// Changes come as whole transactions, in the order of their commits: a batch for each dataset of as many transactions as fit, the last one
// with the position. A transaction that is larger than wanted comes in pieces, of which only the last one has a position. What the server
// sends of transactions that are open waits in memory, beyond spill_bytes in files, and comes when they are committed; what is rolled back
// never comes. A transaction that was prepared comes when that is committed.
//
// The server hears every second what arrived and what was acknowledged, however long nobody reads, and is never told that more is safe
// than that. The position moves on, at most once in a second, where nothing happens to the tables, so that the server keeps no log for
// them. A stream that is behind waits a moment for larger batches; one that is not waits for nothing.
//
// An update has the row after it, and of the row before what the replica identity sends: the key where it changed, or all of it. Values
// that are stored out of line and did not change are marked as not sent, unless the whole row before is there. Each change has the
// columns that its table had at that place of the stream, with ids that survive a rename; a change of columns is seen with the first
// change of a row that follows it. What the server computes for older rows by itself, such as a random default of a new column,
// is not in the log.
//
// # Slot and publication
//
// A source that is followed has a replication slot (plugin pgoutput) and a publication on the server, whose names come from the
// pipeline's unless the options say otherwise. The first start makes both, the publication first: of the selected tables, with
// partitions under the name of their root, and with stored generated columns where the server can send them (PostgreSQL 18). From
// PostgreSQL 17 on the slot may fail over. leat's own publication is made to fit the selection; one that somebody else made (FOR ALL
// TABLES, of schemas, with lists of columns or conditions) is used as it is, and has to have everything. A slot that is there and that
// nothing saved refers to is taken where it stands if it is of use there, else it is replaced; one that is in use, or of another database
// or plugin, is never touched.
//
// A table without a primary key needs REPLICA IDENTITY FULL or an index: published without one, the server would refuse the application's
// updates. It is refused, before anything is made, with the statement for it.
//
// A position names the cluster, its timeline, the slot and the publication. A resume is refused, with the missing range of the log, where
// the slot is gone, lost, made anew or read by somebody else, where the server is another one, was restored from an older copy, or
// became primary at a place before the position. The pipeline goes on only with --restart then.
//
// Tables that the selection means later join by themselves. A table that is attached as a partition brings rows, and one that is
// detached or truncated by its own name takes rows away, without a change that could be sent: the log tells of the first two.
//
// Privileges: REPLICATION, USAGE of the schemas, SELECT on the tables; for leat's own publication also CREATE on the database and
// ownership of the tables. leat check lists all that is missing, with the statement or the setting for each. Changes come over a
// replication connection, which no pooler lets through. A standby can be followed from PostgreSQL 16 on, with a publication that was
// made on the primary.
//
// # Sink
//
// A [Sink] makes tables, and appends, upserts by key, or replaces them as a whole. Rows and the lane's position become visible in one
// transaction, whose commit also checks the lane's fence: a late owner commits nothing. The position is kept in the schema _leat of
// the same database (docs/formats/postgres-progress.md); tables of the user's get no column of leat's own.
//
// A dataset called a.b goes to table b of schema a, one called b to the option schema; names are quoted always, so case matters.
// Longer names than the server keeps end in a hash of the whole; long column names are refused. A table that is missing is made with
// the very types that the columns come from (enums are made where they are missing, domains and types of extensions are used where
// the target has them), or else with the narrowest types that hold every value; with NOT NULL and the primary key as the source has
// them. Generated columns of the source become ordinary columns; generated columns of the target are left to it. A column GENERATED
// ALWAYS AS IDENTITY gets the source's values on insert and is left alone by updates.
//
// Rows travel by binary COPY, through a temporary table where the target's types demand a cast; up to a thousand changes travel as
// arrays in one message, and the progress and the COMMIT in another one. Rows of a snapshot are appended for as long as the target has
// none of them. Writing by key folds each batch to one change per key, so that a key that moved, or two that were swapped, end as in
// the source, even under a constraint that the source defers; values that the source did not send are taken from the image before the
// change, from earlier rows of the batch, or left as the target has them; where nobody has them, because the target lacks the row, the
// row is refused. The key needs a unique index that is neither partial nor deferrable. Keys that only the server can compare (citext,
// collations that are not deterministic) are written row by row.
//
// A dataset without a key can be followed if every update and delete comes with the full image before it (REPLICA IDENTITY FULL): the
// row is found by all its columns, and one of several equal ones will do. Types without an equality are compared by their text, and so
// are those whose equality is not exact (numeric, floats, jsonb, interval, citext). Such a table is read as a whole for each batch with
// updates or deletes, unless an index serves.
//
// Columns follow those of the dataset, by their ids where the source has them: they are added, without NOT NULL, with the value that
// older rows have there and without a default; renamed; given a type that holds the new values, by the server's own cast; and dropped,
// unless another object of the target uses them. Other columns of the target are its own: they get their defaults in new rows and stay
// as they are otherwise. A table that somebody else alters is looked at again, and the run goes on. A truncate empties the table; where
// other tables refer to it, its rows are deleted instead.
//
// Rows that the server refuses are found and named, up to 1,000 in a batch, and all others are written. Deferrable constraints are
// checked at the commit, where a violation stops the run; foreign keys that are not deferrable are checked in the order in which rows
// come, so referenced tables have to come first, which the batches of a stream do not promise: a violation stops the run then. Triggers
// fire as for any writer, once for each row that is written: a row that changed many times in a batch is written once, as an update
// where the source updated it and sent all its values, else as an insert that meets what is there. With constraints=off neither foreign
// keys nor triggers are looked at, nor are deferrable unique constraints; but for those that are ENABLE ALWAYS or ENABLE REPLICA.
//
// A replacement is written to a table of its own beside the old one. At the end, in one transaction for all datasets, it takes the
// old one's name, comment, grants and the names of its indexes; where anything else refers to the old table (views, foreign keys,
// triggers, policies, publications, identity, partitions), that one stays and its rows are replaced: with TRUNCATE, for which
// readers wait until the commit, or, under foreign keys of others, row by row. A late owner's open transaction can hold locks until its
// connection ends.
//
// Privileges: CREATE on the database or on the schema _leat for the position, CREATE on schemas where tables are to be made, and
// SELECT, INSERT, UPDATE, DELETE, TRUNCATE on tables as the mode needs, ownership of those whose columns are to follow, and for
// constraints=off SET on the parameter session_replication_role; leat check lists what is missing with its GRANT.
//
// # Connections
//
// Parameters, environment, service and password files have libpq's meanings, TLS included. Settings that decide how values look are
// made in each transaction and end with it, and no statement is prepared by name: both sides work behind a pooler in transaction mode, and
// a change of a table makes no statement stale. A sink that finds no pooler in between (the server's process is the one that it connected
// to) makes the settings once, and the server keeps the statements for few rows and for the progress.
//
// Neighbours: format/pgcopy knows the binary format, connector/chunked reads chunks ahead and in order.
package postgres
