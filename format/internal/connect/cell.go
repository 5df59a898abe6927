package connect

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/format/internal/literal"
	"github.com/leatdata/leat/record"
)

// Kind says what a cell holds.
type Kind uint8

// The kinds. The zero value is a value that is not there.
const (
	Absent Kind = iota
	Null
	Bool
	Int    // 64 bits, signed
	Uint   // 64 bits
	Float  // a float64
	Text   // UTF-8
	Blob   // bytes
	List   // cells
	Pairs  // cells: keys and values in turn
	Record // cells: one for each field of the schema
	Raw    // a JSON text that was checked
)

// Cell is one value as it was found. Its bytes are those of the message.
type Cell struct {
	Kind  Kind
	Bytes []byte
	num   uint64 // a number, or the jsontext.Kind of Raw
	first int
	n     int
}

// Tape holds the cells of one message, and room for what has to be rewritten. It is used by one goroutine.
type Tape struct {
	cells   []Cell
	stack   []Cell // of compound values that are open
	scratch []byte
	text    []byte // what a text was unescaped to
	lex     jsontext.Lexer
}

// Reset forgets the cells.
func (t *Tape) Reset() { t.cells, t.stack = t.cells[:0], t.stack[:0] }

// Cells of values.

// BoolCell is a truth value.
func BoolCell(v bool) Cell {
	c := Cell{Kind: Bool}
	if v {
		c.num = 1
	}
	return c
}

// IntCell is an integer.
func IntCell(v int64) Cell { return Cell{Kind: Int, num: uint64(v)} }

// UintCell is an integer without sign.
func UintCell(v uint64) Cell { return Cell{Kind: Uint, num: v} }

// FloatCell is a float; one of 32 bits is the same as 64.
func FloatCell(v float64) Cell { return Cell{Kind: Float, num: math.Float64bits(v)} }

// RawCell is a JSON text that was checked.
func RawCell(b []byte, k jsontext.Kind) Cell {
	if k == jsontext.Null {
		return Cell{Kind: Null}
	}
	return Cell{Kind: Raw, Bytes: b, num: uint64(k)}
}

// Reserve makes room for n cells of a compound value, which are Absent until they are set.
func (t *Tape) Reserve(k Kind, n int) Cell {
	c := Cell{Kind: k, first: len(t.cells), n: n}
	for range n {
		t.cells = append(t.cells, Cell{})
	}
	return c
}

// Set sets cell i of a compound value.
func (t *Tape) Set(c Cell, i int, v Cell) { t.cells[c.first+i] = v }

// Open begins a compound value of unknown length: its cells are pushed, those of others that are opened and closed in between aside.
func (t *Tape) Open() int { return len(t.stack) }

// Push adds a cell to the value that was opened last.
func (t *Tape) Push(v Cell) { t.stack = append(t.stack, v) }

// Close ends the value that Open began with this mark.
func (t *Tape) Close(k Kind, mark int) Cell {
	c := Cell{Kind: k, first: len(t.cells), n: len(t.stack) - mark}
	t.cells = append(t.cells, t.stack[mark:]...)
	t.stack = t.stack[:mark]
	return c
}

func (t *Tape) of(c Cell) []Cell { return t.cells[c.first : c.first+c.n] }

// json is what kind of JSON a cell is; 0: it is none.
func (c Cell) json() jsontext.Kind {
	if c.Kind != Raw {
		return 0
	}
	return jsontext.Kind(c.num)
}

// IsNull reports whether there is no value.
func (c Cell) IsNull() bool { return c.Kind <= Null }

// what names a cell for people.
func (c Cell) what() string {
	if c.Kind == Raw {
		b := c.Bytes
		const most = 60
		if len(b) > most {
			return jsontext.Kind(c.num).String()
		}
		return string(b)
	}
	return [...]string{
		"nothing", "null", "a boolean", "an integer", "an integer", "a float", "a text", "bytes", "a list", "a map", "a record",
	}[c.Kind]
}

// Value returns what a cell holds as text for messages, shortened.
func (t *Tape) Value(c Cell) string {
	const most = 120
	var out []byte
	switch c.Kind {
	case Int, Uint, Bool, Float:
		out, _ = t.digits(nil, c)
	case Text, Raw, Blob:
		out = c.Bytes
	default:
	}
	if len(out) > most {
		return string(out[:most]) + "…"
	}
	return string(out)
}

func mismatch(c Cell, want string) error { return fmt.Errorf("found %s, want %s", c.what(), want) }

// Truth returns a boolean.
func (c Cell) Truth() (v, ok bool) {
	switch {
	case c.Kind == Bool:
		return c.num == 1, true
	case c.json() == jsontext.Truth:
		return c.Bytes[0] == 't', true
	}
	return false, false
}

// String returns a text, valid until the next call; false: the cell is none.
func (t *Tape) String(c Cell) ([]byte, bool) {
	switch k := c.json(); {
	case c.Kind == Text:
		return c.Bytes, true
	case k == jsontext.Text || k == jsontext.Escaped:
		return jsontext.TextOf(c.Bytes, k, &t.text), true
	}
	return nil, false
}

// Blob returns bytes, valid until the next call: also those that a JSON text holds as base64.
func (t *Tape) Blob(c Cell) ([]byte, error) {
	if c.Kind == Blob {
		return c.Bytes, nil
	}
	text, ok := t.String(c)
	if !ok || c.Kind == Text {
		return nil, mismatch(c, "bytes")
	}
	var err error
	if t.scratch, err = base64.StdEncoding.AppendDecode(t.scratch[:0], text); err != nil {
		return nil, fmt.Errorf("want base64: %w", err)
	}
	return t.scratch, nil
}

// Int returns an integer of 64 bits.
func (c Cell) Int() (int64, bool) {
	switch {
	case c.Kind == Int:
		return int64(c.num), true
	case c.Kind == Uint:
		return int64(c.num), c.num <= math.MaxInt64
	case c.json() == jsontext.Number:
		if v, ok := literal.Int(c.Bytes); ok {
			return v, true
		}
		s, err := integral(c.Bytes)
		if err != nil {
			return 0, false
		}
		v, err := strconv.ParseInt(s, 10, 64)
		return v, err == nil
	}
	return 0, false
}

// Uint returns an integer of 64 bits without sign.
func (c Cell) Uint() (uint64, bool) {
	switch {
	case c.Kind == Int:
		return c.num, int64(c.num) >= 0
	case c.Kind == Uint:
		return c.num, true
	case c.json() == jsontext.Number:
		s, err := integral(c.Bytes)
		if err != nil {
			return 0, false
		}
		v, err := strconv.ParseUint(s, 10, 64)
		return v, err == nil
	}
	return 0, false
}

var errNoInteger = errors.New("no integer")

// integral reads a number that has no fraction but zeros.
func integral(b []byte) (string, error) {
	s, err := record.CanonicalNumeric(string(b))
	if err != nil {
		return "", err
	}
	for i := range len(s) {
		if s[i] != '.' {
			continue
		}
		for _, c := range s[i+1:] {
			if c != '0' {
				return "", errNoInteger
			}
		}
		return s[:i], nil
	}
	return s, nil
}

// Float returns the float of so many bits that is nearest to a number; an integer must be one exactly.
func (t *Tape) Float(c Cell, size int) (float64, bool) {
	switch k := c.json(); {
	case c.Kind == Float:
		f := math.Float64frombits(c.num)
		return f, size == 64 || float64(float32(f)) == f || f != f
	case c.Kind == Int:
		f := float64(int64(c.num))
		return f, f != math.MaxInt64+1 && int64(f) == int64(c.num) && (size == 64 || float64(float32(f)) == f)
	case k == jsontext.Number:
		f, err := strconv.ParseFloat(string(c.Bytes), size)
		return f, err == nil
	case k == jsontext.Text || c.Kind == Text:
		s, _ := t.String(c)
		switch string(s) {
		case "NaN":
			return math.NaN(), true
		case "Infinity":
			return math.Inf(1), true
		case "-Infinity":
			return math.Inf(-1), true
		}
	}
	return 0, false
}

// digits appends the number that a cell is, as text.
func (t *Tape) digits(dst []byte, c Cell) ([]byte, bool) {
	switch k := c.json(); {
	case c.Kind == Int:
		return strconv.AppendInt(dst, int64(c.num), 10), true
	case c.Kind == Uint:
		return strconv.AppendUint(dst, c.num, 10), true
	case c.Kind == Float:
		return record.AppendFloat(dst, math.Float64frombits(c.num), 64), true
	case c.Kind == Bool:
		return strconv.AppendBool(dst, c.num == 1), true
	case k == jsontext.Number:
		return append(dst, c.Bytes...), true
	}
	if s, ok := t.String(c); ok {
		return append(dst, s...), true
	}
	return dst, false
}

// Elems returns the elements of a list.
func (t *Tape) Elems(c Cell) ([]Cell, error) {
	switch {
	case c.Kind == List:
		return t.of(c), nil
	case c.json() == jsontext.List:
		mark := t.Open()
		inner := jsontext.Lexer{B: c.Bytes}
		inner.List(func(v jsontext.Span) bool {
			t.Push(RawCell(c.Bytes[v.Start:v.End], v.Kind))
			return true
		})
		return t.of(t.Close(List, mark)), nil
	}
	return nil, mismatch(c, "a list")
}

// KeyValues returns keys and values of a map, in turn.
func (t *Tape) KeyValues(c Cell) ([]Cell, error) {
	switch c.json() {
	case 0:
		if c.Kind == Pairs {
			return t.of(c), nil
		}
	case jsontext.Object:
		mark := t.Open()
		inner := jsontext.Lexer{B: c.Bytes}
		inner.Object(func(k, v jsontext.Span) bool {
			t.Push(RawCell(c.Bytes[k.Start:k.End], k.Kind))
			t.Push(RawCell(c.Bytes[v.Start:v.End], v.Kind))
			return true
		})
		return t.of(t.Close(Pairs, mark)), nil
	case jsontext.List:
	default:
		return nil, mismatch(c, "a map")
	}
	pairs, err := t.Elems(c)
	if err != nil {
		return nil, mismatch(c, "a map")
	}
	mark := t.Open()
	for _, p := range pairs {
		var pair []Cell
		if p.Kind == Record {
			pair = t.of(p)
		} else if pair, err = t.Elems(p); err != nil {
			t.Close(Pairs, mark)
			return nil, mismatch(p, "a pair of key and value")
		}
		if len(pair) != 2 {
			t.Close(Pairs, mark)
			return nil, mismatch(p, "a pair of key and value")
		}
		t.Push(pair[0])
		t.Push(pair[1])
	}
	return t.of(t.Close(Pairs, mark)), nil
}

// FieldsOf returns the fields of a struct in the order of its schema; those that are not there are Absent. Of equal names in a JSON
// object the last one counts, and names that the schema lacks are passed over.
func (t *Tape) FieldsOf(c Cell, s *Schema) ([]Cell, error) {
	switch {
	case c.Kind == Record:
		return t.of(c), nil
	case c.json() != jsontext.Object:
		return nil, mismatch(c, "an object")
	}
	out := t.Reserve(Record, len(s.Fields))
	inner := jsontext.Lexer{B: c.Bytes}
	next := 0
	inner.Object(func(k, v jsontext.Span) bool {
		name := jsontext.TextOf(c.Bytes[k.Start:k.End], k.Kind, &t.text)
		if next < 0 || next >= len(s.Fields) || s.Fields[next].Name != string(name) {
			next = s.Field(string(name))
			if next < 0 {
				return true
			}
		}
		t.Set(out, next, RawCell(c.Bytes[v.Start:v.End], v.Kind))
		next++
		return true
	})
	return t.of(out), nil
}

// Parse checks a JSON text and returns it as a cell; the bytes are those of the text.
func Parse(b []byte) (Cell, error) {
	if !utf8.Valid(b) {
		return Cell{}, errors.New("the text is not valid UTF-8")
	}
	l := jsontext.Lexer{B: b}
	s, ok := l.Document()
	if !ok {
		return Cell{}, fmt.Errorf("byte %d: %s", l.P, l.Fault)
	}
	return RawCell(b[s.Start:s.End], s.Kind), nil
}

// Members calls each for every member of a JSON object, with its name as text.
func (t *Tape) Members(c Cell, guess [][]byte, each func(name []byte, guessed int, v Cell)) bool {
	if c.json() != jsontext.Object {
		return false
	}
	t.lex = jsontext.Lexer{B: c.Bytes, Guess: guess}
	l := &t.lex
	return l.Object(func(k, v jsontext.Span) bool {
		cell := RawCell(c.Bytes[v.Start:v.End], v.Kind)
		if l.Guessed {
			each(nil, l.Next-1, cell)
			return true
		}
		each(jsontext.TextOf(c.Bytes[k.Start:k.End], k.Kind, &t.text), -1, cell)
		return true
	})
}

// JSONKind returns what JSON a cell is; 0: it is none.
func (c Cell) JSONKind() jsontext.Kind {
	if c.Kind == Null {
		return jsontext.Null
	}
	return c.json()
}

// Same reports whether two cells are certainly the same value; unsure: they are not of one form.
func (t *Tape) Same(a, b Cell) (same, sure bool) {
	if a.IsNull() || b.IsNull() {
		return a.IsNull() && b.IsNull(), true
	}
	if x, ok := a.Int(); ok {
		if y, ok := b.Int(); ok {
			return x == y, true
		}
	}
	if x, ok := t.String(a); ok {
		x = append(t.scratch[:0], x...)
		t.scratch = x
		if y, ok := t.String(b); ok {
			return string(x) == string(y), true
		}
	}
	if a.Kind == Blob && b.Kind == Blob {
		return string(a.Bytes) == string(b.Bytes), true
	}
	return true, false
}

// unscaled appends a big-endian two's complement integer as text, with the point scale digits from the end.
func unscaled(dst, b []byte, scale int) []byte {
	if len(b) == 0 {
		b = []byte{0}
	}
	var digits []byte
	if len(b) <= 8 {
		v := int64(int8(b[0]))
		for _, x := range b[1:] {
			v = v<<8 | int64(x)
		}
		var buf [24]byte
		digits = strconv.AppendInt(buf[:0], v, 10)
	} else {
		digits = bigDigits(b)
	}
	return withPoint(dst, digits, scale)
}

// fits128 reads a big-endian two's complement integer of up to 16 bytes.
func fits128(b []byte) (hi int64, lo uint64, ok bool) {
	if len(b) == 0 || len(b) > 16 {
		return 0, 0, len(b) == 0
	}
	h := uint64(int64(int8(b[0])) >> 7)
	l := h
	for _, x := range b {
		h = h<<8 | l>>56
		l = l<<8 | uint64(x)
	}
	return int64(h), l, true
}
