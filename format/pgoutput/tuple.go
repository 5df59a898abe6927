package pgoutput

import (
	"encoding/binary"
	"fmt"
)

// Kinds of a tuple's values.
const (
	kindNull      = 'n'
	kindUnchanged = 'u' // the value is stored out of line and did not change: it was not sent
	kindText      = 't'
	kindBinary    = 'b'
)

// Tuple is the values of a row as they came. It is a part of the message, and valid as long as that.
type Tuple struct {
	n    int
	data []byte // kind, and for text and binary the length in 4 bytes and the value; for each column
}

// Len returns the number of columns.
func (t Tuple) Len() int { return t.n }

// Value returns the kind of column i, from 0 to Len-1: 'n' null, 'u' unchanged and not sent, 't' text, 'b' binary; and for text and
// binary the value. It walks over the columns before i.
func (t Tuple) Value(i int) (kind byte, value []byte) {
	c := cursor(t.data)
	for range i + 1 {
		kind, value = c.next()
	}
	return kind, value
}

// cursor walks over the values of a tuple that was checked.
type cursor []byte

func (c *cursor) next() (kind byte, value []byte) {
	p := *c
	kind = p[0]
	if kind != kindText && kind != kindBinary {
		*c = p[1:]
		return kind, nil
	}
	end := 5 + int(binary.BigEndian.Uint32(p[1:]))
	*c = p[end:]
	return kind, p[5:end]
}

// Change is an insert, update or delete: see Insert, Update, Delete for the meaning of the fields.
type Change struct {
	Kind          byte // 'I', 'U', 'D'
	OldKind       byte
	XID, Relation uint32
	Old, New      Tuple
}

func (c *Change) message() Message {
	switch c.Kind {
	case 'I':
		return Insert{XID: c.XID, Relation: c.Relation, New: c.New}
	case 'U':
		return Update{XID: c.XID, Relation: c.Relation, OldKind: c.OldKind, Old: c.Old, New: c.New}
	default:
		return Delete{XID: c.XID, Relation: c.Relation, OldKind: c.OldKind, Old: c.Old}
	}
}

// ParseChange is Parse for inserts, updates and deletes; it allocates nothing. It returns false for other messages, which Parse reads.
func ParseChange(data []byte, inStream bool) (c Change, ok bool, err error) {
	if len(data) == 0 {
		return c, false, nil
	}
	c.Kind = data[0]
	if c.Kind != 'I' && c.Kind != 'U' && c.Kind != 'D' {
		return Change{}, false, nil
	}
	if err := c.parse(data[1:], inStream); err != nil {
		return Change{}, false, fmt.Errorf("message %q of %d bytes: %w", data[0], len(data), err)
	}
	return c, true, nil
}

func (c *Change) parse(p []byte, inStream bool) (err error) {
	if inStream {
		if len(p) < 4 {
			return errShort
		}
		c.XID = binary.BigEndian.Uint32(p)
		p = p[4:]
	}
	if len(p) < 5 {
		return errShort
	}
	c.Relation = binary.BigEndian.Uint32(p)
	p = p[4:]
	if old := p[0]; c.Kind != 'I' && (old == 'K' || old == 'O') {
		c.OldKind = old
		if c.Old, p, err = parseTuple(p[1:]); err != nil {
			return err
		}
	}
	if c.Kind == 'D' {
		if c.OldKind == 0 {
			return errOldTuple
		}
	} else {
		if len(p) == 0 || p[0] != 'N' {
			return errNewTuple
		}
		if c.New, p, err = parseTuple(p[1:]); err != nil {
			return err
		}
	}
	if len(p) > 0 {
		return errLong
	}
	return nil
}

// parseTuple checks the tuple at the beginning of p, and returns it and what is behind it.
func parseTuple(p []byte) (t Tuple, rest []byte, err error) {
	if len(p) < 2 {
		return t, nil, errShort
	}
	t.n = int(int16(binary.BigEndian.Uint16(p)))
	if t.n < 0 {
		return t, nil, errColumns
	}
	p = p[2:]
	at := 0
	for range t.n {
		if at >= len(p) {
			return t, nil, errShort
		}
		kind := p[at]
		at++
		if kind == kindText || kind == kindBinary {
			if len(p)-at < 4 {
				return t, nil, errShort
			}
			size := uint64(binary.BigEndian.Uint32(p[at:]))
			if at += 4; size > uint64(len(p)-at) {
				return t, nil, errShort
			}
			at += int(size)
		} else if kind != kindNull && kind != kindUnchanged {
			return t, nil, fmt.Errorf("a value of the unknown kind %q", kind)
		}
	}
	t.data = p[:at:at]
	return t, p[at:], nil
}
