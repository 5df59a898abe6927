package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// Evolve implements connector.Evolver, in the open transaction. Columns are dropped (with the indexes on them), renamed and added;
// which one is which is known by the ids that were written down, or else by names. A column whose type changed stays as it is
// declared where that stores and reads back the new values; else the table is made anew. With from nil nothing is dropped but a
// column whose name another one took.
func (s *sink) Evolve(ctx context.Context, from, to *record.Schema) error {
	return s.guard(ctx, fmt.Sprintf("changing the columns of %s in %s", to.Dataset, s.cfg.Path), func() error {
		t := s.targets[to.Dataset]
		if t != nil && t.evolved == to {
			return nil
		}
		if err := s.begin(); err != nil {
			return err
		}
		name, err := s.claim(to.Dataset)
		if err != nil {
			return err
		}
		if t != nil {
			if err := t.settle(s.db); err != nil {
				return err
			}
			t.schema, t.evolved = nil, to // the next batch looks at the table again
		}
		if s.start.Mode == connector.Replace {
			if name, err = s.stage(name); err != nil {
				return err
			}
		}
		o, exists, err := s.db.describe(name)
		if err != nil || !exists {
			return err
		}
		return s.alter(o, from, to)
	})
}

// change is what becomes of one table.
type change struct {
	sqlgen.Alteration
	o    *object
	to   *record.Schema
	held []sqlgen.Held
	// retyped are columns of the new schema that the table can't hold as it is declared, or would not give back as what they are.
	retyped []int
	rekey   bool // the key consists of other columns
}

func (s *sink) alter(o *object, from, to *record.Schema) error {
	held, err := s.held(o)
	if err != nil {
		return err
	}
	c := &change{o: o, to: to, held: held}
	if c.Alteration, err = sqlgen.Alter(held, from, to); err != nil {
		e := configError("sqlite.columns", "renaming a column", err)
		e.Dataset, e.Hint = to.Dataset, "rename or drop that column of the table, then run again"
		return e
	}
	if err := c.types(from); err != nil {
		return err
	}
	c.rekey = from != nil && s.start.Mode == connector.Upsert && c.otherKey(from)
	if len(c.retyped) > 0 || c.rekey {
		done, err := s.remake(c)
		if err != nil || done {
			return err
		}
	}
	return s.alterColumns(c)
}

// alterColumns does what ALTER TABLE can do.
func (s *sink) alterColumns(c *change) error {
	table := "ALTER TABLE " + ident(c.o.name)
	for _, name := range c.Drop {
		if err := s.dropIndexes(c, name); err != nil {
			return err
		}
		if err := s.db.exec(table + " DROP COLUMN " + sqlgen.Ident(name)); err != nil {
			e := configError("sqlite.columns", "dropping a column that the source dropped", err)
			e.Dataset, e.Column = c.to.Dataset, name
			e.Hint = "drop what uses the column (an index, a view, a trigger), then run again; --schema " + c.to.Dataset +
				"=ignore keeps it"
			return e
		}
	}
	for _, r := range c.Rename {
		if err := s.db.exec(table + " RENAME COLUMN " + sqlgen.Ident(r.From) + " TO " + sqlgen.Ident(r.To)); err != nil {
			return err
		}
	}
	for _, i := range c.Add {
		if err := s.addColumn(c, i); err != nil {
			return err
		}
	}
	return s.saveColumns(c.o.name, c.Holds(c.held, c.to))
}

// dropIndexes drops the indexes on a column that is dropped.
func (s *sink) dropIndexes(c *change, column string) error {
	var names []string
	err := s.db.each(`SELECT DISTINCT l.name FROM pragma_index_list(?) AS l, pragma_index_xinfo(l.name) AS x
		WHERE l.origin = 'c' AND x.name = ? COLLATE NOCASE`, func(st *sqlite.Stmt) error {
		names = append(names, st.ColumnText(0))
		return nil
	}, c.o.name, column)
	if err != nil {
		return err
	}
	for _, n := range names {
		s.env.Log.Warn("an index on a column that the source dropped is dropped", slogTable(c.o.name), slog.String("index", n))
		if err := s.db.exec("DROP INDEX " + ident(n)); err != nil {
			return err
		}
	}
	return nil
}

// addColumn adds a column; rows that are there, and rows that come without it, have the value that they have at the source.
func (s *sink) addColumn(c *change, i int) error {
	f := c.to.Columns.Field(i)
	typ, err := record.TypeOf(f.Type)
	if err != nil {
		return fmt.Errorf("column %q: %w", f.Name, err)
	}
	declared := declare(typ, record.NativeOf(f))
	add := "ALTER TABLE " + ident(c.o.name) + " ADD COLUMN " + sqlgen.Ident(f.Name) + " " + declared
	missing, err := s.missing(f, typ, declared)
	if err != nil {
		e := configError("sqlite.columns", "adding a column with the value of older rows", err)
		e.Dataset, e.Column = c.to.Dataset, f.Name
		return e
	}
	if missing == nil {
		return s.db.exec(add)
	}
	if text, ok := missing.literal(); ok {
		return s.db.exec(add + " DEFAULT " + text)
	}
	if err := s.db.exec(add); err != nil {
		return err
	}
	return s.db.each("UPDATE "+ident(c.o.name)+" SET "+sqlgen.Ident(f.Name)+" = ?", nil, *missing)
}

// missing returns the value of rows that are older than a column, as it is stored; nil: NULL.
func (s *sink) missing(f arrow.Field, typ record.Type, declared string) (*value, error) {
	text, ok := record.MissingOf(f)
	if !ok {
		return nil, nil //nolint:nilnil // NULL is no error
	}
	_, how := mapColumn(f.Name, typ, declared)
	return s.stored(text, f.Type, how)
}

// stored returns the value of a text, as a column stores it.
func (s *sink) stored(text string, dt arrow.DataType, how storage) (*value, error) {
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	if err := record.ParseText(b, text); err != nil {
		return nil, err
	}
	bind := newBinder(b.NewArray(), how)
	v, err := s.db.query("SELECT ?", 1, func(st *sqlite.Stmt) error { return bind(st, 1, 0) })
	if err != nil {
		return nil, err
	}
	return &v[0], nil
}

// literal is the value as SQL; false: it has none.
func (v value) literal() (string, bool) {
	switch v.class {
	case sqlite.TypeInteger:
		return strconv.FormatInt(v.n, 10), true
	case sqlite.TypeFloat:
		text := strconv.FormatFloat(v.f, 'e', -1, 64)
		return strings.ReplaceAll(text, "Inf", "9e999"), true // which is too large for a double
	case sqlite.TypeText:
		return sqlgen.Literal(v.b), !strings.Contains(v.b, "\x00")
	case sqlite.TypeBlob:
		return fmt.Sprintf("x'%x'", v.b), true
	default:
		return "NULL", true
	}
}

// types finds the columns that need another declaration. A column that somebody else declared stays as it is.
func (c *change) types(from *record.Schema) error {
	var diff record.Difference
	if from != nil {
		diff = record.Diff(from, c.to)
	}
	for i, f := range c.to.Columns.Fields() {
		if c.Held[i] == "" {
			continue
		}
		at := slices.IndexFunc(c.held, func(h sqlgen.Held) bool { return h.Name == c.Held[i] })
		ours := c.held[at].ID != "" && c.held[at].ID == record.IDOf(f)
		if !ours && !slices.Contains(diff.Retyped, f.Name) {
			continue
		}
		typ, err := record.TypeOf(f.Type)
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		if !adequate(c.o.columns[at].declared, typ, record.NativeOf(f)) && !c.o.columns[at].generated {
			c.retyped = append(c.retyped, i)
		}
	}
	return nil
}

// adequate reports whether a column that is declared so stores the values of a type as one that is made for it, and is read as the
// type again. All whole numbers are one type to SQLite.
func adequate(declared string, t record.Type, native record.Native) bool {
	own := declare(t, native)
	m, how := mapColumn("", t, declared)
	best, bestHow := mapColumn("", t, own)
	if m.Fidelity > best.Fidelity || how != bestHow {
		return false
	}
	whole := t.Kind >= record.Int8 && t.Kind <= record.Uint32 && affinityOf(declared) == affInteger
	text := affinityOf(own) == affText && affinityOf(declared) == affText && own == "TEXT"
	return whole || text || sameFamily(declared, t) || strings.EqualFold(declared, own)
}

// otherKey reports whether the key consists of other columns than before.
func (c *change) otherKey(from *record.Schema) bool {
	diff := record.Diff(from, c.to)
	was := from.KeyNames()
	for i, name := range was {
		for _, r := range diff.Renamed {
			if r.From == name {
				was[i] = r.To
			}
		}
	}
	is := c.to.KeyNames()
	slices.Sort(was)
	slices.Sort(is)
	return !slices.Equal(was, is)
}

// notChanged is the error of a type or key that a table can't take.
func (c *change) notChanged(column string, err error) error {
	e := configError("sqlite.widen", "changing a column's type", err)
	if column == "" {
		e = configError("sqlite.key", "changing the key", err)
	}
	e.Dataset, e.Column = c.to.Dataset, column
	e.Hint = "DROP TABLE " + sqlgen.Ident(c.o.name) + ", then copy it again with --resnapshot " + c.to.Dataset
	return e
}

var errNotPlain = errors.New("the table has constraints of its own, with which it can't be made anew")
