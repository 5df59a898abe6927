package mysql

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/fold"
	"github.com/leatdata/leat/record"
)

// maxRejects bounds how many rows of one batch are set aside: behind it something else is wrong.
const maxRejects = 1000

// rejectClass is the class of rows that the target refused.
const rejectClass = "refused_by_sink"

// maxShownBytes is how many bytes of a value a message shows.
const maxShownBytes = 100

// rejects are the rows of a batch that were refused so far.
type rejects map[int]connector.RowError

func (r rejects) has(i int) bool {
	_, ok := r[i]
	return ok
}

// add notes that row i was refused for what the batch itself holds.
func (r rejects) add(b *record.Batch, i int, err error) {
	reject := record.Reject{
		Dataset: b.Schema.Dataset, Key: b.KeyJSON(i), Class: "not_representable", Message: err.Error(), Raw: b.RowJSON(i),
	}
	if value, ok := errors.AsType[*valueError](err); ok {
		reject.Column, reject.Value, reject.Message = value.column, value.value, value.err.Error()
	}
	if null, ok := errors.AsType[fold.NullKeyError](err); ok {
		reject.Column = null.Column
	}
	if missing, ok := errors.AsType[fold.MissingError](err); ok {
		reject.Column, reject.Class = missing.Column, rejectClass
	}
	if errors.Is(err, errNoImage) {
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
	if len(s) <= maxShownBytes {
		return s
	}
	cut := s[:maxShownBytes]
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

// refusedRow is what the server says of a row that it does not take, or would take as something else.
type refusedRow struct {
	number  int64
	message string
}

// rowRefused reports whether the server refused data, not the statement: another row may well be taken.
func rowRefused(err error) (refusedRow, bool) {
	if a, ok := errors.AsType[*alteredError](err); ok {
		return refusedRow{number: a.number, message: a.Error()}, true
	}
	e, ok := serverErrorOf(err)
	if !ok {
		return refusedRow{}, false
	}
	r := refusedRow{number: int64(e.number), message: e.Error()}
	switch e.number {
	case 1118, 1365, 1369, 1526, 1644, 1690, 3819, 4025: // too large a row, a check, a partition, a trigger
		return r, true
	case 1136, 1210, 1222, 1241: // the statement itself is malformed
		return r, false
	}
	const firstJSON, lastJSON = 3140, 3158
	if e.number >= firstJSON && e.number <= lastJSON {
		return r, true
	}
	state := e.state[:min(2, len(e.state))]
	_, code, _ := classify(e)
	return r, state == "22" || state == "23" || code == "mysql.value"
}

// oneRow reports whether an attempt failed for one of its rows: another one may well be taken.
func oneRow(err error) bool {
	_, refused := rowRefused(err)
	_, value := errors.AsType[*valueError](err)
	return refused || value || errors.Is(err, errNoImage) || errors.Is(err, errFile)
}

// duplicate reports whether another row has a value that may be there once.
func duplicate(err error) bool {
	if errors.Is(err, errFile) {
		return true // perhaps
	}
	e, ok := rowRefused(err)
	return ok && (e.number == 1062 || e.number == 1169 || e.number == 1586)
}

// atRow is how the server names a row of a statement.
var atRow = regexp.MustCompile(`at row (\d+)`)

// culprit returns the row of the batch that an error names, or -1.
func culprit(err error) int {
	if value, ok := errors.AsType[*valueError](err); ok {
		return value.row
	}
	several, ok := errors.AsType[*rowsError](err)
	if !ok {
		return -1
	}
	m := atRow.FindStringSubmatch(err.Error())
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil || n < 1 || n > len(several.rows) {
		return -1
	}
	return several.rows[n-1]
}

// setAside notes why row i can't be written.
func (s *Sink) setAside(l load, i int, why error) error {
	refused, ok := rowRefused(why)
	if !ok {
		l.bad.add(l.b, i, why)
		return nil
	}
	if e, ok := serverErrorOf(why); ok && foreignKey(e) && s.start.Mode == connector.Upsert {
		return why // another row is missing, and setting this one aside would only hide it
	}
	l.bad[i] = connector.RowError{Index: i, Reject: l.d.refuse(l.b, i, refused)}
	return nil
}

// How the server names a column, an index and a constraint.
var (
	namedColumn = regexp.MustCompile("(?i)column '([^']+)'|column (?:`[^`]*`\\.`[^`]*`\\.)?`([^`]+)`|field '([^']+)'")
	namedKey    = regexp.MustCompile(`for key '(?:[^'.]+\.)?([^']+)'`)
	namedCheck  = regexp.MustCompile("constraint '([^']+)'|CONSTRAINT `([^`]+)`")
)

// refuse describes row i as one that the server refused, and finds out which column it was.
func (d *dataset) refuse(b *record.Batch, i int, e refusedRow) record.Reject {
	reject := record.Reject{
		Dataset: b.Schema.Dataset, Key: b.KeyJSON(i), Class: rejectClass, Code: strconv.FormatInt(e.number, 10),
		Message: e.message, Raw: b.RowJSON(i),
	}
	if c := d.plan.blamed(e.message); c >= 0 {
		reject.Column = b.Schema.Columns.Field(c).Name
		if !b.Rows.Column(c).IsNull(i) {
			reject.Value = shown(string(record.AppendText(nil, b.Rows.Column(c), i)))
		}
	}
	return reject
}

// blamed returns the column of the schema that a message is about, or -1.
func (p *plan) blamed(message string) int {
	name := submatch(namedColumn, message)
	if key := submatch(namedKey, message); key != "" {
		at := slices.IndexFunc(p.table.keys, func(k tableKey) bool { return k.name == key })
		if at >= 0 && len(p.table.keys[at].columns) == 1 {
			name = p.table.keys[at].columns[0]
		}
	}
	if check := submatch(namedCheck, message); check != "" {
		name = p.checkedColumn(check)
	}
	for n, c := range p.names() {
		if name != "" && strings.EqualFold(c, name) {
			return p.send[n]
		}
	}
	return -1
}

// checkedColumn returns the only column that a check is about, or nothing. Checks of a single column have its name in MariaDB.
func (p *plan) checkedColumn(check string) string {
	if c, ok := p.table.column(check[strings.LastIndexByte(check, '.')+1:]); ok {
		return c.name
	}
	_, rest, ok := strings.Cut(p.table.shape, "CONSTRAINT "+ident(check)+" CHECK ")
	if !ok {
		return ""
	}
	clause, _, _ := strings.Cut(rest, "\n")
	found := ""
	for _, c := range p.table.columns {
		if !strings.Contains(clause, ident(c.name)) {
			continue
		}
		if found != "" {
			return ""
		}
		found = c.name
	}
	return found
}

// submatch returns the first group that matched, or nothing.
func submatch(re *regexp.Regexp, text string) string {
	m := re.FindStringSubmatch(text)
	for _, group := range m[min(1, len(m)):] {
		if group != "" {
			return group
		}
	}
	return ""
}

// tooMany ends a batch of which nearly everything is refused.
func tooMany(b *record.Batch, r rejects) error {
	first := r[slices.Min(slices.Collect(maps.Keys(r)))]
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "mysql.rejects", Doing: "writing a batch", Dataset: b.Schema.Dataset,
		Err:  fmt.Errorf("the target refused more than %d rows of one batch; the first: %w", maxRejects, first.Reject),
		Hint: "the table's constraints and the dataset do not fit together: see leat check",
	}
}
