package plain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// system is the provenance of columns that are keys: their native type tells how keys are written.
const system = "message"

func markKey(f arrow.Field, form string) arrow.Field {
	return record.WithNative(f, record.Native{System: system, Type: form})
}

func isKey(f arrow.Field) bool { return record.NativeOf(f).System == system }

// keyForm is how keys are written, as Learn found; empty: nobody knows.
func keyForm(s *record.Schema) string {
	for _, f := range s.Columns.Fields() {
		if isKey(f) {
			return record.NativeOf(f).Type
		}
	}
	return ""
}

// Shape collects what is known of the columns of keys, or of values.
type Shape struct {
	Reading connect.Reading
	name    string // of the column of values that are no records
	columns *record.Schema
	texts   []byte // JSON objects without a schema, one on each line
	known   map[*connect.Schema]bool
}

// NewShape returns a shape that has seen nothing; name is the column of values that are no records.
func NewShape(name string) *Shape {
	return &Shape{name: name, columns: &record.Schema{Columns: arrow.NewSchema(nil, nil)}, known: map[*connect.Schema]bool{}}
}

// Add takes a value: schemas merge, and JSON without one is looked at later, as a whole.
func (s *Shape) Add(cs *connect.Schema, c connect.Cell) error {
	switch {
	case cs == nil && c.JSONKind() == jsontext.Object:
		return s.text(c.Bytes)
	case cs == nil && c.IsNull():
		return nil
	case cs == nil:
		return s.text(append(append(append(record.AppendJSONString([]byte("{"), s.name), ':'), c.Bytes...), '}'))
	case s.known[cs]:
		return nil
	case cs.Type != connect.Struct || len(cs.Fields) == 0:
		s.known[cs] = true
		cs = &connect.Schema{Type: connect.Struct, Fields: []connect.Field{{Name: s.name, Schema: cs}}}
	}
	s.known[cs] = true
	var err error
	s.columns, err = Merge(s.columns, cs, s.Reading)
	return err
}

func (s *Shape) text(b []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, b); err != nil {
		return fmt.Errorf("compacting a JSON text: %w", err)
	}
	s.texts = append(append(s.texts, line.Bytes()...), '\n')
	return nil
}

// Fields returns the columns.
func (s *Shape) Fields(types map[string]string) ([]arrow.Field, error) {
	out := s.columns.Columns.Fields()
	if len(s.texts) > 0 {
		inf := jsonl.NewInference(jsonl.InferOptions{})
		if _, err := inf.Scan(bytes.NewReader(s.texts), 0); err != nil {
			return nil, fmt.Errorf("looking at JSON: %w", err)
		}
		found, err := inf.Schema(false)
		if err != nil {
			return nil, fmt.Errorf("looking at JSON: %w", err)
		}
		for _, f := range found.Columns.Fields() {
			if i := slices.IndexFunc(out, func(x arrow.Field) bool { return x.Name == f.Name }); i >= 0 {
				out[i].Type = connect.Join(out[i].Type, f.Type)
				continue
			}
			out = append(out, f)
		}
	}
	return out, declareAll(out, types)
}

// declareAll gives columns their declared types.
func declareAll(fields []arrow.Field, types map[string]string) error {
	for i, f := range fields {
		declared, ok := types[f.Name]
		if !ok {
			continue
		}
		dt, err := record.ParseType(declared)
		if err != nil {
			return fmt.Errorf("type of column %q: %w", f.Name, err)
		}
		fields[i].Type = dt
		fields[i] = declare(fields[i])
	}
	return nil
}

// Learn works out the columns of a topic of plain values.
func Learn(ctx context.Context, w Wire, t message.Topic, sample []message.Message) (*record.Schema, error) {
	value := NewShape(valueColumn)
	if err := value.learn(ctx, w, t, false, sample); err != nil {
		return nil, err
	}
	valueFields, err := value.Fields(t.Types)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", t.Name, err)
	}
	keyFields, err := LearnKey(ctx, w, t, sample, func(name string) bool {
		return slices.ContainsFunc(valueFields, func(f arrow.Field) bool { return f.Name == name })
	})
	if err != nil {
		return nil, err
	}
	return Combine(t, keyFields, valueFields)
}

// Combine makes the schema of a topic of the columns of its keys and of its values.
func Combine(t message.Topic, keys, values []arrow.Field) (*record.Schema, error) {
	fields := slices.Clone(keys)
	for _, f := range values {
		i := slices.IndexFunc(keys, func(k arrow.Field) bool { return k.Name == f.Name })
		if i < 0 {
			fields = append(fields, f)
			continue
		}
		if Declared(f) {
			fields[i].Type = f.Type
			fields[i] = declare(fields[i])
			continue
		}
		fields[i].Type = connect.Join(keys[i].Type, f.Type)
	}
	s := &record.Schema{Dataset: t.Dataset, Columns: arrow.NewSchema(fields, nil), Version: 1}
	if s.Dataset == "" {
		s.Dataset = t.Name
	}
	if t.Keyed {
		for i := range keys {
			s.Key = append(s.Key, i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Types)) {
		if s.Column(name) < 0 {
			return nil, fmt.Errorf("topic %s: a type is declared for column %q, which no message of the sample has; it has %q",
				t.Name, name, s.Names())
		}
	}
	return s, nil
}

// learn looks at the registry and at a sample.
func (s *Shape) learn(ctx context.Context, w Wire, t message.Topic, key bool, sample []message.Message) error {
	known, err := w.Known(ctx, t.Name, key)
	if err != nil {
		return fmt.Errorf("topic %s: %w", t.Name, err)
	}
	if known != nil {
		if err := s.Add(known, connect.Cell{}); err != nil {
			return fmt.Errorf("topic %s: %w", t.Name, err)
		}
	}
	u := w.Unpacker(t.Name, key)
	var tape connect.Tape
	for i := range sample {
		data := sample[i].Value
		if key {
			data = sample[i].Key
		}
		if data == nil {
			continue
		}
		tape.Reset()
		cs, c, err := u.Unpack(ctx, data, sample[i].Headers, &tape)
		if errors.Is(err, ErrRegistry) {
			return fmt.Errorf("topic %s: %w", t.Name, err)
		}
		if err != nil {
			continue // decoding tells of it
		}
		if err := s.Add(cs, c); err != nil {
			return fmt.Errorf("topic %s: %w", t.Name, err)
		}
	}
	return nil
}

// LearnKey works out the columns of the keys of a topic; taken says which names the values have.
func LearnKey(
	ctx context.Context, w Wire, t message.Topic, sample []message.Message, taken func(string) bool,
) ([]arrow.Field, error) {
	form := t.Key
	if form == "" {
		form = detectKey(w, t, sample)
	}
	name := keyColumn
	if taken(name) {
		name = otherKey
	}
	var fields []arrow.Field
	switch form {
	case KeyNone:
		return nil, nil
	case KeyText:
		fields = []arrow.Field{{Name: name, Type: arrow.BinaryTypes.String, Nullable: true}}
	case KeyBinary:
		fields = []arrow.Field{{Name: name, Type: arrow.BinaryTypes.Binary, Nullable: true}}
	default:
		if form == KeyJSON {
			w = JSON{}
		}
		keys := NewShape(name)
		if err := keys.learn(ctx, w, t, true, sample); err != nil {
			return nil, err
		}
		var err error
		if fields, err = keys.Fields(t.Types); err != nil {
			return nil, fmt.Errorf("topic %s: %w", t.Name, err)
		}
	}
	if len(fields) == 0 && t.Keyed {
		return nil, fmt.Errorf("topic %s: rows are kept by key, but no message of the sample has one: say key=text, or mode=append", t.Name)
	}
	for i := range fields {
		fields[i] = markKey(fields[i], form)
		if len(t.Types) > 0 {
			if err := declareAll(fields[i:i+1], t.Types); err != nil {
				return nil, fmt.Errorf("topic %s: %w", t.Name, err)
			}
		}
	}
	return fields, nil
}

// detectKey finds out how keys are written.
func detectKey(w Wire, t message.Topic, sample []message.Message) string {
	n, mine, isJSON, isText := 0, true, true, true
	for i := range sample {
		k := sample[i].Key
		if k == nil {
			continue
		}
		n++
		mine = mine && w.Mine(k)
		isText = isText && utf8.Valid(k)
		if c, err := connect.Parse(k); err != nil || c.IsNull() {
			isJSON = false
		}
	}
	switch {
	case n == 0 && !t.Keyed:
		return KeyNone
	case n == 0 || mine:
		return keyWire
	case isJSON:
		return KeyJSON
	case isText:
		return KeyText
	default:
		return KeyBinary
	}
}
