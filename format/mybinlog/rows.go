package mybinlog

import "math/bits"

// Action is what happened to rows.
type Action uint8

// The actions.
const (
	Insert Action = iota
	Update
	Delete
)

// RowsEvent is rows of one table, which a TableMap before it describes.
type RowsEvent struct {
	Table   uint64 // TableMap.ID
	Action  Action
	Last    bool // the last ones of a statement: descriptions end here
	Columns int
	Present []byte // bitmap: columns that the image has; of an Update the one before
	After   []byte // of an Update: those of the image after it
	Partial bool   // JSON documents of images after may be changes of those before
	data    []byte
	counts  [2]int // columns of Present and After
}

// RowsAction says what a type of events does to rows; false: it has none.
func RowsAction(t Type) (Action, bool) {
	switch t { //nolint:exhaustive // all others have none
	case TypeInsert1, TypeInsert2, TypeMariaInsert1:
		return Insert, true
	case TypeUpdate1, TypeUpdate2, TypePartial, TypeMariaUpdate1:
		return Update, true
	case TypeDelete1, TypeDelete2, TypeMariaDelete1:
		return Delete, true
	}
	return 0, false
}

// ParseRowsTable reads only which table the rows of an event are of, and whether they are the last ones of a statement.
func ParseRowsTable(body []byte) (table uint64, last bool, err error) {
	r := reader{b: body}
	table = r.uint(6)
	return table, r.uint(2)&1 != 0, r.err()
}

// ParseRows reads the body of an event with rows.
func ParseRows(h Header, body []byte) (e RowsEvent, err error) {
	r := reader{b: body}
	e.Action, _ = RowsAction(h.Type)
	e.Table = r.uint(6)
	e.Last = r.uint(2)&1 != 0
	e.Partial = h.Type == TypePartial
	switch h.Type { //nolint:exhaustive // all others have nothing there
	case TypeInsert2, TypeUpdate2, TypeDelete2, TypePartial:
		r.take(int(r.uint(2)) - 2)
	}
	n := r.packed()
	if n > maxMetaColumns {
		return e, ErrShort
	}
	e.Columns = int(n)
	e.Present = r.take((e.Columns + 7) / 8)
	if e.Action == Update {
		e.After = r.take((e.Columns + 7) / 8)
	}
	e.data = r.b
	if err := r.err(); err != nil {
		return e, err
	}
	e.counts = [2]int{e.count(e.Present), e.count(e.After)}
	switch h.Type { //nolint:exhaustive // all others are not compressed
	case TypeMariaInsert1, TypeMariaUpdate1, TypeMariaDelete1:
		e.data, err = Inflate(e.data)
	}
	return e, err
}

// Has reports whether a bitmap has column i.
func Has(bitmap []byte, i int) bool { return bitmap[i>>3]>>(i&7)&1 == 1 }

// count returns how many columns a bitmap has. Bits behind the last column mean nothing.
func (e *RowsEvent) count(bitmap []byte) (n int) {
	for i, b := range bitmap {
		if i == len(bitmap)-1 && e.Columns%8 != 0 {
			b &= 1<<(e.Columns%8) - 1
		}
		n += bits.OnesCount8(b)
	}
	return n
}

// Complete reports whether the images before and after have all columns.
func (e *RowsEvent) Complete() (before, after bool) {
	return e.counts[0] == e.Columns, e.counts[1] == e.Columns
}

// Value is one value of an image.
type Value struct {
	Bytes  []byte // as the log has it, without its length
	State  State
	Column int
}

// State says what an image has of a value.
type State uint8

// The states.
const (
	Absent  State = iota // the image leaves the column out
	Null                 // it is NULL
	Given                // Bytes is the value
	Patched              // Bytes are changes of the JSON document of the image before
)

// Image reads the next image into values, one for each column; after: it is the second one of an Update. It returns false where there
// is none left.
func (e *RowsEvent) Image(m *TableMap, after bool, values []Value) (more bool, err error) {
	if len(e.data) == 0 {
		return false, nil
	}
	if len(m.Columns) != e.Columns || len(values) != e.Columns {
		return false, ErrShort
	}
	present, count := e.Present, e.counts[0]
	if after {
		present, count = e.After, e.counts[1]
	}
	r := reader{b: e.data}
	var patched []byte
	if after && e.Partial && r.packed()&1 != 0 {
		n := 0
		for i := range m.Columns {
			if m.Columns[i].Kind == KindJSON {
				n++
			}
		}
		patched = r.take((n + 7) / 8)
	}
	nulls := r.take((count + 7) / 8)
	if r.bad {
		return false, ErrShort
	}
	at, document := 0, 0
	for i := range m.Columns {
		c, v := &m.Columns[i], &values[i]
		*v = Value{Column: i}
		isPatch := false
		if c.Kind == KindJSON && patched != nil {
			isPatch = Has(patched, document)
			document++
		}
		if !Has(present, i) {
			continue
		}
		null := Has(nulls, at)
		at++
		if null {
			v.State = Null
			continue
		}
		v.State = Given
		switch {
		case isPatch:
			v.State = Patched
			v.Bytes = r.take(int(r.uint(4)))
		default:
			v.Bytes = r.take(c.size(&r))
		}
		if r.bad {
			return false, ErrShort
		}
	}
	e.data = r.b
	return true, nil
}

// Sizes of the parts of a second, by digits.
func fractionSize(digits uint16) int { return int(digits+1) / 2 }

// size reads how many bytes a value has, if that stands in front of it.
func (c *MapColumn) size(r *reader) int {
	switch c.Kind {
	case KindTiny, KindYear:
		return 1
	case KindShort:
		return 2
	case KindInt24, KindDate, KindTime:
		return 3
	case KindLong, KindFloat, KindTimestamp:
		return 4
	case KindLongLong, KindDouble, KindDatetime:
		return 8
	case KindTimestamp2:
		return 4 + fractionSize(c.Meta)
	case KindDatetime2:
		return 5 + fractionSize(c.Meta)
	case KindTime2:
		return 3 + fractionSize(c.Meta)
	case KindNewDecimal:
		precision, scale := int(c.Meta>>8), int(c.Meta&0xff)
		if scale > precision {
			return -1
		}
		return DecimalSize(precision, scale)
	case KindBit:
		n := int(c.Meta >> 8)
		if c.Meta&0xff > 0 {
			n++
		}
		return n
	case KindEnum, KindSet:
		return int(c.Meta)
	case KindVarchar, KindVarString, KindString, KindVarcharCompressed:
		if c.Meta > 255 {
			return int(r.uint(2))
		}
		return int(r.uint(1))
	case KindBlob, KindGeometry, KindJSON, KindVector, KindBlobCompressed:
		return int(r.uint(int(c.Meta)))
	case KindNull:
		return 0
	case KindTinyBlob, KindMediumBlob, KindLongBlob:
	}
	return -1
}
