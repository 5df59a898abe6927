package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// schemas returns the schemas of a dataset in the order in which they came, each once.
func (g *generation) schemas(dataset string) []*record.Schema {
	var out []*record.Schema
	for _, b := range g.batches {
		if b.Schema != nil && b.Schema.Dataset == dataset && (len(out) == 0 || out[len(out)-1] != b.Schema) {
			out = append(out, b.Schema)
		}
	}
	return out
}

// Columns that change within the stream: what a row has is what the table had when it was written, whatever it has now. Schemas tell what
// changed by ids that survive a rename.
// cases C037, C038.
func TestStreamColumns(t *testing.T) {
	w := newFollower(t, nil, `CREATE TABLE t (id int PRIMARY KEY, a int, b text)`, `INSERT INTO t VALUES (0, 0, '')`)
	steps := []struct {
		ddl, dml, line string
		diff           record.Difference
	}{
		{"", "INSERT INTO t VALUES (1, 10, 'x')", "id=1 a=10 b=x", record.Difference{}},
		{
			"ALTER TABLE t ADD c int DEFAULT 7", "INSERT INTO t VALUES (2, 20, 'y')", "id=2 a=20 b=y c=7",
			record.Difference{Added: []string{"c"}},
		},
		{
			"ALTER TABLE t RENAME a TO z", "INSERT INTO t VALUES (3, 30, 'y', 8)", "id=3 z=30 b=y c=8",
			record.Difference{Renamed: []record.Renamed{{From: "a", To: "z"}}},
		},
		{
			"ALTER TABLE t ALTER z TYPE bigint", "INSERT INTO t VALUES (4, 3000000000, 'y')", "id=4 z=3000000000 b=y c=7",
			record.Difference{Retyped: []string{"z"}},
		},
		{"ALTER TABLE t DROP b", "UPDATE t SET c = 9 WHERE id = 4", "id=4 z=3000000000 c=9", record.Difference{Dropped: []string{"b"}}},
		{
			"ALTER TABLE t ADD b timestamptz DEFAULT '2024-02-03 04:05:06+00'", "DELETE FROM t WHERE id = 0; INSERT INTO t VALUES (5)",
			"id=5 z=null c=7 b=2024-02-03T04:05:06Z",
			record.Difference{Added: []string{"b"}},
		},
	}
	for _, live := range []bool{true, false} {
		t.Run(fmt.Sprintf("live %t", live), func(t *testing.T) {
			g := w.start(t, record.Position{}, nil)
			var want []string
			for _, s := range steps {
				for sql := range strings.SplitSeq(s.ddl+";"+s.dml, ";") {
					if live && sql != "" {
						must(t, w.conn, sql)
					}
				}
				op := "insert "
				if strings.HasPrefix(s.dml, "UPDATE") {
					op = "update "
				}
				if strings.HasPrefix(s.dml, "DELETE") {
					want = append(want, "public.t delete id=0")
				}
				want = append(want, "public.t "+op+s.line)
				if live {
					g.follows(t, want...)
				}
			}
			g.follows(t, want...)
			found := g.schemas("public.t")
			if len(found) != len(steps) {
				t.Fatalf("%d schemas came, want %d", len(found), len(steps))
			}
			for i, s := range steps[1:] {
				if diff := cmp.Diff(s.diff, record.Diff(found[i], found[i+1])); diff != "" {
					t.Errorf("%s (-want +got):\n%s", s.ddl, diff)
				}
				if found[i+1].Version <= found[i].Version {
					t.Errorf("%s: version %d comes behind %d", s.ddl, found[i+1].Version, found[i].Version)
				}
			}
			missing := map[string]string{}
			for _, s := range found {
				for _, f := range s.Columns.Fields() {
					if v, ok := record.MissingOf(f); ok && (f.Name != "b" || f.Type.ID() != found[0].Columns.Field(2).Type.ID()) {
						missing[f.Name] = v
					}
				}
			}
			if live {
				if diff := cmp.Diff(map[string]string{"c": "7", "b": "2024-02-03T04:05:06Z"}, missing); diff != "" {
					t.Errorf("values of older rows (-want +got):\n%s", diff)
				}
			}
			closeSource(t, g.src)
		})
	}
}

// Partitions come as their root, those that are made later too, and a row that moves between them.
// case C035.
func TestStreamPartitions(t *testing.T) {
	w := newFollower(t, nil, `CREATE TABLE ev (id int, day date, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)`,
		`CREATE TABLE ev_1 PARTITION OF ev FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')`,
		`CREATE TABLE ev_2 (v text, dropped int, day date NOT NULL, id int NOT NULL)`, `ALTER TABLE ev_2 DROP dropped`,
		`ALTER TABLE ev ATTACH PARTITION ev_2 FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')`)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `INSERT INTO ev VALUES (1, '2024-01-05', 'a'), (2, '2024-02-05', 'b')`,
		`CREATE TABLE ev_3 PARTITION OF ev FOR VALUES FROM ('2024-03-01') TO ('2024-04-01')`,
		`INSERT INTO ev VALUES (3, '2024-03-05', 'c')`, `UPDATE ev SET day = '2024-03-06' WHERE id = 1`, `DELETE FROM ev WHERE id = 2`,
		`ALTER TABLE ev DETACH PARTITION ev_3`, `TRUNCATE ev`, `INSERT INTO ev VALUES (4, '2024-01-07', 'd')`)
	g.follows(t,
		"public.ev insert id=1 day=2024-01-05 v=a",
		"public.ev insert id=2 day=2024-02-05 v=b",
		"public.ev insert id=3 day=2024-03-05 v=c",
		"public.ev delete id=1 day=2024-01-05",
		"public.ev insert id=1 day=2024-03-06 v=a",
		"public.ev delete id=2 day=2024-02-05",
		"public.ev truncate",
		"public.ev insert id=4 day=2024-01-07 v=d",
	)
}

// A publication of an administrator that sends partitions under their own names is no use: the error says what to type.
// case C035.
func TestStreamPartitionsByTheirNames(t *testing.T) {
	w := newFollower(t, map[string]string{"table": "ev"}, `CREATE TABLE ev (id int PRIMARY KEY) PARTITION BY RANGE (id)`,
		`CREATE TABLE ev_1 PARTITION OF ev FOR VALUES FROM (0) TO (10)`)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `ALTER PUBLICATION `+w.slot+` SET (publish_via_partition_root = false)`, `INSERT INTO ev VALUES (1)`)
	err := g.fails(t)
	if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(connector.HintOf(err), "publish_via_partition_root = true") {
		t.Errorf("the error is %v (%s)", err, connector.HintOf(err))
	}
}

// A table that the selection means joins while the stream runs: an empty batch with its columns says so, in front of its changes.
func TestStreamJoins(t *testing.T) {
	w := newFollower(t, map[string]string{"tables": "t*", "refresh": "50ms"}, `CREATE TABLE t (id int PRIMARY KEY)`)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `CREATE TABLE t2 (id int PRIMARY KEY, v text)`, `CREATE TABLE other (id int PRIMARY KEY)`, `INSERT INTO t VALUES (1)`)
	for end := time.Now().Add(streamPatience); len(g.schemas("public.t2")) == 0; {
		if b, err := g.next(t, time.Until(end)); err != nil || b == nil {
			t.Fatalf("it does not join: %v", err)
		}
	}
	must(t, w.conn, `INSERT INTO t2 VALUES (1, 'a')`, `INSERT INTO other VALUES (1)`)
	g.until(t, 2)
	if diff := cmp.Diff(map[string][]string{"public.t": {"public.t insert id=1"}, "public.t2": {"public.t2 insert id=1 v=a"}},
		byDataset(g.lines)); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
	first := slices.IndexFunc(g.batches, func(b *record.Batch) bool { return b.Schema != nil && b.Schema.Dataset == "public.t2" })
	if b := g.batches[first]; b.NumRows() > 0 || b.Position.Zero() {
		t.Errorf("it joins with %d rows at %s", b.NumRows(), b.Position)
	}
	g.quiet(t)
}

// A publication of all tables has new ones by itself: what the selection means joins with its first change, the rest costs nothing.
func TestStreamJoinsByItself(t *testing.T) {
	w := newFollower(t, map[string]string{"tables": "t*", "refresh": "0"}, `CREATE TABLE t (id int PRIMARY KEY)`)
	must(t, w.conn, `CREATE PUBLICATION all_`+w.slot+` FOR ALL TABLES`)
	w.options["publication"] = "all_" + w.slot
	w.anchored(t)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `CREATE TABLE t2 (id int PRIMARY KEY)`, `CREATE TABLE other (id int PRIMARY KEY)`, `BEGIN`, `INSERT INTO t VALUES (1)`,
		`INSERT INTO other VALUES (1)`, `INSERT INTO t2 VALUES (1)`, `COMMIT`)
	g.until(t, 2)
	if diff := cmp.Diff([]string{"public.t insert id=1", "public.t2 insert id=1"}, g.lines); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
	first := slices.IndexFunc(g.batches, func(b *record.Batch) bool { return b.Schema != nil && b.Schema.Dataset == "public.t2" })
	if b := g.batches[first]; b.NumRows() > 0 {
		t.Errorf("its first batch has %d rows", b.NumRows())
	}
}

// Both phases have the same columns, types and values, in both forms that values may come in; generated columns are in both or in
// neither.
// cases C001, C002, C031.
func TestStreamParity(t *testing.T) {
	w := newFollower(t, nil, `CREATE EXTENSION IF NOT EXISTS hstore`, `CREATE TYPE mood AS ENUM ('sad', 'glad')`, `CREATE DOMAIN price AS numeric(6,2)`,
		`CREATE TABLE exact (id int PRIMARY KEY, i8 bigint, f float8, n numeric, d numeric(38,10), s text, c char(5), by bytea, u uuid, j json,
			jb jsonb, dt date, ti time, ts timestamp, tz timestamptz, iv interval, b bool, m mood, p price, ia int[], ta text[], ip inet,
			q int, total int GENERATED ALWAYS AS (q * 2) STORED)`,
		`CREATE TABLE texts (id int PRIMARY KEY, h hstore, r int4range, t timetz, x xml, v tsvector, pt point)`)
	must(t, w.conn, `INSERT INTO exact VALUES (1, -9223372036854775808, 'NaN', 'Infinity', 1234567890123456789.0123456789, E'a\nb', 'ab',
			'\x00ff', '01234567-89ab-cdef-0123-456789abcdef', '{ "a":1}', '{"b":1,"a":1.0}', '0044-03-15 BC', '24:00:00', 'infinity',
			'2024-06-01 12:00:00.123456+02', '1 year -2 days 03:04:05.6', true, 'glad', 1.5, '{1,NULL,3}', '[0:1]={"a,b","c\"d"}', '10.0.0.0/8', 4),
		(2, NULL, '-0', 0.00000000000000000000000417, NULL, '', '', '', NULL, 'null', 'null', 'infinity', '00:00', '294276-12-31', '-infinity',
			'0', false, 'sad', NULL, '{}', NULL, '::1', NULL)`,
		`INSERT INTO texts VALUES (1, 'a=>1', '[1,5)', '12:00+02', '<a/>', 'a:1 b:2', '(1,2)')`)
	for name, options := range map[string]map[string]string{
		"binary": {"tables": "exact", "binary": "on"}, "text": {"binary": "off"}, "auto": nil, "auto binary": {"tables": "exact"},
		"read otherwise": {"table": "exact", "columns": "d,u,ts,id", "types": "d:text,ts:text"},
	} {
		t.Run(name, func(t *testing.T) {
			g := w.start(t, record.Position{}, options)
			var want []string
			schemas := map[string]*record.Schema{}
			for _, dataset := range []string{"public.exact", "public.texts"} {
				if (options["tables"] != "" || options["table"] != "") && dataset == "public.texts" {
					continue
				}
				for _, b := range snapshotOf(t, g.src, dataset) {
					want = append(want, changeLines(b)...)
					schemas[dataset] = b.Schema
				}
			}
			got := g.until(t, len(want))
			if diff := cmp.Diff(byDataset(want), byDataset(got)); diff != "" {
				t.Errorf("snapshot and changes differ (-snapshot +changes):\n%s", diff)
			}
			for dataset, s := range schemas {
				if found := g.schemas(dataset); len(found) != 1 || found[0] != s {
					t.Errorf("%s: the changes have another schema than the snapshot", dataset)
				}
			}
		})
	}
}

// snapshotOf reads a dataset by its chunks.
func snapshotOf(t testing.TB, src connector.Source, dataset string) (out []*record.Batch) {
	t.Helper()
	s, ok := connector.As[connector.Snapshotter](src)
	if !ok {
		t.Fatal("the source has no snapshots")
	}
	for c, err := range s.PlanChunks(t.Context(), dataset, nil, 1<<20) {
		if err == nil {
			err = s.ReadChunk(t.Context(), c, func(b *record.Batch) error {
				out = append(out, b)
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// A label that an enum got while the stream runs comes with a schema that has it, although the server does not announce it.
// case C027.
func TestStreamNewLabel(t *testing.T) {
	w := newFollower(t, nil, `CREATE TYPE mood AS ENUM ('sad', 'glad')`, `CREATE TABLE t (id int PRIMARY KEY, m mood)`)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `INSERT INTO t VALUES (1, 'sad')`, `ALTER TYPE mood ADD VALUE 'new' BEFORE 'glad'`, `INSERT INTO t VALUES (2, 'new'), (3, 'sad')`)
	g.follows(t, "public.t insert id=1 m=sad", "public.t insert id=2 m=new", "public.t insert id=3 m=sad")
	found := g.schemas("public.t")
	last, err := record.TypeOf(found[len(found)-1].Columns.Field(1).Type)
	if err != nil || len(found) != 2 || !slices.Equal(last.Labels, []string{"sad", "new", "glad"}) {
		t.Errorf("%d schemas came, the last one with %v, %v", len(found), last.Labels, err)
	}
}

// A table that gets a name that the selection does not mean would be lost without a word.
func TestStreamRenamedTable(t *testing.T) {
	w := newFollower(t, map[string]string{"table": "t"}, `CREATE TABLE t (id int PRIMARY KEY)`)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `INSERT INTO t VALUES (1)`, `ALTER TABLE t RENAME TO other`, `INSERT INTO other VALUES (2)`)
	g.until(t, 1)
	err := g.fails(t)
	if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(err.Error(), "public.other") {
		t.Errorf("the error is %v", err)
	}
}

// A column with a default that was added to a partitioned table tells what older rows have.
// case C037.
func TestStreamColumnOfPartitions(t *testing.T) {
	w := newFollower(t, nil, `CREATE TABLE ev (id int PRIMARY KEY) PARTITION BY RANGE (id)`,
		`CREATE TABLE ev_1 PARTITION OF ev FOR VALUES FROM (0) TO (10)`, `INSERT INTO ev VALUES (1)`)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `INSERT INTO ev VALUES (2)`, `ALTER TABLE ev ADD c int DEFAULT 7`, `INSERT INTO ev VALUES (3)`)
	g.follows(t, "public.ev insert id=2", "public.ev insert id=3 c=7")
	found := g.schemas("public.ev")
	if v, ok := record.MissingOf(found[len(found)-1].Columns.Field(1)); !ok || v != "7" {
		t.Errorf("older rows have %q, %t", v, ok)
	}
}

// A column that has no binary form that is known here makes a stream of binary values start once more, in text.
func TestStreamTurnsToText(t *testing.T) {
	w := newFollower(t, nil, `CREATE TABLE t (id int PRIMARY KEY)`)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `INSERT INTO t VALUES (1)`, `ALTER TABLE t ADD r int4range`, `INSERT INTO t VALUES (2, '[1,5)')`)
	g.until(t, 1)
	if err := g.fails(t); connector.ClassOf(err) != connector.ClassTransient {
		t.Fatalf("the error is %v", err)
	}
	closeSource(t, g.src)
	g = w.start(t, g.marks[len(g.marks)-1].position, nil)
	g.follows(t, "public.t insert id=2 r=[1,5)")
}
