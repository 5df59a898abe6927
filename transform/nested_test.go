package transform_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/transform"
)

// A nested value that fails in its middle is set aside, and leaves nothing behind in the rows that follow.
func TestSetOfBrokenObjects(t *testing.T) {
	s, err := transform.New("set", map[string]any{"o": map[string]any{
		"expr": `id == 2 ? "{\"a\":1,\"b\":\"x\"}" : "{\"a\":4,\"b\":5}"`, "type": `struct<"a":int32,"b":int32>`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	in := batch(t, first, second, third)
	step, err := transform.New("select", []any{"id"})
	if err != nil {
		t.Fatal(err)
	}
	if in, err = step.Apply(in); err != nil {
		t.Fatal(err)
	}
	out, err := s.Apply(in)
	if err != nil || len(out.Rejects) != 1 {
		t.Fatal(err, out.Rejects)
	}
	if d := cmp.Diff([]string{`{"id":1,"o":{"a":4,"b":5}}`, `{"id":3,"o":{"a":4,"b":5}}`}, rowsOf(out)); d != "" {
		t.Error(d)
	}
}
