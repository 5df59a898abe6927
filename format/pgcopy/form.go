package pgcopy

import (
	"fmt"

	"github.com/leatdata/leat/record"
)

// Form is how the values of a type look in binary: one pair of send and receive functions.
type Form uint8

// The forms. The comment names types that have it.
const (
	Raw       Form = iota + 1 // the bytes themselves: text, varchar, bpchar, name, citext, bytea, json, xml, enum labels
	Versioned                 // a byte 1, then text: jsonb, jsonpath, ltree
	Bool                      // bool
	Int2                      // int2
	Int4                      // int4
	Int8                      // int8
	Float4                    // float4
	Float8                    // float8
	Numeric                   // numeric
	UUID                      // uuid
	Date                      // date
	Time                      // time
	Timestamp                 // timestamp and timestamptz
	Interval                  // interval
	Bits                      // bit and varbit
	Network                   // inet and cidr
	MAC                       // macaddr and macaddr8
	Array                     // arrays of the other forms
)

// String returns the name of the form.
func (f Form) String() string {
	names := [...]string{
		"", "raw", "versioned", "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "uuid", "date", "time", "timestamp",
		"interval", "bits", "network", "mac", "array",
	}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("form(%d)", uint8(f))
}

// Type is how a column's values look on the wire.
type Type struct {
	Form    Form
	Elem    *Type  // Array: the elements
	ElemOID uint32 // Array, for encoding: the type of the elements
	CIDR    bool   // Network, for encoding: cidr, not inet
	Delim   byte   // Array, for its text form: what stands between elements; 0: a comma
}

// ArrayOf returns the form of an array with these elements. Of the built-in types only box has another delimiter than the comma.
func ArrayOf(elem Type, oid uint32) Type {
	t := Type{Form: Array, Elem: &elem, ElemOID: oid}
	if oid == boxOID {
		t.Delim = ';'
	}
	return t
}

const boxOID = 603

const (
	epochDays   = 10_957              // from 1970-01-01 to 2000-01-01
	epochMicros = 946_684_800_000_000 // the same
	dayMicros   = 86_400_000_000
	maxDims     = 6 // of an array, as the server has it
	nullLength  = 0xFFFFFFFF
)

// signature starts every binary COPY; flags and the length of a header extension, both zero, follow.
const signature = "PGCOPY\n\xff\r\n\x00"

const headerLength = len(signature) + 8

// ValueError is a value that can't be carried.
type ValueError struct {
	Row    int // in the batch
	Column string
	Value  string // text form, shortened; empty: unknown
	Err    error
}

// Error names row, column and value.
func (e *ValueError) Error() string {
	return fmt.Sprintf("row %d, column %q, value %q: %s", e.Row, e.Column, e.Value, e.Err)
}

// Unwrap returns the cause.
func (e *ValueError) Unwrap() error { return e.Err }

const shortLength = 200

func shorten(s string) string {
	if len(s) > shortLength {
		return s[:shortLength] + "…"
	}
	return s
}

func unsupported(t Type, to record.Type) error {
	return fmt.Errorf("the binary form %s can't be carried as %s", t.Form, to)
}
