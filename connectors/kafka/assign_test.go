package kafka_test

import (
	"fmt"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connectors/kafka"
)

// clause S25: every partition belongs to one virtual node, for ever the same, and they are spread evenly.
func TestVnodes(t *testing.T) {
	const vnodes = 16
	for want, at := range map[int]struct {
		source, topic string
		partition     int32
	}{
		kafka.Vnode("shop", "orders", 0, vnodes): {"shop", "orders", 0},
	} {
		if got := kafka.Vnode(at.source, at.topic, at.partition, vnodes); got != want {
			t.Errorf("the virtual node changed from %d to %d", want, got)
		}
	}
	if kafka.Vnode("a", "bc", 1, 1<<20) == kafka.Vnode("ab", "c", 1, 1<<20) {
		t.Error("names run into each other")
	}
	var splits []connector.Split
	for i := range 1600 {
		splits = append(splits, connector.Split{ID: fmt.Sprintf("orders/%d", i)})
	}
	seen := map[string]int{}
	for v := range vnodes {
		mine := kafka.Owned(splits, "shop", vnodes, func(n int) bool { return n == v })
		if len(mine) < 60 || len(mine) > 140 {
			t.Errorf("virtual node %d has %d of 1600 partitions", v, len(mine))
		}
		for _, s := range mine {
			seen[s.ID]++
		}
	}
	for _, s := range splits {
		if seen[s.ID] != 1 {
			t.Fatalf("%s has %d owners", s.ID, seen[s.ID])
		}
	}
}
