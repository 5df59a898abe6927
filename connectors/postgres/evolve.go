package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// columnsTable keeps which columns of its source each dataset has at the target, by their stable ids: a persisted format, see
// docs/formats/postgres-progress.md. It is written together with the rows, so a change of columns is known to be done or not, also
// where names alone would not tell (two that were swapped, one that went and came back).
const columnsTable = "_leat.columns"

// knownColumn is a column of a dataset as the target has it.
type knownColumn struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name"`
	Type string `json:"type"` // the source's
}

// columnsOf lists the columns of a schema.
func columnsOf(s *record.Schema) []knownColumn {
	out := make([]knownColumn, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		out[i] = knownColumn{ID: record.IDOf(f), Name: f.Name, Type: record.NativeOf(f).Type}
		if out[i].Type == "" {
			out[i].Type = f.Type.String()
		}
	}
	return out
}

// Evolve implements connector.Evolver: columns that the new schema has more are added, without NOT NULL, and filled with the value that
// older rows have; others are renamed, get another type, or are dropped. What is already so is left alone. It is part of the open
// transaction, and so becomes durable together with the first rows that need it.
func (s *Sink) Evolve(ctx context.Context, from, to *record.Schema) error {
	if err := s.usable("changing the table"); err != nil {
		return err
	}
	if err := s.evolve(ctx, from, to); err != nil {
		return s.poison(ctx, s.explain("changing the table of "+to.Dataset, err))
	}
	return nil
}

func (s *Sink) evolve(ctx context.Context, from, to *record.Schema) error {
	_, seen := s.datasets[to.Dataset]
	d, err := s.place(ctx, to)
	if err != nil {
		return err
	}
	known, err := s.known(ctx, to.Dataset)
	if err != nil {
		return err
	}
	switch {
	case !seen && d.made: // just now, with the columns that it is to have
		known = nil
	case known == nil && from != nil:
		known = columnsOf(from)
	}
	e := evolution{s: s, d: d, to: to, drops: from != nil}
	if from != nil && !slices.Equal(from.KeyNames(), to.KeyNames()) {
		e.key = to.KeyNames()
	}
	e.compare(known)
	if !e.empty() {
		if err := e.apply(ctx, known); err != nil {
			return err
		}
	}
	return s.remember(ctx, to.Dataset, append(columnsOf(to), e.left...))
}

// known returns the columns that the target is known to have of a dataset; nil: nothing is known.
func (s *Sink) known(ctx context.Context, dataset string) ([]knownColumn, error) {
	if s.columns == nil {
		s.columns = map[string][]knownColumn{}
		sql := fmt.Sprintf("SELECT json_object_agg(dataset, columns) FROM %s WHERE %s", columnsTable, s.lane.where())
		if _, err := s.db.query(ctx, "columns", sql, &s.columns); err != nil {
			return nil, fmt.Errorf("reading %s: %w", columnsTable, err)
		}
	}
	return s.columns[dataset], nil
}

// remember notes which columns the target has now.
func (s *Sink) remember(ctx context.Context, dataset string, now []knownColumn) error {
	if slices.Equal(s.columns[dataset], now) {
		return nil
	}
	doc, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("writing the columns of %s as JSON: %w", dataset, err)
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.kept = true
	sql := fmt.Sprintf(`INSERT INTO %s (pipeline, lane, dataset, columns) VALUES (%s, %s, %s, %s)
ON CONFLICT (pipeline, lane, dataset) DO UPDATE SET columns = EXCLUDED.columns`,
		columnsTable, literal(s.lane.pipeline), literal(s.lane.name), literal(dataset), literal(string(doc)))
	if err := s.db.exec(ctx, "columns", sql); err != nil {
		return err
	}
	s.columns[dataset] = now
	return nil
}

// evolution is what has to be done to a table.
type evolution struct {
	s     *Sink
	d     *dataset
	to    *record.Schema
	drops bool     // columns that are gone are dropped
	key   []string // if it is another one than before

	dropped []string
	gone    map[string]knownColumn // the same, by their names
	left    []knownColumn          // columns that are gone from the dataset and stay
	relaxed []string               // those of them that demand a value
	renamed []record.Renamed
	added   []int // columns of to
	retyped []retyping
}

// retyping is a column whose type may have to change.
type retyping struct {
	col    int    // of to
	name   string // at the target, before it is renamed
	before string // the source's type before
}

func (e *evolution) empty() bool {
	return !e.keyless() && len(e.dropped)+len(e.relaxed)+len(e.renamed)+len(e.added)+len(e.retyped) == 0
}

// compare finds what the table lacks. Columns are the same ones where their ids are equal, or, where one of them has no id, their
// names.
func (e *evolution) compare(known []knownColumn) {
	t := e.d.table
	e.dropped, e.left, e.relaxed, e.renamed, e.added, e.retyped = nil, nil, nil, nil, nil, nil
	e.gone = map[string]knownColumn{}
	taken := map[string]bool{} // names at the target that go on, by their name before
	for i, now := range columnsOf(e.to) {
		name, was := partner(known, now, t)
		if was != nil && was.Type != now.Type {
			e.retyped = append(e.retyped, retyping{col: i, name: name, before: was.Type})
		}
		_, exists := t.column(name)
		switch {
		case !exists || was == nil && otherColumn(known, now): // or the name is still that of another column
			e.added = append(e.added, i)
			continue
		case name != now.Name:
			e.renamed = append(e.renamed, record.Renamed{From: name, To: now.Name})
		}
		taken[name] = true
	}
	for _, k := range known {
		c, exists := t.column(k.Name)
		switch {
		case !exists || taken[k.Name]:
		case e.drops || e.nameNeeded(k.Name):
			e.dropped = append(e.dropped, k.Name)
			e.gone[k.Name] = k
		default:
			e.left = append(e.left, k)
			if demanding(c) {
				e.relaxed = append(e.relaxed, k.Name)
			}
		}
	}
}

// partner returns what a column is called at the target, and what it was when it was last seen; nil: it was not.
func partner(known []knownColumn, now knownColumn, t *table) (name string, was *knownColumn) {
	at := slices.IndexFunc(known, func(k knownColumn) bool { return k.ID != "" && k.ID == now.ID })
	if at < 0 {
		at = slices.IndexFunc(known, func(k knownColumn) bool { return k.Name == now.Name && (k.ID == "" || now.ID == "") })
	}
	if at < 0 {
		return now.Name, nil
	}
	if _, ok := t.column(known[at].Name); ok {
		return known[at].Name, &known[at]
	}
	return now.Name, &known[at] // it is renamed already
}

// otherColumn reports whether another column is known by the name.
func otherColumn(known []knownColumn, now knownColumn) bool {
	return now.ID != "" && slices.ContainsFunc(known, func(k knownColumn) bool {
		return k.Name == now.Name && k.ID != "" && k.ID != now.ID
	})
}

// nameNeeded reports whether a column that is added or renamed takes the name of one that is gone.
func (e *evolution) nameNeeded(name string) bool {
	return slices.ContainsFunc(e.renamed, func(r record.Renamed) bool { return r.To == name }) ||
		slices.ContainsFunc(e.added, func(i int) bool { return e.to.Columns.Field(i).Name == name })
}

// demanding reports whether rows can't be inserted without a value for the column.
func demanding(c tableColumn) bool {
	return c.NotNull && !c.Default && c.Identity == "" && c.Generated == ""
}

// keyless reports whether the key is another one than before and the table has no unique index of it.
func (e *evolution) keyless() bool {
	if len(e.key) == 0 {
		return false
	}
	_, ok := e.d.table.arbiter(e.key)
	return !ok
}

// apply changes the table. It is looked at again under a lock, since others may have changed it.
func (e *evolution) apply(ctx context.Context, known []knownColumn) error {
	s, d := e.s, e.d
	if s.cfg.Create == createNever {
		return e.forbidden(ctx)
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.kept = true
	if err := s.db.exec(ctx, "lock", "LOCK TABLE "+d.target.String()+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	if err := s.look(ctx, d); err != nil {
		return err
	}
	e.compare(known)
	for _, step := range []func(context.Context) error{e.drop, e.rename, e.add, e.retype} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.checked = 0
	if err := s.look(ctx, d); err != nil {
		return err
	}
	if !e.keyless() {
		return nil
	}
	if err := s.db.exec(ctx, "alter", d.table.keyFix(tableKey{}, e.key)); err != nil {
		return err
	}
	return s.look(ctx, d)
}

// alter changes the table, and says so.
func (e *evolution) alter(ctx context.Context, changes ...string) error {
	if len(changes) == 0 {
		return nil
	}
	if err := e.s.db.exec(ctx, "alter", "ALTER TABLE "+e.d.target.String()+" "+strings.Join(changes, ", ")); err != nil {
		return err
	}
	for _, c := range changes {
		shown, _, _ := strings.Cut(c, " DEFAULT ") // no value in a log
		e.s.env.Log.InfoContext(ctx, "a table follows its source", slog.String("dataset", e.to.Dataset), slog.String("change", shown))
	}
	return nil
}

// drop drops columns. One that other objects of the target use stays, and no longer demands a value.
func (e *evolution) drop(ctx context.Context) error {
	for _, name := range e.dropped {
		if err := e.s.db.exec(ctx, "savepoint", "SAVEPOINT _leat_drop"); err != nil {
			return err
		}
		err := e.alter(ctx, "DROP COLUMN "+ident(name))
		if err == nil {
			continue
		}
		pg, ok := serverError(err)
		const dependentObjects = "2BP01"
		if !ok || pg.Code != dependentObjects || e.nameNeeded(name) {
			return err
		}
		if err := e.s.db.exec(ctx, "rollback", "ROLLBACK TO SAVEPOINT _leat_drop"); err != nil {
			return err
		}
		e.s.env.Log.WarnContext(ctx, "a column that the source has dropped stays, since other objects use it",
			slog.String("dataset", e.to.Dataset), slog.String("column", name), slog.String("detail", pg.Detail))
		e.left = append(e.left, e.gone[name])
		if c, _ := e.d.table.column(name); demanding(c) {
			e.relaxed = append(e.relaxed, name)
		}
	}
	changes := make([]string, len(e.relaxed))
	for i, name := range e.relaxed {
		changes[i] = "ALTER COLUMN " + ident(name) + " DROP NOT NULL"
	}
	return e.alter(ctx, changes...)
}

// rename gives columns their names; where one takes the name of another one that is renamed too, by way of names that are nobody's.
func (e *evolution) rename(ctx context.Context) error {
	between := slices.ContainsFunc(e.renamed, func(r record.Renamed) bool {
		return slices.ContainsFunc(e.renamed, func(o record.Renamed) bool { return o.From == r.To })
	})
	last := e.renamed
	if between {
		last = make([]record.Renamed, len(e.renamed))
		for i, r := range e.renamed {
			last[i] = record.Renamed{From: helperName("_leat_column_", r.From), To: r.To}
			if err := e.alter(ctx, renaming(record.Renamed{From: r.From, To: last[i].From})); err != nil {
				return err
			}
		}
	}
	for _, r := range last {
		if err := e.alter(ctx, renaming(r)); err != nil {
			return err
		}
	}
	return nil
}

func renaming(r record.Renamed) string {
	return "RENAME COLUMN " + ident(r.From) + " TO " + ident(r.To)
}

// add adds columns. Rows that are there get the value that they have at the source; none of them is written for that.
func (e *evolution) add(ctx context.Context) error {
	if len(e.added) == 0 {
		return nil
	}
	design, err := e.s.db.design(ctx, e.to, e.d.place)
	if err != nil {
		return err
	}
	if len(design.enums) > 0 {
		if err := e.s.db.exec(ctx, "create", strings.Join(design.statements()[1:1+len(design.enums)], ";\n")); err != nil {
			return err
		}
	}
	var adds, plain []string
	for _, i := range e.added {
		c, f := design.columns[i], e.to.Columns.Field(i)
		c.notNull = false
		add := "ADD COLUMN " + c.String()
		if text, ok := record.MissingOf(f); ok {
			value, err := e.s.db.constant(ctx, f, text, c.typ)
			if err != nil {
				return fmt.Errorf("column %q: the value of older rows: %w", f.Name, err)
			}
			add += " DEFAULT " + value
			plain = append(plain, "ALTER COLUMN "+ident(c.name)+" DROP DEFAULT")
		}
		adds = append(adds, add)
	}
	if err := e.alter(ctx, adds...); err != nil {
		return err
	}
	return e.alter(ctx, plain...)
}

// constant returns the SQL of a value that is given by its canonical text, as a constant of an SQL type.
func (s *session) constant(ctx context.Context, f arrow.Field, text, typ string) (string, error) {
	b := array.NewBuilder(memory.DefaultAllocator, f.Type)
	defer b.Release()
	if err := record.ParseText(b, text); err != nil {
		return "", err //nolint:wrapcheck // the caller names the column
	}
	rt, err := record.TypeOf(f.Type)
	if err != nil {
		return "", err //nolint:wrapcheck // the caller names the column
	}
	var base baseType
	if _, err := s.query(ctx, "types", typeSQL(typ), &base); err != nil {
		return "", err
	}
	wire, wireType, _ := carry(rt, base)
	one := arrow.NewSchema([]arrow.Field{f}, nil)
	enc, err := pgcopy.NewEncoder(one, []pgcopy.Column{{Name: f.Name, Type: wire}})
	if err != nil {
		return "", err //nolint:wrapcheck // the caller names the column
	}
	row, err := enc.AppendRows(nil, array.NewRecordBatch(one, []arrow.Array{b.NewArray()}, 1), 0, 1)
	if err != nil {
		return "", err //nolint:wrapcheck // the caller names the column
	}
	const length = 4
	x := new(script)
	x.bind(statement{fmt.Sprintf("SELECT ($1::%s)::%s::text", wireType, typ), [][]byte{fields(row)[0][length:]}})
	results, err := s.run(ctx, "value", x)
	if err != nil {
		return "", err
	}
	return literal(string(results[0].Rows[0][0])) + "::" + typ, nil
}

// retype changes types of columns where the values would not fit otherwise.
func (e *evolution) retype(ctx context.Context) error {
	if len(e.retyped) == 0 {
		return nil
	}
	design, err := e.s.db.design(ctx, e.to, e.d.place)
	if err != nil {
		return err
	}
	for _, r := range e.retyped {
		f := e.to.Columns.Field(r.col)
		was, ok := e.d.table.column(r.name)
		if !ok || was.Generated != "" {
			continue // it was added with its type just now, or is none of ours
		}
		now, err := fit(f, was)
		if err != nil {
			return err
		}
		if now.Fidelity == connector.Exact {
			continue
		}
		typ := design.columns[r.col].typ
		if wider, ok := widen(was, typ, now); ok && was.Type != r.before {
			typ = wider // its type is not the source's own
		}
		change := fmt.Sprintf("ALTER COLUMN %s TYPE %s USING %[1]s::%[2]s", ident(f.Name), typ)
		if err := e.alter(ctx, change); err != nil {
			return e.untypeable(f.Name, change, err)
		}
	}
	return nil
}

// untypeable explains why a column did not get its type, and what to do.
func (e *evolution) untypeable(column, change string, err error) error {
	pg, ok := serverError(err)
	if !ok {
		return err
	}
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "postgres.retype", Doing: "changing the table " + e.d.target.String(), Dataset: e.to.Dataset,
		Column: column, Err: serverMessage(pg),
		Hint: fmt.Sprintf("change it by hand, with an expression that the values can be had by, and start again: ALTER TABLE %s %s",
			e.d.place, change),
	}
}

// forbidden says what would have to be done, where create is never.
func (e *evolution) forbidden(ctx context.Context) error {
	var sql []string
	for _, name := range e.dropped {
		sql = append(sql, "DROP COLUMN "+ident(name))
	}
	for _, name := range e.relaxed {
		sql = append(sql, "ALTER COLUMN "+ident(name)+" DROP NOT NULL")
	}
	design, err := e.s.db.design(ctx, e.to, e.d.place)
	if err != nil {
		return err
	}
	for _, i := range e.added {
		c := design.columns[i]
		c.notNull = false
		sql = append(sql, "ADD COLUMN "+c.String())
	}
	for _, r := range e.retyped {
		was, ok := e.d.table.column(r.name)
		if now, err := fit(e.to.Columns.Field(r.col), was); ok && err == nil && now.Fidelity != connector.Exact {
			sql = append(sql, "ALTER COLUMN "+ident(r.name)+" TYPE "+design.columns[r.col].typ)
		}
	}
	var all []string
	if len(sql) > 0 {
		all = append(all, fmt.Sprintf("ALTER TABLE %s %s", e.d.place, strings.Join(sql, ", ")))
	}
	for _, r := range e.renamed {
		all = append(all, fmt.Sprintf("ALTER TABLE %s %s", e.d.place, renaming(r)))
	}
	if len(all) == 0 {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "postgres.columns", Doing: "changing " + e.d.target.String(), Dataset: e.to.Dataset,
		Err: errors.New("the table does not fit the new schema, and create is never"), Hint: strings.Join(all, "; "),
	}
}

// widen returns the type that a column changes to: only to one that holds every value of the old one.
func widen(was tableColumn, typ string, now fitting) (string, bool) {
	order := map[string]int{"int2": 1, "int4": 2, "int8": 3, "numeric": 4}
	want := map[string]int{"smallint": 1, "integer": 2, "bigint": 3}[typ]
	if strings.HasPrefix(typ, "numeric") {
		want = order["numeric"]
	}
	have := order[was.Base.Name]
	switch {
	case have > 0 && want > have && was.Base.Name != "numeric":
		return typ, true
	case was.Base.Name == "numeric" && want > 0:
		return "numeric", true // any digits: a wider pair could still be narrower on one side of the point
	case was.Base.Name == "float4" && typ == "double precision":
		return typ, true
	case was.Base.Name == "varchar" && (strings.HasPrefix(typ, "character varying") || typ == "text"):
		return typ, now.Limits.MaxChars > 0
	case typ == "text" && was.Base.Schema == "pg_catalog" && was.Base.Elem == nil && was.Base.Name != "bytea" && was.Base.Name != "text":
		return typ, true // every scalar has a text form
	}
	return "", false
}
