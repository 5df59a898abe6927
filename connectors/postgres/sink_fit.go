package postgres

import (
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// fitting is how a column of a dataset goes into a column of an existing table.
type fitting struct {
	connector.Mapping
	wire     pgcopy.Type // what the COPY carries
	wireType string      // the SQL type of the same, for a stage
	wireOID  uint32      // and its number
	direct   bool        // the target's column takes the wire form as it is; otherwise a stage and a cast stand in between
}

// fit decides how values of field f go into the target's column c.
func fit(f arrow.Field, c tableColumn) (fitting, error) {
	t, err := record.TypeOf(f.Type)
	if err != nil {
		return fitting{}, fmt.Errorf("column %q: %w", f.Name, err)
	}
	out := fitting{Mapping: connector.Mapping{Column: f.Name, Native: c.Type}}
	if c.Generated != "" {
		out.Native, out.Why = "", "the target computes it (GENERATED ALWAYS)"
		return out, nil
	}
	out.wire, out.wireType, out.direct = carry(t, c.Base)
	out.wireOID = carryOID(out.wireType)
	if out.direct {
		out.wireOID = c.Base.OID
	}
	native := record.NativeOf(f)
	if native.System == systemName && c.Base.Kind != "e" && sameNative(native.Type, c) {
		return out, nil // the very type that the values come from
	}
	out.judge(judge(t, c.Base, native))
	return out, nil
}

// systemName is what this package calls itself in a column's provenance.
const systemName = "postgres"

func sameNative(native string, c tableColumn) bool {
	return native == c.Type || native == c.Base.Native
}

// carry chooses the wire form: the target's own where values of t have a way into it, or else a form that holds every value of t
// and that the server casts.
func carry(t record.Type, b baseType) (wire pgcopy.Type, sqlType string, direct bool) {
	if w, ok := wireOf(b); ok && takes(t, w, b) {
		return w, b.Plain, true
	}
	switch {
	case t.Kind == record.Uint64, t.Kind == record.Decimal, t.Kind == record.Numeric:
		return pgcopy.Type{Form: pgcopy.Numeric}, "numeric", false
	case isInteger(t.Kind):
		return pgcopy.Type{Form: pgcopy.Int8}, "bigint", false
	case t.Kind == record.Float32:
		return pgcopy.Type{Form: pgcopy.Float4}, "real", false
	case t.Kind == record.Float64:
		return pgcopy.Type{Form: pgcopy.Float8}, "double precision", false
	case t.Kind == record.Bool:
		return pgcopy.Type{Form: pgcopy.Bool}, "boolean", false
	case t.Kind == record.Date:
		return pgcopy.Type{Form: pgcopy.Date}, "date", false
	case t.Kind == record.Binary:
		return pgcopy.Type{Form: pgcopy.Raw}, "bytea", false
	default:
		return pgcopy.Type{Form: pgcopy.Raw}, "text", false
	}
}

// carryOID is the number of a type that the server casts from.
func carryOID(sqlType string) uint32 {
	return map[string]uint32{
		"boolean": 16, "bytea": 17, "bigint": 20, "text": 25, "real": 700, "double precision": 701, "date": 1082, "numeric": 1700,
	}[sqlType]
}

// takes reports whether the wire form means the same for t and for the target: raw bytes do not always.
func takes(t record.Type, w pgcopy.Type, b baseType) bool {
	if !pgcopy.CanEncode(t, w) {
		return false
	}
	switch {
	case b.Name == "bytea":
		return t.Kind == record.Binary
	case w.Form == pgcopy.Raw || w.Form == pgcopy.Versioned:
		return t.Kind != record.Binary
	case w.Form == pgcopy.Timestamp:
		return t.Zoned == (b.Name == "timestamptz")
	case w.Form == pgcopy.Network || w.Form == pgcopy.MAC:
		return t.Name == b.Name
	case w.Form == pgcopy.Array:
		return takes(*t.Elem, *w.Elem, *b.Elem)
	}
	return true
}

// wireOf returns the binary form of a type of the target; false where only its text form is known.
func wireOf(b baseType) (pgcopy.Type, bool) {
	if b.Elem != nil {
		elem, ok := wireOf(*b.Elem)
		return pgcopy.ArrayOf(elem, b.Elem.OID), ok && b.Elem.Elem == nil
	}
	if b.Kind == "e" {
		return pgcopy.Type{Form: pgcopy.Raw}, true
	}
	if b.Name == "citext" {
		return pgcopy.Type{Form: pgcopy.Raw}, true
	}
	if b.Schema != "pg_catalog" {
		return pgcopy.Type{}, false
	}
	forms := map[string]pgcopy.Form{
		"text": pgcopy.Raw, "varchar": pgcopy.Raw, "bpchar": pgcopy.Raw, "name": pgcopy.Raw, "bytea": pgcopy.Raw, "json": pgcopy.Raw,
		"jsonb": pgcopy.Versioned, "bool": pgcopy.Bool, "int2": pgcopy.Int2, "int4": pgcopy.Int4, "int8": pgcopy.Int8,
		"float4": pgcopy.Float4, "float8": pgcopy.Float8, "numeric": pgcopy.Numeric, "uuid": pgcopy.UUID, "date": pgcopy.Date,
		"time": pgcopy.Time, "timestamp": pgcopy.Timestamp, "timestamptz": pgcopy.Timestamp, "interval": pgcopy.Interval,
		"bit": pgcopy.Bits, "varbit": pgcopy.Bits, "inet": pgcopy.Network, "cidr": pgcopy.Network, "macaddr": pgcopy.MAC,
		"macaddr8": pgcopy.MAC,
	}
	form, ok := forms[b.Name]
	return pgcopy.Type{Form: form, CIDR: b.Name == "cidr"}, ok
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
	case !v.limits.Zero():
		f.Fidelity = connector.Checked
	}
}

// judge compares a type of the vocabulary with a type of the target that it is not known to come from.
func judge(t record.Type, b baseType, from record.Native) verdict {
	switch b.Name {
	case "text", "varchar", "citext":
		return judgeText(t, b, from)
	case "bpchar":
		v := judgeText(t, b, from)
		if v.why == "" || t.Kind == record.String {
			v.why = b.Native + " pads with blanks"
		}
		return v
	case "json", "jsonb":
		return judgeJSON(t, b)
	case "int2", "int4", "int8":
		return judgeInteger(t, b)
	case "numeric":
		return judgeNumeric(t, b)
	case "float4", "float8":
		return judgeFloat(t, b)
	case "date":
		if t.Kind == record.Date {
			return verdict{limits: connector.Limits{Min: minDate, Max: maxDate}, why: "years 4713 BC to 5874897"}.unless(from)
		}
	case "time", "timestamp", "timestamptz", "interval":
		return judgeTime(t, b, from)
	case "bit", "varbit":
		if t.Kind == record.Bits && bitsFit(t, b) {
			return verdict{}
		}
	}
	return judgeOther(t, b)
}

// unless drops limits that values from this system can't exceed.
func (v verdict) unless(from record.Native) verdict {
	if from.System == systemName {
		return verdict{}
	}
	return v
}

const (
	minDate   = -2_440_588               // 4714-11-24 BC, day 0 of the Julian calendar
	maxDate   = 2_145_031_948            // 5874897-12-31
	minMicros = -210_866_803_200_000_000 // the same day
	varHeader = 4                        // bytes that a length modifier counts besides
)

func judgeOther(t record.Type, b baseType) verdict {
	switch {
	case b.Elem != nil && (t.Kind == record.Array || t.Kind == record.List):
		if t.Elem.Kind == record.List {
			return inexact("lists of lists may differ in length, the server's arrays are boxes")
		}
		v := judge(*t.Elem, *b.Elem, record.Native{})
		if v.inexact {
			v.why = "elements: " + v.why
		}
		return v
	case b.Kind == "e" && (t.Kind == record.Enum || t.Kind == record.String):
		if t.Labels != nil && !slices.ContainsFunc(t.Labels, func(l string) bool { return !slices.Contains(b.Labels, l) }) {
			return verdict{}
		}
		return verdict{limits: connector.Limits{Labels: b.Labels}, why: "only the labels of " + b.Native}
	case b.Name == "bool" && t.Kind == record.Bool, b.Name == "uuid" && t.Kind == record.UUID, b.Name == "bytea" && t.Kind == record.Binary,
		t.Kind == record.Network && (t.Name == b.Name || t.Name == "cidr" && b.Name == "inet"),
		t.Kind == record.Foreign && t.System == systemName && (t.Name == b.Name || t.Name == b.Native):
		return verdict{}
	}
	return inexact("%s is read by the server as %s", t, b.Native)
}

// judgeText: every value has a canonical text form.
func judgeText(t record.Type, b baseType, from record.Native) verdict {
	var v verdict
	if t.Kind == record.Binary {
		return inexact("binary as text")
	}
	if t.Kind == record.String && from.System != systemName {
		v.limits.NoNUL, v.why = true, "text with a zero character"
	}
	if b.Mod > varHeader {
		v.limits.MaxChars = int(b.Mod) - varHeader
		v.why = fmt.Sprintf("more than %d characters", v.limits.MaxChars)
	}
	return v
}

func judgeJSON(t record.Type, b baseType) verdict {
	if t.Kind != record.JSON && !t.Nested() {
		return inexact("%s is read by the server as %s", t, b.Native)
	}
	if b.Name == "jsonb" {
		return verdict{
			limits: connector.Limits{NoNUL: true},
			why:    "jsonb keeps what a document means, not its text: order and repetition of names, blanks; and has no \\u0000",
		}
	}
	return verdict{}
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

func judgeInteger(t record.Type, b baseType) verdict {
	if !isInteger(t.Kind) {
		return inexact("%s as %s", t, b.Native)
	}
	kind := map[string]record.Kind{"int2": record.Int16, "int4": record.Int32, "int8": record.Int64}[b.Name]
	low, high := integerRange(kind)
	return within(t.Kind, low, high, b.Native)
}

// maxExactDigits is how many decimal digits every int64 has room for.
const maxExactDigits = 18

func judgeNumeric(t record.Type, b baseType) verdict {
	if t.Kind == record.Float32 || t.Kind == record.Float64 {
		return inexact("the server rounds floats on the way to %s", b.Native)
	}
	if !isInteger(t.Kind) && t.Kind != record.Decimal && t.Kind != record.Numeric {
		return inexact("%s as %s", t, b.Native)
	}
	if b.Mod < varHeader {
		return verdict{}
	}
	precision, scale := numericMod(b.Mod)
	whole := precision - scale
	if isInteger(t.Kind) {
		if whole > maxExactDigits+1 || whole > maxExactDigits && t.Kind != record.Uint64 {
			return verdict{}
		}
		limit := int64(math.Pow10(int(min(max(whole, 0), maxExactDigits)))) - 1
		return within(t.Kind, -limit, limit, b.Native)
	}
	if t.Kind == record.Decimal && t.Scale <= scale && t.Precision-t.Scale <= whole {
		return verdict{}
	}
	return verdict{
		limits: connector.Limits{Precision: precision, Scale: scale, NoInfinity: t.Kind == record.Numeric},
		why:    fmt.Sprintf("%s holds %d digits, %d of them behind the point", b.Native, precision, scale),
	}
}

// numericMod reads a numeric's modifier: precision in the upper half, an 11-bit signed scale in the lower one.
func numericMod(mod int32) (precision, scale int32) {
	mod -= varHeader
	return mod >> 16 & 0xffff, (mod&0x7ff ^ 1024) - 1024
}

func judgeFloat(t record.Type, b baseType) verdict {
	const float4Bits, float8Bits = 24, 53
	bits := float8Bits
	if b.Name == "float4" {
		bits = float4Bits
	}
	switch {
	case t.Kind == record.Float32, t.Kind == record.Float64 && bits == float8Bits:
		return verdict{}
	case isInteger(t.Kind):
		return within(t.Kind, -1<<bits, 1<<bits, b.Native)
	}
	return inexact("%s is rounded to %s", t, b.Native)
}

func judgeTime(t record.Type, b baseType, from record.Native) verdict {
	digits := map[arrow.TimeUnit]int32{arrow.Second: 0, arrow.Millisecond: 3, arrow.Microsecond: 6, arrow.Nanosecond: 9}[t.Unit]
	coarse := b.Mod >= 0 && b.Mod < digits
	nanos := connector.Limits{MicrosOnly: t.Unit == arrow.Nanosecond}
	switch {
	case b.Name == "interval":
		switch {
		case b.Mod >= 0 || t.Kind != record.Interval && t.Kind != record.Duration:
			return inexact("%s as %s", t, b.Native)
		case t.Kind == record.Duration && nanos.MicrosOnly:
			return inexact("an interval has no digits below a microsecond")
		}
		return verdict{}
	case coarse:
		return inexact("%s rounds to %d digits of a second", b.Native, b.Mod)
	case b.Name == "time" && t.Kind == record.Time:
		if nanos.MicrosOnly {
			return verdict{limits: nanos, why: "digits below a microsecond"}
		}
		return verdict{}
	case t.Kind == record.Timestamp && t.Zoned == (b.Name == "timestamptz"):
		if nanos.MicrosOnly {
			return verdict{limits: nanos, why: "digits below a microsecond"}
		}
		return verdict{limits: connector.Limits{Min: minMicros, Max: math.MaxInt64}, why: "years 4713 BC to 294276"}.unless(from)
	}
	return inexact("%s as %s", t, b.Native)
}

// bitsFit: bit(n) takes exactly n digits, varbit(n) at most.
func bitsFit(t record.Type, b baseType) bool {
	if b.Name == "varbit" {
		return b.Mod < 0 || t.Width > 0 && t.Width <= int(b.Mod)
	}
	return !t.Varying && t.Width == int(b.Mod)
}
