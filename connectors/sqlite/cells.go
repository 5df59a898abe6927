package sqlite

import (
	"zombiezen.com/go/sqlite"
)

// cells reads the columns of a statement's current row.
type cells struct {
	st    *sqlite.Stmt
	utf16 bool // the file stores text as UTF-16: then only the conversion to text gives UTF-8
	buf   []byte
}

func (c *cells) class(col int) sqlite.ColumnType { return c.st.ColumnType(col) }
func (c *cells) int(col int) int64               { return c.st.ColumnInt64(col) }
func (c *cells) float(col int) float64           { return c.st.ColumnFloat(col) }

// text returns the bytes of a text, zero characters included. They are valid until the next call.
func (c *cells) text(col int) []byte {
	if c.utf16 {
		c.buf = append(c.buf[:0], c.st.ColumnText(col)...)
		return c.buf
	}
	return c.blob(col)
}

// blob returns the bytes of a blob. They are valid until the next call.
func (c *cells) blob(col int) []byte {
	n := c.st.ColumnLen(col)
	if cap(c.buf) < n {
		c.buf = make([]byte, n+n/2)
	}
	c.buf = c.buf[:n]
	return c.buf[:c.st.ColumnBytes(col, c.buf)]
}
