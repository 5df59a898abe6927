package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// maxJSONDepth bounds how deeply documents may nest: deeper ones are an error, not a crash.
const maxJSONDepth = 1_000

// CheckJSON reports what is wrong with one JSON document: its syntax, more nesting than 1,000 levels, bytes that are no UTF-8, or
// half of a surrogate pair.
func CheckJSON(doc []byte) error {
	if !utf8.Valid(doc) {
		return errors.New("JSON document is not valid UTF-8")
	}
	depth, inString := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case inString && c == '\\':
			n, err := escapeLength(doc[i:])
			if err != nil {
				return err
			}
			i += n - 1
		case c == '"':
			inString = !inString
		case !inString && (c == '[' || c == '{'):
			if depth++; depth > maxJSONDepth {
				return fmt.Errorf("JSON document nests deeper than %d levels", maxJSONDepth)
			}
		case !inString && (c == ']' || c == '}'):
			depth--
		}
	}
	if !json.Valid(doc) {
		var v any
		return fmt.Errorf("invalid JSON: %w", json.Unmarshal(doc, &v))
	}
	return nil
}

// escapeLength returns how many bytes an escape sequence takes; a lone surrogate is an error.
func escapeLength(s []byte) (int, error) {
	unit := func(s []byte) (uint64, bool) {
		if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
			return 0, false
		}
		v, err := strconv.ParseUint(string(s[2:6]), 16, 16)
		return v, err == nil
	}
	first, ok := unit(s)
	switch {
	case !ok:
		return 2, nil
	case first >= 0xDC00 && first <= 0xDFFF:
		return 0, fmt.Errorf("JSON string has half of a surrogate pair: %s", s[:6])
	case first < 0xD800 || first > 0xDBFF:
		return 6, nil
	}
	if second, ok := unit(s[6:]); !ok || second < 0xDC00 || second > 0xDFFF {
		return 0, fmt.Errorf("JSON string has half of a surrogate pair: %s", s[:6])
	}
	return 12, nil
}

// ParseJSON appends to b the value that a JSON document is, see AppendJSON; null appends a null. Numbers are read from their
// literals, so that no digit is lost; a string is never read as a number, except for NaN and the infinities, nor a number as
// text. JSON columns get the bytes of the document as they are. What CheckJSON refuses, and a struct with a field twice or with one
// that the type lacks, is an error. Nothing is appended to scalar builders where it returns an error; after an error on a nested
// builder the builder must be thrown away.
func ParseJSON(b array.Builder, doc []byte) error {
	if err := CheckJSON(doc); err != nil {
		return err
	}
	return appendRaw(b, doc)
}

// appendRaw appends a document that CheckJSON accepts.
func appendRaw(b array.Builder, raw json.RawMessage) error {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		b.AppendNull()
		return nil
	}
	switch b := b.(type) {
	case *array.MapBuilder:
		return appendRawMap(b, raw)
	case *array.ListBuilder:
		list, err := elements(raw, "array")
		if err != nil {
			return err
		}
		b.Append(true)
		return appendEach(b.ValueBuilder(), list)
	case *array.StructBuilder:
		return appendRawStruct(b, raw)
	case *array.BinaryBuilder:
		v, err := fromBase64(raw)
		if err != nil {
			return err
		}
		b.Append(v)
		return nil
	case *array.FixedSizeBinaryBuilder:
		v, err := fromBase64(raw)
		if err != nil {
			return err
		}
		return appendFixed(b, v)
	}
	return appendRawScalar(b, raw)
}

func appendRawScalar(b array.Builder, raw json.RawMessage) error {
	t, err := TypeOf(b.Type())
	if err != nil {
		return err
	}
	number := t.Kind >= Int8 && t.Kind <= Numeric
	switch c := raw[0]; {
	case t.Kind == Array:
		return appendRawArray(b, raw)
	case t.Kind == JSON:
		return ParseText(b, string(raw))
	case c == '"':
		s, err := toString(raw)
		if err != nil {
			return err
		}
		if t.Kind != Bool && (!number || s == "NaN" || s == "Infinity" || s == "-Infinity") {
			return ParseText(b, s)
		}
	case c == 't' || c == 'f':
		if t.Kind == Bool {
			return ParseText(b, string(raw))
		}
	case c == '-' || (c >= '0' && c <= '9'):
		if number {
			return ParseText(b, string(raw))
		}
	}
	return mismatch(raw, "value of type "+t.String())
}

func appendEach(b array.Builder, list []json.RawMessage) error {
	for _, e := range list {
		if err := appendRaw(b, e); err != nil {
			return err
		}
	}
	return nil
}

func mismatch(raw json.RawMessage, want string) error {
	const most = 100
	if len(raw) > most {
		raw = append(bytes.ToValidUTF8(raw[:most:most], nil), "…"...)
	}
	return fmt.Errorf("JSON value %s: want a JSON %s", raw, want)
}

// elements returns the elements of an array.
func elements(raw json.RawMessage, want string) ([]json.RawMessage, error) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, mismatch(raw, want)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}
	for i, e := range list {
		list[i] = bytes.TrimSpace(e)
	}
	return list, nil
}

// members returns the members of an object; a name that appears twice is an error.
func members(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if raw[0] != '{' {
		return nil, mismatch(raw, "object")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}
	obj := map[string]json.RawMessage{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("invalid JSON: %w", err)
		}
		name, _ := token.(string)
		if _, twice := obj[name]; twice {
			return nil, fmt.Errorf("JSON object has the member %q twice", name)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("invalid JSON: %w", err)
		}
		obj[name] = value
	}
	return obj, nil
}

func toString(raw json.RawMessage) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", mismatch(raw, "string")
	}
	return s, nil
}

func fromBase64(raw json.RawMessage) ([]byte, error) {
	s, err := toString(raw)
	if err != nil {
		return nil, err
	}
	v, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("%q is no base64: %w", s, err)
	}
	return v, nil
}

func appendRawMap(b *array.MapBuilder, raw json.RawMessage) error {
	list, err := elements(raw, "array of [key, value]")
	if err != nil {
		return err
	}
	b.Append(true)
	for _, e := range list {
		pair, err := elements(e, "pair [key, value]")
		if err != nil {
			return err
		}
		if len(pair) != 2 || string(pair[0]) == "null" {
			return mismatch(e, "pair [key, value]")
		}
		if err := appendRaw(b.KeyBuilder(), pair[0]); err != nil {
			return err
		}
		if err := appendRaw(b.ItemBuilder(), pair[1]); err != nil {
			return err
		}
	}
	return nil
}

func appendRawStruct(b *array.StructBuilder, raw json.RawMessage) error {
	obj, err := members(raw)
	if err != nil {
		return err
	}
	st := b.Type().(*arrow.StructType) //nolint:forcetypeassert // by construction
	b.Append(true)
	for i, f := range st.Fields() {
		value, present := obj[f.Name]
		if !present {
			value = json.RawMessage("null")
		}
		delete(obj, f.Name)
		if err := appendRaw(b.FieldBuilder(i), value); err != nil {
			return fmt.Errorf("field %q: %w", f.Name, err)
		}
	}
	if len(obj) > 0 {
		return fmt.Errorf("JSON object has the members %q that %s lacks", slices.Sorted(maps.Keys(obj)), st)
	}
	return nil
}

// arrayDoc is an array that plain nesting can't express, see AppendJSON.
type arrayDoc struct {
	Dims   []int32           `json:"dims"`
	Lower  []int32           `json:"lower"`
	Values []json.RawMessage `json:"values"`
}

func appendRawArray(b array.Builder, raw json.RawMessage) error {
	ab, err := NewArrayBuilder(b)
	if err != nil {
		return err
	}
	doc, err := readArray(raw)
	if err != nil {
		return err
	}
	size := int64(min(len(doc.Dims), 1)) // an empty array has no dimensions
	for _, d := range doc.Dims {
		size *= int64(d)
		if d < 1 || size > int64(len(doc.Values)) {
			return mismatch(raw, "array with as many values as its dimensions say")
		}
	}
	if size != int64(len(doc.Values)) {
		return mismatch(raw, "array with as many values as its dimensions say")
	}
	if len(doc.Lower) != len(doc.Dims) {
		return fmt.Errorf("array has %d dimensions and %d lower bounds", len(doc.Dims), len(doc.Lower))
	}
	ab.Append(doc.Dims, doc.Lower)
	return appendEach(ab.Elements(), doc.Values)
}

// readArray reads every form of an array; Values are flat, in row-major order, in what it returns.
func readArray(raw json.RawMessage) (doc arrayDoc, err error) {
	if raw[0] == '{' {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&doc); err != nil {
			return doc, mismatch(raw, `object {"lower":[…],"values":[…]}`)
		}
	} else if doc.Values, err = elements(raw, "array"); err != nil {
		return doc, err
	}
	if doc.Dims == nil {
		if doc.Dims, doc.Values, err = flatten(doc.Values); err != nil {
			return doc, err
		}
	}
	if doc.Lower == nil {
		doc.Lower = make([]int32, len(doc.Dims))
		for i := range doc.Lower {
			doc.Lower[i] = 1
		}
	}
	return doc, nil
}

// flatten returns the shape of nested arrays and their elements in row-major order. Ragged ones are refused: arrays are boxes.
func flatten(list []json.RawMessage) (dims []int32, flat []json.RawMessage, err error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	ragged := errors.New("JSON array is ragged: want rows of the same length")
	nested := list[0][0] == '['
	var inner []int32
	for i, e := range list {
		if (e[0] == '[') != nested {
			return nil, nil, ragged
		}
		if !nested {
			continue
		}
		sub, err := elements(e, "array")
		if err != nil {
			return nil, nil, err
		}
		d, f, err := flatten(sub)
		if err != nil {
			return nil, nil, err
		}
		if i == 0 {
			inner = d
		}
		if len(d) == 0 || !slices.Equal(d, inner) {
			return nil, nil, ragged
		}
		flat = append(flat, f...)
	}
	if !nested {
		flat = list
	}
	return append([]int32{int32(len(list))}, inner...), flat, nil
}
