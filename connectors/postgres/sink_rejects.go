package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/fold"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// maxRejects bounds how many rows of one batch are set aside: behind it something else is wrong.
const maxRejects = 1000

// rejectClass is the class of rows that the target refused.
const rejectClass = "refused_by_sink"

// maxShown is how many bytes of a value a message shows.
const maxShown = 100

// add notes that row i was refused for what the batch itself holds.
func (r rejects) add(b *record.Batch, i int, err error) {
	reject := record.Reject{
		Dataset: b.Schema.Dataset, Key: b.KeyJSON(i), Class: "not_representable", Message: err.Error(), Raw: b.RowJSON(i),
	}
	if value, ok := errors.AsType[*pgcopy.ValueError](err); ok {
		reject.Column, reject.Value, reject.Message = value.Column, shown(value.Value), value.Err.Error()
	}
	if null, ok := errors.AsType[fold.NullKeyError](err); ok {
		reject.Column = null.Column
	}
	if missing, ok := errors.AsType[fold.MissingError](err); ok {
		reject.Column, reject.Class = missing.Column, rejectClass
	}
	if _, ok := errors.AsType[noImageError](err); ok {
		image := b.Rows
		if b.Op(i) == record.Update {
			image = b.Old
		}
		before := record.Batch{Schema: b.Schema, Rows: image}
		reject.Class, reject.Message = rejectClass, fmt.Sprintf("%s: %s", reject.Message, shown(string(before.RowJSON(i))))
	}
	r[i] = connector.RowError{Index: i, Reject: reject}
}

// shown shortens a value for a message.
func shown(s string) string {
	if len(s) <= maxShown {
		return s
	}
	cut := s[:maxShown]
	for cut != "" && !utf8.ValidString(cut) {
		cut = cut[:len(cut)-1]
	}
	return cut + "…"
}

// err returns the refused rows in their order, as Write returns them; nil: none.
func (r rejects) err() error {
	if len(r) == 0 {
		return nil
	}
	out := &connector.RowErrors{}
	for _, i := range slices.Sorted(maps.Keys(r)) {
		out.Rows = append(out.Rows, r[i])
	}
	return out
}

// rowRefused reports whether the server refused data, not the statement: another row may well be taken.
func rowRefused(err error) (*pgconn.PgError, bool) {
	e, ok := serverError(err)
	if !ok {
		return nil, false
	}
	switch e.Code {
	case "22P04": // the COPY itself is malformed
		return nil, false
	case "54000", "P0001", "44000", "21000": // an index row too large, a trigger's RAISE, WITH CHECK OPTION, a key twice in one statement
		return e, true
	}
	return e, strings.HasPrefix(e.Code, "22") || strings.HasPrefix(e.Code, "23")
}

// copyLine returns the 1-based number of the row that a COPY stopped at.
func copyLine(e *pgconn.PgError) (int, bool) {
	at := strings.LastIndex(e.Where, ", line ")
	if !strings.HasPrefix(e.Where, "COPY ") || at < 0 {
		return 0, false
	}
	digits := e.Where[at+len(", line "):]
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n > 0
}

// copyColumn returns the column that a COPY stopped at, or nothing.
func copyColumn(e *pgconn.PgError) string {
	if e.ColumnName != "" {
		return e.ColumnName
	}
	const mark = ", column "
	at := strings.LastIndex(e.Where, mark)
	if at < 0 {
		return ""
	}
	name, _, _ := strings.Cut(e.Where[at+len(mark):], ": ")
	return name
}

// refuse notes that the server refused row i, and finds out which column it was.
func (s *Sink) refuse(ctx context.Context, d *dataset, b *record.Batch, i int, e *pgconn.PgError) (connector.RowError, error) {
	column := copyColumn(e)
	if b.Schema.Column(column) < 0 {
		column = ""
	}
	if column == "" && e.ConstraintName != "" {
		var columns []string
		sql := fmt.Sprintf(`SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
WHERE a.attrelid = %[1]s::regclass AND a.attnum = ANY (coalesce(
	(SELECT conkey FROM pg_constraint WHERE conrelid = %[1]s::regclass AND conname = %[2]s),
	(SELECT i.indkey::int2[] FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE i.indrelid = %[1]s::regclass AND c.relname = %[2]s)))`,
			literal(d.target.String()), literal(e.ConstraintName))
		if _, err := s.db.query(ctx, "constraint", sql, &columns); err != nil {
			return connector.RowError{}, fmt.Errorf("looking up constraint %q: %w", e.ConstraintName, err)
		}
		if len(columns) == 1 {
			column = columns[0]
		}
	}
	if column == "" {
		column = d.plan.suspect(b, i, e.Code)
	}
	reject := record.Reject{
		Dataset: b.Schema.Dataset, Key: b.KeyJSON(i), Column: column, Class: rejectClass, Code: e.Code,
		Message: refusal(e), Raw: b.RowJSON(i),
	}
	if c := b.Schema.Column(column); c >= 0 && !b.Rows.Column(c).IsNull(i) {
		reject.Value = shown(string(record.AppendText(nil, b.Rows.Column(c), i)))
	}
	return connector.RowError{Index: i, Reject: reject}, nil
}

// suspect returns the only column that an error about a value can mean, where the server does not say which.
func (p *plan) suspect(b *record.Batch, i int, code string) string {
	const tooLong, outOfRange = "22001", "22003"
	found := ""
	for n, f := range p.fits {
		arr := b.Rows.Column(p.send[n])
		if arr.IsNull(i) {
			continue
		}
		switch code {
		case tooLong:
			if f.Limits.MaxChars == 0 || utf8.RuneCount(record.AppendText(nil, arr, i)) <= f.Limits.MaxChars {
				continue
			}
		case outOfRange:
			if f.Limits.Precision == 0 && f.Limits.Min == 0 && f.Limits.Max == 0 {
				continue
			}
		default:
			continue
		}
		if found != "" {
			return ""
		}
		found = f.Column
	}
	return found
}

// refusal is the server's message, and its detail where that does not print the whole row.
func refusal(e *pgconn.PgError) string {
	m := e.Message + " (SQLSTATE " + e.Code + ")"
	if e.Detail != "" && !strings.HasPrefix(e.Detail, "Failing row contains") {
		m += ": " + shown(e.Detail)
	}
	return m
}

// tooMany ends a batch of which nearly everything is refused.
func tooMany(b *record.Batch, r rejects) error {
	first := r[slices.Min(slices.Collect(maps.Keys(r)))]
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "postgres.rejects", Doing: "writing a batch", Dataset: b.Schema.Dataset,
		Err:  fmt.Errorf("the target refused more than %d rows of one batch; the first: %w", maxRejects, first.Reject),
		Hint: "the table's constraints and the dataset do not fit together: see leat check",
	}
}
