package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// anchored is a source of a pipeline of its own, and what it logs.
type anchored struct {
	*Source
	log  *logText
	conn *pgx.Conn // as whom the URL says
}

// logText is a log that may be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newAnchored opens a source to follow a database. What it leaves on the server is removed when the test ends.
func newAnchored(t testing.TB, db, pipeline string, options map[string]string) *anchored {
	t.Helper()
	cfg, ok := NewSource().(*SourceConfig)
	if !ok {
		t.Fatal("NewSource returns another type")
	}
	must(t, cfg.SetURL(db))
	cfg.Follow = true
	must(t, connector.SetOptions(cfg, options))
	a := &anchored{log: new(logText), conn: pgtest.Conn(t, db)}
	env := connectortest.Env(t)
	env.Pipeline = pipeline
	env.Log = slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	src, err := cfg.Open(env)
	must(t, err)
	a.Source, ok = src.(*Source)
	if !ok {
		t.Fatal("Open returns another type")
	}
	t.Cleanup(func() { must(t, a.Close(context.WithoutCancel(t.Context()))) })
	return a
}

// pipelineName is one that no other test has: slots are the whole server's.
func pipelineName() string { return "t_" + strings.ToLower(rand.Text()[:10]) }

// newPipeline is a source with its own name in a database of the shared server. Its slot is gone when the test ends.
func newPipeline(t testing.TB, db string, options map[string]string) *anchored {
	t.Helper()
	a := newAnchored(t, db, pipelineName(), options)
	dropAtEnd(t, db, a.slotName())
	return a
}

// dropAtEnd removes a slot when the test ends, also one that is in use.
func dropAtEnd(t testing.TB, db, slot string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		conn, err := pgx.Connect(ctx, db)
		must(t, err)
		defer func() { must(t, conn.Close(ctx)) }()
		_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots
			WHERE slot_name = $1 AND active`, slot)
		must(t, err)
		must(t, dropSlot(ctx, conn.PgConn(), slot))
	})
}

func (a *anchored) anchor(t testing.TB) streamPosition {
	t.Helper()
	at, err := a.Anchor(t.Context())
	if err != nil {
		t.Fatalf("Anchor: %v (%s)", err, connector.HintOf(err))
	}
	p, err := decodeStream(at)
	must(t, err)
	return p
}

// resumable reports whether the stream could go on at a position.
func (a *anchored) resumable(ctx context.Context, p streamPosition) error {
	_, err := a.resume(ctx, p)
	return err
}

// value reads one value.
func value[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func sqlAll(t testing.TB, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		sqlExec(t, conn, s)
	}
}

// refusedWith checks an error's class and code, and that it says all of the texts, in one line, with a hint.
func refusedWith(t testing.TB, err error, class connector.Class, code string, texts ...string) {
	t.Helper()
	var e *connector.Error
	if !errors.As(err, &e) {
		t.Errorf("want an error %s, got %v", code, err)
		return
	}
	all := err.Error() + "\n" + connector.HintOf(err)
	if connector.ClassOf(err) != class || e.Code != code || connector.HintOf(err) == "" || strings.Contains(err.Error(), "\n") {
		t.Errorf("class %s, code %s, hint %q, want %s, %s: %v", connector.ClassOf(err), e.Code, connector.HintOf(err), class, code, err)
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%q is not in: %s", text, all)
		}
	}
}

// ownServer is a server for many tests: on a shared one slots wait for the transactions of everybody.
type ownServer struct{ *pgtest.Cluster }

func TestFollowed(t *testing.T) {
	s := ownServer{pgtest.Server(t, "wal_level=logical", "max_prepared_transactions=5", "max_replication_slots=50", "max_connections=200")}
	t.Run("anchor", s.anchors)
	t.Run("anchor waits", s.anchorWaits)
	t.Run("anchor waits for a prepared transaction", s.anchorWaitsForPrepared)
	t.Run("anchor finds a slot", s.anchorFindsASlot)
	t.Run("anchor finds a slot in use", s.anchorFindsASlotInUse)
	t.Run("identifiers", s.anchorIdentifiers)
	t.Run("resume", s.resumes)
	t.Run("least privilege", s.leastPrivilege)
	t.Run("replica identity", s.identities)
	t.Run("replica identity of partitions", s.partitionIdentities)
	t.Run("publications of others", s.publications)
	t.Run("own publication", s.ownPublication)
	t.Run("poolers", s.poolers)
	t.Run("join", s.joiners)
	t.Run("join at a start", s.joinersAtStart)
	t.Run("join with others' publications", s.joinersOfOthers)
	t.Run("partitions", s.partitions)
	t.Run("tip", s.tips)
	t.Run("lag", s.lags)
}

func TestSlotNames(t *testing.T) {
	seen := map[string]string{}
	for _, c := range []struct {
		pipeline, slot, publication string // empty: only the form is checked
	}{
		{"shop", "leat_shop", "leat_shop"},
		{"a_1", "leat_a_1", "leat_a_1"},
		{"Shop", "", "leat_Shop"},
		{"shop!", "", "leat_shop!"},
		{"shop?", "", "leat_shop?"},
		{"größe 日本", "", "leat_größe 日本"},
		{strings.Repeat("x", 58), "leat_" + strings.Repeat("x", 58), "leat_" + strings.Repeat("x", 58)},
		{strings.Repeat("x", 59), "", ""},
		{strings.Repeat("x", 60), "", ""},
		{strings.Repeat("ü", 60), "", ""},
	} {
		cfg := &SourceConfig{}
		s := newSource(cfg, connector.Env{Pipeline: c.pipeline})
		slot, pub := s.slotName(), s.publicationName()
		if !slotPattern.MatchString(slot) || (c.slot != "" && slot != c.slot) {
			t.Errorf("slot of %q is %q, want %q", c.pipeline, slot, c.slot)
		}
		if len(pub) > maxIdentifier || (c.publication != "" && pub != c.publication) || strings.Contains(pub, "\ufffd") {
			t.Errorf("publication of %q is %q, want %q", c.pipeline, pub, c.publication)
		}
		if other, ok := seen[slot]; ok {
			t.Errorf("pipelines %q and %q have the slot %s", other, c.pipeline, slot)
		}
		seen[slot] = c.pipeline
		cfg.Slot, cfg.Publication = "mine", `Weird "Name"`
		if s.slotName() != "mine" || s.publicationName() != `Weird "Name"` {
			t.Error("the options do not win")
		}
	}
	var bad []string
	add := func(is bool, format string, args ...any) {
		if is {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	for _, slot := range []string{"Upper", "da-sh", "ü", strings.Repeat("x", 64)} {
		(&SourceConfig{Slot: slot}).validateNames(add)
	}
	(&SourceConfig{Publication: strings.Repeat("x", 64)}).validateNames(add)
	(&SourceConfig{Slot: strings.Repeat("x", 63), Publication: strings.Repeat("ü", 31)}).validateNames(add)
	if len(bad) != 5 {
		t.Errorf("%q", bad)
	}
}

// The resume point is made without consuming anything, and what is changed afterwards lies behind it. A second call takes what the
// first left.
// clause S21.
func (s ownServer) anchors(t *testing.T) {
	db := s.Database()
	a := newPipeline(t, db, map[string]string{"tables": "public.*"})
	sqlAll(t, a.conn, `CREATE TABLE a (id int PRIMARY KEY, v text)`, `CREATE TABLE b (id int PRIMARY KEY) PARTITION BY RANGE (id)`,
		`CREATE TABLE b1 PARTITION OF b FOR VALUES FROM (0) TO (10)`, `CREATE UNLOGGED TABLE cache (id int)`)
	before := value[string](t, a.conn, `SELECT pg_current_wal_insert_lsn()::text`)
	p := a.anchor(t)
	if at, err := parseLSN(before); err != nil || p.LSN < at || p.Created != p.LSN || p.XID != 0 {
		t.Errorf("the position is %+v, before it was %s", p, before)
	}
	if want := value[string](t, a.conn, `SELECT system_identifier::text FROM pg_control_system()`); p.System != want || p.Timeline != 1 ||
		p.Slot != a.slotName() || p.Publication != value[uint32](t, a.conn, `SELECT oid FROM pg_publication`) {
		t.Errorf("the position is %+v", p)
	}
	if got := value[string](t, a.conn, `SELECT string_agg(tablename, ',' ORDER BY tablename) FROM pg_publication_tables WHERE pubname = $1`,
		a.publicationName()); got != "a,b" {
		t.Errorf("published: %s", got)
	}
	version := value[int](t, a.conn, `SELECT current_setting('server_version_num')::int`)
	slot := value[map[string]any](t, a.conn, `SELECT to_jsonb(s) FROM pg_replication_slots s WHERE slot_name = $1`, a.slotName())
	if slot["plugin"] != "pgoutput" || slot["temporary"] != false || slot["two_phase"] != false || slot["active"] != false ||
		slot["confirmed_flush_lsn"] != p.LSN.String() || (version >= failoverVersion && slot["failover"] != true) {
		t.Errorf("the slot is %v", slot)
	}
	sqlAll(t, a.conn, `SET synchronous_commit = on`, `INSERT INTO a VALUES (1, 'x')`)
	if again := newSameAs(t, db, a).anchor(t); again != p {
		t.Errorf("the second call returns %+v, the first %+v", again, p)
	}
	if n := value[int](t, a.conn, `SELECT count(*) FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1',
		'publication_names', $2)`, a.slotName(), ident(a.publicationName())); n < 3 {
		t.Errorf("the slot has %d messages", n)
	}
}

// newSameAs opens the pipeline of another source once more, perhaps on another server.
func newSameAs(t testing.TB, db string, a *anchored) *anchored {
	t.Helper()
	b := newAnchored(t, db, a.env.Pipeline, nil)
	cfg := *a.cfg
	cfg.Connection = b.cfg.Connection
	b.Source.cfg, b.pool.cfg = &cfg, &cfg
	return b
}

// A slot can't be made before all transactions are over that began earlier. The wait is bounded, says whom it is for, and leaves nothing.
// clause S1.
func (s ownServer) anchorWaits(t *testing.T) {
	db := s.Database()
	a := newPipeline(t, db, map[string]string{"table": "a", "statement_timeout": "1500ms"})
	sqlExec(t, a.conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	slow := pgtest.Conn(t, db+"&application_name=slow-report")
	sqlAll(t, slow, `BEGIN`, `SELECT pg_current_xact_id()`)
	_, err := a.Anchor(t.Context())
	pid := fmt.Sprintf("process %d ", slow.PgConn().PID())
	refusedWith(t, err, connector.ClassTransient, "postgres.slot.wait", pid, "slow-report", "1.5s")
	if !strings.Contains(a.log.String(), pid) {
		t.Errorf("the log does not say who it waits for: %s", a.log)
	}
	if n := value[int](t, a.conn, `SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1)
		+ (SELECT count(*) FROM pg_publication)`, a.slotName()); n != 0 {
		t.Errorf("%d things were left behind", n)
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := newSameAs(t, db, a).Anchor(ctx); connector.ClassOf(err) != connector.ClassTransient {
			t.Errorf("got %v", err)
		}
		if n := value[int](t, a.conn, `SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1)
			+ (SELECT count(*) FROM pg_publication)`, a.slotName()); n != 0 {
			t.Errorf("%d things were left behind", n)
		}
	})
	t.Run("until it ends", func(t *testing.T) {
		b := newSameAs(t, db, a)
		done := make(chan error, 1)
		go func() {
			_, err := b.Anchor(t.Context())
			done <- err
		}()
		for value[int](t, a.conn, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, a.slotName()) == 0 {
		}
		sqlExec(t, slow, `COMMIT`)
		must(t, <-done)
	})
}

// A prepared transaction that everybody forgot is named too, with what ends it.
func (s ownServer) anchorWaitsForPrepared(t *testing.T) {
	db := s.Database()
	a := newPipeline(t, db, map[string]string{"table": "a", "statement_timeout": "1500ms"})
	gid := pipelineName()
	sqlAll(t, a.conn, `CREATE TABLE a (id int PRIMARY KEY)`, `BEGIN`, `INSERT INTO a VALUES (1)`, `PREPARE TRANSACTION '`+gid+`'`)
	t.Cleanup(func() {
		_, err := a.conn.Exec(context.WithoutCancel(t.Context()), `ROLLBACK PREPARED '`+gid+`'`)
		must(t, err)
	})
	_, err := a.Anchor(t.Context())
	refusedWith(t, err, connector.ClassTransient, "postgres.slot.wait", "prepared transaction '"+gid+"'")
}

// What Anchor does about a slot that is there already.
func (s ownServer) anchorFindsASlot(t *testing.T) {
	db := s.Database()
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	other := pgtest.Conn(t, s.Database())
	create := `SELECT pg_create_logical_replication_slot('%s', 'pgoutput')`
	for _, c := range []struct {
		name   string
		conn   *pgx.Conn
		make   string // with the name of the slot
		code   string // empty: it works
		text   string
		adopts bool
	}{
		{"another database", other, create, "postgres.follow", "belongs to database", false},
		{"another plugin", conn, `SELECT pg_create_logical_replication_slot('%s', 'test_decoding')`, "postgres.follow", "plugin is test_decoding", false},
		{"physical", conn, `SELECT pg_create_physical_replication_slot('%s')`, "postgres.follow", "physical", false},
		{"two phase", conn, `SELECT pg_create_logical_replication_slot('%s', 'pgoutput', false, true)`, "postgres.follow", "two_phase", false},
		{"temporary", conn, `SELECT pg_create_logical_replication_slot('%s', 'pgoutput', true)`, "postgres.follow", "temporary", false},
		{"older than the publication", conn, create, "", "", false},
		{"younger than the publication", conn, `CREATE PUBLICATION "leat_%[2]s" FOR TABLE a WITH (publish_via_partition_root = true%[3]s);
			SELECT pg_create_logical_replication_slot('%[1]s', 'pgoutput')`, "", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newPipeline(t, db, map[string]string{"table": "a"})
			options := ""
			if value[int](t, conn, `SELECT current_setting('server_version_num')::int`) >= generatedVersion {
				options = ", publish_generated_columns = stored"
			}
			sql := c.make
			if strings.Contains(sql, "[2]") {
				sql = fmt.Sprintf(sql, a.slotName(), a.env.Pipeline, options)
			} else {
				sql = fmt.Sprintf(sql, a.slotName())
			}
			for statement := range strings.SplitSeq(sql, ";") {
				sqlExec(t, c.conn, statement)
			}
			if c.name == "temporary" {
				defer func() { must(t, dropSlot(t.Context(), conn.PgConn(), a.slotName())) }()
			}
			stood := value[*string](t, conn, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, a.slotName())
			at, err := a.Anchor(t.Context())
			if c.code != "" {
				refusedWith(t, err, connector.ClassConfig, c.code, c.text, "slot=NAME", a.slotName())
				if n := value[int](t, conn, `SELECT count(*) FROM pg_publication`); n != 0 {
					t.Error("a publication was made")
				}
				return
			}
			must(t, err)
			p, err := decodeStream(at)
			must(t, err)
			if (p.LSN.String() == *stood) != c.adopts {
				t.Errorf("it stood at %s, the position is %s", *stood, p.LSN)
			}
			sqlExec(t, conn, `DROP PUBLICATION `+ident(a.publicationName()))
		})
	}
}

// A slot that another session uses is left alone, and the error says whose it is.
// case C046.
func (s ownServer) anchorFindsASlotInUse(t *testing.T) {
	db := s.Database()
	a := newPipeline(t, db, map[string]string{"table": "a"})
	sqlExec(t, a.conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	a.anchor(t)
	user := follow(t, db+"&application_name=somebody-else", a.slotName(), a.publicationName())
	_, err := newSameAs(t, db, a).Anchor(t.Context())
	refusedWith(t, err, connector.ClassTransient, "postgres.slot.active", fmt.Sprintf("process %d ", user), "somebody-else")
}

// follow occupies a slot as another program would, and returns its process.
func follow(t testing.TB, db, slot, publication string) uint32 {
	t.Helper()
	cfg, err := pgx.ParseConfig(db + "&replication=database")
	must(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	must(t, err)
	pid := conn.PgConn().PID()
	sql := fmt.Sprintf(`START_REPLICATION SLOT %s LOGICAL 0/0 (proto_version '1', publication_names '%s')`, slot,
		strings.ReplaceAll(ident(publication), "'", "''"))
	var work sync.WaitGroup
	work.Go(func() {
		_, _ = conn.PgConn().Exec(t.Context(), sql).ReadAll() // until the test ends
		_ = closeConn(t.Context(), conn)
	})
	t.Cleanup(work.Wait)
	watch := pgtest.Conn(t, db)
	for !value[bool](t, watch, `SELECT exists (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active_pid = $2)`, slot, pid) {
	}
	return pid
}

// Any identifier can be followed: quotes, dots, blanks, other scripts, the longest names.
func (s ownServer) anchorIdentifiers(t *testing.T) {
	db := s.Database()
	long := strings.Repeat("ü", 31) + "x"
	for _, name := range []string{`Weird "Name"`, `a.b`, `'; DROP TABLE x; --`, "日本", long, `back\slash`} {
		t.Run(name, func(t *testing.T) {
			a := newPipeline(t, db, map[string]string{"publication": name, "schema": name, "tables": record.JoinName(name, name)})
			rel := relation{schema: name, name: name}
			sqlAll(t, a.conn, `CREATE SCHEMA `+ident(name), fmt.Sprintf(`CREATE TABLE %s (%s int PRIMARY KEY)`, rel, ident(name)))
			must(t, a.resumable(t.Context(), a.anchor(t)))
			follow(t, db, a.slotName(), a.publicationName())
			added, err := a.join(t.Context())
			if err != nil || len(added) > 0 {
				t.Errorf("added %v, error %v", added, err)
			}
			sqlExec(t, a.conn, `ALTER PUBLICATION `+ident(name)+` DROP TABLE `+rel.String())
			_, err = a.join(t.Context())
			refusedWith(t, err, connector.ClassPosition, "postgres.publication.table", rel.dataset())
		})
	}
}
