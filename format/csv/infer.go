package csv

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/internal/literal"
	"github.com/leatdata/leat/record"
)

// InferOptions say how inputs are looked at.
type InferOptions struct {
	Options                   // Schema, Declared and Expected are not used
	Types   map[string]string // declared types by column, see record.ParseType; those columns are not inferred
	AllText bool              // infer nothing: columns without a declared type are text
}

// Inference looks at inputs of one dataset and decides the types of their columns over all of them.
type Inference struct {
	o     InferOptions
	d     dialect
	names []string
	seen  []candidates
	rows  int64
}

// candidates are the types that every value of a column has so far.
type candidates uint8

const (
	asBool candidates = 1 << iota
	asInt
	asFloat
	asDate
	asTimestamp
	asInstant
	someValue // not a type: there was a value that is not NULL

	asAny = asBool | asInt | asFloat | asDate | asTimestamp | asInstant
)

// NewInference checks the options.
func NewInference(o InferOptions) (*Inference, error) {
	d, err := o.check()
	if err != nil {
		return nil, err
	}
	return &Inference{o: o, d: d}, nil
}

// Scan looks at an input from its beginning, at most at limit bytes of it, or at all where limit is not positive. It reports whether
// it saw the end. Rows that can't be read are passed over: reading tells of them.
func (i *Inference) Scan(r io.Reader, limit int64) (whole bool, err error) {
	limited := &io.LimitedReader{R: r, N: limit}
	in := io.Reader(limited)
	if limit <= 0 {
		in = r
	}
	s := newScanner(in, i.d)
	cut := func() bool { return limit > 0 && limited.N <= 0 }
	names, err := s.header(!i.o.NoHeader, i.o.Names)
	switch {
	case errors.Is(err, io.EOF):
		return !cut(), nil
	case err != nil && cut() && s.EOF:
		return false, &connector.Error{
			Class: connector.ClassPermanent, Code: "csv.header", Err: fmt.Errorf("the first row does not end within %d bytes", limit),
			Hint: "is it a CSV file? If it is, a quote may be left open in its header",
		}
	case err != nil:
		return false, err
	}
	to, err := i.merge(names)
	if err != nil {
		return false, err
	}
	r2 := &Reader{s: s}
	r2.setNull(i.o.Null)
	for {
		ok, err := s.next()
		if err != nil {
			if cut() && s.EOF {
				return false, nil
			}
			return false, err
		}
		if !ok {
			return i.atEnd(limited, limit)
		}
		if s.open && cut() {
			if whole, err := i.atEnd(limited, limit); !whole {
				return false, err
			}
		}
		i.row(r2, to)
		s.consume()
	}
}

// atEnd tells an input that ends at the limit from one that goes on.
func (*Inference) atEnd(limited *io.LimitedReader, limit int64) (bool, error) {
	if limit <= 0 || limited.N > 0 {
		return true, nil
	}
	var one [1]byte
	n, err := io.ReadFull(limited.R, one[:])
	if n > 0 || err == nil {
		return false, nil
	}
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// merge finds the place of each column of an input among all columns.
func (i *Inference) merge(names []string) ([]int, error) {
	if i.names == nil {
		i.names = slices.Clone(names)
		i.seen = make([]candidates, len(names))
		for c := range i.seen {
			i.seen[c] = asAny
		}
	}
	if !i.o.Union {
		return match(names, i.names, i.names, false)
	}
	to := make([]int, len(names))
	for c, n := range names {
		to[c] = slices.Index(i.names, n)
		if to[c] < 0 {
			to[c] = len(i.names)
			i.names, i.seen = append(i.names, n), append(i.seen, asAny)
		}
	}
	return to, nil
}

func (i *Inference) row(r *Reader, to []int) {
	if r.s.problem != "" || r.s.invalid() >= 0 || len(r.s.fields) != len(to) {
		return
	}
	i.rows++
	for c := range r.s.fields {
		f, seen := &r.s.fields[c], &i.seen[to[c]]
		if *seen&asAny == 0 || (!f.quoted && r.isNull(f)) {
			continue
		}
		seen.value(r.s.value(f))
	}
}

// value strikes out the types that a value does not have.
func (c *candidates) value(b []byte) {
	*c |= someValue
	if *c&asBool != 0 && string(b) != "true" && string(b) != "false" {
		*c &^= asBool
	}
	if *c&asInt != 0 {
		if _, ok := literal.Int(b); !ok {
			*c &^= asInt
		}
	}
	if *c&asFloat != 0 {
		if _, ok := literal.Float(b); !ok {
			*c &^= asFloat
		}
	}
	if *c&asDate != 0 {
		if _, ok := literal.Date(b); !ok {
			*c &^= asDate
		}
	}
	if *c&(asTimestamp|asInstant) != 0 {
		_, zoned, ok := literal.Timestamp(b)
		if !ok || zoned {
			*c &^= asTimestamp
		}
		if !ok || !zoned {
			*c &^= asInstant
		}
	}
}

func (c *candidates) dataType() arrow.DataType {
	switch c := *c; {
	case c&someValue == 0:
		return arrow.BinaryTypes.String
	case c&asBool != 0:
		return arrow.FixedWidthTypes.Boolean
	case c&asInt != 0:
		return arrow.PrimitiveTypes.Int64
	case c&asFloat != 0:
		return arrow.PrimitiveTypes.Float64
	case c&asDate != 0:
		return arrow.FixedWidthTypes.Date32
	case c&asTimestamp != 0:
		return &arrow.TimestampType{Unit: arrow.Microsecond}
	case c&asInstant != 0:
		return record.InstantType()
	default:
		return arrow.BinaryTypes.String
	}
}

// Columns returns all columns that were seen, in the order of their first appearance; nil: no input had a row.
func (i *Inference) Columns() []string { return i.names }

// Schema returns the columns with their types; nil where no input had a row and no names were given.
func (i *Inference) Schema() (*record.Schema, error) {
	names := i.names
	if names == nil {
		names = i.o.Names
	}
	if names == nil {
		return nil, nil //nolint:nilnil // nothing is known, and nothing is wrong
	}
	fields := make([]arrow.Field, len(names))
	for c, n := range names {
		dt := arrow.DataType(arrow.BinaryTypes.String)
		if i.names != nil && !i.o.AllText {
			dt = i.seen[c].dataType()
		}
		if declared, ok := i.o.Types[n]; ok {
			var err error
			if dt, err = record.ParseType(declared); err != nil {
				return nil, fmt.Errorf("type of column %q: %w", n, err)
			}
		}
		fields[c] = arrow.Field{Name: n, Type: dt, Nullable: true}
	}
	return &record.Schema{Dataset: i.o.Dataset, Columns: arrow.NewSchema(fields, nil), Version: 1}, nil
}
