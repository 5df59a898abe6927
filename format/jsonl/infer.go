package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/format/internal/literal"
	"github.com/leatdata/leat/record"
)

// InferOptions say how inputs are looked at.
type InferOptions struct {
	Dataset   string
	MaxLine   int64
	Types     map[string]string // declared types by column, see record.ParseType; those columns are not inferred
	Documents bool              // infer nothing: columns without a declared type are JSON documents
}

// Inference looks at inputs of one dataset and decides their columns over all of them.
type Inference struct {
	o       InferOptions
	root    shape
	guess   [][]byte // the keys as they probably come
	members [][2]jsontext.Span
	scratch []byte
}

// NewInference returns an inference that has seen nothing.
func NewInference(o InferOptions) *Inference { return &Inference{o: o} }

// Scan looks at an input from its beginning, at most at limit bytes of it, or at all where limit is not positive. It reports whether
// it saw the end. Rows that can't be read are passed over: reading tells of them.
func (i *Inference) Scan(r io.Reader, limit int64) (whole bool, err error) {
	limited := &io.LimitedReader{R: r, N: limit}
	in := io.Reader(limited)
	if limit <= 0 {
		in = r
	}
	l := newLines(in, i.o.MaxLine)
	for first := true; ; first = false {
		ok, err := l.next()
		if err != nil {
			return false, err
		}
		atLimit := limit > 0 && limited.N <= 0
		if atLimit && (!ok || l.open) {
			var one [1]byte
			n, err := io.ReadFull(r, one[:])
			if n > 0 || !errors.Is(err, io.EOF) {
				return false, err
			}
			limited.N, atLimit = 1, false
		}
		if !ok {
			return !atLimit, nil
		}
		if first {
			if err := l.array(); err != nil {
				return false, err
			}
		}
		if l.Invalid(l.size) < 0 {
			i.line(l.row())
		}
		l.consume()
	}
}

// line looks at a line, first at its syntax, so that one with a mistake at its end leaves no trace.
func (i *Inference) line(b []byte) {
	i.members = i.members[:0]
	check := jsontext.Lexer{B: b, Guess: i.guess}
	if !check.Line(func(key, v jsontext.Span) bool {
		i.members = append(i.members, [2]jsontext.Span{key, v})
		return true
	}) {
		return
	}
	i.root.begin()
	for _, m := range i.members {
		i.root.member(b, m[0], m[1], &i.scratch)
	}
	i.root.end()
	for _, n := range i.root.names[len(i.guess):] {
		key := record.AppendJSONString(nil, n)
		if bytes.IndexByte(key, '\\') >= 0 {
			key = nil
		}
		i.guess = append(i.guess, key)
	}
}

// Columns returns the keys that were seen, in the order of their first appearance.
func (i *Inference) Columns() []string { return i.root.names }

// Schema returns the columns with their types; whole says that all of the input was seen. Where no row was seen the columns are those
// whose types are declared.
func (i *Inference) Schema(whole bool) (*record.Schema, error) {
	names := i.root.names
	if names == nil {
		names = slices.Sorted(maps.Keys(i.o.Types))
	}
	fields := make([]arrow.Field, len(names))
	for c, n := range names {
		dt := arrow.DataType(record.JSONType())
		if declared, ok := i.o.Types[n]; ok {
			var err error
			if dt, err = record.ParseType(declared); err != nil {
				return nil, fmt.Errorf("type of column %q: %w", n, err)
			}
		} else if !i.o.Documents {
			dt = i.root.fields[n].dataType(whole)
		}
		fields[c] = arrow.Field{Name: n, Type: dt, Nullable: true}
	}
	return &record.Schema{Dataset: i.o.Dataset, Columns: arrow.NewSchema(fields, nil), Version: 1}, nil
}

// traits are what the values in one place have in common, or had at least once.
type traits uint16

const (
	sawTruth traits = 1 << iota
	sawText
	sawInt
	sawFloat   // a number that is no int64, and is a float64
	sawNumeric // a number that is neither
	sawHuge    // a number that is too long even for numeric
	sawList
	sawObject
	notFloat // an int64 that no float64 prints back
	notDate
	notTimestamp
	notInstant
	notAlike // objects with different keys, or with equal ones
)

const (
	sawNumber = sawInt | sawFloat | sawNumeric | sawHuge
	sawAny    = sawTruth | sawText | sawNumber | sawList | sawObject
)

// shape is what was seen in one place of the rows: a column, a field or the elements of a list.
type shape struct {
	traits traits
	names  []string // of the objects, in the order of their first appearance
	fields map[string]*shape
	elem   *shape

	objects int64
	count   int // members of the current object so far
}

// see looks at a value that is valid JSON.
func (s *shape) see(b []byte, k jsontext.Kind) {
	switch k {
	case jsontext.Null:
	case jsontext.Truth:
		s.traits |= sawTruth
	case jsontext.Number:
		s.number(b)
	case jsontext.Text, jsontext.Escaped:
		s.text(b, k)
	case jsontext.List:
		s.traits |= sawList
		if s.elem == nil {
			s.elem = &shape{}
		}
		inner := jsontext.Lexer{B: b}
		inner.List(func(e jsontext.Span) bool { s.elem.see(b[e.Start:e.End], e.Kind); return true })
	case jsontext.Object:
		var scratch []byte
		s.begin()
		inner := jsontext.Lexer{B: b}
		inner.Object(func(key, v jsontext.Span) bool { s.member(b, key, v, &scratch); return true })
		s.end()
	}
}

// begin begins an object.
func (s *shape) begin() {
	s.traits |= sawObject
	if s.fields == nil {
		s.fields = map[string]*shape{}
	}
	s.objects++
	s.count = 0
}

// member looks at a member of an object in b.
func (s *shape) member(b []byte, key, v jsontext.Span, scratch *[]byte) {
	name := jsontext.TextOf(b[key.Start:key.End], key.Kind, scratch)
	f := s.fields[string(name)]
	if f == nil {
		f = &shape{}
		s.fields[string(name)] = f
		s.names = append(s.names, string(name))
		if s.objects > 1 {
			s.traits |= notAlike
		}
	}
	if s.count >= len(s.names) || s.names[s.count] != string(name) {
		s.traits |= notAlike
	}
	s.count++
	f.see(b[v.Start:v.End], v.Kind)
}

// end ends an object.
func (s *shape) end() {
	if s.count != len(s.names) {
		s.traits |= notAlike
	}
}

// maxNumericText is how many digits an exponent may expand to beyond the literal's own.
const maxNumericText = 1_000

func (s *shape) number(b []byte) {
	if _, ok := literal.Int(b); ok {
		s.traits |= sawInt
		if s.traits&notFloat == 0 {
			if _, ok := literal.JSONFloat(b); !ok {
				s.traits |= notFloat
			}
		}
		return
	}
	if _, ok := literal.JSONFloat(b); ok {
		s.traits |= sawFloat
		return
	}
	if n, err := record.CanonicalNumeric(string(b)); err != nil || len(n) > len(b)+maxNumericText {
		s.traits |= sawHuge
		return
	}
	s.traits |= sawNumeric
}

func (s *shape) text(b []byte, k jsontext.Kind) {
	s.traits |= sawText
	if k == jsontext.Escaped {
		s.traits |= notDate | notTimestamp | notInstant
		return
	}
	b = b[1 : len(b)-1]
	if s.traits&notDate == 0 {
		if _, ok := literal.Date(b); !ok {
			s.traits |= notDate
		}
	}
	if s.traits&(notTimestamp|notInstant) != notTimestamp|notInstant {
		_, zoned, ok := literal.Timestamp(b)
		ok = ok && literal.IsCanonicalTimestamp(b)
		if !ok || zoned {
			s.traits |= notTimestamp
		}
		if !ok || !zoned {
			s.traits |= notInstant
		}
	}
}

func (s *shape) dataType(whole bool) arrow.DataType {
	switch saw := s.traits & sawAny; {
	case saw == 0 && whole:
		return arrow.BinaryTypes.String
	case saw == sawTruth:
		return arrow.FixedWidthTypes.Boolean
	case saw == sawText:
		return s.textType()
	case saw != 0 && saw&^sawNumber == 0:
		return s.numberType()
	case saw == sawList && whole:
		if dt, ok := s.elem.nested(); ok {
			return arrow.ListOf(dt)
		}
	case saw == sawObject && whole:
		if dt, ok := s.structType(); ok {
			return dt
		}
	}
	return record.JSONType()
}

func (s *shape) textType() arrow.DataType {
	switch {
	case s.traits&notDate == 0:
		return arrow.FixedWidthTypes.Date32
	case s.traits&notTimestamp == 0:
		return &arrow.TimestampType{Unit: arrow.Microsecond}
	case s.traits&notInstant == 0:
		return record.InstantType()
	default:
		return arrow.BinaryTypes.String
	}
}

func (s *shape) numberType() arrow.DataType {
	switch {
	case s.traits&sawHuge != 0:
		return record.JSONType()
	case s.traits&(sawFloat|sawNumeric) == 0:
		return arrow.PrimitiveTypes.Int64
	case s.traits&(sawNumeric|notFloat) == 0:
		return arrow.PrimitiveTypes.Float64
	default:
		return record.NumericType()
	}
}

// nested is the type of a field or an element; false: only a document keeps it.
func (s *shape) nested() (arrow.DataType, bool) {
	if s.traits&sawAny == 0 {
		return nil, false
	}
	dt := s.dataType(true)
	return dt, !arrow.TypeEqual(dt, record.JSONType())
}

func (s *shape) structType() (arrow.DataType, bool) {
	if s.traits&notAlike != 0 || len(s.names) == 0 {
		return nil, false
	}
	fields := make([]arrow.Field, len(s.names))
	for i, n := range s.names {
		dt, ok := s.fields[n].nested()
		if !ok {
			return nil, false
		}
		fields[i] = arrow.Field{Name: n, Type: dt, Nullable: true}
	}
	return arrow.StructOf(fields...), true
}
