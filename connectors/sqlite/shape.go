package sqlite

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/record"
)

// shape is one way to read a column: a type, and which stored values are values of it.
type shape struct {
	kind    record.Kind
	typ     arrow.DataType
	tight   bool     // narrower than the declaration: taken only where every row was checked
	classes classSet // storage classes that may fit
	// put appends the value of a column, which is not null; after an error nothing was appended.
	put func(b array.Builder, c *cells, col int) error
	// all says that every value of the classes fits: there is nothing to check.
	all bool
}

// classSet is a set of storage classes.
type classSet uint8

const (
	ints  classSet = 1 << sqlite.TypeInteger
	reals classSet = 1 << sqlite.TypeFloat
	texts classSet = 1 << sqlite.TypeText
	blobs classSet = 1 << sqlite.TypeBlob
)

func (s classSet) has(c sqlite.ColumnType) bool { return s>>c&1 == 1 }

const microDigits = 6

// unitDigits is the number of digits after the point.
func unitDigits(u arrow.TimeUnit) int {
	switch u {
	case arrow.Second:
		return 0
	case arrow.Millisecond:
		return 3
	case arrow.Microsecond:
		return microDigits
	default:
		return 9
	}
}

func unitOf(digits int) arrow.TimeUnit {
	switch {
	case digits <= 0:
		return arrow.Second
	case digits <= 3:
		return arrow.Millisecond
	case digits <= microDigits:
		return arrow.Microsecond
	default:
		return arrow.Nanosecond
	}
}

// misfit is the error of a value that is no value of the type.
func misfit(c *cells, col int, want string) error {
	return fmt.Errorf("a stored %s is no %s", className(c.class(col)), want)
}

func className(c sqlite.ColumnType) string {
	switch c {
	case sqlite.TypeInteger:
		return "integer"
	case sqlite.TypeFloat:
		return "real"
	case sqlite.TypeText:
		return "text"
	case sqlite.TypeBlob:
		return "blob"
	default:
		return "NULL"
	}
}

func int64Shape() shape {
	return shape{
		kind: record.Int64, typ: arrow.PrimitiveTypes.Int64, classes: ints, all: true,
		put: func(b array.Builder, c *cells, col int) error {
			b.(*array.Int64Builder).Append(c.int(col)) //nolint:forcetypeassert // made for the type
			return nil
		},
	}
}

// rangedShape reads integers of fewer than 64 bits.
func rangedShape(dt arrow.DataType, lowest, highest int64) shape {
	kind := kindOf(dt)
	return shape{
		kind: kind, typ: dt, classes: ints, tight: true,
		put: func(b array.Builder, c *cells, col int) error {
			n := c.int(col)
			if n < lowest || n > highest {
				return fmt.Errorf("%d is out of the range of %s", n, kind)
			}
			switch b := b.(type) {
			case *array.Int8Builder:
				b.Append(int8(n))
			case *array.Int16Builder:
				b.Append(int16(n))
			case *array.Int32Builder:
				b.Append(int32(n))
			case *array.Uint8Builder:
				b.Append(uint8(n))
			case *array.Uint16Builder:
				b.Append(uint16(n))
			case *array.Uint32Builder:
				b.Append(uint32(n))
			}
			return nil
		},
	}
}

// kindOf is the kind of a type that this package made.
func kindOf(dt arrow.DataType) record.Kind {
	t, err := record.TypeOf(dt)
	if err != nil {
		panic(fmt.Sprintf("sqlite: %v", err)) // only types of the vocabulary are made here
	}
	return t.Kind
}

// wholeInReal is the largest whole number up to which a double holds every one.
const wholeInReal = 1 << 53

func float64Shape() shape {
	return shape{
		kind: record.Float64, typ: arrow.PrimitiveTypes.Float64, classes: ints | reals,
		put: func(b array.Builder, c *cells, col int) error {
			if c.class(col) == sqlite.TypeInteger {
				if n := c.int(col); n > wholeInReal || n < -wholeInReal {
					return fmt.Errorf("%d has more digits than a float64 holds", n)
				}
			}
			b.(*array.Float64Builder).Append(c.float(col)) //nolint:forcetypeassert // made for the type
			return nil
		},
	}
}

func float32Shape() shape {
	return shape{
		kind: record.Float32, typ: arrow.PrimitiveTypes.Float32, classes: ints | reals, tight: true,
		put: func(b array.Builder, c *cells, col int) error {
			f := c.float(col)
			if float64(float32(f)) != f {
				return fmt.Errorf("%v has more digits than a float32 holds", f)
			}
			b.(*array.Float32Builder).Append(float32(f)) //nolint:forcetypeassert // made for the type
			return nil
		},
	}
}

func boolShape() shape {
	return shape{
		kind: record.Bool, typ: arrow.FixedWidthTypes.Boolean, classes: ints | texts,
		put: func(b array.Builder, c *cells, col int) error {
			bb := b.(*array.BooleanBuilder) //nolint:forcetypeassert // made for the type
			if c.class(col) == sqlite.TypeInteger {
				n := c.int(col)
				if n != 0 && n != 1 {
					return fmt.Errorf("%d is no boolean: want 0 or 1", n)
				}
				bb.Append(n == 1)
				return nil
			}
			switch s := strings.ToLower(string(c.text(col))); s {
			case "true", "false":
				bb.Append(s == "true")
				return nil
			default:
				return fmt.Errorf("%q is no boolean", s)
			}
		},
	}
}

// stringShape reads numbers in their canonical text form, and text as it is.
func stringShape() shape {
	return shape{
		kind: record.String, typ: arrow.BinaryTypes.String, classes: ints | reals | texts,
		put: func(b array.Builder, c *cells, col int) error {
			text, err := canonical(c, col)
			if err != nil {
				return err
			}
			b.(*array.StringBuilder).BinaryBuilder.Append(text) //nolint:forcetypeassert // made for the type
			return nil
		},
	}
}

// canonical returns the text form of an integer, a real or a text; it is valid until the next value is read.
func canonical(c *cells, col int) ([]byte, error) {
	switch c.class(col) {
	case sqlite.TypeInteger:
		c.buf = strconv.AppendInt(c.buf[:0], c.int(col), 10)
		return c.buf, nil
	case sqlite.TypeFloat:
		c.buf = record.AppendFloat(c.buf[:0], c.float(col), 64)
		return c.buf, nil
	case sqlite.TypeText:
		text := c.text(col)
		if !utf8.Valid(text) {
			return nil, errors.New("the text is not valid UTF-8")
		}
		return text, nil
	default:
		return nil, misfit(c, col, "text")
	}
}

// anyTextShape reads every value as text; blobs are \x and hex digits. It is what the option types=column:text asks for.
func anyTextShape() shape {
	s := stringShape()
	s.classes |= blobs
	inner := s.put
	s.put = func(b array.Builder, c *cells, col int) error {
		if c.class(col) != sqlite.TypeBlob {
			return inner(b, c, col)
		}
		b.(*array.StringBuilder).Append(fmt.Sprintf(`\x%x`, c.blob(col))) //nolint:forcetypeassert // made for the type
		return nil
	}
	return s
}

func binaryShape() shape {
	return shape{
		kind: record.Binary, typ: arrow.BinaryTypes.Binary, classes: blobs, all: true,
		put: func(b array.Builder, c *cells, col int) error {
			b.(*array.BinaryBuilder).Append(c.blob(col)) //nolint:forcetypeassert // made for the type
			return nil
		},
	}
}

// bytesShape reads text as its bytes too: what the option types=column:binary asks for.
func bytesShape() shape {
	s := binaryShape()
	inner := s.put
	s.classes |= texts
	s.put = func(b array.Builder, c *cells, col int) error {
		if c.class(col) == sqlite.TypeText {
			b.(*array.BinaryBuilder).Append(c.text(col)) //nolint:forcetypeassert // made for the type
			return nil
		}
		return inner(b, c, col)
	}
	return s
}

// parsedShape reads the canonical text form of a type. Exactly says that another spelling of the same value (an upper-case uuid)
// is no value of it, because the spelling would be lost.
func parsedShape(dt arrow.DataType, classes classSet) shape {
	return shape{
		kind: kindOf(dt), typ: dt, classes: classes,
		put: func(b array.Builder, c *cells, col int) error {
			text, err := canonical(c, col)
			if err != nil {
				return err
			}
			return record.ParseText(b, string(text))
		},
	}
}

// spelledShape is parsedShape for types whose text has several spellings: only the canonical one is a value.
func spelledShape(dt arrow.DataType) shape {
	s := parsedShape(dt, texts)
	scratch := array.NewBuilder(memory.DefaultAllocator, dt)
	inner := s.put
	s.put = func(b array.Builder, c *cells, col int) error {
		text := string(c.text(col))
		if err := record.ParseText(scratch, text); err != nil {
			return err
		}
		one := scratch.NewArray()
		if got := string(record.AppendText(nil, one, 0)); got != text {
			return fmt.Errorf("%q is not in its canonical form %q", text, got)
		}
		return inner(b, c, col)
	}
	return s
}

func numericShape() shape { return parsedShape(record.NumericType(), ints|reals) }

// decimalShape reads numbers that have no more digits than declared.
func decimalShape(p, s int) shape {
	sh := parsedShape(decimalType(p, s), ints|reals)
	if p > realDigits {
		return sh
	}
	slow, per, limit := sh.put, pow10(int32(s)), pow10(int32(p))
	sh.put = func(b array.Builder, c *cells, col int) error {
		var n int64
		if c.class(col) == sqlite.TypeInteger {
			whole := c.int(col)
			if n = whole * per; whole >= limit || whole <= -limit {
				return slow(b, c, col)
			}
		} else {
			f := c.float(col)
			scaled := math.Round(f * float64(per))
			if !(math.Abs(scaled) < float64(limit)) || scaled/float64(per) != f { // the double is not the nearest one of such a number
				return slow(b, c, col)
			}
			n = int64(scaled)
		}
		if n >= limit || n <= -limit {
			return slow(b, c, col)
		}
		b.(*array.Decimal128Builder).Append(decimal128.FromI64(n)) //nolint:forcetypeassert // made for the type
		return nil
	}
	return sh
}

func decimalType(p, s int) arrow.DataType {
	const widest = 38
	if p > widest {
		return &arrow.Decimal256Type{Precision: int32(p), Scale: int32(s)}
	}
	return &arrow.Decimal128Type{Precision: int32(p), Scale: int32(s)}
}

// timestampShapes reads ISO text: finite where all rows are known to be, else with room for the infinities.
func timestampShapes(u arrow.TimeUnit, zone string) []shape {
	finite := parsedShape(&arrow.TimestampType{Unit: u, TimeZone: zone}, texts)
	if u == arrow.Nanosecond {
		return []shape{finite}
	}
	finite.tight = true
	return []shape{finite, parsedShape(record.InfiniteTimestampType(zone != ""), texts)}
}
