package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// begin opens a transaction that sees one snapshot. The settings decide the text form of values; they end with the transaction, so
// that they hold behind every pooler and bother nobody after it. snapshot is one that another transaction exported; empty: its own.
func (s *Source) begin(ctx context.Context, pg *pgconn.PgConn, snapshot string) error {
	return command(ctx, pg, s.beginSQL(pg, snapshot))
}

func (s *Source) beginSQL(pg *pgconn.PgConn, snapshot string) string {
	sql := "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
	if snapshot != "" {
		sql += " SET TRANSACTION SNAPSHOT " + literal(snapshot) + ";"
	}
	encoding := "UTF8"
	if unchecked(pg) {
		encoding = "SQL_ASCII" // as it is: one value that is not UTF-8 would end the whole read
	}
	sql += fmt.Sprintf(` SET LOCAL client_encoding = '%s'; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL IntervalStyle = postgres;
SET LOCAL TimeZone = 'UTC'; SET LOCAL bytea_output = hex; SET LOCAL extra_float_digits = 3; SET LOCAL xmlbinary = base64;
SET LOCAL standard_conforming_strings = on; SET LOCAL statement_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = 0`,
		encoding, s.cfg.Timeout.Milliseconds())
	if s.cfg.Follow {
		sql += "; SET LOCAL row_security = off" // an error where rows are hidden from the role: the stream does not hide them
	}
	return sql
}

// unchecked reports whether the server does not vouch for the encoding of its text.
func unchecked(pg *pgconn.PgConn) bool { return pg.ParameterStatus("server_encoding") == "SQL_ASCII" }

// command runs statements that return nothing of interest.
func command(ctx context.Context, pg *pgconn.PgConn, sql string) error {
	_, err := pg.Exec(ctx, sql).ReadAll()
	return err //nolint:wrapcheck // callers say what was being done
}

// shapeOf and shapeSQL describe columns alike: names and types.
func shapeOf(cols []sourceColumn) string {
	parts := make([]string, len(cols))
	for i, c := range cols {
		parts[i] = fmt.Sprintf("%s:%d:%d", c.name, c.typ, c.mod)
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n")
}

// shapeSQL is an expression for the present shape of a relation's columns.
func shapeSQL(t *sourceTable) string {
	names := make([]string, len(t.cols))
	for i, c := range t.cols {
		names[i] = literal(c.name)
	}
	return fmt.Sprintf(`(SELECT pg_catalog.string_agg(a.d, E'\n' ORDER BY a.d COLLATE "C") FROM (
	SELECT a.attname || ':' || a.atttypid || ':' || a.atttypmod AS d FROM pg_catalog.pg_attribute a
	WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attname IN (%s)) a)`,
		literal(t.rel.String()), strings.Join(names, ", "))
}

// bound is one end of a chunk.
type bound struct {
	Key   []string `json:"key,omitempty"`   // the key's values, as the server prints them
	Of    string   `json:"of,omitempty"`    // the key's columns, of a table that is followed
	Block *int64   `json:"block,omitempty"` // byBlock: the first block behind
}

func decodeBound(raw json.RawMessage) (bound, error) {
	var b bound
	if raw == nil {
		return b, nil
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return b, fmt.Errorf("the end %s of a chunk: %w", raw, err)
	}
	return b, nil
}

func (b bound) encode() json.RawMessage {
	doc, err := json.Marshal(b)
	if err != nil {
		panic(fmt.Sprintf("postgres: encoding a bound: %v", err)) // strings and numbers always marshal
	}
	return doc
}

// ReadChunk implements connector.Snapshotter: one short transaction, one COPY. A table that is followed is looked up once more where its
// columns changed.
func (s *Source) ReadChunk(ctx context.Context, c record.Chunk, emit func(*record.Batch) error) error {
	t, err := s.find(ctx, c.Dataset)
	if err != nil {
		return err
	}
	read := func(pg *pgconn.PgConn) error { return s.readChunk(ctx, pg, t, c, emit) }
	err = s.borrow(ctx, read)
	if errors.Is(err, errShape) && s.cfg.Follow {
		if t, err = s.refresh(ctx, c.Dataset); err != nil {
			return err
		}
		err = s.borrow(ctx, read)
	}
	if err != nil {
		return s.tableError("reading from PostgreSQL", t, err)
	}
	return nil
}

// tableError adds the dataset.
func (s *Source) tableError(doing string, t *sourceTable, err error) error {
	wrapped := s.cfg.wrap(doing, err)
	var e *connector.Error
	if errors.As(wrapped, &e) && e.Dataset == "" {
		e.Dataset = t.dataset
	}
	return wrapped
}

func (s *Source) find(ctx context.Context, dataset string) (*sourceTable, error) {
	tables, err := s.resolved(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(tables, func(t *sourceTable) bool { return t.dataset == dataset })
	if i < 0 && s.cfg.Follow {
		return s.refresh(ctx, dataset)
	}
	if i < 0 {
		return nil, fmt.Errorf("dataset %s is not selected", dataset)
	}
	return tables[i], nil
}

func (s *Source) readChunk(ctx context.Context, pg *pgconn.PgConn, t *sourceTable, c record.Chunk, emit func(*record.Batch) error) error {
	r, err := t.rangeOf(c)
	if err != nil {
		return err
	}
	if c.Snapshot, err = s.enterChunk(ctx, pg, t, c, r); err != nil {
		return err
	}
	if c.Where != "" {
		if err := s.checkCondition(ctx, pg, t, c.Where); err != nil {
			return err
		}
		r.where = append(r.where, conditionSQL(c.Where))
	}
	empty := true
	d, err := s.rowsOf(t, func(b *record.Batch) error {
		b.Chunk, empty = &c, false
		s.advise(b)
		return emit(b)
	})
	if err != nil {
		return fmt.Errorf("reading %s: %w", t.dataset, err)
	}
	s.env.Roundtrip("copy")
	if _, err := pg.CopyTo(ctx, d, "COPY ("+t.selectSQL(r.where, t.order())+") TO STDOUT (FORMAT binary)"); err != nil {
		return s.conditionFailed(t, c.Where, err)
	}
	s.env.Roundtrip("commit")
	if err := command(ctx, pg, "COMMIT"); err != nil {
		return err
	}
	if err := d.Finish(); err != nil {
		return err //nolint:wrapcheck // the caller says what was being done
	}
	if empty {
		return emit(&record.Batch{Schema: t.schema, Chunk: &c}) // it tells snapshot and schema
	}
	return nil
}

// enterChunk begins the transaction of a chunk, with the values of its range bound.
func (s *Source) enterChunk(ctx context.Context, pg *pgconn.PgConn, t *sourceTable, c record.Chunk, r keyRange) (record.Position, error) {
	if s.cfg.Follow {
		seen, err := s.enter(ctx, pg, t)
		if err != nil {
			return record.Position{}, err
		}
		_, err = s.bind(ctx, pg, t, r)
		return seen.encode(), err
	}
	s.env.Roundtrip("begin")
	var err error
	if t.mode == byBlock {
		err = s.adopt(ctx, pg, c)
	} else {
		err = s.begin(ctx, pg, "")
	}
	if err != nil {
		return record.Position{}, err
	}
	seen, err := s.secure(ctx, pg, t, r)
	return snapshotPosition(seen), err
}

// snapshotShape is the layout of Chunk.Snapshot: the server's own text, xmin:xmax:xip_list.
const snapshotShape = 1

func snapshotPosition(text string) record.Position {
	return record.Position{Shape: snapshotShape, Data: json.RawMessage(strconv.Quote(text))}
}

// advise tells what to type about values that were set aside.
func (*Source) advise(b *record.Batch) {
	for i := range b.Rejects {
		r := &b.Rejects[i]
		as := "text"
		if r.Value == "NaN" {
			as = "numeric"
		}
		r.Message += fmt.Sprintf("; types=%s:%s reads the column with all its values", r.Column, as)
	}
}

// errShape says that a table is no longer what the catalogue said of it.
var errShape = errors.New("the columns changed while it was being read")

// secure keeps the table from being altered, binds the values of the range, and checks that the columns are still those that were
// resolved. The lock comes before the snapshot: what is checked is what will be read.
func (s *Source) secure(ctx context.Context, pg *pgconn.PgConn, t *sourceTable, r keyRange) (snapshot string, err error) {
	if t.lock != "" {
		if err := command(ctx, pg, "LOCK TABLE "+t.lock+" IN ACCESS SHARE MODE"); err != nil {
			return "", err
		}
	}
	return s.bind(ctx, pg, t, r)
}

// bind binds the values of the range, and checks the columns.
func (s *Source) bind(ctx context.Context, pg *pgconn.PgConn, t *sourceTable, r keyRange) (snapshot string, err error) {
	list := []string{"pg_catalog.pg_current_snapshot()::text", "NULL", t.pathSQL()}
	switch {
	case s.cfg.Follow:
		list[1] = followedShapeSQL(literal(t.rel.String()) + "::regclass")
	case t.kind != 'q':
		list[1] = shapeSQL(t)
	}
	for i := range r.values {
		list = append(list, fmt.Sprintf("pg_catalog.set_config('leat.v%d', $%d, true)", i, i+1))
	}
	rows, err := ask(ctx, pg, "SELECT "+strings.Join(list, ", "), r.values...)
	if err != nil {
		return "", err
	}
	shape := string(rows[0][1])
	if t.kind == 'q' {
		if shape, err = queryShape(ctx, pg, t); err != nil {
			return "", err
		}
	}
	if shape != t.shape {
		return "", &connector.Error{
			Class: connector.ClassTransient, Code: "postgres.schema_changed", Doing: "reading from PostgreSQL", Dataset: t.dataset,
			Err: errShape, Hint: "run again: the columns are looked up at the start",
		}
	}
	return string(rows[0][0]), nil
}

// pathSQL makes the operators of the key's types be found, wherever an extension was put: without them the server would compare by
// those of another type, to which it can cast, and so in another order than the key's index.
func (t *sourceTable) pathSQL() string {
	schemas := map[string]bool{}
	for _, k := range t.key {
		if k.operators != "" {
			schemas[k.operators] = true
		}
	}
	if len(schemas) == 0 {
		return "NULL"
	}
	return fmt.Sprintf("pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', "+
		"nullif(pg_catalog.current_setting('search_path'), ''), %s), true)", literal(idents(slices.Sorted(maps.Keys(schemas)))))
}

func queryShape(ctx context.Context, pg *pgconn.PgConn, t *sourceTable) (string, error) {
	d, err := pg.Prepare(ctx, "", "SELECT * FROM "+t.from, nil)
	if err != nil {
		return "", err //nolint:wrapcheck // the caller says what was being done
	}
	var cols []sourceColumn
	for _, f := range d.Fields {
		if slices.ContainsFunc(t.cols, func(c sourceColumn) bool { return c.name == f.Name }) {
			cols = append(cols, sourceColumn{name: f.Name, typ: f.DataTypeOID, mod: f.TypeModifier})
		}
	}
	return shapeOf(cols), nil
}

// selectSQL is the query of a COPY.
func (t *sourceTable) selectSQL(where []string, order string) string {
	exprs := make([]string, len(t.cols))
	for i, c := range t.cols {
		exprs[i] = c.expr
	}
	return "SELECT " + strings.Join(exprs, ", ") + " FROM " + t.from + t.whereSQL(where) + order
}

func (t *sourceTable) whereSQL(conditions []string) string {
	if t.where != "" {
		conditions = append([]string{"(" + t.where + "\n)"}, conditions...)
	}
	if len(conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(conditions, " AND ")
}

// order makes rows come in the order of the key, where there is one.
func (t *sourceTable) order() string {
	if t.mode != byKey {
		return ""
	}
	return " ORDER BY " + t.keyList()
}

func (t *sourceTable) keyList() string {
	names := make([]string, len(t.key))
	for i, k := range t.key {
		names[i] = ident(k.name)
	}
	return strings.Join(names, ", ")
}

// keyRange is a condition with values that are bound as settings of the transaction: COPY takes no parameters.
type keyRange struct {
	where  []string
	values []string
}

// rangeOf is the part of the table that a chunk is.
func (t *sourceTable) rangeOf(c record.Chunk) (keyRange, error) {
	if len(c.Keys) > 0 {
		return t.keysIn(c.Keys)
	}
	return t.between(c.From, c.To)
}

// keysIn is exactly the rows with these keys.
func (t *sourceTable) keysIn(keys []json.RawMessage) (keyRange, error) {
	values := make([][]*string, len(keys))
	for i, raw := range keys {
		var k rowKey
		if err := json.Unmarshal(raw, &k); err != nil {
			return keyRange{}, fmt.Errorf("the key %s: %w", raw, err)
		}
		if err := t.keyFits(len(k.Key), k.Of); err != nil {
			return keyRange{}, err
		}
		values[i] = k.Key
	}
	doc, err := json.Marshal(values)
	if err != nil {
		panic(fmt.Sprintf("postgres: encoding keys: %v", err)) // strings always marshal
	}
	items, same := make([]string, len(t.key)), make([]string, len(t.key))
	for i, k := range t.key {
		items[i] = fmt.Sprintf("(e->>%d)::%s", i, k.cast)
		same[i] = ident(k.name) + " IS NOT DISTINCT FROM " + items[i]
	}
	r := keyRange{values: []string{string(doc)}}
	const list = "FROM pg_catalog.jsonb_array_elements(pg_catalog.current_setting('leat.v0')::jsonb) e"
	if t.nulls {
		r.where = []string{fmt.Sprintf("EXISTS (SELECT %s WHERE %s)", list, strings.Join(same, " AND "))}
	} else {
		r.where = []string{fmt.Sprintf("(%s) IN (SELECT %s %s)", t.keyList(), strings.Join(items, ", "), list)}
	}
	return r, nil
}

// keyFits checks that values are those of the table's key.
func (t *sourceTable) keyFits(values int, of string) error {
	if values != len(t.key) || values == 0 {
		return fmt.Errorf("a key has %d values, the key of %s has %d columns", values, t.dataset, len(t.key))
	}
	if now := keyIDs(t.key); of != "" && now != "" && of != now {
		return &connector.Error{
			Class: connector.ClassTransient, Code: "postgres.key_changed", Doing: "reading from PostgreSQL", Dataset: t.dataset,
			Err:  errors.New("the key of the table changed after its snapshot was begun"),
			Hint: "take the snapshot of the table again",
		}
	}
	return nil
}

// between is the range of a chunk: behind from, up to and including to.
func (t *sourceTable) between(rawFrom, rawTo json.RawMessage) (keyRange, error) {
	var r keyRange
	from, errF := decodeBound(rawFrom)
	to, errT := decodeBound(rawTo)
	if err := errors.Join(errF, errT); err != nil {
		return r, err
	}
	switch t.mode {
	case asWhole:
		if from.Key != nil || to.Key != nil { // from a time when it was cut by its key
			return t.keyBetween(from, to)
		}
	case byBlock:
		if from.Block != nil {
			r.where = append(r.where, fmt.Sprintf("ctid >= '(%d,0)'::tid", *from.Block))
		}
		if to.Block != nil {
			r.where = append(r.where, fmt.Sprintf("ctid < '(%d,0)'::tid", *to.Block))
		}
	case byKey:
		return t.keyBetween(from, to)
	}
	return r, nil
}

// keyBetween leaves NULLs to the last chunk: they are greater than everything.
func (t *sourceTable) keyBetween(from, to bound) (keyRange, error) {
	var r keyRange
	for _, b := range []bound{from, to} {
		if b.Key == nil {
			continue
		}
		if err := t.keyFits(len(b.Key), b.Of); err != nil {
			return r, err
		}
	}
	if from.Key != nil {
		r.where = append(r.where, t.compare(">", from.Key, &r))
	}
	if to.Key != nil {
		r.where = append(r.where, t.compare("<=", to.Key, &r))
	}
	if !t.nulls || (from.Key == nil && to.Key == nil) {
		return r, nil
	}
	null := t.nullSQL()
	r.where = append(r.where, "NOT "+null)
	if to.Key == nil {
		r.where = []string{"((" + strings.Join(r.where, " AND ") + ") OR " + null + ")"}
	}
	return r, nil
}

// nullSQL is the condition that some part of the key is NULL.
func (t *sourceTable) nullSQL() string {
	some := make([]string, len(t.key))
	for i, k := range t.key {
		some[i] = ident(k.name) + " IS NULL"
	}
	return "(" + strings.Join(some, " OR ") + ")"
}

// compare is a comparison of the key with values, by the server's own order.
func (t *sourceTable) compare(operator string, values []string, r *keyRange) string {
	bound := make([]string, len(values))
	for i, v := range values {
		bound[i] = fmt.Sprintf("pg_catalog.current_setting('leat.v%d')::%s", len(r.values), t.key[i].cast)
		r.values = append(r.values, v)
	}
	return fmt.Sprintf("(%s) %s (%s)", t.keyList(), operator, strings.Join(bound, ", "))
}

// holder is a transaction whose snapshot the chunks of a table without a key share.
type holder struct {
	conn    *pgx.Conn
	left    int  // chunks that were planned and have not adopted the snapshot yet
	planned bool // all of them
}

// hold exports a snapshot and keeps it until every chunk has adopted it.
func (s *Source) hold(ctx context.Context) (id string, err error) {
	conn, err := s.pool.take(ctx)
	if err != nil {
		return "", err
	}
	if err = s.begin(ctx, conn.PgConn(), ""); err == nil {
		var rows [][][]byte
		if rows, err = ask(ctx, conn.PgConn(), "SELECT pg_catalog.pg_export_snapshot()"); err == nil {
			id = string(rows[0][0])
		}
	}
	if err != nil {
		s.pool.discard(ctx, conn)
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders[id] = &holder{conn: conn}
	return id, nil
}

// adopt begins a transaction with the snapshot that the chunk was planned under.
func (s *Source) adopt(ctx context.Context, pg *pgconn.PgConn, c record.Chunk) error {
	var id string
	if err := json.Unmarshal(c.Snapshot.Data, &id); err != nil {
		return fmt.Errorf("the snapshot of a chunk: %w", err)
	}
	err := s.begin(ctx, pg, id)
	s.release(ctx, id, func(h *holder) { h.left-- })
	return err
}

// release changes a holder, and ends its transaction when nobody needs it any more.
func (s *Source) release(ctx context.Context, id string, change func(*holder)) {
	s.mu.Lock()
	h := s.holders[id]
	if h == nil {
		s.mu.Unlock()
		return
	}
	change(h)
	over := h.planned && h.left <= 0
	if over {
		delete(s.holders, id)
	}
	s.mu.Unlock()
	if !over {
		return
	}
	if err := command(ctx, h.conn.PgConn(), "COMMIT"); err != nil {
		s.pool.discard(ctx, h.conn)
		return
	}
	s.pool.put(ctx, h.conn)
}
