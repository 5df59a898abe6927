package changelog

import (
	"fmt"
	"io"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/record"
)

// DefaultPrefix is what the names of the columns begin with that a log adds.
const DefaultPrefix = "_"

// The columns that a log of rows has in front of those of the dataset, without their prefix, and their places.
const (
	colOp = iota
	colTime
	colPosition
	colSeq
	colUnchanged
	colBefore
	metaColumns
)

// metaFields are the columns that a log adds.
func metaFields(prefix string) []arrow.Field {
	fields := []arrow.Field{
		colOp:        {Name: "op", Type: arrow.BinaryTypes.String},
		colTime:      {Name: "commit_time", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
		colPosition:  {Name: "position", Type: record.JSONType(), Nullable: true},
		colSeq:       {Name: "seq", Type: arrow.PrimitiveTypes.Int64},
		colUnchanged: {Name: "unchanged", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
		colBefore:    {Name: "before", Type: record.JSONType(), Nullable: true},
	}
	for i := range fields {
		fields[i].Name = prefix + fields[i].Name
	}
	return fields
}

// CheckNames refuses a dataset that has a column of the name of one that a log adds, upper or lower case aside, as many readers know no
// difference.
func CheckNames(s *record.Schema, prefix string) error {
	column, clash := findClash(s, prefix)
	if !clash {
		return nil
	}
	free := "_leat_"
	for {
		if _, clash := findClash(s, free); !clash {
			break
		}
		free += "_"
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "changelog.column", Doing: "writing a log of changes", Dataset: s.Dataset, Column: column,
		Err:  fmt.Errorf("it has the name of a column that the log adds, which begin with %q", prefix),
		Hint: "choose another beginning for those: meta_prefix=" + free,
	}
}

func findClash(s *record.Schema, prefix string) (column string, clash bool) {
	for _, m := range metaFields(prefix) {
		for _, n := range s.Names() {
			if strings.EqualFold(n, m.Name) {
				return n, true
			}
		}
	}
	return "", false
}

// Parquet writes a row for each change: the columns that the log adds, then those of the dataset, all of which may be NULL. They hold the
// row after the change; of a deletion the row before, as far as it is known. It implements Writer.
type Parquet struct {
	w      *parquet.Writer
	schema *record.Schema // of the dataset
	stored *record.Schema // of the file
	old    image
	meta   *array.RecordBuilder
	buf    []byte
}

var _ Writer = (*Parquet)(nil)

// NewParquet begins a file. Names that clash are refused, see CheckNames; so is a column that Parquet can't keep.
func NewParquet(w io.Writer, s *record.Schema, prefix string, o parquet.Options) (*Parquet, error) {
	if err := CheckNames(s, prefix); err != nil {
		return nil, err
	}
	fields := metaFields(prefix)
	meta := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	for _, f := range s.Columns.Fields() {
		f.Nullable = true
		fields = append(fields, f)
	}
	stored := &record.Schema{Dataset: s.Dataset, Columns: arrow.NewSchema(fields, nil), Version: s.Version}
	pw, err := parquet.NewWriter(w, stored, o)
	if err != nil {
		return nil, err
	}
	return &Parquet{w: pw, schema: s, stored: stored, old: image{names: names(s)}, meta: meta}, nil
}

// Write implements Writer.
func (w *Parquet) Write(b *record.Batch, seq int64) error {
	b, err := Complete(b)
	if err != nil {
		return err
	}
	if err := Check(b); err != nil {
		return err
	}
	w.old.printers = printers(w.old.printers[:0], b.Old)
	var rows []arrow.RecordBatch
	if b.Truncate {
		rows = append(rows, w.empty())
	}
	if b.NumRows() > 0 {
		rows = append(rows, b.Rows)
	}
	i := 0
	for c := range Changes(b) {
		w.append(c, seq)
		seq++
		if c.Row == int(rows[i].NumRows())-1 || c.Op == Truncate {
			if err := w.flush(rows[i]); err != nil {
				return err
			}
			i++
		}
	}
	return nil
}

// empty is a row of the dataset without values.
func (w *Parquet) empty() arrow.RecordBatch {
	cols := make([]arrow.Array, w.schema.Columns.NumFields())
	for i, f := range w.schema.Columns.Fields() {
		cols[i] = array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, 1)
	}
	return array.NewRecordBatch(w.schema.Columns, cols, 1)
}

// append appends what the log adds to a change.
func (w *Parquet) append(c Change, seq int64) {
	text := func(col int, s string) { w.meta.Field(col).(*array.StringBuilder).Append(s) } //nolint:forcetypeassert // by metaFields
	doc := func(col int, v []byte) {
		b := w.meta.Field(col).(*array.ExtensionBuilder).Builder.(*array.StringBuilder) //nolint:forcetypeassert // by metaFields
		if v == nil {
			b.AppendNull()
			return
		}
		b.BinaryBuilder.Append(v)
	}
	text(colOp, string(rune(c.Op)))
	times := w.meta.Field(colTime).(*array.TimestampBuilder) //nolint:forcetypeassert // by metaFields
	var position []byte
	if c.Txn == nil || c.Txn.Time.IsZero() {
		times.AppendNull()
	} else {
		times.Append(arrow.Timestamp(c.Txn.Time.UnixMicro()))
	}
	if c.Txn != nil && !c.Txn.Position.Zero() {
		position = c.Txn.Position.Data
	}
	doc(colPosition, position)
	w.meta.Field(colSeq).(*array.Int64Builder).Append(seq) //nolint:forcetypeassert // by metaFields
	w.unchanged(c)
	doc(colBefore, w.before(c))
}

// unchanged appends the names of the columns whose values the source did not send.
func (w *Parquet) unchanged(c Change) {
	list := w.meta.Field(colUnchanged).(*array.ListBuilder) //nolint:forcetypeassert // by metaFields
	values := list.ValueBuilder().(*array.StringBuilder)    //nolint:forcetypeassert // by metaFields
	found := false
	if c.After() != nil && len(c.Batch.Unchanged) > 0 {
		for i, f := range w.schema.Columns.Fields() {
			if !c.Batch.IsUnchanged(i, c.Row) {
				continue
			}
			if !found {
				list.Append(true)
				found = true
			}
			values.Append(f.Name)
		}
	}
	if !found {
		list.AppendNull()
	}
}

// before is what is known of the row before an update; a deletion has it in the columns.
func (w *Parquet) before(c Change) []byte {
	if c.Op == Delete {
		return nil
	}
	_, extent := c.Before()
	var cols []int
	switch extent {
	case Nothing:
		return nil
	case Key:
		cols = w.schema.Key
	case Whole:
	}
	w.buf = w.old.object(w.buf[:0], cols, c.Row, nil)
	return w.buf
}

// flush writes rows with what was appended for them.
func (w *Parquet) flush(rows arrow.RecordBatch) error {
	meta := w.meta.NewRecordBatch()
	cols := append(meta.Columns()[:metaColumns:metaColumns], rows.Columns()...)
	all := array.NewRecordBatch(w.stored.Columns, cols, rows.NumRows())
	return w.w.Write(&record.Batch{Schema: w.stored, Rows: all})
}

// Close implements Writer.
func (w *Parquet) Close() error { return w.w.Close() }
