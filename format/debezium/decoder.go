package debezium

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/format/internal/plain"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// decoder turns envelopes back into changes.
type decoder struct {
	topic   message.Topic
	table   *plain.Table
	value   plain.Unpacker
	key     plain.Unpacker
	layouts map[*connect.Schema]*layout
	deleted map[int32][]byte // partition -> the key whose deletion was the last message
	typed   map[int]connect.Appender
	late    []arrow.Field
	img     plain.Image
	each    func(name []byte, guessed int, v connect.Cell)
	env     envelope
}

var _ message.Decoder = (*decoder)(nil)

// layout is where the parts of an envelope are in its schema; -1: it has none.
type layout struct {
	before, after, op int
}

// envelope is what a message says.
type envelope struct {
	op            connect.Cell
	before, after connect.Cell
	row           *connect.Schema // of before and after; nil: JSON without one
	found         bool            // it has an op
}

func newDecoder(w plain.Wire, t message.Topic, s *record.Schema) (*decoder, error) {
	table, err := plain.NewTable(s, reading(s))
	if err != nil {
		return nil, err
	}
	d := &decoder{
		topic: t, table: table, value: w.Unpacker(t.Name, false), layouts: map[*connect.Schema]*layout{}, deleted: map[int32][]byte{},
		typed: map[int]connect.Appender{},
	}
	if d.key, err = plain.KeyUnpacker(w, t, s); err != nil {
		return nil, err
	}
	for i, f := range s.Columns.Fields() {
		if !plain.Declared(f) {
			continue
		}
		if d.typed[i], err = connect.Compile(schemaOf(f), table.Type(i)); err != nil {
			return nil, fmt.Errorf("topic %s: column %q: %w", t.Name, f.Name, err)
		}
	}
	d.each = d.member
	return d, nil
}

// reading says how types are read: Debezium's timestamps have no zone, and where one column may be infinite all may.
func reading(s *record.Schema) connect.Reading {
	r := connect.Reading{Local: true}
	for _, f := range s.Columns.Fields() {
		if t, err := record.TypeOf(f.Type); err == nil && t.Infinite {
			r.Infinite = true
		}
	}
	return r
}

// Schema implements message.Decoder.
func (d *decoder) Schema() *record.Schema { return d.table.Schema() }

// Rows implements message.Decoder.
func (d *decoder) Rows() int { return d.table.Rows() }

// Kept implements message.Decoder.
func (d *decoder) Kept() int { return d.table.Kept() }

// Batch implements message.Decoder.
func (d *decoder) Batch() (*record.Batch, error) { return d.table.Batch() }

// Append implements message.Decoder.
func (d *decoder) Append(ctx context.Context, m *message.Message) (bool, error) {
	return d.table.Append(ctx, m, d.message)
}

var errNoEnvelope = errors.New("it is no envelope of Debezium, as it has no op: say format=json or format=avro for plain rows")

func (d *decoder) message(ctx context.Context, m *message.Message) error {
	if m.Value == nil {
		return d.tombstone(ctx, m)
	}
	s, c, err := d.value.Unpack(ctx, m.Value, m.Headers, &d.table.Tape)
	if err != nil {
		return err
	}
	if err := d.open(s, c); err != nil {
		return err
	}
	if !d.env.found {
		return errNoEnvelope
	}
	op, _ := d.table.Tape.String(d.env.op)
	switch string(op) {
	case "c":
		err = d.row(m, record.Insert, d.env.after)
	case "r":
		kind := record.Insert
		if len(d.table.Schema().Key) > 0 {
			kind = record.Upsert
		}
		err = d.row(m, kind, d.env.after)
	case "u":
		err = d.row(m, record.Update, d.env.after)
	case "d":
		err = d.removal(ctx, m)
	case "t":
		if d.table.Rows() > 0 {
			return plain.Grow(func() error { return nil })
		}
		d.table.Truncate()
	case "m": // a message in the log, which is about no row
	default:
		return fmt.Errorf("unknown operation %q: want c, r, u, d or t", op)
	}
	if err != nil {
		return err
	}
	delete(d.deleted, m.Partition)
	if string(op) == "d" && m.Key != nil {
		d.deleted[m.Partition] = bytes.Clone(m.Key)
	}
	return nil
}

// open takes an envelope apart.
func (d *decoder) open(s *connect.Schema, c connect.Cell) error {
	d.env = envelope{}
	if s == nil {
		if c.JSONKind() != jsontext.Object {
			return errNoEnvelope
		}
		d.table.Tape.Members(c, nil, func(name []byte, _ int, v connect.Cell) {
			switch string(name) {
			case "op":
				d.env.op, d.env.found = v, true
			case "before":
				d.env.before = v
			case "after":
				d.env.after = v
			}
		})
		return nil
	}
	l, ok := d.layouts[s]
	if !ok {
		l = layoutOf(s)
		d.layouts[s] = l
		if l != nil && isPostgres(s) {
			d.table.Reading.Infinite = true
		}
	}
	if l == nil || c.IsNull() {
		return errNoEnvelope
	}
	fields, err := d.table.Tape.FieldsOf(c, s)
	if err != nil {
		return err
	}
	d.env = envelope{op: fields[l.op], found: true, row: s.Fields[max(l.after, l.before)].Schema}
	if l.before >= 0 {
		d.env.before = fields[l.before]
	}
	if l.after >= 0 {
		d.env.after, d.env.row = fields[l.after], s.Fields[l.after].Schema
	}
	return nil
}

// layoutOf finds the parts of an envelope; nil: the schema is of none.
func layoutOf(s *connect.Schema) *layout {
	l := &layout{s.Field("before"), s.Field("after"), s.Field("op")}
	if s.Type != connect.Struct || l.op < 0 || (l.before < 0 && l.after < 0) {
		return nil
	}
	return l
}

// isPostgres reports whether an envelope comes from Postgres, whose dates may be infinite.
func isPostgres(s *connect.Schema) bool {
	i := s.Field("source")
	return i >= 0 && strings.Contains(strings.ToLower(s.Fields[i].Schema.Name), "postgres")
}

// row appends a row as it is after a change.
func (d *decoder) row(m *message.Message, op record.Op, after connect.Cell) error {
	if after.IsNull() {
		return errors.New("it has no row after the change")
	}
	if err := d.put(plain.Now, after); err != nil {
		return err
	}
	before := op == record.Update && !d.env.before.IsNull()
	if before {
		if err := d.put(plain.Before, d.env.before); err != nil {
			return err
		}
	}
	for i := range d.table.Schema().Columns.NumFields() {
		c, ok := d.table.Found(plain.Now, i)
		if !ok || !d.unavailable(c) {
			continue
		}
		if op != record.Update {
			return fmt.Errorf("the source did not send the value of column %q of a new row: make it send whole rows (Postgres: "+
				"alter table … replica identity full)", d.table.Schema().Columns.Field(i).Name)
		}
		d.table.Unchanged(i)
	}
	d.table.Row(m, op, before)
	return nil
}

// put puts an image of a row.
func (d *decoder) put(img plain.Image, c connect.Cell) error {
	t := d.table
	if s := d.env.row; s != nil {
		p := t.Plan(s)
		if p == nil {
			return plain.Grow(func() error { return t.Extend(s) })
		}
		cells, err := t.Tape.FieldsOf(c, s)
		if err != nil {
			return err
		}
		t.PutAll(img, p, cells)
		return nil
	}
	d.late, d.img = d.late[:0], img
	if !t.Tape.Members(c, t.Guess(), d.each) {
		return errors.New("its row is no object")
	}
	if len(d.late) > 0 {
		late := d.late
		return plain.Grow(func() error { return t.Add(late) })
	}
	return nil
}

// member puts a member of a row without a schema.
func (d *decoder) member(name []byte, guessed int, v connect.Cell) {
	d.late = d.table.Member(d.img, d.late, name, guessed, v)
	if len(d.typed) == 0 {
		return
	}
	if guessed < 0 {
		guessed = d.table.Column(name)
	}
	if add := d.typed[guessed]; add != nil {
		d.table.PutColumn(d.img, guessed, v, add)
	}
}

// unavailable reports whether a value stands for one that the source did not send.
func (d *decoder) unavailable(c connect.Cell) bool {
	switch k := c.JSONKind(); {
	case c.Kind == connect.Text || c.Kind == connect.Blob:
		return string(c.Bytes) == unavailable
	case k == jsontext.Text:
		text := c.Bytes[1 : len(c.Bytes)-1]
		return string(text) == unavailable || string(text) == unavailableBase64
	case c.Kind == connect.List || k == jsontext.List:
		elems, err := d.table.Tape.Elems(c)
		return err == nil && len(elems) == 1 && d.unavailable(elems[0])
	case c.Kind == connect.Pairs || k == jsontext.Object:
		if k == jsontext.Object && !bytes.Contains(c.Bytes, []byte(unavailable)) {
			return false
		}
		pairs, err := d.table.Tape.KeyValues(c)
		return err == nil && len(pairs) == 2 && d.unavailable(pairs[0]) && d.unavailable(pairs[1])
	}
	return false
}

// unavailableBase64 is how JSON has the placeholder of bytes.
const unavailableBase64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="

// removal appends a deletion: of the row before, or of what the key says.
func (d *decoder) removal(ctx context.Context, m *message.Message) error {
	if d.env.before.IsNull() {
		return d.byKey(ctx, m)
	}
	if err := d.put(plain.Now, d.env.before); err != nil {
		return err
	}
	d.table.Row(m, record.Delete, false)
	return nil
}

// tombstone is the deletion of a key. One that follows the deletion itself says nothing more; one without it is what compaction left.
func (d *decoder) tombstone(ctx context.Context, m *message.Message) error {
	last := d.deleted[m.Partition]
	delete(d.deleted, m.Partition)
	if d.topic.SkipTombstones || (last != nil && bytes.Equal(last, m.Key)) {
		return nil
	}
	return d.byKey(ctx, m)
}

// byKey appends a deletion of the key of the message.
func (d *decoder) byKey(ctx context.Context, m *message.Message) error {
	t := d.table
	if m.Key == nil || len(t.Schema().Key) == 0 || d.key == nil {
		return errors.New("it is a deletion without a row and without a key: nothing says which row is meant")
	}
	s, c, err := d.key.Unpack(ctx, m.Key, m.Headers, &t.Tape)
	if err != nil {
		return fmt.Errorf("its key: %w", err)
	}
	d.env.row = s
	if err := d.put(plain.Now, c); err != nil {
		return fmt.Errorf("its key: %w", err)
	}
	for _, k := range t.Schema().Key {
		if c, ok := t.Found(plain.Now, k); !ok || c.IsNull() {
			return fmt.Errorf("its key has no %q", t.Schema().Columns.Field(k).Name)
		}
	}
	t.Row(m, record.Delete, false)
	return nil
}
