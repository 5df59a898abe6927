package postgres

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/fold"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// keyedRows are the rows of a batch, and those before them, as a COPY has them.
type keyedRows struct {
	p    *plan
	b    *record.Batch
	keys *pgcopy.Rows
	olds *pgcopy.Rows // nil: no images before
	rows *pgcopy.Rows // all columns
	was  *pgcopy.Rows // the same of the images before
}

func newKeyedRows(p *plan, b *record.Batch) (*keyedRows, error) {
	m := &keyedRows{p: p, b: b}
	var err error
	if m.keys, err = p.keyEnc.Bind(p.pickKey(b.Rows)); err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	if m.rows, err = p.enc.Bind(p.pick(b.Rows)); err != nil {
		return nil, fmt.Errorf("reading the rows: %w", err)
	}
	if b.Old == nil {
		return m, nil
	}
	if m.olds, err = p.keyEnc.Bind(p.pickKey(b.Old)); err != nil {
		return nil, fmt.Errorf("reading the old key: %w", err)
	}
	if m.was, err = p.enc.Bind(p.pick(b.Old)); err != nil {
		return nil, fmt.Errorf("reading the images before: %w", err)
	}
	return m, nil
}

// prefix puts changes in the order of the key's index, for keys whose bytes tell it: neighbours share the index's pages, and often the
// table's. Negative numbers come last; that does no harm.
func prefix(ch *fold.Change) uint64 {
	const head = 6 // count and length are the same in all
	var first [8]byte
	copy(first[:], ch.ID[head:])
	return binary.BigEndian.Uint64(first[:])
}

// image returns the record batch that a key stands in.
func (m *keyedRows) image(k fold.Key) arrow.RecordBatch {
	if k.Old {
		return m.b.Old
	}
	return m.b.Rows
}

// appendKey appends a key's bytes, as a COPY has them.
func (m *keyedRows) appendKey(dst []byte, k fold.Key) ([]byte, error) {
	rows := m.keys
	if k.Old {
		rows = m.olds
	}
	return rows.AppendRow(dst, k.Row) //nolint:wrapcheck // a *pgcopy.ValueError names row and column
}

// AppendID implements fold.Images.
func (m *keyedRows) AppendID(dst []byte, k fold.Key) ([]byte, error) {
	rb := m.image(k)
	for _, col := range m.p.schema.Key {
		if rb.Column(col).IsNull(k.Row) {
			return dst, fold.NullKeyError{Column: rb.ColumnName(col)}
		}
	}
	if m.p.same == nil {
		return m.appendKey(dst, k)
	}
	key, err := m.appendKey(nil, k)
	if err != nil {
		return dst, err
	}
	for n, field := range fields(key) {
		if canonical := m.p.same[n]; canonical != nil {
			col := rb.Column(m.p.schema.Key[n])
			field = []byte(canonical(string(record.AppendText(nil, col, k.Row))) + "\x00")
		}
		dst = append(dst, field...)
	}
	return dst, nil
}

// Fields implements fold.Images: each has its length in front.
func (m *keyedRows) Fields(at fold.Place) ([][]byte, error) {
	i, old := at.Row()
	rows := m.rows
	if old {
		rows = m.was
	}
	encoded, err := rows.AppendRow(nil, i)
	if err != nil {
		return nil, err //nolint:wrapcheck // a *pgcopy.ValueError names row and column
	}
	return fields(encoded), nil
}

// rejects are the rows of a batch that were refused so far.
type rejects map[int]connector.RowError

func (r rejects) has(i int) bool {
	_, ok := r[i]
	return ok
}

// Has implements fold.Refused.
func (l load) Has(i int) bool { return l.bad.has(i) }

// Add implements fold.Refused.
func (l load) Add(i int, err error) { l.bad.add(l.b, i, err) }
