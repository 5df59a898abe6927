package message

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// place says where a message stands.
func place(m *Message) string {
	return "topic " + m.Topic + ", partition " + strconv.Itoa(int(m.Partition)) + ", offset " + strconv.FormatInt(m.Offset, 10) + ": "
}

// keyText shows a key as JSON: as it stands where it is a document, else its text; nil: there is none, or it is no text.
func keyText(key []byte) json.RawMessage {
	switch {
	case key == nil || !utf8.Valid(key):
		return nil
	case record.CheckJSON(key) == nil:
		return append(json.RawMessage(nil), key...)
	default:
		return record.AppendJSONString(nil, string(key))
	}
}

// Columns of the raw format, in order.
const (
	rawPartition = iota
	rawOffset
	rawTime
	rawKey
	rawValue
	rawHeaders
)

// Raw is the format that leaves messages as they are: partition, offset, timestamp, key, value, headers. Partition and offset are the
// key of the dataset. To write, a batch needs a column value (binary or text); key, timestamp and headers are taken where it has them.
func Raw() Format { return raw{} }

type raw struct{}

// rawSchema is the schema of every topic that is read as it is.
func rawSchema(dataset string) *record.Schema {
	return &record.Schema{Dataset: dataset, Version: 1, Key: []int{rawPartition, rawOffset}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "partition", Type: arrow.PrimitiveTypes.Int32},
		{Name: "offset", Type: arrow.PrimitiveTypes.Int64},
		{Name: "timestamp", Type: timeType(), Nullable: true},
		{Name: "key", Type: arrow.BinaryTypes.Binary, Nullable: true},
		{Name: "value", Type: arrow.BinaryTypes.Binary, Nullable: true},
		{Name: "headers", Type: headersType(), Nullable: true},
	}, nil)}
}

func (raw) Input(Topic) connector.Input { return connector.AppendOnly }

func (raw) Learn(_ context.Context, t Topic, _ []Message) (*record.Schema, error) {
	if len(t.Types) > 0 {
		return nil, fmt.Errorf("topic %s: the raw format has columns of fixed types; to declare types say format=json", t.Name)
	}
	return rawSchema(t.dataset()), nil
}

func (raw) NewDecoder(t Topic, _ *record.Schema) (Decoder, error) {
	d := &rawDecoder{schema: rawSchema(t.dataset()), skip: t.SkipTombstones}
	d.rows = array.NewRecordBuilder(memory.DefaultAllocator, d.schema.Columns)
	d.bind()
	return d, nil
}

// maxData is how many bytes one column of a batch may hold: its offsets are 32 bits wide.
const maxData = math.MaxInt32 / 2

type rawDecoder struct {
	schema     *record.Schema
	skip       bool
	rows       *array.RecordBuilder
	partition  *array.Int32Builder
	offset     *array.Int64Builder
	time       *array.TimestampBuilder
	key, value *array.BinaryBuilder
	headers    *array.ListBuilder
	n          int
	size       int64
	rejects    []record.Reject
}

func (d *rawDecoder) bind() {
	d.partition, d.offset = as[*array.Int32Builder](d.rows.Field(rawPartition)), as[*array.Int64Builder](d.rows.Field(rawOffset))
	d.time = as[*array.TimestampBuilder](d.rows.Field(rawTime))
	d.key, d.value = as[*array.BinaryBuilder](d.rows.Field(rawKey)), as[*array.BinaryBuilder](d.rows.Field(rawValue))
	d.headers = as[*array.ListBuilder](d.rows.Field(rawHeaders))
}

func (d *rawDecoder) Schema() *record.Schema { return d.schema }
func (d *rawDecoder) Rows() int              { return d.n + len(d.rejects) }
func (d *rawDecoder) Kept() int              { return d.n }

func (d *rawDecoder) Append(_ context.Context, m *Message) (bool, error) {
	if m.Value == nil && d.skip {
		return true, nil
	}
	if why := badHeader(m); why != "" {
		d.rejects = append(d.rejects, Reject(d.schema.Dataset, m, "bad_encoding", why))
		return true, nil
	}
	size := int64(len(m.Key)+len(m.Value)) + headersSize(m)
	if d.n > 0 && d.size+size > maxData {
		return false, nil
	}
	d.size += size
	d.n++
	d.partition.Append(m.Partition)
	d.offset.Append(m.Offset)
	appendTime(d.time, m)
	appendBytes(d.key, m.Key)
	appendBytes(d.value, m.Value)
	appendHeaders(d.headers, m)
	return true, nil
}

func (d *rawDecoder) Batch() (*record.Batch, error) {
	if d.Rows() == 0 {
		return nil, nil //nolint:nilnil // nothing to say, see Decoder
	}
	b := &record.Batch{Schema: d.schema, Rows: d.rows.NewRecordBatch(), Rejects: d.rejects, Size: d.size}
	d.n, d.size, d.rejects = 0, 0, nil
	return b, nil
}

func (raw) Map(_ Topic, s *record.Schema) []connector.Mapping {
	out := make([]connector.Mapping, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		m := connector.Mapping{Column: f.Name, Native: f.Name}
		if why := rawColumn(f); why != "" {
			m.Native, m.Why = "", why
		}
		out[i] = m
	}
	return out
}

// rawColumn says why a column has no place in a message as it is; empty: it has one.
func rawColumn(f arrow.Field) string {
	t, err := record.TypeOf(f.Type)
	if err != nil {
		return err.Error()
	}
	bytes := t.Kind == record.Binary || t.Kind == record.String || t.Kind == record.JSON
	switch f.Name {
	case "key", "value":
		if !bytes {
			return "the raw format writes bytes or text, not " + t.String()
		}
	case "timestamp":
		if t.Kind != record.Timestamp {
			return "the time of a message is a timestamp, not " + t.String()
		}
	case "headers":
		if !arrow.TypeEqual(f.Type, headersType()) {
			return "headers are a list of name and value, as the raw format reads them"
		}
	case "partition", "offset":
		return "the topic gives messages their place"
	default:
		return "a message has no such part; the raw format writes key, value, timestamp and headers"
	}
	return ""
}

func (raw) NewEncoder(Topic) (Encoder, error) { return &rawEncoder{}, nil }

type rawEncoder struct {
	schema                *record.Schema
	time, key, val, heads int
	headers               []Header
}

func (e *rawEncoder) Bind(_ context.Context, s *record.Schema) error {
	if s == e.schema {
		return nil
	}
	at := func(name string) int {
		i := s.Column(name)
		if i >= 0 && rawColumn(s.Columns.Field(i)) != "" {
			return -1
		}
		return i
	}
	e.time, e.key, e.val, e.heads = at("timestamp"), at("key"), at("value"), at("headers")
	if e.val < 0 {
		return fmt.Errorf("dataset %s has no column value of bytes or text to write as it is (its columns are %q): "+
			"say format=json to write rows as JSON", s.Dataset, s.Names())
	}
	e.schema = s
	return nil
}

func (e *rawEncoder) Encode(ctx context.Context, b *record.Batch, emit func(int, *Message) error) ([]connector.RowError, error) {
	if err := e.Bind(ctx, b.Schema); err != nil {
		return nil, err
	}
	if b.Truncate {
		return nil, fmt.Errorf("dataset %s was emptied: the raw format can't tell; say format=debezium", b.Schema.Dataset)
	}
	column := func(i int) arrow.Array {
		if i < 0 || b.Rows == nil {
			return nil
		}
		return b.Rows.Column(i)
	}
	key, val, at, heads := column(e.key), column(e.val), column(e.time), column(e.heads)
	var refused []connector.RowError
	for i := range b.NumRows() {
		if op := b.Op(i); op != record.Insert {
			j := b.Reject(i)
			j.Class = "not_representable"
			j.Message = "the raw format can't tell of the operation " + op.String() + "; say format=json or format=debezium"
			refused = append(refused, connector.RowError{Index: i, Reject: j})
			continue
		}
		m := Message{Key: Bytes(key, i), Value: Bytes(val, i), Time: timeAt(at, i), Headers: e.headersAt(heads, i)}
		if err := emit(i, &m); err != nil {
			return nil, err
		}
	}
	return refused, nil
}

// Bytes returns the bytes of value i of binary or text, nil where it is null.
func Bytes(a arrow.Array, i int) []byte {
	if ext, ok := a.(array.ExtensionArray); ok {
		a = ext.Storage()
	}
	if a == nil || a.IsNull(i) {
		return nil
	}
	var v []byte
	switch a := a.(type) {
	case *array.Binary:
		v = a.Value(i)
	case *array.FixedSizeBinary:
		v = a.Value(i)
	case *array.String:
		from := a.ValueOffset(i)
		to := from + len(a.Value(i))
		v = a.ValueBytes()[from-a.ValueOffset(0) : to-a.ValueOffset(0)]
	}
	if v == nil {
		v = []byte{}
	}
	return v
}

func timeAt(a arrow.Array, i int) time.Time {
	if ext, ok := a.(array.ExtensionArray); ok {
		a = ext.Storage()
	}
	ts, ok := a.(*array.Timestamp)
	if !ok || ts.IsNull(i) {
		return time.Time{}
	}
	return ts.Value(i).ToTime(ts.DataType().(*arrow.TimestampType).Unit) //nolint:forcetypeassert // the type of the array
}

func (e *rawEncoder) headersAt(a arrow.Array, i int) []Header {
	l, ok := a.(*array.List)
	if !ok || l.IsNull(i) {
		return nil
	}
	e.headers = slices.Grow(e.headers[:0], 1)
	from, to := l.ValueOffsets(i)
	s := l.ListValues().(*array.Struct) //nolint:forcetypeassert // by rawColumn
	name := s.Field(0).(*array.String)  //nolint:forcetypeassert // likewise
	for j := int(from); j < int(to); j++ {
		e.headers = append(e.headers, Header{Name: name.Value(j), Value: Bytes(s.Field(1), j)})
	}
	return e.headers
}
