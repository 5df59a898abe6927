package debezium

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/avro"
	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/format/internal/plain"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/record"
)

// Format reads and writes messages that are Debezium's envelopes. It implements message.Format.
type Format struct {
	wire     plain.Wire
	opts     Options
	registry *registry.Client // for envelopes that are written in Avro; nil: in JSON
	schemas  bool             // messages in JSON are written with schemas
	readOnly bool
}

var _ message.Format = (*Format)(nil)

// NewFormat is the format of envelopes in JSON, which are read with schemas and without, and written without.
func NewFormat(o Options) *Format { return &Format{wire: plain.JSON{}, opts: o} }

// NewConnect is the format of envelopes in JSON as Kafka Connect's JSON converter has them by default (schemas.enable=true): each message
// carries its schema.
func NewConnect(o Options) *Format { return &Format{wire: plain.JSON{}, opts: o, schemas: true} }

// Over is the format of envelopes in another wire format, to read.
func Over(w plain.Wire, o Options) *Format { return &Format{wire: w, opts: o, readOnly: true} }

// Input implements message.Format.
func (*Format) Input(message.Topic) connector.Input { return connector.Changelog }

// Map implements message.Format.
func (f *Format) Map(_ message.Topic, s *record.Schema) []connector.Mapping {
	out := Mapping(s)
	for i, c := range s.Columns.Fields() {
		t, err := record.TypeOf(c.Type)
		switch {
		case err != nil:
		case f.registry != nil:
			out[i].Limits.Rank = avro.Limits(t).Rank // lists with schemas have one depth, those without any
		case f.schemas:
			out[i].Limits.Rank = avro.Limits(t).Rank
			withSchema(&out[i], t)
		}
	}
	return out
}

// NewDecoder implements message.Format.
func (f *Format) NewDecoder(t message.Topic, s *record.Schema) (message.Decoder, error) {
	return newDecoder(f.wire, t, s)
}

// Learn implements message.Format.
func (f *Format) Learn(ctx context.Context, t message.Topic, sample []message.Message) (*record.Schema, error) {
	rows := plain.NewShape("value")
	rows.Reading.Local = true
	known, err := f.wire.Known(ctx, t.Name, false)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", t.Name, err)
	}
	if known != nil {
		if err := addRow(rows, known); err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.Name, err)
		}
	}
	u := f.wire.Unpacker(t.Name, false)
	d := decoder{table: &plain.Table{}}
	for i := range sample {
		if sample[i].Value == nil {
			continue
		}
		if err := d.learn(ctx, u, rows, &sample[i]); err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.Name, err)
		}
	}
	values, err := rows.Fields(t.Types)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", t.Name, err)
	}
	return f.combine(ctx, t, sample, values)
}

// combine makes the schema: columns of the key stand where the row has them.
func (f *Format) combine(ctx context.Context, t message.Topic, sample []message.Message, values []arrow.Field) (*record.Schema, error) {
	t.Keyed = slices.ContainsFunc(sample, func(m message.Message) bool { return m.Key != nil })
	keys, err := plain.LearnKey(ctx, f.wire, t, sample, func(string) bool { return false })
	if err != nil {
		return nil, err
	}
	return plain.Combine(t, keys, values)
}

// addRow adds the schema of the rows of an envelope.
func addRow(rows *plain.Shape, s *connect.Schema) error {
	l := layoutOf(s)
	if l == nil {
		return nil
	}
	if isPostgres(s) {
		rows.Reading.Infinite = true
	}
	return rows.Add(s.Fields[max(l.before, l.after)].Schema, connect.Cell{})
}

// learn looks at one message; what is no envelope is passed over.
func (d *decoder) learn(ctx context.Context, u plain.Unpacker, rows *plain.Shape, m *message.Message) error {
	t := &d.table.Tape
	t.Reset()
	s, c, err := u.Unpack(ctx, m.Value, m.Headers, t)
	switch {
	case errors.Is(err, plain.ErrRegistry):
		return err
	case err != nil:
		return nil //nolint:nilerr // decoding tells of it
	case s != nil:
		return addRow(rows, s)
	}
	if d.open(nil, c) != nil || !d.env.found {
		return nil //nolint:nilerr // likewise
	}
	for _, image := range []connect.Cell{d.env.before, d.env.after} {
		if image.JSONKind() == jsontext.Object && !d.hasPlaceholder(image) {
			if err := rows.Add(nil, image); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasPlaceholder reports whether an image has values that the source did not send, which say nothing about types.
func (d *decoder) hasPlaceholder(c connect.Cell) bool {
	found := false
	d.table.Tape.Members(c, nil, func(_ []byte, _ int, v connect.Cell) { found = found || d.unavailable(v) })
	return found
}

// NewEncoder implements message.Format.
func (f *Format) NewEncoder(t message.Topic) (message.Encoder, error) {
	switch {
	case f.readOnly:
		return nil, fmt.Errorf("topic %s: this format is only read: say format=debezium or format=debezium-avro to write envelopes", t.Name)
	case t.Key != "" && t.Key != plain.KeyJSON && t.Key != plain.KeyNone:
		return nil, fmt.Errorf("topic %s: envelopes have keys of their own: leave out key=%s", t.Name, t.Key)
	case f.registry != nil:
		return &avroEncoder{topic: t.Name, registry: f.registry, enc: New(f.opts), noKeys: t.Key == plain.KeyNone}, nil
	}
	e := &encoder{enc: New(f.opts), noKeys: t.Key == plain.KeyNone}
	e.enc.schemas = f.schemas
	return e, nil
}

// encoder writes envelopes in JSON.
type encoder struct {
	enc    *Encoder
	noKeys bool
	buf    []byte
}

// Bind implements message.Encoder.
func (*encoder) Bind(context.Context, *record.Schema) error { return nil }

// Encode implements message.Encoder.
func (e *encoder) Encode(_ context.Context, b *record.Batch, emit func(int, *message.Message) error) ([]connector.RowError, error) {
	return encodeRows(b, e.enc.bind, func(col int) bool { return e.enc.fields[col].kept != nil }, e.message, emit)
}

// message encodes one event.
func (e *encoder) message(b *record.Batch, ev Event) (m message.Message, _ error) {
	if ev.side != arrival { // which stands behind the removal
		e.buf = e.buf[:0]
	}
	from := len(e.buf)
	if len(b.Schema.Key) > 0 && ev.Row >= 0 && !e.noKeys {
		e.buf = e.enc.AppendKey(e.buf, ev)
		m.Key = e.buf[from:len(e.buf):len(e.buf)]
	}
	n := len(e.buf)
	e.buf = e.enc.AppendValue(e.buf, ev)
	m.Value = e.buf[n:len(e.buf):len(e.buf)]
	return m, nil
}

// encodeRows encodes a batch: all messages of a row, or none. bind prepares what is the same for all of it; kept reports whether something
// can stand for a value of a column that was not sent; message encodes an event, whose message has to last until that of the next row, and
// an error of it is why the row is refused.
func encodeRows(
	b *record.Batch, bind func(*record.Batch), kept func(col int) bool, encode func(*record.Batch, Event) (message.Message, error),
	emit func(int, *message.Message) error,
) ([]connector.RowError, error) {
	dataset := b.Schema.Dataset
	b, err := changelog.Complete(b)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", dataset, err)
	}
	if err := changelog.Check(b); err != nil {
		return nil, err
	}
	bind(b)
	var refused []connector.RowError
	var of [4]message.Message // a removal, an arrival, and tombstones
	row := of[:0]
	for ev := range events(b) {
		if ev.side == arrival && len(row) == 0 {
			continue // the removal was refused
		}
		m, why := encodeEvent(b, ev, kept, encode)
		if why != nil {
			if ev.Row < 0 {
				return nil, why
			}
			refused, row = append(refused, notRepresentable(b, ev, why)), row[:0]
			continue
		}
		row = append(row, m)
		if m.Key != nil && ev.Tombstone() {
			row = append(row, message.Message{Key: m.Key})
		}
		if ev.side == removal {
			continue
		}
		for i := range row {
			if err := emit(ev.Row, &row[i]); err != nil {
				return nil, err
			}
		}
		row = row[:0]
	}
	return refused, nil
}

func encodeEvent(
	b *record.Batch, ev Event, kept func(col int) bool, encode func(*record.Batch, Event) (message.Message, error),
) (message.Message, error) {
	if err := unsent(b, ev, kept); err != nil {
		return message.Message{}, err
	}
	return encode(b, ev)
}

func notRepresentable(b *record.Batch, ev Event, why error) connector.RowError {
	r := b.Reject(ev.Row)
	r.Class, r.Message = "not_representable", why.Error()
	if u, ok := errors.AsType[unsentError](why); ok {
		r.Column = u.column
	}
	return connector.RowError{Index: ev.Row, Reject: r}
}
