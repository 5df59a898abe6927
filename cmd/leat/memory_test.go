package main

import (
	"errors"
	"math"
	"runtime/debug"
	"testing"
)

// Go's memory is limited so that a copy fits where it runs, and the user has the last word.
func TestTuneMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for _, c := range []struct {
		name      string
		env       map[string]string
		container uint64
		err       error
		gc        int
		limit     int64
	}{
		{name: "no container", err: errors.New("none"), gc: gcPercent, limit: memoryLimit},
		{name: "a container without limit", container: math.MaxUint64, gc: gcPercent, limit: memoryLimit},
		{name: "a small container", container: 64 << 20, gc: gcPercent, limit: 32 << 20},
		{name: "the user says", env: map[string]string{"GOMEMLIMIT": "1GiB", "GOGC": "50"}, container: 64 << 20, gc: 100, limit: math.MaxInt64},
	} {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(math.MaxInt64)
		tuneMemory(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok },
			func() (uint64, error) { return c.container, c.err })
		if gc, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1); gc != c.gc || limit != c.limit {
			t.Errorf("%s: GC percent %d, limit %d; want %d, %d", c.name, gc, limit, c.gc, c.limit)
		}
	}
}
