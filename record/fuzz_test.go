package record_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// fuzzTypes are all scalars and one of each kind of nesting.
func fuzzTypes() []arrow.DataType {
	st := arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "b", Type: record.JSONType()})
	return append(scalars(), arrow.ListOf(record.NumericType()), arrow.MapOf(arrow.BinaryTypes.String, st), st,
		record.ArrayType(arrow.PrimitiveTypes.Int32, 1), record.ArrayType(record.JSONType(), 1), arrow.ListOf(arrow.ListOf(arrow.BinaryTypes.Binary)))
}

// stable checks a value that was read: its forms are read back as the same value.
func stable(t *testing.T, arr arrow.Array) {
	t.Helper()
	again := array.NewBuilder(memory.DefaultAllocator, arr.DataType())
	doc := record.AppendJSON(nil, arr, 0)
	if !json.Valid(doc) {
		t.Fatalf("%s: not JSON: %q", arr.DataType(), doc)
	}
	if arr.IsNull(0) {
		return
	}
	text := record.AppendText(nil, arr, 0)
	if err := record.ParseText(again, string(text)); err != nil {
		t.Fatalf("%s: reading %q again: %v", arr.DataType(), text, err)
	}
	if got := record.AppendText(nil, again.NewArray(), 0); !bytes.Equal(got, text) {
		t.Fatalf("%s: %q became %q", arr.DataType(), text, got)
	}
	if bytes.Contains(doc, []byte("null")) {
		return // a document that is null becomes a null
	}
	if err := record.ParseJSON(again, doc); err != nil {
		t.Fatalf("%s: reading %q again: %v", arr.DataType(), doc, err)
	}
	if got := record.AppendJSON(nil, again.NewArray(), 0); !bytes.Equal(got, doc) {
		t.Fatalf("%s: %q became %q", arr.DataType(), doc, got)
	}
}

func fuzz(f *testing.F, seeds []string, parse func(array.Builder, string) error) {
	f.Helper()
	for i := range fuzzTypes() {
		f.Add(uint8(i), "0")
	}
	for i, s := range seeds {
		f.Add(uint8(i*7), s)
	}
	f.Fuzz(func(t *testing.T, kind uint8, s string) {
		types := fuzzTypes()
		b := array.NewBuilder(memory.DefaultAllocator, types[int(kind)%len(types)])
		if err := parse(b, s); err != nil {
			return
		}
		arr := b.NewArray()
		if arr.Len() != 1 {
			t.Fatalf("%s: %q appended %d values", arr.DataType(), s, arr.Len())
		}
		stable(t, arr)
	})
}

func FuzzParseText(f *testing.F) {
	fuzz(f, []string{
		"true", "-128", "1e-7", "NaN", "-0.00", `\x00ff`, "2024-02-29", "-0043-03-15", "infinity", "24:00:00", "2024-02-29T23:59:59.5+05:30",
		"P1Y-2M3DT-4H5M-6.7S", "-PT1H2M3.5S", "01234567-89ab-cdef-0123-456789abcdef", "10.1.2.3/8", "08:00:2b:01:02:03", `{"a":1}`, "0044-03-15 BC",
	}, record.ParseText)
}

func FuzzParseJSON(f *testing.F) {
	fuzz(f, []string{
		"null", `"a\u00e9\ud83d\ude00"`, "1e400", `{"a":1,"b":[1,{}]}`, `[["k",{"a":null,"b":"null"}]]`, `[[1,2],[3,null]]`, `{"lower":[0],"values":[7]}`,
		`{"dims":[1,2],"values":[[],{}]}`, `["AAH/"]`, `[[],["",null]]`, `"2024-02-29"`, `"Infinity"`, ` [ ] `,
	}, func(b array.Builder, s string) error { return record.ParseJSON(b, []byte(s)) })
}

// What CheckJSON accepts is what encoding/json accepts, but for bad Unicode and depth.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"n":2,"n":123}`, `"\ud800"`, `"\ud83d\ude00"`, "\"\xff\"", `[[[]]]`, `"\\\ud800"`, `{"a":"\"`, `1e5`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		err := record.CheckJSON(doc)
		if err == nil && !json.Valid(doc) {
			t.Fatalf("%q is accepted and no JSON", doc)
		}
		if err != nil && json.Valid(doc) {
			plain := !bytes.Contains(doc, []byte(`\u`)) && bytes.Equal(bytes.ToValidUTF8(doc, nil), doc) && bytes.Count(doc, []byte("["))+bytes.Count(doc, []byte("{")) <= 1000
			if plain {
				t.Fatalf("%q is refused: %v", doc, err)
			}
		}
	})
}
