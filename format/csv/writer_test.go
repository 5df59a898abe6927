package csv_test

import (
	"bytes"
	stdcsv "encoding/csv"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/csv"
	"github.com/leatdata/leat/record"
)

func write(t testing.TB, o csv.WriterOptions, s *record.Schema, batches ...*record.Batch) string {
	t.Helper()
	var out bytes.Buffer
	w, err := csv.NewWriter(&out, s, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// cases C011, C083, C085: every type, through a file and back.
func TestRoundTrip(t *testing.T) {
	for _, o := range []csv.WriterOptions{
		{},
		{Null: `\N`},
		{Null: "NULL"},
		{Null: "0"},
		{NoHeader: true},
		{Dialect: csv.Dialect{Delimiter: ";"}},
		{Dialect: csv.Dialect{Delimiter: "\t"}},
		{Dialect: csv.Dialect{Delimiter: "||", Quote: "'"}},
		{Dialect: csv.Dialect{Delimiter: "-"}},
		{Dialect: csv.Dialect{Delimiter: "0"}},
	} {
		b := connectortest.Batch("d", connectortest.Cases()...)
		s := b.Schema
		declared := map[string]bool{}
		for _, n := range s.Names() {
			declared[n] = true
		}
		text := write(t, o, s, b, connectortest.Sliced(b))
		r, err := csv.NewReader(strings.NewReader(text), csv.Options{
			Dialect: o.Dialect, NoHeader: o.NoHeader, Names: s.Names(), Null: []string{o.Null}, Schema: s, Declared: declared,
		})
		if err != nil {
			t.Fatal(err)
		}
		got, rejects, err := drain(r, format.Want{})
		if err != nil || len(rejects) > 0 {
			t.Fatalf("%+v: %v, %v", o, err, rejects)
		}
		want := append(connectortest.Rows(b), connectortest.Rows(connectortest.Sliced(b))...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", o, diff)
		}
	}
}

// cases C083, C085: what is quoted, and that another reader gets the same text.
func TestQuoting(t *testing.T) {
	values := []string{
		"", "a", " a", "a ", "a,b", "a\"b", "a\nb", "a\rb", "\t", `\.`, `\N`, "NULL", "#x", "$~d$~", "a;b|c", "\ufeffx", `\`, "é", "'", "\x00", "-", "1",
		"all of it: ,;|\t\"'\\\r\n\\.\\N$~d$~",
	}
	c := connectortest.Case{Name: "v", Type: arrow.BinaryTypes.String}
	rows := make([][]string, 0, len(values)+1)
	for _, v := range values {
		rows = append(rows, []string{"1", string(record.AppendJSONString(nil, v))})
	}
	rows = append(rows, []string{"2", "null"})
	b := connectortest.BatchOf(connectortest.Schema("d", c), rows...)
	text := write(t, csv.WriterOptions{}, b.Schema, b)
	if !strings.HasPrefix(text, "id,v\n1,\"\"\n1,a\n1,\" a\"\n1,\"a \"\n1,\"a,b\"\n1,\"a\"\"b\"\n") || !strings.HasSuffix(text, "\n2,\n") {
		t.Errorf("written: %q", text)
	}
	std := stdcsv.NewReader(strings.NewReader(text))
	records, err := std.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if v == "a\rb" || strings.Contains(v, "\r\n") { // that reader turns CR LF into LF
			continue
		}
		if got := records[i+1][1]; got != v {
			t.Errorf("%q is read by another reader as %q", v, got)
		}
	}
}

// An empty dataset has a header, and one column of NULLs survives.
func TestSmallFiles(t *testing.T) {
	b := connectortest.Numbered("d", 0, 0)
	if got := write(t, csv.WriterOptions{}, b.Schema); got != "id,v\n" {
		t.Errorf("no batch: %q", got)
	}
	if got := write(t, csv.WriterOptions{}, b.Schema, b, &record.Batch{Schema: b.Schema}); got != "id,v\n" {
		t.Errorf("no rows: %q", got)
	}
	if _, err := csv.NewWriter(nil, &record.Schema{Dataset: "d", Columns: arrow.NewSchema(nil, nil)}, csv.WriterOptions{}); err == nil {
		t.Error("a dataset without columns was taken")
	}
	for _, o := range []csv.WriterOptions{{Null: "\""}, {Null: ","}, {Null: "\n"}, {Dialect: csv.Dialect{Quote: "none"}}} {
		if _, err := csv.NewWriter(nil, b.Schema, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteFails(t *testing.T) {
	b := connectortest.Numbered("d", 0, 100_000)
	w, err := csv.NewWriter(full{}, b.Schema, csv.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(b); !errors.Is(err, errFull) {
		t.Errorf("Write: %v", err)
	}
	if err := w.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close: %v", err)
	}
}
