package connectortest

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/record"
)

// Every value of the table is in canonical form, and its text form reads back to the same value.
func TestCasesAreCanonical(t *testing.T) {
	for _, c := range Cases() {
		b := array.NewBuilder(memory.DefaultAllocator, c.Type)
		for _, v := range c.Values {
			if err := record.ParseJSON(b, []byte(v)); err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
		}
		arr := b.NewArray()
		for i, want := range c.Values {
			if got := string(record.AppendJSON(nil, arr, i)); got != want {
				t.Errorf("%s: value %d is %s, want %s", c.Name, i, got, want)
			}
			if arr.IsNull(i) {
				continue
			}
			text := record.AppendText(nil, arr, i)
			if err := record.ParseText(b, string(text)); err != nil {
				t.Errorf("%s: reading the text form %q of %s: %v", c.Name, text, want, err)
				continue
			}
			if got := string(record.AppendJSON(nil, b.NewArray(), 0)); got != want {
				t.Errorf("%s: the text form %q reads back as %s, want %s", c.Name, text, got, want)
			}
		}
	}
}

func TestCasesCoverTheVocabulary(t *testing.T) {
	seen := map[record.Kind]bool{}
	names := map[string]bool{}
	for _, c := range Cases() {
		typ, err := record.TypeOf(c.Type)
		if err != nil {
			t.Fatal(err)
		}
		seen[typ.Kind] = true
		if names[c.Name] {
			t.Errorf("two cases are called %s", c.Name)
		}
		names[c.Name] = true
	}
	for k := record.Bool; k <= record.Map; k++ {
		if !seen[k] {
			t.Errorf("no case has kind %s", k)
		}
	}
}

func TestSlicedHasTheSameRows(t *testing.T) {
	b := Batch("all", Cases()...)
	if diff := cmp.Diff(Rows(b), Rows(Sliced(b))); diff != "" {
		t.Error(diff)
	}
	if Digest(b) != Digest(Sliced(b)) {
		t.Error("digests differ")
	}
}
