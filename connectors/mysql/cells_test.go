package mysql

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/record"
)

// columnOf is a column of a type as a table declares it.
func columnOf(t testing.TB, data, sql string, change func(c *sourceColumn)) *sourceColumn {
	t.Helper()
	c := &sourceColumn{name: "v", data: data, sql: sql}
	if change != nil {
		change(c)
	}
	if err := c.carry(readOptions{zero: zeroFail}); err != nil {
		t.Fatal(err)
	}
	return c
}

// A decimal of any precision comes out with exactly its digits.
func TestDecimalDigits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		precision := rapid.IntRange(1, 65).Draw(t, "precision")
		scale := rapid.IntRange(0, min(precision, 30)).Draw(t, "scale")
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)
		digits := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digits")
		n := new(big.Int).Mod(new(big.Int).SetBytes(digits), limit)
		text := fmt.Sprintf("%0*s", scale+1, n.String())
		if scale > 0 {
			text = text[:len(text)-scale] + "." + text[len(text)-scale:]
		}
		if rapid.Bool().Draw(t, "negative") && n.Sign() > 0 {
			text = "-" + text
		}
		col := &sourceColumn{name: "v", data: "decimal", sql: "decimal", precision: precision, scale: scale}
		if err := col.carry(readOptions{}); err != nil {
			t.Fatal(err)
		}
		c := newCell(col, nil)
		if err := c.decimal([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := string(record.AppendText(nil, c.take(), 0)); got != text {
			t.Fatalf("%s came out as %s", text, got)
		}
	})
}

// Days are counted as the standard library counts them, and there are no others.
func TestDays(t *testing.T) {
	for d := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC); d.Year() < 10000; d = d.AddDate(0, 0, 1) {
		c := civil{year: d.Year(), month: int(d.Month()), day: d.Day()}
		if !c.exists() || c.days() != d.Unix()/86400-boolDay(d.Unix()%86400 < 0) {
			t.Fatalf("%s: %d days", d.Format(time.DateOnly), c.days())
		}
		if d.Unix() >= 0 && civilOf(d.Unix()+3661, 7) != (civil{c.year, c.month, c.day, 1, 1, 1, 7}) {
			t.Fatalf("%s: %+v", d.Format(time.DateOnly), civilOf(d.Unix()+3661, 7))
		}
	}
	for _, none := range []civil{{}, {year: 2023, month: 5}, {year: 2023, month: 2, day: 29}, {year: 1900, month: 2, day: 29}, {year: 2023, month: 13, day: 1}} {
		if none.exists() {
			t.Errorf("%+v exists", none)
		}
	}
}

func boolDay(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// The labels of a type are read back, whatever is in them.
func TestLabels(t *testing.T) {
	for sql, want := range map[string][]string{
		"enum('a','b')":                {"a", "b"},
		"set('it''s','','a,b')":        {"it's", "", "a,b"},
		`enum('\\','a\nb','x\0y',')')`: {`\`, "a\nb", "x\x00y", ")"},
		"enum":                         nil,
		"enum('open":                   {"open"},
	} {
		if got := parseLabels(sql); strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
}

// Bytes that are no row are an error, and nothing worse.
func FuzzRow(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 0, 4, 0xea, 7, 1, 30, 3, 'a', ',', 'b'}, uint32(0x010a0ff6))
	f.Fuzz(func(t *testing.T, p []byte, types uint32) {
		cols := []sourceColumn{
			*columnOf(t, "int", "int", nil), *columnOf(t, "datetime", "datetime(6)", func(c *sourceColumn) { c.scale = 6 }),
			*columnOf(t, "decimal", "decimal(10,2)", func(c *sourceColumn) { c.precision, c.scale = 10, 2 }),
			*columnOf(t, "set", "set('a','b')", func(c *sourceColumn) { c.labels = []string{"a", "b"} }),
			*columnOf(t, "geometry", "geometry", nil), *columnOf(t, "time", "time", nil), *columnOf(t, "vector", "vector(3)", nil),
			*columnOf(t, "uuid", "uuid", nil), *columnOf(t, "bit", "bit(9)", func(c *sourceColumn) { c.length = 9 }),
		}
		fields := make([]arrow.Field, len(cols))
		for i := range cols {
			fields[i] = cols[i].field()
			fields[i].Name = strconv.Itoa(i)
		}
		to := newCollector(&record.Schema{Dataset: "d", Columns: arrow.NewSchema(fields, nil)}, cols, nil)
		d := &rowDecoder{to: to, types: []byte{3, 12, 0xf6, 254, 255, 11, 0xf2, 254, 16}}
		if err := d.row(p); err != nil {
			return
		}
		b, _, err := to.take()
		if err != nil || b.NumRows()+len(b.Rejects) != 1 {
			t.Fatalf("%d rows, %d set aside, %v", b.NumRows(), len(b.Rejects), err)
		}
	})
}

// FuzzColumn reads descriptions of columns.
func FuzzColumn(f *testing.F) {
	f.Add([]byte("\x03def\x00\x00\x00\x01v\x00\x0c\x3f\x00\x0b\x00\x00\x00\x03\x01\x00\x00\x00\x00"))
	f.Fuzz(func(_ *testing.T, p []byte) {
		c, err := parseColumn(p)
		if err != nil {
			return
		}
		_ = c.column(map[uint16]collation{})
	})
}
