package engine

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/leatdata/leat/internal/backfill"
)

// Backfill is what a saved record tells of one dataset of a source that sends changes.
type Backfill struct {
	Dataset string
	Sinks   []string // sorted
	Phase   Phase
	Rows    int64 // of the snapshot, that are in the sinks so far; 0 once it is complete
}

// Backfills reads the ledger of a saved record (state.Record.Progress.Ledger): the phase of each dataset, for the sinks that share it,
// in the order of their names. It is empty for other sources.
func Backfills(ledger json.RawMessage) ([]Backfill, error) {
	n, err := decodeNotes(ledger)
	if err != nil {
		return nil, err
	}
	open, seeded, err := backfill.Read(n.Backfill)
	if err != nil {
		return nil, err //nolint:wrapcheck // it speaks for itself
	}
	var out []Backfill
	for _, o := range open {
		if o.ID != 0 {
			continue // see Parts: the dataset is live
		}
		b := Backfill{Dataset: o.Dataset, Sinks: slices.Sorted(slices.Values(o.Lanes)), Phase: Waiting, Rows: o.Rows}
		switch {
		case o.Failed:
			b.Phase = Broken
		case o.Begun:
			b.Phase = Snapshotting
		}
		out = append(out, b)
	}
	live := map[string][]string{}
	for sink, datasets := range seeded {
		for _, d := range datasets {
			live[d] = append(live[d], sink)
		}
	}
	for d, sinks := range live {
		slices.Sort(sinks)
		out = append(out, Backfill{Dataset: d, Sinks: sinks, Phase: Live})
	}
	slices.SortFunc(out, func(a, b Backfill) int {
		return strings.Compare(a.Dataset+"\x00"+strings.Join(a.Sinks, ","), b.Dataset+"\x00"+strings.Join(b.Sinks, ","))
	})
	return out, nil
}
