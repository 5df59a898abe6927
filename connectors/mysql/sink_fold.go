package mysql

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector/fold"
	"github.com/leatdata/leat/record"
)

// keyedRows are the rows of a batch, and those before them, as literals.
type keyedRows struct {
	p    *plan
	b    *record.Batch
	rows rowCells // of all columns
	was  rowCells // the same of the images before; nil: there are none
}

func newKeyedRows(p *plan, b *record.Batch) (*keyedRows, error) {
	m := &keyedRows{p: p, b: b}
	var err error
	if m.rows, err = p.bind(b.Rows, false); err != nil || b.Old == nil {
		return m, err
	}
	m.was, err = p.bind(b.Old, true)
	return m, err
}

// prefix returns what puts changes in the order of the key, as far as its first column is a number: neighbours share the pages of an
// index, and of the table. Texts come in the order of their bytes.
func (m *keyedRows) prefix() func(ch *fold.Change) uint64 {
	const sign = 1 << 63
	col := m.p.schema.Key[0]
	rows, old := m.b.Rows.Column(col), m.b.Rows.Column(col)
	if m.b.Old != nil {
		old = m.b.Old.Column(col)
	}
	image := func(ch *fold.Change) arrow.Array {
		if ch.Key.Old {
			return old
		}
		return rows
	}
	return func(ch *fold.Change) uint64 {
		switch a := image(ch).(type) {
		case *array.Int64:
			return uint64(a.Value(ch.Key.Row)) ^ sign
		case *array.Int32:
			return uint64(a.Value(ch.Key.Row)) ^ sign
		case *array.Uint64:
			return a.Value(ch.Key.Row)
		}
		var head [8]byte
		copy(head[:], ch.ID)
		return binary.BigEndian.Uint64(head[:])
	}
}

// AppendID implements fold.Images: the literals of a key are equal for equal keys.
func (m *keyedRows) AppendID(dst []byte, k fold.Key) ([]byte, error) {
	cells := m.rows
	if k.Old {
		cells = m.was
	}
	for n, at := range m.p.key {
		if cells[at].arr.IsNull(k.Row) {
			return dst, fold.NullKeyError{Column: cells[at].name}
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		from := len(dst)
		var err error
		if dst, err = cells[at].literal(dst, k.Row); err != nil {
			return dst, err
		}
		if string(dst[from:]) == minusZero {
			dst = append(dst[:from], "0e+00"...)
		}
	}
	return dst, nil
}

// Fields implements fold.Images.
func (m *keyedRows) Fields(at fold.Place) ([][]byte, error) {
	i, old := at.Row()
	cells := m.rows
	if old {
		cells = m.was
	}
	out := make([][]byte, len(cells))
	for n, cell := range cells {
		var err error
		if out[n], err = cell.loose(nil, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Has implements fold.Refused.
func (l load) Has(i int) bool { return l.bad.has(i) }

// Add implements fold.Refused.
func (l load) Add(i int, err error) { l.bad.add(l.b, i, err) }
