package record_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/record"
)

// same compares two arrays exactly: NaN equals NaN, and -0 is not 0, since its text differs.
func same(t *rapid.T, want, got arrow.Array) {
	t.Helper()
	if !array.ApproxEqual(want, got, array.WithNaNsEqual(true), array.WithAbsTolerance(0)) {
		t.Fatalf("want %v, got %v", want, got)
	}
	for i := range want.Len() {
		if w, g := record.AppendJSON(nil, want, i), record.AppendJSON(nil, got, i); !bytes.Equal(w, g) {
			t.Fatalf("row %d: want %s, got %s", i, w, g)
		}
		if want.IsNull(i) {
			continue
		}
		if w, g := record.AppendText(nil, want, i), record.AppendText(nil, got, i); !bytes.Equal(w, g) {
			t.Fatalf("row %d: want %s, got %s", i, w, g)
		}
	}
}

// roundTrip takes an array through text and through JSON.
func roundTrip(t *rapid.T, arr arrow.Array) {
	t.Helper()
	texts := array.NewBuilder(memory.DefaultAllocator, arr.DataType())
	docs := array.NewBuilder(memory.DefaultAllocator, arr.DataType())
	for i := range arr.Len() {
		doc := record.AppendJSON([]byte("before"), arr, i)[len("before"):]
		if !json.Valid(doc) {
			t.Fatalf("not JSON: %s", doc)
		}
		if err := record.ParseJSON(docs, doc); err != nil {
			t.Fatalf("reading JSON %s: %v", doc, err)
		}
		if arr.IsNull(i) {
			texts.AppendNull()
			continue
		}
		text := record.AppendText([]byte("before"), arr, i)[len("before"):]
		if err := record.ParseText(texts, string(text)); err != nil {
			t.Fatalf("reading text %q: %v", text, err)
		}
	}
	same(t, arr, docs.NewArray())
	same(t, arr, texts.NewArray())
}

// cases C002, C004, C010, C011, C012, C016, C024, C026, C092: every value of every type comes back from its text and from its JSON
// exactly: numbers of hundreds of digits, NaN, -0 and denormals, dates BC and infinite ones, intervals with mixed signs, arrays with
// nulls and bounds, empty lists beside nulls.
func TestScalarRoundTrip(t *testing.T) {
	for _, dt := range scalars() {
		t.Run(dt.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { roundTrip(t, anyArray(t, dt, 3)) })
		})
	}
}

// cases C026, C092: the same for types made of others, also in the middle of an array.
func TestNestedRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arr := anyArray(t, anyType(t, 3), rapid.IntRange(1, 4).Draw(t, "rows"))
		from := rapid.IntRange(0, arr.Len()).Draw(t, "from")
		roundTrip(t, array.NewSlice(arr, int64(from), int64(arr.Len())))
	})
}

// Types and values survive Arrow's files and messages; a reader that registered the types gets the same types back.
func TestArrowIPCRoundTrip(t *testing.T) {
	if err := record.Register(); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		dt := anyType(t, 2)
		arr := anyArray(t, dt, 3)
		schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: dt, Nullable: true}}, nil)
		var buf bytes.Buffer
		w := ipc.NewWriter(&buf, ipc.WithSchema(schema))
		if err := w.Write(array.NewRecordBatch(schema, []arrow.Array{arr}, int64(arr.Len()))); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := ipc.NewReader(&buf)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Next() {
			t.Fatalf("no batch: %v", r.Err())
		}
		got := r.RecordBatch().Column(0)
		if !arrow.TypeEqual(dt, got.DataType()) {
			t.Fatalf("type %s became %s", dt, got.DataType())
		}
		want, err := record.TypeOf(dt)
		if err != nil {
			t.Fatal(err)
		}
		back, err := record.TypeOf(got.DataType())
		if err != nil || back.String() != want.String() || record.FormatType(got.DataType()) != record.FormatType(dt) {
			t.Fatalf("type %v became %v, %v", want, back, err)
		}
		same(t, arr, got)
	})
}
