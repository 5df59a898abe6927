package connect

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/format/internal/literal"
	"github.com/leatdata/leat/record"
)

// nested returns the appender of values that are made of others; nil: the type is none of those.
func nested(s *Schema, t record.Type) (Appender, error) {
	switch {
	case t.Kind == record.List && s.Type == Array:
		return list(s, t)
	case t.Kind == record.Array && s.Type == Array:
		return rectangle(s, t)
	case t.Kind == record.Map && s.Type == Map:
		return mapping(s, t)
	case t.Kind == record.Struct && s.Type == Struct:
		return structure(s, t)
	}
	return nil, nil //nolint:nilnil // see above
}

func list(s *Schema, t record.Type) (Appender, error) {
	elem, err := Compile(s.Elem, *t.Elem)
	if err != nil {
		return nil, err
	}
	return func(tp *Tape, c Cell, b array.Builder) error {
		if c.Kind <= Null {
			b.AppendNull()
			return nil
		}
		elems, err := tp.Elems(c)
		if err != nil {
			b.AppendNull()
			return err
		}
		lb := b.(*array.ListBuilder) //nolint:forcetypeassert // compiled for it
		lb.Append(true)
		for i, e := range elems {
			if oops := elem(tp, e, lb.ValueBuilder()); oops != nil {
				err = fmt.Errorf("element %d: %w", i+1, oops)
			}
		}
		return err
	}, nil
}

func mapping(s *Schema, t record.Type) (Appender, error) {
	key, err := Compile(s.Key, *t.Key)
	if err != nil {
		return nil, err
	}
	item, err := Compile(s.Elem, *t.Elem)
	if err != nil {
		return nil, err
	}
	return func(tp *Tape, c Cell, b array.Builder) error {
		if c.Kind <= Null {
			b.AppendNull()
			return nil
		}
		pairs, err := tp.KeyValues(c)
		for i := 0; err == nil && i < len(pairs); i += 2 {
			if pairs[i].IsNull() {
				err = mismatch(pairs[i], "a key")
			}
		}
		if err != nil {
			b.AppendNull()
			return err
		}
		mb := b.(*array.MapBuilder) //nolint:forcetypeassert // compiled for it
		mb.Append(true)
		for i := 0; i < len(pairs); i += 2 {
			if oops := key(tp, pairs[i], mb.KeyBuilder()); oops != nil {
				err = fmt.Errorf("key %d: %w", i/2+1, oops)
			}
			if oops := item(tp, pairs[i+1], mb.ItemBuilder()); oops != nil {
				err = fmt.Errorf("value %d: %w", i/2+1, oops)
			}
		}
		return err
	}, nil
}

func structure(s *Schema, t record.Type) (Appender, error) {
	type part struct {
		from   int // in the schema; -1: it has none
		append Appender
	}
	parts := make([]part, len(t.Fields))
	for i, f := range t.Fields {
		parts[i].from = -1
		for n := range s.Fields {
			if s.Fields[n].ColumnName() == f.Name {
				parts[i].from = n
			}
		}
		if parts[i].from < 0 {
			continue
		}
		var err error
		if parts[i].append, err = Compile(s.Fields[parts[i].from].Schema, f.Type); err != nil {
			return nil, fmt.Errorf("field %q: %w", f.Name, err)
		}
	}
	return func(tp *Tape, c Cell, b array.Builder) error {
		if c.Kind <= Null {
			b.AppendNull()
			return nil
		}
		fields, err := tp.FieldsOf(c, s)
		if err != nil {
			b.AppendNull()
			return err
		}
		sb := b.(*array.StructBuilder) //nolint:forcetypeassert // compiled for it
		sb.Append(true)
		for i := range parts {
			p := &parts[i]
			if p.from < 0 {
				sb.FieldBuilder(i).AppendNull()
				continue
			}
			if oops := p.append(tp, fields[p.from], sb.FieldBuilder(i)); oops != nil {
				err = fmt.Errorf("field %q: %w", s.Fields[p.from].Name, oops)
			}
		}
		return err
	}, nil
}

// rectangle reads lists in lists as one array of several dimensions.
func rectangle(s *Schema, t record.Type) (Appender, error) {
	depth := lists(s) - levels(*t.Elem)
	leaf := s
	for range max(depth, 1) {
		leaf = leaf.Elem
	}
	depth = max(depth, 1)
	elem, err := Compile(leaf, *t.Elem)
	if err != nil {
		return nil, err
	}
	return func(tp *Tape, c Cell, b array.Builder) error {
		if c.Kind <= Null {
			b.AppendNull()
			return nil
		}
		f := flattening{tp: tp, depth: depth, fixed: t.Elem.Nested() || t.Elem.Kind == record.JSON}
		err := f.add(c, 0)
		dims, flat := f.dims, f.elems
		if err != nil {
			b.AppendNull()
			return err
		}
		if len(flat) == 0 {
			dims = nil
		}
		ab, err := record.NewArrayBuilder(b)
		if err != nil {
			return err
		}
		lower := make([]int32, len(dims))
		for i := range lower {
			lower[i] = 1
		}
		ab.Append(dims, lower)
		for i, e := range flat {
			if oops := elem(tp, e, ab.Elements()); oops != nil {
				err = fmt.Errorf("element %d: %w", i+1, oops)
			}
		}
		return err
	}, nil
}

// lists counts how many lists are in each other.
func lists(s *Schema) int {
	n := 0
	for ; s.Type == Array; s = s.Elem {
		n++
	}
	return n
}

// levels counts how many lists a type is written as, at least.
func levels(t record.Type) int {
	switch t.Kind {
	case record.List:
		return 1 + levels(*t.Elem)
	case record.Array:
		return t.Rank + levels(*t.Elem)
	default:
		return 0
	}
}

// flattening collects the elements of lists of equal lengths, in order.
type flattening struct {
	tp    *Tape
	depth int  // how many lists are in each other
	fixed bool // elements are lists themselves, so that depth can't be seen
	dims  []int32
	elems []Cell
}

// guess corrects the depth where a JSON text shows that it is another one than the schema says.
func (f *flattening) guess(elems []Cell, level int) {
	if f.fixed || level < len(f.dims) {
		return
	}
	for _, e := range elems {
		switch k := e.json(); {
		case k == jsontext.List:
			f.depth = max(f.depth, level+2)
			return
		case k != 0:
			f.depth = level + 1
			return
		}
	}
}

func (f *flattening) add(c Cell, level int) error {
	elems, err := f.tp.Elems(c)
	if err != nil {
		return err
	}
	f.guess(elems, level)
	if level == len(f.dims) {
		f.dims = append(f.dims, int32(len(elems)))
	} else if int(f.dims[level]) != len(elems) {
		return fmt.Errorf("lists of %d and %d elements are no array", f.dims[level], len(elems))
	}
	if level+1 == f.depth {
		f.elems = append(f.elems, elems...)
		return nil
	}
	for _, e := range elems {
		if err := f.add(e, level+1); err != nil {
			return err
		}
	}
	return nil
}

// dynamic reads JSON texts without a schema: in the form of package record, and only kinds of JSON values that the type is written as.
func dynamic(t record.Type) Appender {
	slow := func(c Cell, b array.Builder) error {
		if t.Nested() { // a value that fails spoils its builder
			trial := array.NewBuilder(memory.DefaultAllocator, t.Arrow)
			if err := record.ParseJSON(trial, c.Bytes); err != nil {
				b.AppendNull()
				return err
			}
		}
		if err := record.ParseJSON(b, c.Bytes); err != nil {
			b.AppendNull()
			return err
		}
		return nil
	}
	return func(tp *Tape, c Cell, b array.Builder) error {
		k := c.json()
		switch {
		case c.Kind <= Null:
			b.AppendNull()
			return nil
		case k == 0:
			b.AppendNull()
			return mismatch(c, "JSON")
		}
		switch t.Kind {
		case record.String:
			if k == jsontext.Text || k == jsontext.Escaped {
				return setText(tp, c, b)
			}
		case record.JSON:
			return setRaw(tp, c, inner(b))
		case record.Int64:
			if v, ok := literal.Int(c.Bytes); ok && k == jsontext.Number {
				b.(*array.Int64Builder).Append(v) //nolint:forcetypeassert // compiled for it
				return nil
			}
		case record.Float64:
			if v, ok := literal.JSONFloat(c.Bytes); ok && k == jsontext.Number {
				b.(*array.Float64Builder).Append(v) //nolint:forcetypeassert // compiled for it
				return nil
			}
		case record.Numeric:
			if k == jsontext.Number && literal.IsNumeric(c.Bytes) {
				inner(b).(*array.StringBuilder).BinaryBuilder.Append(c.Bytes) //nolint:forcetypeassert // compiled for it
				return nil
			}
		case record.Bool:
			if k == jsontext.Truth {
				b.(*array.BooleanBuilder).Append(c.Bytes[0] == 't') //nolint:forcetypeassert // compiled for it
				return nil
			}
		default:
		}
		return slow(c, b)
	}
}
