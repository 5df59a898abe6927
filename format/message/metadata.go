package message

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// part is something of a message that can be a column beside those of its row.
type part struct {
	name string
	dt   arrow.DataType
	add  func(b array.Builder, m *Message)
}

func newPart[B array.Builder](name string, dt arrow.DataType, add func(b B, m *Message)) part {
	return part{name, dt, func(b array.Builder, m *Message) { add(as[B](b), m) }}
}

const headersPart = "headers"

func parts() []part {
	return []part{
		newPart("topic", arrow.BinaryTypes.String, func(b *array.StringBuilder, m *Message) { b.Append(m.Topic) }),
		newPart("partition", arrow.PrimitiveTypes.Int32, func(b *array.Int32Builder, m *Message) { b.Append(m.Partition) }),
		newPart("offset", arrow.PrimitiveTypes.Int64, func(b *array.Int64Builder, m *Message) { b.Append(m.Offset) }),
		newPart("timestamp", timeType(), appendTime),
		newPart("timestamp_type", arrow.BinaryTypes.String, appendTimeType),
		newPart("key", arrow.BinaryTypes.Binary, func(b *array.BinaryBuilder, m *Message) { appendBytes(b, m.Key) }),
		newPart(headersPart, headersType(), appendHeaders),
	}
}

func timeType() arrow.DataType { return &arrow.TimestampType{Unit: arrow.Millisecond, TimeZone: "UTC"} }

func headersType() arrow.DataType {
	return arrow.ListOf(arrow.StructOf(
		arrow.Field{Name: "name", Type: arrow.BinaryTypes.String},
		arrow.Field{Name: "value", Type: arrow.BinaryTypes.Binary, Nullable: true},
	))
}

// as returns a builder as what it is by the type of its column.
func as[B array.Builder](b array.Builder) B {
	return b.(B) //nolint:forcetypeassert // by the schema
}

func appendTime(b *array.TimestampBuilder, m *Message) {
	if m.Time.IsZero() {
		b.AppendNull()
		return
	}
	b.Append(arrow.Timestamp(m.Time.UnixMilli()))
}

func appendTimeType(b *array.StringBuilder, m *Message) {
	switch {
	case m.Time.IsZero():
		b.AppendNull()
	case m.Logged:
		b.Append("LogAppendTime")
	default:
		b.Append("CreateTime")
	}
}

func appendBytes(b *array.BinaryBuilder, v []byte) {
	if v == nil {
		b.AppendNull()
		return
	}
	b.Append(v)
}

func appendHeaders(b *array.ListBuilder, m *Message) {
	if m.Headers == nil {
		b.AppendNull()
		return
	}
	b.Append(true)
	header := as[*array.StructBuilder](b.ValueBuilder())
	name, value := as[*array.StringBuilder](header.FieldBuilder(0)), as[*array.BinaryBuilder](header.FieldBuilder(1))
	for _, h := range m.Headers {
		header.Append(true)
		name.Append(h.Name)
		appendBytes(value, h.Value)
	}
}

// headersSize is how many bytes the headers of a message have.
func headersSize(m *Message) (n int64) {
	for _, h := range m.Headers {
		n += int64(len(h.Name) + len(h.Value))
	}
	return n
}

// badHeader says what keeps the headers of a message from being a column; empty: nothing.
func badHeader(m *Message) string {
	for _, h := range m.Headers {
		if !utf8.ValidString(h.Name) {
			return "the name of header " + strconv.Quote(h.Name) + " is not valid UTF-8"
		}
	}
	return ""
}

// MetadataParts are the names of what WithMetadata makes columns of.
func MetadataParts() []string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// WithMetadata returns a format that reads as f does, with columns behind those of f that tell of the message that a row comes from: one
// for each of the names, see MetadataParts, with prefix in front of it. They are never part of a key.
//
// Every row has those of its message, a deletion too: of what a row was before, a message knows nothing, so they are null in the images
// before updates. A topic without columns has none of them until its first row. A column of f with the same name is an error.
func WithMetadata(f Format, prefix string, names []string) (Format, error) {
	m, known := &metadata{Format: f}, parts()
	for i, name := range names {
		at := slices.IndexFunc(known, func(p part) bool { return p.name == name })
		if at < 0 {
			return nil, connector.UnknownName("part of a message", name, MetadataParts())
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%s is named twice", name)
		}
		m.parts = append(m.parts, known[at])
		m.fields = append(m.fields, arrow.Field{Name: prefix + name, Type: known[at].dt, Nullable: true})
	}
	return m, nil
}

type metadata struct {
	Format
	parts  []part
	fields []arrow.Field
}

// extend returns the schema with the columns of metadata.
func (f *metadata) extend(topic string, s *record.Schema) (*record.Schema, error) {
	for i, add := range f.fields {
		if s.Column(add.Name) >= 0 {
			return nil, fmt.Errorf("topic %s: its messages have a column %q, as metadata=%[3]s would add: leave %[3]s out of metadata",
				topic, add.Name, f.parts[i].name)
		}
	}
	meta := s.Columns.Metadata()
	out := *s
	out.Columns = arrow.NewSchema(slices.Concat(s.Columns.Fields(), f.fields), &meta)
	return &out, nil
}

// own returns the schema without the columns of metadata.
func (f *metadata) own(s *record.Schema) *record.Schema {
	n := s.Columns.NumFields() - len(f.fields)
	if n < 0 || !slices.EqualFunc(s.Columns.Fields()[n:], f.fields, func(a, b arrow.Field) bool { return a.Name == b.Name }) {
		return s // it had no columns
	}
	meta := s.Columns.Metadata()
	out := *s
	out.Columns = arrow.NewSchema(s.Columns.Fields()[:n:n], &meta)
	return &out
}

func (f *metadata) Learn(ctx context.Context, t Topic, sample []Message) (*record.Schema, error) {
	s, err := f.Format.Learn(ctx, t, sample)
	if err != nil || s.Columns.NumFields() == 0 {
		return s, err //nolint:wrapcheck // it is the format's
	}
	return f.extend(t.Name, s)
}

func (f *metadata) NewDecoder(t Topic, s *record.Schema) (Decoder, error) {
	inner, err := f.Format.NewDecoder(t, f.own(s))
	if err != nil {
		return nil, err //nolint:wrapcheck // it is the format's
	}
	d := &metadataDecoder{inner: inner, format: f, topic: t}
	for _, p := range f.parts {
		d.builders = append(d.builders, array.NewBuilder(memory.DefaultAllocator, p.dt))
		d.headers = d.headers || p.name == headersPart
	}
	return d, d.follow()
}

// metadataDecoder appends the columns of metadata to the batches of another decoder: a row for each that the other one kept.
type metadataDecoder struct {
	inner    Decoder
	format   *metadata
	topic    Topic
	builders []array.Builder
	headers  bool // there is a column of headers

	of      *record.Schema // inner's, of which schema is made
	schema  *record.Schema
	rows    int
	size    int64 // of headers
	any     bool  // there were rows, in this batch or before
	rejects []record.Reject
}

// follow makes the schema anew where the inner one changed.
func (d *metadataDecoder) follow() error {
	s := d.inner.Schema()
	if s == d.of && (s != d.schema || !d.any) {
		return nil
	}
	next := s
	if s.Columns.NumFields() > 0 || d.any {
		var err error
		if next, err = d.format.extend(d.topic.Name, s); err != nil {
			return err
		}
	}
	d.of, d.schema = s, next
	return nil
}

func (d *metadataDecoder) Schema() *record.Schema { return d.schema }
func (d *metadataDecoder) Rows() int              { return d.inner.Rows() + len(d.rejects) }
func (d *metadataDecoder) Kept() int              { return d.rows }

// maxHeaders is how many bytes of headers a batch may have, which no other limit counts.
const maxHeaders = 16 << 20

func (d *metadataDecoder) Append(ctx context.Context, m *Message) (bool, error) {
	var size int64
	if d.headers {
		if size = headersSize(m); d.rows > 0 && d.size+size > maxHeaders {
			return false, nil
		}
	}
	if d.headers && (m.Value != nil || !d.topic.SkipTombstones) {
		if why := badHeader(m); why != "" {
			d.rejects = append(d.rejects, Reject(d.schema.Dataset, m, "bad_encoding", why))
			return true, nil
		}
	}
	if ok, err := d.inner.Append(ctx, m); !ok || err != nil {
		return ok, err //nolint:wrapcheck // it is the decoder's
	}
	for n := d.inner.Kept(); d.rows < n; d.rows++ {
		for i, p := range d.format.parts {
			p.add(d.builders[i], m)
		}
		d.size += size
		d.any = true
	}
	return true, d.follow()
}

var errRows = errors.New("the decoder kept other rows than it said")

func (d *metadataDecoder) Batch() (*record.Batch, error) {
	b, err := d.inner.Batch()
	if err != nil {
		return nil, err //nolint:wrapcheck // it is the decoder's
	}
	if b == nil {
		if len(d.rejects) == 0 {
			return nil, nil //nolint:nilnil // nothing to say, see Decoder
		}
		b = &record.Batch{}
	}
	n := b.NumRows()
	if n != d.rows || (b.Schema != nil && b.Schema != d.of) {
		return nil, fmt.Errorf("topic %s: %w", d.topic.Name, errRows)
	}
	rejects := d.rejects
	d.rows, d.size, d.rejects = 0, 0, nil
	b.Rejects = append(b.Rejects, rejects...)
	b.Schema = d.schema
	switch {
	case b.Rows == nil:
		b.Rows = array.NewRecordBuilder(memory.DefaultAllocator, d.schema.Columns).NewRecordBatch()
		return b, nil
	case d.schema == d.of: // without columns
		return b, nil
	}
	cols := slices.Clip(b.Rows.Columns())
	for _, builder := range d.builders {
		cols = append(cols, builder.NewArray())
	}
	b.Rows = array.NewRecordBatch(d.schema.Columns, cols, int64(n))
	if b.Old != nil {
		cols := slices.Clip(b.Old.Columns())
		for _, p := range d.format.parts {
			cols = append(cols, array.MakeArrayOfNull(memory.DefaultAllocator, p.dt, n))
		}
		b.Old = array.NewRecordBatch(d.schema.Columns, cols, int64(n))
	}
	return b, nil
}
