package csv_test

import (
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/csv"
	"github.com/leatdata/leat/record"
)

// infer decides the schema of inputs, and fails the test where it can't.
func infer(t testing.TB, o csv.InferOptions, inputs ...string) *record.Schema {
	t.Helper()
	inf, err := csv.NewInference(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range inputs {
		if _, err := inf.Scan(strings.NewReader(in), 0); err != nil {
			t.Fatal(err)
		}
	}
	s, err := inf.Schema()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// types lists the column types as people write them.
func types(s *record.Schema) string {
	var out []string
	for _, f := range s.Columns.Fields() {
		out = append(out, f.Name+":"+record.FormatType(f.Type))
	}
	return strings.Join(out, " ")
}

// drain reads all rows and rejects; the error is nil at a proper end.
func drain(r format.Reader, want format.Want) (rows []string, rejects []record.Reject, err error) {
	for {
		b, err := r.Next(want)
		if errors.Is(err, io.EOF) {
			return rows, rejects, nil
		}
		if err != nil {
			return rows, rejects, err
		}
		rows = append(rows, connectortest.Rows(b)...)
		rejects = append(rejects, b.Rejects...)
	}
}

// readers hand out the same input in different pieces.
func readers(in string) map[string]io.Reader {
	return map[string]io.Reader{
		"whole": strings.NewReader(in), "byte by byte": iotest.OneByteReader(strings.NewReader(in)), "half": iotest.HalfReader(strings.NewReader(in)),
		"with the error": iotest.DataErrReader(strings.NewReader(in)),
	}
}

// failer is what tests and checks of properties have in common.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// read reads an input as text, in all kinds of pieces, and checks that they agree.
func read(t failer, o csv.Options, in string) (rows []string, rejects []record.Reject, err error) {
	t.Helper()
	first := true
	for how, src := range readers(in) {
		r, e := csv.NewReader(src, o)
		var got []string
		var set []record.Reject
		if e == nil {
			got, set, e = drain(r, format.Want{Rows: 3})
		}
		if first {
			rows, rejects, err, first = got, set, e, false
			continue
		}
		if !slices.Equal(got, rows) || !reflect.DeepEqual(set, rejects) || (e == nil) != (err == nil) || (e != nil && e.Error() != err.Error()) {
			t.Errorf("%q read %s: %q, %+v, %v; before %q, %+v, %v", in, how, got, set, e, rows, rejects, err)
		}
	}
	return rows, rejects, err
}
