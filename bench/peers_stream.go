package main

import (
	"context"
	"fmt"
	"strings"
)

// Changes that others follow come over TCP: Java's driver knows no unix sockets.

// debezium is Debezium's embedded engine and its JDBC sink in one process, without Kafka between them, which would only cost time.
func debezium() tool {
	return tool{"debezium", "3.6.0.Final", "mvn -B -q -f SRC/debezium/pom.xml dependency:copy-dependencies -DoutputDirectory=DIR/lib " +
		"&& " +
		"javac -nowarn -d DIR/classes -cp 'DIR/lib/*' SRC/debezium/Follow.java"}
}

const (
	debeziumSource = "embedded engine, pgoutput, batches of 10,240, a queue of 40,960, ParallelGC; from the first change to the last one"
	debeziumSink   = "upsert by unnest, reWriteBatchedInserts, batches of 10,000, reduction buffer, ParallelGC"
)

// runDebezium is a command that follows a slot with Follow.java. It leaves what it measured in the file figures.
func runDebezium(e jobEnv, mode, slot, figures string, words ...string) string {
	t := debezium()
	return fmt.Sprintf("java -XX:+UseParallelGC -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp '%s:%s' "+
		"Follow %s %s %s %s %s $(< %s) %s %s",
		t.path(e, "classes"), t.path(e, "lib/*"), mode, quote(e.postgres), slot, e.publication, e.source, changesFile(e, slot), figures,
		strings.Join(words, " "))
}

// ownSlot is the command that gives a contender the changes under a slot of its own, and writes down how many they are by now: leat's runs
// add to them.
func ownSlot(e jobEnv, slot string) string {
	return psql(e.postgres, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '"+slot+"'",
		"select pg_copy_logical_replication_slot('"+e.slot+"', '"+slot+"')") + " > /dev/null && " +
		psql(e.postgres, fmt.Sprintf("select %d + count(*) from %s where id < 0", e.rows, e.source)) + " > " + changesFile(e, slot)
}

func changesFile(e jobEnv, slot string) string { return e.dir + "/" + slot + ".changes" }

// pglogrepl is a small reader made of the usual library of Go.
func pglogrepl() tool {
	return tool{
		"pglogrepl", "v0.0.0-20251213150135-2e8d0df862c1",
		"cd SRC && GOFLAGS= CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o DIR/pglogrepl ./pglogrepl",
	}
}

func peersDiscard(e jobEnv) []contender {
	cs := pglogrepl().with(e, contender{
		name: "jackc/pglogrepl, unix socket", settings: "proto_version 1, text, each row a map of decoded values",
		reset: ownSlot(e, "bench_pglogrepl_unix"), command: runPglogrepl(e, e.socket, "bench_pglogrepl_unix"),
	}, contender{
		name: "jackc/pglogrepl, TCP", settings: "proto_version 1, text, each row a map of decoded values",
		reset: ownSlot(e, "bench_pglogrepl"), command: runPglogrepl(e, e.postgres, "bench_pglogrepl"),
	})
	if e.socket == "" {
		cs = cs[1:]
	}
	figures := e.dir + "/debezium.json"
	return append(cs, debezium().with(e, contender{
		name: "Debezium, TCP", settings: debeziumSource, reset: ownSlot(e, "bench_debezium"), figures: figures,
		command: runDebezium(e, "discard", "bench_debezium", figures),
	})...)
}

func runPglogrepl(e jobEnv, server, slot string) string {
	return fmt.Sprintf("%s %s %s %s $(< %s)", pglogrepl().path(e, "pglogrepl"), quote(server), slot, e.publication, changesFile(e, slot))
}

func peersStreamPostgres(e jobEnv) []contender {
	verify := func(ctx context.Context, _ string) error {
		return sameTables(ctx, e.postgres, e.source, e.into, e.target)
	}
	contend := func(name, mode, settings string) contender {
		slot, figures := "bench_debezium_"+mode, e.dir+"/debezium-"+mode+".json"
		return contender{
			name: name, settings: settings, reset: ownSlot(e, slot) + " && " + e.fresh, figures: figures, verify: verify,
			command: runDebezium(e, mode, slot, figures, quote(e.into), "true", "10000", "true"),
		}
	}
	return debezium().with(e,
		contend("Debezium, JDBC sink alone", "sink", debeziumSink+"; it finds all changes in memory, reading them is not measured"),
		contend("Debezium, engine and JDBC sink", "road", debeziumSource+"; "+debeziumSink))
}
