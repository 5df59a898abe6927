package pgoutput

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTuple(t *testing.T) {
	c, ok, err := ParseChange([]byte("I\x00\x00\x00\x07N\x00\x03nt\x00\x00\x00\x02abu"), false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	var got []string
	for i := range c.New.Len() {
		kind, v := c.New.Value(i)
		got = append(got, string(kind)+string(v))
	}
	if diff := cmp.Diff([]string{"n", "tab", "u"}, got); diff != "" {
		t.Error(diff)
	}
}
