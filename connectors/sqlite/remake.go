package sqlite

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// remadeTable is the name of a table while it is made anew.
const remadeTable = "_leat_remade"

// remade is one column of a table that is made anew.
type remade struct {
	name string
	def  string
	from string // the column that its values come from; empty: it is new
	turn func(v value) (value, error)
}

// remake makes the table anew under the new schema: SQLite can't change a declared type or a primary key. Indexes and triggers are made
// again. false: the table stays, because it holds the new values as it is.
func (s *sink) remake(c *change) (bool, error) {
	worse, err := c.worse()
	if err != nil {
		return false, err
	}
	plain, err := s.plain(c.o)
	if err != nil {
		return false, err
	}
	switch {
	case plain:
	case worse == "" && !c.rekey:
		s.env.Log.Warn("the type of a column changed, and the table keeps the one that it has", slogTable(c.o.name))
		return false, nil
	default:
		return false, c.notChanged(worse, errNotPlain)
	}
	if err := s.db.exec("SAVEPOINT remake"); err != nil {
		return false, err
	}
	err = s.remakeAs(c)
	var re *rowError
	switch {
	case err == nil:
		return true, s.db.exec("RELEASE remake")
	case errors.As(err, &re) && worse == "" && !c.rekey:
		s.env.Log.Warn("the type of a column changed, and the table keeps the one that it has, for the sake of its values",
			slogTable(c.o.name), slog.String("column", re.column))
		return false, s.db.exec("ROLLBACK TO remake", "RELEASE remake")
	case errors.As(err, &re):
		return false, c.notChanged(re.column, err)
	}
	return false, err
}

// worse names a retyped column that the table can't hold as it is; empty: it holds all.
func (c *change) worse() (string, error) {
	for _, i := range c.retyped {
		f := c.to.Columns.Field(i)
		typ, err := record.TypeOf(f.Type)
		if err != nil {
			return "", err
		}
		was, _ := c.o.column(c.Held[i])
		m, _ := mapColumn(f.Name, typ, was.declared)
		best, _ := mapColumn(f.Name, typ, declare(typ, record.NativeOf(f)))
		if m.Fidelity > best.Fidelity {
			return f.Name, nil
		}
	}
	return "", nil
}

// plain reports whether a table has nothing but columns, defaults and a primary key, as the tables that are made here: then it can be
// made anew from what the catalogue says.
func (s *sink) plain(o *object) (bool, error) {
	if o.kind != "table" || o.strict || o.withoutRowID || slices.ContainsFunc(o.columns, func(c catColumn) bool { return c.generated }) {
		return false, nil
	}
	own, err := s.db.exists(`SELECT 1 FROM pragma_index_list(?1) WHERE origin = 'u' UNION ALL SELECT 1 FROM pragma_foreign_key_list(?1)`,
		o.name)
	if err != nil || own {
		return false, err
	}
	ddl := ""
	err = s.db.each(`SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = ?`, func(st *sqlite.Stmt) error {
		ddl = st.ColumnText(0)
		return nil
	}, o.name)
	special := map[string]bool{"CHECK": true, "COLLATE": true, "AUTOINCREMENT": true, "CONFLICT": true, "CONSTRAINT": true}
	return !slices.ContainsFunc(words(ddl), func(w string) bool { return special[w] }), err
}

// words are the upper-case words of a statement outside of quotes.
func words(sql string) []string {
	var bare strings.Builder
	var quote rune
	for _, r := range sql {
		switch {
		case quote != 0:
			if r == quote || quote == '[' && r == ']' {
				quote = 0
			}
			r = ' '
		case strings.ContainsRune("\"'`[", r):
			quote = r
			r = ' '
		}
		bare.WriteRune(r)
	}
	return strings.FieldsFunc(strings.ToUpper(bare.String()), func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

func (s *sink) remakeAs(c *change) error {
	cols, err := s.remadeColumns(c)
	if err != nil {
		return err
	}
	defs := make([]string, 0, len(cols)+1)
	for _, col := range cols {
		defs = append(defs, col.def)
	}
	if key := c.primary(); key != "" {
		defs = append(defs, key)
	}
	extras, err := s.extras(c.o.name)
	if err != nil {
		return err
	}
	err = s.db.exec("DROP TABLE IF EXISTS "+ident(remadeTable),
		"CREATE TABLE "+ident(remadeTable)+" (\n\t"+strings.Join(defs, ",\n\t")+"\n)")
	if err != nil {
		return err
	}
	if err := s.copyRows(c, cols); err != nil {
		return err
	}
	err = s.db.exec("DROP TABLE "+ident(c.o.name), "ALTER TABLE "+ident(remadeTable)+" RENAME TO "+sqlgen.Ident(c.o.name))
	if err != nil {
		return err
	}
	if err := s.db.exec(extras...); err != nil {
		e := configError("sqlite.index", "making an index or trigger of the old table again", err)
		e.Dataset, e.Hint = c.to.Dataset, "drop the index or trigger that does not suit the new columns, then run again"
		return e
	}
	return s.saveColumns(c.o.name, c.Holds(c.held, c.to))
}

// extras are the statements that made the indexes and triggers of a table.
func (s *sink) extras(table string) ([]string, error) {
	var out []string
	err := s.db.each(`SELECT sql FROM main.sqlite_schema WHERE tbl_name = ? COLLATE NOCASE
		AND type IN ('index', 'trigger') AND sql IS NOT NULL ORDER BY type, name`, func(st *sqlite.Stmt) error {
		out = append(out, st.ColumnText(0))
		return nil
	}, table)
	return out, err
}

// remadeColumns are the columns of the new schema, and those of the table that belong to nobody.
func (s *sink) remadeColumns(c *change) ([]remade, error) {
	var out []remade
	for i, f := range c.to.Columns.Fields() {
		typ, err := record.TypeOf(f.Type)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		col := remade{name: f.Name, from: c.Held[i]}
		was, held := c.o.column(c.Held[i])
		declared, fallback := was.declared, was.def
		if !held || slices.Contains(c.retyped, i) {
			declared, fallback = declare(typ, record.NativeOf(f)), ""
			missing, err := s.missing(f, typ, declared)
			if err != nil {
				return nil, fmt.Errorf("column %q, the value of older rows: %w", f.Name, err)
			}
			if missing != nil {
				fallback, _ = missing.literal()
			}
			_, how := mapColumn(f.Name, typ, declared)
			col.turn = s.turning(f.Name, was.declared, typ, how)
		}
		notNull := slices.Contains(c.to.Key, i)
		col.def = definition(f.Name, declared, notNull, fallback)
		out = append(out, col)
	}
	for _, was := range c.o.columns {
		if !slices.Contains(c.Held, was.name) && !slices.Contains(c.Drop, was.name) {
			out = append(out, remade{name: was.name, from: was.name, def: definition(was.name, was.declared, was.notNull, was.def)})
		}
	}
	return out, nil
}

func definition(name, declared string, notNull bool, fallback string) string {
	def := strings.TrimRight(sqlgen.Ident(name)+" "+declared, " ")
	if notNull {
		def += " NOT NULL"
	}
	if fallback != "" {
		def += " DEFAULT (" + fallback + ")"
	}
	return def
}

// primary is the primary key's definition; a single column of type INTEGER is the row id.
func (c *change) primary() string {
	if len(c.to.Key) == 0 || (len(c.o.key) == 0 && !c.rekey) {
		return ""
	}
	return "PRIMARY KEY (" + sqlgen.Idents(c.to.KeyNames()) + ")"
}

// copyRows copies all rows in their order.
func (s *sink) copyRows(c *change, cols []remade) error {
	var from, to []string
	var turned []int // columns of the SELECT whose values change
	var turns []func(value) (value, error)
	for _, col := range cols {
		if col.from == "" {
			continue
		}
		if col.turn != nil {
			turned, turns = append(turned, len(from)), append(turns, col.turn)
		}
		from, to = append(from, col.from), append(to, col.name)
	}
	order := ""
	if c.o.rowID != "" {
		order = " ORDER BY " + sqlgen.Ident(c.o.rowID)
	}
	read := "SELECT " + sqlgen.Idents(from) + " FROM " + ident(c.o.name) + order
	insert := "INSERT INTO " + ident(remadeTable) + " (" + sqlgen.Idents(to) + ") "
	if len(turned) == 0 {
		return s.refusedRow(s.db.exec(insert + read))
	}
	insert += "VALUES (" + sqlgen.Marks(len(to)) + ")"
	return s.db.each(read, func(st *sqlite.Stmt) error {
		in := &cells{st: st, utf16: true}
		vals := make([]value, len(from))
		for i := range vals {
			vals[i] = valueOf(in, i)
		}
		for n, i := range turned {
			v, err := turns[n](vals[i])
			if err != nil {
				return err
			}
			vals[i] = v
		}
		_, err := s.db.query(insert, 0, func(st *sqlite.Stmt) error {
			for i, v := range vals {
				v.bind(st, i+1)
			}
			return nil
		})
		return s.refusedRow(err)
	})
}

// refusedRow makes what a constraint says of rows that are there an error about them.
func (*sink) refusedRow(err error) error {
	if err != nil && rowRefused(err) {
		return &rowError{err: err}
	}
	return err
}

// turning returns what makes a stored value one of a new type: by way of the text form of the type that the column was declared as.
func (s *sink) turning(name, declared string, to record.Type, how storage) func(value) (value, error) {
	was := shapesFor(declared)[0].typ
	return func(v value) (value, error) {
		if v.null() {
			return v, nil
		}
		text := v.text()
		switch {
		case v.class == sqlite.TypeBlob:
			text = fmt.Sprintf(`\x%x`, v.b)
		case kindOf(was) == record.Bool && v.class == sqlite.TypeInteger:
			text = strconv.FormatBool(v.n != 0)
		}
		b := array.NewBuilder(memory.DefaultAllocator, was)
		if record.ParseText(b, text) == nil {
			text = string(record.AppendText(nil, b.NewArray(), 0))
		}
		out, err := s.stored(text, to.Arrow, how)
		if err != nil {
			return v, &rowError{column: name, value: shorten(text), err: fmt.Errorf("the table has the value %s: %w", shorten(text), err)}
		}
		return *out, nil
	}
}
