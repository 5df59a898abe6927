package sqlite

import (
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// affinity is how SQLite converts what is stored into a column.
type affinity uint8

const (
	affNone    affinity = iota // stores values as they come
	affText                    // numbers become text
	affNumeric                 // text that looks like a number becomes one
	affInteger                 // as affNumeric; reals without a fraction become integers
	affReal                    // integers become reals, text that looks like a number becomes one
)

// affinityOf follows the rules of https://www.sqlite.org/datatype3.html#determination_of_column_affinity, in their order.
func affinityOf(declared string) affinity {
	d := strings.ToUpper(declared)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(d, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("INT"):
		return affInteger
	case has("CHAR", "CLOB", "TEXT"):
		return affText
	case d == "" || d == "ANY" || has("BLOB"):
		return affNone
	case has("REAL", "FLOA", "DOUB"): //nolint:misspell // as SQLite matches
		return affReal
	default:
		return affNumeric
	}
}

// typeName is a declared type taken apart: DECIMAL(10, 2) is DECIMAL with 10 and 2.
type typeName struct {
	base string // upper case, single blanks
	args []int
}

func parseTypeName(declared string) typeName {
	base, rest, found := strings.Cut(declared, "(")
	t := typeName{}
	if found {
		inner, tail, _ := strings.Cut(rest, ")")
		base += " " + tail
		for a := range strings.SplitSeq(inner, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(a))
			if err != nil {
				break
			}
			t.args = append(t.args, n)
		}
	}
	t.base = strings.ToUpper(strings.Join(strings.Fields(base), " "))
	return t
}

// arg returns argument i, or otherwise where there is none.
func (t typeName) arg(i, otherwise int) int {
	if i < len(t.args) {
		return t.args[i]
	}
	return otherwise
}

// Digits that a number survives with in a double, and in a 64-bit integer.
const (
	realDigits = 15
	intDigits  = 18
)

// declare returns the type that a column of this type is created with. Names are chosen so that SQLite's affinity leaves the stored
// values alone, and so that this package reads the same type back.
func declare(t record.Type, native record.Native) string {
	own := declareOwn(t)
	if native.System == system && native.Type != "" && affinityOf(native.Type) == affinityOf(own) && sameFamily(native.Type, t) {
		return native.Type
	}
	return own
}

// sameFamily reports whether a column declared so is read as the type again.
func sameFamily(declared string, t record.Type) bool {
	for _, s := range shapesFor(declared) {
		if s.kind == t.Kind {
			return true
		}
		if s.kind != record.Int64 {
			return false
		}
	}
	return false
}

// plainDeclarations are the types without parameters.
var plainDeclarations = map[record.Kind]string{ //nolint:gochecknoglobals // a constant table
	record.Bool: "BOOLEAN", record.Int8: "TINYINT", record.Int16: "SMALLINT", record.Int32: "INT4", record.Int64: "INTEGER",
	record.Uint8: "UINT1", record.Uint16: "UINT2", record.Uint32: "UINT4", record.Uint64: "UNSIGNED_TEXT",
	record.Float32: "FLOAT4", record.Float64: "REAL", record.Numeric: "NUMERIC_TEXT", record.String: "TEXT",
	record.Binary: "BLOB", record.UUID: "UUID", record.JSON: "JSON_TEXT", record.Enum: "TEXT", record.Foreign: "TEXT",
	record.Date: "DATE", record.Interval: "PERIOD_TEXT",
	record.Array: "JSON_TEXT", record.List: "JSON_TEXT", record.Struct: "JSON_TEXT", record.Map: "JSON_TEXT",
}

func declareOwn(t record.Type) string {
	args := func(n ...int) string {
		parts := make([]string, len(n))
		for i, v := range n {
			parts[i] = strconv.Itoa(v)
		}
		return "(" + strings.Join(parts, ",") + ")"
	}
	switch t.Kind {
	case record.Decimal:
		if decimalFits(t) {
			return "DECIMAL" + args(int(t.Precision), int(t.Scale))
		}
		if t.Scale < 0 {
			return "NUMERIC_TEXT"
		}
		return "DECIMAL_TEXT" + args(int(t.Precision), int(t.Scale))
	case record.Bits:
		name := "BIT_TEXT"
		if t.Varying {
			name = "VARBIT_TEXT"
		}
		if t.Width > 0 {
			name += args(t.Width)
		}
		return name
	case record.Network:
		return strings.ToUpper(t.Name) + "_TEXT"
	case record.Time:
		return "TIME" + precision(t)
	case record.Timestamp:
		name := "TIMESTAMP"
		if t.Zoned {
			name = "TIMESTAMPTZ"
		}
		return name + precision(t)
	case record.Duration:
		return "DURATION_TEXT" + args(unitDigits(t.Unit))
	default:
		return plainDeclarations[t.Kind]
	}
}

// decimalFits reports whether SQLite's numbers hold every value of a decimal: whole numbers of 18 digits as integers, others of 15
// digits as doubles, whose shortest form is the same number again.
func decimalFits(t record.Type) bool {
	return (t.Scale == 0 && t.Precision <= intDigits) || (t.Scale > 0 && t.Precision <= realDigits && t.Scale <= t.Precision)
}

func precision(t record.Type) string {
	if d := unitDigits(t.Unit); d != microDigits {
		return "(" + strconv.Itoa(d) + ")"
	}
	return ""
}

// Rules is the mapping table, from which the documentation is made.
func Rules() []connector.TypeRule {
	const r, w = true, true
	rule := func(native string, kind record.Kind, read, write bool, note string) connector.TypeRule {
		return connector.TypeRule{Native: native, Kind: kind, Read: read, Write: write, Fidelity: connector.Exact, Note: note}
	}
	float := func(native string, kind record.Kind) connector.TypeRule {
		t := rule(native, kind, r, w, "infinities are kept; NaN and the sign of -0 are not: refused, or handled by a policy")
		t.Fidelity = connector.Checked
		return t
	}
	return []connector.TypeRule{
		rule("BOOLEAN", record.Bool, r, w, "0 and 1; the words true and false are read too"),
		rule("TINYINT", record.Int8, r, w, "read as int64 where a table was not checked whole"),
		rule("SMALLINT", record.Int16, r, w, "read as int64 where a table was not checked whole"),
		rule("INT4", record.Int32, r, w, "read as int64 where a table was not checked whole"),
		rule("INTEGER, INT, BIGINT …", record.Int64, r, false, "wider where values do not fit: float64, numeric, text"),
		rule("INTEGER", record.Int64, false, w, ""),
		rule("UINT1", record.Uint8, r, w, ""),
		rule("UINT2", record.Uint16, r, w, ""),
		rule("UINT4", record.Uint32, r, w, ""),
		rule("UNSIGNED_TEXT", record.Uint64, r, w, "digits as text, as SQLite's integers end at 2^63-1"),
		float("FLOAT4", record.Float32),
		float("REAL, FLOAT, DOUBLE …", record.Float64),
		rule("DECIMAL(p,s)", record.Decimal, r, w, "up to 15 digits (18 without a fraction): a number that SQLite computes with"),
		rule("DECIMAL_TEXT(p,s)", record.Decimal, r, w, "more digits: exact digits as text; CAST(c AS REAL) computes, and rounds"),
		rule("NUMERIC_TEXT", record.Numeric, r, w, "exact digits as text, NaN and infinities included"),
		rule("NUMERIC, DECIMAL", record.Numeric, r, false, "integers and doubles in their shortest form"),
		rule("TEXT, VARCHAR(n), CLOB …", record.String, r, w, "zero characters are kept; bytes that are no UTF-8 are rejected on reading"),
		rule("BLOB", record.Binary, r, w, ""),
		rule("UUID", record.UUID, r, w, "lower-case text"),
		rule("JSON_TEXT, JSON", record.JSON, r, w, "JSON_TEXT keeps every byte; JSON would turn documents that are numbers into numbers"),
		rule("TEXT", record.Enum, false, w, "the label"),
		rule("BIT_TEXT(n), VARBIT_TEXT(n)", record.Bits, r, w, "digits 0 and 1"),
		rule("INET_TEXT, CIDR_TEXT, MACADDR_TEXT, MACADDR8_TEXT", record.Network, r, w, ""),
		rule("TEXT", record.Foreign, false, w, "the text form of the other system"),
		rule("DATE", record.Date, r, w, "ISO 8601 text, and infinity, -infinity; other values make the column what they are"),
		rule("TIME, TIME(n)", record.Time, r, w, "ISO 8601 text; n digits after the point, 6 without n"),
		rule("TIMESTAMP, DATETIME, TIMESTAMP(n)", record.Timestamp, r, w, "ISO 8601 text; other values make the column what they are"),
		rule("TIMESTAMPTZ, TIMESTAMPTZ(n)", record.Timestamp, r, w, "ISO 8601 text that ends in Z; other offsets are read too"),
		rule("DURATION_TEXT(n)", record.Duration, r, w, "ISO 8601 text"),
		rule("PERIOD_TEXT", record.Interval, r, w, "ISO 8601 text; a name with INT in it would have another affinity"),
		rule("JSON_TEXT", record.Array, false, w, "JSON, read back as JSON"),
		rule("JSON_TEXT", record.List, false, w, "JSON, read back as JSON"),
		rule("JSON_TEXT", record.Struct, false, w, "JSON, read back as JSON"),
		rule("JSON_TEXT", record.Map, false, w, "JSON, read back as JSON"),
		rule("no type, ANY", record.String, r, false, "by the values: int64, float64, numeric, text or binary; text where there are none"),
	}
}
