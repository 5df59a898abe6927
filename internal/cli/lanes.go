package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/state"
)

// lanesFlags say what is shown of lanes.
type lanesFlags struct {
	sink  string
	items int
	json  bool
}

func (s *session) lanesCommand() *cobra.Command {
	var f lanesFlags
	cmd := &cobra.Command{
		Use:   "lanes FILE | NAME",
		Short: "Show what waits for each sink",
		Long: `Shows the lane to each sink of a pipeline, from what is saved about it, while it runs elsewhere or is stopped: where it
is kept (in memory, or durable: on a disk), its state, what its sink has acknowledged, what waits in it and for how long, and
the last failure of its sink.

  live      its sink follows
  filling   its sink is being filled: a copy of what the source has is not complete
  paused    somebody paused it; leat resume ends that
  down      its sink fails, and is tried again
  detached  it held more than its quota and was let go; its sink is filled anew once it is back

With --items the next items that wait in durable lanes are listed, without their rows: of lanes in a folder while no process
runs the pipeline, of those on servers at any time.`,
		Example: `  leat lanes shop.yaml
  leat lanes sync-shop-replica-and-1-0a1b2c3d4e --json
  leat lanes shop.yaml --sink lake --items 20`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withStore(cmd.Context(), func(ctx context.Context, store state.Store) error {
				t, err := s.target(ctx, store, args[0])
				if err != nil {
					return err
				}
				return s.lanes(ctx, t, f)
			})
		},
	}
	cmd.Flags().StringVar(&f.sink, "sink", "", "only the lane to this sink")
	cmd.Flags().IntVar(&f.items, "items", 0, "list so many of the items that wait, the oldest first")
	cmd.Flags().BoolVar(&f.json, "json", false, "print as JSON")
	return cmd
}

func (s *session) lanes(ctx context.Context, t target, f lanesFlags) error {
	if f.sink != "" {
		if _, err := chosen("sink", []string{f.sink}, t.sinks()); err != nil {
			return err
		}
	}
	switch {
	case f.items < 0:
		return usagef("--items %d: want no negative number", f.items)
	case f.items > 0:
		return s.laneItems(ctx, t, f)
	}
	lanes := slices.DeleteFunc(savedLanes(t.rec, t.order), func(l statusLane) bool { return f.sink != "" && l.Sink != f.sink })
	switch {
	case f.json:
		return s.printJSON(lanes)
	case len(lanes) == 0:
		return s.print("nothing is saved about the lanes of %s yet\n", t.p.Name)
	}
	return s.print("%s\n", s.redact.text(laneTable(lanes, s.clock()())))
}

// statusLane is what is saved of the lane to one sink.
type statusLane struct {
	Sink     string          `json:"sink"`
	Kind     string          `json:"kind"` // memory or durable
	State    string          `json:"state"`
	Position json.RawMessage `json:"position,omitempty"` // what its sink has acknowledged
	Item     uint64          `json:"item,omitempty"`     // likewise, of a durable lane
	Items    int64           `json:"waiting_items"`
	Bytes    int64           `json:"waiting_bytes"`
	Oldest   *time.Time      `json:"oldest,omitempty"` // of what waits
	Error    string          `json:"error,omitempty"`
	Epoch    *statusEpoch    `json:"epoch,omitempty"` // of a sink that publishes in two phases
}

type statusEpoch struct {
	Number  uint64 `json:"number"`
	Decided bool   `json:"decided"` // it is published, now or after a crash
}

// savedLanes is what a record tells of the lanes, by the names of their sinks. What is paused is so from now on, whatever was saved.
func savedLanes(rec state.Record, o state.Orders) []statusLane {
	kind := config.LanesMemory
	if rec.Stream != "" {
		kind = config.LanesDurable
	}
	out := make([]statusLane, 0, len(rec.Lanes))
	for _, name := range slices.Sorted(maps.Keys(rec.Lanes)) {
		l := rec.Lanes[name]
		st := statusLane{
			Sink: name, Kind: kind, State: cmp.Or(l.State, "unknown"), Position: l.Progress.Position.Data, Item: l.Progress.Item,
			Items: l.Items, Bytes: l.Held, Error: l.Error,
		}
		if !l.Oldest.IsZero() {
			oldest := l.Oldest.UTC()
			st.Oldest = &oldest
		}
		if e := l.Epoch; e != nil {
			st.Epoch = &statusEpoch{Number: e.Number, Decided: e.Decided}
		}
		if slices.Contains(o.Sinks, name) && l.State != state.LaneDetached {
			st.State = state.LanePaused
		}
		out = append(out, st)
	}
	return out
}

// How much of a position, and of an error, a table shows; --json has all of it.
const (
	positionWidth = 40
	errorWidth    = 100
)

// laneTable is for people. Columns that would be empty throughout are left out.
func laneTable(lanes []statusLane, now time.Time) string {
	header := table.Row{"sink", "lane", "state", "acknowledged", "waiting", "bytes", "oldest", "epoch", "last error"}
	rows := make([]table.Row, len(lanes))
	for i, l := range lanes {
		oldest, epoch := "", ""
		if l.Oldest != nil {
			oldest = shortDuration(max(0, now.Sub(*l.Oldest)))
		}
		if l.Epoch != nil {
			epoch = epochText(*l.Epoch)
		}
		rows[i] = table.Row{
			l.Sink, l.Kind, l.State, shorten(oneLine(cmp.Or(string(l.Position), "none")), positionWidth),
			plural(l.Items, "item"), bytesText(l.Bytes), oldest, epoch,
			shorten(oneLine(strings.Join(strings.Fields(l.Error), " ")), errorWidth),
		}
	}
	t := newTable()
	t.AppendHeader(trimmed(header, rows, header))
	for _, r := range rows {
		t.AppendRow(trimmed(header, rows, r))
	}
	return t.Render()
}

// trimmed leaves out of a row the columns that are empty in all rows.
func trimmed(header table.Row, rows []table.Row, row table.Row) table.Row {
	var out table.Row
	for i := range header {
		if slices.ContainsFunc(rows, func(r table.Row) bool { return r[i] != "" }) {
			out = append(out, row[i])
		}
	}
	return out
}

func epochText(e statusEpoch) string {
	if e.Decided {
		return thousands(int64(e.Number)) + " decided"
	}
	return thousands(int64(e.Number)) + " open"
}
