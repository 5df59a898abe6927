package debezium

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/record"
)

// Options are what the events say about where they come from.
type Options struct {
	Name     string // the logical name, which is the prefix of topics
	Database string // empty: the first of three parts of a dataset's name, else none is known
	Version  string // empty: leat
	// Connector is the kind of source; empty: as the columns say (postgres is postgresql), or leat.
	Connector string
	Now       func() time.Time // when an event is made; nil: events without that time
}

// Encoder encodes events. It is used by one goroutine at a time.
type Encoder struct {
	opts   Options
	schema *record.Schema
	fields []field // of the schema's columns
	head   []byte  // the source object, up to the times
	db     []byte  // its database
	table  []byte  // its schema and table

	schemas   bool   // messages have schemas, as those of Connect's JSON converter
	keyHead   []byte // of a message with a schema: all in front of the key
	valueHead []byte // likewise

	batch  *record.Batch
	source []byte      // the source object of the events of txn, or of rows that were read
	txn    *record.Txn // nil: none
	read   bool
}

// field is a column: its name as the key of an object, and how its values are printed.
type field struct {
	name []byte // with the colon
	put  printer
	kept []byte // stands for a value that the source did not send
}

// point is what positions of Postgres tell; other sources may have it too.
type point struct {
	lsn, xid       uint64
	hasLSN, hasXID bool
}

// New returns an encoder.
func New(o Options) *Encoder {
	if o.Version == "" {
		o.Version = "leat"
	}
	return &Encoder{opts: o}
}

// Events yields the messages of a batch that changelog.Check accepts, in order. Values that the source did not send have a placeholder,
// but for those that changelog.Complete has filled in before.
func (e *Encoder) Events(b *record.Batch) iter.Seq[Event] {
	e.bind(b)
	return events(b)
}

// unsentError says why an event can't be told: the source did not send a value, and nothing can stand for it.
type unsentError struct{ column string }

func (e unsentError) Error() string {
	return fmt.Sprintf("the source did not send the value of column %q, and nothing can stand for it where schemas say what values are: "+
		"make it send whole rows (Postgres: alter table … replica identity full), or say format=debezium", e.column)
}

// unsent returns an unsentError, or nil.
func unsent(b *record.Batch, ev Event, replaced func(col int) bool) error {
	if ev.Row < 0 || ev.Change.Op == changelog.Delete {
		return nil
	}
	for c := range b.Unchanged {
		if b.IsUnchanged(c, ev.Row) && !replaced(c) {
			return unsentError{b.Rows.ColumnName(c)}
		}
	}
	return nil
}

// bind prepares what is the same for all events of a schema.
func (e *Encoder) bind(b *record.Batch) {
	e.batch, e.txn, e.source = b, nil, e.source[:0]
	if b.Schema == e.schema {
		return
	}
	e.schema = b.Schema
	e.fields = make([]field, b.Schema.Columns.NumFields())
	for i, f := range b.Schema.Columns.Fields() {
		put, kept := printers{e.schemas}.of(f)
		e.fields[i] = field{append(record.AppendJSONString(nil, f.Name), ':'), put, kept}
	}
	e.head = record.AppendJSONString([]byte(`{"version":`), e.opts.Version)
	e.head = record.AppendJSONString(append(e.head, `,"connector":`...), e.connector(b.Schema))
	e.head = record.AppendJSONString(append(e.head, `,"name":`...), e.opts.Name)
	db, schema, table := e.place(b.Schema.Dataset)
	e.db = record.AppendJSONString([]byte(`,"db":`), db)
	e.table = record.AppendJSONString([]byte(`,"schema":`), schema)
	e.table = record.AppendJSONString(append(e.table, `,"table":`...), table)
	if e.schemas {
		e.bindSchemas()
	}
}

// bindSchemas prepares what stands in front of keys and values.
func (e *Encoder) bindSchemas() {
	name := e.prefix(e.schema)
	row := &connect.Schema{Type: connect.Struct, Name: name + ".Value", Optional: true}
	key := &connect.Schema{Type: connect.Struct, Name: name + ".Key"}
	for i, f := range e.schema.Columns.Fields() {
		s := exactSchema(f)
		s.Optional = !slices.Contains(e.schema.Key, i)
		row.Fields = append(row.Fields, connect.Field{Name: f.Name, Schema: s})
	}
	for _, k := range e.schema.Key {
		key.Fields = append(key.Fields, row.Fields[k])
	}
	env := envelopeSchema(row, name, "io.debezium.connector."+e.connector(e.schema)+".Source")
	e.keyHead = append(key.AppendJSON([]byte(`{"schema":`)), `,"payload":`...)
	e.valueHead = append(env.AppendJSON([]byte(`{"schema":`)), `,"payload":`...)
}

// prefix is the beginning of the names of schemas.
func (e *Encoder) prefix(s *record.Schema) string {
	return strings.TrimPrefix(strings.Join(append([]string{e.opts.Name}, record.SplitName(s.Dataset)...), "."), ".")
}

func (e *Encoder) connector(s *record.Schema) string {
	if e.opts.Connector != "" {
		return e.opts.Connector
	}
	for _, f := range s.Columns.Fields() {
		switch system := record.NativeOf(f).System; system {
		case "":
		case "postgres":
			return "postgresql"
		default:
			return system
		}
	}
	return "leat"
}

// place takes the name of a dataset apart.
func (e *Encoder) place(dataset string) (db, schema, table string) {
	parts := record.SplitName(dataset)
	table = parts[len(parts)-1]
	if len(parts) > 1 {
		schema = parts[len(parts)-2]
	}
	db = e.opts.Database
	if db == "" && len(parts) > 2 {
		db = strings.Join(parts[:len(parts)-2], ".")
	}
	return db, schema, table
}

// AppendKey appends the key of the message: an object of the key columns, or null where there is no key.
func (e *Encoder) AppendKey(dst []byte, ev Event) []byte {
	if len(e.schema.Key) == 0 || ev.Row < 0 {
		return append(dst, "null"...)
	}
	rows := ev.Batch.Rows
	if ev.side == removal {
		rows = ev.Batch.Old
	}
	if e.schemas {
		return append(e.object(append(dst, e.keyHead...), rows, ev.Row, e.schema.Key, false), '}')
	}
	return e.object(dst, rows, ev.Row, e.schema.Key, false)
}

// AppendValue appends the envelope.
func (e *Encoder) AppendValue(dst []byte, ev Event) []byte {
	if e.schemas {
		return append(e.envelope(append(dst, e.valueHead...), ev), '}')
	}
	return e.envelope(dst, ev)
}

func (e *Encoder) envelope(dst []byte, ev Event) []byte {
	dst = e.before(append(dst, `{"before":`...), ev)
	dst = append(dst, `,"after":`...)
	if after := ev.After(); after != nil && ev.side != removal {
		dst = e.object(dst, after, ev.Row, nil, true)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(append(dst, `,"source":`...), e.sourceOf(ev)...)
	dst = append(append(dst, `,"transaction":null,"op":"`...), ev.Op(), '"')
	if e.opts.Now != nil {
		dst = appendTimes(dst, e.opts.Now())
	}
	return append(dst, '}')
}

func (e *Encoder) before(dst []byte, ev Event) []byte {
	rows, extent := ev.Before()
	if extent == changelog.Nothing || ev.side == arrival {
		return append(dst, "null"...)
	}
	var cols []int
	if extent == changelog.Key {
		cols = e.schema.Key
	}
	return e.object(dst, rows, ev.Row, cols, false)
}

// object appends columns of a row: those of cols, or all where it is nil. after: the row may lack values that the source did not send.
func (e *Encoder) object(dst []byte, rows arrow.RecordBatch, i int, cols []int, after bool) []byte {
	dst = append(dst, '{')
	for n := range len(e.fields) {
		c := n
		if cols != nil {
			if n == len(cols) {
				break
			}
			c = cols[n]
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		f := &e.fields[c]
		dst = append(dst, f.name...)
		if after && e.batch.IsUnchanged(c, i) {
			dst = append(dst, f.kept...)
			continue
		}
		dst = appendValue(dst, rows.Column(c), i, f.put)
	}
	return append(dst, '}')
}

// sourceOf is the source object of an event.
func (e *Encoder) sourceOf(ev Event) []byte {
	read := ev.Op() == byte(changelog.Read)
	if len(e.source) > 0 && ev.Txn == e.txn && read == e.read {
		return e.source
	}
	e.txn, e.read = ev.Txn, read
	var at point
	var when time.Time
	switch {
	case ev.Txn != nil:
		at, when = pointOf(ev.Txn.Position), ev.Txn.Time
	case ev.Batch.Chunk != nil:
		at = pointOf(ev.Batch.Chunk.Snapshot)
		at.hasXID = false // of the reader, not of a change
	}
	switch {
	case !when.IsZero():
	case e.opts.Now != nil:
		when = e.opts.Now()
	case e.schemas: // which say that there is a time
		when = time.Unix(0, 0)
	}
	out := append(e.source[:0], e.head...)
	if !when.IsZero() {
		out = appendTimes(out, when)
	}
	out = append(strconv.AppendBool(append(out, `,"snapshot":"`...), read), '"')
	out = append(append(out, e.db...), `,"sequence":`...)
	if at.hasLSN {
		out = append(strconv.AppendUint(append(out, `"[null,\"`...), at.lsn, 10), `\"]"`...)
	} else {
		out = append(out, "null"...)
	}
	out = append(out, e.table...)
	out = appendKnown(append(out, `,"txId":`...), at.xid, at.hasXID)
	out = appendKnown(append(out, `,"lsn":`...), at.lsn, at.hasLSN)
	e.source = append(out, `,"xmin":null}`...)
	return e.source
}

func appendKnown(dst []byte, n uint64, known bool) []byte {
	if !known {
		return append(dst, "null"...)
	}
	return strconv.AppendUint(dst, n, 10)
}

// appendTimes appends a time in three precisions.
func appendTimes(dst []byte, t time.Time) []byte {
	dst = strconv.AppendInt(append(dst, `,"ts_ms":`...), t.UnixMilli(), 10)
	dst = strconv.AppendInt(append(dst, `,"ts_us":`...), t.UnixMicro(), 10)
	return strconv.AppendInt(append(dst, `,"ts_ns":`...), t.UnixNano(), 10)
}

// pointOf finds the keys lsn and xid in a position: a log position as 16/B374D848 or as a number.
func pointOf(p record.Position) point {
	var doc struct {
		LSN json.RawMessage `json:"lsn"`
		XID json.RawMessage `json:"xid"`
	}
	if json.Unmarshal(p.Data, &doc) != nil {
		return point{} // another source's
	}
	var out point
	out.lsn, out.hasLSN = number(doc.LSN)
	out.xid, out.hasXID = number(doc.XID)
	return out
}

// number reads a number, or text with one, or two in hexadecimal with a slash between.
func number(raw json.RawMessage) (uint64, bool) {
	text := strings.Trim(string(raw), `"`)
	if high, low, ok := strings.Cut(text, "/"); ok {
		h, errH := strconv.ParseUint(high, 16, 32)
		l, errL := strconv.ParseUint(low, 16, 32)
		return h<<32 | l, errH == nil && errL == nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}
