package lane_test

import (
	"flag"
	"testing"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/lanetest"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// inMemory is the stream of one process.
func inMemory() lanetest.Kit {
	return lanetest.Kit{Open: func(t lanetest.TB, spec lane.Spec) (lane.Stream, func()) {
		m, err := lane.NewMemory(spec.Sinks, spec.Options)
		if err != nil {
			t.Fatalf("%v", err)
		}
		return m, func() {}
	}}
}

// owner is a durable stream with what it stands on.
type owner struct {
	lane.Durable

	disk   *lanetest.Disk
	handle *lanetest.Handle
}

func own(t lanetest.TB, disk *lanetest.Disk, spec lane.Spec) *owner {
	h := disk.Open()
	d, err := lane.Open(t.Context(), h, spec, nil)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	return &owner{d, disk, h}
}

// onDisk is the stream that outlives the process, on a disk in memory.
func onDisk() lanetest.Kit {
	var last *owner
	return lanetest.Kit{
		Durable: true,
		Open: func(t lanetest.TB, spec lane.Spec) (lane.Stream, func()) {
			last = own(t, lanetest.NewDisk(), spec)
			return last, func() { _ = last.Release() }
		},
		Reopen: func(t lanetest.TB, _ lane.Stream, spec lane.Spec, crash bool) lane.Durable {
			disk := last.disk
			if crash {
				disk = disk.Clone()
				last.handle.Kill()
			}
			if err := last.Release(); err != nil && !crash {
				t.Fatalf("releasing: %v", err)
			}
			last = own(t, disk, spec)
			return last
		},
	}
}

// clauses W1, W2, W3, W4, W5, W6, W7, W8, W9, W10, W11, W12, W14, W16
func TestModel(t *testing.T) {
	t.Run("memory", func(t *testing.T) { lanetest.Model(t, inMemory()) })
	t.Run("durable", func(t *testing.T) { lanetest.Model(t, onDisk()) })
}

// clauses W1, W3, W5, W6, W7, W8, W9, W10, W11, W13, W14
func TestScripts(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		lanetest.Scripts(t, inMemory(), *update, "testdata/*.txt", "testdata/memory/*.txt")
	})
	t.Run("durable", func(t *testing.T) { lanetest.Scripts(t, onDisk(), *update, "testdata/*.txt", "testdata/durable/*.txt") })
}

// clauses W1, W6, W9, W10, W16
func TestConcurrent(t *testing.T) {
	t.Run("memory", func(t *testing.T) { lanetest.Concurrent(t, inMemory()) })
	t.Run("durable", func(t *testing.T) { lanetest.Concurrent(t, onDisk()) })
}

// clause W11
func TestCloseEndsAll(t *testing.T) {
	t.Run("memory", func(t *testing.T) { lanetest.CloseEndsAll(t, inMemory()) })
	t.Run("durable", func(t *testing.T) { lanetest.CloseEndsAll(t, onDisk()) })
}

// clause W13
func TestRequestsModel(t *testing.T) {
	t.Run("memory", func(t *testing.T) { lanetest.Requests(t, inMemory()) })
	t.Run("durable", func(t *testing.T) { lanetest.Requests(t, onDisk()) })
}
