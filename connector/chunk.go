package connector

import (
	"iter"

	"github.com/leatdata/leat/record"
)

// ChunkSeq yields chunks in order; an error ends it.
type ChunkSeq = iter.Seq2[record.Chunk, error]
