package connector_test

import (
	"testing"

	"github.com/leatdata/leat/connector"
)

func TestBuffer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ memory, most, want int64 }{{0, 100, 100}, {40, 100, 40}, {400, 100, 100}} {
		if got := (connector.Env{Memory: c.memory}).Buffer(c.most); got != c.want {
			t.Errorf("of %d, %d are wanted: %d", c.memory, c.most, got)
		}
	}
}
