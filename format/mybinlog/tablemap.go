package mybinlog

import "fmt"

// Kind is a column's type in the log.
type Kind uint8

// The kinds, with the numbers that both servers write.
const (
	KindTiny       Kind = 1
	KindShort      Kind = 2
	KindLong       Kind = 3
	KindFloat      Kind = 4
	KindDouble     Kind = 5
	KindNull       Kind = 6
	KindTimestamp  Kind = 7 // of old tables, as are Time and Datetime
	KindLongLong   Kind = 8
	KindInt24      Kind = 9
	KindDate       Kind = 10
	KindTime       Kind = 11
	KindDatetime   Kind = 12
	KindYear       Kind = 13
	KindVarchar    Kind = 15
	KindBit        Kind = 16
	KindTimestamp2 Kind = 17
	KindDatetime2  Kind = 18
	KindTime2      Kind = 19

	KindBlobCompressed    Kind = 140 // MariaDB
	KindVarcharCompressed Kind = 141 // MariaDB

	KindVector     Kind = 242
	KindJSON       Kind = 245
	KindNewDecimal Kind = 246
	KindEnum       Kind = 247
	KindSet        Kind = 248
	KindTinyBlob   Kind = 249
	KindMediumBlob Kind = 250
	KindLongBlob   Kind = 251
	KindBlob       Kind = 252
	KindVarString  Kind = 253
	KindString     Kind = 254
	KindGeometry   Kind = 255
)

// Numeric reports whether values have a sign, or might.
func (k Kind) Numeric() bool {
	switch k { //nolint:exhaustive // all others have none
	case KindTiny, KindShort, KindInt24, KindLong, KindLongLong, KindNewDecimal, KindFloat, KindDouble:
		return true
	}
	return false
}

// listed reports whether a column has a place in the list of signs: a year has one, too.
func (k Kind) listed() bool { return k.Numeric() || k == KindYear }

// character reports whether a column has a place in the lists of character sets.
func (k Kind) character(f Flavor) bool {
	switch k { //nolint:exhaustive // all others have none
	case KindString, KindVarString, KindVarchar, KindBlob, KindTinyBlob, KindMediumBlob, KindLongBlob, KindBlobCompressed,
		KindVarcharCompressed:
		return true
	case KindGeometry:
		return f == MariaDB
	}
	return false
}

// MapColumn is a column as the log describes it.
type MapColumn struct {
	Kind     Kind
	Meta     uint16 // length, precision, or what else the kind has
	Nullable bool
	Unsigned bool     // meaningful where TableMap.Signs
	Charset  uint16   // collation; 0: it does not say
	Name     string   // empty: it does not say
	Labels   [][]byte // of ENUM and SET, in the column's character set; nil: it does not say
}

// TableMap describes the table of the rows that follow.
type TableMap struct {
	ID       uint64
	Database string
	Table    string
	Columns  []MapColumn
	Signs    bool  // it says which columns are unsigned
	Named    bool  // it says the columns' names
	Key      []int // of the primary key; nil: it does not say, or there is none
}

// Kinds of what may follow a description.
const (
	optSigns          = 1
	optCharset        = 2
	optCharsets       = 3
	optNames          = 4
	optSetLabels      = 5
	optEnumLabels     = 6
	optKey            = 8
	optKeyPrefix      = 9
	optLabelCharset   = 10
	optLabelCharsets  = 11
	maxMetaColumns    = 1 << 14 // more than any table has
	stringIsLongShift = 4
	stringIsLongMask  = 0x30
)

// ParseTableMapName reads only which table the body of a TypeTableMap describes: what is enough where nobody wants its rows.
func ParseTableMapName(body []byte) (n TableName, err error) {
	r := reader{b: body}
	n.ID = r.uint(6)
	r.take(2)
	n.Database, n.Table = r.zeroEnded(), r.zeroEnded()
	return n, r.err()
}

// TableName is which table a number stands for.
type TableName struct {
	ID              uint64
	Database, Table []byte // valid as long as the event
}

// ParseTableMap reads the body of a TypeTableMap.
func ParseTableMap(f Flavor, body []byte) (*TableMap, error) {
	r := reader{b: body}
	m := &TableMap{ID: r.uint(6)}
	r.take(2)
	m.Database, m.Table = string(r.zeroEnded()), string(r.zeroEnded())
	n := r.count()
	if n > maxMetaColumns {
		return nil, ErrShort
	}
	m.Columns = make([]MapColumn, n)
	for i, k := range r.take(n) {
		m.Columns[i].Kind = Kind(k)
	}
	meta := reader{b: r.text()}
	for i := range m.Columns {
		if err := m.Columns[i].meta(&meta); err != nil {
			return nil, err
		}
	}
	nulls := r.take((n + 7) / 8)
	if meta.bad || r.bad {
		return nil, ErrShort
	}
	for i := range m.Columns {
		m.Columns[i].Nullable = nulls[i/8]>>(i%8)&1 == 1
	}
	for len(r.b) > 0 {
		kind := r.uint(1)
		m.optional(f, kind, &reader{b: r.text()})
		if r.bad {
			return nil, ErrShort
		}
	}
	return m, nil
}

// meta reads what a column's kind has besides. CHAR, ENUM and SET share one kind.
func (c *MapColumn) meta(r *reader) error {
	switch c.Kind {
	case KindFloat, KindDouble, KindBlob, KindGeometry, KindJSON, KindVector, KindTimestamp2, KindDatetime2, KindTime2, KindBlobCompressed:
		c.Meta = uint16(r.uint(1))
	case KindVarchar, KindVarString, KindBit, KindVarcharCompressed:
		c.Meta = uint16(r.uint(2))
	case KindNewDecimal:
		c.Meta = uint16(r.uint(1))<<8 | uint16(r.uint(1))
	case KindString:
		high, low := uint16(r.uint(1)), uint16(r.uint(1))
		switch k := Kind(high); {
		case k == KindEnum || k == KindSet:
			c.Kind, c.Meta = k, low
		case high&stringIsLongMask != stringIsLongMask: // a length above 255 has two of its bits there, inverted
			c.Meta = low | (high&stringIsLongMask^stringIsLongMask)<<stringIsLongShift
		default:
			c.Meta = low
		}
	case KindTiny, KindShort, KindInt24, KindLong, KindLongLong, KindNull, KindDate, KindTime, KindDatetime, KindTimestamp, KindYear:
	default: // those that only exist in memory too
		return fmt.Errorf("a column of the binary log has type %d, which is not known here", c.Kind)
	}
	return nil
}

// optional reads one of the things that follow a description. What is not known is left alone.
func (m *TableMap) optional(f Flavor, kind uint64, r *reader) {
	character := func(c *MapColumn) bool { return c.Kind.character(f) }
	labelled := func(c *MapColumn) bool { return c.Kind == KindEnum || c.Kind == KindSet }
	switch kind {
	case optSigns:
		m.Signs = true
		i := 0
		m.each(func(c *MapColumn) bool { return c.Kind.listed() }, func(c *MapColumn) {
			c.Unsigned = c.Kind.Numeric() && i/8 < len(r.b) && r.b[i/8]>>(7-i%8)&1 == 1
			i++
		})
	case optCharset:
		m.defaultCharset(character, r)
	case optLabelCharset:
		m.defaultCharset(labelled, r)
	case optCharsets:
		m.each(character, func(c *MapColumn) { c.Charset = uint16(r.packed()) })
	case optLabelCharsets:
		m.each(labelled, func(c *MapColumn) { c.Charset = uint16(r.packed()) })
	case optNames:
		m.each(nil, func(c *MapColumn) { c.Name = string(r.text()) })
		m.Named = !r.bad
	case optSetLabels:
		m.each(func(c *MapColumn) bool { return c.Kind == KindSet }, func(c *MapColumn) { c.Labels = r.labels() })
	case optEnumLabels:
		m.each(func(c *MapColumn) bool { return c.Kind == KindEnum }, func(c *MapColumn) { c.Labels = r.labels() })
	case optKey, optKeyPrefix:
		for len(r.b) > 0 {
			if at := int(r.packed()); at < len(m.Columns) {
				m.Key = append(m.Key, at)
			}
			if kind == optKeyPrefix {
				r.packed()
			}
		}
	}
}

func (m *TableMap) each(which func(*MapColumn) bool, do func(*MapColumn)) {
	for i := range m.Columns {
		if c := &m.Columns[i]; which == nil || which(c) {
			do(c)
		}
	}
}

// defaultCharset reads a collation, and pairs of a column, counted among those of its sort, and another collation.
func (m *TableMap) defaultCharset(which func(*MapColumn) bool, r *reader) {
	common := uint16(r.packed())
	other := map[int]uint16{}
	for len(r.b) > 0 {
		at := int(r.packed())
		other[at] = uint16(r.packed())
	}
	i := 0
	m.each(which, func(c *MapColumn) {
		c.Charset = common
		if v, ok := other[i]; ok {
			c.Charset = v
		}
		i++
	})
}

func (r *reader) labels() [][]byte {
	out := make([][]byte, r.count())
	for i := range out {
		out[i] = r.text()
	}
	return out
}
