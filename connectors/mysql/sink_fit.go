package mysql

import (
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// fitting is how a column of a dataset goes into a column of a table.
type fitting struct {
	connector.Mapping
	target tableColumn
	kind   record.Type
}

// ways is how a server and a configuration keep what others keep otherwise.
type ways struct {
	utc       bool // a datetime may hold instants, in UTC
	minusZero bool // floats keep the sign of zero
}

// fit decides how values of field f go into the target's column c.
func fit(f arrow.Field, c tableColumn, w ways) (fitting, error) {
	t, err := record.TypeOf(f.Type)
	if err != nil {
		return fitting{}, fmt.Errorf("column %q: %w", f.Name, err)
	}
	out := fitting{Mapping: connector.Mapping{Column: f.Name, Native: c.sql}, target: c, kind: t}
	if c.generated != 0 {
		out.Native, out.Why = "", "the target computes it (GENERATED ALWAYS)"
		return out, nil
	}
	native := record.NativeOf(f)
	float := c.form == formFloat || c.form == formDouble
	if native.System == systemName && native.Type == c.native() && readsAs(c, t) && (!float || w.minusZero) {
		return out, nil // the very type that the values come from
	}
	out.judge(judge(t, c, native, w))
	return out, nil
}

// readsAs reports whether values of the column are read as this kind, so that they can be written as what was read.
func readsAs(c tableColumn, t record.Type) bool {
	switch c.form {
	case formInt, formYear:
		return isInteger(t.Kind) || t.Kind == record.Bool
	case formFloat, formDouble:
		return t.Kind == record.Float32 || t.Kind == record.Float64
	case formDecimal:
		return t.Kind == record.Decimal
	case formBits:
		return t.Kind == record.Bits || t.Kind == record.Bool
	case formDate:
		return t.Kind == record.Date || t.Kind == record.String
	case formDateTime, formTimestamp:
		return t.Kind == record.Timestamp || t.Kind == record.String
	case formTime:
		return t.Kind == record.Duration
	case formText:
		return t.Kind == record.String
	case formBytes, formFixed, formGeometry:
		return t.Kind == record.Binary
	case formEnum:
		return t.Kind == record.Enum
	case formSet:
		return t.Kind == record.List
	case formJSON:
		return t.Kind == record.JSON
	case formUUID:
		return t.Kind == record.UUID
	case formInet:
		return t.Kind == record.Network
	default:
		return false
	}
}

func isInteger(k record.Kind) bool { return k >= record.Int8 && k <= record.Uint64 }

// verdict is what judge says: the zero value is exact.
type verdict struct {
	limits  connector.Limits
	why     string
	inexact bool
}

func inexact(format string, args ...any) verdict {
	return verdict{inexact: true, why: fmt.Sprintf(format, args...)}
}

func (f *fitting) judge(v verdict) {
	f.Why, f.Limits = v.why, v.limits
	switch {
	case v.inexact:
		f.Fidelity, f.Policies = connector.Inexact, []connector.Policy{connector.PolicyFail, connector.PolicyText}
	case v.why != "":
		f.Fidelity, f.Policies = connector.Checked, []connector.Policy{connector.PolicyFail, connector.PolicyText}
	}
}

// judge compares a type of the vocabulary with a type of the target that it is not known to come from. What the limits can't say, rows
// are looked at for one by one when they are written.
func judge(t record.Type, c tableColumn, from record.Native, w ways) verdict {
	switch c.form {
	case formText:
		return judgeText(t, c)
	case formJSON:
		return judgeJSON(t, c)
	case formInt, formYear:
		return judgeInteger(t, c)
	case formDecimal:
		return judgeDecimal(t, c)
	case formFloat, formDouble:
		return judgeFloat(t, c, w)
	case formDate, formDateTime, formTimestamp, formTime:
		return judgeTime(t, c, from, w.utc)
	case formBytes, formFixed:
		return judgeBytes(t, c)
	case formEnum:
		return judgeEnum(t, c)
	default:
		return judgeOther(t, c)
	}
}

func judgeOther(t record.Type, c tableColumn) verdict {
	switch {
	case c.form == formBits && (t.Kind == record.Bits && !t.Varying && t.Width == c.length || t.Kind == record.Bool && c.length == 1):
		return verdict{}
	case c.form == formSet && t.Kind == record.List && t.Elem.Kind == record.String:
		return verdict{why: "a set has only the labels of " + c.sql + ", each once, in this order"}
	case c.form == formUUID && t.Kind == record.UUID:
		return verdict{why: "only values whose version and variant the server knows"}
	case c.form == formInet && t.Kind == record.Network && t.Name == "inet":
		return verdict{why: "only addresses, without a prefix"}
	}
	return inexact("%s is read by the server as %s", t, c.sql)
}

// judgeText: every value has a canonical text form.
func judgeText(t record.Type, c tableColumn) verdict {
	if t.Kind == record.Binary {
		return inexact("binary as text")
	}
	var v verdict
	if c.charset != "utf8mb4" && !asciiOnly(t) {
		v.why = "only characters of " + c.charset
	}
	if n := textRoom(c); n > 0 && !fitsIn(t, n) {
		v.limits.MaxChars = n
		v.why = fmt.Sprintf("more than %d characters", n)
	}
	if c.data == "char" && !asciiOnly(t) {
		v.why = fmt.Sprintf("more than %d characters, and blanks at the end, which char(n) does not keep", c.length)
	}
	return v
}

// textRoom is how many characters fit for certain; 0: any that a statement can carry.
func textRoom(c tableColumn) int {
	const widest = 4 // bytes of a character
	switch c.data {
	case "char", "varchar":
		return c.length
	case "tinytext":
		return math.MaxUint8 / widest
	case "text":
		return math.MaxUint16 / widest
	case "mediumtext":
		return 1<<24/widest - 1
	}
	return 0
}

// asciiOnly reports whether the text form of a kind has only plain characters, and no blank at the end.
func asciiOnly(t record.Type) bool {
	switch t.Kind {
	case record.String, record.Enum, record.Foreign, record.JSON:
		return false
	default:
		return !t.Nested()
	}
}

// fitsIn reports whether no text form of the type is longer than n characters.
func fitsIn(t record.Type, n int) bool {
	longest, bounded := textLength(t)
	return bounded && longest <= n
}

// textLength is how long the text form of a type can be.
func textLength(t record.Type) (longest int, bounded bool) {
	const number, uuid, amount = 26, 36, 64
	switch t.Kind {
	case record.Bool, record.Int8, record.Int16, record.Int32, record.Int64, record.Uint8, record.Uint16, record.Uint32, record.Uint64,
		record.Float32, record.Float64:
		return number, true
	case record.Decimal:
		return int(max(t.Precision, t.Scale)) + 3 + int(max(-t.Scale, 0)), true
	case record.UUID:
		return uuid, true
	case record.Network, record.Date, record.Time, record.Timestamp, record.Duration, record.Interval:
		return amount, true
	case record.Bits:
		return t.Width, t.Width > 0
	default:
		return 0, false
	}
}

func judgeJSON(t record.Type, c tableColumn) verdict {
	switch {
	case t.Kind != record.JSON && !t.Nested():
		return inexact("%s is read by the server as %s", t, c.native())
	case c.checked:
		return verdict{}
	case t.Kind == record.JSON || !plainLeaves(t):
		return verdict{why: "json keeps what a document means, not its text: order and repetition of names, blanks; and numbers as doubles"}
	}
	return verdict{}
}

// plainLeaves reports whether nested values keep all that they are in the server's own form of JSON.
func plainLeaves(t record.Type) bool {
	switch t.Kind {
	case record.Decimal, record.Numeric, record.JSON:
		return false
	case record.Array, record.List, record.Map:
		return plainLeaves(*t.Elem)
	case record.Struct:
		return !slices.ContainsFunc(t.Fields, func(f record.Field) bool { return !plainLeaves(f.Type) })
	default:
		return true
	}
}

// integerRange returns what the kind can hold; max of uint64 is cut.
func integerRange(k record.Kind) (low, high int64) {
	switch k {
	case record.Int8:
		return math.MinInt8, math.MaxInt8
	case record.Int16:
		return math.MinInt16, math.MaxInt16
	case record.Int32:
		return math.MinInt32, math.MaxInt32
	case record.Uint8:
		return 0, math.MaxUint8
	case record.Uint16:
		return 0, math.MaxUint16
	case record.Uint32:
		return 0, math.MaxUint32
	case record.Uint64:
		return 0, math.MaxInt64
	case record.Bool:
		return 0, 1
	default:
		return math.MinInt64, math.MaxInt64
	}
}

func within(k record.Kind, low, high int64, what string) verdict {
	l, h := integerRange(k)
	if l >= low && h <= high && k != record.Uint64 {
		return verdict{}
	}
	return verdict{limits: connector.Limits{Min: low, Max: high}, why: fmt.Sprintf("%s holds %d to %d", what, low, high)}
}

const (
	minYear = 1901
	maxYear = 2155
)

func judgeInteger(t record.Type, c tableColumn) verdict {
	if !isInteger(t.Kind) && t.Kind != record.Bool {
		return inexact("%s as %s", t, c.sql)
	}
	low, high := int64(minYear), int64(maxYear)
	switch {
	case c.form == formYear:
	case c.data == "bigint" && c.unsigned:
		if t.Kind >= record.Uint8 || t.Kind == record.Bool {
			return verdict{}
		}
		low, high = 0, math.MaxInt64
	case c.data == "bigint":
		low, high = math.MinInt64, math.MaxInt64
	case c.unsigned:
		low, high = 0, int64(1)<<integerBits(c.data)-1
	default:
		low, high = -(int64(1) << (integerBits(c.data) - 1)), int64(1)<<(integerBits(c.data)-1)-1
	}
	return within(t.Kind, low, high, c.sql)
}

// integerBits is the width of an integer narrower than bigint.
func integerBits(data string) int {
	return map[string]int{"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32}[data]
}

// maxExactDigits is how many decimal digits every int64 has room for.
const maxExactDigits = 18

func judgeDecimal(t record.Type, c tableColumn) verdict {
	precision, scale := int32(c.precision), int32(c.scale)
	whole := precision - scale
	switch {
	case isInteger(t.Kind) || t.Kind == record.Bool:
		if c.unsigned && (t.Kind < record.Uint8 && t.Kind != record.Bool) {
			return verdict{limits: connector.Limits{Min: 0, Max: math.MaxInt64}, why: c.sql + " is never negative"}
		}
		if whole > maxExactDigits+1 || (whole > maxExactDigits && t.Kind != record.Uint64) {
			return verdict{}
		}
		limit := int64(math.Pow10(int(min(max(whole, 0), maxExactDigits)))) - 1
		return within(t.Kind, -limit, limit, c.sql)
	case t.Kind == record.Decimal && t.Scale <= scale && t.Precision-t.Scale <= whole && !c.unsigned:
		return verdict{}
	case t.Kind == record.Decimal || t.Kind == record.Numeric:
		open := t.Kind == record.Numeric
		return verdict{
			limits: connector.Limits{Precision: precision, Scale: scale, NoNaN: open, NoInfinity: open},
			why:    fmt.Sprintf("%s holds %d digits, %d of them behind the point", c.sql, precision, scale),
		}
	}
	return inexact("%s as %s", t, c.sql)
}

func judgeFloat(t record.Type, c tableColumn, w ways) verdict {
	const floatBits, doubleBits = 24, 53
	bits := doubleBits
	if c.form == formFloat {
		bits = floatBits
	}
	switch {
	case c.fixedFloat():
		return inexact("%s rounds to a number of digits", c.sql)
	case t.Kind == record.Float32 || t.Kind == record.Float64:
		v := verdict{limits: connector.Limits{NoNaN: true, NoInfinity: true, NoMinusZero: !w.minusZero}, why: "NaN and infinities"}
		if !w.minusZero {
			v.why = "NaN, infinities and the sign of -0"
		}
		if t.Kind == record.Float64 && bits == floatBits {
			v.why = "NaN, infinities, and what 24 bits can't hold"
		}
		return v
	case isInteger(t.Kind):
		return within(t.Kind, -1<<bits, 1<<bits, c.sql)
	}
	return inexact("%s is rounded to %s", t, c.sql)
}

// Limits of dates and times: year 1 to 9999, and what seconds since 1970 in 32 bits can be.
const (
	minDate     = -719_162
	maxDate     = 2_932_896
	minDateTime = minDate * 86_400_000_000
	maxDateTime = (maxDate+1)*86_400_000_000 - 1
	minInstant  = 1_000_000
	maxInstant  = (1<<31)*1_000_000 - 1
)

// fractionDigits is how many digits of a second values of a unit can have.
func fractionDigits(u arrow.TimeUnit) int {
	return map[arrow.TimeUnit]int{arrow.Second: 0, arrow.Millisecond: 3, arrow.Microsecond: 6, arrow.Nanosecond: 9}[u]
}

func judgeTime(t record.Type, c tableColumn, from record.Native, utc bool) verdict {
	nanos := t.Unit == arrow.Nanosecond
	limits := connector.Limits{MicrosOnly: nanos, NoInfinity: t.Infinite}
	coarse := fractionDigits(t.Unit) > c.scale && (!nanos || c.scale != 6)
	var v verdict
	switch {
	case c.form == formDate && t.Kind == record.Date:
		limits.MicrosOnly = false
		limits.Min, limits.Max = minDate, maxDate
		v, coarse = verdict{limits: limits, why: "years 1 to 9999"}, false
	case c.form == formDateTime && t.Kind == record.Timestamp && (!t.Zoned || utc):
		limits.Min, limits.Max = minDateTime, maxDateTime
		v = verdict{limits: limits, why: "years 1 to 9999"}
	case c.form == formTimestamp && t.Kind == record.Timestamp && t.Zoned:
		limits.Min, limits.Max = minInstant, maxInstant
		v = verdict{limits: limits, why: "the years 1970 to 2038; instants=datetime makes columns of any year"}
	case c.form == formTime && t.Kind == record.Time:
		v.limits = limits
		if nanos {
			v.why = "digits below a microsecond"
		}
	case c.form == formTime && t.Kind == record.Duration:
		v = verdict{why: "839 hours and more, and digits below a microsecond"}
	case c.form == formDateTime && t.Kind == record.Timestamp:
		return inexact("a datetime has no zone; instants=datetime keeps instants in UTC there")
	default:
		return inexact("%s as %s", t, c.sql)
	}
	if from.System == systemName {
		v.limits.Min, v.limits.Max = 0, 0 // what one server holds, the other does
	}
	if coarse {
		v.why = fmt.Sprintf("more than %d digits of a second", c.scale)
	}
	return v
}

func judgeBytes(t record.Type, c tableColumn) verdict {
	switch {
	case t.Kind == record.UUID && c.length == 16:
		return verdict{}
	case t.Kind != record.Binary:
		return inexact("%s as %s", t, c.sql)
	case c.form == formFixed && t.Width != c.length:
		return verdict{why: fmt.Sprintf("exactly %d bytes", c.length)}
	case c.form == formBytes && c.data != "longblob" && (t.Width == 0 || t.Width > bytesRoom(c)):
		return verdict{why: fmt.Sprintf("more than %d bytes", bytesRoom(c))}
	}
	return verdict{}
}

// bytesRoom is how many bytes a column takes.
func bytesRoom(c tableColumn) int {
	switch c.data {
	case "tinyblob":
		return math.MaxUint8
	case "blob":
		return math.MaxUint16
	case "mediumblob":
		return 1<<24 - 1
	case "longblob":
		return math.MaxUint32
	}
	return c.length
}

func judgeEnum(t record.Type, c tableColumn) verdict {
	if t.Kind != record.Enum && t.Kind != record.String {
		return inexact("%s as %s", t, c.sql)
	}
	if t.Labels != nil && !slices.ContainsFunc(t.Labels, func(l string) bool { return !slices.Contains(c.labels, l) }) {
		return verdict{}
	}
	return verdict{limits: connector.Limits{Labels: c.labels}, why: "only the labels of " + c.sql}
}
