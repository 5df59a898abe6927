package mysql

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// A replacement keeps what belongs to the table: indexes, defaults, its comment, and, where foreign keys or triggers hang on it, the table.
func TestSinkReplaceKeepsTheTablesParts(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		sqlRun(t, db, "CREATE TABLE plain (id bigint PRIMARY KEY, v varchar(50), extra int DEFAULT 7, KEY by_v (v)) COMMENT 'ours'",
			"CREATE TABLE parent (id bigint PRIMARY KEY, v varchar(50))", "INSERT INTO parent VALUES (1, 'old'), (2, 'old'), (9, 'old')",
			"CREATE TABLE child (p bigint, FOREIGN KEY (p) REFERENCES parent (id))", "INSERT INTO child VALUES (1)",
			"CREATE TABLE log (id bigint)", "CREATE TRIGGER told AFTER INSERT ON parent FOR EACH ROW INSERT INTO log VALUES (NEW.id)")
		plain, parent := connectortest.Numbered("plain", 0, 3), connectortest.Numbered("parent", 1, 3)
		for run := range 2 {
			snk := startSink(t, sinkConfig(t, url), connector.Replace, uint64(run+1))
			must(t, snk.Write(t.Context(), plain))
			must(t, snk.Write(t.Context(), parent))
			must(t, snk.Finish(t.Context(), record.Progress{Run: "r1", Position: position(1).Position, Done: true}))
		}
		want(t, "plain", "0|value 0|7\n1|value 1|7\n2|value 2|7", one(t, db, "SELECT * FROM plain ORDER BY id"))
		want(t, "its parts", "ours|by_v", one(t, db, `SELECT TABLE_COMMENT, (SELECT MAX(INDEX_NAME) FROM information_schema.STATISTICS s
			WHERE s.TABLE_SCHEMA = DATABASE() AND s.TABLE_NAME = 'plain' AND INDEX_NAME <> 'PRIMARY')
			FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'plain'`))
		want(t, "parent", "1|value 1\n2|value 2\n3|value 3", one(t, db, "SELECT * FROM parent ORDER BY id"))
		want(t, "only the new row fired", "3", one(t, db, "SELECT * FROM log"))
		if _, err := db.ExecContext(t.Context(), "DELETE FROM parent WHERE id = 1"); err == nil {
			t.Error("the foreign key is gone")
		}
		want(t, "left behind", "0", one(t, db, `SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()
			AND (TABLE_NAME LIKE '\\_leat\\_new%' OR TABLE_NAME LIKE '\\_leat\\_old%')`))
	})
}

// Tables are made and changed while a transaction is open that holds rows of them and of others: nothing of it is committed by that.
func TestSinkTablesChangeInATransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		snk := startSink(t, sinkConfig(t, url), connector.Append, 1)
		id, v := record.WithID(idField, "1"), record.WithID(textField, "2")
		was := keyed("t", id, v)
		is := keyed("t", id, record.WithID(arrow.Field{Name: "w", Type: arrow.BinaryTypes.String, Nullable: true}, "2"),
			record.WithID(arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, "3"))
		must(t, snk.Evolve(t.Context(), nil, was))
		must(t, snk.Write(t.Context(), connectortest.BatchOf(was, []string{"1", `"a"`})))
		must(t, snk.Write(t.Context(), connectortest.Numbered("other", 0, 2000)))
		must(t, snk.Evolve(t.Context(), was, is))
		must(t, snk.Write(t.Context(), connectortest.BatchOf(is, []string{"2", `"b"`, "5"})))
		must(t, snk.Write(t.Context(), connectortest.Numbered("third", 0, 1)))
		want(t, "before the commit", "0|0|0", one(t, db, "SELECT (SELECT COUNT(*) FROM t), (SELECT COUNT(*) FROM other), (SELECT COUNT(*) FROM third)"))
		must(t, snk.Commit(t.Context(), position(1)))
		want(t, "t", "1|a|NULL\n2|b|5", one(t, db, "SELECT id, w, n FROM t ORDER BY id"))
		want(t, "others", "2000|1", one(t, db, "SELECT (SELECT COUNT(*) FROM other), (SELECT COUNT(*) FROM third)"))
	})
}

// clause S23
func TestSinkConstraints(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		sqlRun(t, db, "CREATE TABLE parent (id bigint PRIMARY KEY, v varchar(50))",
			"CREATE TABLE child (id bigint PRIMARY KEY, v varchar(50), FOREIGN KEY (id) REFERENCES parent (id))")
		snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
		err := snk.Write(t.Context(), connectortest.Numbered("child", 0, 3))
		if connector.ClassOf(err) != connector.ClassPermanent || !strings.Contains(connector.HintOf(err), "constraints=off") {
			t.Errorf("a row without its parent: %v, hint %q", err, connector.HintOf(err))
		}
		snk = startSink(t, sinkConfig(t, url+"?constraints=off"), connector.Upsert, 1)
		must(t, snk.Write(t.Context(), connectortest.Numbered("child", 0, 3)))
		must(t, snk.Write(t.Context(), connectortest.Numbered("parent", 0, 3)))
		must(t, snk.Commit(t.Context(), position(1)))
		want(t, "rows", "3", one(t, db, "SELECT COUNT(*) FROM child JOIN parent USING (id)"))
	})
}

// Every byte comes through both ways of appending rows, also those that end a field or a line of a file.
// cases C012, C020, C021, C025
func TestSinkFileAndStatementsAreTheSame(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		var ways []string
		for _, file := range []bool{true, false} {
			name := fmt.Sprintf("file_%t", file)
			s := keyed(name, idField, textField, arrow.Field{Name: "b", Type: arrow.BinaryTypes.Binary, Nullable: true},
				arrow.Field{Name: "bits", Type: record.BitsType(11, false), Nullable: true}, arrow.Field{Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
				arrow.Field{Name: "e", Type: record.EnumType("e", []string{"1", "0", `a\b`, "tab\there"}), Nullable: true},
				arrow.Field{Name: "d", Type: record.NumericType(), Nullable: true})
			var rows [][]string
			specials := []string{`""`, `"\\N"`, `"\\"`, `"a\tb"`, `"a\nb\n"`, `"a\u0000b"`, `"'"`, `"\r"`, `"\u001a"`, `"😀"`, "null", `" "`, `"\\t"`, `"\"x\""`}
			for i := range fileRows {
				e := []string{`"0"`, `"1"`, `"a\\b"`, `"tab\there"`, "null"}[i%5]
				rows = append(rows, []string{
					strconv.Itoa(i), specials[i%len(specials)], []string{`"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJyhc"`, `""`, `"XA=="`, "null"}[i%4],
					[]string{`"10000000001"`, `"00000001001"`, `"00000000000"`, "null"}[i%4], []string{"0.1", "-1e-300", "5e-324", "null"}[i%4], e, []string{"1.10", "-0.000000000000000000000000000001", "12345678901234567890", "0"}[i%4],
				})
			}
			snk := startSink(t, sinkConfig(t, url), connector.Append, 1)
			snk.db.load = file
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, rows...)))
			if file != (snk.reader != "") {
				t.Errorf("a file was used: %t, want %t", snk.reader != "", file)
			}
			must(t, snk.Commit(t.Context(), position(1)))
			ways = append(ways, one(t, db, "SELECT id, HEX(v), HEX(b), BIN(bits), f, HEX(e), d FROM "+name+" ORDER BY id LIMIT 60"))
		}
		want(t, "both ways", ways[1], ways[0])
		want(t, "a line feed", "610A620A", one(t, db, "SELECT HEX(v) FROM file_true WHERE id = 4"))
	})
}

// Rows larger than a message of the server are refused by name, and all others are written.
func TestSinkRowLargerThanAMessage(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert} {
			name := "t_" + mode.String()
			s := keyed(name, idField, textField)
			snk := startSink(t, sinkConfig(t, url), mode, 1)
			snk.db.packet = 64 << 10
			large := strconv.Quote(strings.Repeat("x", 100_000))
			got := rowErrorsOf(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"1", `"a"`}, []string{"2", large}, []string{"3", `"c"`})))
			must(t, snk.Commit(t.Context(), position(1)))
			if len(got) != 1 || got[0].Index != 1 || !strings.Contains(got[0].Reject.Message, "max_allowed_packet") {
				t.Errorf("refused: %+v", got)
			}
			want(t, "the others", "1,3", one(t, db, "SELECT GROUP_CONCAT(id ORDER BY id) FROM "+name))
		}
	})
}

// Columns of the target alone keep their values: defaults for new rows, what is there for others, also where a key moves.
func TestSinkColumnsOfTheTarget(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		sqlRun(t, db, `CREATE TABLE t (id bigint PRIMARY KEY, v varchar(50), mine int DEFAULT 7, twice varchar(100) AS (CONCAT(v, v)) STORED,
			at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP)`)
		at := arrow.Field{Name: "at", Type: record.InstantType()}
		s := keyed("t", idField, textField, at)
		snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
		const then = `"2001-02-03T04:05:06Z"`
		must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"1", `"a"`, then}, []string{"2", `"b"`, then}, []string{"3", `"c"`, then})))
		must(t, snk.Commit(t.Context(), position(1)))
		sqlRun(t, db, "UPDATE t SET mine = id * 10, at = at")
		must(t, snk.Write(t.Context(), connectortest.Changes(s,
			connectortest.Change{Op: record.Update, Row: []string{"1", `"A"`, connectortest.Unsent}},
			connectortest.Change{Op: record.Update, Row: []string{"22", connectortest.Unsent, connectortest.Unsent}, Old: []string{"2", "null", "null"}},
			connectortest.Change{Op: record.Upsert, Row: []string{"3", `"C"`, then}},
			connectortest.Change{Op: record.Delete, Row: []string{"3", "null", "null"}},
			connectortest.Change{Op: record.Insert, Row: []string{"3", `"new"`, then}})))
		must(t, snk.Commit(t.Context(), position(2)))
		want(t, "rows", "1|A|10|AA|2001-02-03 04:05:06\n3|new|7|newnew|2001-02-03 04:05:06\n22|b|20|bb|2001-02-03 04:05:06",
			one(t, db, "SELECT id, v, mine, twice, at FROM t ORDER BY id"))
	})
}

// clause S23
func TestSinkPrivileges(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		cfg := sinkConfig(t, url)
		user := "leat_" + nameHash(cfg.Database)
		sqlRun(t, db, "CREATE USER '"+user+"'@'%' IDENTIFIED BY 'pw-4711'", "GRANT SELECT ON "+ident(cfg.Database)+".* TO '"+user+"'@'%'")
		t.Cleanup(func() {
			_, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP USER '"+user+"'@'%'")
			must(t, err)
		})
		cfg.User, cfg.Password = user, "pw-4711"
		snk, err := cfg.Open(connectortest.Env(t))
		must(t, err)
		defer snk.Close(t.Context()) //nolint:errcheck // it holds nothing
		err = snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r1", Fence: 1})
		if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(connector.HintOf(err), "GRANT SELECT, INSERT") {
			t.Errorf("no place for progress: %v, hint %q", err, connector.HintOf(err))
		}
		failed := func() (fixes []string) {
			s, err := cfg.Open(connectortest.Env(t))
			must(t, err)
			defer s.Close(t.Context())                  //nolint:errcheck // it holds nothing
			probes, err := s.(*Sink).Check(t.Context()) //nolint:forcetypeassert // of this package
			must(t, err)
			for _, p := range probes {
				if p.Status == connector.Fail {
					fixes = append(fixes, p.Fix)
				}
			}
			return fixes
		}
		fixes := failed()
		if len(fixes) != 1 {
			t.Fatalf("fixes: %q", fixes)
		}
		sqlRun(t, db, strings.TrimPrefix(fixes[0], "as an administrator: ")) // typed as it is
		if fixes := failed(); len(fixes) > 0 {
			t.Errorf("after the fix: %q", fixes)
		}
		must(t, startSink(t, cfg, connector.Append, 1).Write(t.Context(), connectortest.Numbered("made", 0, 3)))
	})
}

// A key of texts is as long as the index has room for, and longer ones are refused by the limits.
func TestSinkKeysOfTexts(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		text, bin := arrow.BinaryTypes.String, arrow.BinaryTypes.Binary
		snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
		s := &record.Schema{Dataset: "k", Key: []int{0, 1, 2, 3}, Columns: arrow.NewSchema([]arrow.Field{
			{Name: "a", Type: text}, {Name: "b", Type: bin}, {Name: "u", Type: record.UUIDType()}, {Name: "n", Type: arrow.PrimitiveTypes.Int64},
		}, nil)}
		mapped, err := snk.Map(t.Context(), s)
		must(t, err)
		room := mapped[0].Limits.MaxChars
		if room < 300 {
			t.Errorf("a text of a key has %d characters", room)
		}
		const id = `"01234567-89ab-cdef-0123-456789abcdef"`
		long := strconv.Quote(strings.Repeat("ü", room))
		must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{long, `"AA=="`, id, "1"}, []string{long, `"AAA="`, id, "1"})))
		must(t, snk.Write(t.Context(), withOps(connectortest.BatchOf(s, []string{long, `"AA=="`, id, "1"}), record.Delete)))
		must(t, snk.Commit(t.Context(), position(1)))
		want(t, "rows", "0000", one(t, watcher(t, url), "SELECT HEX(b) FROM k"))
	})
}
