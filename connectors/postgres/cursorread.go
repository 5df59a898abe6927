package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// cursorRead is the reading of one dataset by cursor, in one transaction.
type cursorRead struct {
	in     *incremental
	t      *sourceTable
	pg     *pgconn.PgConn
	next   string
	cursor int   // the column
	key    []int // the columns of the key
	order  []sourceColumn
	xmin   bool // rows tell which transaction wrote them

	base cursorState // where the last round ended
	open cursorState // how far this round got
	step int64
	ties [][]string
	rng  keyRange

	resumed bool  // the round goes on under another snapshot than it began with
	end     int64 // the first transaction that the snapshot can't see at all
}

// dataset reads one dataset and ends with an empty batch that carries the position behind it.
func (in *incremental) dataset(ctx context.Context, t *sourceTable, next string) error {
	r := &cursorRead{in: in, t: t, next: next, base: in.At.Cursors[t.dataset]}
	if in.At.Dataset == t.dataset && in.At.Open != nil {
		r.open, r.step, r.resumed = *in.At.Open, in.At.Step, true
	}
	if err := r.columns(); err != nil {
		return err
	}
	conn, err := in.src.pool.take(ctx)
	if err != nil {
		return err
	}
	r.pg = conn.PgConn()
	if err := r.read(ctx); err != nil {
		in.src.pool.discard(ctx, conn)
		return err
	}
	in.src.pool.put(ctx, conn)
	return nil
}

// columns finds cursor and key among the columns that are read.
func (r *cursorRead) columns() error {
	cfg := r.in.src.cfg
	r.cursor = r.t.schema.Column(cfg.Cursor)
	if r.cursor < 0 {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.cursor", Doing: "reading by cursor", Dataset: r.t.dataset, Column: cfg.Cursor,
			Err:  fmt.Errorf("%w: %w", errNoCursor, connector.UnknownName("column", cfg.Cursor, r.t.schema.Names())),
			Hint: "cursor=COLUMN names a column that grows with every change, such as updated_at",
		}
	}
	r.key = r.t.schema.Key
	r.order = []sourceColumn{r.t.cols[r.cursor]}
	for _, k := range r.key {
		r.order = append(r.order, r.t.cols[k])
	}
	r.xmin = r.t.kind == 'r' || r.t.kind == 'p'
	return nil
}

func (r *cursorRead) read(ctx context.Context) error {
	s := r.in.src
	if err := r.since(ctx); err != nil {
		return err
	}
	s.env.Roundtrip("begin")
	if err := s.begin(ctx, r.pg, ""); err != nil {
		return err
	}
	if _, err := s.secure(ctx, r.pg, r.t, keyRange{}); err != nil {
		return err
	}
	if err := r.nulls(ctx); err != nil {
		return err
	}
	horizon, err := r.horizon(ctx)
	if err != nil {
		return err
	}
	if r.open.Horizon == 0 {
		r.open.Horizon = horizon
	}
	low, err := r.low(ctx)
	if err != nil {
		return err
	}
	for _, cut := range r.in.Cuts {
		if cut.Dataset == r.t.dataset && cut.Step > r.step {
			if err := r.stretch(ctx, low, &cut); err != nil {
				return err
			}
		}
	}
	if err := r.stretch(ctx, low, nil); err != nil {
		return err
	}
	return r.finish(ctx)
}

// nulls applies the policy for rows without a cursor.
func (r *cursorRead) nulls(ctx context.Context) error {
	cfg := r.in.src.cfg
	if r.order[0].notNull || cfg.CursorNulls == nullInclude {
		return nil
	}
	rows, err := ask(ctx, r.pg, "SELECT pg_catalog.count(*) FROM "+r.t.from+r.t.whereSQL([]string{ident(cfg.Cursor) + " IS NULL"}))
	if err != nil {
		return err
	}
	n := toInt(rows[0][0])
	switch {
	case n == 0:
		return nil
	case cfg.CursorNulls == nullSkip:
		r.in.src.env.Log.WarnContext(ctx, "rows without a cursor are left out", slog.String("dataset", r.t.dataset),
			slog.String("cursor", cfg.Cursor), slog.Int64("rows", n))
		return nil
	}
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "postgres.cursor_null", Doing: "reading by cursor", Dataset: r.t.dataset, Column: cfg.Cursor,
		Err: fmt.Errorf("%d rows have no cursor", n), Hint: "nulls=include reads them in every run, nulls=skip leaves them out",
	}
}

// horizon is the first transaction that the snapshot may not see; 0 where rows don't tell their transaction.
func (r *cursorRead) horizon(ctx context.Context) (int64, error) {
	if !r.xmin {
		return 0, nil
	}
	rows, err := ask(ctx, r.pg, `SELECT pg_catalog.pg_snapshot_xmin(s)::text, pg_catalog.pg_snapshot_xmax(s)::text
		FROM pg_catalog.pg_current_snapshot() s`)
	if err != nil {
		return 0, err
	}
	r.end = toInt(rows[0][1])
	return toInt(rows[0][0]), nil
}

// low is the cursor below which no late commit is looked for; nil: look everywhere.
func (r *cursorRead) low(ctx context.Context) (*string, error) {
	lag := r.in.src.cfg.CursorLag
	if lag == "" || r.base.Cursor == nil {
		return r.base.Low, nil
	}
	unit := "numeric"
	if r.timeCursor() {
		unit = "interval"
	}
	cast := r.order[0].cast
	rows, err := ask(ctx, r.pg, fmt.Sprintf("SELECT ($1::%s - $2::%s)::%s::text", cast, unit, cast), *r.base.Cursor, lag)
	if err != nil {
		return nil, &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.lag", Doing: "reading by cursor", Dataset: r.t.dataset, Column: r.order[0].name,
			Err:  fmt.Errorf("lag %q does not go with a cursor of type %s: %w", lag, r.order[0].sql, err),
			Hint: "lag is an interval such as 5m for dates and times, and a number for numbers",
		}
	}
	low := string(rows[0][0])
	return &low, nil
}

func (r *cursorRead) timeCursor() bool {
	return slices.Contains([]string{"timestamp with time zone", "timestamp without time zone", "date"}, r.order[0].cast)
}

// bind adds a value and returns the expression that yields it.
func (r *cursorRead) bind(value, cast string) string {
	r.rng.values = append(r.rng.values, value)
	return fmt.Sprintf("pg_catalog.current_setting('leat.v%d')::%s", len(r.rng.values)-1, cast)
}

// compare compares (cursor, key) with a state.
func (r *cursorRead) compare(operator string, s cursorState) string {
	names, values := make([]string, 0, len(r.order)), make([]string, 0, len(r.order))
	for i, v := range append([]string{*s.Cursor}, s.Key...) {
		names = append(names, ident(r.order[i].name))
		values = append(values, r.bind(v, r.order[i].cast))
	}
	return fmt.Sprintf("(%s) %s (%s)", strings.Join(names, ", "), operator, strings.Join(values, ", "))
}

// fresh is the condition for rows that no earlier round delivered: those behind its end, and those at or before it that were
// committed too late for it.
func (r *cursorRead) fresh(low *string) string {
	if r.base.Cursor == nil {
		return ""
	}
	name, cast := ident(r.order[0].name), r.order[0].cast
	if r.base.Horizon > 0 && r.xmin {
		late := fmt.Sprintf("%s >= %s", xminSQL, r.bind(strconv.FormatInt(r.base.Horizon, 10), "bigint"))
		if len(r.base.Seen) > 0 {
			late += fmt.Sprintf(" AND %s <> ALL (%s)", xminSQL, r.bind(intArray(r.base.Seen), "bigint[]"))
		}
		if low != nil {
			late = fmt.Sprintf("%s >= %s AND %s", name, r.bind(*low, cast), late)
		}
		return "(" + r.compare(">", r.base) + " OR (" + late + "))"
	}
	if low != nil {
		return fmt.Sprintf("%s >= %s", name, r.bind(*low, cast))
	}
	equal := fmt.Sprintf("%s = %s", name, r.bind(*r.base.Cursor, cast))
	if len(r.base.Ties) > 0 && len(r.base.Ties[0]) == len(r.key) {
		doc, err := json.Marshal(r.base.Ties)
		if err != nil {
			panic(fmt.Sprintf("postgres: encoding ties: %v", err)) // strings always marshal
		}
		keys, items := make([]string, len(r.key)), make([]string, len(r.key))
		for i, k := range r.order[1:] {
			keys[i], items[i] = ident(k.name), fmt.Sprintf("(e->>%d)::%s", i, k.cast)
		}
		equal += fmt.Sprintf(" AND (%s) NOT IN (SELECT %s FROM pg_catalog.jsonb_array_elements(%s) e)", strings.Join(keys, ", "),
			strings.Join(items, ", "), r.bind(string(doc), "jsonb"))
	}
	return fmt.Sprintf("(%s > %s OR (%s))", name, r.bind(*r.base.Cursor, cast), equal)
}

// xminSQL is the transaction that wrote a row, widened to 64 bits: the stored 32 bits belong to the present epoch, or to the one
// before where they would lie in the future.
const xminSQL = `(xmin::text::bigint + ((pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint >> 32) << 32)
	- CASE WHEN xmin::text::bigint > (pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint & 4294967295)
	THEN 4294967296 ELSE 0 END)`

// stretch reads up to a cut, or to the end, with one COPY.
func (r *cursorRead) stretch(ctx context.Context, low *string, cut *cursorPosition) error {
	s := r.in.src
	r.rng = keyRange{}
	var where []string
	add := func(condition string) {
		if condition != "" {
			where = append(where, condition)
		}
	}
	add(r.fresh(low))
	if r.open.Cursor != nil {
		add(r.compare(">", r.open))
	}
	if cut != nil {
		add(r.compare("<=", *cut.Open))
	}
	name := ident(r.order[0].name)
	condition := strings.Join(where, " AND ")
	switch {
	case s.cfg.CursorNulls != nullInclude || cut != nil:
		condition = strings.Join(append(where, name+" IS NOT NULL"), " AND ")
	case condition != "":
		condition = "((" + condition + ") OR " + name + " IS NULL)"
	}
	r.rng.where = nil
	if condition != "" {
		r.rng.where = []string{condition}
	}
	if len(r.rng.values) > 0 {
		locked := *r.t
		locked.lock = "" // since the transaction began
		if _, err := s.secure(ctx, r.pg, &locked, r.rng); err != nil {
			return err
		}
	}
	return r.copy(ctx, cut)
}

func (r *cursorRead) copy(ctx context.Context, cut *cursorPosition) error {
	s := r.in.src
	d, err := pgcopy.NewDecoder(r.t.schema, r.t.types, pgcopy.DecoderOptions{CheckUTF8: r.t.utf8}, func(b *record.Batch) error {
		s.advise(b)
		r.advance(b, cut)
		return r.in.Emit(ctx, b)
	})
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.t.dataset, err)
	}
	names := make([]string, len(r.order))
	for i, c := range r.order {
		names[i] = ident(c.name)
	}
	s.env.Roundtrip("copy")
	sql := "COPY (" + r.t.selectSQL(r.rng.where, " ORDER BY "+strings.Join(names, ", ")) + ") TO STDOUT (FORMAT binary)"
	if _, err := r.pg.CopyTo(ctx, d, sql); err != nil {
		return err //nolint:wrapcheck // the caller says what was being done
	}
	if err := d.Finish(); err != nil {
		return err //nolint:wrapcheck // the caller says what was being done
	}
	if cut == nil {
		return nil
	}
	r.open, r.step = *cut.Open, cut.Step
	return r.in.Emit(ctx, &record.Batch{Schema: r.t.schema, Position: cut.Encode()})
}

// advance moves on to the last row of a batch that has a cursor, and gives the batch its position where one can be: without a
// key, rows of equal cursor can't be told apart; rows without a cursor come all over again.
func (r *cursorRead) advance(b *record.Batch, cut *cursorPosition) {
	n := b.NumRows()
	column := func(c int) func(i int) string {
		return func(i int) string { return pgText(b.Rows.Column(c), i) }
	}
	last := n - 1
	for last >= 0 && b.Rows.Column(r.cursor).IsNull(last) {
		last--
	}
	if last < 0 {
		return
	}
	value := column(r.cursor)(last)
	r.remember(b, last, value)
	r.open.Cursor, r.open.Key = &value, nil
	for _, k := range r.key {
		r.open.Key = append(r.open.Key, column(k)(last))
	}
	step := r.step + cursorStep
	if cut != nil {
		step = r.step + min(cursorStep, (cut.Step-r.step)/2)
	}
	if len(r.key) == 0 || last < n-1 || step == r.step {
		return
	}
	r.step = step
	b.Position = r.in.At.With(r.t.dataset, r.open, r.step).Encode()
}

// remember collects the keys of the rows whose cursor is the last one, where there is no horizon.
func (r *cursorRead) remember(b *record.Batch, last int, value string) {
	if r.xmin || len(r.key) == 0 {
		return
	}
	if r.open.Cursor == nil || *r.open.Cursor != value {
		r.ties = nil
		if r.base.Cursor != nil && *r.base.Cursor == value {
			r.ties = r.base.Ties
		}
	}
	for i := last; i >= 0 && len(r.ties) <= maxTies && pgText(b.Rows.Column(r.cursor), i) == value; i-- {
		key := make([]string, len(r.key))
		for j, k := range r.key {
			key[j] = pgText(b.Rows.Column(k), i)
		}
		r.ties = append(slices.Clip(r.ties), key)
	}
}

// finish works out where the next round starts, and queues the position.
func (r *cursorRead) finish(ctx context.Context) error {
	state := r.open
	if r.base.Cursor != nil && state.Cursor != nil {
		r.rng = keyRange{}
		names := make([]string, 0, 2)
		for _, s := range []cursorState{r.open, r.base} {
			var values []string
			for i, v := range append([]string{*s.Cursor}, s.Key...) {
				r.rng.values = append(r.rng.values, v)
				values = append(values, fmt.Sprintf("$%d::%s", len(r.rng.values), r.order[i].cast))
			}
			names = append(names, "("+strings.Join(values, ", ")+")")
		}
		rows, err := ask(ctx, r.pg, "SELECT "+names[0]+" > "+names[1], r.rng.values...)
		if err != nil {
			return err
		}
		if !isTrue(rows[0][0]) {
			state.Cursor, state.Key = r.base.Cursor, r.base.Key
		}
	} else if state.Cursor == nil {
		state.Cursor, state.Key = r.base.Cursor, r.base.Key
	}
	state.Ties, state.Low = nil, nil
	if !r.xmin && len(r.ties) <= maxTies {
		state.Ties = r.ties
		if r.ties == nil {
			state.Ties = r.base.Ties
		}
	}
	if err := r.floor(ctx, &state); err != nil {
		return err
	}
	if err := r.seen(ctx, &state); err != nil {
		return err
	}
	if err := command(ctx, r.pg, "COMMIT"); err != nil {
		return err
	}
	r.in.At = r.in.At.Finished(r.t.dataset, state, r.next)
	return r.in.Emit(ctx, &record.Batch{Schema: r.t.schema, Position: r.in.At.Encode()})
}

// sinceSQL is when the oldest open transaction began, in microseconds since 1970. No row: it can't be known, because other
// sessions are hidden from this role, or a prepared transaction has no known start.
const sinceSQL = `SELECT (extract(epoch FROM least(pg_catalog.min(a.xact_start), pg_catalog.now())) * 1000000)::bigint
FROM pg_catalog.pg_stat_activity a
HAVING NOT pg_catalog.bool_or(a.query = '<insufficient privilege>') AND NOT EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts)`

// since asks for the oldest open transaction. It must come before the snapshot: whatever the snapshot does not see then began later
// than what this returns.
func (r *cursorRead) since(ctx context.Context) error {
	if !r.xmin || !r.timeCursor() || r.open.Horizon > 0 {
		return nil
	}
	rows, err := ask(ctx, r.pg, sinceSQL)
	if err != nil {
		return err
	}
	if len(rows) > 0 && rows[0][0] != nil {
		r.open.Since = toInt(rows[0][0])
	}
	return nil
}

// floorSQL is how far before the last cursor a transaction that the snapshot did not see may have written: it set its cursor
// from the clock after it began. The margin covers clocks and, for types without a zone, the zones of sessions.
const floorSQL = `SELECT (least($1::%[1]s, %[2]s)
	- (pg_catalog.now() - (TIMESTAMPTZ 'epoch' + $2::bigint * INTERVAL '1 microsecond')) - INTERVAL '%[3]s')::%[1]s::text`

// floor sets the cursor below which the next round need not look for late commits.
func (r *cursorRead) floor(ctx context.Context, state *cursorState) error {
	since := state.Since
	state.Since = 0
	if since == 0 || state.Cursor == nil {
		return nil
	}
	now, margin := "pg_catalog.now()", "1 minute"
	switch r.order[0].cast {
	case "timestamp without time zone":
		now, margin = "LOCALTIMESTAMP", "15 hours"
	case "date":
		now, margin = "CURRENT_DATE", "2 days"
	}
	rows, err := ask(ctx, r.pg, fmt.Sprintf(floorSQL, r.order[0].cast, now, margin), *state.Cursor, strconv.FormatInt(since, 10))
	if err != nil {
		return err
	}
	low := string(rows[0][0])
	state.Low = &low
	return nil
}

// seen remembers the transactions that this round saw although an older one was still open: their rows need not come again. A
// transaction's number alone does not tell, because the parts of an open transaction have numbers of their own. A round that was
// resumed has seen only a part of them.
func (r *cursorRead) seen(ctx context.Context, state *cursorState) error {
	state.Seen = nil
	if !r.xmin || r.resumed || state.Cursor == nil || state.Horizon >= r.end {
		return nil
	}
	where := []string{xminSQL + " >= $1::bigint"}
	args := []string{strconv.FormatInt(state.Horizon, 10)}
	if state.Low != nil {
		where = append(where, fmt.Sprintf("%s >= $2::%s", ident(r.order[0].name), r.order[0].cast))
		args = append(args, *state.Low)
	}
	sql := fmt.Sprintf("SELECT DISTINCT %s FROM %s%s ORDER BY 1 LIMIT %d", xminSQL, r.t.from, r.t.whereSQL(where), maxSeen+1)
	rows, err := ask(ctx, r.pg, sql, args...)
	if err != nil || len(rows) > maxSeen {
		return err
	}
	for _, row := range rows {
		state.Seen = append(state.Seen, toInt(row[0]))
	}
	return nil
}

// intArray is an array as the server reads it.
func intArray(values []int64) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = strconv.FormatInt(v, 10)
	}
	return "{" + strings.Join(parts, ",") + "}"
}
