package plain

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/format/internal/value"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// Packer writes rows of a schema, or some of their columns. It is used by one goroutine at a time.
type Packer interface {
	// Bind prepares for rows of a schema, of which the columns cols count.
	Bind(ctx context.Context, s *record.Schema, cols []int) error
	// Rows says which rows Append is about.
	Rows(rows arrow.RecordBatch)
	// Append appends row i. An error is one of the row.
	Append(dst []byte, i int) ([]byte, error)
}

// Encoder writes rows as they are now: a value for each, and none for a deletion. It implements message.Encoder.
type Encoder struct {
	key, value Packer // key nil: messages have none
	schema     *record.Schema
	buf        []byte
	msg        message.Message // the one that is under way
}

var _ message.Encoder = (*Encoder)(nil)

// NewEncoder returns an encoder; key nil: messages have no keys.
func NewEncoder(key, value Packer) *Encoder { return &Encoder{key: key, value: value} }

// Bind implements message.Encoder.
func (e *Encoder) Bind(ctx context.Context, s *record.Schema) error {
	if s == e.schema {
		return nil
	}
	all := make([]int, s.Columns.NumFields())
	for i := range all {
		all[i] = i
	}
	if err := e.value.Bind(ctx, s, all); err != nil {
		return err
	}
	if e.key != nil && len(s.Key) > 0 {
		if err := e.key.Bind(ctx, s, s.Key); err != nil {
			return fmt.Errorf("key: %w", err)
		}
	}
	e.schema = s
	return nil
}

// Encode implements message.Encoder.
func (e *Encoder) Encode(ctx context.Context, b *record.Batch, emit func(int, *message.Message) error) ([]connector.RowError, error) {
	if err := e.Bind(ctx, b.Schema); err != nil {
		return nil, err
	}
	if b.Truncate {
		return nil, fmt.Errorf("dataset %s was emptied, which a message of a row can't tell: say format=debezium", b.Schema.Dataset)
	}
	dataset := b.Schema.Dataset
	b, err := changelog.Complete(b)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", dataset, err)
	}
	if b.Rows == nil {
		return nil, nil
	}
	e.value.Rows(b.Rows)
	var refused []connector.RowError
	for i := range b.NumRows() {
		column, why, err := e.row(b, i, emit)
		if err != nil {
			return nil, err
		}
		if why != "" {
			r := b.Reject(i)
			r.Column, r.Class, r.Message = column, "not_representable", why
			refused = append(refused, connector.RowError{Index: i, Reject: r})
		}
	}
	return refused, nil
}

// row encodes one row; why says that it can't be, and column, where it is for the value of one, which.
func (e *Encoder) row(b *record.Batch, i int, emit func(int, *message.Message) error) (column, why string, err error) {
	op, keyed := b.Op(i), e.key != nil && len(b.Schema.Key) > 0
	if !keyed && op != record.Insert {
		why = "messages without a key can't tell of the operation " + op.String() + ": give the dataset a key, or say format=debezium"
		return "", why, nil
	}
	for c := range b.Unchanged {
		if op != record.Delete && b.IsUnchanged(c, i) {
			column = b.Rows.ColumnName(c)
			return column, fmt.Sprintf("the source did not send the value of column %q, as it did not change: "+
				"make it send whole rows (Postgres: REPLICA IDENTITY FULL), or say format=debezium", column), nil
		}
	}
	// All messages of a row are encoded before the first one is handed over: a row that is refused leaves none.
	e.buf = e.buf[:0]
	moved := keyed && b.KeyMoved(i)
	if moved {
		e.key.Rows(b.Old)
		if e.buf, err = e.key.Append(e.buf, i); err != nil {
			return "", err.Error(), nil //nolint:nilerr // a reason to set the row aside
		}
	}
	old := len(e.buf)
	if keyed {
		e.key.Rows(b.Rows)
		if e.buf, err = e.key.Append(e.buf, i); err != nil {
			return "", err.Error(), nil //nolint:nilerr // likewise
		}
	}
	n := len(e.buf)
	e.msg = message.Message{}
	if op != record.Delete {
		if e.buf, err = e.value.Append(e.buf, i); err != nil {
			return "", err.Error(), nil //nolint:nilerr // likewise
		}
		e.msg.Value = e.buf[n:]
	}
	if moved {
		if err := emit(i, &message.Message{Key: e.buf[:old:old]}); err != nil {
			return "", "", err
		}
	}
	if keyed {
		e.msg.Key = e.buf[old:n:n]
	}
	return "", "", emit(i, &e.msg)
}

// KeyPacker returns what writes keys in a plain form; own is the one of the format.
func KeyPacker(t message.Topic, own Packer) (Packer, error) {
	switch t.Key {
	case "", keyWire:
		return own, nil
	case KeyJSON:
		return &JSONPacker{}, nil
	case KeyText:
		return &textPacker{}, nil
	case KeyBinary:
		return &textPacker{binary: true}, nil
	case KeyNone:
		return nil, nil //nolint:nilnil // messages without keys
	}
	return nil, fmt.Errorf("topic %s: unknown form of keys %q: want json, text, binary or none", t.Name, t.Key)
}

// JSONPacker writes JSON objects in the form of package record.
type JSONPacker struct {
	cols     []int
	names    [][]byte // with the bracket or comma in front and the colon behind
	bound    arrow.RecordBatch
	printers []value.Printer
}

// Bind implements Packer.
func (p *JSONPacker) Bind(_ context.Context, s *record.Schema, cols []int) error {
	p.cols, p.names, p.bound = cols, nil, nil
	for i, c := range cols {
		lead := byte(',')
		if i == 0 {
			lead = '{'
		}
		p.names = append(p.names, append(record.AppendJSONString([]byte{lead}, s.Columns.Field(c).Name), ':'))
	}
	return nil
}

// Rows implements Packer.
func (p *JSONPacker) Rows(rows arrow.RecordBatch) {
	if rows == p.bound {
		return
	}
	p.bound, p.printers = rows, p.printers[:0]
	for _, c := range p.cols {
		p.printers = append(p.printers, value.Bind(rows.Column(c)))
	}
}

// Append implements Packer.
func (p *JSONPacker) Append(dst []byte, i int) ([]byte, error) {
	if len(p.printers) == 0 {
		return append(dst, "{}"...), nil
	}
	for c := range p.printers {
		dst = append(dst, p.names[c]...)
		if p.printers[c].Null(i) {
			dst = append(dst, "null"...)
			continue
		}
		dst = p.printers[c].JSON(dst, i)
	}
	return append(dst, '}'), nil
}

// textPacker writes one column as its text form, or its bytes.
type textPacker struct {
	col    int
	name   string
	binary bool
	bound  arrow.RecordBatch
}

func (p *textPacker) Bind(_ context.Context, s *record.Schema, cols []int) error {
	if len(cols) != 1 {
		return fmt.Errorf("dataset %s has %d key columns, and a key as text holds one: say key=json", s.Dataset, len(cols))
	}
	f := s.Columns.Field(cols[0])
	if t, err := record.TypeOf(f.Type); p.binary && (err != nil || t.Kind != record.Binary) {
		return fmt.Errorf("dataset %s: column %q is not binary: say key=text or key=json", s.Dataset, f.Name)
	}
	p.col, p.name = cols[0], f.Name
	return nil
}

func (p *textPacker) Rows(rows arrow.RecordBatch) { p.bound = rows }

func (p *textPacker) Append(dst []byte, i int) ([]byte, error) {
	c := p.bound.Column(p.col)
	if c.IsNull(i) {
		return dst, fmt.Errorf("key column %q is null", p.name)
	}
	if p.binary {
		return append(dst, message.Bytes(c, i)...), nil
	}
	return record.AppendText(dst, c, i), nil
}
