package records

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// Values are the columns of one image of a record: each is set at most once, by its index in the schema.
type Values struct {
	to     *array.RecordBuilder
	schema *record.Schema
	done   []bool // columns that are set
	bytes  int64
	wrong  error          // a mistake of the program
	bad    *record.Reject // a value that its column can't hold
}

func (v *Values) mistake(err error) {
	if v.wrong == nil {
		v.wrong = err
	}
}

// take returns the builder of a column that is to be set now; nil: it can't be.
func (v *Values) take(col int) array.Builder {
	switch {
	case v.to == nil:
		v.mistake(errors.New("a column was set before the record was begun"))
		return nil
	case col < 0 || col >= len(v.done):
		v.mistake(fmt.Errorf("column %d was set, and there are %d", col, len(v.done)))
		return nil
	case v.done[col]:
		v.mistake(fmt.Errorf("column %q was set twice", v.schema.Columns.Field(col).Name))
		return nil
	}
	v.done[col] = true
	return v.to.Field(col)
}

// misfit notes a value that the column can't hold; in its place is null.
func (v *Values) misfit(col int, text string, err error) {
	v.to.Field(col).AppendNull()
	if v.bad == nil {
		v.bad = &record.Reject{
			Column: v.schema.Columns.Field(col).Name, Value: shortened(text), Class: "bad_value", Message: err.Error(),
		}
	}
}

func shortened(text string) string {
	const most = 200
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// other notes that a setter does not go with the column's type.
func (v *Values) other(col int, setter string) {
	v.to.Field(col).AppendNull()
	f := v.schema.Columns.Field(col)
	v.mistake(fmt.Errorf("column %q has type %s, which %s does not set; Text sets every type", f.Name, f.Type, setter))
}

// Null sets a column to null, as is every column that is not set.
func (v *Values) Null(col int) {
	if b := v.take(col); b != nil {
		b.AppendNull()
	}
}

// Bool sets a column of kind Bool.
func (v *Values) Bool(col int, value bool) {
	switch b := v.take(col).(type) {
	case nil:
	case *array.BooleanBuilder:
		b.Append(value)
	default:
		v.other(col, "Bool")
	}
}

// Int sets a column of integers of any width, signed or not.
func (v *Values) Int(col int, value int64) {
	v.bytes += 8
	switch b := v.take(col).(type) {
	case nil:
	case *array.Int64Builder:
		b.Append(value)
	case *array.Int32Builder:
		if v.within(col, value, math.MinInt32, math.MaxInt32) {
			b.Append(int32(value))
		}
	case *array.Int16Builder:
		if v.within(col, value, math.MinInt16, math.MaxInt16) {
			b.Append(int16(value))
		}
	case *array.Int8Builder:
		if v.within(col, value, math.MinInt8, math.MaxInt8) {
			b.Append(int8(value))
		}
	case *array.Uint64Builder:
		if v.within(col, value, 0, math.MaxInt64) {
			b.Append(uint64(value))
		}
	case *array.Uint32Builder:
		if v.within(col, value, 0, math.MaxUint32) {
			b.Append(uint32(value))
		}
	case *array.Uint16Builder:
		if v.within(col, value, 0, math.MaxUint16) {
			b.Append(uint16(value))
		}
	case *array.Uint8Builder:
		if v.within(col, value, 0, math.MaxUint8) {
			b.Append(uint8(value))
		}
	default:
		v.other(col, "Int")
	}
}

// within reports whether an integer fits, and notes it where it does not.
func (v *Values) within(col int, value, lowest, highest int64) bool {
	if value >= lowest && value <= highest {
		return true
	}
	v.misfit(col, strconv.FormatInt(value, 10), fmt.Errorf("want a number from %d to %d", lowest, highest))
	return false
}

// Uint sets a column of integers of any width, signed or not.
func (v *Values) Uint(col int, value uint64) {
	if v.to != nil && col >= 0 && col < len(v.done) {
		if b, ok := v.to.Field(col).(*array.Uint64Builder); ok && !v.done[col] {
			v.done[col] = true
			v.bytes += 8
			b.Append(value)
			return
		}
	}
	if value > math.MaxInt64 {
		if b := v.take(col); b != nil {
			v.misfit(col, strconv.FormatUint(value, 10), errors.New("the number is too large for the column"))
		}
		return
	}
	v.Int(col, int64(value))
}

// Float sets a column of floats. One of 32 bits takes what is exactly a value of its own.
func (v *Values) Float(col int, value float64) {
	v.bytes += 8
	switch b := v.take(col).(type) {
	case nil:
	case *array.Float64Builder:
		b.Append(value)
	case *array.Float32Builder:
		if f := float32(value); float64(f) == value || math.IsNaN(value) {
			b.Append(f)
			return
		}
		v.misfit(col, strconv.FormatFloat(value, 'g', -1, 64), errors.New("a float of 32 bits does not hold it exactly"))
	default:
		v.other(col, "Float")
	}
}

// Text sets a column of any type by the canonical text form of its value, see record.ParseText: of text it is the text itself.
func (v *Values) Text(col int, value string) {
	b := v.take(col)
	if b == nil {
		return
	}
	v.bytes += int64(len(value))
	if err := record.ParseText(b, value); err != nil {
		v.misfit(col, value, err)
	}
}

// JSON sets a column of any type by the JSON form of its value, see record.ParseJSON.
func (v *Values) JSON(col int, doc []byte) {
	b := v.take(col)
	if b == nil {
		return
	}
	v.bytes += int64(len(doc))
	if err := record.ParseJSON(b, doc); err != nil {
		v.misfit(col, string(doc), err)
	}
}

// Bytes sets a column of bytes. They are copied.
func (v *Values) Bytes(col int, value []byte) {
	v.bytes += int64(len(value))
	switch b := v.take(col).(type) {
	case nil:
	case *array.BinaryBuilder:
		b.Append(value)
	case *array.FixedSizeBinaryBuilder:
		if w := b.Type().(*arrow.FixedSizeBinaryType).ByteWidth; len(value) != w { //nolint:forcetypeassert // of that builder
			v.misfit(col, hex.EncodeToString(value), fmt.Errorf("%d bytes, and the column has %d", len(value), w))
			return
		}
		b.Append(value)
	default:
		v.other(col, "Bytes")
	}
}

// Time sets a column of timestamps or dates. A timestamp in UTC is the instant; one without a zone, and a date, are what calendar and clock
// of value show. Digits that the column's unit lacks are a value that does not fit.
func (v *Values) Time(col int, value time.Time) {
	v.bytes += 8
	switch b := v.take(col).(type) {
	case nil:
	case *array.TimestampBuilder:
		v.timestamp(col, b, value)
	case *array.Date32Builder:
		days := wall(value)
		if days.Unix()%secondsADay != 0 || days.Nanosecond() != 0 {
			v.misfit(col, value.Format(time.RFC3339Nano), errors.New("a date has no time of day"))
			return
		}
		b.Append(arrow.Date32(days.Unix() / secondsADay))
	default:
		v.other(col, "Time")
	}
}

const secondsADay = 24 * 60 * 60

// wall is the instant at which calendar and clock show the same in UTC.
func wall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

func (v *Values) timestamp(col int, b *array.TimestampBuilder, value time.Time) {
	dt := b.Type().(*arrow.TimestampType) //nolint:forcetypeassert // of that builder
	if dt.TimeZone == "" {
		value = wall(value)
	}
	per := int64(math.Pow10(3 * int(dt.Unit))) // seconds, milliseconds, microseconds, nanoseconds
	digit := int64(time.Second) / per
	sec, frac := value.Unix(), int64(value.Nanosecond())
	total := sec*per + frac/digit
	switch {
	case frac%digit != 0:
		v.misfit(col, value.Format(time.RFC3339Nano), fmt.Errorf("it has digits that a column of %s lacks", dt.Unit))
	case total/per != sec && (total-per+1)/per != sec:
		v.misfit(col, value.Format(time.RFC3339Nano), errors.New("it is too far away for the column"))
	default:
		b.Append(arrow.Timestamp(total))
	}
}

// Builder returns the builder of a column, for values that are built piece by piece: lists, structs, record.ArrayBuilder. The caller
// appends exactly one value. Nil: the column can't be set, and the error is told when the record ends.
func (v *Values) Builder(col int) array.Builder { return v.take(col) }
