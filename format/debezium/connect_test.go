package debezium_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// encoded are the messages of batches, a line for each: key, tab, value.
func encoded(t *testing.T, f *debezium.Format, batches ...*record.Batch) (lines string, refused []connector.RowError, all []message.Message) {
	t.Helper()
	e, err := f.NewEncoder(message.Topic{Name: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, b := range batches {
		rows, err := e.Encode(t.Context(), b, func(_ int, m *message.Message) error {
			out.WriteString(string(m.Key) + "\t" + string(m.Value) + "\n")
			c := message.Message{Topic: "t", Offset: int64(len(all)), Key: append([]byte(nil), m.Key...)}
			if m.Value != nil {
				c.Value = append([]byte{}, m.Value...)
			}
			all = append(all, c)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		refused = append(refused, rows...)
	}
	return out.String(), refused, all
}

// Messages with schemas, as Connect's JSON converter has them: rows that were read, changes, a key that moves, values that were not sent,
// a deletion with its tombstone, and a dataset that is emptied.
func TestConnect(t *testing.T) {
	s := customers()
	read := connectortest.BatchOf(s, []string{"1", `"Anne"`, `"/w=="`, `["a",null]`})
	read.Chunk = &record.Chunk{Dataset: s.Dataset, Snapshot: record.Position{Shape: 2, Data: json.RawMessage(`{"lsn":"0/16E9210"}`)}}
	b := connectortest.Changes(s,
		connectortest.Change{Op: record.Insert, Row: []string{"2", `"Bob"`, "null", "[]"}},
		connectortest.Change{Op: record.Update, Row: []string{"1", connectortest.Unsent, connectortest.Unsent, connectortest.Unsent}},
		connectortest.Change{Op: record.Update, Row: []string{"3", `"Bob"`, "null", "[]"}, Old: []string{"2", "null", "null", "null"}},
		connectortest.Change{Op: record.Delete, Row: []string{"3", "null", "null", "null"}})
	truncated := &record.Batch{Schema: s, Truncate: true}
	lines, refused, _ := encoded(t, debezium.NewConnect(debezium.Options{Name: "shop", Database: "postgres", Now: now}), read, b, truncated)
	if len(refused) > 0 {
		t.Error(refused)
	}
	golden(t, "connect.txt", lines)
}

// case C026: every type, written with schemas and read back by them, has the same values; what a schema can't tell is another type of them.
func TestConnectRoundTrip(t *testing.T) {
	cases := connectortest.Cases()
	whole := connectortest.Batch("d", cases...)
	f := debezium.NewConnect(debezium.Options{Connector: "postgresql", Now: now}) // of which infinite times are known
	limits := map[string]connector.Limits{}
	for _, m := range f.Map(message.Topic{}, whole.Schema) {
		limits[m.Column] = m.Limits
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if c.Name == "instant_ns" {
				t.Skip("instants are read in microseconds, and finer ones are bad rows")
			}
			c.Values = connectortest.Fitting(c, limits[c.Name])
			b := connectortest.Batch("d", c)
			_, refused, messages := encoded(t, f, b)
			if len(refused) > 0 {
				t.Fatal(refused)
			}
			learned, err := f.Learn(t.Context(), message.Topic{Name: "t", Dataset: "d"}, messages)
			if err != nil {
				t.Fatal(err)
			}
			d, err := f.NewDecoder(message.Topic{Name: "t", Dataset: "d"}, learned)
			if err != nil {
				t.Fatal(err)
			}
			for i := range messages {
				if ok, err := d.Append(t.Context(), &messages[i]); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			got, err := d.Batch()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range got.Rejects {
				t.Error(r.Error())
			}
			got.Ops = nil                          // upserts, as rows that were read are
			digits := strings.NewReplacer(`"`, "") // numerics without bounds are text
			if diff := cmp.Diff(digits.Replace(fmt.Sprint(connectortest.Rows(b))), digits.Replace(fmt.Sprint(connectortest.Rows(got)))); diff != "" {
				t.Errorf("read as %s:\n%s", record.FormatType(got.Schema.Columns.Field(got.Schema.Column(c.Name)).Type), diff)
			}
		})
	}
}

// A value that was not sent, of a type that has nothing to stand for it, sets the row aside: no message of it is written, also where its
// key moved.
func TestConnectUnsent(t *testing.T) {
	s := &record.Schema{Dataset: "orders", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		column("id", "integer", arrow.PrimitiveTypes.Int32), column("total", "numeric(10,2)", &arrow.Decimal128Type{Precision: 10, Scale: 2}),
		column("note", "text", arrow.BinaryTypes.String),
	}, nil)}
	update := func(old []string, docs ...string) connectortest.Change {
		return connectortest.Change{Op: record.Update, Row: docs, Old: old}
	}
	moved := []string{"9", "null", "null"}
	b := connectortest.Changes(s, update(nil, "1", connectortest.Unsent, `"a"`), update(moved, "2", connectortest.Unsent, `"b"`),
		update(moved, "3", "1.50", connectortest.Unsent))
	lines, refused, messages := encoded(t, debezium.NewConnect(debezium.Options{Now: now}), b)
	if len(refused) != 2 || refused[0].Index != 0 || refused[1].Index != 1 || refused[1].Reject.Column != "total" {
		t.Errorf("refused are %+v: want rows 0 and 1, for their total", refused)
	}
	if len(messages) != 3 || strings.Count(lines, `__debezium_unavailable_value`) != 1 || !strings.Contains(lines, `"total":"AJY="`) {
		t.Errorf("the messages are\n%s\nwant a deletion, a tombstone, and the row under its new key", lines)
	}
}
