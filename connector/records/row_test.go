package records_test

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connector/records"
	"github.com/leatdata/leat/record"
)

// script is a source whose polls are what a test says.
type script struct {
	polls []func(*records.Row) (bool, error)
	at    int
	given []int // positions that were asked for
}

func (*script) Seek(context.Context, record.Position) error { return nil }

func (s *script) Poll(_ context.Context, row *records.Row) (bool, error) {
	if s.at == len(s.polls) {
		return false, io.EOF
	}
	s.at++
	return s.polls[s.at-1](row)
}

func (s *script) Checkpoint(context.Context) (record.Position, error) {
	s.given = append(s.given, s.at)
	return logForm.Encode(place{s.at})
}

func (*script) Close(context.Context) error { return nil }

// found is a poll that finds a record.
func found(fill func(*records.Row)) func(*records.Row) (bool, error) {
	return func(r *records.Row) (bool, error) { fill(r); return true, nil }
}

func nothing(*records.Row) (bool, error) { return false, nil }

// play reads all batches of a script.
func play(t *testing.T, want connector.Limit, polls ...func(*records.Row) (bool, error)) ([]*record.Batch, error) {
	t.Helper()
	src := records.FromRecords(&script{polls: polls})
	defer func() { _ = src.Close(t.Context()) }()
	if err := src.Start(t.Context(), connector.SourceStart{}); err != nil {
		t.Fatal(err)
	}
	var out []*record.Batch
	for {
		b, err := src.Read(t.Context(), want)
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		case b != nil:
			out = append(out, b)
		}
	}
}

func schemaOf(fields ...arrow.Field) *record.Schema {
	return &record.Schema{Dataset: "d", Columns: arrow.NewSchema(fields, nil)}
}

func field(name string, dt arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: dt, Nullable: true}
}

// Every setter puts in exactly what it is given, and a value that the column can't hold makes a reject of the record, with no trace of it
// among the rows.
func TestSetters(t *testing.T) {
	type set = func(*records.Row)
	day := time.Date(1969, 7, 20, 0, 0, 0, 0, time.UTC)
	moon := time.Date(1969, 7, 20, 20, 17, 40, 123_456_000, time.FixedZone("east", 3*3600))
	cases := []struct {
		name string
		dt   arrow.DataType
		set  set
		want string // JSON form; empty: a reject
	}{
		{"int8", arrow.PrimitiveTypes.Int8, func(r *records.Row) { r.Int(0, -128) }, "-128"},
		{"int8 above", arrow.PrimitiveTypes.Int8, func(r *records.Row) { r.Int(0, 128) }, ""},
		{"int64", arrow.PrimitiveTypes.Int64, func(r *records.Row) { r.Int(0, math.MinInt64) }, "-9223372036854775808"},
		{"uint16 below", arrow.PrimitiveTypes.Uint16, func(r *records.Row) { r.Int(0, -1) }, ""},
		{"uint32", arrow.PrimitiveTypes.Uint32, func(r *records.Row) { r.Uint(0, math.MaxUint32) }, "4294967295"},
		{"uint64", arrow.PrimitiveTypes.Uint64, func(r *records.Row) { r.Uint(0, math.MaxUint64) }, "18446744073709551615"},
		{"uint64 into int64", arrow.PrimitiveTypes.Int64, func(r *records.Row) { r.Uint(0, 1<<63) }, ""},
		{"float32", arrow.PrimitiveTypes.Float32, func(r *records.Row) { r.Float(0, 0.5) }, "0.5"},
		{"float32 too fine", arrow.PrimitiveTypes.Float32, func(r *records.Row) { r.Float(0, 0.1) }, ""},
		{"float64", arrow.PrimitiveTypes.Float64, func(r *records.Row) { r.Float(0, 0.1) }, "0.1"},
		{"bool", arrow.FixedWidthTypes.Boolean, func(r *records.Row) { r.Bool(0, true) }, "true"},
		{"null", arrow.FixedWidthTypes.Boolean, func(r *records.Row) { r.Null(0) }, "null"},
		{"nothing", arrow.FixedWidthTypes.Boolean, func(*records.Row) {}, "null"},
		{"text", arrow.BinaryTypes.String, func(r *records.Row) { r.Text(0, "é") }, `"é"`},
		{"text, not UTF-8", arrow.BinaryTypes.String, func(r *records.Row) { r.Text(0, "\xff") }, ""},
		{"numeric", record.NumericType(), func(r *records.Row) { r.Text(0, "12.340") }, "12.340"},
		{"decimal", &arrow.Decimal128Type{Precision: 5, Scale: 2}, func(r *records.Row) { r.Text(0, "123.45") }, "123.45"},
		{"decimal, too fine", &arrow.Decimal128Type{Precision: 5, Scale: 2}, func(r *records.Row) { r.Text(0, "1.234") }, ""},
		{"json", record.JSONType(), func(r *records.Row) { r.JSON(0, []byte(`{"a":1.0}`)) }, `{"a":1.0}`},
		{"bytes", arrow.BinaryTypes.Binary, func(r *records.Row) { r.Bytes(0, []byte{0, 255}) }, `"AP8="`},
		{"bytes of a width", &arrow.FixedSizeBinaryType{ByteWidth: 2}, func(r *records.Row) { r.Bytes(0, []byte{1}) }, ""},
		{"instant", record.InstantType(), func(r *records.Row) { r.Time(0, moon) }, `"1969-07-20T17:17:40.123456Z"`},
		{"wall clock", &arrow.TimestampType{Unit: arrow.Millisecond}, func(r *records.Row) { r.Time(0, moon.Truncate(time.Millisecond)) }, `"1969-07-20T20:17:40.123"`},
		{"clock too fine", &arrow.TimestampType{Unit: arrow.Second}, func(r *records.Row) { r.Time(0, moon) }, ""},
		{"clock too far", &arrow.TimestampType{Unit: arrow.Nanosecond}, func(r *records.Row) { r.Time(0, day.AddDate(400, 0, 0)) }, ""},
		{"date", arrow.FixedWidthTypes.Date32, func(r *records.Row) { r.Time(0, day) }, `"1969-07-20"`},
		{"date with a clock", arrow.FixedWidthTypes.Date32, func(r *records.Row) { r.Time(0, moon) }, ""},
		{
			"built", arrow.ListOf(arrow.PrimitiveTypes.Int64), func(r *records.Row) {
				l := r.Builder(0).(*array.ListBuilder) //nolint:forcetypeassert // by construction
				l.Append(true)
				l.ValueBuilder().(*array.Int64Builder).Append(7) //nolint:forcetypeassert // by construction
			}, "[7]",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := schemaOf(field("c", c.dt))
			batches, err := play(t, connector.Limit{Rows: 10}, found(func(r *records.Row) {
				r.Begin(s, record.Insert)
				r.Raw([]byte("as it was"), 3, 40)
				c.set(r)
			}))
			if err != nil || len(batches) != 1 {
				t.Fatalf("%d batches, %v", len(batches), err)
			}
			b := batches[0]
			if c.want != "" {
				if got := string(record.AppendJSON(nil, b.Rows.Column(0), 0)); got != c.want || len(b.Rejects) > 0 {
					t.Errorf("got %s, want %s; rejects %v", got, c.want, b.Rejects)
				}
				return
			}
			if b.NumRows() != 0 || len(b.Rejects) != 1 {
				t.Fatalf("%d rows, rejects %v", b.NumRows(), b.Rejects)
			}
			r := b.Rejects[0]
			if r.Dataset != "d" || r.Column != "c" || r.Class != "bad_value" || r.Message == "" || r.Line != 3 || r.Offset != 40 ||
				string(r.Raw) != "as it was" {
				t.Errorf("the reject says %+v", r)
			}
		})
	}
}

// Changes: operations, images before, and values that were not sent, also where the first of them comes late and where a record among
// them is rejected.
func TestChanges(t *testing.T) {
	s := connectortest.Numbered("d", 0, 0).Schema
	batches, err := play(t, connector.Limit{Rows: 10},
		found(func(r *records.Row) { r.Begin(s, record.Insert); r.Int(0, 1); r.Text(1, "a") }),
		found(func(r *records.Row) { r.Begin(s, record.Insert); r.Int(0, 2); r.Reject("bad_syntax", "no") }),
		found(func(r *records.Row) {
			r.Begin(s, record.Update)
			r.Int(0, 3)
			r.Unchanged(1)
			r.Old().Int(0, 1)
		}),
		found(func(r *records.Row) { r.Begin(s, record.Delete); r.Int(0, 3) }),
	)
	if err != nil || len(batches) != 1 {
		t.Fatalf("%d batches, %v", len(batches), err)
	}
	b := batches[0]
	want := []string{`{"id":1,"v":"a"}`, `update {"id":3,"v":null}`, `delete {"id":3,"v":null}`}
	if diff := cmp.Diff(want, connectortest.Rows(b)); diff != "" {
		t.Error(diff)
	}
	if b.IsUnchanged(1, 0) || !b.IsUnchanged(1, 1) || b.IsUnchanged(1, 2) || !b.KeyMoved(1) || b.KeyMoved(2) || b.Changes != 3 {
		t.Errorf("unchanged %v, old %v, %d changes", b.Unchanged, b.Old, b.Changes)
	}
	if len(b.Rejects) != 1 || b.Rejects[0].Class != "bad_syntax" || b.Rejects[0].Message != "no" {
		t.Errorf("rejects %v", b.Rejects)
	}
}

// A position comes with the end of a unit only: units that fit are kept whole, one that is larger than a batch has its position at its
// end, and no position is asked for in between. Datasets that come in turns are sorted out, with one position behind all; a schema that
// changes begins a batch of its own.
//
// clauses S7, S8.
func TestUnits(t *testing.T) {
	a, b, wide := logSchema("a"), logSchema("b"), logSchema("a")
	wide.Version = 2
	next := int64(0)
	one := func(s *record.Schema, more bool) func(*records.Row) (bool, error) {
		return found(func(r *records.Row) {
			next++
			r.Begin(s, record.Insert)
			r.Int(0, next)
			if more {
				r.More()
			}
		})
	}
	polls := []func(*records.Row) (bool, error){
		one(a, true), one(a, true), one(a, false), // 1–3
		one(a, true), one(b, true), one(a, false), // 4–6, sorted by dataset
		nothing,                                                               // passes something
		one(b, true), one(b, true), one(b, true), one(b, true), one(b, false), // 8–12: more than a batch
		one(a, false), one(wide, false), one(a, false),
	}
	src := &script{polls: polls}
	s := records.FromRecords(src)
	if err := s.Start(t.Context(), connector.SourceStart{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		batch, err := s.Read(t.Context(), connector.Limit{Rows: 4})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if batch == nil {
			got = append(got, "nothing")
			continue
		}
		line := "- "
		if batch.Schema != nil {
			line = batch.Schema.Dataset
			if batch.Schema == wide {
				line += "'"
			}
			line += " " + strings.Join(connectortest.Rows(batch), "")
		}
		if !batch.Position.Zero() {
			line += " @" + batch.Position.String()
		}
		got = append(got, strings.NewReplacer(`{"id":`, "", `,"v":null}`, " ", `{"log-in-memory":{"entry":`, "", "}}", "").Replace(line))
	}
	want := []string{"a 1 2 3  @3", "a 4 6 ", "b 5  @6", "-  @7", "b 7 8 9 10 ", "b 11  @12", "a 12  @13", "a' 13  @14", "a 14  @15"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, at := range src.given {
		for _, inside := range []int{1, 2, 4, 5, 8, 9, 10, 11} {
			if at == inside {
				t.Errorf("a position was asked for behind record %d, inside of a unit", at)
			}
		}
	}
}

// Mistakes of the program end the run and say what is wrong; what was polled before is not lost.
func TestMistakes(t *testing.T) {
	s := connectortest.Numbered("d", 0, 0).Schema
	for want, poll := range map[string]func(*records.Row) (bool, error){
		"set twice":         found(func(r *records.Row) { r.Begin(s, record.Insert); r.Int(0, 1); r.Int(0, 2) }),
		"column 9":          found(func(r *records.Row) { r.Begin(s, record.Insert); r.Null(9) }),
		"not begun it":      found(func(*records.Row) {}),
		"begun twice":       found(func(r *records.Row) { r.Begin(s, record.Insert); r.Begin(s, record.Insert) }),
		"before the record": found(func(r *records.Row) { r.Int(0, 1) }),
		"Bool does not set": found(func(r *records.Row) { r.Begin(s, record.Insert); r.Bool(0, true) }),
		"has begun a":       func(r *records.Row) (bool, error) { r.Begin(s, record.Insert); return false, nil },
		"inside of a unit":  found(func(r *records.Row) { r.Begin(s, record.Insert); r.Int(0, 1); r.More() }),
		"its own error":     func(*records.Row) (bool, error) { return false, errors.New("its own error") },
	} {
		t.Run(want, func(t *testing.T) {
			_, err := play(t, connector.Limit{Rows: 10}, poll)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A bounded source of records is asked for positions by each batch, not by each row, and nothing is allocated for a row.
func BenchmarkRead(b *testing.B) {
	const rows = 8192
	s := connectortest.Numbered("d", 0, 0).Schema
	src := records.FromRecords(&endless{schema: s})
	if err := src.Start(b.Context(), connector.SourceStart{}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		batch, err := src.Read(b.Context(), connector.Limit{Rows: rows})
		if err != nil {
			b.Fatal(err)
		}
		n += batch.NumRows()
	}
	b.ReportMetric(float64(n)/float64(b.N), "rows/op")
}

// endless has a record at every poll.
type endless struct {
	schema *record.Schema
	at     int64
}

func (*endless) Seek(context.Context, record.Position) error { return nil }

func (e *endless) Poll(_ context.Context, row *records.Row) (bool, error) {
	e.at++
	row.Begin(e.schema, record.Insert)
	row.Int(0, e.at)
	row.Text(1, "some text of a row")
	return true, nil
}

func (e *endless) Checkpoint(context.Context) (record.Position, error) {
	return logForm.Encode(place{int(e.at)})
}

func (*endless) Close(context.Context) error { return nil }

// counting takes records and keeps nothing.
type counting struct{ sum int64 }

func (*counting) Start(context.Context, connector.SinkStart) error { return nil }

func (c *counting) Put(_ context.Context, r records.Record) error {
	c.sum += r.Int(0)
	return nil
}

func (*counting) Flush(context.Context) error { return nil }

func (*counting) Close(context.Context) error { return nil }

func BenchmarkWrite(b *testing.B) {
	const rows = 8192
	batch := connectortest.Numbered("d", 0, rows)
	snk := records.ToRecords(&counting{})
	if err := snk.Start(b.Context(), connector.SinkStart{}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := snk.Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(rows, "rows/op")
}
