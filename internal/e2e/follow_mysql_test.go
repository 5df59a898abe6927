package e2e_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/internal/pgtest"
)

const wideMySQL = `, u8 bigint unsigned, i1 tinyint, b1 tinyint(1), u2 smallint unsigned, i3 mediumint, f4 float, f8 double, amount decimal(20,5),
	any_num decimal(65,30), txt text, lat varchar(60) character set latin1, vb varbinary(40), fix binary(6), d date, tm time(6), dt datetime(6),
	ts timestamp(6) null, y year, bits bit(13), picks set('a','b','c'), mood enum('sad','it''s ok'), j json, g point`

// wideMySQLValues are values of wideMySQL, from a number.
func wideMySQLValues(r *rand.Rand, n int64) string {
	if r.IntN(12) == 0 {
		return strings.Repeat(", NULL", 23)
	}
	return fmt.Sprintf(`, 18446744073709551615 - %d, %d, %d, %d, %d, %d.5, %d.25e0 / 3, %d.12345, -%d.%030d, 'it''s "%d" \\ é 😀', 'ÿ v%d', x'00ff%02x', x'%02x00',
		date '2026-01-01' + interval %d day, sec_to_time(%d * 60 - 3020399 + 0.123456), timestamp '1044-03-15 12:00:00.5' + interval %d day,
		timestamp '2026-01-01 00:00:00.123456' + interval %d hour, %d, %d, %d, '%s', '{"a": %d, "b": [%d, null]}', point(%d, -1.5)`,
		n, n%128, n%2, n%65536, n%1000-500, n%1000, n, n%100000, n, n%1000003, n, n, n%256, n%256,
		n%1000, n%60000, n%3000, n%9000, 1901+n%255, n%8192, n%8, []string{"sad", "it''s ok"}[n%2], n, n, n)
}

// mysqlTables are tables of all kinds of keys, and one with all types.
func mysqlTables() []followedTable {
	table := func(name, columns, pick, move string, values func(r *rand.Rand, n int64) string) followedTable {
		return followedTable{
			name: name, ddl: "create table " + name + " (" + columns + ")", pick: pick, move: move,
			insert: func(r *rand.Rand, n int64) string {
				return "insert ignore into " + name + " values (" + values(r, n) + ")"
			},
		}
	}
	plain := func(r *rand.Rand, n int64) string { return fmt.Sprintf("%d, %d, %s", n, n, toast(r, n)) }
	const byID, byN = "id %% 997 = %d %% 997", "n %% 997 = %d %% 997"
	var ts []followedTable
	for i := range 3 {
		ts = append(ts, table(fmt.Sprintf("plain%d", i), "id bigint primary key, n int not null, doc mediumtext", byID, "id = -id - %d", plain))
	}
	return append(ts,
		table("wide", "id int primary key, n int not null, doc mediumtext"+wideMySQL, byID, "id = -id - %d", func(r *rand.Rand, n int64) string {
			return plain(r, n) + wideMySQLValues(r, n)
		}),
		table("composite", "a varchar(40) collate utf8mb4_bin, b int, n int not null, doc mediumtext, primary key (a, b)", "b %% 997 = %d %% 997",
			"b = -b - %d", func(r *rand.Rand, n int64) string {
				return fmt.Sprintf("'%s%d', %d, %d, %s", []string{"k", "K", "é", "_"}[n%4], n%50, n, n, toast(r, n))
			}),
		table("by_unsigned", "id bigint unsigned primary key, n int not null, doc mediumtext", byN, "", func(r *rand.Rand, n int64) string {
			return fmt.Sprintf("18446744073709551615 - %d, %d, %s", n, n, toast(r, n))
		}),
		table("by_binary", "id binary(20) primary key, n int not null, doc mediumtext", byN, "", func(r *rand.Rand, n int64) string {
			return fmt.Sprintf("x'%016x00', %d, %s", n, n, toast(r, n))
		}),
		table("by_index", "code varchar(200) not null, n int not null, doc mediumtext, unique key by_index_code (code)", byN,
			"code = concat(code, '-%d')", func(r *rand.Rand, n int64) string {
				return fmt.Sprintf("'c%d', %d, %s", n, n, toast(r, n))
			}),
		followedTable{
			name: "keyless", ddl: "create table keyless (n int, v varchar(40))", pick: "n %% 101 = %d %% 101 limit 1",
			insert: func(_ *rand.Rand, n int64) string {
				return fmt.Sprintf("insert into keyless values (%d, 'v%d'), (%d, 'v%d')", n%500, n%7, n%500, n%7)
			},
		},
	)
}

func bigMySQL(from int64) string {
	const digits = "(select 0 i union all select 1 union all select 2 union all select 3 union all select 4 union all select 5 union all " +
		"select 6 union all select 7 union all select 8 union all select 9)"
	return fmt.Sprintf(`begin; insert ignore into plain0 select %d + a.i + 10 * b.i + 100 * c.i, a.i, if(a.i = 5, repeat(lpad(b.i, 32, 'ab'), 200), null)
		from %s a, %s b, %s c; update plain0 set n = n + 1 where id %% 11 = 0; commit`, from, digits, digits, digits)
}

// mySession is a writer's connection to MySQL or MariaDB, which is made anew when the server was killed.
type mySession struct {
	db      *sql.DB
	crashes bool // the server is killed at times
}

func newMySession(t *testing.T, address string, crashes bool) mySession {
	t.Helper()
	db := mysqltest.DB(t, address)
	db.SetMaxOpenConns(1) // what a transaction left open is the next one's, too
	return mySession{db, crashes}
}

// mySettings let writers wait for each other as little as can be.
const mySettings = "set session transaction isolation level read committed; set innodb_lock_wait_timeout = 5; "

func (s mySession) exec(ctx context.Context, sql string) error {
	_, err := s.db.ExecContext(ctx, mySettings+sql)
	return err
}

func (s mySession) clashed(ctx context.Context, err error) bool {
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		// Two keys that met, a wait for a lock that took long, a deadlock; and a server that is going down.
		if !slices.Contains([]uint16{1062, 1205, 1213}, my.Number) && (!s.crashes || my.Number != 1053) {
			return false
		}
	} else if _, network := errors.AsType[net.Error](err); !s.crashes || !network && !errors.Is(err, driver.ErrBadConn) &&
		!errors.Is(err, mysql.ErrInvalidConn) && !errors.Is(err, io.EOF) {
		return false
	}
	if _, err := s.db.ExecContext(ctx, "rollback"); err != nil {
		time.Sleep(50 * time.Millisecond) // the server is down
	}
	return true
}

// fillMySQL makes the tables, with rows.
func fillMySQL(t *testing.T, r *rand.Rand, source string, work workload, rows int) {
	t.Helper()
	for _, tb := range work.tables {
		inserts := make([]string, rows)
		for i := range inserts {
			inserts[i] = tb.insert(r, work.next())
		}
		mysqltest.Exec(t, source, tb.ddl, "begin; "+strings.Join(inserts, ";")+"; commit")
	}
}

// databaseOf is the name of a URL's database.
func databaseOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// TestFollowKillNineMySQL: four writers change tables of all types and kinds of keys in MySQL and in MariaDB while the real program copies
// and follows them into Postgres, SQLite and Kafka, and is killed again and again. At rest the tables equal the source row for row, and
// the topics, read with read_committed by two clients, hold every change once, in order per key.
//
// LEAT_FOLLOW_MYSQL_SECONDS makes it longer, LEAT_FOLLOW_SEED repeats the choices of one run.
//
// clauses E8, E9, E11, S4.
func TestFollowKillNineMySQL(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	for _, flavor := range mysqltest.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			const restarts = 12
			seed := uint64(amount(t, "LEAT_FOLLOW_SEED", int(time.Now().UnixNano())))
			budget := time.Duration(amount(t, "LEAT_FOLLOW_MYSQL_SECONDS", 25)) * time.Second / restarts
			t.Logf("LEAT_FOLLOW_SEED=%d", seed)
			r, began := rand.New(rand.NewPCG(seed, 1)), time.Now()
			source, target, dir := mysqltest.Database(t, flavor), pgtest.Database(t), t.TempDir()
			broker, prefix, database := kafkatest.Broker(t), kafkatest.Prefix(t), databaseOf(t, source)
			work := workload{tables: mysqlTables(), big: bigMySQL, emptied: []string{"plain2", "keyless", "by_binary"}, next: counter()}
			fillMySQL(t, r, source, work, 1000)

			sqlite := "sqlite:" + filepath.Join(dir, "t.db")
			topics := func(prefix string) string {
				return fmt.Sprintf("kafka://%s/?topic=%s{table}&format=debezium&truncate=event&partitions=3&transactional_id_prefix=%s&position_topic=%spositions",
					broker, prefix, prefix, prefix)
			}
			tables := source + "?tables=" + database + ".*"
			f := &follower{
				bin: buildLeat(t), state: filepath.Join(dir, "state"), source: tables + "&chunk_bytes=30000",
				targets: []string{target, sqlite, topics(prefix)},
			}
			w := startWriters(t, seed, 4, work, func() session { return newMySession(t, source, false) })
			for range restarts {
				f.runFor(t, budget/4+time.Duration(r.Int64N(int64(budget)*3/2)))
				w.check()
			}
			t.Logf("%s: the writers rest after %d transactions", time.Since(began), w.rest())
			f.once(t)
			t.Logf("%s: everything is followed", time.Since(began))

			freshSQLite, freshPostgres, freshTopics := "sqlite:"+filepath.Join(dir, "fresh.db"), pgtest.Database(t), kafkatest.Prefix(t)
			for i, fresh := range []string{freshSQLite, freshPostgres, topics(freshTopics)} {
				run(t, f.bin, "copy", tables, fresh, "--state", filepath.Join(dir, strconv.Itoa(i)))
			}
			for _, tb := range work.tables {
				sameRows(t, f.bin, tb.name, sqlite+"?table="+tb.name, freshSQLite+"?table="+tb.name)
				sameRows(t, f.bin, tb.name, target+"&table="+database+"."+tb.name, freshPostgres+"&table="+database+"."+tb.name)
				followed := kafkatest.Read(t, broker, prefix+tb.name)
				sameTopic(t, tb.name, followed, kafkatest.Read(t, broker, freshTopics+tb.name))
				if slices.Contains([]string{"wide", "composite", "keyless"}, tb.name) {
					sameInJava(t, broker, prefix+tb.name, followed)
				}
			}
			t.Logf("%s: all is compared", time.Since(began))
		})
	}
}

// sameTopic replays the envelopes of a topic strictly, in the order of each partition, and compares what remains with a fresh copy.
func sameTopic(t *testing.T, table string, followed, fresh []*kgo.Record) {
	t.Helper()
	got, want := rowsIn(t, table, followed), rowsIn(t, table, fresh)
	if maps.Equal(got, want) {
		return
	}
	differ := 0
	for row, n := range want {
		if got[row] != n {
			if differ++; differ < 4 {
				t.Errorf("topic of %s: the source has %d times and the topic %d times the row %.300s", table, n, got[row], row)
			}
		}
	}
	t.Errorf("topic of %s ends with %d rows, of which %d are missing, and the source has %d", table, len(got), differ, len(want))
}

// rowsIn counts the rows that a topic of envelopes ends with.
func rowsIn(t *testing.T, table string, records []*kgo.Record) map[string]int {
	t.Helper()
	partitions, last := map[int32]*replayed{}, map[string]string{}
	for _, rec := range records {
		if rec.Value == nil {
			continue // a tombstone behind a deletion
		}
		l := logged{Key: rec.Key, Seq: rec.Offset}
		if err := json.Unmarshal(rec.Value, &l); err != nil {
			t.Fatalf("%s: %v", kafkatest.String(rec), err)
		}
		p := partitions[rec.Partition]
		if p == nil {
			p = &replayed{what: rec.Topic, keyless: table == "keyless", rows: map[string]int{}}
			partitions[rec.Partition] = p
		}
		p.apply(t, l)
		last[string(rec.Key)] = string(l.After)
	}
	rows := map[string]int{}
	for _, p := range partitions {
		for key, n := range p.rows {
			if !p.keyless {
				key = last[key]
			}
			rows[key] += n
		}
	}
	return rows
}

// sameInJava reads a topic with Java's console consumer: it sees the same as the other client.
func sameInJava(t *testing.T, broker, topic string, records []*kgo.Record) {
	t.Helper()
	want, got := map[int][]string{}, map[int][]string{}
	for _, r := range records {
		key, value := "\x01", "\x01"
		if r.Key != nil {
			key = string(r.Key)
		}
		if r.Value != nil {
			value = string(r.Value)
		}
		want[int(r.Partition)] = append(want[int(r.Partition)], fmt.Sprintf("%d %s %s", r.Offset, key, value))
	}
	for _, m := range kafkatest.Console(t, broker, topic, len(records)) {
		got[m.Partition] = append(got[m.Partition], fmt.Sprintf("%d %s %s", m.Offset, m.Key, m.Value))
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("the console consumer reads other messages in topic %s", topic)
	}
}
