package lane

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane/internal/wire"
)

// note is how far the lanes of a stream got: what a Storage keeps beside the log. docs/formats/lanes.md describes it.
type note struct {
	Format   int        `json:"format"`
	Pipeline string     `json:"pipeline"`
	Run      string     `json:"run"`
	Epoch    uint64     `json:"epoch"` // counts the owners
	Began    uint64     `json:"began"` // the epoch that began the run
	Lanes    []laneNote `json:"lanes"`
	Cuts     []cutNote  `json:"cuts,omitempty"`
}

// laneNote is one lane: everything up to Number is acknowledged, or not for the lane.
type laneNote struct {
	Sink     string    `json:"sink"`
	Number   uint64    `json:"number"`
	Acked    uint64    `json:"acked"`  // the last item of the lane up to Number; 0: none
	Entry    uint64    `json:"entry"`  // where reading goes on
	Mark     wire.Mark `json:"mark"`   // the newest item with a position up to Number
	Passed   wire.Sum  `json:"passed"` // what was acknowledged without a gap
	Began    uint64    `json:"began"`  // only items behind this number were ever the lane's
	Detached bool      `json:"detached,omitempty"`
}

// cutNote is a stretch of the log that does not count: it was published behind the newest position before an owner ended.
type cutNote struct {
	First     uint64 `json:"first"` // numbers of items, both included
	Last      uint64 `json:"last"`
	FromEntry uint64 `json:"from_entry"` // entries that have nothing else, both included; from > to: none
	ToEntry   uint64 `json:"to_entry"`
}

// noteFormat is the number of the note's form.
const noteFormat = 1

func (n *note) encode() ([]byte, error) {
	b, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("encoding the note of the lanes: %w", err)
	}
	return b, nil
}

func decodeNote(b []byte, pipeline string) (*note, error) {
	n := new(note)
	if b == nil {
		return &note{Format: noteFormat, Pipeline: pipeline}, nil
	}
	err := json.Unmarshal(b, n)
	switch {
	case err != nil:
	case n.Format != noteFormat:
		err = fmt.Errorf("they have format %d, and this program reads format %d", n.Format, noteFormat)
	case n.Pipeline != pipeline:
		err = fmt.Errorf("they belong to pipeline %q", n.Pipeline)
	}
	if err != nil {
		return nil, unusable(pipeline, err)
	}
	return n, nil
}

// unusable is the error for lanes that can't be gone on with.
func unusable(pipeline string, err error) error {
	code := "lanes.missing"
	if errors.Is(err, wire.ErrFormat) {
		code = "lanes.format"
	}
	return &connector.Error{
		Class: connector.ClassPosition, Code: code, Doing: "opening the lanes of " + pipeline, Err: err,
		Hint: "bring back what is missing (the version of leat that wrote it, a backup), or start over with: leat state reset " + pipeline,
	}
}

// lane returns the note of a sink's lane.
func (n *note) lane(sink string) (laneNote, bool) {
	for _, l := range n.Lanes {
		if l.Sink == sink {
			return l, true
		}
	}
	return laneNote{}, false
}

// void reports whether the item of this number does not count.
func void(cuts []cutNote, number uint64) bool {
	for _, c := range cuts {
		if number >= c.First && number <= c.Last {
			return true
		}
	}
	return false
}

// over returns the first entry from this one on that is not cut out as a whole.
func over(cuts []cutNote, entry uint64) uint64 {
	for _, c := range cuts {
		if entry >= c.FromEntry && entry <= c.ToEntry {
			entry = c.ToEntry + 1
		}
	}
	return entry
}
