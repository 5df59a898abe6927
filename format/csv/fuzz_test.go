package csv_test

import (
	stdcsv "encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/csv"
)

// FuzzReader compares with the standard library on what both accept, and reads the input in pieces: the outcome is the same.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"a,b\n1,2\n", "\"x\ny\",z\r\n1,\"2\"\"\"\r\n", "a\n\n\"\"\n", "a,b\r1,2\r", "\xef\xbb\xbfa\n1", "a,b\n\"x\"y,1\n", "a,b\n\"x", "a,\xff\n\xfe,b\n", "é,€\n,\n", "a,b\n1\n1,2,3\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		o := csv.Options{NoHeader: true, SetAside: true}
		rows, rejects, err := read(t, o, in)
		for _, j := range rejects {
			if int64(len(in)) < j.Offset || !strings.Contains(in, string(j.Raw)) {
				t.Errorf("reject %+v is not of %q", j, in)
			}
		}
		if err != nil || len(rejects) > 0 || !utf8.ValidString(in) || strings.Contains(in, "\r") {
			return // the standard library keeps lone CRs and turns CR LF into LF inside quotes
		}
		std := stdcsv.NewReader(strings.NewReader(strings.TrimPrefix(in, "\xef\xbb\xbf")))
		records, err := std.ReadAll()
		if err != nil || len(records) == 0 {
			return // it refuses quotes inside open fields
		}
		if len(records[0]) == 1 {
			return // it skips blank lines, which are NULL in a single column
		}
		if len(records) != len(rows) {
			t.Fatalf("%q: %d rows %q, the standard library %d: %q", in, len(rows), rows, len(records), records)
		}
		for i, rec := range records {
			var got map[string]*string
			if err := json.Unmarshal([]byte(rows[i]), &got); err != nil {
				t.Fatal(err)
			}
			for c, want := range rec {
				v := got[csv.Rename(make([]string, len(rec)))[c]]
				if (v == nil && want != "") || (v != nil && *v != want) {
					t.Errorf("%q: row %d column %d is %v, the standard library says %q", in, i, c, v, want)
				}
			}
		}
	})
}

// FuzzResume goes on at every offset.
func FuzzResume(f *testing.F) {
	f.Add("a,b\n1,2\n\n3,\"4\r\n\"\r5,6\n7\n\"8\"9,1\n", "")
	f.Add("#x\na;b\n#\n1;2", ";")
	f.Fuzz(func(t *testing.T, in, delimiter string) {
		o := csv.Options{SetAside: true, Dialect: csv.Dialect{Delimiter: delimiter, Comment: "#"}}
		r, err := csv.NewReader(strings.NewReader(in), o)
		if err != nil {
			return
		}
		var offsets []format.Offset
		for err == nil {
			offsets = append(offsets, r.Offset())
			_, err = r.Next(format.Want{Rows: 1})
		}
		failed := !errors.Is(err, io.EOF)
		for i, at := range offsets {
			r, err := csv.NewReader(strings.NewReader(in), o)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Resume(at); err != nil {
				t.Fatal(err)
			}
			n := 0
			for err == nil {
				if at := r.Offset(); at != offsets[i+n] {
					t.Fatalf("%q from %+v: offset %d is %+v, want %+v", in, offsets[i], n, at, offsets[i+n])
				}
				_, err = r.Next(format.Want{Rows: 1})
				n++
			}
			if n != len(offsets)-i || failed == errors.Is(err, io.EOF) {
				t.Fatalf("%q from %+v: %d batches and %v, want %d", in, offsets[i], n, err, len(offsets)-i)
			}
		}
	})
}

// Byte by byte no field ever stands in the buffer as a whole, so the plain road is taken; as a whole nearly all take the fast one. Both
// see the same rows, and set aside the same bytes at the same lines.
func TestRoadsAgree(t *testing.T) {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			",", ",", ",", "\n", "\n", "\r\n", "\r", "\"", "\"", "\"\"", "\",\"", "\"\n\"", ";", "'", "\t", "\x00", "\x0b", "\x0e", "\x7f", "é", "\xff", "€\x80", "#",
		}),
		rapid.StringMatching(`[a-z]{0,20}`), rapid.StringMatching(`"[a-z,;\n\r]{0,20}"`),
	)
	rapid.Check(t, func(rt *rapid.T) {
		in := strings.Join(rapid.SliceOfN(piece, 0, 60).Draw(rt, "pieces"), "")
		o := csv.Options{NoHeader: true, SetAside: true}
		o.Delimiter = rapid.SampledFrom([]string{"", ";", "\t", "\x01", "é", "::"}).Draw(rt, "delimiter")
		o.Quote = rapid.SampledFrom([]string{"", "'", csv.NoQuote}).Draw(rt, "quote")
		o.Escape = rapid.SampledFrom([]string{"", "", "\\"}).Draw(rt, "escape")
		_, _, _ = read(rt, o, in)
	})
}
