package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgoutput"
	"github.com/leatdata/leat/record"
)

// streamDataset is a dataset of the stream, with its columns as they are at this place of it.
type streamDataset struct {
	table    *sourceTable
	schema   *record.Schema
	relation *streamRelation // that schema and rows are made for; nil: no change was seen yet
	rows     *pgoutput.Rows
	enums    []enumColumn
	part     *part // of the present group
}

// enumColumn is a column of a description whose values are labels. The server does not say when there are new ones.
type enumColumn struct {
	at     int // in the description
	labels map[string]bool
}

// streamRelation is a table as the server describes it in the stream.
type streamRelation struct {
	message pgoutput.Relation
	number  uint64 // grows with each description, in the order in which the server wrote them
	dataset *streamDataset
	ignored bool // it is not selected
}

// describe takes note of a table's description. What it means is found out with the first change.
func (f *stream) describe(m pgoutput.Relation) {
	f.last = nil
	if f.replay != nil {
		f.overlay[m.ID] = &streamRelation{message: m, number: f.replay.number()}
		return
	}
	f.described++
	f.relations[m.ID] = &streamRelation{message: m, number: f.described}
}

// relation returns what a change's relation is, ready to take it. The descriptions within a transaction that came in blocks are its
// own: others may be newer, although they stand before its end in the stream.
func (f *stream) relation(ctx context.Context, id uint32) (*streamRelation, error) {
	if r := f.last; r != nil && r.message.ID == id && (r.ignored || r.dataset.relation == r) {
		return r, nil
	}
	r := f.relations[id]
	if own := f.overlay[id]; own != nil && f.replay != nil {
		r = own
	}
	if r == nil {
		return nil, fmt.Errorf("the server sent a change of relation %d and did not describe it", id)
	}
	if r.dataset == nil && !r.ignored {
		if err := f.meet(ctx, r); err != nil {
			return nil, err
		}
	}
	if !r.ignored && r.dataset.relation != r {
		if err := f.adopt(ctx, r); err != nil {
			return nil, err
		}
	}
	f.last = r
	return r, nil
}

// settle makes the descriptions of a transaction that came in blocks the stream's own, where none is newer.
func (f *stream) settle() {
	for id, r := range f.overlay {
		if was := f.relations[id]; was == nil || was.number < r.number {
			f.relations[id] = r
		}
	}
	clear(f.overlay)
	f.last = nil
}

// meet finds the dataset of a relation. One that is selected and not known yet joins at this place.
func (f *stream) meet(ctx context.Context, r *streamRelation) error {
	place := relation{schema: r.message.Namespace, name: r.message.Name}
	name := place.dataset()
	if r.dataset = f.datasets[name]; r.dataset != nil {
		f.names[r.message.ID] = name
		return nil
	}
	if f.excluded[name] {
		r.ignored = true
		return nil
	}
	if f.s.cfg.means(place) {
		if err := f.joinNow(ctx, name); err != nil {
			return err
		}
		if r.dataset = f.datasets[name]; r.dataset != nil {
			f.names[r.message.ID] = name
			return nil
		}
	}
	if before := f.names[r.message.ID]; before != "" {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.table.renamed", Doing: "reading the stream of changes", Dataset: before,
			Err:  fmt.Errorf("the table is called %s from here on, which the selection does not mean", name),
			Hint: "select it by its new name, or rename it back",
		}
	}
	root, err := f.rootOf(ctx, r.message.ID)
	if err != nil {
		return err
	}
	if root != "" {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.partition", Doing: "reading the stream of changes", Dataset: root,
			Err:  fmt.Errorf("the publication %q sends its changes under the name of its part %s", f.s.publicationName(), name),
			Hint: "ALTER PUBLICATION " + ident(f.s.publicationName()) + " SET (publish_via_partition_root = true);",
		}
	}
	r.ignored = true
	return nil
}

// rootOf names the selected dataset that a relation is a partition of; empty: none.
func (f *stream) rootOf(ctx context.Context, oid uint32) (root string, err error) {
	err = f.s.borrow(ctx, func(pg *pgconn.PgConn) error {
		f.s.env.Roundtrip("catalogue")
		rows, err := ask(ctx, pg, `SELECT n.nspname, c.relname FROM pg_catalog.pg_partition_ancestors($1::oid::regclass) a
			JOIN pg_catalog.pg_class c ON c.oid = a.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace`,
			strconv.FormatUint(uint64(oid), 10))
		for _, row := range rows {
			if name := (relation{schema: string(row[0]), name: string(row[1])}).dataset(); f.datasets[name] != nil {
				root = name
			}
		}
		return err
	})
	return root, f.s.cfg.wrap("looking up a relation of the stream", err)
}

// means reports whether the selection may mean a table of this name.
func (c *SourceConfig) means(r relation) bool {
	if c.Table != "" {
		return c.place(c.Table) == r
	}
	some, found := false, false
	for _, p := range c.patterns() {
		if not, ok := strings.CutPrefix(p, "!"); ok {
			if c.glob(not).MatchString(r.dataset()) {
				return false
			}
			continue
		}
		some, found = true, found || c.glob(p).MatchString(r.dataset())
	}
	return found || !some
}

// adopt fits the dataset to a description: the columns of the changes from here on.
func (f *stream) adopt(ctx context.Context, r *streamRelation) error {
	d := r.dataset
	t, err := f.tableOf(ctx, d, &r.message)
	if err != nil {
		return f.s.tableError("reading the stream of changes", d.table, err)
	}
	if d.relation != nil && t.schema == d.schema && slices.Equal(d.relation.message.Columns, r.message.Columns) {
		d.table, d.relation = t, r
		return nil
	}
	rows, err := collector(t, &r.message)
	if err != nil {
		return f.s.tableError("reading the stream of changes", t, err)
	}
	d.seal()
	if t.schema != d.schema {
		f.s.env.Log.InfoContext(ctx, "the stream has other columns from here on", slog.String("dataset", t.dataset),
			slog.String("columns", strings.Join(t.schema.Names(), ", ")), slog.String("position", f.at.lsn.String()))
		if err := f.noteRewritten(ctx, d.schema, t.schema, r.message.ID); err != nil {
			return f.s.tableError("reading the stream of changes", t, err)
		}
	}
	d.table, d.schema, d.rows, d.relation = t, t.schema, rows, r
	d.enums = enumsOf(t, &r.message)
	return nil
}

func enumsOf(t *sourceTable, m *pgoutput.Relation) (out []enumColumn) {
	for i, c := range m.Columns {
		at := t.schema.Column(c.Name)
		if at < 0 {
			continue
		}
		if typ, err := record.TypeOf(t.schema.Columns.Field(at).Type); err == nil && typ.Kind == record.Enum {
			labels := make(map[string]bool, len(typ.Labels))
			for _, l := range typ.Labels {
				labels[l] = true
			}
			out = append(out, enumColumn{at: i, labels: labels})
		}
	}
	return out
}

// relabel looks the table up again where a row has a label that the schema does not.
func (f *stream) relabel(ctx context.Context, r *streamRelation, row pgoutput.Tuple) error {
	d := r.dataset
	for i := 0; i < len(d.enums); i++ {
		e := d.enums[i]
		if e.at >= row.Len() {
			continue
		}
		_, label := row.Value(e.at)
		if label == nil || e.labels[string(label)] {
			continue
		}
		if err := f.adopt(ctx, r); err != nil {
			return err
		}
		for _, now := range d.enums { // also where it is no label any more
			if now.at == e.at {
				now.labels[string(label)] = true
			}
		}
	}
	return nil
}

// rewrittenSQL finds columns that have a default and no value for older rows: the server computed one for each.
const rewrittenSQL = `SELECT pg_catalog.string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = $1::oid AND a.attname = ANY ($2::text[]) AND NOT a.atthasmissing AND (a.atthasdef OR a.attidentity <> '')
	AND a.attgenerated = ''`

// noteRewritten says which new columns have values in older rows that the log does not tell of.
func (f *stream) noteRewritten(ctx context.Context, was, now *record.Schema, oid uint32) error {
	added := record.Diff(was, now).Added
	added = slices.DeleteFunc(added, func(name string) bool {
		_, known := record.MissingOf(now.Columns.Field(now.Column(name)))
		return known
	})
	if len(added) == 0 {
		return nil
	}
	return f.s.borrow(ctx, func(pg *pgconn.PgConn) error {
		names := textArray(len(added), func(i int) (string, bool) { return added[i], true })
		rows, err := ask(ctx, pg, rewrittenSQL, strconv.FormatUint(uint64(oid), 10), names)
		if err == nil && rows[0][0] != nil {
			f.s.env.Log.WarnContext(ctx, "new columns may have values in older rows that no change tells of; --resnapshot copies them",
				slog.String("dataset", now.Dataset), slog.String("columns", string(rows[0][0])))
		}
		return err
	})
}

// tableOf returns the table as a description has it. Where the catalogue says the same, the schema is the one that the chunks of
// snapshots have; where the catalogue is ahead of the stream, names and types are the stream's. A description that comes again is
// looked up again: it does not tell what else changed, such as that a column may be NULL now.
func (f *stream) tableOf(ctx context.Context, d *streamDataset, m *pgoutput.Relation) (*sourceTable, error) {
	if d.relation == nil && f.matches(d.table, m) {
		return d.table, nil
	}
	now, err := f.s.refresh(ctx, d.table.dataset)
	switch {
	case err == nil && f.matches(now, m):
		return now.inPlaceOf(d.schema), nil
	case err != nil && connector.ClassOf(err) != connector.ClassConfig:
		return nil, err
	case err != nil: // it was dropped since, or a column was that the options name
		now = d.table
	}
	t, err := f.past(ctx, now, d.table, m)
	if err != nil {
		return nil, err
	}
	return t.inPlaceOf(d.schema), nil
}

// inPlaceOf lets a table keep the schema that was there, where nothing in it is different.
func (t *sourceTable) inPlaceOf(was *record.Schema) *sourceTable {
	if t.schema == was {
		return t
	}
	same := *t
	if slices.Equal(was.Key, t.schema.Key) && was.Columns.Equal(t.schema.Columns) {
		same.schema = was
	} else if t.schema.Version <= was.Version {
		schema := *t.schema
		schema.Version = was.Version + 1
		same.schema = &schema
	}
	return &same
}

// matches reports whether the catalogue's columns and key are those of a description.
func (f *stream) matches(t *sourceTable, m *pgoutput.Relation) bool {
	if m.Identity != t.identity {
		return false
	}
	sent := make(map[string]pgoutput.Column, len(m.Columns))
	for _, c := range m.Columns {
		sent[c.Name] = c
		isKey := slices.ContainsFunc(t.key, func(k sourceColumn) bool { return k.name == c.Name })
		if slices.Contains(t.left, c.Name) || (c.Key && !isKey && m.Identity != identityFull) {
			return false
		}
	}
	for _, k := range t.key {
		if !sent[k.name].Key {
			return false
		}
	}
	for _, c := range t.cols {
		if s, ok := sent[c.name]; !ok || s.Type != c.typ || s.Mod != c.mod {
			return false
		}
	}
	return len(f.s.cfg.Columns) > 0 || len(t.cols) == len(m.Columns)
}

// identityFull is the replica identity that sends whole rows.
const identityFull = 'f'

// collector makes the collector of a table's changes.
func collector(t *sourceTable, m *pgoutput.Relation) (*pgoutput.Rows, error) {
	columns := make([]pgoutput.RowColumn, len(m.Columns))
	for i, c := range m.Columns {
		columns[i].Target = slices.IndexFunc(t.cols, func(k sourceColumn) bool { return k.name == c.Name })
		if at := columns[i].Target; at >= 0 {
			columns[i].Type, columns[i].Binary = t.types[at], t.cols[at].inBinary()
		}
	}
	//nolint:wrapcheck // the caller says what was being done
	return pgoutput.NewRows(t.schema, columns, pgoutput.Options{CheckUTF8: t.utf8})
}

// inBinary reports whether the values of a column can be read in the binary form of their own type.
func (c *sourceColumn) inBinary() bool { return c.expr == ident(c.name) }

// errUnknownType says that the catalogue has no type any more that the stream still has.
var errUnknownType = errors.New("the stream has values of a type that was dropped since")

// past returns the table as it was when a description was written, and as the catalogue no longer has it, or does not have it yet.
func (f *stream) past(ctx context.Context, now, before *sourceTable, m *pgoutput.Relation) (*sourceTable, error) {
	cols := make([]sourceColumn, len(m.Columns))
	for i, c := range m.Columns {
		cols[i] = sourceColumn{name: c.Name, typ: c.Type, mod: c.Mod, notNull: c.Key && m.Identity != identityFull}
	}
	types, attributes, err := f.lookUp(ctx, cols, m.ID, now.left)
	if err != nil {
		return nil, err
	}
	numberColumns(cols, attributes, now.cols, before.cols)
	o := readOptions{exactNumeric: f.s.cfg.Numeric == "numeric", as: f.s.cfg.Types}
	for i := range cols {
		if types[cols[i].typ] == nil {
			if f.binary {
				return nil, &connector.Error{
					Class: connector.ClassConfig, Code: "postgres.type", Doing: "reading the stream of changes", Column: cols[i].name,
					Err: errUnknownType, Hint: "binary=off reads the values as text",
				}
			}
			types[cols[i].typ] = f.lostType(cols[i].typ)
			cols[i].sql = types[cols[i].typ].sql
		}
		if err := types.carry(&cols[i], o); err != nil {
			return nil, err
		}
	}
	t := &sourceTable{
		dataset: now.dataset, rel: now.rel, kind: now.kind, from: now.from, utf8: now.utf8, identity: m.Identity, asOf: now.asOf,
	}
	t.pick(cols, f.s.cfg.Columns, keyOf(m, now))
	if err := t.buildSchema(); err != nil {
		return nil, err
	}
	t.keepMissing(now.schema)
	return t, nil
}

// keepMissing takes over what rows have that are older than a column, from a schema that has the same column.
func (t *sourceTable) keepMissing(from *record.Schema) {
	fields := t.schema.Columns.Fields()
	for i, c := range fields {
		for _, k := range from.Columns.Fields() {
			v, ok := record.MissingOf(k)
			if ok && record.IDOf(k) == record.IDOf(c) && record.IDOf(c) != "" && arrow.TypeEqual(k.Type, c.Type) {
				fields[i] = record.WithMissing(c, v)
			}
		}
	}
	t.schema.Columns = arrow.NewSchema(fields, nil)
}

// pick chooses columns and key from those that there are.
func (t *sourceTable) pick(all []sourceColumn, wanted, key []string) {
	t.cols = all
	named := func(name string) int {
		return slices.IndexFunc(all, func(c sourceColumn) bool { return c.name == name })
	}
	if len(wanted) > 0 {
		t.cols = nil
		for _, name := range wanted {
			if i := named(name); i >= 0 {
				t.cols = append(t.cols, all[i])
			}
		}
	}
	for _, name := range key {
		if i := named(name); i >= 0 {
			t.key = append(t.key, all[i])
		}
	}
}

// keyOf names the key columns of a description: those of the replica identity, in the order of the catalogue where that has the same
// ones; of whole rows the catalogue's key.
func keyOf(m *pgoutput.Relation, now *sourceTable) []string {
	var key, known []string
	there := true
	for _, c := range m.Columns {
		if c.Key && m.Identity != identityFull {
			key = append(key, c.Name)
		}
	}
	for _, k := range now.key {
		known = append(known, k.name)
		there = there && slices.ContainsFunc(m.Columns, func(c pgoutput.Column) bool { return c.Name == k.name })
	}
	switch {
	case m.Identity == identityFull && there, slices.Equal(slices.Sorted(slices.Values(key)), slices.Sorted(slices.Values(known))):
		return known
	}
	return key
}

// attribute is a column that a table has or had, as the catalogue keeps it.
type attribute struct {
	num     int
	name    string
	typ     uint32
	dropped bool
}

// numberColumns finds the stable ids of columns as they once were. They come in the order of their numbers. Numbers only grow: a column
// that the table still has, and whose number is smaller than that of one of them, was there too. So only columns that were dropped since
// may lie between them; of the ways that remain, the one counts in which most names and types are those of now or of before.
func numberColumns(cols []sourceColumn, attributes []attribute, now, before []sourceColumn) {
	n, m := len(cols), len(attributes)
	const impossible = -1000
	best := make([][]int, n+1) // of the columns from i on among the attributes from j on
	for i := range best {
		best[i] = make([]int, m+1)
		best[i][m] = impossible * (n - i)
	}
	byNumber := func(known []sourceColumn, num int) *sourceColumn {
		at := slices.IndexFunc(known, func(k sourceColumn) bool { return k.num == num })
		if at < 0 {
			return nil
		}
		return &known[at]
	}
	match := func(i, j int) int {
		return attributes[j].likeness(&cols[i], byNumber(before, attributes[j].num)) + best[i+1][j+1]
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			best[i][j] = match(i, j)
			if attributes[j].dropped {
				best[i][j] = max(best[i][j], best[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < n && j < m; j++ {
		if best[i][j] != match(i, j) {
			continue
		}
		cols[i].num, cols[i].id = attributes[j].num, strconv.Itoa(attributes[j].num)
		if k := byNumber(now, attributes[j].num); k != nil {
			cols[i].notNull = cols[i].notNull || k.notNull
		}
		i++
	}
}

// likeness is how much speaks for a column being this one; was is what the column was like in the stream so far.
func (a *attribute) likeness(c, was *sourceColumn) int {
	score := 0
	if !a.dropped {
		switch sameName, sameType := a.name == c.name, a.typ == c.typ; {
		case sameName && sameType:
			score = 4
		case sameName:
			score = 3
		case sameType:
			score = 1
		default:
			score = -2
		}
	}
	if was != nil && was.name == c.name {
		score += 3
	}
	if was != nil && was.typ == c.typ {
		score++
	}
	return score
}

// attributesSQL reads the columns of a table with those that were dropped.
const attributesSQL = `SELECT a.attnum, a.attname, a.atttypid, a.attisdropped FROM pg_catalog.pg_attribute a
WHERE a.attrelid = $1::oid AND a.attnum > 0 ORDER BY a.attnum`

// readAttributes returns what a table has and had, without what the stream does not send.
func readAttributes(ctx context.Context, pg *pgconn.PgConn, oid uint32, unsent []string) ([]attribute, error) {
	rows, err := ask(ctx, pg, attributesSQL, strconv.FormatUint(uint64(oid), 10))
	if err != nil {
		return nil, err
	}
	var out []attribute
	for _, r := range rows {
		a := attribute{num: int(toInt(r[0])), name: string(r[1]), typ: toOID(r[2]), dropped: isTrue(r[3])}
		if !slices.Contains(unsent, a.name) {
			out = append(out, a)
		}
	}
	return out, nil
}

// lookUp reads the types of columns, how SQL writes them, and all columns that the table has and had. A type that was dropped since is
// missing.
func (f *stream) lookUp(
	ctx context.Context, cols []sourceColumn, oid uint32, unsent []string,
) (types serverTypes, attributes []attribute, err error) {
	err = f.s.borrow(ctx, func(pg *pgconn.PgConn) (err error) {
		f.s.env.Roundtrip("catalogue")
		if err = f.s.begin(ctx, pg, ""); err != nil {
			return err
		}
		if err = command(ctx, pg, catalogPath); err != nil {
			return err
		}
		if err = nameTypes(ctx, pg, cols); err != nil {
			return err
		}
		if types, err = readTypes(ctx, pg, cols); err != nil {
			return err
		}
		if attributes, err = readAttributes(ctx, pg, oid, unsent); err != nil {
			return err
		}
		return command(ctx, pg, "COMMIT")
	})
	return types, attributes, err
}

// lostType stands for a type that was dropped: its values are kept as text.
func (f *stream) lostType(oid uint32) *serverType {
	t := &serverType{oid: oid, schema: "public", name: "unknown", kind: 'b', output: "pg_catalog.textout"}
	if m, ok := f.types[oid]; ok {
		t.schema, t.name = m.Namespace, m.Name
	}
	t.sql = relation{schema: t.schema, name: t.name}.String()
	return t
}

// nameTypes asks for the types' names as SQL writes them.
func nameTypes(ctx context.Context, pg *pgconn.PgConn, cols []sourceColumn) error {
	oids, mods := make([]string, len(cols)), make([]string, len(cols))
	for i, c := range cols {
		oids[i], mods[i] = strconv.FormatUint(uint64(c.typ), 10), strconv.Itoa(int(c.mod))
	}
	names, err := ask(ctx, pg, `SELECT pg_catalog.format_type(u.o, u.m)
		FROM ROWS FROM (pg_catalog.unnest($1::oid[]), pg_catalog.unnest($2::int4[])) WITH ORDINALITY u(o, m, n) ORDER BY u.n`,
		"{"+strings.Join(oids, ",")+"}", "{"+strings.Join(mods, ",")+"}")
	if err != nil {
		return err
	}
	for i := range cols {
		cols[i].sql = string(names[i][0])
	}
	return nil
}
