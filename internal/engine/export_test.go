package engine

import "github.com/leatdata/leat/lane"

// WithLanes lets tests put something between the engine and its lanes.
func (d Deps) WithLanes(f func(sinks []string, o lane.Options) (lane.Stream, error)) Deps {
	d.lanes = f
	return d
}
