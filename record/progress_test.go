package record_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/record"
)

// clause E5: what a sink keeps comes back byte for byte.
func TestProgressAppend(t *testing.T) {
	for _, p := range []record.Progress{
		{},
		{Run: "r", Done: true, Epoch: 7, Item: 1 << 40},
		{Run: `"é<`, Position: record.Position{Shape: 3, Data: []byte(`{ "at" : "<&>\u2028", "big":9007199254740993 }`)}},
		{Run: "r", Ledger: []byte(`[ 1,	{"key":"</script>"} ]`)},
		{Run: "r", Position: record.Position{Shape: 1, Data: []byte(`"x"`)}, Ledger: []byte(`[]`), Done: true},
	} {
		doc, err := p.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		var back record.Progress
		if err := json.Unmarshal(doc, &back); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		if diff := cmp.Diff(p, back); diff != "" {
			t.Errorf("%s (-want +got):\n%s", doc, diff)
		}
	}
	if _, err := (record.Progress{Ledger: []byte(`{`)}).Append(nil); err == nil {
		t.Error("a ledger that is no JSON was taken")
	}
}

// A position of very many parts is shortened where people read it, at a whole character.
func TestPositionString(t *testing.T) {
	short := record.Position{Shape: 1, Data: []byte(`{"at":1}`)}
	if got := short.String(); got != `{"at":1}` {
		t.Error(got)
	}
	for n := range 4 {
		long := record.Position{Shape: 1, Data: []byte(`"` + strings.Repeat("x", n) + strings.Repeat("é", 5000) + `"`)}
		if got := long.String(); len(got) > 400 || !utf8.ValidString(got) || !strings.Contains(got, "bytes)") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
	if got := (record.Position{}).String(); got != "none" {
		t.Error(got)
	}
}
