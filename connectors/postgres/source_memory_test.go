package postgres

import (
	"testing"

	"github.com/leatdata/leat/connector"
)

// What is read ahead is a chunk for each reader and one more, and never more than the run's budget for the source.
func TestBufferBytes(t *testing.T) {
	t.Parallel()
	cfg := &SourceConfig{ChunkBytes: 10, Parallel: 3}
	for memory, want := range map[int64]int64{0: 40, 1000: 40, 25: 25} {
		s := newSource(cfg, connector.Env{Memory: memory})
		if got := s.bufferBytes(); got != want {
			t.Errorf("with a budget of %d: %d, want %d", memory, got, want)
		}
	}
}
