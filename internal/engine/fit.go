package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// fitter makes batches of one schema fit one sink: it turns columns into text, and looks at each value of columns with limits.
type fitter struct {
	out     *record.Schema // what the sink gets
	text    []int          // columns that become text
	columns []fitColumn
	retyped bool // out differs from what comes in
}

// fitColumn is one column with limits.
type fitColumn struct {
	rule
	index  int
	policy connector.Policy
	key    bool
}

// misfit is one value that does not fit.
type misfit struct {
	row int
	why string
}

// textSchema returns the schema whose given columns are text.
func textSchema(s *record.Schema, columns []int) *record.Schema {
	fields := slices.Clone(s.Columns.Fields())
	for _, c := range columns {
		fields[c] = arrow.Field{Name: fields[c].Name, Type: arrow.BinaryTypes.String, Nullable: fields[c].Nullable}
	}
	return withFields(s, fields)
}

func withFields(s *record.Schema, fields []arrow.Field) *record.Schema {
	meta := s.Columns.Metadata()
	out := *s
	out.Columns = arrow.NewSchema(fields, &meta)
	return &out
}

// newFitter compiles the checks of a schema that is already as the sink gets it. text names the columns that were made text.
func newFitter(s *record.Schema, text []int, ms []connector.Mapping, policies []connector.Policy) (*fitter, error) {
	f := &fitter{out: s, text: text, retyped: len(text) > 0}
	fields := slices.Clone(s.Columns.Fields())
	nullable := false
	for i, m := range ms {
		if m.Limits.Zero() {
			continue
		}
		t, err := record.TypeOf(fields[i].Type)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", fields[i].Name, err)
		}
		if alwaysFits(t, m.Limits) {
			continue
		}
		f.columns = append(f.columns, fitColumn{
			rule: rule{t, m.Limits}, index: i, policy: policies[i], key: slices.Contains(s.Key, i),
		})
		if policies[i] == connector.PolicyNull && !fields[i].Nullable {
			fields[i].Nullable, nullable = true, true
		}
	}
	if nullable {
		f.out, f.retyped = withFields(s, fields), true
	}
	return f, nil
}

// fitted is a batch as the sink gets it.
type fitted struct {
	batch   *record.Batch
	rejects []record.Reject // rows that don't fit
	altered int64           // values that a policy changed
}

// apply makes a batch fit.
func (f *fitter) apply(b *record.Batch) (fitted, error) {
	if !f.retyped && len(f.columns) == 0 {
		return fitted{batch: b}, nil
	}
	out := *b
	out.Schema = f.out
	var err error
	if out.Rows, err = f.retype(b.Rows); err != nil {
		return fitted{}, err
	}
	if out.Old, err = f.retype(b.Old); err != nil {
		return fitted{}, err
	}
	if out.Rows == nil || len(f.columns) == 0 {
		return fitted{batch: &out}, nil
	}
	if out.Old, err = f.mendOld(&out); err != nil {
		return fitted{}, err
	}
	return f.check(&out)
}

// mendOld treats the images before as the rows that they were: what a policy changed then is found under what it was changed to.
func (f *fitter) mendOld(b *record.Batch) (arrow.RecordBatch, error) {
	if b.Old == nil {
		return nil, nil //nolint:nilnil // there are none
	}
	before := *b
	before.Rows, before.Ops, before.Unchanged = b.Old, nil, nil
	cols := slices.Clone(b.Old.Columns())
	for _, c := range f.columns {
		bad := misfits(c, &before)
		if len(bad) == 0 {
			continue
		}
		fixed, _, err := mend(c, cols[c.index], bad)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", b.Old.ColumnName(c.index), err)
		}
		cols[c.index] = fixed
	}
	return array.NewRecordBatch(b.Old.Schema(), cols, b.Old.NumRows()), nil
}

func (f *fitter) check(b *record.Batch) (fitted, error) {
	var altered int64
	refused := map[int]record.Reject{}
	cols := slices.Clone(b.Rows.Columns())
	for _, c := range f.columns {
		bad := misfits(c, b)
		if len(bad) == 0 {
			continue
		}
		fixed, left, err := mend(c, cols[c.index], bad)
		if err != nil {
			return fitted{}, fmt.Errorf("column %q: %w", b.Rows.ColumnName(c.index), err)
		}
		cols[c.index] = fixed
		altered += int64(len(bad) - len(left))
		for _, m := range left {
			if _, known := refused[m.row]; !known {
				refused[m.row] = rejectOf(b, m.row, c.index, m.why)
			}
		}
	}
	if altered > 0 {
		out := *b
		out.Rows = array.NewRecordBatch(b.Rows.Schema(), cols, b.Rows.NumRows())
		b = &out
	}
	if len(refused) == 0 {
		return fitted{batch: b, altered: altered}, nil
	}
	kept, err := b.Keep(func(i int) bool { _, out := refused[i]; return !out })
	if err != nil {
		return fitted{}, err
	}
	rejects := make([]record.Reject, 0, len(refused))
	for _, row := range slices.Sorted(maps.Keys(refused)) {
		rejects = append(rejects, refused[row])
	}
	return fitted{kept, rejects, altered}, nil
}

// misfits returns the values of one column that don't fit, once for each row, in order. Of a deleted row only the key counts, and
// values that the source did not send don't.
func misfits(c fitColumn, b *record.Batch) []misfit {
	var bad []misfit
	scan(c.rule, b.Rows.Column(c.index), 0, b.NumRows(), func(i int, why string) {
		if len(bad) > 0 && bad[len(bad)-1].row == i {
			return
		}
		keyed := b.Op(i) == record.Delete && len(b.Schema.Key) > 0 // nothing else of the row matters
		if (keyed && !c.key) || b.IsUnchanged(c.index, i) {
			return
		}
		bad = append(bad, misfit{i, why})
	})
	return bad
}

const shownValue = 120

// rejectOf describes a row that the sink can't hold.
func rejectOf(b *record.Batch, row, col int, why string) record.Reject {
	value := string(record.AppendText(nil, b.Rows.Column(col), row))
	if len(value) > shownValue {
		value = strings.ToValidUTF8(value[:shownValue], "") + "…"
	}
	r := b.Reject(row)
	r.Column, r.Value, r.Class, r.Message = b.Rows.ColumnName(col), value, "not_representable", why
	return r
}

// retype turns text columns into text and puts the batch under the sink's schema.
func (f *fitter) retype(rb arrow.RecordBatch) (arrow.RecordBatch, error) {
	if rb == nil || !f.retyped {
		return rb, nil
	}
	if int(rb.NumCols()) != f.out.Columns.NumFields() {
		return nil, errors.New("a batch has other columns than its schema")
	}
	cols := slices.Clone(rb.Columns())
	for _, c := range f.text {
		cols[c] = textOf(cols[c])
	}
	return array.NewRecordBatch(f.out.Columns, cols, rb.NumRows()), nil
}

// textOf is a column in its canonical text form.
func textOf(a arrow.Array) arrow.Array {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	b.Reserve(a.Len())
	var buf []byte
	for i := range a.Len() {
		if a.IsNull(i) {
			b.AppendNull()
			continue
		}
		buf = record.AppendText(buf[:0], a, i)
		b.Append(string(buf))
	}
	return b.NewArray()
}

// mend applies the column's policy to the values that don't fit; it returns those that no policy helps.
func mend(c fitColumn, a arrow.Array, bad []misfit) (arrow.Array, []misfit, error) {
	if c.policy != connector.PolicyNull && c.policy != connector.PolicyClamp && c.policy != connector.PolicyStrip {
		return a, bad, nil
	}
	var parts []arrow.Array
	var left []misfit
	at := 0
	for _, m := range bad {
		one, err := replacement(c, a, m.row)
		if err != nil {
			return nil, nil, err
		}
		if one == nil {
			left = append(left, m)
			continue
		}
		if m.row > at {
			parts = append(parts, array.NewSlice(a, int64(at), int64(m.row)))
		}
		parts = append(parts, one)
		at = m.row + 1
	}
	if len(parts) == 0 {
		return a, left, nil
	}
	if at < a.Len() {
		parts = append(parts, array.NewSlice(a, int64(at), int64(a.Len())))
	}
	joined, err := array.Concatenate(parts, memory.DefaultAllocator)
	return joined, left, err
}

// replacement is the one value that stands in for value i; nil: there is none.
func replacement(c fitColumn, a arrow.Array, i int) (arrow.Array, error) {
	if c.policy == connector.PolicyNull {
		return parsed(a.DataType(), nil)
	}
	var text string
	var ok bool
	if c.policy == connector.PolicyStrip {
		text, ok = stripped(c.typ, string(record.AppendText(nil, a, i)))
	} else {
		text, ok = clamped(c.rule, a, i)
	}
	if !ok {
		return nil, nil //nolint:nilnil // no replacement
	}
	one, err := parsed(a.DataType(), &text)
	if err != nil {
		return nil, err
	}
	fits := true
	scan(c.rule, one, 0, 1, func(int, string) { fits = false })
	if !fits {
		return nil, nil //nolint:nilnil // no replacement
	}
	return one, nil
}

// parsed is an array of one value; nil is null.
func parsed(t arrow.DataType, text *string) (arrow.Array, error) {
	b := array.NewBuilder(memory.DefaultAllocator, t)
	if text == nil {
		b.AppendNull()
	} else if err := record.ParseText(b, *text); err != nil {
		return nil, err
	}
	return b.NewArray(), nil
}
