package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/jetstream"
)

// laneItem is an item that waits in durable lanes, without its rows.
type laneItem struct {
	Number    uint64           `json:"number"`
	Published time.Time        `json:"published"`
	Sinks     []string         `json:"sinks"` // that it waits for
	Dataset   string           `json:"dataset,omitempty"`
	Rows      int64            `json:"rows"`
	Ops       map[string]int64 `json:"ops,omitempty"` // how many rows are insert, update, delete
	Changes   int64            `json:"changes"`
	Bytes     int64            `json:"bytes"`
	Position  json.RawMessage  `json:"position,omitempty"`
	Complete  bool             `json:"snapshot_complete,omitempty"` // the mark of a complete snapshot
}

// laneItems shows the next items that wait in durable lanes.
func (s *session) laneItems(ctx context.Context, t target, f lanesFlags) error {
	if t.laneKind() == config.LanesMemory {
		return &usageError{
			err:  fmt.Errorf("--items: the lanes of %s are in memory, and nobody sees into them from outside", t.p.Name),
			hint: "leat lanes " + t.p.Name + " shows how much waits",
		}
	}
	log, err := s.logger(s.Stderr)
	if err != nil {
		return err
	}
	c, err := s.laneStore(t.p, log)
	if err != nil {
		return err
	}
	items := []laneItem{}
	err = jetstream.List(ctx, c, t.p.Name, func(i *lane.Inspection) error {
		for p, err := range i.Items(ctx) {
			if err != nil {
				return err
			}
			if item, waits := waitingItem(p, i.Lanes, f.sink); waits {
				items = append(items, item)
			}
			if len(items) == f.items {
				return nil
			}
		}
		return nil
	})
	switch {
	case codeOf(err) == "lanes.none" && !t.file:
		return &usageError{err: err, hint: "name the pipeline file if that says where its lanes are"}
	case err != nil:
		return err
	case f.json:
		return s.printJSON(items)
	case len(items) == 0:
		return s.print("nothing waits\n")
	}
	return s.print("%s\n", s.redact.text(itemTable(items)))
}

// waitingItem tells which sinks an item waits for; false: for none, or not for the one that was asked for.
func waitingItem(p lane.Published, lanes []lane.InspectedLane, sink string) (laneItem, bool) {
	if p.Void {
		return laneItem{}, false
	}
	item := laneItem{
		Number: p.Number, Published: p.Time.UTC(), Dataset: p.Dataset, Rows: p.Rows, Ops: p.Ops, Changes: p.Changes, Bytes: p.Bytes,
		Position: p.Position.Data, Complete: p.Complete,
	}
	for _, l := range lanes {
		if !l.Detached && l.Acked < p.Number && (p.To == nil || slices.Contains(p.To, l.Sink)) {
			item.Sinks = append(item.Sinks, l.Sink)
		}
	}
	if sink != "" {
		return item, slices.Contains(item.Sinks, sink)
	}
	return item, len(item.Sinks) > 0
}

func itemTable(items []laneItem) string {
	t := newTable()
	t.AppendHeader(table.Row{"item", "published", "dataset", "what", "bytes", "waits for", "position"})
	for _, i := range items {
		t.AppendRow(table.Row{
			i.Number, i.Published.Local().Format(time.DateTime), i.Dataset, itemText(i), bytesText(i.Bytes), strings.Join(i.Sinks, ", "),
			shorten(oneLine(string(i.Position)), positionWidth),
		})
	}
	return t.Render()
}

// itemText says what an item is: so many rows of each operation, or the mark of a complete snapshot.
func itemText(i laneItem) string {
	if i.Complete {
		return "snapshot complete"
	}
	var parts []string
	for _, op := range []string{"insert", "update", "delete"} {
		if n := i.Ops[op]; n > 0 {
			parts = append(parts, plural(n, op))
		}
	}
	if len(parts) == 0 {
		return plural(i.Rows, "row")
	}
	return strings.Join(parts, ", ")
}
