package cli

import (
	"encoding/json"
	"fmt"

	"github.com/leatdata/leat/internal/backfill"
	"github.com/leatdata/leat/internal/engine"
)

// savedPhases is how far each dataset is for each sink, as far as a saved record says.
func savedPhases(ledger json.RawMessage) ([]statusDataset, error) {
	out := []statusDataset{}
	if len(ledger) == 0 {
		return out, nil
	}
	var notes struct {
		Failed   map[string][]string `json:"failed"`
		Backfill json.RawMessage     `json:"backfill"`
	}
	if err := json.Unmarshal(ledger, &notes); err != nil {
		return nil, fmt.Errorf("reading what is saved: %w", err)
	}
	open, seeded, err := backfill.Read(notes.Backfill)
	if err != nil {
		return nil, err
	}
	type place struct{ dataset, sink string }
	at := map[place]statusDataset{}
	set := func(sink, dataset string, phase engine.Phase, rows int64) {
		at[place{dataset, sink}] = statusDataset{Dataset: dataset, Sink: sink, Phase: phase.String(), Rows: rows}
	}
	for sink, datasets := range seeded {
		for _, d := range datasets {
			set(sink, d, engine.Live, 0)
		}
	}
	for _, b := range open {
		phase := engine.Waiting
		switch {
		case b.Failed:
			phase = engine.Broken
		case b.Begun:
			phase = engine.Snapshotting
		}
		for _, sink := range b.Lanes {
			set(sink, b.Dataset, phase, b.Rows)
		}
	}
	for sink, datasets := range notes.Failed {
		for _, d := range datasets {
			set(sink, d, engine.Broken, 0)
		}
	}
	for _, d := range at {
		out = append(out, d)
	}
	sortPhases(out)
	return out, nil
}
