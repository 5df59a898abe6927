package e2e_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/internal/pgtest"
)

// debeziumColumns are the types that Debezium's events tell exactly, in both directions.
const debeziumColumns = `id int primary key, n int not null, u8 bigint unsigned, i1 tinyint, u2 smallint unsigned, i3 mediumint, f8 double,
	amount decimal(20,5), big decimal(65,30), txt text, vb varbinary(40), d date, dt datetime(6), ts timestamp(6) null,
	mood enum('sad','it''s ok'), j json`

// changeDebezium makes the table items and changes it in all ways: rows that are there at first, and then an update, a deletion, a new key
// and a new row.
func changeDebezium(t *testing.T, source string, live func()) {
	t.Helper()
	var rows []string
	for n := range 100 {
		rows = append(rows, fmt.Sprintf(`(%d, %d, 18446744073709551615 - %d, %d, %d, %d, %d.25e0 / 3, %d.12345, -%d.%030d, 'it''s "%d" \\ é 😀',
			x'00ff%02x', date '2026-01-01' + interval %d day, timestamp '1944-03-15 12:00:00.123456' + interval %d day,
			timestamp '2026-01-01 00:00:00.123456' + interval %d hour, '%s', '{"a": %d}')`,
			n, n, n, n, n*600, n*80000-4000000, n, n, n*1000003, n, n, n, n, n, n, []string{"sad", "it''s ok"}[n%2], n))
	}
	mysqltest.Exec(t, source, "create table items ("+debeziumColumns+")", "insert into items values "+strings.Join(rows, ","),
		"insert into items (id, n) values (1000, 0)")
	live()
	mysqltest.Exec(t, source, "update items set n = n + 1, txt = null where id < 10", "delete from items where id between 20 and 29",
		"update items set id = -id where id between 30 and 39", "insert into items (id, n, txt) values (2000, 1, 'last')")
}

// TestDebeziumToLeat: what real Debezium writes, in JSON and in Avro, is read by leat: the rows in Postgres are those that a plain copy of MySQL has.
func TestDebeziumToLeat(t *testing.T) {
	for format, converter := range map[string]func(t testing.TB) map[string]string{
		"debezium": nil, "debezium-avro": kafkatest.Avro,
	} {
		t.Run(format, func(t *testing.T) {
			source, target, fresh, dir := mysqltest.Database(t, mysqltest.MySQL), pgtest.Database(t), pgtest.Database(t), t.TempDir()
			broker, prefix, database, bin := kafkatest.Broker(t), kafkatest.Prefix(t), databaseOf(t, source), buildLeat(t)
			settings := map[string]string{
				"decimal.handling.mode": "precise", "bigint.unsigned.handling.mode": "precise", "include.schema.changes": "false",
			}
			registry := ""
			if converter != nil {
				maps.Copy(settings, converter(t))
				settings["schema.name.adjustment.mode"] = "avro"
				registry = "&registry=" + kafkatest.Registry(t)
			}
			topic := prefix + "dbz." + database + ".items"
			var w *kafkatest.Worker
			changeDebezium(t, source, func() {
				w = kafkatest.Connect(t, broker, kafkatest.DebeziumMySQL(t, prefix+"dbz", source, settings))
				w.Until("the rows", func() bool { return topicHas(t, broker, prefix, topic, 101) })
			})
			// An update, a deletion with its tombstone, a new key as a deletion with a tombstone and a new row, and a row.
			const messages = 101 + 10 + 2*10 + 3*10 + 1
			w.Until("the changes", func() bool { return topicHas(t, broker, prefix, topic, messages) })
			run(t, bin, "copy", fmt.Sprintf("kafka://%s/%s?format=%s%s", broker, topic, format, registry), target+"&table=items",
				"--mode", "upsert", "--state", filepath.Join(dir, "state"))
			run(t, bin, "copy", source+"?table=items", fresh+"&table=items", "--state", filepath.Join(dir, "fresh"))
			sameItems(t, target, fresh)
		})
	}
}

// TestLeatToDebezium: what leat writes with envelopes is read by Debezium's JDBC sink in a real worker of Kafka Connect: the rows in Postgres are those that a
// plain copy of MySQL has.
func TestLeatToDebezium(t *testing.T) {
	for format, converter := range map[string]func(t testing.TB) map[string]string{
		"debezium-connect": nil, "debezium-avro": kafkatest.Avro,
	} {
		t.Run(format, func(t *testing.T) {
			source, target, fresh, dir := mysqltest.Database(t, mysqltest.MySQL), pgtest.Database(t), pgtest.Database(t), t.TempDir()
			broker, prefix, database, bin := kafkatest.Broker(t), kafkatest.Prefix(t), databaseOf(t, source), buildLeat(t)
			settings, registry := map[string]string{}, ""
			if converter != nil {
				settings, registry = converter(t), "&registry="+kafkatest.Registry(t)
			}
			f := &follower{
				bin: bin, state: filepath.Join(dir, "state"), source: source + "?tables=" + database + ".items",
				targets: []string{fmt.Sprintf("kafka://%s/?topic=%s{table}&format=%s%s&transactional_id_prefix=%s&position_topic=%spositions",
					broker, prefix, format, registry, prefix, prefix)},
			}
			changeDebezium(t, source, func() { f.once(t) })
			f.once(t)
			settings["collection.name.format"] = "items"
			w := kafkatest.Connect(t, broker, kafkatest.DebeziumJDBC(t, prefix+"sink", target, []string{prefix + "items"}, settings))
			conn := pgtest.Conn(t, target)
			w.Until("the last row", func() bool { return number(t, conn, "select count(*) from items where id = 2000") == 1 })
			run(t, bin, "copy", source+"?table=items", fresh+"&table=items", "--state", filepath.Join(dir, "fresh"))
			sameItems(t, target, fresh)
		})
	}
}

// sameItems compares the values of the table items, whatever types each side made of them; of JSON it is what it means.
func sameItems(t *testing.T, target, fresh string) {
	t.Helper()
	const rows = `select concat_ws('|', id, n, u8::numeric, i1, u2, i3, f8, amount::numeric(20,5), big::numeric(65,30), txt, vb, d, dt::timestamp,
		ts::timestamptz at time zone 'UTC', mood::text, j::jsonb) from items order by id`
	got, want := texts(t, pgtest.Conn(t, target), rows), texts(t, pgtest.Conn(t, fresh), rows)
	if len(got) != len(want) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("row %d is\n%s\nwant\n%s", i, got[i], want[i])
		}
	}
}

// topicHas reports whether the topic has that many messages.
func topicHas(t *testing.T, broker, prefix, topic string, n int) bool {
	t.Helper()
	return slices.Contains(kafkatest.Topics(t, broker, prefix), topic) && len(kafkatest.Read(t, broker, topic)) >= n
}
