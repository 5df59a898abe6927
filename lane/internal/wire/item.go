package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/arrowipc"
	"github.com/leatdata/leat/record"
)

// Item is what lanes carry: a batch with its ledger, or the mark of a complete snapshot.
type Item struct {
	Batch    *record.Batch // nil: Complete is what it says
	Ledger   string
	Complete []string
}

// About says of an item what can be known without its rows.
type About struct {
	To       []string // lanes; nil: all
	Complete bool     // the mark of a complete snapshot
	Dataset  string   // empty: none, or several
	Rows     int64
	Changes  int64
	Bytes    int64 // of memory
	Position record.Position
	Ledger   string
	// Ops are how many rows are inserts, updates and deletes.
	Ops map[string]int64
}

// Frame is an item in its persisted form, without its schemas and its number.
type Frame struct {
	meta    []byte
	body    [][]byte // its sections, in order
	size    int      // of the body
	schemas []*Schema
}

// Size is how many bytes the frame takes in a log; its schemas, which frames share, come on top.
func (f *Frame) Size() int64 { return int64(len(f.meta) + f.size + frameOverhead) }

// frameOverhead is what a pack adds to a frame, about.
const frameOverhead = 8

// meta is the part of a frame that is JSON. What is opaque is kept as bytes, since JSON text would not come back byte for byte.
// Slices tell nil and empty apart.
type meta struct {
	To       []string         `json:"to,omitzero"`
	Mark     bool             `json:"mark,omitempty"` // of a complete snapshot: Complete is all there is
	Complete []string         `json:"complete,omitzero"`
	Dataset  string           `json:"dataset,omitempty"`
	Rows     int64            `json:"rows,omitempty"`
	Memory   int64            `json:"memory,omitempty"`
	Changes  int64            `json:"changes,omitempty"`
	Ops      map[string]int64 `json:"ops,omitempty"`
	Schema   int              `json:"schema,omitempty"` // from 1, in the frame's list of schemas; 0: none
	Truncate bool             `json:"truncate,omitempty"`
	Size     int64            `json:"size,omitempty"`
	Position position         `json:"position,omitzero"`
	Ledger   []byte           `json:"ledger,omitempty"`
	Txns     []txn            `json:"txns,omitzero"`
	Rejects  []reject         `json:"rejects,omitzero"`
	Chunk    *chunk           `json:"chunk,omitempty"`
	Sections []section        `json:"sections,omitempty"` // of the body, in order
}

// section is a part of the body.
type section struct {
	Kind   string `json:"kind"`
	Bytes  int    `json:"bytes"`
	Schema int    `json:"schema,omitempty"` // of rows
	Column int    `json:"column,omitempty"` // of a bitmap
}

// Kinds of sections.
const (
	sectionOps       = "ops"
	sectionUnchanged = "unchanged"
	sectionRows      = "rows"
	sectionOld       = "old"
	sectionNoBitmaps = "no-unchanged" // an empty map, where nil would be none
)

type position struct {
	Shape uint32 `json:"shape"`
	Data  []byte `json:"data,omitzero"`
}

func positionOf(p record.Position) position { return position{p.Shape, p.Data} }

func (p position) record() record.Position { return record.Position{Shape: p.Shape, Data: p.Data} }

type instant struct {
	Seconds int64 `json:"s"`
	Nanos   int   `json:"ns,omitempty"`
}

type txn struct {
	Rows     int      `json:"rows"`
	Position position `json:"position"`
	Time     *instant `json:"time,omitempty"` // none: the zero time
}

type chunk struct {
	Dataset  string   `json:"dataset"`
	From     []byte   `json:"from,omitzero"`
	To       []byte   `json:"to,omitzero"`
	Keys     [][]byte `json:"keys,omitzero"`
	Where    string   `json:"where,omitempty"`
	Snapshot position `json:"snapshot"`
}

type reject struct {
	Dataset string    `json:"dataset,omitempty"`
	Line    int64     `json:"line,omitempty"`
	Offset  int64     `json:"offset,omitempty"`
	Key     []byte    `json:"key,omitzero"`
	Column  string    `json:"column,omitempty"`
	Value   []byte    `json:"value,omitempty"`
	Class   string    `json:"class,omitempty"`
	Code    string    `json:"code,omitempty"`
	Message []byte    `json:"message,omitempty"`
	Raw     []byte    `json:"raw,omitzero"`
	Schema  int       `json:"schema,omitempty"`
	Op      record.Op `json:"op,omitempty"`
	Before  []byte    `json:"before,omitzero"`
	Step    int       `json:"step,omitempty"`
}

// encoder collects what an item becomes.
type encoder struct {
	schemas *Schemas
	frame   *Frame
	meta    meta
}

// Encode makes a frame of an item for the lanes of these names; nil: for all.
func (s *Schemas) Encode(it Item, to []string) (*Frame, error) {
	e := &encoder{schemas: s, frame: new(Frame)}
	e.meta.To = to
	if it.Batch == nil {
		e.meta.Mark, e.meta.Complete = true, it.Complete
	} else if err := e.batch(it.Batch, it.Ledger); err != nil {
		return nil, err
	}
	var err error
	if e.frame.meta, err = json.Marshal(&e.meta); err != nil {
		return nil, fmt.Errorf("encoding a batch: %w", err)
	}
	return e.frame, nil
}

func (e *encoder) batch(b *record.Batch, ledger string) (err error) {
	if b.Encoded != nil {
		return errors.New("rows in a source's own encoding have to be decoded before")
	}
	m := &e.meta
	m.Rows, m.Memory, m.Changes = int64(b.NumRows()), b.Bytes(), int64(b.Changes)
	m.Truncate, m.Size, m.Position, m.Ledger = b.Truncate, b.Size, positionOf(b.Position), []byte(ledger)
	if b.Schema != nil {
		m.Dataset = b.Schema.Dataset
		if m.Schema, err = e.schema(b.Schema); err != nil {
			return err
		}
	}
	if b.Txns != nil {
		m.Txns = make([]txn, len(b.Txns))
	}
	for i, t := range b.Txns {
		m.Txns[i] = txn{Rows: t.Rows, Position: positionOf(t.Position)}
		if !t.Time.IsZero() {
			m.Txns[i].Time = &instant{t.Time.Unix(), t.Time.Nanosecond()}
		}
	}
	if m.Rejects, err = e.rejects(b.Rejects); err != nil {
		return err
	}
	if c := b.Chunk; c != nil {
		m.Chunk = &chunk{Dataset: c.Dataset, From: c.From, To: c.To, Where: c.Where, Snapshot: positionOf(c.Snapshot)}
		if c.Keys != nil {
			m.Chunk.Keys = make([][]byte, len(c.Keys))
		}
		for i, k := range c.Keys {
			m.Chunk.Keys[i] = k
		}
	}
	m.Ops = countOps(b)
	return e.sections(b)
}

func countOps(b *record.Batch) map[string]int64 {
	n := b.NumRows()
	if n == 0 {
		return nil
	}
	if b.Ops == nil {
		return map[string]int64{record.Insert.String(): int64(n)}
	}
	var byOp [256]int64
	for _, op := range b.Ops {
		byOp[op]++
	}
	out := map[string]int64{}
	for op, n := range byOp {
		if n > 0 {
			out[record.Op(op).String()] = n
		}
	}
	return out
}

// schema returns the place of a schema in the frame's list, from 1.
func (e *encoder) schema(s *record.Schema) (int, error) {
	known, err := e.schemas.of(s)
	if err != nil {
		return 0, err
	}
	return e.place(known), nil
}

func (e *encoder) place(s *Schema) int {
	if i := slices.Index(e.frame.schemas, s); i >= 0 {
		return i + 1
	}
	e.frame.schemas = append(e.frame.schemas, s)
	return len(e.frame.schemas)
}

func (e *encoder) rejects(in []record.Reject) ([]reject, error) {
	if in == nil {
		return nil, nil
	}
	out := make([]reject, len(in))
	for i, r := range in {
		out[i] = reject{
			Dataset: r.Dataset, Line: r.Line, Offset: r.Offset, Key: r.Key, Column: r.Column, Value: []byte(r.Value), Class: r.Class,
			Code: r.Code, Message: []byte(r.Message), Raw: r.Raw, Op: r.Op, Before: r.Before, Step: r.Step,
		}
		if r.Schema != nil {
			var err error
			if out[i].Schema, err = e.schema(r.Schema); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (e *encoder) sections(b *record.Batch) error {
	if b.Ops != nil {
		ops := make([]byte, len(b.Ops))
		for i, op := range b.Ops {
			ops[i] = byte(op)
		}
		e.section(section{Kind: sectionOps}, ops)
	}
	if b.Unchanged != nil && len(b.Unchanged) == 0 {
		e.section(section{Kind: sectionNoBitmaps}, nil)
	}
	columns := make([]int, 0, len(b.Unchanged))
	for c := range b.Unchanged {
		columns = append(columns, c)
	}
	slices.Sort(columns)
	for _, c := range columns {
		bitmap := make([]byte, 0, 8*len(b.Unchanged[c])) //nolint:mnd // bytes of a word
		for _, word := range b.Unchanged[c] {
			bitmap = binary.LittleEndian.AppendUint64(bitmap, word)
		}
		e.section(section{Kind: sectionUnchanged, Column: c}, bitmap)
	}
	if err := e.rows(sectionRows, b, b.Rows); err != nil {
		return err
	}
	return e.rows(sectionOld, b, b.Old)
}

func (e *encoder) section(s section, data []byte) {
	s.Bytes = len(data)
	e.meta.Sections = append(e.meta.Sections, s)
	e.frame.body = append(e.frame.body, data)
	e.frame.size += len(data)
}

func (e *encoder) rows(kind string, b *record.Batch, rec arrow.RecordBatch) error {
	if rec == nil {
		return nil
	}
	s, err := e.schemas.ofRows(b.Schema, rec.Schema())
	if err != nil {
		return err
	}
	data, err := arrowipc.AppendRecord(nil, rec)
	if err != nil {
		return err //nolint:wrapcheck // says it all
	}
	e.section(section{Kind: kind, Schema: e.place(s)}, data)
	return nil
}

// decode reads the rest of an item whose meta is known.
func (m *meta) item(body []byte, schemas []*Schema) (Item, error) {
	if m.Mark {
		return Item{Complete: m.Complete}, nil
	}
	b := &record.Batch{
		Truncate: m.Truncate, Changes: int(m.Changes), Size: m.Size, Position: m.Position.record(),
	}
	if m.Schema > 0 {
		s, err := schemaAt(schemas, m.Schema)
		if err != nil {
			return Item{}, err
		}
		b.Schema = s.record
	}
	if m.Txns != nil {
		b.Txns = make([]record.Txn, len(m.Txns))
	}
	for i, t := range m.Txns {
		b.Txns[i] = record.Txn{Rows: t.Rows, Position: t.Position.record()}
		if t.Time != nil {
			b.Txns[i].Time = time.Unix(t.Time.Seconds, int64(t.Time.Nanos)).UTC()
		}
	}
	if err := m.decodeRejects(b, schemas); err != nil {
		return Item{}, err
	}
	if c := m.Chunk; c != nil {
		b.Chunk = &record.Chunk{Dataset: c.Dataset, From: c.From, To: c.To, Where: c.Where, Snapshot: c.Snapshot.record()}
		if c.Keys != nil {
			b.Chunk.Keys = make([]json.RawMessage, len(c.Keys))
		}
		for i, k := range c.Keys {
			b.Chunk.Keys[i] = k
		}
	}
	if err := m.decodeSections(b, body, schemas); err != nil {
		return Item{}, err
	}
	return Item{Batch: b, Ledger: string(m.Ledger)}, m.check(b)
}

func (m *meta) decodeRejects(b *record.Batch, schemas []*Schema) error {
	if m.Rejects != nil {
		b.Rejects = make([]record.Reject, len(m.Rejects))
	}
	for i, r := range m.Rejects {
		b.Rejects[i] = record.Reject{
			Dataset: r.Dataset, Line: r.Line, Offset: r.Offset, Key: r.Key, Column: r.Column, Value: string(r.Value), Class: r.Class,
			Code: r.Code, Message: string(r.Message), Raw: r.Raw, Op: r.Op, Before: r.Before, Step: r.Step,
		}
		if r.Schema > 0 {
			s, err := schemaAt(schemas, r.Schema)
			if err != nil {
				return err
			}
			b.Rejects[i].Schema = s.record
		}
	}
	return nil
}

func schemaAt(schemas []*Schema, i int) (*Schema, error) {
	if i < 1 || i > len(schemas) {
		return nil, fmt.Errorf("schema %d of %d", i, len(schemas))
	}
	return schemas[i-1], nil
}

func (m *meta) decodeSections(b *record.Batch, body []byte, schemas []*Schema) (err error) {
	for _, s := range m.Sections {
		if s.Bytes < 0 || s.Bytes > len(body) {
			return fmt.Errorf("a section of %d bytes, and %d are there", s.Bytes, len(body))
		}
		data := body[:s.Bytes]
		body = body[s.Bytes:]
		switch s.Kind {
		case sectionOps:
			b.Ops = make([]record.Op, len(data))
			for i, op := range data {
				b.Ops[i] = record.Op(op)
			}
		case sectionNoBitmaps:
			b.Unchanged = map[int][]uint64{}
		case sectionUnchanged:
			if b.Unchanged == nil {
				b.Unchanged = map[int][]uint64{}
			}
			words := make([]uint64, len(data)/8)
			for i := range words {
				words[i] = binary.LittleEndian.Uint64(data[8*i:])
			}
			b.Unchanged[s.Column] = words
		case sectionRows:
			b.Rows, err = readRows(data, s, schemas)
		case sectionOld:
			b.Old, err = readRows(data, s, schemas)
		default:
			err = fmt.Errorf("a section of kind %q", s.Kind)
		}
		if err != nil {
			return err
		}
	}
	if len(body) > 0 {
		return fmt.Errorf("%d bytes behind the last section", len(body))
	}
	return nil
}

func readRows(data []byte, s section, schemas []*Schema) (arrow.RecordBatch, error) {
	schema, err := schemaAt(schemas, s.Schema)
	if err != nil {
		return nil, err
	}
	return schema.read(data)
}

// check refuses what would make a reader of the batch stumble.
func (m *meta) check(b *record.Batch) error {
	n := b.NumRows()
	if b.Ops != nil && b.Rows != nil && len(b.Ops) != n {
		return fmt.Errorf("%d operations for %d rows", len(b.Ops), n)
	}
	if b.Old != nil && int(b.Old.NumRows()) != n {
		return fmt.Errorf("%d images before for %d rows", b.Old.NumRows(), n)
	}
	for c, words := range b.Unchanged {
		if b.Rows != nil && (c < 0 || c >= int(b.Rows.NumCols()) || len(words) < (n+63)/64) {
			return fmt.Errorf("a bitmap of %d words for column %d", len(words), c)
		}
	}
	if m.Rows != int64(n) {
		return errors.New("the number of rows is not the one that is said")
	}
	return nil
}

func (m *meta) about() About {
	return About{
		To: m.To, Complete: m.Mark, Dataset: m.Dataset, Rows: m.Rows, Changes: m.Changes, Bytes: m.Memory,
		Position: m.Position.record(), Ledger: string(m.Ledger), Ops: m.Ops,
	}
}
