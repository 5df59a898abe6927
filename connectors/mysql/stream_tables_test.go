package mysql_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// bothMetadata runs a test with servers that write little and all about columns.
func bothMetadata(t *testing.T, test func(t *testing.T, f mysqltest.Flavor, url string)) {
	t.Helper()
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		for _, metadata := range []string{map[mysqltest.Flavor]string{mysqltest.MySQL: "MINIMAL", mysqltest.MariaDB: "NO_LOG"}[f], "FULL"} {
			t.Run(metadata, func(t *testing.T) {
				s := mysqltest.Server(t, f, "binlog_row_metadata="+metadata)
				test(t, f, s.Database())
			})
		}
	})
}

// Old events are read with the columns that they were written with.
// case C051.
func TestColumnsByPosition(t *testing.T) {
	bothMetadata(t, func(t *testing.T, _ mysqltest.Flavor, url string) {
		t.Helper()
		w := newFollower(t, url, nil, `CREATE TABLE t (id int PRIMARY KEY, a varchar(10), y int, z enum('p','q'))`)
		w.do(t,
			`INSERT INTO t VALUES (1, 'a', 10, 'p')`,
			`ALTER TABLE t ADD COLUMN x varchar(20) DEFAULT 'new' AFTER id`,
			`INSERT INTO t VALUES (2, 'xx', 'b', 20, 'q')`,
			`ALTER TABLE t DROP COLUMN y, MODIFY z enum('q','p','r') NULL`,
			`INSERT INTO t VALUES (3, 'yy', 'c', 'r')`,
			`ALTER TABLE t MODIFY a varchar(50) FIRST, ADD (k bigint unsigned NOT NULL, l text)`,
			`INSERT INTO t VALUES ('d', 4, 'zz', 'q', 18446744073709551615, 'll')`,
			`ALTER TABLE t CHANGE COLUMN x w varchar(30) AFTER l, DROP COLUMN k`,
			`INSERT INTO t VALUES ('e', 5, 'p', 'mm', 'ww')`,
			`RENAME TABLE t TO u, u TO t`,
			`CREATE INDEX i ON t (a)`, `ALTER TABLE t ADD INDEX j (w(5)), COMMENT = 'a, b', ENGINE = InnoDB`,
			`UPDATE t SET w = NULL WHERE id = 1`)
		want := []string{
			"t insert id=1 a=a y=10 z=p",
			"t insert id=2 x=xx a=b y=20 z=q",
			"t insert id=3 x=yy a=c z=r",
			"t insert a=d id=4 x=zz z=q k=18446744073709551615 l=ll",
			"t insert a=e id=5 z=p l=mm w=ww",
			"t update a=a id=1 z=p l=null w=null was a=a id=1 z=p w=new",
		}
		g := w.start(t, record.Position{}, nil)
		g.follows(t, want...)
		for _, m := range g.marks {
			again := w.start(t, m.position, nil)
			if m.lines < len(want) {
				again.follows(t, want[m.lines:]...)
			}
			closeSource(t, again.src)
		}
		checkSchemas(t, g)
	})
}

// checkSchemas looks at what neighbouring schemas tell: which columns are the same under another name, and what older rows have.
func checkSchemas(t *testing.T, g *generation) {
	t.Helper()
	var last *record.Schema
	var told []string
	for _, b := range g.batches {
		if b.Schema == nil || b.Schema == last {
			continue
		}
		if last != nil {
			d := record.Diff(last, b.Schema)
			for _, r := range d.Renamed {
				told = append(told, "renamed "+r.From+" "+r.To)
			}
			for _, name := range d.Added {
				v, ok := record.MissingOf(b.Schema.Columns.Field(b.Schema.Column(name)))
				told = append(told, fmt.Sprintf("added %s %q %v", name, v, ok))
			}
			for _, name := range d.Dropped {
				told = append(told, "dropped "+name)
			}
		}
		last = b.Schema
	}
	sameRows(t, "what the schemas tell", []string{
		`added x "new" true`, "dropped y", `added k "0" true`, `added l "" false`, "renamed x w", "dropped k",
	}, told)
}

// TRUNCATE, DROP and CREATE come in their order with the rows; new tables join.
func TestTables(t *testing.T) {
	bothMetadata(t, func(t *testing.T, _ mysqltest.Flavor, url string) {
		t.Helper()
		w := newFollower(t, url, map[string]string{"tables": "*,!*.skip*"}, `CREATE TABLE t (id int PRIMARY KEY, v int)`, `CREATE TABLE skipped (id int)`)
		w.do(t, `INSERT INTO t VALUES (1, 1)`, `TRUNCATE t`, `INSERT INTO t VALUES (2, 2)`, `INSERT INTO skipped VALUES (1)`, `DROP TABLE t`,
			`CREATE TABLE t (k varchar(5) NOT NULL, PRIMARY KEY (k), w double)`, `INSERT INTO t VALUES ('a', 1.5)`,
			`CREATE TABLE IF NOT EXISTS t (id int)`, `CREATE TABLE late (id int AUTO_INCREMENT, c char(3), UNIQUE KEY (id))`,
			`INSERT INTO late (c) VALUES ('abc')`, `CREATE TABLE copy LIKE late`, `INSERT INTO copy SELECT * FROM late`,
			`CREATE TABLE made AS SELECT 7 AS n`, `CREATE TEMPORARY TABLE tmp (id int)`, `INSERT INTO tmp VALUES (1)`, `DROP TEMPORARY TABLE tmp`)
		g := w.start(t, record.Position{}, nil)
		lines := g.until(t, 8)
		sameRows(t, "t", []string{
			"t insert id=1 v=1", "t truncate", "t insert id=2 v=2", "t truncate", "t insert k=a w=1.5",
		}, only(lines, "t "))
		sameRows(t, "late", []string{"late insert id=1 c=abc"}, only(lines, "late "))
		sameRows(t, "copy", []string{"copy insert id=1 c=abc"}, only(lines, "copy "))
		sameRows(t, "made", []string{"made insert n=7"}, only(lines, "made "))
		g.quiet(t)
	})
}

// A table that is renamed to a name that is not selected stops the stream, and one that takes the name of another goes on.
func TestRenamed(t *testing.T) {
	bothMetadata(t, func(t *testing.T, _ mysqltest.Flavor, url string) {
		t.Helper()
		w := newFollower(t, url, map[string]string{"tables": "t"}, `CREATE TABLE t (id int PRIMARY KEY, v int)`, `CREATE TABLE s (id int PRIMARY KEY, v int, w int)`)
		g := w.start(t, record.Position{}, nil)
		w.do(t, `INSERT INTO t VALUES (1, 1)`, `RENAME TABLE t TO old, s TO t`, `INSERT INTO t VALUES (1, 2, 3)`)
		g.follows(t, "t insert id=1 v=1", "t insert id=1 v=2 w=3")
		w.do(t, `ALTER TABLE t RENAME TO gone`)
		if err := g.fails(t); connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(err.Error(), "gone") {
			t.Errorf("the error has class %v: %v", connector.ClassOf(err), err)
		}
	})
}

// What an image of a row lacks is not taken for NULL.
// case C052.
func TestRowImages(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		w := newFollower(t, mysqltest.Database(t, f), nil, `CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(10), c text, d int)`,
			`INSERT INTO t VALUES (1, 1, 'b', 'c', NULL), (2, 2, 'b', 'c', 2), (3, 3, 'b', 'c', 3)`)
		g := w.start(t, record.Position{}, nil)
		w.do(t, `SET SESSION binlog_row_image = 'MINIMAL'`, `UPDATE t SET a = 5 WHERE id = 1`, `UPDATE t SET id = 20 WHERE id = 2`, `DELETE FROM t WHERE id = 3`,
			`SET SESSION binlog_row_image = 'NOBLOB'`, `UPDATE t SET a = 6 WHERE id = 1`, `SET SESSION binlog_row_image = 'FULL'`, `DELETE FROM t WHERE id = 1`)
		g.follows(t, "t update id=1 a=5 b=~ c=~ d=~ was id=1", "t update id=20 a=~ b=~ c=~ d=~ was id=2", "t delete id=3",
			"t update id=1 a=6 b=b c=~ d=null was id=1 a=5 b=b", "t delete id=1 a=6 b=b c=c")
		w.do(t, `SET SESSION binlog_row_image = 'MINIMAL'`, `INSERT INTO t (id, a) VALUES (9, 9)`)
		b, err := g.next(t, streamPatience)
		switch {
		case err != nil && strings.Contains(err.Error(), "binlog_row_image"):
		case b != nil && len(b.Unchanged) == 0 && slices.Contains(g.lines, "t insert id=9 a=9 b=null c=null d=null"):
		default:
			t.Errorf("%v, %v", g.lines, err)
		}
	})
}

// Changes of JSON documents in parts give the document that the server has; compressed transactions and events are like others.
// case C023.
func TestPartialAndCompressed(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		var settings []string
		if f == mysqltest.MariaDB {
			settings = []string{"log_bin_compress=ON", "log_bin_compress_min_len=10"}
		}
		s := mysqltest.Server(t, f, settings...)
		w := newFollower(t, s.Database(), nil, `CREATE TABLE t (id int PRIMARY KEY, d json)`, `CREATE TABLE u (id int PRIMARY KEY, v longtext)`)
		w.do(t, `INSERT INTO t VALUES (1, '{"k": 1, "b c": [1, {"x": "é"}, 3], "z": "`+strings.Repeat("y", 500)+`"}')`)
		g := w.start(t, record.Position{}, nil)
		g.until(t, 1)
		if f == mysqltest.MySQL {
			w.do(t, `SET SESSION binlog_row_value_options = 'PARTIAL_JSON'`, `SET SESSION binlog_transaction_compression = ON`,
				`UPDATE t SET d = JSON_SET(d, '$.k', 2)`, `UPDATE t SET d = JSON_SET(d, '$."b c"[1].x', JSON_ARRAY(1.0, 'q'))`,
				`UPDATE t SET d = JSON_REMOVE(d, '$."b c"[0]')`, `UPDATE t SET d = JSON_SET(d, '$.new', CAST(1.50 AS DECIMAL(5,2)), '$.k', NULL)`,
				`UPDATE t SET d = JSON_REPLACE(d, '$."b c"[0]', 'short')`, `UPDATE t SET d = JSON_ARRAY_INSERT(d, '$."b c"[0]', TRUE)`)
		} else {
			w.do(t, `UPDATE t SET d = JSON_SET(d, '$.k', 2)`, `UPDATE t SET d = JSON_SET(d, '$.k', 3)`, `UPDATE t SET d = JSON_SET(d, '$.k', 4)`,
				`UPDATE t SET d = JSON_SET(d, '$.k', 5)`, `UPDATE t SET d = JSON_SET(d, '$.k', 6)`, `UPDATE t SET d = JSON_SET(d, '$.k', 7)`)
		}
		g.until(t, 7)
		last := g.batches[len(g.batches)-1]
		var want string
		if err := w.db.QueryRowContext(t.Context(), "SELECT CAST(d AS CHAR) FROM t").Scan(&want); err != nil {
			t.Fatal(err)
		}
		if got := string(record.AppendText(nil, last.Rows.Column(1), last.NumRows()-1)); got != want {
			t.Errorf("the document is %s, want %s", got, want)
		}
		w.do(t, `BEGIN`, `INSERT INTO u VALUES (1, REPEAT('a', 100000)), (2, REPEAT('b', 100000))`, `UPDATE u SET v = 'c' WHERE id = 1`, `COMMIT`,
			`INSERT INTO u VALUES (3, 'd')`)
		lines := g.until(t, 11)
		if n := len(only(lines, "u ")); n != 4 {
			t.Errorf("%d changes of u came, want 4", n)
		}
	})
}

// Rows of a prepared transaction come where it is committed, once, and not at all where it is rolled back; a stream that is resumed in
// between reads them again.
func TestPrepared(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		w := newFollower(t, mysqltest.Database(t, f), nil, `CREATE TABLE t (id int PRIMARY KEY)`)
		name := w.name[len(w.name)-8:]
		g := w.start(t, record.Position{}, nil)
		w.do(t, `INSERT INTO t VALUES (1)`, `XA START '`+name+`1'`, `INSERT INTO t VALUES (2)`, `XA END '`+name+`1'`, `XA PREPARE '`+name+`1'`)
		w.do(t, `INSERT INTO t VALUES (3)`, `XA START '`+name+`2'`, `INSERT INTO t VALUES (4)`, `XA END '`+name+`2'`, `XA PREPARE '`+name+`2'`)
		g.until(t, 1)
		for len(g.lines) < 2 {
			if b, err := g.next(t, streamPatience); b == nil || err != nil {
				t.Fatal(err)
			}
		}
		at := g.marks[len(g.marks)-1]
		again := w.start(t, at.position, nil)
		w.do(t, `XA ROLLBACK '`+name+`2'`)
		w.do(t, `XA COMMIT '`+name+`1'`, `INSERT INTO t VALUES (5)`)
		g.follows(t, "t insert id=1", "t insert id=3", "t insert id=2", "t insert id=5")
		if at.lines == 1 {
			again.follows(t, "t insert id=3", "t insert id=2", "t insert id=5")
		}
	})
}

// A stream does not begin between the prepare of a transaction, where the log has its rows, and its commit.
func TestPreparedBefore(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		w := newFollower(t, mysqltest.Database(t, f), nil, `CREATE TABLE t (id int PRIMARY KEY)`)
		name := w.name[len(w.name)-8:]
		w.do(t, `XA START '`+name+`'`, `INSERT INTO t VALUES (1)`, `XA END '`+name+`'`, `XA PREPARE '`+name+`'`)
		src := w.open(t, nil)
		done := make(chan error, 1)
		go func() {
			var err error
			w.anchor, err = capability[connector.Anchor](t, src).Anchor(t.Context())
			done <- err
		}()
		select {
		case err := <-done:
			t.Errorf("the stream begins before the transaction ends: %v", err)
			done <- err
		case <-time.After(500 * time.Millisecond):
		}
		w.do(t, `XA COMMIT '`+name+`'`)
		if err := <-done; err != nil {
			t.Fatalf("%v (%s)", err, connector.HintOf(err))
		}
		closeSource(t, src)
		g := w.start(t, record.Position{}, nil)
		w.do(t, `INSERT INTO t VALUES (2)`)
		g.follows(t, "t insert id=2")
	})
}

// A change that the log has only as a statement stops the stream.
func TestStatementFormat(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		w := newFollower(t, mysqltest.Database(t, f), nil, `CREATE TABLE t (id int PRIMARY KEY)`)
		g := w.start(t, record.Position{}, nil)
		w.do(t, `INSERT INTO t VALUES (1)`, `SET SESSION binlog_format = 'STATEMENT'`, `INSERT INTO t VALUES (2)`)
		err := g.fails(t)
		if err == nil || !strings.Contains(connector.HintOf(err), "binlog_format") {
			t.Errorf("%v (%s)", err, connector.HintOf(err))
		}
		if !slices.Equal(g.lines, []string{"t insert id=1"}) {
			t.Errorf("before it came %q", g.lines)
		}
	})
}

// A change of a document that is not there stops the stream at its row, for good: what follows is never read in its place.
// cases C023, C052.
func TestPartialWithoutBefore(t *testing.T) {
	w := newFollower(t, mysqltest.Database(t, mysqltest.MySQL), nil, `CREATE TABLE t (id int PRIMARY KEY, d json)`)
	w.do(t, `INSERT INTO t VALUES (1, '{"k": 1, "z": "`+strings.Repeat("y", 500)+`"}')`, `SET SESSION binlog_row_value_options = 'PARTIAL_JSON'`,
		`SET SESSION binlog_row_image = 'MINIMAL'`, `UPDATE t SET d = JSON_SET(d, '$.k', 2)`, `INSERT INTO t VALUES (2, '{}')`)
	g := w.start(t, record.Position{}, nil)
	for range 2 {
		err := g.fails(t)
		if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(connector.HintOf(err), "binlog_row_") {
			t.Errorf("the error has class %v: %v (%s)", connector.ClassOf(err), err, connector.HintOf(err))
		}
		if len(g.lines) != 1 || len(g.marks) != 1 || !strings.HasPrefix(g.lines[0], "t insert id=1 ") {
			t.Errorf("before it came %.100q", g.lines)
		}
	}
}
