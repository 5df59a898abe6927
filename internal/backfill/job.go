package backfill

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/leatdata/leat/record"
)

// state is how far a segment is.
type state uint8

const (
	planned state = iota
	reading
	published
	done
)

// segment is a range of keys, from the end of the segment before it to its own, or a set of keys that are read once more.
type segment struct {
	to       json.RawMessage   // upper end, inclusive; nil: open
	keys     []json.RawMessage // a set of keys instead of a range
	ready    bool              // it is one chunk; else it has to be cut
	state    state
	snapshot record.Position // published: what it was read under
	held     []*record.Batch // reading: changes that wait for it, in order
	again    bool            // reading: the last try failed
	has      map[string]bool // reading and published, in a refill: the keys of the rows that were read

	// Of a part:
	objects []json.RawMessage // keys that were asked for, as they were; beside keys
	touched map[string]touch  // reading: keys that changed since it was begun
	set     map[string]bool   // keys, to look them up
}

// waits reports whether somebody should read the segment.
func (s *segment) waits() bool { return s.ready && s.state == planned || s.again }

// finish forgets the snapshot.
func (s *segment) finish() { s.state, s.snapshot, s.has = done, record.Position{}, nil }

func (s *segment) begin() {
	s.state, s.again, s.has = reading, false, nil
	if s.touched == nil {
		s.touched = map[string]touch{}
	}
}

// job is one backfill: a dataset for the lanes that asked for it.
type job struct {
	dataset  string
	schema   *record.Schema // for the batch that empties the dataset; nil: unknown
	seen     *record.Schema // as the stream showed it last; nil: not yet
	lanes    []string
	gate     record.Position // the lanes are ahead of the stream, up to here; zero: they are not
	truncate bool            // the dataset is emptied before anything is read
	refill   bool            // the lanes have rows of it: deletes are delivered before the chunk is read, too
	failed   bool            // nothing is read any more
	planning bool            // somebody cuts the open segment
	segments []*segment      // cover all keys, in order; the last one is open
	points   []*segment      // sets of keys
	rows     int64           // published
	orders   []uint64        // that asked for it
	serial   uint64          // which of all that were opened it is; 0: it was kept before
	epoch    int             // grows when all is planned again: what was begun before does not count
	bounds   []json.RawMessage
	part     *partial // it reads rows once more that the lanes have; nil: it does not
}

// replan forgets all that was read.
func (j *job) replan() {
	j.epoch++
	j.planning = false
	j.segments, j.points, j.bounds, j.rows = []*segment{{}}, nil, nil, 0
}

// reopen puts a key among those that are read once more.
func (j *job) reopen(key json.RawMessage) {
	for _, p := range j.points {
		if p.state == planned && p.objects == nil {
			if !slices.ContainsFunc(p.keys, func(k json.RawMessage) bool { return bytes.Equal(k, key) }) {
				p.keys = append(p.keys, key)
			}
			return
		}
	}
	j.points = append(j.points, &segment{keys: []json.RawMessage{key}, ready: true})
}

// ends are the upper ends of all segments but the last one.
func (j *job) ends() []json.RawMessage {
	if j.bounds == nil {
		j.bounds = make([]json.RawMessage, 0, len(j.segments))
		for _, s := range j.segments[:len(j.segments)-1] {
			j.bounds = append(j.bounds, s.to)
		}
	}
	return j.bounds
}

// point returns the set of keys that holds key, the newest first; nil: none does.
func (j *job) point(key json.RawMessage) *segment {
	for _, p := range slices.Backward(j.points) {
		if slices.ContainsFunc(p.keys, func(k json.RawMessage) bool { return bytes.Equal(k, key) }) {
			return p
		}
	}
	return nil
}

// cut makes a chunk of the beginning of the open segment.
func (j *job) cut(to json.RawMessage) {
	last := j.segments[len(j.segments)-1]
	if to == nil {
		last.ready = true
		return
	}
	chunk := &segment{to: to, ready: true}
	j.segments = append(j.segments[:len(j.segments)-1], chunk, last)
	j.bounds = nil
}

// tidy joins neighbours that are done and lets go of points that are.
func (j *job) tidy() {
	j.points = slices.DeleteFunc(j.points, func(p *segment) bool { return p.state == done })
	kept := j.segments[:0]
	for _, s := range j.segments {
		if n := len(kept); n > 0 && s.state == done && kept[n-1].state == done {
			kept[n-1] = s
			continue
		}
		kept = append(kept, s)
	}
	clear(j.segments[len(kept):])
	j.segments, j.bounds = kept, nil
}

// complete reports whether the lanes have everything, and no snapshot has to be remembered.
func (j *job) complete() bool {
	return !j.truncate && !j.failed && j.gate.Zero() && len(j.points) == 0 && len(j.segments) == 1 && j.segments[0].state == done
}

// from is the lower end of a segment.
func (j *job) from(s *segment) json.RawMessage {
	if i := slices.Index(j.segments, s); i > 0 {
		return j.segments[i-1].to
	}
	return nil
}

// ahead counts chunks that are cut and not begun.
func (j *job) ahead() int {
	n := 0
	for _, s := range j.segments {
		if s.ready && s.state == planned {
			n++
		}
	}
	return n
}

func (j *job) active() bool { return j.gate.Zero() && !j.failed && !j.truncate }

// all returns segments and points.
func (j *job) all() []*segment { return slices.Concat(j.segments, j.points) }
