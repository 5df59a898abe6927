package mysql_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// Every value of every type is the same by the log as by the snapshot: as it is inserted, as an image before and after a change of another
// column, and as it is deleted.
// cases C005, C007, C008, C009, C013, C014, C015, C018, C019, C020, C022.
func TestParity(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		for _, metadata := range []string{"", "FULL"} {
			t.Run("metadata "+metadata, func(t *testing.T) { parity(t, f, metadata) })
		}
	})
}

// parityCases are the cases of types, and what only the log could get wrong.
func parityCases(f mysqltest.Flavor) (out []typeCase) {
	all := slices.Concat(typeCases(), []typeCase{
		{typ: "varchar(300) character set latin1", values: []string{"'Zoë ß€'", "REPEAT('é', 300)"}},
		{typ: "char(60) character set utf8mb4", values: []string{"REPEAT('😀', 60)", "'a'"}},
		{typ: "char(255) character set utf8mb4", values: []string{"REPEAT('😀', 255)", "''"}},
		{typ: "text character set gbk", values: []string{"'测试 ß'"}},
		{typ: "varchar(20) character set ucs2", values: []string{"'测试 Zoë'"}},
		{typ: "varchar(20) character set utf16", values: []string{"'测试 😀'"}},
		{typ: "varchar(20) character set sjis", values: []string{"'テスト'"}},
		{typ: "enum('ja','né','测') character set gbk", values: []string{"'né'", "'测'", "NULL"}},
		{typ: "set('é','b','ß') character set latin1", values: []string{"'é,ß'", "''"}},
		{typ: "datetime(1)", values: []string{"'2026-01-30 12:34:56.7'"}},
		{typ: "datetime(2)", values: []string{"'2026-01-30 12:34:56.78'", "'0000-00-00 00:00:00'", "'2023-05-00 01:02:03.45'"}},
		{typ: "datetime(5)", values: []string{"'2026-01-30 12:34:56.78901'"}},
		{typ: "timestamp(3) NULL", values: []string{"'2026-01-30 12:34:56.789'", "'2038-01-19 03:14:07.999'", "'0000-00-00 00:00:00'", "NULL"}},
		{typ: "date", values: []string{"'0000-00-00'", "'2023-05-00'"}},
		{typ: "time(1)", values: []string{"'-00:00:00.1'", "'12:34:56.7'", "'-12:34:56.7'"}},
		{typ: "time(4)", values: []string{"'-00:00:01.0001'", "'-838:59:59'"}},
		{typ: "decimal(10,0)", values: []string{"-1", "1234567890"}},
		{typ: "decimal(18,9)", values: []string{"-123456789.123456789", "0.000000001"}},
		{typ: "decimal(4,4)", values: []string{"-0.0001", "0.9999"}},
		{typ: "mediumblob", values: []string{"REPEAT(X'00ff', 40000)"}},
		{typ: "bit(17)", values: []string{"b'10000000000000001'"}},
		{typ: "varchar(10000)", values: []string{"REPEAT('x', 10000)"}},
		{typ: "linestring", values: []string{"ST_GeomFromText('LINESTRING(0 0,1 1,2 3)')"}},
		{typ: "uuid", values: []string{
			"'f81d4fae-7dec-11d0-a765-00a0c91e6bf6'", "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
			"'0190163d-8694-739b-aea5-966c26f8ad91'", "'1ec9414c-232a-6b00-b3c8-9f6bdeced846'", "'9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d'",
			"'01234567-89ab-cdef-f123-456789abcd00'", "'9b1deb4d-3b7d-8bad-9bdd-2b0d7b3dcb00'",
		}, only: mysqltest.MariaDB},
		{typ: "inet6", values: []string{"'::ffff:0:0'", "'fe80::'", "'::1.2.3.4'"}, only: mysqltest.MariaDB},
		{typ: "varchar(100) compressed", values: []string{"REPEAT('ab', 50)", "'x'", "''"}, only: mysqltest.MariaDB},
		{typ: "blob compressed", values: []string{"REPEAT('ab', 5000)", "''"}, only: mysqltest.MariaDB},
		{typ: "json", only: mysqltest.MySQL, values: []string{
			`'{}'`, `'[]'`, `'null'`, `'true'`, `'-0.0'`, `'1e300'`, `'"a\\"b\\\\c\\n\\u0001é😀"'`, `'[1,-1,32768,-32769,2147483648,-9223372036854775808]'`,
			`JSON_ARRAY(1e15, 1e16, 123456789012345678e0, 1e-5, 1.5e-15, 1.5e-16, 0.1, 100.0e0, 1e22, 123456789012345.6e0)`,
			`JSON_OBJECT('d', CAST('2024-02-29' AS DATE), 't', CAST('-838:59:59.5' AS TIME(6)), 'dt', CAST('2024-02-29 01:02:03.000004' AS DATETIME(6)))`,
			`JSON_ARRAY(CAST(X'00ff' AS BINARY), b'101', CAST(-0.5 AS DECIMAL(3,2)), CAST(12345678901234567890.5 AS DECIMAL(30,5)))`,
			`JSON_ARRAY(REPEAT(X'ff', 100))`, `JSON_OBJECT('k', REPEAT('x', 70000), 'aa', JSON_ARRAY(1, 2, JSON_OBJECT('z', 1, 'y', JSON_ARRAY())))`,
			`JSON_ARRAY(FALSE, TRUE, NULL, 65535, 65536, 4294967295, 4294967296, 18446744073709551615)`,
			`CAST(CONCAT('[', REPEAT('70000,', 20000), '1]') AS JSON)`, `CAST(CONCAT('[', REPEAT('[', 50), REPEAT(']', 50), ']') AS JSON)`,
		}},
		{typ: "json", only: mysqltest.MariaDB, values: []string{`'{"a": 1.0, "é": "😀"}'`, "NULL"}},
	})
	for _, c := range all {
		if c.only == "" || c.only == f {
			out = append(out, c)
		}
	}
	return out
}

func parity(t *testing.T, f mysqltest.Flavor, metadata string) {
	t.Helper()
	s := mysqltest.Server(t, f, "default_time_zone=+05:30", "character_set_server=latin1")
	if metadata != "" {
		mysqltest.Exec(t, s.URL(), "SET GLOBAL binlog_row_metadata = '"+metadata+"'")
	}
	db := s.Database()
	cases := parityCases(f)
	var tables, inserts, updates, deletes []string
	for i, c := range cases {
		tables = append(tables, fmt.Sprintf("CREATE TABLE t%d (id int PRIMARY KEY, v %s, n int)", i, c.typ))
		for j, v := range c.values {
			inserts = append(inserts, fmt.Sprintf("INSERT INTO t%d VALUES (%d, %s, 0)", i, j, v))
			updates = append(updates, fmt.Sprintf("UPDATE t%d SET n = 1 WHERE id = %d", i, j))
			deletes = append(deletes, fmt.Sprintf("DELETE FROM t%d WHERE id = %d", i, j))
		}
	}
	session := []string{"SET SESSION sql_mode = '', time_zone = '-08:00'"}
	w := newFollower(t, db, map[string]string{"zero_dates": "text"}, tables...)
	g := w.start(t, record.Position{}, nil)
	w.do(t, append(session, inserts...)...)
	g.until(t, len(inserts))
	logged := rowsOf(g)
	snapshot := readAll(t, db, map[string]string{"zero_dates": "text"})
	for i, c := range cases {
		name := fmt.Sprintf("%s.t%d", w.name, i)
		sameRows(t, c.typ, snapshot.rows[name], logged[name])
		if s := snapshot.schemas[name]; !s.Columns.Equal(schemaOf(g, name).Columns) {
			t.Errorf("%s: the schema is\n%v\nby the log, and\n%v\nby the snapshot", c.typ, schemaOf(g, name).Columns, s.Columns)
		}
	}
	w.do(t, append(session, updates...)...)
	g.until(t, len(inserts)+len(updates))
	snapshot = readAll(t, db, map[string]string{"zero_dates": "text"})
	for _, b := range g.batches {
		if b.Schema == nil || b.Ops == nil {
			continue
		}
		before, now := *b, *b
		before.Rows, before.Ops, now.Ops = b.Old, nil, nil
		for i, row := range connectortest.Rows(&before) {
			if !slices.Contains(logged[b.Schema.Dataset], row) {
				t.Errorf("%s: the image before is %s", b.Schema.Dataset, row)
			}
			if after := connectortest.Rows(&now)[i]; !slices.Contains(snapshot.rows[b.Schema.Dataset], after) {
				t.Errorf("%s: the image after is %s", b.Schema.Dataset, after)
			}
		}
	}
	w.do(t, append(session, deletes...)...)
	for _, line := range g.until(t, len(inserts)+len(updates)+len(deletes))[len(inserts)+len(updates):] {
		if !strings.Contains(line, " delete ") {
			t.Errorf("a delete came as %.200s", line)
		}
	}
}

// rowsOf are the rows of all changes, by dataset.
func rowsOf(g *generation) map[string][]string {
	out := map[string][]string{}
	for _, b := range g.batches {
		if b.Schema != nil && b.NumRows() > 0 {
			out[b.Schema.Dataset] = append(out[b.Schema.Dataset], connectortest.Rows(b)...)
		}
	}
	return out
}

func schemaOf(g *generation, dataset string) (s *record.Schema) {
	for _, b := range g.batches {
		if b.Schema != nil && b.Schema.Dataset == dataset {
			s = b.Schema
		}
	}
	return s
}
