package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/leatdata/leat/internal/engine"
)

// savedPhases is how far each dataset is for each sink, as far as a saved record says: all of a source that is followed, else those
// that failed.
func savedPhases(ledger json.RawMessage) ([]statusDataset, error) {
	backfills, err := engine.Backfills(ledger)
	if err != nil {
		return nil, err
	}
	type place struct{ dataset, sink string }
	at := map[place]statusDataset{}
	for _, b := range backfills {
		for _, sink := range b.Sinks {
			p := place{b.Dataset, sink}
			if _, open := at[p]; !open || b.Phase != engine.Live { // what is copied once more was live before
				at[p] = statusDataset{Dataset: b.Dataset, Sink: sink, Phase: b.Phase.String(), Rows: b.Rows}
			}
		}
	}
	var notes struct {
		Failed map[string][]string `json:"failed"`
	}
	if len(ledger) > 0 {
		if err := json.Unmarshal(ledger, &notes); err != nil {
			return nil, fmt.Errorf("reading what is saved: %w", err)
		}
	}
	for sink, datasets := range notes.Failed {
		for _, d := range datasets {
			at[place{d, sink}] = statusDataset{Dataset: d, Sink: sink, Phase: engine.Broken.String()}
		}
	}
	out := make([]statusDataset, 0, len(at))
	for _, d := range at {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b statusDataset) int {
		return cmp.Or(cmp.Compare(a.Dataset, b.Dataset), cmp.Compare(a.Sink, b.Sink))
	})
	return out, nil
}
