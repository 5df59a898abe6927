package jsonl_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/record"
)

// case C010: every type, through a file and back; each line is strict JSON, NaN and infinities too.
func TestRoundTrip(t *testing.T) {
	b := connectortest.Batch("d", connectortest.Cases()...)
	var out bytes.Buffer
	w := jsonl.NewWriter(&out, b.Schema)
	if err := errors.Join(w.Write(b), w.Write(connectortest.Sliced(b)), w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	want := append(connectortest.Rows(b), connectortest.Rows(connectortest.Sliced(b))...)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines for %d rows", len(lines), len(want))
	}
	for i, l := range lines {
		if !json.Valid([]byte(l)) {
			t.Errorf("line %d is no JSON: %s", i+1, l)
		}
	}
	declared := map[string]bool{}
	for _, n := range b.Schema.Names() {
		declared[n] = true
	}
	r, err := jsonl.NewReader(&out, jsonl.Options{Schema: b.Schema, Declared: declared})
	if err != nil {
		t.Fatal(err)
	}
	got, _, rejects, err := drain(r, format.Want{})
	if err != nil || len(rejects) > 0 {
		t.Fatal(err, rejects)
	}
	for i := range want {
		want[i] = strings.NewReplacer("\n", " ", "\r", " ").Replace(want[i])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A document with line ends stays on one line, and a later schema brings its own columns.
func TestWriter(t *testing.T) {
	doc := connectortest.Case{Name: "j", Type: record.JSONType()}
	b := connectortest.BatchOf(connectortest.Schema("d", doc), []string{"1", "{\n \"a\":\r\n1}"})
	more := connectortest.BatchOf(connectortest.Schema("d", doc, connectortest.Case{Name: "late", Type: arrow.BinaryTypes.String}), []string{"2", "null", `"x"`})
	none := &record.Schema{Dataset: "d", Columns: arrow.NewSchema(nil, nil)}
	var out bytes.Buffer
	w := jsonl.NewWriter(&out, b.Schema)
	if err := errors.Join(w.Write(b), w.Write(more), w.Write(&record.Batch{Schema: none}), w.Close()); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "{\"id\":1,\"j\":{  \"a\":  1}}\n{\"id\":2,\"j\":null,\"late\":\"x\"}\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
