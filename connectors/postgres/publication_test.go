package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/pgtest"
)

// inService is a pipeline as it is while its stream runs.
func inService(t testing.TB, db string, options map[string]string) *anchored {
	t.Helper()
	a := newPipeline(t, db, options)
	if _, err := a.resolved(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, a.resumable(t.Context(), a.anchor(t)))
	return a
}

// joins wants these datasets to join now.
func (a *anchored) joins(t testing.TB, want ...string) {
	t.Helper()
	added, err := a.join(t.Context())
	must(t, err)
	var got []string
	for _, r := range added {
		got = append(got, r.dataset)
		if _, err := a.find(t.Context(), r.dataset); err != nil || r.schema == nil {
			t.Errorf("%s joined and is not known: %v", r.dataset, err)
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("joined %q, want %q", got, want)
	}
}

// sent counts the rows that the slot has for a table.
func (a *anchored) sent(t testing.TB, conn *pgx.Conn, table string) int {
	t.Helper()
	sqlExec(t, conn, `SET synchronous_commit = on`)
	sqlExec(t, conn, `SELECT pg_logical_emit_message(true, 'test', '')`) // what was committed before is safe now
	return value[int](t, conn, `WITH m AS (SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', $2)) SELECT count(*) FROM m WHERE get_byte(data, 0) = ascii('I')
		AND substring(data FROM 2 FOR 4) = int4send($3::regclass::oid::int4)`, a.slotName(), ident(a.publicationName()), table)
}

// New tables join a stream that runs, with nothing missing between their copy and their changes.
// clause S28.
func (s ownServer) joiners(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	db := s.As("leat", conn.Config().Database)
	sqlAll(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`, `CREATE TABLE b (id int PRIMARY KEY)`)
	a := inService(t, db, map[string]string{"tables": "public.*,!public.not_*"})
	a.joins(t)

	sqlAll(t, conn, `CREATE TABLE c (id int PRIMARY KEY)`, `CREATE TABLE not_this (id int PRIMARY KEY)`, `CREATE UNLOGGED TABLE u (id int)`)
	a.joins(t, "public.c")
	a.joins(t)

	// What is written from now on comes, also by a transaction that began before.
	sqlExec(t, conn, `CREATE TABLE d (id int PRIMARY KEY)`)
	writer := pgtest.Conn(t, db)
	sqlAll(t, writer, `BEGIN`, `INSERT INTO d VALUES (1)`)
	if distributes(value[int](t, conn, `SELECT current_setting('server_version_num')::int`)) {
		a.joins(t, "public.d")
	} else {
		a.joins(t) // first that transaction has to end
		sqlAll(t, writer, `COMMIT`, `BEGIN`)
		a.joins(t, "public.d")
	}
	sqlAll(t, conn, `INSERT INTO d VALUES (2)`)
	sqlAll(t, writer, `INSERT INTO d VALUES (3)`, `COMMIT`)
	if n := a.sent(t, conn, "d"); n < 2 {
		t.Errorf("the slot has %d rows of d, want at least those that were written after it was published", n)
	}

	// One that would break the application does not join.
	sqlAll(t, conn, `CREATE TABLE keyless (v int)`, `INSERT INTO keyless VALUES (1)`)
	a.joins(t)
	sqlExec(t, conn, `UPDATE keyless SET v = 2`)
	if !strings.Contains(a.log.String(), `ALTER TABLE \"public\".\"keyless\" REPLICA IDENTITY FULL`) {
		t.Errorf("nobody is told: %s", a.log)
	}
	sqlExec(t, conn, `ALTER TABLE keyless REPLICA IDENTITY FULL`)
	a.joins(t, "public.keyless")

	sqlExec(t, conn, `ALTER TABLE a RENAME TO a2`)
	a.joins(t, "public.a2")
	sqlAll(t, conn, `DROP TABLE c`)
	a.joins(t)
	sqlAll(t, conn, `DROP TABLE b`, `CREATE TABLE b (id int PRIMARY KEY)`)
	_, err := a.join(t.Context())
	refusedWith(t, err, connector.ClassPosition, "postgres.table.replaced", "public.b", "--resnapshot public.b")
}

// Tables that are new when a run starts are published before anything is read.
func (s ownServer) joinersAtStart(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	db := s.As("leat", conn.Config().Database)
	sqlAll(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	a := newPipeline(t, db, map[string]string{"tables": "public.*"})
	p := a.anchor(t)
	sqlAll(t, conn, `CREATE TABLE b (id int PRIMARY KEY)`)
	b := newSameAs(t, db, a)
	must(t, b.resumable(t.Context(), p))
	sqlAll(t, conn, `INSERT INTO b VALUES (2)`)
	if n := a.sent(t, conn, "b"); n != 1 {
		t.Errorf("the slot has %d rows of b", n)
	}
	b.joins(t)

	// Somebody took a table out while nobody followed: it is followed again, and a person hears of it.
	sqlExec(t, conn, `ALTER PUBLICATION `+ident(a.publicationName())+` DROP TABLE a`)
	b = newSameAs(t, db, a)
	must(t, b.resumable(t.Context(), p))
	if !strings.Contains(b.log.String(), "--resnapshot") || !strings.Contains(b.log.String(), "public.a") {
		t.Errorf("nobody is told: %s", b.log)
	}
	b.joins(t)

	sqlExec(t, conn, `CREATE TABLE keyless (v int)`)
	refusedWith(t, newSameAs(t, db, a).resumable(t.Context(), p), connector.ClassConfig, "postgres.follow", "public.keyless",
		`ALTER TABLE "public"."keyless" REPLICA IDENTITY FULL;`)
}

// With a publication of somebody else's, tables join when it has them.
func (s ownServer) joinersOfOthers(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	db := s.As("leat", conn.Config().Database)
	sqlAll(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`, `CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root)`,
		`CREATE PUBLICATION few FOR TABLE a`)
	all := inService(t, db, map[string]string{"publication": "everything", "tables": "public.*"})
	few := inService(t, db, map[string]string{"publication": "few", "tables": "public.*"})

	sqlExec(t, conn, `CREATE TABLE b (id int PRIMARY KEY)`)
	all.joins(t, "public.b")
	few.joins(t)
	if !strings.Contains(few.log.String(), `ALTER PUBLICATION \"few\" ADD TABLE \"public\".\"b\";`) {
		t.Errorf("nobody is told: %s", few.log)
	}
	sqlExec(t, conn, `ALTER PUBLICATION few ADD TABLE b`)
	few.joins(t, "public.b")

	// One joined when its first change came.
	sqlExec(t, conn, `CREATE TABLE c (id int PRIMARY KEY)`)
	if _, err := all.refresh(t.Context(), "public.c"); err != nil {
		t.Error(err)
	}
	all.joins(t)
	sqlExec(t, conn, `DROP PUBLICATION few`)
	_, err := few.join(t.Context())
	refusedWith(t, err, connector.ClassPosition, "postgres.publication.missing", "--restart")
}

// Rows come and go with partitions without any change that could be sent. A person hears of it.
// case C035.
func (s ownServer) partitions(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	db := s.As("leat", conn.Config().Database)
	sqlAll(t, conn, `CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)`, `CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)`)
	a := inService(t, db, map[string]string{"tables": "public.p"})
	quiet := func(what string) {
		t.Helper()
		before := len(a.log.String())
		a.joins(t)
		if text := a.log.String()[before:]; strings.Contains(text, "WARN") {
			t.Errorf("%s: %s", what, text)
		}
	}
	told := func(what string, texts ...string) {
		t.Helper()
		before := len(a.log.String())
		a.joins(t)
		for _, text := range append(texts, "WARN", "dataset=public.p", "--resnapshot") {
			if !strings.Contains(a.log.String()[before:], text) {
				t.Errorf("%s: no %q in %s", what, text, a.log.String()[before:])
			}
		}
	}
	quiet("nothing happened")
	sqlExec(t, conn, `CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)`)
	quiet("a new partition")
	sqlAll(t, conn, `CREATE TABLE p3 (id int PRIMARY KEY)`, `INSERT INTO p3 VALUES (20)`,
		`ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)`)
	told("attached", "partition=public.p3", "attached")
	quiet("it was said")
	sqlExec(t, conn, `ALTER TABLE p DETACH PARTITION p1`)
	told("detached", "detached or dropped", "partition=public.p1")
	sqlExec(t, conn, `DROP TABLE p2`)
	told("dropped", "detached or dropped")
}

// Servers that may forget a table's changes are told of it only while nobody writes.
func TestOldReleases(t *testing.T) {
	for version, want := range map[int]bool{
		140017: false, 140018: true, 150012: false, 150013: true, 160008: false, 160009: true, 170004: false, 170005: true, 180000: true,
	} {
		if distributes(version) != want {
			t.Errorf("version %d: %t", version, !want)
		}
	}
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlAll(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`, `CREATE TABLE b (id int PRIMARY KEY) PARTITION BY RANGE (id)`,
		`CREATE TABLE b1 PARTITION OF b FOR VALUES FROM (0) TO (10)`, `CREATE PUBLICATION p`)
	tables := []*followTable{{Schema: "public", Name: "a"}, {Schema: "public", Name: "b"}}
	sql := addTables("ALTER PUBLICATION p ADD TABLE "+tableList(tables), tables, false)
	writer := pgtest.Conn(t, db)
	sqlAll(t, writer, `BEGIN`, `INSERT INTO b VALUES (1)`)
	_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	if pg, ok := serverError(err); !ok || pg.Code != lockNotAvailable {
		t.Errorf("with a writer it says %v", err)
	}
	sqlExec(t, conn, `ROLLBACK`)
	sqlExec(t, writer, `COMMIT`)
	must(t, command(t.Context(), conn.PgConn(), sql))
	if n := value[int](t, conn, `SELECT count(*) FROM pg_publication_rel`); n != 2 {
		t.Errorf("%d tables", n)
	}
}

// The tip is behind everything that is committed, can be reached, and is found without waiting for anybody to write.
// case C044.
func (s ownServer) tips(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	sqlExec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text)`)
	db := s.As("leat", conn.Config().Database)
	a := newPipeline(t, db, map[string]string{"table": "a"})
	tip := func(what string) lsn {
		t.Helper()
		began := time.Now()
		at, err := newSameAs(t, db, a).Tip(t.Context())
		must(t, err)
		p, err := decodeStream(at)
		must(t, err)
		if safe := logEnd(t, conn); p.LSN > safe || time.Since(began) > 5*time.Second {
			t.Errorf("%s: the tip %s, safe is %s, after %s", what, p.LSN, safe, time.Since(began))
		}
		return p.LSN
	}
	tip("before there is a slot")
	first := a.anchor(t)
	sqlAll(t, conn, `SET synchronous_commit = off`)
	for i := range 5 {
		sqlExec(t, conn, fmt.Sprintf(`INSERT INTO a VALUES (%d, repeat('x', 1000))`, i))
		at, err := parseLSN(value[string](t, conn, `SELECT pg_current_wal_insert_lsn()::text`))
		must(t, err)
		if got := tip("a commit that is not safe yet"); got < beforeHeader(at, 8192) {
			t.Errorf("the tip %s lies before the commit at %s", got, at)
		}
	}
	sqlExec(t, conn, `SELECT pg_switch_wal()`)
	if got := tip("at the end of a segment"); got <= first.LSN {
		t.Errorf("the tip is %s", got)
	}
	for at, want := range map[lsn]lsn{0x2000028: 0x2000000, 0x2002018: 0x2002000, 0x2002000: 0x2002000, 0x2002030: 0x2002030} {
		if got := beforeHeader(at, 8192); got != want {
			t.Errorf("%s becomes %s, want %s", at, got, want)
		}
	}
}

// What the server keeps and what is not confirmed can be seen at any time.
// clause S22. case C040.
func (s ownServer) lags(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	sqlExec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text)`)
	a := newPipeline(t, s.As("leat", conn.Config().Database), map[string]string{"table": "a"})
	lag := func() connector.Lag {
		t.Helper()
		l, err := a.Lag(t.Context())
		must(t, err)
		return l
	}
	if l := lag(); l != (connector.Lag{Bytes: -1, Events: -1, Age: -1, Retained: -1}) {
		t.Errorf("without a slot: %+v", l)
	}
	a.anchor(t)
	if l := lag(); l.Bytes < 0 || l.Bytes > 1<<20 || l.Retained < l.Bytes {
		t.Errorf("with a slot: %+v", l)
	}
	sqlAll(t, conn, `SET synchronous_commit = on`, `INSERT INTO a SELECT n, repeat('x', 1000) FROM generate_series(1, 5000) n`)
	if l := lag(); l.Bytes < 5_000_000 || l.Retained < l.Bytes {
		t.Errorf("after 5 MB: %+v", l)
	}
	lines, err := a.Describe(t.Context())
	if err != nil || len(lines) != 2 || !strings.Contains(lines[0], " MB of log") {
		t.Errorf("%q, error %v", lines, err)
	}
	sqlExec(t, conn, fmt.Sprintf(`SELECT pg_replication_slot_advance('%s', pg_current_wal_flush_lsn())`, a.slotName()))
	if l := lag(); l.Bytes > 1<<20 {
		t.Errorf("after it was confirmed: %+v", l)
	}
}

// What is for streams does nothing of a source that is not followed.
func TestNotFollowed(t *testing.T) {
	a := newAnchored(t, pgtest.URL(t), "none", nil)
	a.cfg.Follow = false
	at, errA := a.Anchor(t.Context())
	tip, errT := a.Tip(t.Context())
	lag, errL := a.Lag(t.Context())
	lines, errD := a.Describe(t.Context())
	if err := errors.Join(errA, errT, errL, errD, a.Drop(t.Context())); err != nil || !at.Zero() || !tip.Zero() || lines != nil ||
		lag.Bytes != -1 {
		t.Errorf("%v, %v, %v, %v, error %v", at, tip, lag, lines, err)
	}
}
