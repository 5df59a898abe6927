package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/pgtest"
)

func probesOf(t testing.TB, a *anchored) []connector.Probe {
	t.Helper()
	probes, err := a.Check(t.Context())
	must(t, err)
	for _, p := range probes {
		if (p.Status == connector.Pass) != (p.Fix == "") || p.Name == "" || p.Detail == "" {
			t.Errorf("a probe without what it takes: %+v", p)
		}
	}
	return probes
}

func probeNamed(t testing.TB, a *anchored, name string) connector.Probe {
	t.Helper()
	probes := probesOf(t, a)
	i := slices.IndexFunc(probes, func(p connector.Probe) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no probe %q in %+v", name, probes)
	}
	return probes[i]
}

// complaints are the probes that do not pass.
func complaints(t testing.TB, a *anchored) []connector.Probe {
	t.Helper()
	return slices.DeleteFunc(probesOf(t, a), func(p connector.Probe) bool { return p.Status == connector.Pass })
}

func namesOf(probes []connector.Probe) string {
	names := make([]string, len(probes))
	for i, p := range probes {
		names[i] = p.Status.String() + " " + p.Name
	}
	return strings.Join(names, ", ")
}

// runFixes does exactly what the probes say.
func runFixes(t testing.TB, conn *pgx.Conn, probes ...connector.Probe) {
	t.Helper()
	for _, p := range probes {
		for sql := range strings.SplitSeq(p.Fix, ";") {
			if sql = strings.TrimSpace(sql); sql != "" {
				sqlExec(t, conn, sql)
			}
		}
	}
}

// A newcomer: a server as it comes, and a role that may do nothing. One look says everything; doing exactly that is enough.
// case C049.
func TestNewcomer(t *testing.T) {
	server := pgtest.Server(t, "max_replication_slots=1", "max_wal_senders=1", "max_slot_wal_keep_size=64MB")
	admin := pgtest.Conn(t, server.URL())
	sqlAll(t, admin, `CREATE ROLE "Reader 1" LOGIN`, `CREATE SCHEMA shop`, `REVOKE ALL ON SCHEMA public FROM PUBLIC`,
		`CREATE TABLE shop.orders (id int PRIMARY KEY, note text)`, `CREATE TABLE shop."No Key" (a int NOT NULL, b text)`,
		`CREATE UNIQUE INDEX "the key" ON shop."No Key" (a)`,
		`CREATE TABLE shop.log (id int, at date NOT NULL, UNIQUE (id, at)) PARTITION BY RANGE (at)`,
		`ALTER TABLE shop.log ALTER id SET NOT NULL`,
		`CREATE TABLE shop.log_1 PARTITION OF shop.log FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')`,
		`CREATE TABLE shop.hidden (id int PRIMARY KEY)`, `ALTER TABLE shop.hidden ENABLE ROW LEVEL SECURITY`,
		`SELECT pg_create_physical_replication_slot('forgotten')`)
	a := newAnchored(t, server.As("Reader 1", "leat"), "first", map[string]string{"tables": "shop.*"})

	before := state(t, admin)
	found := complaints(t, a)
	if after := state(t, admin); after != before {
		t.Errorf("the check changed something: %s, before %s", after, before)
	}
	want := "fail schemas, fail privileges, fail wal_level, fail replication, fail max_replication_slots, fail replica identity, " +
		"fail publication, fail row security, warn max_slot_wal_keep_size"
	if namesOf(found) != want {
		t.Errorf("found %s\nwant %s", namesOf(found), want)
	}
	_, err := a.Anchor(t.Context())
	refusedWith(t, err, connector.ClassConfig, "postgres.table") // it does not even see the tables
	for _, p := range found {
		t.Logf("%s: %s\n  %s", p.Name, p.Detail, p.Fix)
	}

	runFixes(t, admin, found...)
	sqlAll(t, admin, `UPDATE shop."No Key" SET b = 'x'`, `INSERT INTO shop.log VALUES (1, '2026-05-05')`, `UPDATE shop.log SET id = 2`)
	server.Restart()
	b := newSameAs(t, server.As("Reader 1", "leat"), a)
	if found := complaints(t, b); len(found) > 0 {
		t.Fatalf("now it finds %+v", found)
	}
	p := b.anchor(t)
	must(t, newSameAs(t, server.As("Reader 1", "leat"), a).resumable(t.Context(), p))
	if found := complaints(t, newSameAs(t, server.As("Reader 1", "leat"), a)); len(found) > 0 {
		t.Errorf("with the slot it finds %+v", found)
	}
	admin = pgtest.Conn(t, server.URL())
	sqlAll(t, admin, `UPDATE shop."No Key" SET b = 'y'`, `DELETE FROM shop.log`, `DELETE FROM shop."No Key"`)
}

// state is all that a check might change.
func state(t testing.TB, conn *pgx.Conn) string {
	t.Helper()
	return value[string](t, conn, `SELECT concat_ws('|', (SELECT string_agg(slot_name, ',') FROM pg_replication_slots),
		(SELECT string_agg(pubname, ',') FROM pg_publication), (SELECT count(*) FROM pg_file_settings), (SELECT count(*) FROM pg_class))`)
}

// What no server here has is judged as well.
func TestFollowProbes(t *testing.T) {
	fine := func() *followFacts {
		return &followFacts{
			Version: 170000, Role: "r", Replication: true, Create: true, name: "p", slotName: "s",
			Settings: map[string]string{
				"wal_level": "logical", "max_replication_slots": "10", "max_wal_senders": "10", "max_slot_wal_keep_size": "-1",
				"wal_sender_timeout": "1min",
			},
		}
	}
	slot := &slotInfo{Plugin: "pgoutput", Type: "logical", Here: true}
	for _, c := range []struct {
		name   string
		change func(f *followFacts)
		probe  string
		status connector.ProbeStatus
		text   string // in the fix or the detail
	}{
		{"fine", func(*followFacts) {}, "wal_level", connector.Pass, "logical"},
		{"old", func(f *followFacts) { f.Version = 130009 }, "follow", connector.Fail, "PostgreSQL 14 or newer"},
		{"rds", func(f *followFacts) {
			f.Settings["wal_level"], f.Settings["rds.logical_replication"] = "replica", "off"
		}, "wal_level", connector.Fail, "rds.logical_replication"},
		{"rds role", func(f *followFacts) { f.RDS, f.Replication = true, false }, "replication", connector.Fail, `GRANT rds_replication TO "r";`},
		{"cloud sql", func(f *followFacts) {
			f.Settings["wal_level"], f.Settings["cloudsql.logical_decoding"] = "replica", "off"
		}, "wal_level", connector.Fail, "cloudsql.logical_decoding"},
		{"azure", func(f *followFacts) {
			f.Settings["wal_level"], f.Settings["azure.extensions"] = "replica", " "
		}, "wal_level", connector.Fail, "server parameter"},
		{"senders", func(f *followFacts) { f.Senders = 10 }, "max_wal_senders", connector.Fail, "max_wal_senders = 15;"},
		{"slots", func(f *followFacts) { f.Slots = 10 }, "max_replication_slots", connector.Fail, "max_replication_slots = 15;"},
		{"slots with ours", func(f *followFacts) { f.Slots, f.slot = 10, slot }, "max_replication_slots", connector.Pass, "10 of 10"},
		{"idle timeout", func(f *followFacts) {
			f.Settings["idle_replication_slot_timeout"] = "1d"
		}, "idle_replication_slot_timeout", connector.Warn, "ALTER SYSTEM SET idle_replication_slot_timeout = 0;"},
		{"no idle timeout", func(f *followFacts) {
			f.Settings["idle_replication_slot_timeout"] = "0"
		}, "idle_replication_slot_timeout", connector.Pass, "never"},
		{"no sender timeout", func(f *followFacts) { f.Settings["wal_sender_timeout"] = "0" }, "wal_sender_timeout", connector.Pass, "cut"},
		{"long transaction", func(f *followFacts) {
			f.Oldest = []openTransaction{{Who: "process 7 (x)", Seconds: 7200, End: "SELECT pg_terminate_backend(7);"}}
		}, "slot", connector.Warn, "SELECT pg_terminate_backend(7);"},
		{"short transaction", func(f *followFacts) { f.Oldest = []openTransaction{{Seconds: 2}} }, "slot", connector.Pass, "made by the start"},
		{"primary's slot", func(f *followFacts) {
			f.Recovery, f.slot = true, &slotInfo{Plugin: "pgoutput", Type: "logical", Here: true, Synced: true}
		}, "slot", connector.Fail, "failover"},
		{"standby without a slot", func(f *followFacts) {
			f.Recovery, f.Settings["hot_standby_feedback"] = true, "on"
		}, "standby", connector.Warn, "primary_slot_name"},
	} {
		f := fine()
		c.change(f)
		probes := f.probes()
		i := slices.IndexFunc(probes, func(p connector.Probe) bool { return p.Name == c.probe })
		if i < 0 || probes[i].Status != c.status || !strings.Contains(probes[i].Fix+probes[i].Detail, c.text) {
			t.Errorf("%s: %+v", c.name, probes)
		}
		if err := f.refusal(); (err != nil) != slices.ContainsFunc(probes, failed) {
			t.Errorf("%s: refused with %v", c.name, err)
		}
	}
}

// A role with REPLICATION, SELECT on two of three tables, and no CREATE. The error of a start has the statements too, and a publication
// that an administrator made by them is enough.
// case C049.
func (s ownServer) leastPrivilege(t *testing.T) {
	admin := pgtest.Conn(t, s.Database())
	role := pipelineName()
	sqlAll(t, admin, `CREATE ROLE `+role+` LOGIN REPLICATION`, `CREATE TABLE a (id int PRIMARY KEY)`, `CREATE TABLE b (id int PRIMARY KEY)`,
		`CREATE TABLE c (id int PRIMARY KEY)`, `GRANT SELECT ON a, b TO `+role)
	a := newAnchored(t, s.As(role, admin.Config().Database), pipelineName(), map[string]string{"tables": "public.*"})
	found := complaints(t, a)
	if namesOf(found) != "fail privileges, fail publication" {
		t.Errorf("found %s", namesOf(found))
	}
	if fix := found[0].Fix; fix != fmt.Sprintf(`GRANT SELECT ON "public"."c" TO "%s";`, role) {
		t.Errorf("the fix is %s", fix)
	}
	_, err := a.Anchor(t.Context())
	refusedWith(t, err, connector.ClassConfig, "postgres.follow", found[1].Fix, "may not create", "does not own public.a, public.b, public.c",
		`CREATE PUBLICATION "leat_`+a.env.Pipeline+`" FOR TABLE "public"."a", "public"."b", "public"."c" WITH (publish_via_partition_root = true`)
	runFixes(t, admin, found...)
	if found := complaints(t, a); len(found) > 0 {
		t.Errorf("now it finds %+v", found)
	}
	a.anchor(t)

	// The administrator's publication is used as it is, and stays.
	if lines, err := a.Describe(t.Context()); err != nil || len(lines) != 1 || !strings.Contains(lines[0], a.slotName()) {
		t.Errorf("it would drop %q, error %v", lines, err)
	}
	sqlExec(t, admin, `CREATE TABLE d (id int PRIMARY KEY)`)
	sqlExec(t, admin, `GRANT SELECT ON d TO `+role)
	if p := probeNamed(t, a, "publication"); p.Status != connector.Fail || p.Fix != fmt.Sprintf(
		`ALTER PUBLICATION "leat_%s" ADD TABLE "public"."d";`, a.env.Pipeline) {
		t.Errorf("of a table that is not in it the check says %+v", p)
	}
	must(t, a.Drop(t.Context()))
	if n := value[int](t, admin, `SELECT count(*) FROM pg_publication`); n != 1 {
		t.Error("the administrator's publication was dropped")
	}
}

// What a table needs to be published without breaking the application, and that exactly this helps.
// case C034, C031.
func (s ownServer) identities(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	eighteen := value[int](t, conn, `SELECT current_setting('server_version_num')::int`) >= generatedVersion
	for i, c := range []struct {
		name    string
		sql     []string // %s is the table
		fix     string   // of the replica identity, without the table; empty: it is fine
		changes string   // an update that the application makes
		warn    string   // names of other complaints
	}{
		{"primary key", []string{`CREATE TABLE %s (id int PRIMARY KEY, v int)`}, "", `v = 1`, ""},
		{"no key", []string{`CREATE TABLE %s (v int)`}, `REPLICA IDENTITY FULL`, `v = 1`, "keys"},
		{
			"nothing",
			[]string{`CREATE TABLE %s (id int PRIMARY KEY, v int)`, `ALTER TABLE %s REPLICA IDENTITY NOTHING`},
			`REPLICA IDENTITY DEFAULT`, `v = 1`, "",
		},
		{"deferrable key", []string{`CREATE TABLE %s (id int PRIMARY KEY DEFERRABLE, v int)`}, `REPLICA IDENTITY FULL`, `v = 1`, "keys"},
		{
			"unique index",
			[]string{`CREATE TABLE %s (id int NOT NULL, v int)`, `CREATE UNIQUE INDEX u1 ON %s (id)`},
			`REPLICA IDENTITY USING INDEX "u1"`, `v = 1`, "",
		},
		{"indexes that will not do", []string{
			`CREATE TABLE %s (id int, v int NOT NULL)`, `CREATE UNIQUE INDEX ON %s (id)`,
			`CREATE UNIQUE INDEX ON %s (v) WHERE v > 0`, `CREATE UNIQUE INDEX ON %s ((v + 1))`,
		}, `REPLICA IDENTITY FULL`, `v = 1`, "keys"},
		{"identity index", []string{
			`CREATE TABLE %s (id int NOT NULL, v int)`, `CREATE UNIQUE INDEX u2 ON %s (id)`,
			`ALTER TABLE %s REPLICA IDENTITY USING INDEX u2`,
		}, "", `v = 1`, ""},
		{"identity index that was dropped", []string{
			`CREATE TABLE %s (id int NOT NULL, v int)`, `CREATE UNIQUE INDEX u3 ON %s (id)`,
			`ALTER TABLE %s REPLICA IDENTITY USING INDEX u3`, `DROP INDEX u3`,
		}, `REPLICA IDENTITY FULL`, `v = 1`, "keys"},
		{"full", []string{`CREATE TABLE %s (id int PRIMARY KEY, v int)`, `ALTER TABLE %s REPLICA IDENTITY FULL`}, "", `v = 1`, ""},
		{
			"generated",
			[]string{`CREATE TABLE %s (id int PRIMARY KEY, v int, g int GENERATED ALWAYS AS (v + 1) STORED)`},
			"", `v = 1`,
			map[bool]string{false: "columns"}[eighteen],
		},
		{"full and generated", []string{
			`CREATE TABLE %s (id int PRIMARY KEY, v int, g int GENERATED ALWAYS AS (v + 1) STORED)`,
			`ALTER TABLE %s REPLICA IDENTITY FULL`,
		}, "", `v = 1`, map[bool]string{false: "columns"}[eighteen]},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.identityCase(t, conn.Config().Database, fmt.Sprintf("t%d", i), c.sql, c.changes, c.fix, c.warn)
		})
	}
	if eighteen {
		t.Run("full and virtual", func(t *testing.T) {
			s.identityCase(t, conn.Config().Database, "virtual", []string{
				`CREATE TABLE %s (id int PRIMARY KEY, v int, g int GENERATED ALWAYS AS (v + 1) VIRTUAL)`,
				`ALTER TABLE %s REPLICA IDENTITY FULL`,
			}, `v = 1`, `REPLICA IDENTITY DEFAULT`, "columns")
		})
		t.Run("full and generated in another's publication", s.generatedElsewhere)
	}
}

func (s ownServer) identityCase(t *testing.T, database, table string, sql []string, changes, fix, warn string) {
	t.Helper()
	conn := pgtest.Conn(t, s.As("leat", database))
	for _, statement := range sql {
		sqlExec(t, conn, strings.ReplaceAll(statement, "%s", table))
	}
	a := newPipeline(t, s.As("leat", database), map[string]string{"table": table})
	update := `UPDATE ` + table + ` SET ` + changes
	sqlExec(t, conn, update)
	found := complaints(t, a)
	want := map[bool]string{true: "fail replica identity"}[fix != ""]
	got := slices.DeleteFunc(slices.Clone(found), func(p connector.Probe) bool { return p.Status != connector.Fail })
	if namesOf(got) != want {
		t.Fatalf("found %+v, want %q", found, want)
	}
	if fix != "" {
		if full := fmt.Sprintf(`ALTER TABLE "public"."%s" %s;`, table, fix); got[0].Fix != full {
			t.Errorf("the fix is %s, want %s", got[0].Fix, full)
		}
		_, err := a.Anchor(t.Context())
		refusedWith(t, err, connector.ClassConfig, "postgres.follow", "public."+table, fix)
		sqlExec(t, conn, update) // nothing was broken
		runFixes(t, conn, got...)
	}
	found = complaints(t, a)
	if want := strings.TrimSpace("warn " + warn); warn == "" && len(found) > 0 || warn != "" && namesOf(found) != want {
		t.Errorf("then it finds %+v, want %q", found, warn)
	}
	a.anchor(t)
	sqlExec(t, conn, update)
	sqlExec(t, conn, `DELETE FROM `+table)
}

// PostgreSQL 18 refuses updates of a table with replica identity FULL where the publication leaves out generated columns.
func (s ownServer) generatedElsewhere(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	sqlAll(t, conn, `CREATE TABLE g (v int, g int GENERATED ALWAYS AS (v + 1) STORED)`, `ALTER TABLE g REPLICA IDENTITY FULL`,
		`CREATE PUBLICATION theirs FOR ALL TABLES`)
	if _, err := conn.Exec(t.Context(), `UPDATE g SET v = 1`); err == nil {
		t.Error("the server does not refuse it")
	}
	a := newPipeline(t, s.As("leat", conn.Config().Database), map[string]string{"table": "g", "publication": "theirs"})
	p := probeNamed(t, a, "replica identity")
	if p.Status != connector.Fail || p.Fix != `ALTER PUBLICATION "theirs" SET (publish_generated_columns = stored);` {
		t.Errorf("found %+v", p)
	}
	runFixes(t, conn, p)
	sqlExec(t, conn, `UPDATE g SET v = 1`)
	if p := probeNamed(t, a, "replica identity"); p.Status != connector.Pass {
		t.Errorf("then it finds %+v", p)
	}
}

// Partitions need an identity each, and the same kind as their root.
func (s ownServer) partitionIdentities(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	sqlAll(t, conn, `CREATE TABLE p (id int, v int) PARTITION BY RANGE (id)`, `CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)`,
		`CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY LIST (v)`,
		`CREATE TABLE p21 PARTITION OF p2 DEFAULT`, `INSERT INTO p SELECT n, 1 FROM generate_series(0, 19) n`)
	a := newPipeline(t, s.As("leat", conn.Config().Database), map[string]string{"table": "p"})
	p := probeNamed(t, a, "replica identity")
	if want := `ALTER TABLE "public"."p" REPLICA IDENTITY FULL;
ALTER TABLE "public"."p1" REPLICA IDENTITY FULL;
ALTER TABLE "public"."p21" REPLICA IDENTITY FULL;`; p.Fix != want {
		t.Errorf("the fix is %s", p.Fix)
	}
	runFixes(t, conn, p)
	sqlExec(t, conn, `ALTER TABLE p1 REPLICA IDENTITY DEFAULT`)
	sqlExec(t, conn, `ALTER TABLE p1 ADD PRIMARY KEY (id)`)
	p = probeNamed(t, a, "replica identity")
	if p.Status != connector.Fail || p.Fix != `ALTER TABLE "public"."p1" REPLICA IDENTITY FULL;` {
		t.Errorf("of a root that is FULL and a partition that is not: %+v", p)
	}
	runFixes(t, conn, p)
	sqlExec(t, conn, `ALTER TABLE p1 SET UNLOGGED`)
	p = probeNamed(t, a, "replica identity")
	if p.Status != connector.Fail || !strings.Contains(p.Detail, `"public"."p1" is unlogged`) {
		t.Errorf("of an unlogged partition: %+v", p)
	}
	sqlExec(t, conn, `ALTER TABLE p1 SET LOGGED`)
	a.anchor(t)
	sqlAll(t, conn, `UPDATE p SET v = 2`, `DELETE FROM p`)
}

// A publication that is there already is used as it is, if it has everything.
func (s ownServer) publications(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	db := s.As("leat", conn.Config().Database)
	version := value[int](t, conn, `SELECT current_setting('server_version_num')::int`)
	sqlAll(t, conn, `CREATE SCHEMA s`, `CREATE TABLE s.a (id int PRIMARY KEY, v int)`,
		`CREATE TABLE s.p (id int PRIMARY KEY) PARTITION BY RANGE (id)`, `CREATE TABLE s.p1 PARTITION OF s.p FOR VALUES FROM (0) TO (10)`)
	for _, c := range []struct {
		sql     string
		tables  string
		fix     string // empty: it is fine
		warn    string
		since   int
		ownOnly bool // the statement would do, but is not made to others' publications
	}{
		{`CREATE PUBLICATION %s FOR ALL TABLES WITH (publish_via_partition_root = true)`, "s.a,s.p", "", "", 0, false},
		{`CREATE PUBLICATION %s FOR ALL TABLES`, "s.a", "", "", 0, false},
		{`CREATE PUBLICATION %s FOR ALL TABLES`, "s.p", `SET (publish_via_partition_root = true);`, "", 0, false},
		{`CREATE PUBLICATION %s FOR TABLE s.p`, "s.p", `SET (publish_via_partition_root = true);`, "", 0, false},
		{`CREATE PUBLICATION %s FOR TABLE s.p`, "s.p1", "", "", 0, false},
		{
			`CREATE PUBLICATION %s FOR TABLE s.a`, "s.a,s.p",
			"SET (publish_via_partition_root = true);\n%sADD TABLE \"s\".\"p\";", "", 0, false,
		},
		{`CREATE PUBLICATION %s`, "s.a", `ADD TABLE "s"."a";`, "", 0, false},
		{
			`CREATE PUBLICATION %s FOR TABLE s.a WITH (publish = 'insert, update')`, "s.a",
			`SET (publish = 'insert, update, delete, truncate');`, "", 0, false,
		},
		{`CREATE PUBLICATION %s FOR TABLE s.p WITH (publish_via_partition_root = true)`, "s.p1", "tables=s.p", "", 0, false},
		{`CREATE PUBLICATION %s FOR TABLES IN SCHEMA s`, "s.a", "", "", columnsVersion, false},
		{`CREATE PUBLICATION %s FOR TABLES IN SCHEMA s`, "s.p", `SET (publish_via_partition_root = true);`, "", columnsVersion, false},
		{`CREATE PUBLICATION %s FOR TABLES IN SCHEMA public`, "s.a", `ADD TABLE "s"."a";`, "", columnsVersion, false},
		{`CREATE PUBLICATION %s FOR TABLE s.a (id)`, "s.a", "", "columns", columnsVersion, false},
		{`CREATE PUBLICATION %s FOR TABLE s.a WHERE (id > 5)`, "s.a", "", "", columnsVersion, false},
	} {
		if version < c.since {
			continue
		}
		t.Run(c.sql+" for "+c.tables, func(t *testing.T) {
			name := pipelineName()
			sqlExec(t, conn, fmt.Sprintf(c.sql, name))
			defer sqlExec(t, conn, `DROP PUBLICATION `+name)
			a := newPipeline(t, db, map[string]string{"tables": c.tables, "publication": name})
			before := value[string](t, conn, `SELECT p::text FROM pg_publication p WHERE pubname = $1`, name)
			p := probeNamed(t, a, "publication")
			want := c.fix
			if alter := fmt.Sprintf(`ALTER PUBLICATION "%s" `, name); want != "" && !strings.HasPrefix(want, "tables=") {
				want = strings.ReplaceAll(alter+want, "%s", alter)
			}
			if p.Fix != want && p.Fix != "select the partitioned table: "+want {
				t.Fatalf("the fix is %q, want %q: %s", p.Fix, want, p.Detail)
			}
			if c.fix != "" {
				_, err := a.Anchor(t.Context())
				refusedWith(t, err, connector.ClassConfig, "postgres.follow", p.Fix)
			}
			if strings.HasPrefix(want, "tables=") {
				return
			}
			if after := value[string](t, conn, `SELECT p::text FROM pg_publication p WHERE pubname = $1`, name); after != before {
				t.Errorf("it was changed from %s to %s", before, after)
			}
			runFixes(t, conn, p)
			if got := namesOf(complaints(t, a)); got != strings.TrimSpace(map[bool]string{true: "warn "}[c.warn != ""]+c.warn) {
				t.Errorf("then it finds %s", got)
			}
			a.anchor(t)
		})
	}
}

// leat's own publication is made to fit: what the selection lost is taken out, options that somebody changed are put right.
func (s ownServer) ownPublication(t *testing.T) {
	conn := pgtest.Conn(t, s.Database())
	db := s.As("leat", conn.Config().Database)
	sqlAll(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`, `CREATE TABLE b (id int PRIMARY KEY)`, `CREATE TABLE c (id int PRIMARY KEY)`)
	a := newPipeline(t, db, map[string]string{"tables": "public.a,public.b"})
	first := a.anchor(t)
	sqlExec(t, conn, fmt.Sprintf(`ALTER PUBLICATION %s SET (publish = 'insert')`, ident(a.publicationName())))
	b := newSameAs(t, db, a)
	b.cfg.Tables = []string{"public.b", "public.c"}
	if found := complaints(t, b); len(found) > 0 {
		t.Errorf("the check finds %+v", found)
	}
	second := b.anchor(t)
	got := value[string](t, conn, `SELECT string_agg(tablename, ',' ORDER BY tablename) || p.pubinsert || p.pubupdate || p.pubdelete || p.pubtruncate
		FROM pg_publication p JOIN pg_publication_tables t USING (pubname) WHERE pubname = $1
		GROUP BY p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate`, a.publicationName())
	if got != "b,ctruetruetruetrue" {
		t.Errorf("the publication has %s", got)
	}
	if second.LSN <= first.LSN || second.Publication != first.Publication {
		t.Errorf("the slot is older than what it publishes: %+v, then %+v", first, second)
	}
	lines, err := b.Describe(t.Context())
	must(t, err)
	if len(lines) != 2 || !strings.Contains(lines[0], b.slotName()) || !strings.Contains(lines[1], b.publicationName()) {
		t.Errorf("it would drop %q", lines)
	}
	user := follow(t, db+"&application_name=reader", b.slotName(), b.publicationName())
	err = b.Drop(t.Context())
	refusedWith(t, err, connector.ClassPermanent, "postgres.slot.active", fmt.Sprintf("process %d ", user), "reader")
	sqlExec(t, conn, fmt.Sprintf(`SELECT pg_terminate_backend(%d, 10000)`, user))
	for range 2 {
		must(t, b.Drop(t.Context()))
	}
	if n := value[int](t, conn, `SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1) + (SELECT count(*) FROM pg_publication)`,
		b.slotName()); n != 0 {
		t.Errorf("%d things are left", n)
	}
	if lines, err := b.Describe(t.Context()); err != nil || len(lines) != 0 {
		t.Errorf("it would still drop %q, error %v", lines, err)
	}
}

// A pooler lets no replication connection through, and the check says so, whatever else is wrong.
// case C050.
func (s ownServer) poolers(t *testing.T) {
	db := s.Database()
	conn := pgtest.Conn(t, db)
	role := pipelineName()
	sqlAll(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`, `CREATE ROLE `+role+` LOGIN`)
	for user, status := range map[string]connector.ProbeStatus{"leat": connector.Fail, role: connector.Warn} {
		u, err := url.Parse(db)
		must(t, err)
		u.User, u.Host = url.User(user), pooler(t, u.Host)
		a := newAnchored(t, s.URL(), pipelineName(), map[string]string{"table": "a"})
		must(t, a.cfg.SetURL(u.String()))
		p := probeNamed(t, a, "replication connection")
		if p.Status != status || !strings.Contains(p.Fix, "of the server itself") {
			t.Errorf("as %s: %+v", user, p)
		}
	}
}

// pooler stands before a server as PgBouncer does: clients get its own process numbers, and no replication connection.
func pooler(t testing.TB, server string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { passOn(near, server) })
		}
	})
	t.Cleanup(func() {
		must(t, l.Close())
		work.Wait()
	})
	return l.Addr().String()
}

func passOn(near net.Conn, server string) {
	defer func() { _ = near.Close() }()
	hello, err := pgproto3.NewBackend(near, near).ReceiveStartupMessage()
	start, ok := hello.(*pgproto3.StartupMessage)
	if err != nil || !ok {
		return
	}
	if start.Parameters["replication"] != "" {
		refusal, _ := (&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: replication"}).Encode(nil)
		_, _ = near.Write(refusal)
		return
	}
	far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", server)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	raw, _ := start.Encode(nil)
	_, _ = far.Write(raw)
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	for { // until the server is ready: then all else passes as it is
		var head [5]byte
		if _, err := io.ReadFull(far, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(far, body); err != nil {
			return
		}
		if head[0] == 'K' {
			binary.BigEndian.PutUint32(body, 1<<20)
		}
		_, _ = near.Write(append(head[:], body...))
		if head[0] == 'Z' {
			break
		}
	}
	_, _ = io.Copy(near, far)
}
