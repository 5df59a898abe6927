package mysql

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
	"github.com/leatdata/leat/record"
)

// knownColumn is a column of a dataset as the target has it: kept in the table of columns, by the stable ids of the source. A change of
// a table is not part of a transaction here, so that what is kept is written behind each step, and tells after a crash which steps were
// done.
type knownColumn struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name"`
	Next string `json:"next,omitempty"` // what it is about to be called
	Type string `json:"type"`           // the source's
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
// older rows have; others are renamed, get another type, or are dropped. What is already so is left alone. Where the open transaction is
// in the way, it is rolled back and its rows are written again behind the change, so that none of them becomes durable before its time.
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
	case len(known) == 0 && from != nil:
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

// known returns the columns that the target is known to have of a dataset; none: nothing is known.
func (s *Sink) known(ctx context.Context, dataset string) ([]knownColumn, error) {
	if s.columns == nil {
		results, err := s.db.run(ctx, "columns", fmt.Sprintf("SELECT dataset, columns FROM %s WHERE %s", s.lane.columns(), s.lane.where()))
		if err != nil {
			return nil, err
		}
		s.columns = map[string][]knownColumn{}
		for _, r := range results[0] {
			var columns []knownColumn
			if err := json.Unmarshal(r[1], &columns); err != nil {
				return nil, fmt.Errorf("reading the columns of %s: %w", r[0], err)
			}
			s.columns[string(r[0])] = columns
		}
	}
	return s.columns[keptName(dataset)], nil
}

// keptName is the name of a dataset in the table of columns, which has room for so many characters.
func keptName(dataset string) string {
	const room = 255
	if len(dataset) <= room {
		return dataset
	}
	return "#" + nameHash(dataset)
}

// remember notes which columns the target has now.
func (s *Sink) remember(ctx context.Context, dataset string, now []knownColumn) error {
	if slices.Equal(s.columns[keptName(dataset)], now) {
		return nil
	}
	doc, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("writing the columns of %s as JSON: %w", dataset, err)
	}
	err = s.define(ctx, fmt.Sprintf("REPLACE INTO %s (pipeline, lane, dataset, columns) VALUES (%s, %s, %s, %s)",
		s.lane.columns(), literal(s.lane.pipeline), literal(s.lane.name), literal(keptName(dataset)), literal(string(doc))))
	if err != nil {
		return err
	}
	s.columns[keptName(dataset)] = now
	return nil
}

// forget notes that nothing is known of a dataset's columns.
func (s *Sink) forget(ctx context.Context, dataset string) error {
	known, err := s.known(ctx, dataset)
	if err != nil || len(known) == 0 {
		return err
	}
	return s.remember(ctx, dataset, []knownColumn{})
}

// evolution is what has to be done to a table.
type evolution struct {
	s     *Sink
	d     *dataset
	to    *record.Schema
	drops bool     // columns that are gone are dropped
	key   []string // if it is another one than before

	rewriting bool // rows of the table are written again behind the change

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
	taken := map[string]bool{} // names at the target that go on
	for i, now := range columnsOf(e.to) {
		name, was := partner(known, now, t)
		if was != nil && was.Type != now.Type {
			e.retyped = append(e.retyped, retyping{col: i, name: name, before: was.Type})
		}
		_, exists := t.column(name)
		switch {
		case !exists || (was == nil && otherColumn(known, now)): // or the name is still that of another column
			e.added = append(e.added, i)
			continue
		case !strings.EqualFold(name, now.Name):
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
			if c.demanding() {
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
	for _, name := range []string{known[at].Name, known[at].Next} {
		if _, ok := t.column(name); ok && name != "" {
			return name, &known[at]
		}
	}
	return now.Name, &known[at]
}

// otherColumn reports whether another column is known by the name.
func otherColumn(known []knownColumn, now knownColumn) bool {
	return now.ID != "" && slices.ContainsFunc(known, func(k knownColumn) bool {
		return k.Name == now.Name && k.ID != "" && k.ID != now.ID
	})
}

// nameNeeded reports whether a column that is added or renamed takes the name of one that is gone.
func (e *evolution) nameNeeded(name string) bool {
	return slices.ContainsFunc(e.renamed, func(r record.Renamed) bool { return strings.EqualFold(r.To, name) }) ||
		slices.ContainsFunc(e.added, func(i int) bool { return strings.EqualFold(e.to.Columns.Field(i).Name, name) })
}

// keyless reports whether the key is another one than before and the table has no unique index of it.
func (e *evolution) keyless() bool {
	if len(e.key) == 0 {
		return false
	}
	_, ok := e.d.table.keyOn(e.key)
	return !ok
}

// apply changes the table. Whatever the open transaction holds of it is written again.
func (e *evolution) apply(ctx context.Context, known []knownColumn) error {
	s, d := e.s, e.d
	if s.cfg.Create == createNever {
		return e.forbidden(ctx)
	}
	change := func() error { return e.change(ctx, known) }
	if s.open && d.checked == s.txn {
		e.rewriting = true
		return s.again(ctx, change)
	}
	err := change()
	if server, ok := serverErrorOf(err); ok && server.number == errLockWait && s.open { // by way of a foreign key
		return s.again(ctx, change)
	}
	return err
}

// change makes the steps, each of which is noted before the next one.
func (e *evolution) change(ctx context.Context, known []knownColumn) error {
	s, d := e.s, e.d
	if err := s.look(ctx, d); err != nil {
		return err
	}
	e.compare(known)
	for _, step := range []func(context.Context, []knownColumn) ([]knownColumn, error){e.drop, e.rename, e.add, e.retype} {
		now, err := step(ctx, known)
		if err != nil {
			return err
		}
		if now == nil {
			continue
		}
		if err := s.remember(ctx, e.to.Dataset, now); err != nil {
			return err
		}
		known = now
	}
	d.checked = 0
	if err := s.look(ctx, d); err != nil {
		return err
	}
	if !e.keyless() {
		return nil
	}
	if err := s.define(ctx, d.table.keyFix(e.key)); err != nil {
		return err
	}
	return s.look(ctx, d)
}

// alter changes the table, and says so.
func (e *evolution) alter(ctx context.Context, changes ...string) error {
	if len(changes) == 0 {
		return nil
	}
	if err := e.s.define(ctx, "ALTER TABLE "+e.d.target.String()+" "+strings.Join(changes, ", ")); err != nil {
		return err
	}
	for _, c := range changes {
		text, _, _ := strings.Cut(c, " DEFAULT ") // no value in a log
		e.s.env.Log.InfoContext(ctx, "a table follows its source", slog.String("dataset", e.to.Dataset), slog.String("change", text))
	}
	return nil
}

// drop drops columns. One that other objects of the target use stays, and no longer demands a value.
func (e *evolution) drop(ctx context.Context, known []knownColumn) ([]knownColumn, error) {
	for _, name := range e.dropped {
		err := e.alter(ctx, "DROP COLUMN "+ident(name))
		if err == nil {
			known = slices.DeleteFunc(slices.Clone(known), func(k knownColumn) bool { return k.Name == name })
			continue
		}
		server, ok := serverErrorOf(err)
		if !ok || !used(server) || e.nameNeeded(name) {
			return nil, err
		}
		e.s.env.Log.WarnContext(ctx, "a column that the source has dropped stays, since other objects use it",
			slog.String("dataset", e.to.Dataset), slog.String("column", name), slog.String("detail", server.message))
		e.left = append(e.left, e.gone[name])
		if c, _ := e.d.table.column(name); c.demanding() {
			e.relaxed = append(e.relaxed, name)
		}
	}
	changes := make([]string, len(e.relaxed))
	for i, name := range e.relaxed {
		c, _ := e.d.table.column(name)
		c.notNull = false
		changes[i] = "MODIFY COLUMN " + c.definition(e.s.db.stamps)
	}
	return known, e.alter(ctx, changes...)
}

// used reports whether a column can't be dropped because of a foreign key, a check, a generated column or a partition.
func used(e *serverError) bool {
	switch e.number {
	case 1054, 1553, 1828, 1829, 1901, 3108, 3855, 3959, 1072, 1846:
		return true
	}
	return false
}

// rename gives columns their names; where one takes the name of another one that is renamed too, by way of names that are nobody's, so
// that whoever goes on behind a crash can tell how far it came.
func (e *evolution) rename(ctx context.Context, known []knownColumn) ([]knownColumn, error) {
	if len(e.renamed) == 0 {
		return nil, nil
	}
	crossed := slices.ContainsFunc(e.renamed, func(r record.Renamed) bool {
		return slices.ContainsFunc(e.renamed, func(o record.Renamed) bool { return strings.EqualFold(o.From, r.To) })
	})
	steps := [][]record.Renamed{e.renamed}
	if crossed {
		steps = [][]record.Renamed{nil, nil}
		for _, r := range e.renamed {
			middle := helperName("_leat_column_", r.From)
			steps[0] = append(steps[0], record.Renamed{From: r.From, To: middle})
			steps[1] = append(steps[1], record.Renamed{From: middle, To: r.To})
		}
	}
	for _, step := range steps {
		changes, next := make([]string, len(step)), make(map[string]string, len(step))
		for i, r := range step {
			changes[i] = fmt.Sprintf("RENAME COLUMN %s TO %s", ident(r.From), ident(r.To))
			next[r.From] = r.To
		}
		if err := e.s.remember(ctx, e.to.Dataset, withNext(known, next)); err != nil {
			return nil, err
		}
		if err := e.alter(ctx, changes...); err != nil {
			return nil, err
		}
		known = withNext(known, nil)
		for i, k := range known {
			if to, ok := next[k.Name]; ok {
				known[i].Name = to
			}
		}
	}
	return known, nil
}

// withNext returns the columns with the names that they are about to have.
func withNext(known []knownColumn, next map[string]string) []knownColumn {
	out := slices.Clone(known)
	for i, k := range out {
		out[i].Next = next[k.Name]
	}
	return out
}

// add adds columns. Rows that are there get the value that they have at the source.
func (e *evolution) add(ctx context.Context, known []knownColumn) ([]knownColumn, error) {
	if len(e.added) == 0 {
		return nil, nil
	}
	design, err := e.s.db.design(ctx, e.to, e.d.place, e.s.cfg.Instants)
	if err != nil {
		return nil, err
	}
	var adds, plain []string
	all := columnsOf(e.to)
	known = slices.Clone(known)
	for _, i := range e.added {
		c, f := design.columns[i], e.to.Columns.Field(i)
		c.notNull = false
		add := "ADD COLUMN " + c.definition(e.s.db.stamps)
		known = append(known, all[i])
		if missing, ok := record.MissingOf(f); ok {
			value, err := constant(f, missing, c)
			if err != nil {
				return nil, fmt.Errorf("column %q: the value of older rows: %w", f.Name, err)
			}
			if !c.literalDefault() { // the default of a text is an expression
				value = "(" + value + ")"
			}
			add += " DEFAULT " + value
			plain = append(plain, "MODIFY COLUMN "+c.definition(e.s.db.stamps))
		}
		adds = append(adds, add)
	}
	if err := e.alter(ctx, adds...); err != nil {
		return nil, err
	}
	if e.rewriting && len(plain) > 0 { // rows that were written before, and come again, have the value of older rows
		e.s.after = append(e.s.after, "ALTER TABLE "+e.d.target.String()+" "+strings.Join(plain, ", "))
		return known, nil
	}
	return known, e.alter(ctx, plain...)
}

// literalDefault reports whether the default of a column may be a literal; else it is an expression.
func (c *tableColumn) literalDefault() bool {
	switch c.form {
	case formText:
		return !strings.HasSuffix(c.data, "text")
	case formBytes:
		return c.data == "varbinary"
	case formJSON, formGeometry:
		return false
	default:
		return true
	}
}

// constant returns the literal of a value that is given by its canonical text.
func constant(f arrow.Field, text string, c tableColumn) (string, error) {
	b := array.NewBuilder(memory.DefaultAllocator, f.Type)
	defer b.Release()
	if err := record.ParseText(b, text); err != nil {
		return "", err //nolint:wrapcheck // the caller names the column
	}
	fits, err := fit(f, c, ways{utc: true, minusZero: true})
	if err != nil {
		return "", err
	}
	cell, err := newOutCell(&fits, b.NewArray())
	if err != nil {
		return "", err
	}
	out, err := cell.literal(nil, 0)
	return string(out), err
}

// retype changes types of columns where the values would not fit otherwise.
func (e *evolution) retype(ctx context.Context, _ []knownColumn) ([]knownColumn, error) {
	if len(e.retyped) == 0 {
		return nil, nil
	}
	design, err := e.s.db.design(ctx, e.to, e.d.place, e.s.cfg.Instants)
	if err != nil {
		return nil, err
	}
	if err := e.s.look(ctx, e.d); err != nil {
		return nil, err
	}
	for _, r := range e.retyped {
		f := e.to.Columns.Field(r.col)
		was, ok := e.d.table.column(f.Name)
		if !ok || was.generated != 0 {
			continue
		}
		now, err := fit(f, was, e.s.ways())
		if err != nil {
			return nil, err
		}
		if now.Fidelity == connector.Exact {
			continue
		}
		want := design.columns[r.col]
		if want.native() == was.native() {
			continue // nothing that the server has is wider
		}
		if wider, ok := widerType(was, want); ok && was.sql != r.before {
			want = wider // its type is not the source's own
		}
		want.notNull = was.notNull
		change := "MODIFY COLUMN " + want.definition(e.s.db.stamps)
		if err := e.alter(ctx, change); err != nil {
			return nil, e.untypeable(f.Name, change, err)
		}
	}
	return nil, nil
}

// untypeable explains why a column did not get its type, and what to do.
func (e *evolution) untypeable(column, change string, err error) error {
	server, ok := serverErrorOf(err)
	if !ok || server.number == errLockWait {
		return err
	}
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "mysql.retype", Doing: "changing the table " + e.d.target.String(), Dataset: e.to.Dataset,
		Column: column, Err: server,
		Hint: "change it by hand, in a way that the values can be had by, and start again: " +
			fmt.Sprintf("ALTER TABLE %s %s", e.d.place, change),
	}
}

// forbidden says what would have to be done, where create is never.
func (e *evolution) forbidden(ctx context.Context) error {
	var changes []string
	for _, name := range e.dropped {
		changes = append(changes, "DROP COLUMN "+ident(name))
	}
	design, err := e.s.db.design(ctx, e.to, e.d.place, e.s.cfg.Instants)
	if err != nil {
		return err
	}
	for _, i := range e.added {
		c := design.columns[i]
		c.notNull = false
		changes = append(changes, "ADD COLUMN "+c.definition(e.s.db.stamps))
	}
	for _, r := range e.retyped {
		was, ok := e.d.table.column(r.name)
		if now, err := fit(e.to.Columns.Field(r.col), was, e.s.ways()); ok && err == nil && now.Fidelity != connector.Exact {
			changes = append(changes, "MODIFY COLUMN "+design.columns[r.col].definition(e.s.db.stamps))
		}
	}
	for _, r := range e.renamed {
		changes = append(changes, fmt.Sprintf("RENAME COLUMN %s TO %s", ident(r.From), ident(r.To)))
	}
	if len(changes) == 0 {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "mysql.columns", Doing: "changing " + e.d.target.String(), Dataset: e.to.Dataset,
		Err:  errors.New("the table does not fit the new schema, and create is never"),
		Hint: fmt.Sprintf("ALTER TABLE %s %s", e.d.place, strings.Join(changes, ", ")),
	}
}

// widerType returns the type that a column changes to: only to one that holds every value of the old one.
func widerType(was, want tableColumn) (tableColumn, bool) {
	switch {
	case was.form == formInt && want.form == formInt && was.unsigned == want.unsigned:
		return want, integerWidth(want.data) > integerWidth(was.data)
	case was.form == formInt && want.form == formDecimal:
		return parseType(fmt.Sprintf("decimal(%d,%d)", maxPrecision, maxScale)), true
	case was.form == formDecimal && (want.form == formInt || want.form == formDecimal):
		return parseType(fmt.Sprintf("decimal(%d,%d)", maxPrecision, maxScale)), true
	case was.form == formFloat && want.form == formDouble:
		return want, true
	case want.form == formText && want.data == "longtext":
		return want, true // every scalar has a text form
	}
	return want, false
}

func integerWidth(data string) int {
	if data == "bigint" {
		return 64
	}
	return integerBits(data)
}

// replanOlder makes the plan for rows of a schema that the table may have left behind: columns are found by their ids where their names
// changed, and those that are gone are left out.
func (s *Sink) replanOlder(ctx context.Context, d *dataset, schema *record.Schema) error {
	known, err := s.known(ctx, d.name)
	if err != nil {
		return err
	}
	if err := s.look(ctx, d); err != nil {
		return err
	}
	as := schema.Names()
	for i, c := range columnsOf(schema) {
		at := slices.IndexFunc(known, func(k knownColumn) bool { return k.ID != "" && k.ID == c.ID })
		switch {
		case at >= 0:
			as[i] = known[at].Name
		case c.ID != "" && len(known) > 0: // gone, or its name is that of another one
			as[i] = ""
		}
	}
	p, err := joinPlan(schema, d.table, as, s.ways())
	if err != nil {
		return err
	}
	d.setPlan(p)
	return nil
}
