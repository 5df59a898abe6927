package plain

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// Names of columns for keys and values that are no records.
const (
	keyColumn   = "key"
	otherKey    = "message_key"
	valueColumn = "value"
)

// Decoder reads messages whose value is the row as it is now. It implements message.Decoder.
type Decoder struct {
	topic message.Topic
	table *Table
	key   Unpacker // nil: keys are not read
	value Unpacker
	late  []arrow.Field
	each  func(name []byte, guessed int, v connect.Cell)
}

var _ message.Decoder = (*Decoder)(nil)

// NewDecoder returns a decoder of a topic whose keys and values are read by w.
func NewDecoder(w Wire, topic message.Topic, s *record.Schema) (*Decoder, error) {
	t, err := NewTable(s, connect.Reading{})
	if err != nil {
		return nil, err
	}
	d := &Decoder{topic: topic, table: t, value: w.Unpacker(topic.Name, false)}
	if d.key, err = KeyUnpacker(w, topic, s); err != nil {
		return nil, err
	}
	d.each = d.member
	return d, nil
}

// KeyUnpacker returns what reads keys, as the topic says, or as the sample showed when the schema was learned; nil: they are not read.
func KeyUnpacker(w Wire, topic message.Topic, s *record.Schema) (Unpacker, error) {
	form := topic.Key
	if form == "" {
		form = keyForm(s)
	}
	switch form {
	case keyWire, "":
		return w.Unpacker(topic.Name, true), nil
	case KeyJSON:
		return &jsonUnpacker{}, nil
	case KeyText:
		return textUnpacker{}, nil
	case KeyBinary:
		return binaryUnpacker{}, nil
	case KeyNone:
		if topic.Keyed {
			return nil, fmt.Errorf("topic %s: rows are kept by key, so keys have to be read: say key=json, text or binary", topic.Name)
		}
		return nil, nil //nolint:nilnil // see above
	}
	return nil, fmt.Errorf("topic %s: unknown form of keys %q: want json, text, binary or none", topic.Name, form)
}

// Schema implements message.Decoder.
func (d *Decoder) Schema() *record.Schema { return d.table.Schema() }

// Rows implements message.Decoder.
func (d *Decoder) Rows() int { return d.table.Rows() }

// Kept implements message.Decoder.
func (d *Decoder) Kept() int { return d.table.Kept() }

// Batch implements message.Decoder.
func (d *Decoder) Batch() (*record.Batch, error) { return d.table.Batch() }

// errGrow says that the batch has to end first.
var errGrow = errors.New("the columns change")

// Append implements message.Decoder.
func (d *Decoder) Append(ctx context.Context, m *message.Message) (bool, error) {
	return d.table.Append(ctx, m, d.message)
}

// Append appends a message by calling one, which puts and appends its row, asks for other columns with Grow or says what is wrong.
func (t *Table) Append(ctx context.Context, m *message.Message, one func(context.Context, *message.Message) error) (bool, error) {
	if t.Full(m) {
		return false, nil
	}
	for {
		t.Tape.Reset()
		t.Forget()
		err := one(ctx, m)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, ErrRegistry):
			return false, fmt.Errorf("topic %s, partition %d, offset %d: %w", m.Topic, m.Partition, m.Offset, err)
		case !errors.Is(err, errGrow):
			t.Reject(m, "bad_syntax", err.Error())
			return true, nil
		case t.Rows() > 0:
			return false, nil
		}
		var grow *growth
		if !errors.As(err, &grow) {
			return false, err
		}
		if err := grow.do(); err != nil {
			t.Reject(m, "bad_syntax", err.Error())
			return true, nil
		}
	}
}

// Grow is the error of a message that needs the batch to end; then do is called, and the message comes again.
func Grow(do func() error) error { return &growth{do} }

// growth is a change of the columns that a message needs.
type growth struct{ do func() error }

func (*growth) Error() string { return errGrow.Error() }
func (*growth) Unwrap() error { return errGrow }

// message appends one message as a row.
func (d *Decoder) message(ctx context.Context, m *message.Message) error {
	switch {
	case m.Value == nil && d.topic.SkipTombstones:
		return nil
	case m.Value == nil && !d.topic.Keyed:
		return errors.New("it has no value (a tombstone), and rows of the topic have no key to delete by: " +
			"say tombstones=skip to pass over such messages, or mode=upsert to keep rows by key")
	case d.topic.Keyed && m.Key == nil:
		return errors.New("it has no key, and rows of the topic are kept by key: say mode=append to take each message as a row of its own")
	}
	op := record.Insert
	if d.topic.Keyed {
		op = record.Upsert
	}
	if m.Value == nil {
		op = record.Delete
	} else if err := d.part(ctx, d.value, m.Value, m, valueColumn); err != nil {
		return err
	}
	if d.key != nil && m.Key != nil {
		if err := d.keyPart(ctx, m); err != nil {
			return err
		}
	}
	d.table.Row(m, op, false)
	return nil
}

// keyPart puts the key. Where the value has the same columns, they have to say the same.
func (d *Decoder) keyPart(ctx context.Context, m *message.Message) error {
	t := d.table
	type seen struct {
		col  int
		cell connect.Cell
	}
	var before [4]seen
	had := before[:0]
	for _, k := range t.schema.Key {
		if c, ok := t.Found(Now, k); ok {
			had = append(had, seen{k, c})
		}
	}
	if err := d.part(ctx, d.key, m.Key, m, t.keyName); err != nil {
		if errors.Is(err, errGrow) || errors.Is(err, ErrRegistry) {
			return err
		}
		return fmt.Errorf("its key: %w", err)
	}
	for _, h := range had {
		c, _ := t.Found(Now, h.col)
		if same, sure := t.Tape.Same(h.cell, c); sure && !same {
			name := t.schema.Columns.Field(h.col).Name
			return fmt.Errorf("column %q is %s in the value, and %s in the key", name, t.Tape.Value(h.cell), t.Tape.Value(c))
		}
	}
	if !d.topic.Keyed {
		return nil
	}
	for _, k := range t.schema.Key {
		if c, ok := t.Found(Now, k); !ok || c.IsNull() {
			return fmt.Errorf("its key has no %q", t.schema.Columns.Field(k).Name)
		}
	}
	return nil
}

// part puts a key or a value; one that is no record goes into the column of the given name.
func (d *Decoder) part(ctx context.Context, u Unpacker, data []byte, m *message.Message, name string) error {
	t := d.table
	s, c, err := u.Unpack(ctx, data, m.Headers, &t.Tape)
	switch {
	case err != nil:
		return err
	case c.IsNull():
		return errors.New("it is null")
	case s != nil && s.Type == connect.Struct && len(s.Fields) > 0:
		p := t.Plan(s)
		if p == nil {
			return Grow(func() error { return t.Extend(s) })
		}
		cells, err := t.Tape.FieldsOf(c, s)
		if err != nil {
			return err
		}
		t.PutAll(Now, p, cells)
		return nil
	case s == nil && c.JSONKind() == jsontext.Object:
		d.late = d.late[:0]
		t.Tape.Members(c, t.guess, d.each)
		if len(d.late) > 0 {
			late := d.late
			return Grow(func() error { return t.Add(late) })
		}
		return nil
	}
	return d.single(s, c, name)
}

// single puts a value that is no record.
func (d *Decoder) single(s *connect.Schema, c connect.Cell, name string) error {
	t := d.table
	col := t.Column([]byte(name))
	if s == nil {
		if col < 0 {
			f := arrow.Field{Name: name, Type: lateType(c.JSONKind()), Nullable: true}
			return Grow(func() error { return t.Add([]arrow.Field{f}) })
		}
		t.PutColumn(Now, col, c, nil)
		return nil
	}
	whole := t.wrapped(s, name)
	p := t.Plan(whole)
	if p == nil {
		return Grow(func() error { return t.Extend(whole) })
	}
	t.Put(Now, p, 0, c)
	return nil
}

// wrapped is a struct with one field of a schema.
func (t *Table) wrapped(s *connect.Schema, name string) *connect.Schema {
	for known := range t.plans {
		if len(known.Fields) == 1 && known.Fields[0].Schema == s && known.Fields[0].Name == name {
			return known
		}
	}
	return &connect.Schema{Type: connect.Struct, Fields: []connect.Field{{Name: name, Schema: s}}}
}

// member puts a member of a JSON object without a schema.
func (d *Decoder) member(name []byte, guessed int, v connect.Cell) {
	d.late = d.table.Member(Now, d.late, name, guessed, v)
}

// Member puts a member of a JSON object without a schema, and collects columns that are not there yet.
func (t *Table) Member(img Image, late []arrow.Field, name []byte, guessed int, v connect.Cell) []arrow.Field {
	if guessed < 0 {
		if guessed = t.Column(name); guessed >= 0 {
			t.Tape.Expect(guessed + 1)
		}
	}
	switch {
	case guessed >= 0:
		t.PutColumn(img, guessed, v, nil)
	case !v.IsNull():
		for i := range late {
			if late[i].Name == string(name) {
				return late
			}
		}
		return append(late, arrow.Field{Name: string(name), Type: lateType(v.JSONKind()), Nullable: true})
	}
	return late
}

// lateType is the type of a column whose first value comes late: the widest one of that value's kind.
func lateType(k jsontext.Kind) arrow.DataType {
	switch k {
	case jsontext.Truth:
		return arrow.FixedWidthTypes.Boolean
	case jsontext.Number:
		return record.NumericType()
	case jsontext.Text, jsontext.Escaped:
		return arrow.BinaryTypes.String
	default:
		return record.JSONType()
	}
}
