package arrowipc_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/arrowipc"
	"github.com/leatdata/leat/record"
)

func write(t rapid.TB, o arrowipc.Options, s *record.Schema, batches ...*record.Batch) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := arrowipc.NewWriter(&buf, s, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return buf.Bytes()
}

// open reads from something that can seek, as a file, or not, as a pipe.
func open(data []byte, seek bool) (*arrowipc.Reader, error) {
	if seek {
		return arrowipc.NewReader(bytes.NewReader(data), "all")
	}
	return arrowipc.NewReader(io.MultiReader(bytes.NewReader(data)), "all")
}

func drain(t rapid.TB, r *arrowipc.Reader, want format.Want) []string {
	t.Helper()
	rows := []string{}
	for {
		b, err := r.Next(want)
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := b.NumRows(); n == 0 || (want.Rows > 0 && n > want.Rows) {
			t.Fatalf("%d rows, wanted %d", n, want.Rows)
		}
		rows = append(rows, connectortest.Rows(b)...)
	}
}

// Every value of the vocabulary comes out as it went in, from whole arrays and from windows, in every form.
func TestRoundTrip(t *testing.T) {
	b := connectortest.Batch("all", connectortest.Cases()...)
	want := append(connectortest.Rows(b), connectortest.Rows(b)...)
	for _, o := range []arrowipc.Options{{}, {File: true}, {Compression: "zstd"}, {File: true, Compression: "lz4"}} {
		for _, seek := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v seek %v", o, seek), func(t *testing.T) {
				data := write(t, o, b.Schema, b, connectortest.Sliced(b))
				r, err := open(data, seek)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Schema().Columns.Equal(b.Schema.Columns) || !cmp.Equal(r.Schema().Key, b.Schema.Key) {
					t.Errorf("schema %s, key %v", r.Schema().Columns, r.Schema().Key)
				}
				if diff := cmp.Diff(want, drain(t, r, format.Want{Rows: 5})); diff != "" {
					t.Error(diff)
				}
				if r.Offset().Rows != int64(len(want)) {
					t.Errorf("offset %+v", r.Offset())
				}
				for range 2 {
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// A resume by row number gives exactly what follows.
func TestSkip(t *testing.T) {
	a, b := connectortest.Numbered("all", 0, 7), connectortest.Numbered("all", 7, 5)
	b.Schema = a.Schema
	data := write(t, arrowipc.Options{File: true}, a.Schema, a, b)
	want := append(connectortest.Rows(a), connectortest.Rows(b)...)
	for n := range int64(14) {
		for _, seek := range []bool{false, true} {
			r, err := open(data, seek)
			if err != nil {
				t.Fatal(err)
			}
			err = r.Skip(n)
			if n > 12 {
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("skipping %d of 12 rows: %v", n, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append([]string{}, want[n:]...), drain(t, r, format.Want{Rows: 4})); diff != "" {
				t.Errorf("behind %d rows: %s", n, diff)
			}
		}
	}
}

func TestEmptyFileKeepsItsSchema(t *testing.T) {
	b := connectortest.Batch("all", connectortest.Cases()...)
	for _, o := range []arrowipc.Options{{}, {File: true}} {
		r, err := open(write(t, o, b.Schema), false)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Schema().Columns.Equal(b.Schema.Columns) {
			t.Errorf("schema %s", r.Schema().Columns)
		}
		if rows := drain(t, r, format.Want{}); len(rows) != 0 {
			t.Errorf("rows %q", rows)
		}
	}
}

// Random columns, sizes and cuts.
func TestRandomRoundTrip(t *testing.T) {
	cases := connectortest.Cases()
	rapid.Check(t, func(t *rapid.T) {
		var picked []connectortest.Case
		for i, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(cases)-1), 1, 6, rapid.ID[int]).Draw(t, "columns") {
			c := cases[n]
			c.Name = fmt.Sprintf("c%d", i)
			c.Values = rapid.SliceOfN(rapid.SampledFrom(c.Values), 1, 20).Draw(t, "values")
			picked = append(picked, c)
		}
		b := connectortest.Batch("all", picked...)
		o := arrowipc.Options{File: rapid.Bool().Draw(t, "file"), Compression: rapid.SampledFrom([]string{"", "zstd", "lz4"}).Draw(t, "compression")}
		r, err := open(write(t, o, b.Schema, connectortest.Sliced(b), b), o.File)
		if err != nil {
			t.Fatal(err)
		}
		want := format.Want{Rows: rapid.IntRange(0, 9).Draw(t, "rows"), Bytes: int64(rapid.IntRange(0, 500).Draw(t, "bytes"))}
		if diff := cmp.Diff(append(connectortest.Rows(b), connectortest.Rows(b)...), drain(t, r, want)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A file that was cut off anywhere is an error, never fewer rows.
func TestTruncatedFile(t *testing.T) {
	b := connectortest.Numbered("all", 0, 20)
	data := write(t, arrowipc.Options{File: true}, b.Schema, b, b)
	for n := range len(data) {
		for _, seek := range []bool{false, true} {
			if _, err := readAll(data[:n], seek); err == nil {
				t.Fatalf("cut off behind %d of %d bytes: no error (seek %v)", n, len(data), seek)
			}
		}
	}
}

// readAll reads everything and prints it, which touches every value.
func readAll(data []byte, seek bool) (int, error) {
	r, err := open(data, seek)
	if err != nil {
		return 0, err
	}
	rows := 0
	for {
		b, err := r.Next(format.Want{Rows: 3})
		if errors.Is(err, io.EOF) {
			return rows, r.Close()
		}
		if err != nil {
			return rows, err
		}
		rows += len(connectortest.Rows(b))
	}
}

// Damaged bytes give errors, or other values; never a panic.
func FuzzReader(f *testing.F) {
	b := connectortest.Batch("all", connectortest.Cases()...)
	for _, o := range []arrowipc.Options{{}, {File: true}, {File: true, Compression: "zstd"}} {
		f.Add(write(f, o, b.Schema, b), uint32(700), byte(0xff), o.File)
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint32, with byte, seek bool) {
		damaged := bytes.Clone(data)
		if len(damaged) > 0 {
			damaged[int(at)%len(damaged)] ^= with
		}
		readAll(damaged, seek) //nolint:errcheck // must return
	})
}

// Damage in many places: no panic, no endless memory, and messages of one line.
func TestDamagedBytes(t *testing.T) {
	b := connectortest.Batch("all", connectortest.Cases()...)
	r := rand.New(rand.NewPCG(1, 2))
	for _, o := range []arrowipc.Options{{File: true}, {File: true, Compression: "zstd"}} {
		data := write(t, o, b.Schema, b)
		for n := range 150 {
			damaged := bytes.Clone(data)
			at := r.IntN(len(damaged))
			if n%2 == 0 {
				at = r.IntN(min(len(damaged), 16_000)) // the schema
			}
			damaged[at] ^= byte(1 + r.IntN(255))
			if _, err := readAll(damaged, n%3 == 0); err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("byte %d: %q", at, err)
			}
		}
	}
}

// Text that is no UTF-8 sets its row aside; all others come.
func TestBadTextIsSetAside(t *testing.T) {
	b := connectortest.Numbered("all", 0, 9)
	data := bytes.Replace(write(t, arrowipc.Options{}, b.Schema, b), []byte("value 4"), []byte("valu\xff 4"), 1)
	r, err := open(data, true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Next(format.Want{})
	if err != nil {
		t.Fatal(err)
	}
	if got.NumRows() != 8 || len(got.Rejects) != 1 || got.Rejects[0].Line != 5 || got.Rejects[0].Column != "v" {
		t.Errorf("%d rows, rejects %+v", got.NumRows(), got.Rejects)
	}
}
