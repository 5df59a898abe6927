package connectortest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// refDB is a target that a plain sink writes to, row by row.
type refDB struct{ tables map[string]*refTable }

type refTable struct {
	ids  map[string]string // of columns, by name
	rows []map[string]string
}

func (db *refDB) clone() *refDB {
	out := &refDB{tables: map[string]*refTable{}}
	for name, t := range db.tables {
		c := &refTable{ids: maps.Clone(t.ids)}
		for _, r := range t.rows {
			c.rows = append(c.rows, maps.Clone(r))
		}
		out.tables[name] = c
	}
	return out
}

// refConfig is a correct sink of changes, unless fault names what it does wrong.
type refConfig struct {
	db    **refDB
	fault string
}

func (c *refConfig) Contract() (connector.SinkContract, error) {
	return connector.SinkContract{
		Modes: []connector.WriteMode{connector.Upsert}, Input: connector.Changelog, Atomicity: connector.PositionInTransaction,
		Durable: true, NeedsKey: true, Keyless: true,
	}, nil
}
func (c *refConfig) Identity() map[string]string { return nil }
func (c *refConfig) Open(connector.Env) (connector.Sink, error) {
	return &refSink{refConfig: c, tx: (*c.db).clone()}, nil
}

type refSink struct {
	*refConfig
	tx *refDB
}

func (s *refSink) Start(context.Context, connector.SinkStart) error { return nil }
func (s *refSink) Flush(context.Context) error                      { return errors.New("not asked for") }
func (s *refSink) Close(context.Context) error                      { return nil }
func (s *refSink) RejectsRows()                                     {}
func (s *refSink) Commit(context.Context, record.Progress) error {
	*s.db = s.tx.clone()
	return nil
}

func (s *refSink) Committed(context.Context) (record.Progress, bool, error) {
	return record.Progress{}, false, nil
}

func (s *refSink) table(schema *record.Schema) *refTable {
	t := s.tx.tables[schema.Dataset]
	if t == nil {
		t = &refTable{ids: map[string]string{}}
		s.tx.tables[schema.Dataset] = t
		for _, f := range schema.Columns.Fields() {
			t.ids[f.Name] = record.IDOf(f)
		}
	}
	return t
}

// Evolve knows the ids of its columns, so that it is idempotent whatever is asked.
func (s *refSink) Evolve(_ context.Context, from, to *record.Schema) error {
	t := s.table(to)
	was := &record.Schema{}
	var fields []arrow.Field
	for name, id := range t.ids {
		fields = append(fields, record.WithID(arrow.Field{Name: name, Type: arrow.Null}, id))
	}
	was.Columns = arrow.NewSchema(fields, nil)
	d := record.Diff(was, to)
	if from == nil {
		d.Dropped = nil
	}
	if s.fault == "a name that comes again is the old column" {
		d.Added = slices.DeleteFunc(d.Added, func(name string) bool { return t.ids[name] != "" })
		d.Dropped = nil
	}
	if s.fault == "renames are additions" {
		for _, r := range d.Renamed {
			d.Added = append(d.Added, r.To)
		}
		d.Renamed = nil
	}
	if s.fault == "columns are added again" && from != nil {
		d.Added = to.Names()
	}
	for i := range t.rows {
		t.rows[i] = s.evolved(t.rows[i], d, to)
	}
	for _, name := range d.Dropped {
		delete(t.ids, name)
	}
	for _, r := range d.Renamed {
		delete(t.ids, r.From)
	}
	for _, f := range to.Columns.Fields() {
		t.ids[f.Name] = record.IDOf(f)
	}
	return nil
}

func (s *refSink) evolved(r map[string]string, d record.Difference, to *record.Schema) map[string]string {
	out := maps.Clone(r)
	for _, name := range d.Dropped {
		delete(out, name)
	}
	for _, n := range d.Renamed {
		delete(out, n.From)
	}
	for _, n := range d.Renamed {
		out[n.To] = r[n.From]
	}
	for _, name := range d.Added {
		f := to.Columns.Field(to.Column(name))
		out[name] = "null"
		if text, ok := record.MissingOf(f); ok && s.fault != "older rows have nothing" {
			b := array.NewBuilder(memory.DefaultAllocator, f.Type)
			if err := record.ParseText(b, text); err != nil {
				panic(err)
			}
			out[name] = string(record.AppendJSON(nil, b.NewArray(), 0))
		}
	}
	return out
}

func (s *refSink) Write(_ context.Context, b *record.Batch) error {
	t := s.table(b.Schema)
	if b.Truncate && s.fault != "truncates are ignored" {
		t.rows = nil
	}
	refused := &connector.RowErrors{}
	for i := range b.NumRows() {
		if column, why := s.change(t, b, i); why != "" {
			refused.Rows = append(refused.Rows, connector.RowError{Index: i, Reject: record.Reject{
				Dataset: b.Schema.Dataset, Key: b.KeyJSON(i), Column: column, Class: "refused_by_sink", Message: why, Raw: b.RowJSON(i),
			}})
		}
	}
	if len(refused.Rows) > 0 {
		return refused
	}
	return nil
}

// change makes the change of row i; it returns why it can't, and of which column.
func (s *refSink) change(t *refTable, b *record.Batch, i int) (column, why string) {
	before := b.Rows
	if b.Old != nil && b.Op(i) != record.Delete && s.fault != "old keys are ignored" {
		before = b.Old
	}
	at := -1
	switch b.Op(i) {
	case record.Update, record.Delete:
		at = s.find(t, b, before, i)
	case record.Upsert:
		at = s.find(t, b, b.Rows, i)
	case record.Insert:
	}
	if len(b.Schema.Key) == 0 && at < 0 && b.Op(i) != record.Insert && s.fault != "missing rows are ignored" {
		return "", "no row is equal to the image before"
	}
	if b.Op(i) == record.Delete {
		if at >= 0 && s.fault != "deletes are ignored" {
			t.rows = slices.Delete(t.rows, at, at+1)
			if s.fault == "equal rows go together" {
				t.rows = slices.DeleteFunc(t.rows, func(r map[string]string) bool { return s.equal(r, b.Schema, b.Rows, i) })
			}
		}
		return "", ""
	}
	r := map[string]string{}
	if at >= 0 && (s.fault != "moved rows are new" || s.sameKey(t.rows[at], b, i)) {
		r = maps.Clone(t.rows[at])
	}
	for c, f := range b.Schema.Columns.Fields() {
		unsent := b.IsUnchanged(c, i) && s.fault != "unsent is null"
		switch {
		case unsent && b.Old != nil && !b.Old.Column(c).IsNull(i) && s.fault != "images complete nothing":
			r[f.Name] = doc(b.Old.Column(c), i)
		case unsent && at < 0:
			return f.Name, "the target lacks the row"
		case !unsent:
			r[f.Name] = doc(b.Rows.Column(c), i)
		}
	}
	for name := range t.ids {
		if _, ok := r[name]; !ok {
			r[name] = "null"
		}
	}
	if at >= 0 {
		t.rows[at] = r
		return "", ""
	}
	t.rows = append(t.rows, r)
	return "", ""
}

func doc(arr arrow.Array, i int) string { return string(record.AppendJSON(nil, arr, i)) }

func (s *refSink) sameKey(r map[string]string, b *record.Batch, i int) bool {
	return !slices.ContainsFunc(b.Schema.Key, func(k int) bool { return r[b.Rows.ColumnName(k)] != doc(b.Rows.Column(k), i) })
}

func (s *refSink) equal(r map[string]string, schema *record.Schema, rb arrow.RecordBatch, i int) bool {
	for c, f := range schema.Columns.Fields() {
		if r[f.Name] != doc(rb.Column(c), i) {
			return false
		}
	}
	return true
}

// find returns the row that the image means: the one that is equal in all columns, or the first one of its key.
func (s *refSink) find(t *refTable, b *record.Batch, image arrow.RecordBatch, i int) int {
	key := b.Schema.Key
	if len(key) > 0 && image.Column(key[0]).IsNull(i) {
		image = b.Rows
	}
	whole := slices.IndexFunc(t.rows, func(r map[string]string) bool { return s.equal(r, b.Schema, image, i) })
	if whole >= 0 && s.fault != "the first of two rows" || len(key) == 0 {
		return whole
	}
	return slices.IndexFunc(t.rows, func(r map[string]string) bool {
		return !slices.ContainsFunc(key, func(k int) bool { return r[image.ColumnName(k)] != doc(image.Column(k), i) })
	})
}

func refCase(fault string) SinkCase {
	return SinkCase{New: func(testing.TB) Target {
		db := &refDB{tables: map[string]*refTable{}}
		return Target{
			Config: func() connector.SinkConfig { return &refConfig{db: &db, fault: fault} },
			Read: func(_ testing.TB, s *record.Schema) ([]string, bool) {
				t := db.tables[s.Dataset]
				if t == nil {
					return nil, false
				}
				out := make([]string, len(t.rows))
				for i, r := range t.rows {
					parts := make([]string, s.Columns.NumFields())
					for c, name := range s.Names() {
						parts[c] = fmt.Sprintf("%q:%s", name, r[name])
					}
					out[i] = "{" + strings.Join(parts, ",") + "}"
				}
				return out, true
			},
		}
	}}
}

// A correct sink passes the whole suite.
func TestChangeStreamAcceptsACorrectSink(t *testing.T) { ChangeStream(t, refCase("")) }

// Each fault is caught, by the sub-test that is meant to, and by the random one but where it does not do that.
func TestChangeStreamCatches(t *testing.T) {
	for fault, by := range map[string]string{
		"unsent is null":                            "Unsent",
		"images complete nothing":                   "FullImages",
		"old keys are ignored":                      "MovedKeys",
		"moved rows are new":                        "MovedKeys",
		"the first of two rows":                     "SwappedKeys",
		"deletes are ignored":                       "Reinserted",
		"truncates are ignored":                     "Truncate",
		"missing rows are ignored":                  "Keyless",
		"equal rows go together":                    "Keyless",
		"older rows have nothing":                   "Added",
		"columns are added again":                   "Added",
		"renames are additions":                     "Renamed",
		"a name that comes again is the old column": "Dropped",
	} {
		t.Run(fault, func(t *testing.T) {
			failures := recordFailures(t, func(t testing.TB) { changeStream(t, refCase(fault)) })
			random := fault == "missing rows are ignored" || fault == "images complete nothing" || fault == "the first of two rows"
			named := false
			for _, f := range failures {
				named = named || strings.HasPrefix(f, by)
				random = random || strings.HasPrefix(f, "Random")
			}
			if !named || !random {
				t.Errorf("no failure in %s and Random; the failures are %.2000q", by, failures)
			}
		})
	}
}
