package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// followed is what the catalogue says of a table's place in the stream.
type followed struct {
	identity byte     // pg_class.relreplident
	key      []string // of the replica identity; the primary key where that is the whole row
	shape    string   // as followedShapeSQL gives it
	asOf     uint64   // the end of the snapshot that all this was read under
	columns  []string // that the publication sends; nil: it does not say
	filter   string   // which rows it sends; empty: all
	computed bool     // stored generated columns are sent although columns may lack them
	listable bool     // columns may have stored generated columns
}

// followedShapeSQL is an expression for all that decides how a table's rows are read and sent: its columns in full, its keys, and that it
// is still the same table. In a chunk a column that is missing could never be made up for: the stream's changes of it may be included
// in the chunk's snapshot.
func followedShapeSQL(oid string) string {
	return fmt.Sprintf(`(SELECT pg_catalog.concat_ws(E'\n', r.oid, r.relreplident,
	(SELECT pg_catalog.string_agg(pg_catalog.concat_ws(':', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated),
		E'\n' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped),
	(SELECT pg_catalog.string_agg(pg_catalog.concat_ws(':', i.indkey, i.indisprimary, i.indisreplident, i.indimmediate), E'\n'
		ORDER BY i.indexrelid) FROM pg_catalog.pg_index i WHERE i.indrelid = r.oid AND (i.indisprimary OR i.indisreplident)))
	FROM pg_catalog.pg_class r WHERE r.oid = %s)`, oid)
}

// replicaKeySQL reads the key that the stream's changes carry. An index that is checked only at the commit is no replica identity.
const replicaKeySQL = `
SELECT c.oid, c.relreplident, (SELECT pg_catalog.json_agg(a.attname ORDER BY k.n)
	FROM pg_catalog.pg_index i CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY k(num, n)
	JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
	WHERE i.indrelid = c.oid AND k.n <= i.indnkeyatts AND i.indisvalid AND (i.indimmediate OR c.relreplident = 'f')
		AND CASE c.relreplident WHEN 'i' THEN i.indisreplident WHEN 'n' THEN false ELSE i.indisprimary END), %s,
	pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()), pg_catalog.current_setting('server_version_num')
FROM pg_catalog.pg_class c WHERE c.oid = ANY ($1::oid[])`

// publishedSQL reads what a publication sends of tables.
const publishedSQL = `
SELECT c.oid, pg_catalog.to_json(p.attnames), p.rowfilter
FROM pg_catalog.pg_publication_tables p
JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE p.pubname = $1 AND c.oid = ANY ($2::oid[])`

// readFollowed reads what there is to know of tables that are followed. The search_path must be pg_catalog, so that conditions come out
// with qualified names.
func (s *Source) readFollowed(ctx context.Context, pg *pgconn.PgConn, oids string) (map[uint32]*followed, error) {
	p, err := readPublication(ctx, pg, s.publicationName(), s.env.Pipeline)
	if err != nil {
		return nil, err
	}
	rows, err := ask(ctx, pg, fmt.Sprintf(replicaKeySQL, followedShapeSQL("c.oid")), oids)
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]*followed, len(rows))
	version, fits := int64(0), p == nil || (p.ours() && p.plain()) // it will be made, or made to fit
	for _, r := range rows {
		version = toInt(r[5])
		f := &followed{identity: r[1][0], shape: string(r[3]), asOf: uint64(toInt(r[4])), listable: version >= generatedVersion}
		f.computed = f.listable && (fits || p.Generated == "s")
		if r[2] != nil {
			if err := json.Unmarshal(r[2], &f.key); err != nil {
				return nil, fmt.Errorf("reading a replica identity: %w", err)
			}
		}
		out[toOID(r[0])] = f
	}
	if version < columnsVersion || p == nil {
		return out, nil
	}
	rows, err = ask(ctx, pg, publishedSQL, p.Name, oids)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		f := out[toOID(r[0])]
		if f == nil {
			continue
		}
		f.filter = string(r[2])
		if r[1] != nil {
			if err := json.Unmarshal(r[1], &f.columns); err != nil {
				return nil, fmt.Errorf("reading the columns of a publication: %w", err)
			}
			f.computed = f.computed && fits
		}
	}
	return out, nil
}

// published leaves out the columns that the stream does not send: those that the publication does not have, and those that the server
// computes and does not send. Both phases have the same columns.
func (f *followed) published(all []catalogColumn) (cols []sourceColumn, left []string) {
	for _, c := range all {
		listed := slices.Contains(f.columns, c.name)
		sent := listed || f.columns == nil
		if c.generated != 0 {
			sent = f.listable && c.generated == 's' && (listed || f.computed)
		}
		if !sent {
			left = append(left, c.name)
			continue
		}
		c.id = strconv.Itoa(c.num)
		cols = append(cols, c.sourceColumn)
	}
	return cols, left
}

// resolveFollowed resolves tables that are followed.
func (s *Source) resolveFollowed(
	ctx context.Context, pg *pgconn.PgConn, selected []relationInfo, columns map[uint32][]catalogColumn,
) ([]*sourceTable, error) {
	oids := make([]string, len(selected))
	for i, r := range selected {
		oids[i] = strconv.FormatUint(uint64(r.oid), 10)
	}
	about, err := s.readFollowed(ctx, pg, "{"+strings.Join(oids, ",")+"}")
	if err != nil {
		return nil, err
	}
	tables, cols := make([]*sourceTable, len(selected)), make([][]sourceColumn, len(selected))
	var flat []sourceColumn
	for i, r := range selected {
		t := &sourceTable{dataset: r.rel.dataset(), rel: r.rel, kind: r.kind, rows: r.rows, bytes: r.bytes, pages: r.pages}
		t.from = r.rel.String()
		if r.kind == 'r' {
			t.from = "ONLY " + t.from // what inherits from it is another table in the stream
		}
		t.lock = t.from
		f := about[r.oid]
		if f == nil {
			return nil, s.cfg.noTable(t.dataset, nil) // it was dropped just now
		}
		cols[i], t.left = f.published(columns[r.oid])
		flat = append(flat, cols[i]...)
		tables[i] = t
	}
	types, err := readTypes(ctx, pg, flat)
	if err != nil {
		return nil, err
	}
	for i, r := range selected {
		if err := s.follow(tables[i], about[r.oid], cols[i], types); err != nil {
			return nil, err
		}
		tables[i].utf8 = unchecked(pg)
		if err := tables[i].fillMissing(ctx, pg); err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// follow fits a table to the stream. Without a key it is one chunk, and so it is with the option chunks=block: ranges of blocks could
// only be merged with a stream under one snapshot for all of them, in one transaction that lasts as long as the read. Under a snapshot for
// each, a row whose update moves it to another block is in both ranges or in none.
func (s *Source) follow(t *sourceTable, f *followed, cols []sourceColumn, types serverTypes) error {
	t.identity, t.asOf, t.where = f.identity, f.asOf, s.cfg.Where
	switch {
	case f.filter != "" && t.where != "":
		t.where += "\n) AND (" + f.filter
	case f.filter != "":
		t.where = f.filter
	}
	for _, name := range s.cfg.Columns {
		if slices.Contains(t.left, name) {
			err := s.columnError(t, name, fmt.Errorf("the publication %q does not send it", s.publicationName()))
			return withHint(err, "publish the column, or leave it out of the option columns")
		}
	}
	key := f.key
	if slices.ContainsFunc(key, func(name string) bool { return slices.Contains(t.left, name) }) {
		key = nil // only inserts can be published of it
	}
	if err := s.finish(t, cols, key, types); err != nil {
		return err
	}
	t.shape = f.shape
	return s.fitKey(t, key)
}

func withHint(err error, hint string) error {
	if e, ok := errors.AsType[*connector.Error](err); ok {
		e.Hint = hint
	}
	return err
}

// fitKey checks the key of a table that is followed: changes carry the replica identity, and a row can't be found by anything else.
func (s *Source) fitKey(t *sourceTable, identity []string) error {
	names := make([]string, len(t.key))
	for i, k := range t.key {
		names[i] = k.name
		if t.schema.Column(k.name) < 0 {
			return withHint(s.columnError(t, k.name, errors.New("it is part of the key, and is not read")), "add it to the option columns")
		}
	}
	slices.Sort(names)
	same := slices.Equal(names, slices.Sorted(slices.Values(identity)))
	if len(s.cfg.Key) == 0 || t.identity == 'f' || same {
		return nil
	}
	err := s.columnError(t, names[0], fmt.Errorf("option key: the server sends changes by its replica identity %q", identity))
	return withHint(err, "leave key out, or ALTER TABLE "+t.rel.String()+" REPLICA IDENTITY FULL")
}

// followable keeps what has changes to follow, and says what of the rest was asked for by name.
func (c *SourceConfig) followable(all []relationInfo) ([]relationInfo, error) {
	kinds := map[byte]string{'v': "a view", 'm': "a materialised view", 'f': "a foreign table"}
	out := make([]relationInfo, 0, len(all))
	for _, r := range all {
		why := kinds[r.kind]
		if why == "" && !r.logged {
			why = "unlogged or temporary"
		}
		if why == "" {
			out = append(out, r)
			continue
		}
		named := c.Table != "" && c.place(c.Table) == r.rel
		for _, p := range c.patterns() {
			named = named || (!strings.ContainsAny(p, "*?!") && c.place(p) == r.rel)
		}
		if named {
			return nil, &connector.Error{
				Class: connector.ClassConfig, Code: "postgres.table", Doing: "selecting tables", Dataset: r.rel.dataset(),
				Err: fmt.Errorf("it is %s: its changes are not in the server's log", why), Hint: "leave it out, or read it without follow",
			}
		}
	}
	return out, nil
}

// refresh looks a table up again, also one that was not there before. The table has the same schema as before, by its address, where
// nothing in it changed.
func (s *Source) refresh(ctx context.Context, dataset string) (*sourceTable, error) {
	if _, err := s.resolved(ctx); err != nil {
		return nil, err
	}
	tables, err := s.resolve(ctx, dataset)
	if err != nil {
		return nil, err
	}
	return s.install(tables[0]), nil
}

// install puts a table in the place of what was known of it, unless that is newer.
func (s *Source) install(t *sourceTable) *sourceTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	byName := func(a *sourceTable, name string) int { return strings.Compare(a.dataset, name) }
	i, found := slices.BinarySearchFunc(s.tables, t.dataset, byName)
	if !found {
		s.tables = slices.Insert(slices.Clone(s.tables), i, t)
		return t
	}
	was := s.tables[i]
	if was.asOf > t.asOf {
		return was
	}
	if slices.Equal(was.schema.Key, t.schema.Key) && was.schema.Columns.Equal(t.schema.Columns) {
		t.schema = was.schema
	} else {
		t.schema.Version = was.schema.Version + 1
	}
	s.tables = slices.Clone(s.tables)
	s.tables[i] = t
	return t
}

// fillMissing tells the schema what rows have in columns that are younger than they are: the server keeps one value for all of them. It
// goes the way that all values go, so that it has the same form.
func (t *sourceTable) fillMissing(ctx context.Context, pg *pgconn.PgConn) error {
	var young sourceTable
	var values []string
	var at []int
	for i, c := range t.cols {
		if c.missing != nil {
			at = append(at, i)
			young.cols = append(young.cols, c)
			values = append(values, fmt.Sprintf("%s::%s AS %s", literal(string(c.missing)), c.cast, ident(c.name)))
		}
	}
	if len(at) == 0 {
		return nil
	}
	young.dataset, young.from = t.dataset, "(SELECT "+strings.Join(values, ", ")+") AS q"
	if err := young.buildSchema(); err != nil {
		return err
	}
	fields := t.schema.Columns.Fields()
	d, err := pgcopy.NewDecoder(young.schema, young.types, pgcopy.DecoderOptions{CheckUTF8: t.utf8}, func(b *record.Batch) error {
		for j, i := range at {
			if b.NumRows() > 0 && !b.Rows.Column(j).IsNull(0) {
				fields[i] = record.WithMissing(fields[i], string(record.AppendText(nil, b.Rows.Column(j), 0)))
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the values of older rows: %w", err)
	}
	if _, err := pg.CopyTo(ctx, d, "COPY ("+young.selectSQL(nil, "")+") TO STDOUT (FORMAT binary)"); err != nil {
		return fmt.Errorf("reading the values of older rows: %w", err)
	}
	if err := d.Finish(); err != nil {
		return fmt.Errorf("reading the values of older rows: %w", err)
	}
	t.schema.Columns = arrow.NewSchema(fields, nil)
	return nil
}

// noteLeft says which columns are left out.
func (s *Source) noteLeft(ctx context.Context, t *sourceTable) {
	if len(t.left) > 0 {
		s.env.Log.InfoContext(ctx, "columns are left out that the stream does not send", slog.String("dataset", t.dataset),
			slog.String("columns", strings.Join(t.left, ", ")))
	}
}
