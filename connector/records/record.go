package records

import (
	"encoding/json"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// Record is one row that a Sink is given: a view of a batch, valid during the call of Put. Columns are named by their index in the schema.
type Record struct {
	batch *record.Batch
	rows  arrow.RecordBatch
	row   int
}

// Schema returns what the record's columns are. It is the same pointer for as long as nothing changes.
func (r Record) Schema() *record.Schema { return r.batch.Schema }

// Op returns what happened to the row.
func (r Record) Op() record.Op { return r.batch.Op(r.row) }

// Null reports whether a value is null, or not known. Of a delete, only the key is sure to be known.
func (r Record) Null(col int) bool { return r.rows.Column(col).IsNull(r.row) }

// Unchanged reports whether the source did not send the value of a column: the target keeps what it has.
func (r Record) Unchanged(col int) bool { return r.batch.IsUnchanged(col, r.row) }

// Old returns the image before the change, null where it is not known; false: none of the batch has one.
func (r Record) Old() (Record, bool) {
	if r.batch.Old == nil {
		return Record{}, false
	}
	return Record{batch: r.batch, rows: r.batch.Old, row: r.row}, true
}

// KeyMoved reports whether an update changed the key: Old has the former one.
func (r Record) KeyMoved() bool { return r.batch.KeyMoved(r.row) }

// Key returns the key as a JSON object, nil where the dataset has none: equal keys have equal bytes.
func (r Record) Key() json.RawMessage { return r.batch.KeyJSON(r.row) }

// Bool returns the value of a column of kind Bool; false where it is null.
func (r Record) Bool(col int) bool {
	a, ok := r.rows.Column(col).(*array.Boolean)
	return ok && a.IsValid(r.row) && a.Value(r.row)
}

// Int returns the value of a column of integers, 0 where it is null or above the range. See Uint.
func (r Record) Int(col int) int64 {
	if r.Null(col) {
		return 0
	}
	switch a := r.rows.Column(col).(type) {
	case *array.Int64:
		return a.Value(r.row)
	case *array.Int32:
		return int64(a.Value(r.row))
	case *array.Int16:
		return int64(a.Value(r.row))
	case *array.Int8:
		return int64(a.Value(r.row))
	}
	return int64(r.Uint(col))
}

// Uint returns the value of a column of unsigned integers, 0 where it is null.
func (r Record) Uint(col int) uint64 {
	if r.Null(col) {
		return 0
	}
	switch a := r.rows.Column(col).(type) {
	case *array.Uint64:
		return a.Value(r.row)
	case *array.Uint32:
		return uint64(a.Value(r.row))
	case *array.Uint16:
		return uint64(a.Value(r.row))
	case *array.Uint8:
		return uint64(a.Value(r.row))
	}
	return 0
}

// Float returns the value of a column of floats, 0 where it is null.
func (r Record) Float(col int) float64 {
	if r.Null(col) {
		return 0
	}
	switch a := r.rows.Column(col).(type) {
	case *array.Float64:
		return a.Value(r.row)
	case *array.Float32:
		return float64(a.Value(r.row))
	}
	return 0
}

// Time returns the value of a column of timestamps, in UTC; of one without a zone it has the same calendar and clock. The zero time where
// it is null.
func (r Record) Time(col int) time.Time {
	a, ok := r.rows.Column(col).(*array.Timestamp)
	if !ok || a.IsNull(r.row) {
		return time.Time{}
	}
	return a.Value(r.row).ToTime(a.DataType().(*arrow.TimestampType).Unit) //nolint:forcetypeassert // of that array
}

// Bytes returns the value of a column of texts or bytes, nil where it is null. It is a view of the batch: not to be changed, nor kept.
func (r Record) Bytes(col int) []byte {
	if r.Null(col) {
		return nil
	}
	switch a := r.rows.Column(col).(type) {
	case *array.Binary:
		return a.Value(r.row)
	case *array.FixedSizeBinary:
		return a.Value(r.row)
	case *array.String:
		return []byte(a.Value(r.row))
	}
	return nil
}

// AppendText appends the canonical text form of a value of any type, see record.AppendText; nothing where it is null.
func (r Record) AppendText(dst []byte, col int) []byte {
	if r.Null(col) {
		return dst
	}
	return record.AppendText(dst, r.rows.Column(col), r.row)
}

// AppendJSON appends the JSON form of a value of any type, see record.AppendJSON.
func (r Record) AppendJSON(dst []byte, col int) []byte {
	return record.AppendJSON(dst, r.rows.Column(col), r.row)
}

// AppendObject appends the record as a JSON object, columns in order, without those that the source did not send.
func (r Record) AppendObject(dst []byte) []byte {
	dst = append(dst, '{')
	first := true
	for col, f := range r.batch.Schema.Columns.Fields() {
		if r.Unchanged(col) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(record.AppendJSONString(dst, f.Name), ':')
		dst = r.AppendJSON(dst, col)
	}
	return append(dst, '}')
}
