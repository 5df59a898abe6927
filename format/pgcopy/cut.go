package pgcopy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/leatdata/leat/record"
)

// Cutter cuts a binary COPY that is written to it into runs of whole rows, and looks at no value. It is not safe for concurrent use.
type Cutter struct {
	columns int
	opt     DecoderOptions
	emit    func(rows []byte, ends []int) error

	header  bool
	trailer bool
	buf     []byte // whole rows, and behind them an unfinished part of the stream
	whole   int    // how much of buf are whole rows
	ends    []int  // of these
}

// NewCutter makes a cutter for rows of so many columns. emit gets the rows, without header and trailer, and where each of them ends; it
// may keep both. An error of emit ends Write. The sizes are those of a Decoder.
func NewCutter(columns int, o DecoderOptions, emit func(rows []byte, ends []int) error) *Cutter {
	if o.Rows <= 0 {
		o.Rows = DefaultRows
	}
	if o.Bytes <= 0 {
		o.Bytes = DefaultBytes
	}
	return &Cutter{columns: columns, opt: o, emit: emit}
}

// Write takes the next part of the stream, cut anywhere. p is not kept.
func (c *Cutter) Write(p []byte) (int, error) {
	c.buf = append(c.buf, p...)
	if !c.header {
		rest, err := skipHeader(c.buf)
		if err != nil {
			return len(p), partial(err)
		}
		c.buf, c.header = append(c.buf[:0], rest...), true
	}
	for c.whole < len(c.buf) {
		if c.trailer {
			return 0, errors.New("binary COPY: data behind the end of the rows")
		}
		size, err := c.row(c.buf[c.whole:])
		if err != nil {
			return len(p), partial(err)
		}
		if c.trailer {
			c.buf = append(c.buf[:c.whole], c.buf[c.whole+size:]...)
			continue
		}
		c.whole += size
		c.ends = append(c.ends, c.whole)
		if len(c.ends) >= c.opt.Rows || int64(c.whole) >= c.opt.Bytes {
			if err := c.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// partial is nil where the stream only goes on in the next Write.
func partial(err error) error {
	if errors.Is(err, errPartial) {
		return nil
	}
	return err
}

// row returns the length of the row at the beginning of p.
func (c *Cutter) row(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, errPartial
	}
	switch n := int(int16(binary.BigEndian.Uint16(p))); n {
	case -1:
		c.trailer = true
		return 2, nil
	case c.columns:
	default:
		return 0, fmt.Errorf("binary COPY: a row of %d columns, want %d", n, c.columns)
	}
	at := 2
	for range c.columns {
		if _, _, err := field(p, &at); err != nil {
			return 0, err
		}
	}
	return at, nil
}

// flush hands the whole rows over, in memory of their exact size; what is behind them stays.
func (c *Cutter) flush() error {
	rows, ends := bytes.Clone(c.buf[:c.whole]), slices.Clone(c.ends)
	c.buf = append(c.buf[:0], c.buf[c.whole:]...)
	c.ends, c.whole = c.ends[:0], 0
	return c.emit(rows, ends)
}

// Finish hands over the last rows. It is an error if the stream has not ended.
func (c *Cutter) Finish() error {
	if !c.trailer || c.whole < len(c.buf) {
		return errors.New("binary COPY: the stream ends before its rows do")
	}
	if len(c.ends) == 0 {
		return nil
	}
	return c.flush()
}

// DecodeRows decodes whole rows, as a Cutter hands them over, into one batch; see NewDecoder.
func DecodeRows(schema *record.Schema, types []Type, rows []byte) (*record.Batch, error) {
	out := &record.Batch{Schema: schema}
	o := DecoderOptions{Rows: math.MaxInt, Bytes: math.MaxInt64}
	d, err := NewDecoder(schema, types, o, func(b *record.Batch) error {
		out = b
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.header = true
	if _, err := d.Write(rows); err != nil {
		return nil, err
	}
	if len(d.rest) == 0 {
		d.trailer = true
	}
	return out, d.Finish()
}
