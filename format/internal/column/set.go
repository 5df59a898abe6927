package column

import (
	"fmt"

	"github.com/leatdata/leat/format/internal/literal"
	"github.com/leatdata/leat/record"
)

// Set appends the value whose text form is b. Columns of inferred types take canonical literals only; a declared type takes
// everything that package record reads as the type. Nothing is appended where it returns an error.
func (c *Column) Set(b []byte, declared bool) error {
	switch c.Kind {
	case Text:
		c.Bytes(b)
		return nil
	case Int64:
		if v, ok := literal.Int(b); ok {
			c.Int64(v)
			return nil
		}
	case Float64:
		if v, ok := literal.Float(b); ok {
			c.Float64(v)
			return nil
		}
	case Date:
		if v, ok := literal.Date(b); ok {
			c.Date(v)
			return nil
		}
	case Timestamp:
		if v, zoned, ok := literal.Timestamp(b); ok && zoned == c.Type.Zoned {
			c.Timestamp(v)
			return nil
		}
	case Bool:
		switch string(b) {
		case "true":
			c.Bool(true)
			return nil
		case "false":
			c.Bool(false)
			return nil
		}
	case Numeric:
		if literal.IsNumeric(b) {
			c.Bytes(b)
			return nil
		}
		return c.slow(b)
	case Document:
		if err := record.CheckJSON(b); err != nil {
			return err
		}
		c.Bytes(b)
		return nil
	default:
		return c.slow(b)
	}
	if !declared {
		return fmt.Errorf("not %s", c.Type)
	}
	return c.slow(b)
}

// slow parses as package record does.
func (c *Column) slow(b []byte) error {
	if c.other != nil {
		return record.ParseText(c.other, string(b))
	}
	one := newBuilder(c.Type.Arrow)
	if err := record.ParseText(one, string(b)); err != nil {
		return err
	}
	c.Copy(one.NewArray())
	return nil
}
