package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/internal/engine"
)

func status(rows, bytes int64) engine.Status {
	return engine.Status{
		State: engine.Running,
		Datasets: []engine.DatasetStatus{
			{Name: "orders", Rows: rows, Bytes: bytes, TotalBytes: 1000, TotalRows: -1},
			{Name: "lines", TotalRows: -1, TotalBytes: -1},
		},
		Sinks: []engine.SinkStatus{{Name: "target", Rows: rows}},
	}
}

// case C106.
func TestTracker(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tr := newTracker(now, watching{stallAfter: 10 * time.Second})
	at := func(seconds int, st engine.Status) view {
		return tr.observe(now.Add(time.Duration(seconds)*time.Second), st)
	}
	first := at(1, status(100, 100))
	want := datasetView{Name: "orders", Rows: 100, Bytes: 100, Rate: 100, Done: 0.1, Left: 9 * time.Second, Moved: true}
	if diff := cmp.Diff(want, first.Datasets[0]); diff != "" {
		t.Errorf("first view (-want +got):\n%s", diff)
	}
	if d := first.Datasets[1]; d.Moved || d.Done != -1 || d.Left != -1 {
		t.Errorf("a dataset that nothing is known of: %+v", d)
	}
	second := at(2, status(300, 300))
	if d := second.Datasets[0]; d.Rate <= 100 || d.Rate >= 200 || d.Done != 0.3 || second.Elapsed != 2*time.Second {
		t.Errorf("second view: %+v", d)
	}
	if v := at(11, status(300, 300)); v.Stalled != 0 {
		t.Errorf("stalled after 9 s: %v", v.Stalled)
	}
	if v := at(12, status(300, 300)); v.Stalled != 10*time.Second || v.Datasets[0].Moved {
		t.Errorf("not stalled after 10 s: %+v", v)
	}
	moved := status(300, 300)
	moved.Sinks[0].Durable = 300 // a commit is a movement too
	if v := at(13, moved); v.Stalled != 0 {
		t.Error("still stalled")
	}
	moved.State = engine.Paused
	if v := at(60, moved); v.Stalled != 0 {
		t.Error("a paused run is not stalled")
	}
	if v := at(61, status(2000, 1200)); v.Datasets[0].Left != -1 || v.Datasets[0].Done != 1 {
		t.Errorf("an estimate that was too low: %+v", v.Datasets[0])
	}
}

func TestTrackerWithoutStall(t *testing.T) {
	now := time.Now()
	tr := newTracker(now, watching{})
	if v := tr.observe(now.Add(time.Hour), status(0, 0)); v.Stalled != 0 {
		t.Error("stalled")
	}
}

// case C106.
func TestLogShower(t *testing.T) {
	var out bytes.Buffer
	l := &logShower{log: slog.New(slog.NewJSONHandler(&out, nil))}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tr := newTracker(now, watching{stallAfter: 10 * time.Second})
	for i, st := range []engine.Status{status(100, 100), status(500, 500), status(500, 500), status(500, 500), status(700, 700)} {
		l.show(tr.observe(now.Add(time.Duration(i*8+1)*time.Second), st))
	}
	var got []string
	for line := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		switch m["msg"] {
		case "progress":
			got = append(got, fmt.Sprint(m["dataset"], " ", num(m["rows"]), " ", num(m["done"])))
			if _, ok := m["eta"]; !ok {
				t.Errorf("no ETA: %s", line)
			}
		default:
			got = append(got, fmt.Sprint(m["msg"]))
		}
	}
	want := []string{"orders 100 0.1", "orders 500 0.5", "stalled: nothing has moved", "moving again", "orders 700 0.7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func num(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestBarLines(t *testing.T) {
	v := view{State: "running", Datasets: []datasetView{
		{Name: "public.orders", Rows: 1234567, Bytes: 114e6, Rate: 833e3, Done: 0.42, Left: 83 * time.Second, SetAside: 2},
		{Name: "lines", Rows: 5, Bytes: 80, Rate: 5, Done: -1, Left: -1},
		{Name: "hidden", Done: -1, Left: -1},
	}}
	want := []string{
		"lines                     5 rows       80 B         5 rows/s",
		"public.orders     1,234,567 rows     114 MB      833k rows/s   42%  ETA 1m23s  2 set aside",
		"and 1 more dataset",
	}
	if diff := cmp.Diff(want, barLines(v, []string{"lines", "public.orders"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	v = view{State: "starting", Doing: "trying again in 2s", Stalled: 40 * time.Second}
	if diff := cmp.Diff([]string{"stalled: nothing has moved for 40s; starting trying again in 2s"}, barLines(v, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{thousands(0), "0"},
		{thousands(999), "999"},
		{thousands(1000), "1,000"},
		{thousands(-1234567), "-1,234,567"},
		{plural(1, "row"), "1 row"},
		{plural(2000, "row"), "2,000 rows"},
		{bytesText(999), "999 B"},
		{bytesText(1000), "1.00 kB"},
		{bytesText(114_000_000), "114 MB"},
		{bytesText(10_500_000_000), "10.5 GB"},
		{shortNumber(0), "0"},
		{shortNumber(999.7), "1.00k"},
		{shortNumber(833_333), "833k"},
		{shortDuration(250 * time.Millisecond), "250ms"},
		{shortDuration(4200 * time.Millisecond), "4.2s"},
		{shortDuration(59 * time.Second), "59s"},
		{shortDuration(125 * time.Second), "2m05s"},
		{shortDuration(3*time.Hour + 5*time.Minute), "3h05m"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
