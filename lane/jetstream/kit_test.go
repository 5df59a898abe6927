package jetstream_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/jetstream"
	"github.com/leatdata/leat/lane/lanetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	if err := flag.Set("rapid.checks", "4"); err != nil { // each one takes about a second
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(serverDir)
		os.Exit(code)
	}))
}

// inside is the stream on a server of its own, in a folder.
func inside(t *testing.T) lanetest.Kit {
	t.Helper()
	n := 0
	dir := t.TempDir()
	var c jetstream.Config
	open := func(t lanetest.TB, spec lane.Spec) lane.Durable {
		d, err := jetstream.Open(t.Context(), c, spec)
		if err != nil {
			t.Fatalf("opening: %v", err)
		}
		return d
	}
	var last lane.Durable
	return lanetest.Kit{
		Durable: true, Real: true,
		Open: func(t lanetest.TB, spec lane.Spec) (lane.Stream, func()) {
			n++
			c = jetstream.Config{Dir: filepath.Join(dir, string(rune('a'+n%26))+string(rune('a'+n/26)))}
			last = open(t, spec)
			return last, func() { _ = last.Release() }
		},
		Reopen: func(t lanetest.TB, _ lane.Stream, spec lane.Spec, _ bool) lane.Durable {
			if err := last.Release(); err != nil {
				t.Fatalf("releasing: %v", err)
			}
			last = open(t, spec)
			return last
		},
	}
}

// clauses W1, W2, W3, W4, W5, W6, W7, W8, W9, W10, W11, W12, W14, W16
func TestModel(t *testing.T) {
	lanetest.Model(t, inside(t))
}

// clauses W1, W6, W9, W10, W16
func TestConcurrent(t *testing.T) { lanetest.Concurrent(t, inside(t)) }

// clause W11
func TestCloseEndsAll(t *testing.T) { lanetest.CloseEndsAll(t, inside(t)) }
