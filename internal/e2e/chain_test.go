package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/internal/pgtest"
)

// TestChain: writers change tables in MySQL, one process follows them into Kafka, another one follows the topics into Postgres, and each
// of the four is killed again and again: both processes, the MySQL server and the broker. At rest Postgres has what a plain copy of MySQL
// has, row for row and type for type.
//
// LEAT_CHAIN_SECONDS makes it longer, LEAT_FOLLOW_SEED repeats the choices of one run.
//
// clauses E8, E9.
func TestChain(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	seed := uint64(amount(t, "LEAT_FOLLOW_SEED", int(time.Now().UnixNano())))
	seconds := time.Duration(amount(t, "LEAT_CHAIN_SECONDS", 20)) * time.Second
	t.Logf("LEAT_FOLLOW_SEED=%d", seed)
	flavor := mysqltest.MySQL
	if os.Getenv("LEAT_TEST_MYSQL") == "" {
		flavor = mysqltest.MariaDB
	}
	r, server, broker := rand.New(rand.NewPCG(seed, 1)), mysqltest.Server(t, flavor), kafkatest.NewServer(t)
	source, target, dir := server.Database(), pgtest.Database(t), t.TempDir()
	database := databaseOf(t, source)
	// A topic of rows by key has no place for rows without one, nor for the emptying of a table.
	tables := slices.DeleteFunc(mysqlTables(), func(tb followedTable) bool { return tb.name == "keyless" })
	work := workload{tables: tables, big: bigMySQL, next: counter()}
	fillMySQL(t, r, source, work, 500)

	format := "format=avro&registry=" + kafkatest.Registry(t)
	in := &follower{
		bin: buildLeat(t), state: filepath.Join(dir, "in"), source: source + "?tables=" + database + ".*&chunk_bytes=30000",
		targets: []string{fmt.Sprintf("kafka://%s/?topic=%s-{table}&partitions=2&%s", broker.Addr, database, format)},
	}
	out := &follower{
		bin: in.bin, state: filepath.Join(dir, "out"),
		source:  fmt.Sprintf("kafka://%s/%s-*?keyed=true&refresh=1s&%s", broker.Addr, database, format),
		targets: []string{target},
	}
	in.once(t) // so that there are topics to read
	w := startWriters(t, seed, 3, work, func() session { return newMySession(t, source, true) })
	reading, writing := in.start(t), out.start(t)
	kills := slices.Concat(
		slices.Repeat([]func(){func() { reading.kill(); reading = in.start(t) }}, 5),
		slices.Repeat([]func(){func() { writing.kill(); writing = out.start(t) }}, 5),
		[]func(){func() { server.Kill(); server.Start() }, func() { broker.Kill(); broker.Start() }},
	)
	r.Shuffle(len(kills), func(i, j int) { kills[i], kills[j] = kills[j], kills[i] })
	for _, kill := range kills {
		time.Sleep(time.Duration(r.Int64N(int64(seconds) * 2 / int64(len(kills)))))
		w.check()
		reading.alive()
		writing.alive()
		kill()
	}
	t.Logf("%d transactions", w.rest())
	w.check()
	reading.kill()
	writing.kill()
	in.once(t)
	out.once(t)

	fresh := pgtest.Database(t)
	run(t, in.bin, "copy", in.source, fresh, "--state", filepath.Join(dir, "fresh"))
	for _, tb := range tables {
		sameRows(t, in.bin, tb.name, fmt.Sprintf("%s&table=public.%s-%s", target, database, tb.name), fresh+"&table="+database+"."+tb.name)
	}
}
