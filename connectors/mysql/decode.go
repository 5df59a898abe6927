package mysql

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// errShape says that a table is no longer what the catalogue said of it.
var errShape = errors.New("the columns changed while it was being read")

// rowDecoder decodes rows of the binary protocol into a collector.
type rowDecoder struct {
	to    *collector
	texts map[uint16]collation // the server's collations; nil: not looked at
	types []byte               // of the columns, as the result describes them
}

// binaryCharset is the number of the character set of bytes.
const binaryCharset = 63

// describes checks that a result has the columns that are expected, and remembers their types.
func (d *rowDecoder) describes(cols []wireColumn) error {
	if len(cols) != len(d.to.cells) {
		return errShape
	}
	d.types = make([]byte, len(cols))
	for i, c := range cols {
		if !fits(d.to.cells[i].col, c) || !d.encoded(d.to.cells[i].col, c) {
			return fmt.Errorf("%w: column %q", errShape, d.to.cells[i].col.name)
		}
		d.types[i] = c.typ
	}
	return nil
}

// encoded reports whether the text of a result's column is in the character set of col.
func (d *rowDecoder) encoded(col *sourceColumn, c wireColumn) bool {
	if col.form != formText && col.form != formEnum && col.form != formSet {
		return true
	}
	found, ok := d.texts[c.charset]
	return !ok || found.charset == col.charset || (isUTF8(found.charset) && isUTF8(col.charset))
}

// fits reports whether the values of a result's column can be read in the form of col.
//
//nolint:cyclop // a table
func fits(col *sourceColumn, c wireColumn) bool {
	unsigned := c.flags&mysql.UNSIGNED_FLAG != 0
	switch c.typ {
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_LONGLONG:
		return integerFits(col, c.typ) && (col.form == formBool || (col.form == formInt && unsigned == col.unsigned))
	case mysql.MYSQL_TYPE_YEAR:
		return col.form == formYear
	case mysql.MYSQL_TYPE_FLOAT:
		return col.form == formFloat
	case mysql.MYSQL_TYPE_DOUBLE:
		return col.form == formDouble
	case mysql.MYSQL_TYPE_DECIMAL, mysql.MYSQL_TYPE_NEWDECIMAL:
		return col.form == formDecimal && int(c.decimals) == col.scale
	case mysql.MYSQL_TYPE_BIT:
		return (col.form == formBits && int(c.length) == col.length) || col.form == formBool
	case mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDATE:
		return col.form == formDate
	case mysql.MYSQL_TYPE_DATETIME:
		return col.form == formDateTime
	case mysql.MYSQL_TYPE_TIMESTAMP:
		return col.form == formTimestamp
	case mysql.MYSQL_TYPE_TIME:
		return col.form == formTime
	case mysql.MYSQL_TYPE_JSON:
		return col.form == formJSON
	case mysql.MYSQL_TYPE_GEOMETRY:
		return col.form == formGeometry
	case mysql.MYSQL_TYPE_VECTOR:
		return col.form == formVector
	}
	switch col.form { //nolint:exhaustive // all others have types of their own
	case formText, formEnum, formSet, formJSON, formUUID, formInet, formForeign:
		return c.charset != binaryCharset || col.form != formText
	case formBytes, formFixed, formVector:
		return c.charset == binaryCharset
	}
	return false
}

// integerFits reports whether the column's type is as wide as the values are.
func integerFits(col *sourceColumn, typ byte) bool {
	switch col.data {
	case "tinyint":
		return typ == mysql.MYSQL_TYPE_TINY
	case "smallint":
		return typ == mysql.MYSQL_TYPE_SHORT
	case "bigint":
		return true
	}
	return typ == mysql.MYSQL_TYPE_LONG || typ == mysql.MYSQL_TYPE_INT24
}

// nullOffset is where the bits of a row's NULLs begin.
const nullOffset = 2

// row decodes one row.
func (d *rowDecoder) row(p []byte) error {
	n := len(d.types)
	at := 1 + (n+nullOffset+7)/8
	if len(p) < at {
		return errPacket
	}
	nulls := p[1:at]
	d.to.begin()
	for i, typ := range d.types {
		c := d.to.cells[i]
		if bit := i + nullOffset; nulls[bit/8]>>(bit%8)&1 == 1 {
			c.null()
			continue
		}
		size, err := value(c, typ, p[at:])
		if err != nil {
			if size == 0 {
				return err
			}
			if err := d.to.refused(i, err); err != nil {
				return err
			}
		}
		at += size
	}
	d.to.end()
	return nil
}

// value decodes the value in front of p and returns its length; 0: p is no row.
func value(c *cell, typ byte, p []byte) (int, error) {
	switch typ {
	case mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_INT24:
		if len(p) < 4 {
			return 0, errPacket
		}
		return 4, c.integer(uint64(int64(int32(binary.LittleEndian.Uint32(p)))))
	case mysql.MYSQL_TYPE_LONGLONG:
		if len(p) < 8 {
			return 0, errPacket
		}
		return 8, c.integer(binary.LittleEndian.Uint64(p))
	case mysql.MYSQL_TYPE_TINY:
		if len(p) < 1 {
			return 0, errPacket
		}
		return 1, c.integer(uint64(int64(int8(p[0]))))
	case mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_YEAR:
		if len(p) < 2 {
			return 0, errPacket
		}
		v := binary.LittleEndian.Uint16(p)
		if typ == mysql.MYSQL_TYPE_YEAR {
			c.year(v)
			return 2, nil
		}
		return 2, c.integer(uint64(int64(int16(v))))
	case mysql.MYSQL_TYPE_FLOAT:
		if len(p) < 4 {
			return 0, errPacket
		}
		c.float(math.Float32frombits(binary.LittleEndian.Uint32(p)))
		return 4, nil
	case mysql.MYSQL_TYPE_DOUBLE:
		if len(p) < 8 {
			return 0, errPacket
		}
		c.double(math.Float64frombits(binary.LittleEndian.Uint64(p)))
		return 8, nil
	case mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDATE, mysql.MYSQL_TYPE_DATETIME, mysql.MYSQL_TYPE_TIMESTAMP:
		t, size, ok := wireMoment(p)
		if !ok {
			return 0, errPacket
		}
		return size, c.moment(t)
	case mysql.MYSQL_TYPE_TIME:
		v, size, ok := wireTime(p)
		if !ok {
			return 0, errPacket
		}
		c.duration(v)
		return size, nil
	}
	n, size, ok := lengthEncoded(p)
	if !ok || uint64(len(p)-size) < n {
		return 0, errPacket
	}
	end := size + int(n)
	return end, sized(c, p[size:end])
}

// sized decodes a value that comes with its length.
func sized(c *cell, raw []byte) error {
	switch c.col.form { //nolint:exhaustive // all others have a fixed length
	case formText, formEnum:
		return c.text(raw)
	case formDecimal:
		return c.decimal(raw)
	case formBytes, formFixed:
		c.bytes(raw)
		return nil
	case formSet:
		return c.setText(raw)
	case formJSON:
		return c.json(raw)
	case formBits, formBool:
		return c.bitString(raw)
	case formGeometry:
		return c.geometry(raw)
	case formUUID:
		return c.uuidText(raw)
	case formInet:
		return c.addressText(raw)
	case formVector:
		return c.vector(raw)
	}
	return c.foreign(raw)
}

// wireMoment reads a date with or without a time of day: what is zero at the end is left out.
func wireMoment(p []byte) (t civil, size int, ok bool) {
	if len(p) < 1 || len(p) < 1+int(p[0]) {
		return t, 0, false
	}
	n := int(p[0])
	if n >= 4 {
		t.year, t.month, t.day = int(binary.LittleEndian.Uint16(p[1:])), int(p[3]), int(p[4])
	}
	if n >= 7 {
		t.hour, t.minute, t.second = int(p[5]), int(p[6]), int(p[7])
	}
	if n >= 11 {
		t.micros = int(binary.LittleEndian.Uint32(p[8:]))
	}
	return t, 1 + n, true
}

// wireTime reads a time in microseconds: a sign, days, hours, minutes and seconds.
func wireTime(p []byte) (micros int64, size int, ok bool) {
	if len(p) < 1 || len(p) < 1+int(p[0]) {
		return 0, 0, false
	}
	n := int(p[0])
	if n >= 8 {
		hours := int64(binary.LittleEndian.Uint32(p[2:]))*24 + int64(p[6])
		micros = (hours*3600 + int64(p[7])*60 + int64(p[8])) * 1e6
	}
	if n >= 12 {
		micros += int64(binary.LittleEndian.Uint32(p[9:]))
	}
	if n >= 1 && p[1] == 1 {
		micros = -micros
	}
	return micros, 1 + n, true
}
