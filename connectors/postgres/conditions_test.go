package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/backfill"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// A condition is one expression of the server: what is none, or more than one, is refused before anything is read, with the place and the
// dataset; subqueries, comments and functions are fine.
func TestConditions(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE t (id int PRIMARY KEY, "a b" text, n int); CREATE TABLE other (id int); INSERT INTO other VALUES (3);
		INSERT INTO t SELECT i, 'x' || i, i % 5 FROM generate_series(1, 20) i; CREATE PUBLICATION pub FOR TABLE t; CREATE SEQUENCE s`)
	s := followSource(t, db, map[string]string{"table": "t"})
	for where, want := range map[string]int{
		"n = 0":                            4,
		"n = 0 OR id = 1":                  5,
		"n = 0 -- and no more":             4,
		"n /* remainder */ = 0\n":          4,
		"id IN (SELECT id FROM other)":     1,
		`"a b" = 'x)7'`:                    0,
		`"a b" = 'x7' AND t.id > 0`:        1,
		"true":                             20,
		"NULL":                             0,
		"n = ANY (ARRAY[1, 2])":            8,
		"CASE WHEN n = 1 THEN id < 10 END": 2,
	} {
		if err := s.CheckWhere(t.Context(), "public.t", where); err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		c := readChunk(t, s, record.Chunk{Dataset: "public.t", Where: where})
		if len(c.rows) != want {
			t.Errorf("%s: %d rows, want %d", where, len(c.rows), want)
		}
	}
	for where, want := range map[string]string{
		"":                               "the condition is empty",
		"nope = 1":                       `column "nope" does not exist, SQLSTATE 42703 at character 1`,
		"n = 1 AND nope(n)":              "does not exist",
		"n":                              "must be type boolean",
		"n = ":                           "at its end",
		"n = 1; DROP TABLE t":            "syntax error",
		"n = 1) OR (true":                "syntax error",
		"n = 1] OR ARRAY[true":           "syntax error",
		"n = 1)":                         "syntax error",
		"(n = 1":                         "syntax error",
		"n = 1 /* and":                   "unterminated",
		"n = 'x":                         "unterminated",
		"n = 1 ORDER BY n":               "syntax error",
		"true, true":                     "must be type boolean",
		"n = $1":                         "there is no parameter $1",
		"count(*) > 1":                   "aggregate",
		"n = 'five'":                     "invalid input syntax",
		"id IN (SELECT id FROM nowhere)": `"nowhere" does not exist`,
	} {
		err := s.CheckWhere(t.Context(), "public.t", where)
		e, ok := errors.AsType[*connector.Error](err)
		if !ok || !strings.Contains(err.Error(), want) || e.Class != connector.ClassPermanent || e.Code != "postgres.condition" ||
			e.Dataset != "public.t" || e.Hint == "" {
			t.Errorf("%q: %v, want %q (%+v)", where, err, want, e)
		}
		if where == "" {
			continue
		}
		if _, read := tryChunk(t.Context(), s, record.Chunk{Dataset: "public.t", Where: where}); fmt.Sprint(read) != fmt.Sprint(err) {
			t.Errorf("%q: reading says %v, and checking %v", where, read, err)
		}
	}
	for where, want := range map[string]string{ // only the rows tell
		"1 / (id - 7) > 0":      "division by zero",
		"nextval('s') > 0":      "read-only",
		"(\"a b\")::int > 0":    "invalid input syntax",
		"n = (SELECT n FROM t)": "more than one row",
	} {
		_, err := tryChunk(t.Context(), s, record.Chunk{Dataset: "public.t", Where: where})
		if connector.ClassOf(err) != connector.ClassPermanent || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v, want %q", where, err, want)
		}
	}
	sqlExec(t, conn, `ALTER TABLE t RENAME n TO m`)
	if err := s.CheckWhere(t.Context(), "public.t", "m = 1"); err != nil {
		t.Errorf("a column that was renamed: %v", err)
	}
}

// Chunks of a condition cover all keys, and are few where few rows meet it.
func TestPlanWhere(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE t (id int PRIMARY KEY, n int, pad text); CREATE PUBLICATION pub FOR TABLE t;
		INSERT INTO t SELECT i, i, repeat('x', 100) FROM generate_series(1, 20000) i; ANALYZE t`)
	s := followSource(t, db, map[string]string{"table": "t"})
	plan := func(where string, after []byte) (chunks []record.Chunk) {
		for c, err := range s.PlanWhere(t.Context(), "public.t", where, after, 64<<10) {
			must(t, err)
			chunks = append(chunks, c)
		}
		return chunks
	}
	all, few := plan("id > 0", nil), plan("n BETWEEN 7 AND 9", nil)
	if len(all) < 20 || len(few) != 1 || few[0].From != nil || few[0].To != nil {
		t.Errorf("%d chunks of all rows; of few: %v", len(all), few)
	}
	if some := plan("id % 7 = 0 AND n > 10", nil); len(some) > 5 { // no statistics: the server takes it for a few rows
		t.Errorf("%d chunks of some rows", len(some))
	}
	if rest := plan("id > 0", all[9].To); len(rest) != len(all)-10 {
		t.Errorf("%d chunks behind the tenth of %d", len(rest), len(all))
	}
	seen := 0
	for _, c := range all {
		c.Where = "id % 2 = 0"
		seen += len(readChunk(t, s, c).rows)
	}
	if seen != 10000 {
		t.Errorf("%d rows, want 10000", seen)
	}
	for _, err := range s.PlanWhere(t.Context(), "public.t", "nope", nil, 0) {
		if connector.ClassOf(err) != connector.ClassPermanent {
			t.Errorf("%v", err)
		}
	}
}

// mirror is what a lane has: rows by key, in their text form.
type mirror map[string]string

// apply takes what is delivered. A part's rows must be what is there, but for keys in broken, which it repairs.
func (m mirror) apply(s *Source, b *record.Batch, broken map[string]bool) error {
	if b.Truncate {
		clear(m)
	}
	for i := range b.NumRows() {
		key := string(s.KeyOf(b.Schema, b.Rows, i))
		if b.KeyMoved(i) {
			delete(m, string(s.KeyOf(b.Schema, b.Old, i)))
		}
		if b.Op(i) == record.Delete {
			delete(m, key)
			continue
		}
		row := string(b.RowJSON(i))
		if b.Chunk != nil && broken != nil {
			if m[key] != row && !broken[key] {
				return fmt.Errorf("row %s was read once more, and %q is there", row, m[key])
			}
		}
		m[key] = row
	}
	return nil
}

// Parts of a table are read while many write: each row that comes once more is exactly what the lane has at that place, what was damaged is
// whole again afterwards, and nothing is missing.
//
// clauses E11, E12, case C061.
func TestPartsUnderLoad(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE t (id int, part int, v bigint, PRIMARY KEY (id, part));
		CREATE SEQUENCE s MINVALUE 100;
		INSERT INTO t SELECT i, i % 3, 0 FROM generate_series(1, 500) i`)
	s := newPipeline(t, db, map[string]string{"table": "t"}).Source
	ctx := t.Context()
	anchor, err := s.Anchor(ctx)
	must(t, err)
	datasets, err := s.Discover(ctx)
	must(t, err)
	schema := datasets[0].Schema
	must(t, s.Start(ctx, connector.SourceStart{
		From: connector.From{Origin: connector.Initialised, Position: anchor}, Guarantee: connector.AtLeastOnce,
	}))
	m, err := backfill.New(s, s.Compare, []backfill.Lane{{Name: "lane"}})
	must(t, err)
	must(t, m.Request(ctx, schema, backfill.First, "lane"))

	stop, writers := make(chan struct{}), sync.WaitGroup{}
	halt := sync.OnceFunc(func() { close(stop); writers.Wait() })
	defer halt()
	for w := range 3 {
		c, r := pgtest.Conn(t, db), rand.New(rand.NewPCG(1, uint64(w)))
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				sql := fmt.Sprintf(`UPDATE t SET v = v + 1 WHERE id = %d`, 1+r.IntN(60))
				switch r.IntN(12) {
				case 0:
					sql = fmt.Sprintf(`DELETE FROM t WHERE id = %d`, 1+r.IntN(500))
				case 1:
					sql = fmt.Sprintf(`INSERT INTO t VALUES (%d, 1, -1) ON CONFLICT DO NOTHING`, 1+r.IntN(600))
				case 2:
					sql = fmt.Sprintf(`UPDATE t SET part = nextval('s') WHERE id = %d`, 1+r.IntN(500))
				}
				if _, err := c.Exec(ctx, sql); err != nil {
					t.Errorf("%s: %v", sql, err)
					return
				}
			}
		})
	}
	f := &partsLoad{t: t, s: s, m: m, have: mirror{}, broken: map[string]bool{}}
	f.until(func() bool { return !m.Busy() })
	const rounds = 2
	parts := []backfill.Part{
		{ID: 1, Where: "id <= 60"},
		{ID: 2, Where: "part = 1 AND EXISTS (SELECT FROM t AS o WHERE o.id = t.id)"},
		{ID: 3},
		{ID: 4, Keys: []json.RawMessage{[]byte(`{"id": 7, "part": 1}`), []byte(`{"part": 77, "id": 7}`), []byte(`{"id": 900, "part": 0}`)}},
	}
	for range rounds {
		for _, p := range parts {
			p.ID += uint64(f.complete) * 10
			f.damage(schema, p)
			must(t, m.Part(ctx, schema, p, "lane"))
		}
		f.until(func() bool { return !m.Busy() })
		if len(f.broken) > 0 {
			t.Fatalf("keys stay damaged: %v", slices.Sorted(maps.Keys(f.broken)))
		}
	}
	if f.complete != rounds*len(parts) || f.again < 100 {
		t.Errorf("%d parts are complete, and %d rows came once more", f.complete, f.again)
	}
	halt()
	tip, err := s.Tip(ctx)
	must(t, err)
	f.until(func() bool { c, _ := s.Compare(f.at, tip); return c >= 0 })
	truth := mirror{}
	for _, b := range readChunk(t, s, record.Chunk{Dataset: "public.t"}).batches {
		must(t, truth.apply(s, b, nil))
	}
	if !maps.Equal(truth, f.have) {
		t.Errorf("the lane has %d rows, and the table %d; they differ", len(f.have), len(truth))
	}
}

// partsLoad reads a source as the engine does, for one lane.
type partsLoad struct {
	t        *testing.T
	s        *Source
	m        *backfill.Merge
	have     mirror
	broken   map[string]bool
	at       record.Position
	unit     bool
	complete int
	again    int
	works    []*partWork
}

type partWork struct {
	w    *backfill.Work
	rows chunkRead
}

// damage spoils what the lane has of rows that a part covers for sure.
func (f *partsLoad) damage(schema *record.Schema, p backfill.Part) {
	n := 0
	for key, row := range f.have {
		if f.broken[key] {
			continue
		}
		var id int
		var part int
		if _, err := fmt.Sscanf(row, `{"id":%d,"part":%d`, &id, &part); err != nil {
			f.t.Fatal(row, err)
		}
		covers := p.Where == "id <= 60" && id <= 60 || p.Where == "" && p.Keys == nil
		if covers && n < 10 {
			n++
			f.broken[key], f.have[key] = true, `{"damaged":true}`
		}
	}
	if p.Keys == nil {
		return
	}
	build := array.NewRecordBuilder(memory.DefaultAllocator, schema.Columns)
	must(f.t, record.ParseJSON(build.Field(0), []byte("900")))
	must(f.t, record.ParseJSON(build.Field(1), []byte("0")))
	build.Field(2).AppendNull()
	key := string(f.s.KeyOf(schema, build.NewRecordBatch(), 0))
	f.have[key], f.broken[key] = `{"phantom":true}`, true
}

// take applies deliveries.
func (f *partsLoad) take(ds ...backfill.Delivery) {
	for _, d := range ds {
		if d.Part != 0 {
			f.complete++
		}
		if d.Err != nil {
			f.t.Fatal(d.Err)
		}
		if d.Batch == nil {
			continue
		}
		if d.Batch.Schema == nil {
			continue
		}
		must(f.t, f.have.apply(f.s, d.Batch, nil))
		f.heal(d.Batch)
	}
}

// heal notes keys that got a whole row, or none.
func (f *partsLoad) heal(b *record.Batch) {
	for i := range b.NumRows() {
		delete(f.broken, string(f.s.KeyOf(b.Schema, b.Rows, i)))
		if b.KeyMoved(i) {
			delete(f.broken, string(f.s.KeyOf(b.Schema, b.Old, i)))
		}
	}
}

// until goes on until something is so.
func (f *partsLoad) until(is func() bool) {
	f.t.Helper()
	for end := time.Now().Add(40 * time.Second); !is(); {
		if time.Now().After(end) {
			f.t.Fatalf("it takes too long: %s", f.m.Ledger())
		}
		f.stream()
		if f.unit {
			continue
		}
		f.take(f.m.Turn(f.at)...)
		if w := f.m.Next(2); w != nil {
			f.begin(w)
		}
		f.hand()
	}
}

func (f *partsLoad) stream() {
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	b, err := f.s.Read(ctx, connector.Limit{Rows: 100, Bytes: 1 << 20})
	must(f.t, err)
	if b == nil {
		return
	}
	out, err := f.m.Change(ctx, b, []string{"lane"})
	must(f.t, err)
	f.take(out...)
	if f.unit = b.Position.Zero(); !f.unit {
		f.at = b.Position
	}
}

func (f *partsLoad) begin(w *backfill.Work) {
	if w.Plan {
		plan := f.s.PlanChunks(f.t.Context(), w.Dataset, w.After, 6000)
		if w.Where != "" {
			plan = f.s.PlanWhere(f.t.Context(), w.Dataset, w.Where, w.After, 6000)
		}
		for c, err := range plan {
			must(f.t, err)
			f.m.Planned(w, c.To)
			return
		}
	}
	f.works = append(f.works, &partWork{w: w, rows: readChunk(f.t, f.s, w.Chunk)})
}

// hand delivers what was read, once it is due.
func (f *partsLoad) hand() {
	f.works = slices.DeleteFunc(f.works, func(p *partWork) bool {
		if p.w.Part != 0 && !f.m.Due(p.w, p.rows.snapshot) {
			return p.w.Stale()
		}
		for _, b := range p.rows.batches {
			if p.w.Part == 0 {
				f.m.Took(p.w, b)
				f.take(backfill.Delivery{Batch: b})
				continue
			}
			rows, err := f.m.Refresh(f.t.Context(), p.w, b)
			must(f.t, err)
			if rows == nil {
				continue
			}
			f.again += rows.NumRows()
			must(f.t, f.have.apply(f.s, rows, f.broken))
			f.heal(rows)
		}
		out, err := f.m.Publish(f.t.Context(), p.w, p.rows.snapshot)
		must(f.t, err)
		f.take(out...)
		return true
	})
}
