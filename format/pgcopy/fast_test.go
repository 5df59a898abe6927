package pgcopy_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// drawNumeric returns a numeric as the server sends it, now and then one that it does not send.
func drawNumeric(t *rapid.T) []byte {
	digits := rapid.SliceOfN(rapid.SampledFrom([]uint16{0, 1, 9, 10, 100, 1234, 9900, 9999, 10_000}), 0, 12).Draw(t, "digits")
	v := binary.BigEndian.AppendUint16(nil, uint16(len(digits)))
	v = binary.BigEndian.AppendUint16(v, uint16(rapid.IntRange(-4, 7).Draw(t, "weight")))
	v = binary.BigEndian.AppendUint16(v, rapid.SampledFrom([]uint16{0, 0x4000, 0xC000, 0xD000}).Draw(t, "sign"))
	v = binary.BigEndian.AppendUint16(v, uint16(rapid.IntRange(0, 6).Draw(t, "scale")))
	for _, d := range digits {
		v = binary.BigEndian.AppendUint16(v, d)
	}
	return v
}

// The decoder, which takes short cuts for whole rows, and a builder, which takes none, make the same of every value: the same arrays, or
// the same refusal, or an error.
// cases C001, C002, C012.
func TestShortCuts(t *testing.T) {
	types := []arrow.DataType{
		arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Float64, record.InfiniteTimestampType(true),
		arrow.FixedWidthTypes.Timestamp_us, record.UUIDType(), arrow.BinaryTypes.String, record.JSONType(),
		&arrow.Decimal128Type{Precision: 12, Scale: 2}, &arrow.Decimal128Type{Precision: 38, Scale: 0}, &arrow.Decimal128Type{Precision: 19, Scale: 6},
		&arrow.Decimal256Type{Precision: 70, Scale: 2}, &arrow.Decimal128Type{Precision: 18, Scale: 18},
	}
	wires := []pgcopy.Type{
		form(pgcopy.Int8), form(pgcopy.Int4), form(pgcopy.Float8), form(pgcopy.Timestamp), form(pgcopy.Timestamp), form(pgcopy.UUID),
		form(pgcopy.Raw), form(pgcopy.Versioned), form(pgcopy.Numeric), form(pgcopy.Numeric), form(pgcopy.Numeric), form(pgcopy.Numeric),
		form(pgcopy.Numeric),
	}
	draw := func(t *rapid.T, w pgcopy.Type) []byte {
		switch w.Form { //nolint:exhaustive // all others have one width
		case pgcopy.Numeric:
			return drawNumeric(t)
		case pgcopy.Versioned:
			return append([]byte{rapid.SampledFrom([]byte{1, 1, 1, 2}).Draw(t, "version")}, rapid.String().Draw(t, "json")...)
		case pgcopy.Raw:
			return []byte(rapid.SampledFrom([]string{"", "a", "text", "\xff"}).Draw(t, "text"))
		case pgcopy.Timestamp:
			near := rapid.SampledFrom([]int64{0, -1 << 63, 1<<63 - 1, 1<<63 - 946_684_800_000_000}).Draw(t, "near")
			return binary.BigEndian.AppendUint64(nil, uint64(near+rapid.Int64Range(-2, 2).Draw(t, "off")))
		}
		width := map[pgcopy.Form]int{pgcopy.Int4: 4, pgcopy.UUID: 16}[w.Form]
		if width == 0 {
			width = 8
		}
		width += rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 0, 1, -1}).Draw(t, "more")
		return rapid.SliceOfN(rapid.Byte(), width, width).Draw(t, "bytes")
	}
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.IntRange(0, len(types)-1).Draw(t, "column")
		checked := rapid.Bool().Draw(t, "checked")
		b, err := pgcopy.NewBuilder(wires[c], types[c], checked)
		if err != nil {
			t.Fatal(err)
		}
		var want []string // for each row that is refused: why
		var broken bool
		stream := pgcopy.AppendHeader(nil)
		for range rapid.IntRange(1, 20).Draw(t, "rows") {
			stream = append(stream, 0, 1)
			if rapid.IntRange(0, 4).Draw(t, "null") == 0 {
				stream = append(stream, 0xff, 0xff, 0xff, 0xff)
				b.AppendNull()
				continue
			}
			v := draw(t, wires[c])
			stream = append(binary.BigEndian.AppendUint32(stream, uint32(len(v))), v...)
			err := b.Append(v)
			switch {
			case err == nil:
			case pgcopy.Refused(err):
				want = append(want, err.Error())
			default:
				broken = true
			}
			if broken {
				break
			}
		}
		var rows arrow.Array
		var got []string
		s := schemaOf(types[c])
		o := pgcopy.DecoderOptions{CheckUTF8: checked}
		d, err := pgcopy.NewDecoder(s, wires[c:c+1], o, func(b *record.Batch) error {
			rows = b.Rows.Column(0)
			for _, r := range b.Rejects {
				got = append(got, r.Message)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Write(pgcopy.AppendTrailer(stream))
		if broken != (err != nil) {
			t.Fatalf("error %v, and the builder's tells %v", err, broken)
		}
		if broken {
			return
		}
		if err := d.Finish(); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Errorf("refused %q, want %q", got, want)
		}
		if w := b.Take(); !array.Equal(w, rows) || w.NullN() != rows.NullN() {
			t.Errorf("%v, want %v", rows, w)
		}
	})
}
