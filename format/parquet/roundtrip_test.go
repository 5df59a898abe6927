package parquet_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/record"
)

func write(t rapid.TB, o parquet.Options, s *record.Schema, batches ...*record.Batch) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := parquet.NewWriter(&buf, s, o)
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

func open(data []byte) (*parquet.Reader, error) {
	return parquet.NewReader(bytes.NewReader(data), int64(len(data)), "all")
}

func drain(t rapid.TB, r *parquet.Reader, want format.Want) []string {
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

// fitting returns the cases with those values only that the mapping says are kept.
func fitting() []connectortest.Case {
	var out []connectortest.Case
	for _, c := range connectortest.Cases() {
		m := parquet.Mapping(connectortest.Schema("all", c))[1]
		if m.Fidelity == connector.Inexact {
			continue
		}
		c.Values = connectortest.Fitting(c, m.Limits)
		out = append(out, c)
	}
	return out
}

// Every value of the vocabulary comes out as it went in, from whole arrays and from windows, with every codec.
//
// case C006, case C016, case C017.
func TestRoundTrip(t *testing.T) {
	b := connectortest.Batch("all", fitting()...)
	if n := b.Rows.NumCols() - 1; int(n) != len(connectortest.Cases()) {
		t.Errorf("only %d cases are kept", n)
	}
	want := append(connectortest.Rows(b), connectortest.Rows(b)...)
	for _, codec := range []string{"", "none", "snappy", "gzip", "lz4"} {
		t.Run("codec "+codec, func(t *testing.T) {
			r, err := open(write(t, parquet.Options{Compression: codec}, b.Schema, b, connectortest.Sliced(b)))
			if err != nil {
				t.Fatal(err)
			}
			if !r.Schema().Columns.Equal(b.Schema.Columns) || !cmp.Equal(r.Schema().Key, b.Schema.Key) {
				t.Errorf("schema %s, key %v, want %s", r.Schema().Columns, r.Schema().Key, b.Schema.Columns)
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
