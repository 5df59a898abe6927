package debezium

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/avro"
	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/record"
)

// NewAvro is the format of envelopes in Avro, with the schemas of a registry.
func NewAvro(r *registry.Client, o Options) *Format {
	return &Format{wire: avro.Wire{Registry: r}, opts: o, registry: r}
}

// avroEncoder writes envelopes in Avro.
type avroEncoder struct {
	topic    string
	registry *registry.Client
	enc      *Encoder // knows where events come from
	noKeys   bool

	schema       *record.Schema
	rows, key    avro.Rows
	valueID      int
	keyID        int
	kept         [][]byte // by column: what stands for a value that was not sent; nil: nothing can
	bound, held  arrow.RecordBatch
	buf          []byte
	db, sch, tbl string
}

// avroSchema is how a column is written in Avro. Where that does not tell the type of the column, the schema names it.
func avroSchema(key []string) func(arrow.Field) *connect.Schema {
	return func(f arrow.Field) *connect.Schema {
		s := exactSchema(f)
		finite, oops := (connect.Reading{Local: true}).TypeOf(s)
		infinite, also := (connect.Reading{Local: true, Infinite: true}).TypeOf(s)
		if oops != nil || also != nil || !arrow.TypeEqual(finite, f.Type) || !arrow.TypeEqual(infinite, f.Type) {
			s.Record = f.Type
		}
		s.Optional = !slices.Contains(key, f.Name)
		return s
	}
}

// Bind implements message.Encoder.
func (e *avroEncoder) Bind(ctx context.Context, s *record.Schema) error {
	if s == e.schema {
		return nil
	}
	all := make([]int, s.Columns.NumFields())
	for i := range all {
		all[i] = i
	}
	schemas := avroSchema(s.KeyNames())
	if err := errors.Join(e.rows.Bind(s, all, false, schemas), e.key.Bind(s, s.Key, true, schemas)); err != nil {
		return fmt.Errorf("dataset %s: %w", s.Dataset, err)
	}
	name := e.enc.prefix(s)
	row := e.rows.Schema()
	row.Name, row.Optional = name+".Value", true
	env := envelopeSchema(row, name, "io.debezium.connector."+e.enc.connector(s)+".Source")
	var err error
	e.valueID, err = e.registry.Register(ctx, e.registry.Subject(e.topic, false, env.Name), registry.Avro, avro.Text(env, env.Name))
	if err == nil && len(s.Key) > 0 && !e.noKeys {
		key := name + ".Key"
		e.keyID, err = e.registry.Register(ctx, e.registry.Subject(e.topic, true, key), registry.Avro, avro.Text(e.key.Schema(), key))
	}
	if err != nil {
		return err
	}
	e.kept = e.kept[:0]
	for _, f := range row.Fields {
		e.kept = append(e.kept, placeholder(f.Schema))
	}
	e.db, e.sch, e.tbl = e.enc.place(s.Dataset)
	e.schema, e.bound, e.held = s, nil, nil
	return nil
}

// placeholder stands for a value that the source did not send; nil: the type has none.
func placeholder(s *connect.Schema) []byte {
	const some = 2 // the second branch of a union
	out := []byte{some}
	if !s.Optional {
		out = nil
	}
	switch {
	case !replaceable(s):
		return nil
	case s.Type == connect.Array:
		out = avro.AppendText(append(out, some, some), unavailable) // one element, which may be null
		return append(out, 0)
	}
	return avro.AppendText(out, unavailable)
}

// Encode implements message.Encoder.
func (e *avroEncoder) Encode(ctx context.Context, b *record.Batch, emit func(int, *message.Message) error) ([]connector.RowError, error) {
	if err := e.Bind(ctx, b.Schema); err != nil {
		return nil, err
	}
	return encodeRows(b, func(*record.Batch) { e.bound = nil }, func(col int) bool { return e.kept[col] != nil }, e.message, emit)
}

// message encodes one event.
func (e *avroEncoder) message(b *record.Batch, ev Event) (m message.Message, err error) {
	if ev.side != arrival { // which stands behind the removal
		e.buf = e.buf[:0]
	}
	from := len(e.buf)
	if len(b.Schema.Key) > 0 && ev.Row >= 0 && !e.noKeys {
		rows := b.Rows
		if ev.side == removal {
			rows = b.Old
		}
		e.key.Of(rows)
		if e.buf, err = e.key.Append(registry.AppendID(e.buf, e.keyID), ev.Row, nil); err != nil {
			return m, err
		}
	}
	n := len(e.buf)
	if e.buf, err = e.envelope(registry.AppendID(e.buf, e.valueID), b, ev); err != nil {
		return m, err
	}
	if n > from {
		m.Key = e.buf[from:n:n]
	}
	m.Value = e.buf[n:len(e.buf):len(e.buf)]
	return m, nil
}

func (e *avroEncoder) envelope(dst []byte, b *record.Batch, ev Event) (_ []byte, err error) {
	const none, some = 0, 2 // branches of unions
	before, extent := ev.Before()
	if extent == changelog.Nothing || ev.side == arrival {
		dst = append(dst, none)
	} else if dst, err = e.image(append(dst, some), before, ev.Row, func(col int) []byte {
		if extent == changelog.Key && !slices.Contains(b.Schema.Key, col) {
			return []byte{none}
		}
		return nil
	}); err != nil {
		return dst, err
	}
	after := ev.After()
	if after == nil || ev.side == removal {
		dst = append(dst, none)
	} else if dst, err = e.image(append(dst, some), after, ev.Row, func(col int) []byte {
		if b.IsUnchanged(col, ev.Row) {
			return e.kept[col]
		}
		return nil
	}); err != nil {
		return dst, err
	}
	dst = e.source(dst, ev)
	dst = avro.AppendText(dst, string(ev.Op()))
	if e.enc.opts.Now == nil {
		return append(dst, none), nil
	}
	return avro.AppendLong(append(dst, some), e.enc.opts.Now().UnixMilli()), nil
}

func (e *avroEncoder) image(dst []byte, rows arrow.RecordBatch, i int, instead func(int) []byte) ([]byte, error) {
	if e.bound != rows {
		e.bound = rows
		e.rows.Of(rows)
	}
	return e.rows.Append(dst, i, instead)
}

// source appends where an event comes from.
func (e *avroEncoder) source(dst []byte, ev Event) []byte {
	const none, some = 0, 2
	var at point
	var when time.Time
	if ev.Txn != nil {
		at, when = pointOf(ev.Txn.Position), ev.Txn.Time
	}
	if when.IsZero() && e.enc.opts.Now != nil {
		when = e.enc.opts.Now()
	}
	millis := int64(0)
	if !when.IsZero() {
		millis = when.UnixMilli()
	}
	dst = avro.AppendText(avro.AppendText(dst, e.enc.opts.Version), e.enc.connector(e.schema))
	dst = avro.AppendLong(avro.AppendText(dst, e.enc.opts.Name), millis)
	snapshot := "false"
	if ev.Op() == byte(changelog.Read) {
		snapshot = "true"
	}
	dst = avro.AppendText(append(dst, some), snapshot)
	dst = avro.AppendText(avro.AppendText(avro.AppendText(dst, e.db), e.sch), e.tbl)
	for _, known := range []struct {
		n  uint64
		ok bool
	}{{at.xid, at.hasXID}, {at.lsn, at.hasLSN}} {
		if !known.ok {
			dst = append(dst, none)
			continue
		}
		dst = avro.AppendLong(append(dst, some), int64(known.n))
	}
	return dst
}
