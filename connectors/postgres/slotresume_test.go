package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/pgtest"
)

// pretend is a position on the server of the other one, at another place.
func (p streamPosition) pretend(change func(*streamPosition)) streamPosition {
	change(&p)
	return p
}

// A stream goes on where nothing is missing, and says what is missing otherwise. A temporary failure says nothing of the position.
// clause S4. case C045.
func (s ownServer) resumes(t *testing.T) {
	db := s.Database()
	a := newPipeline(t, db, map[string]string{"table": "a"})
	sqlAll(t, a.conn, `SET synchronous_commit = on`, `CREATE TABLE a (id int PRIMARY KEY, v text)`)
	p := a.anchor(t)
	sqlExec(t, a.conn, `INSERT INTO a SELECT n, repeat('x', 100) FROM generate_series(1, 100) n`)
	end := logEnd(t, a.conn)
	ok := func(what string, p streamPosition) {
		t.Helper()
		if err := newSameAs(t, db, a).resumable(t.Context(), p); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused := func(code string, p streamPosition, texts ...string) {
		t.Helper()
		refusedWith(t, newSameAs(t, db, a).resumable(t.Context(), p), connector.ClassPosition, code,
			append(texts, "--restart", a.slotName(), p.LSN.String())...)
	}
	ok("where it began", p)
	ok("later", p.pretend(func(p *streamPosition) { p.LSN = end }))
	refused("postgres.system", p.pretend(func(p *streamPosition) { p.System = "7000000000000000000" }), "7000000000000000000", p.System)
	elsewhere, err := newAnchored(t, pgtest.Database(t), a.env.Pipeline, nil).identify(t.Context())
	must(t, err)
	refused("postgres.system", p.pretend(func(p *streamPosition) { p.System = elsewhere.System }), elsewhere.System, p.System)
	refused("postgres.slot.other", p.pretend(func(p *streamPosition) { p.Slot = "leat_before" }), "slot=leat_before")
	refused("postgres.timeline", p.pretend(func(p *streamPosition) { p.Timeline = 7 }), "timeline 7", "timeline 1")
	refused("postgres.behind", p.pretend(func(p *streamPosition) { p.LSN = end + 1<<40 }), "older copy")
	refused("postgres.publication.other", p.pretend(func(p *streamPosition) { p.Publication++ }), "made anew")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newSameAs(t, db, a).resumable(ctx, p); connector.ClassOf(err) != connector.ClassTransient {
		t.Errorf("a cancelled look says %v", err)
	}

	// Somebody else reads from the slot.
	sqlExec(t, a.conn, fmt.Sprintf(`SELECT pg_replication_slot_advance('%s', '%s')`, a.slotName(), end))
	refused("postgres.slot.gap", p, p.LSN.String()+" and "+end.String(), sizeText(int64(end-p.LSN)))
	ok("behind that", p.pretend(func(p *streamPosition) { p.LSN = end }))

	// The slot is dropped and made anew while nobody follows.
	sqlAll(t, a.conn, fmt.Sprintf(`SELECT pg_drop_replication_slot('%s')`, a.slotName()))
	refused("postgres.slot.missing", p, "dropped", p.LSN.String()+" and ")
	sqlAll(t, a.conn, `INSERT INTO a VALUES (1000)`)
	again := newSameAs(t, db, a).anchor(t)
	refused("postgres.slot.gap", p.pretend(func(p *streamPosition) { p.LSN = end }), end.String()+" and "+again.LSN.String())

	// Another slot has its name.
	sqlAll(t, a.conn, fmt.Sprintf(`SELECT pg_drop_replication_slot('%s')`, a.slotName()),
		fmt.Sprintf(`SELECT pg_create_logical_replication_slot('%s', 'test_decoding')`, a.slotName()))
	refused("postgres.slot.foreign", again, "test_decoding")

	sqlAll(t, a.conn, fmt.Sprintf(`SELECT pg_drop_replication_slot('%s')`, a.slotName()))
	again = newSameAs(t, db, a).anchor(t)
	sqlAll(t, a.conn, `DROP PUBLICATION `+ident(a.publicationName()))
	refused("postgres.publication.missing", again)
	sqlAll(t, a.conn, fmt.Sprintf(`CREATE PUBLICATION %s FOR TABLE a`, ident(a.publicationName())))
	refused("postgres.publication.other", again)

	// Starting over is always possible.
	ok("anew", newSameAs(t, db, a).anchor(t))
}

func logEnd(t testing.TB, conn *pgx.Conn) lsn {
	t.Helper()
	at, err := parseLSN(value[string](t, conn, `SELECT pg_current_wal_flush_lsn()::text`))
	must(t, err)
	return at
}

// A slot that the server gave up is refused with the range that is missing, and never replaced without being told to.
// case C043.
func TestLostSlot(t *testing.T) {
	server := pgtest.Server(t, "wal_level=logical", "max_slot_wal_keep_size=1MB", "min_wal_size=32MB", "max_wal_size=32MB")
	db := server.URL()
	a := newAnchored(t, db, "lost", map[string]string{"table": "a"})
	sqlExec(t, a.conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	p := a.anchor(t)
	for range 4 { // whole segments of the log
		sqlAll(t, a.conn, `INSERT INTO a SELECT coalesce(max(id), 0) + 1 FROM a`, `SELECT pg_switch_wal()`)
	}
	sqlAll(t, a.conn, `INSERT INTO a VALUES (1000)`, `CHECKPOINT`)
	if state := value[string](t, a.conn, `SELECT wal_status FROM pg_replication_slots`); state != "lost" {
		t.Fatalf("the slot is %s", state)
	}
	end := logEnd(t, a.conn)
	err := a.resumable(t.Context(), p)
	refusedWith(t, err, connector.ClassPosition, "postgres.slot.lost", "max_slot_wal_keep_size", p.LSN.String()+" and "+end.String(),
		sizeText(int64(end-p.LSN)), "--restart")
	if n := value[int](t, a.conn, `SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'`); n != 1 {
		t.Error("the lost slot was touched")
	}
	lag, err := a.Lag(t.Context())
	if err != nil || lag.Bytes < int64(3<<24) || lag.Retained != -1 {
		t.Errorf("lag %+v, error %v", lag, err)
	}
	found := probeNamed(t, a, "slot")
	if found.Status != connector.Warn || !strings.Contains(found.Fix, "--restart") {
		t.Errorf("the check says %+v", found)
	}
	again := newSameAs(t, db, a).anchor(t)
	if again.LSN < end {
		t.Errorf("it begins anew at %s, before %s", again.LSN, end)
	}
	must(t, newSameAs(t, db, a).resumable(t.Context(), again))
}

// A server that was restored from a copy is another history: what was delivered behind the place where it left the old one is in no
// slot of it.
func TestRestoredCopy(t *testing.T) {
	server := pgtest.Server(t, "wal_level=logical")
	a := newAnchored(t, server.URL(), "restored", map[string]string{"table": "a"})
	sqlExec(t, a.conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	p := a.anchor(t)
	sqlExec(t, a.conn, `INSERT INTO a VALUES (1)`)
	server.Stop()
	older := server.Copy()
	restored := server.Copy("restore_command=/bin/false")
	restored.Recover()
	server.Start()
	sqlAll(t, pgtest.Conn(t, server.URL()), `INSERT INTO a SELECT generate_series(2, 100000)`)
	late := p.pretend(func(p *streamPosition) { p.LSN = logEnd(t, pgtest.Conn(t, server.URL())) })
	must(t, newSameAs(t, server.URL(), a).resumable(t.Context(), late))
	server.Stop()

	t.Run("on a timeline of its own", func(t *testing.T) {
		b := newSameAs(t, restored.URL(), a)
		got, err := b.resume(t.Context(), p)
		if err != nil || got.Timeline != 2 || got.LSN != p.LSN {
			t.Errorf("%+v, error %v", got, err)
		}
		refusedWith(t, newSameAs(t, restored.URL(), a).resumable(t.Context(), late), connector.ClassPosition, "postgres.timeline",
			"timeline 1", "timeline 2", late.LSN.String(), "--restart")
		sqlAll(t, b.conn, `INSERT INTO a SELECT generate_series(2, 200000)`) // now its log is as long
		refusedWith(t, newSameAs(t, restored.URL(), a).resumable(t.Context(), late), connector.ClassPosition, "postgres.timeline")
	})
	t.Run("without one", func(t *testing.T) {
		older.Start()
		b := newSameAs(t, older.URL(), a)
		must(t, b.resumable(t.Context(), p))
		refusedWith(t, b.resumable(t.Context(), late), connector.ClassPosition, "postgres.behind", late.LSN.String(), "older copy")
	})
}

// standbys are a primary and what follows it, with a pipeline that has begun on the primary.
type standbys struct {
	primary, standby *pgtest.Cluster
	version          int
	a                *anchored // of the primary
	conn             *pgx.Conn // to the primary
}

func TestStandby(t *testing.T) {
	primary := pgtest.Server(t, "wal_level=logical")
	a := newAnchored(t, primary.URL(), "standby", map[string]string{"table": "a"})
	sqlAll(t, a.conn, `CREATE TABLE a (id int PRIMARY KEY)`, `SELECT pg_create_physical_replication_slot('standby')`)
	s := standbys{primary: primary, version: value[int](t, a.conn, `SELECT current_setting('server_version_num')::int`), a: a}
	settings := []string{"primary_slot_name=standby"}
	if s.version >= failoverVersion {
		settings = append(settings, "sync_replication_slots=on")
	}
	s.standby = primary.Standby(settings...)
	s.conn = pgtest.Conn(t, primary.URL())
	t.Run("followed", s.followed)
	t.Run("promoted", s.promoted)
}

// Of PostgreSQL 16 and newer a standby can be followed; of older ones the check says what can be done.
func (s *standbys) followed(t *testing.T) {
	a := newAnchored(t, s.standby.URL(), "elsewhere", map[string]string{"table": "a"})
	_, err := a.Anchor(t.Context())
	if s.version < standbyVersion {
		refusedWith(t, err, connector.ClassConfig, "postgres.follow", "PostgreSQL 16", "target_session_attrs=primary")
		return
	}
	refusedWith(t, err, connector.ClassConfig, "postgres.follow", "hot_standby_feedback", "CREATE PUBLICATION", "on the primary")
	runFixes(t, a.conn, probeNamed(t, a, "standby"))
	runFixes(t, s.conn, probeNamed(t, a, "publication"))
	s.standby.CatchUp(s.primary)
	done := make(chan error, 1)
	var p streamPosition
	go func() {
		at, err := newSameAs(t, s.standby.URL(), a).Anchor(t.Context())
		if err == nil {
			p, err = decodeStream(at)
		}
		done <- err
	}()
	for err = errPending; errors.Is(err, errPending); {
		sqlExec(t, s.conn, `SELECT pg_log_standby_snapshot()`) // the slot waits for it, and a quiet primary logs none
		select {
		case err = <-done:
		case <-time.After(50 * time.Millisecond):
		}
	}
	must(t, err)
	if p.Timeline != 1 || p.LSN == 0 {
		t.Errorf("the position is %+v", p)
	}
	b := newSameAs(t, s.standby.URL(), a)
	must(t, b.resumable(t.Context(), p))
	late := p.pretend(func(p *streamPosition) { p.LSN += 1 << 40 })
	refusedWith(t, b.resumable(t.Context(), late), connector.ClassTransient, "postgres.standby.behind")
	sqlExec(t, s.conn, `INSERT INTO a VALUES (-1)`)
	s.standby.CatchUp(s.primary)
	tip, err := b.Tip(t.Context())
	must(t, err)
	if order, ok := compareStream(p.encode(), tip); !ok || order >= 0 {
		t.Errorf("the tip %s is not behind %s", tip, p.encode())
	}
	if lag, err := b.Lag(t.Context()); err != nil || lag.Bytes <= 0 || lag.Retained <= 0 {
		t.Errorf("lag %+v, error %v", lag, err)
	}
	must(t, b.Drop(t.Context()))
}

// After a failover the slot is on the new primary where the servers keep it in step, and the stream goes on; else it stops, with the gap.
// case C045.
func (s *standbys) promoted(t *testing.T) {
	p := newSameAs(t, s.primary.URL(), s.a).anchor(t)
	before := pgtest.Conn(t, s.standby.URL())
	synced := `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND to_jsonb(pg_replication_slots) ->> 'synced' = 'true'
		AND NOT temporary`
	for s.version >= failoverVersion && value[int](t, before, synced, s.a.slotName()) == 0 {
		// The standby takes a slot over when what the slot needs is not older than what the standby has: somebody has to read from it.
		sqlAll(t, s.conn, `INSERT INTO a SELECT max(id) + 1 FROM a`, `SELECT pg_log_standby_snapshot()`,
			fmt.Sprintf(`SELECT pg_replication_slot_advance('%s', pg_current_wal_flush_lsn())`, s.a.slotName()))
		p.LSN = logEnd(t, s.conn)
		time.Sleep(50 * time.Millisecond)
	}
	s.standby.CatchUp(s.primary)
	s.primary.Stop()
	sqlExec(t, before, `SELECT pg_promote()`)

	b := newSameAs(t, s.standby.URL(), s.a)
	if s.version >= failoverVersion {
		got, err := b.resume(t.Context(), p)
		if err != nil || got.Timeline != 2 {
			t.Errorf("%+v, error %v", got, err)
		}
		return
	}
	refusedWith(t, b.resumable(t.Context(), p), connector.ClassPosition, "postgres.slot.missing", "new primary", p.LSN.String())
	again := newSameAs(t, s.standby.URL(), s.a).anchor(t)
	refusedWith(t, newSameAs(t, s.standby.URL(), s.a).resumable(t.Context(), p), connector.ClassPosition, "postgres.slot.gap",
		p.LSN.String()+" and "+again.LSN.String())
	if again.Timeline != 2 {
		t.Errorf("the new place is %+v", again)
	}
}

var errPending = errors.New("pending")

func TestHistory(t *testing.T) {
	got, err := parseHistory("1\t0/3000148\tno recovery target specified\n\n# comment\n2\t0/5000000\tbefore 2026-01-01 00:00:00+00\n")
	if err != nil || len(got) != 2 || got[0] != (timelineSwitch{1, 0x3000148}) || got[1] != (timelineSwitch{2, 0x5000000}) {
		t.Errorf("%v, error %v", got, err)
	}
	r := resumption{here: origin{System: "1", Timeline: 3, Slot: "s"}, history: got, end: 1 << 40, slot: &slotInfo{
		Type: "logical", Here: true, Plugin: "pgoutput",
	}, publication: &publication{}}
	for _, c := range []struct {
		timeline int64
		at       lsn
		ok       bool
	}{
		{3, 1 << 39, true},
		{2, 0x5000000, true},
		{2, 0x5000001, false},
		{1, 0x3000148, true},
		{1, 0x3000149, false},
		{4, 1, false},
	} {
		p := streamPosition{LSN: c.at, origin: origin{System: "1", Timeline: c.timeline, Slot: "s"}}
		if e := r.judge(p); (e == nil) != c.ok {
			t.Errorf("timeline %d, %s: %v", c.timeline, c.at, e)
		}
	}
	for _, bad := range []string{"x\t0/1\n", "1\n", "1\tz\n"} {
		if _, err := parseHistory(bad); err == nil {
			t.Errorf("%q is no history", bad)
		}
	}
}

func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 9999: "9999 bytes", 10_000: "10.0 kB", 1_234_567: "1.2 MB", 17_000_000_000: "17.0 GB", 5e15: "5000.0 TB",
	} {
		if got := sizeText(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
