package engine

import "github.com/leatdata/leat/lane"

// WithChunkBuffer sets how large a chunk may be, in bytes, before it is passed on while it is read.
func (d Deps) WithChunkBuffer(size int64) Deps {
	d.chunkBuffer = size
	return d
}

// WithLanes lets tests put something between the engine and its lanes.
func (d Deps) WithLanes(f func(sinks []string, o lane.Options) (lane.Stream, error)) Deps {
	d.lanes = f
	return d
}
