package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// target is the table that a dataset is written to.
type target struct {
	table    string // the final name
	physical string // where rows go: the table itself, or its stage
	schema   *record.Schema
	cols     []targetColumn
	given    []int    // columns of the batch that are written
	rest     []string // columns of the table that the batch does not have
	key      []int    // columns of the batch
	unique   bool     // an index makes the key unique: ON CONFLICT works
	commute  bool     // changes of different keys may be applied in any order
	rowID    string   // a name of the row id; empty: there is none
	mode     connector.WriteMode
	sql      statements

	parked  map[string][]*parked // by key: rows that wait for it, oldest first
	txn     record.Position      // whose rows were applied last
	evolved *record.Schema       // what Evolve brought the table to last
}

// targetColumn is one column of a batch.
type targetColumn struct {
	name  string // as the table has it
	how   storage
	skip  bool // computed by the table
	isKey bool
}

// target returns the table of a batch's dataset, and makes it on first use.
func (s *sink) target(schema *record.Schema) (*target, error) {
	t, ok := s.targets[schema.Dataset]
	if ok && t.schema == schema {
		return t, nil
	}
	name, err := s.claim(schema.Dataset)
	if err != nil {
		return nil, err
	}
	if !ok {
		t = &target{table: name, physical: name, mode: s.start.Mode, parked: map[string][]*parked{}}
		if s.start.Mode == connector.Replace {
			if t.physical, err = s.stage(name); err != nil {
				return nil, err
			}
		}
	}
	o, exists, err := s.db.describe(t.physical)
	if err != nil {
		return nil, err
	}
	if !exists {
		if err := s.create(t.physical, schema); err != nil {
			return nil, err
		}
		if o, _, err = s.db.describe(t.physical); err != nil {
			return nil, err
		}
	}
	held, err := s.held(o)
	if err != nil {
		return nil, err
	}
	if s.follows(o, held, schema) { // what was changed for it before was rolled back
		if err := t.settle(s.db); err != nil {
			return nil, err
		}
		if err := s.alter(o, nil, schema); err != nil {
			return nil, err
		}
		if o, _, err = s.db.describe(t.physical); err != nil {
			return nil, err
		}
		if held, err = s.held(o); err != nil {
			return nil, err
		}
	}
	if err := s.fit(t, o, held, schema); err != nil {
		return nil, err
	}
	if err := s.noteColumns(t, o, held); err != nil {
		return nil, err
	}
	s.targets[schema.Dataset] = t
	return t, nil
}

// claim gives a dataset its table; two datasets never share one. SQLite's names ignore case.
func (s *sink) claim(dataset string) (string, error) {
	name := s.tableName(dataset)
	low := strings.ToLower(name)
	e := configError("sqlite.name", "choosing a table", nil)
	e.Dataset = dataset
	if strings.HasPrefix(low, "sqlite_") || strings.HasPrefix(low, "_leat_") || name == "" {
		e.Err, e.Hint = fmt.Errorf("the name %q is reserved", name), "choose another one with table=NAME"
		return "", e
	}
	if s.owners == nil {
		s.owners = map[string]string{}
	}
	if other, taken := s.owners[low]; taken && other != dataset {
		e.Err = fmt.Errorf("it would be written to table %q, as dataset %s is (SQLite ignores case)", name, other)
		e.Hint = "names=full keeps schemas apart; rename one of the datasets where only case differs"
		return "", e
	}
	s.owners[low] = dataset
	return name, nil
}

// create makes the table with exact types.
func (s *sink) create(name string, schema *record.Schema) error {
	defs := make([]string, 0, schema.Columns.NumFields()+1)
	rowIDKey := len(schema.Key) == 1
	for i, f := range schema.Columns.Fields() {
		typ, err := record.TypeOf(f.Type)
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		declared := declare(typ, record.NativeOf(f))
		isKey := slices.Contains(schema.Key, i)
		def := sqlgen.Ident(f.Name) + " " + declared
		missing, err := s.missing(f, typ, declared)
		if err != nil {
			return fmt.Errorf("column %q, the value of older rows: %w", f.Name, err)
		}
		if missing != nil && !isKey { // for rows that come late
			if text, ok := missing.literal(); ok {
				def += " DEFAULT " + text
			}
		}
		switch {
		case isKey && rowIDKey && declared == "INTEGER":
			def += " PRIMARY KEY NOT NULL"
		case isKey:
			def += " NOT NULL"
			rowIDKey = false
		}
		defs = append(defs, def)
	}
	if len(schema.Key) > 0 && !rowIDKey {
		defs = append(defs, "PRIMARY KEY ("+sqlgen.Idents(schema.KeyNames())+")")
	}
	return s.db.exec("CREATE TABLE " + ident(name) + " (\n\t" + strings.Join(defs, ",\n\t") + "\n)")
}

// fit checks an existing table against a schema and says how each column is bound.
func (s *sink) fit(t *target, o *object, held []sqlgen.Held, schema *record.Schema) error {
	e := configError("sqlite.columns", "matching columns", nil)
	e.Dataset = schema.Dataset
	if o.kind != "table" {
		e.Err, e.Hint = fmt.Errorf("%q is a %s", o.name, o.kind), "choose another table with table=NAME"
		return e
	}
	var missing []string
	cols := make([]targetColumn, schema.Columns.NumFields())
	for i, f := range schema.Columns.Fields() {
		c, ok := columnFor(o, held, f)
		if !ok {
			missing = append(missing, f.Name)
			continue
		}
		typ, err := record.TypeOf(f.Type)
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		_, how := mapColumn(f.Name, typ, c.declared)
		cols[i] = targetColumn{name: c.name, how: how, skip: c.generated, isKey: slices.Contains(schema.Key, i)}
	}
	if len(missing) > 0 {
		e.Err = fmt.Errorf("table %q has no column %s", o.name, quoted(missing))
		e.Hint = "add them, leave them out with --columns, or write to another table with table=NAME"
		return e
	}
	if demanded := demanded(o, cols); len(demanded) > 0 {
		e.Err = fmt.Errorf("table %q demands a value for column %s, which the dataset does not have", o.name, quoted(demanded))
		e.Hint = "give these columns a default, or write to another table with table=NAME"
		return e
	}
	t.schema, t.cols, t.key, t.rowID = schema, cols, schema.Key, o.rowID
	t.given, t.rest = nil, nil
	for i, c := range cols {
		if !c.skip {
			t.given = append(t.given, i)
		}
	}
	for _, c := range o.columns {
		if !c.generated && !slices.ContainsFunc(cols, func(k targetColumn) bool { return k.name == c.name }) {
			t.rest = append(t.rest, c.name)
		}
	}
	var err error
	key := t.names(t.key)
	if t.unique, err = s.db.isUnique(o, key); err != nil {
		return err
	}
	if t.commute, err = s.db.commutes(o, t); err != nil {
		return err
	}
	t.sql = t.statements()
	if s.start.Mode == connector.Upsert && len(schema.Key) > 0 && !t.unique {
		e.Code = "sqlite.key"
		e.Err = fmt.Errorf("nothing makes the key (%s) of table %q unique", strings.Join(key, ", "), o.name)
		e.Hint = "CREATE UNIQUE INDEX " + sqlgen.Ident(o.name+"_key") + " ON " + sqlgen.Ident(o.name) + " (" + sqlgen.Idents(key) + ")"
		return e
	}
	return nil
}

func quoted(names []string) string {
	return sqlgen.Join(names, ", ", func(n string) string { return fmt.Sprintf("%q", n) })
}

// demanded lists columns that must have a value and get none.
func demanded(o *object, cols []targetColumn) []string {
	var out []string
	for _, c := range o.columns {
		given := slices.ContainsFunc(cols, func(t targetColumn) bool { return t.name == c.name })
		rowID := o.keyIsRowID && strings.EqualFold(o.key[0].column, c.name)
		if c.notNull && !given && !c.fallback && !c.generated && !rowID {
			out = append(out, c.name)
		}
	}
	return out
}

// commutes reports whether changes of different keys of a table can't get in each other's way: nothing but the key is unique, and
// no trigger sees the order.
func (d *db) commutes(o *object, t *target) (bool, error) {
	triggers, err := d.exists(`SELECT 1 FROM main.sqlite_schema WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE`, o.name)
	if err != nil || triggers {
		return false, err
	}
	unique, rowID := int64(0), int64(0)
	if t.unique {
		unique = 1
	}
	if o.keyIsRowID {
		rowID = 1
	}
	count := int64(0)
	err = d.each(`SELECT count(*) FROM pragma_index_list(?) WHERE "unique" = 1`, func(st *sqlite.Stmt) error {
		count = st.ColumnInt64(0)
		return nil
	}, o.name)
	return count+rowID == unique, err
}

// isUnique reports whether an index, or the row id, makes exactly these columns unique.
func (d *db) isUnique(o *object, key []string) (bool, error) {
	if len(key) == 0 {
		return false, nil
	}
	if o.keyIsRowID && len(key) == 1 && strings.EqualFold(o.key[0].column, key[0]) {
		return true, nil
	}
	indexes := map[string][]string{}
	err := d.each(`SELECT l.name, x.name FROM pragma_index_list(?) AS l, pragma_index_xinfo(l.name) AS x
		WHERE l."unique" = 1 AND l.partial = 0 AND x.key = 1`, func(st *sqlite.Stmt) error {
		indexes[st.ColumnText(0)] = append(indexes[st.ColumnText(0)], strings.ToLower(st.ColumnText(1)))
		return nil
	}, o.name)
	want := make([]string, len(key))
	for i, k := range key {
		want[i] = strings.ToLower(k)
	}
	slices.Sort(want)
	for _, cols := range indexes {
		slices.Sort(cols)
		if slices.Equal(cols, want) {
			return true, err
		}
	}
	return false, err
}

// Map implements connector.Mapper: it looks at the file, if there is one, and changes nothing.
func (s *sink) Map(ctx context.Context, schema *record.Schema) ([]connector.Mapping, error) {
	if s.closed {
		return nil, errors.New("the sink is closed")
	}
	name, err := s.claim(schema.Dataset)
	if err != nil {
		return nil, err
	}
	o, held, err := s.peek(ctx, name)
	if err != nil {
		return nil, wrap(ctx, "looking at "+s.cfg.Path, err)
	}
	out := make([]connector.Mapping, schema.Columns.NumFields())
	for i, f := range schema.Columns.Fields() {
		typ, err := record.TypeOf(f.Type)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		declared := declare(typ, record.NativeOf(f))
		if o != nil {
			c, ok := columnFor(o, held, f)
			if ok && c.generated {
				out[i] = connector.Mapping{Column: f.Name, Why: "the table computes it"}
				continue
			}
			ours := slices.ContainsFunc(held, func(h sqlgen.Held) bool { return h.Name == c.name && h.ID != "" })
			if ok && !ours { // a column of ours is changed where its type is another one, see Evolve
				declared = c.declared
			}
		}
		out[i], _ = mapColumn(f.Name, typ, declared)
		if out[i].Native == "" {
			out[i].Native = "ANY" // a column without a type
		}
	}
	return out, nil
}

// peek describes the table that rows would be added to, with the ids of its columns; nil: it would be made. A file that a crash left in
// the middle of a transaction can only be read once that is rolled back, as it would be by anyone who writes.
func (s *sink) peek(ctx context.Context, name string) (*object, []sqlgen.Held, error) {
	if s.started && s.start.Mode == connector.Replace {
		return nil, nil, nil
	}
	if s.db == nil {
		if _, err := os.Stat(s.cfg.Path); err != nil {
			return nil, nil, nil //nolint:nilerr // Start makes the file, or says why not
		}
		if err := s.lookThrough(sqlite.OpenReadOnly); err != nil {
			return nil, nil, err
		}
	}
	o, held, err := s.seen(ctx, name)
	if err == nil || s.started || sqlite.ErrCode(err).ToPrimary() != sqlite.ResultReadOnly {
		return o, held, err
	}
	if err := s.lookThrough(sqlite.OpenReadWrite); err != nil {
		return nil, nil, err
	}
	return s.seen(ctx, name)
}

// lookThrough opens the file to be looked at.
func (s *sink) lookThrough(flags sqlite.OpenFlags) error {
	if err := s.db.close(); err != nil {
		return err
	}
	s.db = nil
	d, err := openDB(s.cfg.Path, flags, s.cfg.BusyTimeout, s.env)
	if err == nil {
		s.db = d
	}
	return err
}

// seen describes a table as the open file has it.
func (s *sink) seen(ctx context.Context, name string) (*object, []sqlgen.Held, error) {
	release := s.db.bound(ctx)
	defer release()
	o, ok, err := s.db.describe(name)
	if err != nil || !ok {
		return nil, nil, err
	}
	if _, known, err := s.db.describe(columnsTable); err != nil || !known {
		return o, nil, err
	}
	held, err := s.held(o)
	return o, held, err
}
