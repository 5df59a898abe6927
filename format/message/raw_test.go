package message_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// case C098: a tombstone, an empty value and an empty key are three things, and come out as they went in.
func TestRawKeepsMessages(t *testing.T) {
	topic := message.Topic{Name: "clicks"}
	f := message.Raw()
	s, err := f.Learn(t.Context(), topic, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(topic, s)
	if err != nil {
		t.Fatal(err)
	}
	at := time.UnixMilli(1_700_000_000_123)
	in := []message.Message{
		{Topic: "clicks", Partition: 2, Offset: 1 << 40, Time: at, Key: []byte{0xff, 0}, Value: []byte("v"), Headers: []message.Header{{"a", []byte{1}}, {"a", nil}, {"", []byte{}}}},
		{Topic: "clicks", Offset: 1, Key: []byte{}},
		{Topic: "clicks", Offset: 2, Value: []byte{}},
		{Topic: "clicks", Offset: 3, Headers: []message.Header{{Name: "\xff"}}},
		{Topic: "clicks", Offset: 4},
	}
	for i := range in {
		if ok, err := d.Append(t.Context(), &in[i]); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	b, err := d.Batch()
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Rejects) != 1 || b.Rejects[0].Offset != 3 || b.NumRows() != 4 {
		t.Fatalf("%d rows, %v", b.NumRows(), b.Rejects)
	}
	e, err := f.NewEncoder(topic)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	if _, err := e.Encode(t.Context(), b, func(row int, m *message.Message) error {
		out = append(out, fmt.Sprintf("%d %q(%t) %q(%t) %q %d", row, m.Key, m.Key == nil, m.Value, m.Value == nil, m.Headers, m.Time.UnixMilli()))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	none := time.Time{}.UnixMilli()
	want := []string{
		`0 "\xff\x00"(false) "v"(false) [{"a" "\x01"} {"a" ""} {"" ""}] 1700000000123`, fmt.Sprintf(`1 ""(false) ""(true) [] %d`, none), fmt.Sprintf(`2 ""(true) ""(false) [] %d`, none),
		fmt.Sprintf(`3 ""(true) ""(true) [] %d`, none),
	}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Error(diff)
	}
	if b, err := d.Batch(); b != nil || err != nil {
		t.Error("an empty batch", err)
	}
	b.Ops = []record.Op{record.Delete, 0, 0, 0}
	refused, err := e.Encode(t.Context(), b, func(int, *message.Message) error { return nil })
	if err != nil || len(refused) != 1 || refused[0].Index != 0 {
		t.Error(refused, err)
	}
}
