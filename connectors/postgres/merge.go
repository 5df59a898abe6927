package postgres

import "sync"

// merging is what the merging of chunks with a stream needs. It may be used concurrently; the zero value is ready.
type merging struct {
	mu sync.Mutex // guards what follows
}
