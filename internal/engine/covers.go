package engine

import (
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// compare orders two positions of the source by what they cover, see connector.Positions; nil: the source can't.
type compare func(a, b record.Position) (int, bool)

// covers reports whether all that b covers is covered by a: nothing of it is missing where a stands. Two positions of many parts
// (partitions, servers) may each lack something of the other one: then neither covers the other, and none counts as the later one.
func (c compare) covers(a, b record.Position) bool {
	switch {
	case b.Zero() || a.Equal(b):
		return true
	case a.Zero() || c == nil:
		return false
	}
	order, ok := c(a, b)
	return ok && order >= 0
}

// migration brings a saved position into the shape of today.
type migration func(record.Position) (record.Position, error)

// positionsOf returns how the source orders its positions (nil: it can't) and migrates older ones.
func positionsOf(s connector.Source) (compare, migration) {
	p, ok := connector.As[connector.Positions](s)
	if !ok {
		return nil, func(p record.Position) (record.Position, error) { return p, nil }
	}
	return p.Compare, func(at record.Position) (record.Position, error) {
		if at.Zero() {
			return at, nil
		}
		return p.Migrate(at)
	}
}
