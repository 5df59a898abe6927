package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

const discardSink = "  nothing: {discard: }"

const behindNote = "The changes wait when a run begins, and it ends when it is level: `--once` of leat, `--endpos` of pg_recvlogical."

// streams are the jobs that follow changes which wait.
func streams() []job {
	discard := streamJob{
		job:  job{name: "stream-discard", title: "Change stream → discard", note: behindNote, rows: 2_000_000, least: 5},
		make: insertsAndUpdates, said: "inserts, then an update of each row, 1,000 changes in a transaction", recv: true,
		variants: []follower{
			{name: "leat, unix socket", id: "unix", sinks: discardSink, socket: true, verify: counted},
			{name: "leat, TCP", id: "tcp", sinks: discardSink, verify: counted},
		},
	}
	updates := func(name, title string, changes func(base, n int64) []string, said string) streamJob {
		return streamJob{
			job:  job{name: name, title: title, rows: 500_000, note: behindNote + " Into a logged table with a primary key."},
			base: 1_000_000, make: changes, said: said,
			variants: []follower{{name: "leat", id: "leat", sinks: "  kept: {postgres: {url: 'INTO'}}", verify: inPostgres}},
		}
	}
	mixed := func(name, title string, rows int64, f follower) streamJob {
		f.name, f.id, f.socket = "leat", "leat", true
		return streamJob{
			job:  job{name: name, title: title, rows: rows, note: behindNote + " They come over a unix socket."},
			make: insertsAndRandomUpdates, said: "inserts, then updates of random keys, 1,000 changes in a transaction",
			variants: []follower{f},
		}
	}
	lanes := streamJob{
		job: job{
			name: "stream-lanes", title: "Change stream through durable lanes → discard", rows: 2_000_000, least: 5,
			note: behindNote + " Durable lanes are on a disk and synced.",
		},
		make: insertsAndUpdates, said: "inserts, then an update of each row, 1,000 changes in a transaction",
		variants: []follower{
			{name: "leat, lanes in memory", id: "memory", sinks: discardSink, more: "lanes: memory", verify: counted},
			{name: "leat, durable lanes", id: "durable", sinks: discardSink, more: "lanes: durable", verify: counted},
		},
	}
	transaction := streamJob{
		job: job{
			name: "stream-transaction", title: "A transaction of 10 million rows", rows: 10_000_000, most: 1,
			note: "Into a log of Parquet files. The longest time without feedback to the server is beside it.",
		},
		make: oneTransaction, said: "inserts in one transaction",
		variants: []follower{{name: "leat", id: "leat", sinks: parquetLog, verify: inLog}},
	}
	all := []job{
		discard.finish(),
		updates("stream-postgres-random", "Change stream → Postgres, random keys", randomUpdates, "updates of random keys, 1,000 in a "+
			"transaction").finish(),
		updates("stream-postgres-ordered", "Change stream → Postgres, in key order", orderedUpdates, "updates in key order, 1,000 in "+
			"a transaction").finish(),
		mixed("stream-sqlite", "Change stream → SQLite", 500_000, follower{
			sinks:  "  kept: {sqlite: {path: 'DIR/out.db'}}",
			verify: inSQLite,
		}).finish(),
		mixed("stream-duckdb", "Change stream → DuckDB", 1_000_000, follower{
			sinks:  "  kept: {duckdb: {path: 'DIR/out.duckdb'}}",
			verify: inDuckDB,
		}).finish(),
		mixed("stream-parquet", "Change stream → a log of Parquet files", 1_000_000, follower{sinks: parquetLog, verify: inLog}).finish(),
		mixed("stream-kafka", "Change stream → Kafka", 1_000_000, follower{
			sinks: kafkaSink, settings: kafkaSettings, verify: inKafka,
		}).finish(),
		lanes.finish(), transaction.finish(),
	}
	return all
}

const parquetLog = "  kept: {file: {path: 'DIR/', format: parquet, log: true}}"

// fanoutFollow follows changes into one sink, and into the same one and a second one that costs nothing itself.
func fanoutFollow() job {
	return streamJob{
		job: job{
			name: "fanout-follow", title: "Fan-out of changes: Postgres → a log of Parquet files", rows: 600_000, least: fanoutRounds,
			note: fanoutNote + " The changes wait when a run begins. Durable lanes are on a disk, which makes wall times spread by " +
				"more than " +
				"the sinks differ: CPU time tells more. Lanes in memory are beside them to compare.",
		},
		make: insertsAndUpdates, said: "inserts, then an update of each row, 1,000 changes in a transaction",
		variants: []follower{
			{name: "leat, one sink, durable lanes", id: "one", sinks: parquetLog, more: "lanes: durable", verify: inLog},
			{
				name: "leat, the same and discard", id: "two", sinks: parquetLog + "\n" + discardSink, more: "lanes: durable",
				verify: inLog,
			},
			{name: "leat, one sink, lanes in memory", id: "memory", sinks: parquetLog, more: "lanes: memory", verify: inLog},
		},
	}.finish()
}

// usual is how many rows a transaction changes.
const usual = 1000

// inTransactions makes a block of PL/pgSQL that runs a statement for ranges of numbers up to n: lo and hi, both included.
func inTransactions(n, perTransaction int64, statement string) string {
	return fmt.Sprintf("do $$ declare lo bigint := 1; hi bigint; begin while lo <= %d loop hi := least(lo + %d, %d); %s; commit; lo "+
		":= hi + 1; "+
		"end loop; end $$", n, perTransaction-1, n, statement)
}

func inserts(base, n int64) string {
	return inTransactions(n, usual, fmt.Sprintf("insert into "+followed+" %s",
		values(narrow(), fmt.Sprintf("%d + lo", base), fmt.Sprintf("%d + hi", base))))
}

// someUpdates updates one row after the other, in the order of numbers; key is an expression of a number i.
func someUpdates(n, perTransaction int64, key string) string {
	return inTransactions(n, perTransaction, "for i in lo..hi loop update "+followed+" set qty = qty + 1, price = i * 0.5, amt = i * "+
		"0.01, "+
		"name = 'changed ' || i where id = "+key+"; end loop")
}

func insertsAndUpdates(base, n int64) []string {
	return []string{
		inserts(base, n/2),
		inTransactions(n/2, usual, fmt.Sprintf("update "+followed+" set qty = qty + 1, name = name || '!' where id between %[1]d + lo "+
			"and %[1]d + hi", base)),
	}
}

func insertsAndRandomUpdates(base, n int64) []string {
	return []string{inserts(base, n/2), someUpdates(n/2, usual, random(base+n/2))}
}

func randomUpdates(base, n int64) []string { return []string{someUpdates(n, usual, random(base))} }

func orderedUpdates(base, n int64) []string {
	return []string{someUpdates(n, usual, fmt.Sprintf("1 + i %% %d", base))}
}

// random spreads numbers over the keys 1 to n, in an order that only looks random.
func random(n int64) string { return fmt.Sprintf("1 + i::bigint * 7368787 %% %d", n) }

func oneTransaction(base, n int64) []string {
	return []string{"insert into " + followed + " " + values(narrow(), base+1, base+n)}
}

// counted compares nothing: of what was thrown away there is only the number.
func counted(context.Context, jobEnv, follower) error { return nil }

func inPostgres(ctx context.Context, e jobEnv, f follower) error {
	return sameTables(ctx, e.postgres, followed, f.into(e), followed)
}

func inSQLite(ctx context.Context, e jobEnv, f follower) error {
	want, err := exportTable(ctx, e.dir, e.postgres, followed, narrow())
	if err != nil {
		return err
	}
	got, err := exportSQLite(e.dir, filepath.Join(f.dir(e), "out.db"), "changes", narrow())
	return errors.Join(err, sameRelations(ctx, narrow(), want, got))
}

func inDuckDB(ctx context.Context, e jobEnv, f follower) error {
	want, err := exportTable(ctx, e.dir, e.postgres, followed, narrow())
	return errors.Join(err, sameRelations(ctx, narrow(), want, "o.changes",
		"attach "+quoteSQL(filepath.Join(f.dir(e), "out.duckdb"))+" as o (read_only)"))
}

// inLog compares the last state of every row of a log of changes with the source, and says whether the log has each change once.
func inLog(ctx context.Context, e jobEnv, f follower) error {
	want, err := exportTable(ctx, e.dir, e.postgres, followed, narrow())
	if err != nil {
		return err
	}
	made, err := changesMade(ctx, e)
	if err != nil {
		return err
	}
	log := parquetRelation(filepath.Join(f.dir(e), followed, "*.parquet"))
	return sameRelations(ctx, narrow(), want, "latest",
		"create view log as select * from "+log,
		fmt.Sprintf("create view counted as select case when count(*) = %[1]d and count(distinct _seq) = %[1]d then true else "+
			"error('the log has ' || "+
			"count(*) || ' changes, %[1]d were made') end as ok from log where _op in ('c', 'u')", made),
		"create view latest as select arg_max(columns(l.* exclude (_op, _commit_time, _position, _seq, _unchanged, _before)), _seq) "+
			"from log l where (select ok from counted) group by id")
}
