package pgcopy_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// cut runs a stream through a Cutter in pieces, and returns the batches that its runs decode to.
func cut(t testing.TB, s *record.Schema, types []pgcopy.Type, stream []byte, pieces []int, o pgcopy.DecoderOptions) (runs [][]byte, batches []*record.Batch) {
	t.Helper()
	c := pgcopy.NewCutter(len(types), o, func(rows []byte, ends []int) error {
		b, err := pgcopy.DecodeRows(s, types, rows)
		if err != nil {
			return err
		}
		if n := b.NumRows() + len(b.Rejects); n != len(ends) || ends[n-1] != len(rows) {
			t.Fatalf("%d rows, their ends are %v, in %d bytes", n, ends, len(rows))
		}
		runs, batches = append(runs, rows), append(batches, b)
		return nil
	})
	for i := 0; len(stream) > 0; i++ {
		n := min(pieces[i%len(pieces)], len(stream))
		if _, err := c.Write(stream[:n]); err != nil {
			t.Fatal(err)
		}
		stream = stream[n:]
	}
	if err := c.Finish(); err != nil {
		t.Fatal(err)
	}
	return runs, batches
}

// Rows that are cut apart and put together again are the same bytes, and decode to what the stream decodes to, however it arrives.
//
// clause S27.
func TestCutter(t *testing.T) {
	s := schemaOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String)
	types := []pgcopy.Type{form(pgcopy.Int4), form(pgcopy.Raw)}
	rapid.Check(t, func(r *rapid.T) {
		stream := pgcopy.AppendHeader(nil)
		for i := range rapid.IntRange(0, 40).Draw(r, "rows") {
			stream = append(stream, 0, 2, 0, 0, 0, 4, 0, 0, 0, byte(i))
			if text := rapid.SliceOfN(rapid.ByteRange('a', 'z'), 0, 9).Draw(r, "text"); len(text) > 8 {
				stream = append(stream, 0xff, 0xff, 0xff, 0xff)
			} else {
				stream = append(append(stream, 0, 0, 0, byte(len(text))), text...)
			}
		}
		stream = pgcopy.AppendTrailer(stream)
		o := pgcopy.DecoderOptions{Rows: rapid.IntRange(1, 50).Draw(r, "most"), Bytes: rapid.Int64Range(1, 500).Draw(r, "bytes")}
		pieces := rapid.SliceOfN(rapid.IntRange(1, 60), 1, 5).Draw(r, "pieces")
		runs, got := cut(t, s, types, stream, pieces, o)
		if whole := pgcopy.AppendTrailer(slices.Concat(pgcopy.AppendHeader(nil), slices.Concat(runs...))); !slices.Equal(whole, stream) {
			r.Fatalf("put together again: %x, want %x", whole, stream)
		}
		var want, have []string
		for _, b := range decode(t, s, types, stream, 1<<20, o) {
			want = append(want, connectortest.Rows(b)...)
		}
		for _, b := range got {
			have = append(have, connectortest.Rows(b)...)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			r.Fatal(diff)
		}
	})
}

// A stream that is cut short, goes on behind its end or is none is an error and never a shorter result; so is an error of the receiver.
func TestCutterBroken(t *testing.T) {
	refused := errors.New("refused")
	read := func(stream []byte, result error) error {
		c := pgcopy.NewCutter(1, pgcopy.DecoderOptions{}, func([]byte, []int) error { return result })
		if _, err := c.Write(stream); err != nil {
			return err
		}
		return c.Finish()
	}
	whole := pgcopy.AppendTrailer(append(pgcopy.AppendHeader(nil), 0, 1, 0, 0, 0, 4, 0, 0, 0, 7))
	if err := read(whole, nil); err != nil {
		t.Fatal(err)
	}
	if err := read(whole, refused); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	broken := [][]byte{
		append(slices.Clone(whole), 0), append(pgcopy.AppendHeader(nil), 0, 2, 0, 0, 0, 0), []byte("this is no binary COPY at all"),
		append(pgcopy.AppendHeader(nil), 0, 1, 0x7f, 0xff, 0xff, 0xff, 0),
	}
	for n := range whole {
		broken = append(broken, whole[:n])
	}
	for _, stream := range broken {
		if err := read(stream, nil); err == nil {
			t.Errorf("%x: no error", stream)
		}
	}
	s := schemaOf(arrow.PrimitiveTypes.Int32)
	for n := 1; n < 10; n++ {
		if _, err := pgcopy.DecodeRows(s, []pgcopy.Type{form(pgcopy.Int4)}, whole[19:19+n]); err == nil {
			t.Errorf("%d bytes of a row: no error", n)
		}
	}
}
