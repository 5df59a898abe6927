package formats_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
)

// A topic without messages has no columns, none of metadata either: they come with its first row, and stay. A message that is set aside
// because of its headers makes none.
func TestMetadataOfAnEmptyTopic(t *testing.T) {
	plain, err := formats.New("json", formats.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := message.WithMetadata(plain, "_m_", []string{"offset", "headers"})
	if err != nil {
		t.Fatal(err)
	}
	topic := message.Topic{Name: "t"}
	s, err := f.Learn(t.Context(), topic, nil)
	if err != nil || s.Columns.NumFields() != 0 {
		t.Fatal(s, err)
	}
	d, err := f.NewDecoder(topic, s)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	flush := func() {
		t.Helper()
		b, err := d.Batch()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			got = append(got, "nothing")
			return
		}
		if err := b.Schema.Validate(); err != nil || int(b.Rows.NumCols()) != b.Schema.Columns.NumFields() {
			t.Error(b.Schema.Names(), err)
		}
		for _, r := range b.Rejects {
			got = append(got, r.Class)
		}
		got = append(got, connectortest.Rows(b)...)
	}
	flush()
	for i, m := range []message.Message{
		{Value: []byte(`{}`), Headers: []message.Header{{Name: "\xff"}}},
		{Value: []byte(`{}`)},
		{Value: []byte(`[`)},
		{Value: []byte(`{"a":1}`), Headers: []message.Header{{Name: "h"}}},
	} {
		m.Topic, m.Offset = "t", int64(i)
		if ok, err := d.Append(t.Context(), &m); !ok || err != nil {
			t.Fatal(i, ok, err)
		}
		if d.Rows() != 1 {
			t.Error(i, d.Rows(), d.Kept())
		}
		flush()
	}
	want := []string{"nothing", "bad_encoding", `{"_m_offset":1,"_m_headers":null}`, "bad_syntax", `{"a":1,"_m_offset":3,"_m_headers":[{"name":"h","value":null}]}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Headers are as long as messages like: a batch ends before they get too many.
func TestMetadataEndsBatches(t *testing.T) {
	plain, err := formats.New("json", formats.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := message.WithMetadata(plain, "_m_", []string{"headers"})
	if err != nil {
		t.Fatal(err)
	}
	m := message.Message{Topic: "t", Value: []byte(`{"a":1}`), Headers: []message.Header{{Name: "h", Value: make([]byte, 9<<20)}}}
	s, err := f.Learn(t.Context(), message.Topic{Name: "t"}, []message.Message{m})
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(message.Topic{Name: "t"}, s)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, want := range []bool{true, false} {
			if ok, err := d.Append(t.Context(), &m); ok != want || err != nil {
				t.Fatal(ok, err)
			}
		}
		if b, err := d.Batch(); err != nil || b.NumRows() != 1 || b.Schema != s && !cmp.Equal(b.Schema.Names(), s.Names()) {
			t.Error(b, err)
		}
	}
}
