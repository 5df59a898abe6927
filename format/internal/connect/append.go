package connect

import (
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/format/internal/literal"
	"github.com/leatdata/leat/record"
)

// Appender appends exactly one value to a builder of the type that it was compiled for. Where it returns an error that value is a
// null, and the row of it has to be left out.
type Appender func(t *Tape, c Cell, b array.Builder) error

// setter appends a value that is neither null nor absent; nothing where it returns an error. b is the builder of the storage.
type setter func(t *Tape, c Cell, b array.Builder) error

// Compile returns what appends values of a schema to columns of a type: to the type that TypeOf returns, and to every wider one. A nil
// schema is that of JSON texts that come without one.
func Compile(s *Schema, t record.Type) (Appender, error) {
	if s == nil || s.Type == Any && s.Record != nil && arrow.TypeEqual(s.Record, t.Arrow) {
		return dynamic(t), nil
	}
	if a, err := nested(s, t); a != nil || err != nil {
		return a, err
	}
	if s.Type == String && readsText(t.Kind) {
		return appendText, nil
	}
	if set := scalar(s, t); set != nil {
		return finish(set), nil
	}
	return promotion(s, t)
}

// readsText reports whether values of a kind are written as their text form where the wire has texts.
func readsText(k record.Kind) bool {
	switch k {
	case record.UUID, record.Enum, record.Bits, record.Network, record.Foreign, record.Date, record.Time, record.Timestamp, record.Duration,
		record.Interval:
		return true
	default:
		return false
	}
}

// appendText reads the text form of package record.
func appendText(t *Tape, c Cell, b array.Builder) error {
	if c.Kind <= Null {
		b.AppendNull()
		return nil
	}
	v, ok := t.String(c)
	if !ok {
		b.AppendNull()
		return mismatch(c, "a text")
	}
	if err := record.ParseText(b, string(v)); err != nil {
		b.AppendNull()
		return err
	}
	return nil
}

// finish makes an appender of a setter.
func finish(set setter) Appender {
	return func(t *Tape, c Cell, b array.Builder) error {
		if c.Kind <= Null {
			b.AppendNull()
			return nil
		}
		if err := set(t, c, inner(b)); err != nil {
			b.AppendNull()
			return err
		}
		return nil
	}
}

// inner returns the builder of an extension type's storage.
func inner(b array.Builder) array.Builder {
	if eb, ok := b.(interface{ StorageBuilder() array.Builder }); ok {
		return eb.StorageBuilder()
	}
	return b
}

// promotion goes over the text of a value: a number that became wider, a column that became text.
func promotion(s *Schema, t record.Type) (Appender, error) {
	dt, err := (Reading{}).TypeOf(s)
	if err != nil {
		return nil, err
	}
	from, err := record.TypeOf(dt)
	if err != nil {
		return nil, err
	}
	if t.Nested() || from.Kind == t.Kind || (from.Nested() && t.Kind != record.String && t.Kind != record.JSON) {
		return nil, fmt.Errorf("values of type %s are no %s", from, t)
	}
	read, err := Compile(s, from)
	if err != nil {
		return nil, err
	}
	one := array.NewBuilder(memory.DefaultAllocator, dt)
	return func(tp *Tape, c Cell, b array.Builder) error {
		if c.Kind <= Null {
			b.AppendNull()
			return nil
		}
		err := read(tp, c, one)
		arr := one.NewArray()
		if err == nil && t.Kind == record.JSON {
			err = record.ParseText(b, string(record.AppendJSON(nil, arr, 0)))
		} else if err == nil {
			err = record.ParseText(b, string(record.AppendText(nil, arr, 0)))
		}
		if err != nil {
			b.AppendNull()
		}
		return err
	}, nil
}

func scalar(s *Schema, t record.Type) setter {
	switch t.Kind {
	case record.Bool:
		if s.Type == Boolean {
			return setBool
		}
	case record.Int8, record.Int16, record.Int32, record.Int64, record.Uint8, record.Uint16, record.Uint32, record.Uint64:
		switch {
		case s.Type == Bytes && s.Name == Decimal:
			return digitsSetter(s)
		case s.Type <= Int64 || s.Type == Uint32 || s.Type == Uint64 || s.Type == Number:
			return integerSetter(t.Kind)
		}
	case record.Float32, record.Float64:
		if s.Type == Float32 || s.Type == Float64 || s.Type == Number || s.Type <= Int64 {
			return setFloat
		}
	case record.Decimal, record.Numeric:
		return exact(s, t)
	case record.Binary:
		if s.Type == Bytes {
			return setBytes
		}
	case record.List, record.Array, record.Struct, record.Map:
		return nil
	default:
		return textual(s, t)
	}
	return nil
}

// exact are the setters of decimals and numerics.
func exact(s *Schema, t record.Type) setter {
	switch {
	case s.Name == VariableScale && s.Type == Struct:
		return variableSetter(s)
	case s.Name != Decimal || s.Type != Bytes:
		return numberText(s)
	case t.Kind == record.Decimal:
		return decimalSetter(s, t)
	default:
		return digitsSetter(s)
	}
}

// textual are the setters of what is mostly kept as text.
func textual(s *Schema, t record.Type) setter {
	switch t.Kind {
	case record.String:
		if s.Type == String {
			return setText
		}
	case record.JSON:
		switch s.Type {
		case String:
			if s.Name == JSON || s.Record != nil {
				return setDocument
			}
		case Any, Struct:
			return setRaw
		default:
		}
	case record.UUID:
		if s.Type == Bytes {
			return setBytes
		}
	case record.Bits:
		return bitsSetter(s, t)
	default:
		return temporal(s, t)
	}
	return nil
}

func temporal(s *Schema, t record.Type) setter {
	switch {
	case t.Kind == record.Date && s.Type == Int32 && (s.Name == Date || s.Name == EpochDate):
		return setDays
	case t.Kind == record.Time:
		if unit, ok := timeUnits[s.Name]; ok {
			return clockSetter(unit, t.Unit)
		}
	case t.Kind == record.Timestamp:
		if unit, ok := timestampUnits[s.Name]; ok {
			return timestampSetter(s, unit, t)
		}
	case t.Kind == record.Duration:
		unit := t.Unit
		switch s.Name {
		case MicroDuration:
			unit = arrow.Microsecond
		case NanoDuration:
			unit = arrow.Nanosecond
		}
		return durationSetter(unit, t.Unit)
	}
	if t.Kind == record.Timestamp && s.Record != nil && s.Type == Int64 {
		return timestampSetter(s, t.Unit, t)
	}
	return nil
}

func setBool(_ *Tape, c Cell, b array.Builder) error {
	v, ok := c.Truth()
	if !ok {
		return mismatch(c, "a boolean")
	}
	b.(*array.BooleanBuilder).Append(v) //nolint:forcetypeassert // compiled for it
	return nil
}

func outside(c Cell, want string) error { return fmt.Errorf("%s does not fit %s", c.what(), want) }

// within appends an integer that fits.
func within[T int8 | int16 | int32 | uint8 | uint16 | uint32](v int64, add func(T)) error {
	if int64(T(v)) != v {
		return fmt.Errorf("%d does not fit", v)
	}
	add(T(v))
	return nil
}

func integerSetter(k record.Kind) setter {
	return func(_ *Tape, c Cell, b array.Builder) error {
		if k == record.Uint64 {
			v, ok := c.Uint()
			if !ok {
				return mismatch(c, "an integer of 64 bits without sign")
			}
			b.(*array.Uint64Builder).Append(v) //nolint:forcetypeassert // compiled for it
			return nil
		}
		v, ok := c.Int()
		if !ok {
			return mismatch(c, "an integer")
		}
		switch b := b.(type) {
		case *array.Int64Builder:
			b.Append(v)
		case *array.Int32Builder:
			return within(v, b.Append)
		case *array.Int16Builder:
			return within(v, b.Append)
		case *array.Int8Builder:
			return within(v, b.Append)
		case *array.Uint32Builder:
			return within(v, b.Append)
		case *array.Uint16Builder:
			return within(v, b.Append)
		case *array.Uint8Builder:
			return within(v, b.Append)
		}
		return nil
	}
}

func setFloat(t *Tape, c Cell, b array.Builder) error {
	size := 64
	if _, ok := b.(*array.Float32Builder); ok {
		size = 32
	}
	v, ok := t.Float(c, size)
	if !ok {
		return outside(c, fmt.Sprintf("a float of %d bits", size))
	}
	switch b := b.(type) {
	case *array.Float64Builder:
		b.Append(v)
	case *array.Float32Builder:
		b.Append(float32(v))
	}
	return nil
}

// numberText reads numbers that are integers, literals, or text.
func numberText(s *Schema) setter {
	if s.Type == Boolean || s.Type == Bytes || s.Type > String && s.Type < Uint32 || s.Type == Any {
		return nil
	}
	return func(t *Tape, c Cell, b array.Builder) error {
		var ok bool
		if t.scratch, ok = t.digits(t.scratch[:0], c); !ok {
			return mismatch(c, "a number")
		}
		return appendNumber(t.scratch, b)
	}
}

// appendNumber appends a number from its text.
func appendNumber(text []byte, b array.Builder) error {
	if sb, ok := b.(*array.StringBuilder); ok {
		if literal.IsNumeric(text) {
			sb.BinaryBuilder.Append(text)
			return nil
		}
		n, err := record.CanonicalNumeric(string(text))
		if err != nil {
			return err
		}
		sb.Append(n)
		return nil
	}
	return record.ParseText(b, string(text))
}

// digitsSetter reads Connect's Decimal as text.
func digitsSetter(s *Schema) setter {
	scale, _ := s.param(ParamScale)
	return func(t *Tape, c Cell, b array.Builder) error {
		if k := c.json(); k != 0 && !c.isText() { // decimal.format=NUMERIC of Connect's converter
			return appendNumber(c.Bytes, b)
		}
		v, err := t.Blob(c)
		if err != nil {
			return err
		}
		return appendNumber(unscaled(nil, v, scale), b)
	}
}

func decimalSetter(s *Schema, to record.Type) setter {
	scale, _ := s.param(ParamScale)
	slow := digitsSetter(s)
	if int32(scale) != to.Scale || to.Arrow.ID() != arrow.DECIMAL128 {
		return slow
	}
	return func(t *Tape, c Cell, b array.Builder) error {
		db, ok := b.(*array.Decimal128Builder)
		if !ok || (c.Kind == Raw && !c.isText()) {
			return slow(t, c, b)
		}
		v, err := t.Blob(c)
		if err != nil {
			return err
		}
		hi, lo, ok := fits128(v)
		n := decimal128.New(hi, lo)
		if !ok || !n.FitsInPrecision(to.Precision) {
			return fmt.Errorf("%s does not fit %s", unscaled(nil, v, scale), to)
		}
		db.Append(n)
		return nil
	}
}

func (c Cell) isText() bool {
	k := c.json()
	return c.Kind == Text || k == jsontext.Text || k == jsontext.Escaped
}

// variableSetter reads Debezium's struct of scale and bytes.
func variableSetter(s *Schema) setter {
	scaleAt, valueAt := s.Field("scale"), s.Field("value")
	if scaleAt < 0 || valueAt < 0 {
		return nil
	}
	return func(t *Tape, c Cell, b array.Builder) error {
		fields, err := t.FieldsOf(c, s)
		if err != nil {
			return err
		}
		scale, ok := fields[scaleAt].Int()
		const most = 1 << 17
		if !ok || scale > most || scale < -most {
			return mismatch(fields[scaleAt], "a scale")
		}
		v, err := t.Blob(fields[valueAt])
		if err != nil {
			return err
		}
		return appendNumber(unscaled(nil, v, int(scale)), b)
	}
}

func setBytes(t *Tape, c Cell, b array.Builder) error {
	v, err := t.Blob(c)
	if err != nil {
		return err
	}
	switch b := b.(type) {
	case *array.BinaryBuilder:
		b.Append(v)
	case *array.FixedSizeBinaryBuilder:
		if w := b.Type().(*arrow.FixedSizeBinaryType).ByteWidth; w != len(v) { //nolint:forcetypeassert // its type
			return fmt.Errorf("found %d bytes, want %d", len(v), w)
		}
		b.Append(v)
	}
	return nil
}

func setText(t *Tape, c Cell, b array.Builder) error {
	v, ok := t.String(c)
	if !ok {
		return mismatch(c, "a text")
	}
	b.(*array.StringBuilder).BinaryBuilder.Append(v) //nolint:forcetypeassert // compiled for it
	return nil
}

// setDocument reads a JSON document that is kept as text.
func setDocument(t *Tape, c Cell, b array.Builder) error {
	v, ok := t.String(c)
	if !ok {
		return mismatch(c, "a JSON document as text")
	}
	if err := record.CheckJSON(v); err != nil {
		return err
	}
	b.(*array.StringBuilder).BinaryBuilder.Append(v) //nolint:forcetypeassert // compiled for it
	return nil
}

// setRaw keeps a value of a JSON text as the document that it is.
func setRaw(_ *Tape, c Cell, b array.Builder) error {
	if c.Kind != Raw {
		return mismatch(c, "JSON")
	}
	b.(*array.StringBuilder).BinaryBuilder.Append(c.Bytes) //nolint:forcetypeassert // compiled for it
	return nil
}

func setDays(_ *Tape, c Cell, b array.Builder) error {
	v, ok := c.Int()
	if !ok || v < math.MinInt32 || v > math.MaxInt32 {
		return mismatch(c, "a number of days")
	}
	b.(*array.Date32Builder).Append(arrow.Date32(v)) //nolint:forcetypeassert // compiled for it
	return nil
}

var errUnit = errors.New("is more precise, or larger, than the column")

// perSecond is how many of a unit a second has.
func perSecond(u arrow.TimeUnit) int64 {
	return [...]int64{1, 1_000, 1_000_000, 1_000_000_000}[u]
}

// Convert changes a count of one unit into one of another, exactly.
func Convert(v int64, from, to arrow.TimeUnit) (int64, error) {
	a, b := perSecond(from), perSecond(to)
	if a == b {
		return v, nil
	}
	if a > b {
		if v%(a/b) != 0 {
			return 0, fmt.Errorf("%d %w", v, errUnit)
		}
		return v / (a / b), nil
	}
	f := b / a
	if v > math.MaxInt64/f || v < math.MinInt64/f {
		return 0, fmt.Errorf("%d %w", v, errUnit)
	}
	return v * f, nil
}

const daySeconds = 86_400

func clockSetter(from, to arrow.TimeUnit) setter {
	return func(_ *Tape, c Cell, b array.Builder) error {
		v, ok := c.Int()
		if !ok || v < 0 || v > daySeconds*perSecond(from) {
			return mismatch(c, "a time of day")
		}
		v, err := Convert(v, from, to)
		if err != nil {
			return err
		}
		switch b := b.(type) {
		case *array.Time64Builder:
			b.Append(arrow.Time64(v))
		case *array.Time32Builder:
			b.Append(arrow.Time32(v))
		}
		return nil
	}
}

// What the PostgreSQL connector writes for infinite timestamps: the driver's milliseconds as microseconds, and as nanoseconds.
const (
	infinity    = 9223372036825200000
	negInfinity = -9223372036832400000
)

func timestampSetter(s *Schema, from arrow.TimeUnit, to record.Type) setter {
	debezium := to.Infinite && s.Name == MicroTimestamp
	return func(_ *Tape, c Cell, b array.Builder) error {
		v, ok := c.Int()
		if !ok {
			return mismatch(c, "a timestamp as a number")
		}
		switch {
		case debezium && v == infinity:
			v = math.MaxInt64
		case debezium && v == negInfinity:
			v = math.MinInt64
		default:
			var err error
			if v, err = Convert(v, from, to.Unit); err != nil {
				return err
			}
		}
		b.(*array.TimestampBuilder).Append(arrow.Timestamp(v)) //nolint:forcetypeassert // compiled for it
		return nil
	}
}

func durationSetter(from, to arrow.TimeUnit) setter {
	return func(_ *Tape, c Cell, b array.Builder) error {
		v, ok := c.Int()
		if !ok {
			return mismatch(c, "a number")
		}
		v, err := Convert(v, from, to)
		if err != nil {
			return err
		}
		b.(*array.DurationBuilder).Append(arrow.Duration(v)) //nolint:forcetypeassert // compiled for it
		return nil
	}
}

// bitsSetter reads a boolean, bytes with the lowest bit first, or digits.
func bitsSetter(s *Schema, to record.Type) setter {
	switch {
	case s.Type == Boolean:
		return func(_ *Tape, c Cell, b array.Builder) error {
			v, ok := c.Truth()
			if !ok {
				return mismatch(c, "a boolean")
			}
			digit := "0"
			if v {
				digit = "1"
			}
			b.(*array.StringBuilder).Append(digit) //nolint:forcetypeassert // compiled for it
			return nil
		}
	case s.Type != Bytes:
		return nil
	}
	width, ok := s.param(ParamLength)
	if !ok {
		width = to.Width
	}
	return func(t *Tape, c Cell, b array.Builder) error {
		v, err := t.Blob(c)
		if err != nil {
			return err
		}
		n := width
		if n <= 0 {
			n = 8 * len(v)
		}
		digits := make([]byte, n)
		for i := range digits {
			digits[i] = '0'
		}
		for i := range 8 * len(v) {
			if v[i/8]>>(i%8)&1 == 0 {
				continue
			}
			if i >= n {
				return fmt.Errorf("bit %d is set, but there are %d", i+1, n)
			}
			digits[n-1-i] = '1'
		}
		b.(*array.StringBuilder).BinaryBuilder.Append(digits) //nolint:forcetypeassert // compiled for it
		return nil
	}
}

// bigDigits is a big-endian two's complement integer as text.
func bigDigits(b []byte) []byte {
	n := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n.Append(nil, 10)
}

// withPoint puts a point in front of the last scale digits.
func withPoint(dst, digits []byte, scale int) []byte {
	if digits[0] == '-' {
		dst, digits = append(dst, '-'), digits[1:]
	}
	if scale <= 0 {
		dst = append(dst, digits...)
		if string(digits) != "0" {
			for range -scale {
				dst = append(dst, '0')
			}
		}
		return dst
	}
	if whole := len(digits) - scale; whole > 0 {
		dst = append(append(dst, digits[:whole]...), '.')
		return append(dst, digits[whole:]...)
	}
	dst = append(dst, "0."...)
	for range scale - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}
