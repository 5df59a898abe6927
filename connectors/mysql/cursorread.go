package mysql

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// cursorRead is the reading of one dataset by cursor, in one transaction.
type cursorRead struct {
	in     *incremental
	t      *sourceTable
	w      *wire
	next   string
	cursor int   // the column
	key    []int // the columns of the key
	order  []sourceColumn

	base cursorState // where the last round ended
	open cursorState // how far this round got
	step int64
	ties [][]string
}

// dataset reads one dataset and ends with an empty batch that carries the position behind it.
func (in *incremental) dataset(ctx context.Context, t *sourceTable, next string) error {
	r := &cursorRead{in: in, t: t, next: next, base: in.At.Cursors[t.dataset]}
	if in.At.Dataset == t.dataset && in.At.Open != nil {
		r.open, r.step = *in.At.Open, in.At.Step
	}
	if err := r.columns(); err != nil {
		return err
	}
	return in.src.borrow(ctx, func(w *wire) error {
		r.w = w
		return r.read(ctx)
	})
}

// columns finds cursor and key among the columns that are read.
func (r *cursorRead) columns() error {
	cfg := r.in.src.cfg
	r.cursor = r.t.schema.Column(cfg.Cursor)
	if r.cursor < 0 {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.cursor", Doing: "reading by cursor", Dataset: r.t.dataset, Column: cfg.Cursor,
			Err:  fmt.Errorf("%w: %w", errNoCursor, connector.UnknownName("column", cfg.Cursor, r.t.schema.Names())),
			Hint: "cursor=COLUMN names a column that grows with every change, such as updated_at",
		}
	}
	r.key = r.t.schema.Key
	r.order = []sourceColumn{r.t.cols[r.cursor]}
	for _, k := range r.key {
		r.order = append(r.order, r.t.cols[k])
	}
	return nil
}

func (r *cursorRead) read(ctx context.Context) error {
	if _, err := r.in.src.begin(ctx, r.w, r.t); err != nil {
		return err
	}
	low, err := r.low()
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
	if err := r.nulls(ctx); err != nil {
		return err
	}
	return r.finish(ctx)
}

// nulls applies the policy for rows without a cursor.
func (r *cursorRead) nulls(ctx context.Context) error {
	s := r.in.src
	if r.order[0].notNull {
		return nil
	}
	where := []string{ident(s.cfg.Cursor) + " IS NULL"}
	if s.cfg.CursorNulls == nullInclude {
		return s.readRows(ctx, r.w, r.t, r.t.selectSQL(where, ""), func(b *record.Batch) error { return r.in.Emit(ctx, b) })
	}
	n, err := r.number(ctx, "SELECT count(*) FROM "+r.t.from+r.t.whereSQL(where))
	switch {
	case err != nil || n == 0:
		return err
	case s.cfg.CursorNulls == nullSkip:
		s.env.Log.WarnContext(ctx, "rows without a cursor are left out", slog.String("dataset", r.t.dataset),
			slog.String("cursor", s.cfg.Cursor), slog.Int64("rows", n))
		return nil
	}
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "mysql.cursor_null", Doing: "reading by cursor", Dataset: r.t.dataset, Column: s.cfg.Cursor,
		Err: fmt.Errorf("%d rows have no cursor", n), Hint: "nulls=include reads them in every run, nulls=skip leaves them out",
	}
}

// number runs a SELECT of one number in the transaction.
func (r *cursorRead) number(ctx context.Context, sql string) (int64, error) {
	n := int64(0)
	err := r.w.query(ctx, sql, func([]wireColumn) error { return nil }, func(p []byte) error {
		for i := len(p) - 1; i >= 2; i-- { // behind the head and the bits of NULLs
			n = n<<8 | int64(p[i])
		}
		return nil
	})
	return n, err
}

// lagNumber is a lag of a cursor that is a number.
var lagNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// low is the expression for the cursor from which late commits are looked for; empty: none are.
func (r *cursorRead) low() (string, error) {
	lag, c := r.in.src.cfg.CursorLag, &r.order[0]
	if lag == "" || r.base.Cursor == nil {
		return "", nil
	}
	lit, err := keyLiteral(c, *r.base.Cursor)
	if err != nil {
		return "", err
	}
	wrong := func(hint string) error {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.lag", Doing: "reading by cursor", Dataset: r.t.dataset, Column: c.name,
			Err: fmt.Errorf("lag %q does not go with a cursor of type %s", lag, c.sql), Hint: hint,
		}
	}
	switch c.form { //nolint:exhaustive // a lag means nothing for others
	case formDate, formDateTime, formTimestamp:
		d, err := time.ParseDuration(lag)
		if err != nil || d < 0 {
			return "", wrong("lag is a duration such as 5m for dates and times")
		}
		return fmt.Sprintf("CAST(%s AS DATETIME(6)) - INTERVAL %d MICROSECOND", lit, d.Microseconds()), nil
	case formInt, formDecimal, formYear, formFloat, formDouble:
		if !lagNumber.MatchString(lag) {
			return "", wrong("lag is a number for a cursor that is one")
		}
		return fmt.Sprintf("(0.0 + %s - %s)", lit, lag), nil
	}
	return "", wrong("lag is for cursors that are numbers, dates or times")
}

// compare compares (cursor, key) with a state.
func (r *cursorRead) compare(operator string, s cursorState) (string, error) {
	values := append([]string{*s.Cursor}, s.Key...)
	if len(values) > len(r.order) {
		return "", fmt.Errorf("the position has a key of %d values, the table one of %d columns", len(s.Key), len(r.key))
	}
	lits := make([]string, len(values))
	for i, v := range values {
		var err error
		if lits[i], err = keyLiteral(&r.order[i], v); err != nil {
			return "", err
		}
	}
	return compareSQL(r.order[:len(values)], operator, lits), nil
}

// fresh is the condition for rows that no earlier round delivered: those behind its end, and those of the same cursor whose keys are not
// known, or all from low on.
func (r *cursorRead) fresh(low string) (string, error) {
	name := ident(r.order[0].name)
	switch {
	case r.base.Cursor == nil:
		return "", nil
	case low != "":
		return name + " >= " + low, nil
	}
	lit, err := keyLiteral(&r.order[0], *r.base.Cursor)
	if err != nil {
		return "", err
	}
	equal := name + " = " + lit
	if len(r.base.Ties) > 0 && len(r.base.Ties[0]) == len(r.key) {
		keyed := &sourceTable{dataset: r.t.dataset, key: r.order[1:]}
		keys := make([]json.RawMessage, len(r.base.Ties))
		for i, k := range r.base.Ties {
			doc, err := json.Marshal(k)
			if err != nil {
				return "", fmt.Errorf("encoding a key: %w", err)
			}
			keys[i] = doc
		}
		in, err := keyed.keysIn(keys)
		if err != nil {
			return "", err
		}
		equal += " AND NOT " + in
	}
	return fmt.Sprintf("(%s > %s OR (%s))", name, lit, equal), nil
}

// stretch reads up to a cut, or to the end, with one SELECT.
func (r *cursorRead) stretch(ctx context.Context, low string, cut *cursorPosition) error {
	var where []string
	add := func(sql string, err error) error {
		if sql != "" {
			where = append(where, sql)
		}
		return err
	}
	if err := add(r.fresh(low)); err != nil {
		return err
	}
	if r.open.Cursor != nil {
		if err := add(r.compare(">", r.open)); err != nil {
			return err
		}
	}
	if cut != nil {
		if err := add(r.compare("<=", *cut.Open)); err != nil {
			return err
		}
	}
	where = append(where, ident(r.order[0].name)+" IS NOT NULL")
	names := make([]string, len(r.order))
	for i, c := range r.order {
		names[i] = ident(c.name)
	}
	sql := r.t.selectSQL(where, " ORDER BY "+strings.Join(names, ", "))
	err := r.in.src.readRows(ctx, r.w, r.t, sql, func(b *record.Batch) error {
		r.advance(b, cut)
		return r.in.Emit(ctx, b)
	})
	if err != nil || cut == nil {
		return err
	}
	r.open, r.step = *cut.Open, cut.Step
	return r.in.Emit(ctx, &record.Batch{Schema: r.t.schema, Position: cut.Encode()})
}

// advance moves on to the last row of a batch, and gives the batch its position where one can be: without a key, rows of equal cursor
// can't be told apart.
func (r *cursorRead) advance(b *record.Batch, cut *cursorPosition) {
	last := b.NumRows() - 1
	if last < 0 {
		return
	}
	value := keyText(&r.order[0], b.Rows.Column(r.cursor), last)
	r.remember(b, last, value)
	r.open.Cursor, r.open.Key = &value, r.keyOf(b, last)
	step := r.step + cursorStep
	if cut != nil {
		step = r.step + min(cursorStep, (cut.Step-r.step)/2)
	}
	if len(r.key) == 0 || step == r.step {
		return
	}
	r.step = step
	b.Position = r.in.At.With(r.t.dataset, r.open, r.step).Encode()
}

// keyOf is the key of a row.
func (r *cursorRead) keyOf(b *record.Batch, i int) []string {
	if len(r.key) == 0 {
		return nil
	}
	key := make([]string, len(r.key))
	for j, k := range r.key {
		key[j] = keyText(&r.order[j+1], b.Rows.Column(k), i)
	}
	return key
}

// remember collects the keys of the rows whose cursor is the last one.
func (r *cursorRead) remember(b *record.Batch, last int, value string) {
	if len(r.key) == 0 {
		return
	}
	if r.open.Cursor == nil || *r.open.Cursor != value {
		r.ties = nil
		if r.base.Cursor != nil && *r.base.Cursor == value {
			r.ties = r.base.Ties
		}
	}
	column := b.Rows.Column(r.cursor)
	for i := last; i >= 0 && len(r.ties) <= maxTies && keyText(&r.order[0], column, i) == value; i-- {
		r.ties = append(slices.Clip(r.ties), r.keyOf(b, i))
	}
}

// finish works out where the next round starts, and queues the position.
func (r *cursorRead) finish(ctx context.Context) error {
	state := r.open
	switch {
	case state.Cursor == nil:
		state = r.base
	case r.base.Cursor != nil:
		further, err := r.further(ctx)
		if err != nil {
			return err
		}
		if !further {
			state.Cursor, state.Key = r.base.Cursor, r.base.Key
		}
	}
	state.Ties = nil
	if len(r.ties) <= maxTies && len(r.ties) > 0 {
		state.Ties = r.ties
	} else if r.ties == nil {
		state.Ties = r.base.Ties
	}
	if err := r.w.exec(ctx, "COMMIT"); err != nil {
		return err
	}
	r.in.At = r.in.At.Finished(r.t.dataset, state, r.next)
	return r.in.Emit(ctx, &record.Batch{Schema: r.t.schema, Position: r.in.At.Encode()})
}

// further asks whether this round came as far as the last one: with a lag it may end before.
func (r *cursorRead) further(ctx context.Context) (bool, error) {
	a, errA := keyLiteral(&r.order[0], *r.open.Cursor)
	b, errB := keyLiteral(&r.order[0], *r.base.Cursor)
	if errA != nil || errB != nil {
		return false, fmt.Errorf("comparing cursors: %w", errA)
	}
	if r.order[0].form == formTime {
		a, b = "CAST("+a+" AS TIME(6))", "CAST("+b+" AS TIME(6))"
	}
	n, err := r.number(ctx, "SELECT CAST("+a+" >= "+b+" AS SIGNED)")
	return n > 0, err
}
