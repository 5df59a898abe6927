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

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
)

var start0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// following is a run after so many seconds: orders is copied at 1,000 rows a second, lines is followed at 2 changes a second.
func following(second int64) engine.Status {
	copied := min(second*1000, 10_000)
	st := engine.Status{
		State: engine.Running,
		Datasets: []engine.DatasetStatus{
			{Name: "public.orders", Rows: copied, Bytes: copied * 100, TotalRows: 10_000, TotalBytes: -1, Phase: engine.Snapshotting, Snapshot: copied},
			{Name: "public.lines", Rows: 500 + 2*second, Bytes: 100, TotalRows: 500, TotalBytes: -1, Phase: engine.Live, Snapshot: 500, Changes: 2 * second},
			{Name: "public.users", TotalRows: 7, TotalBytes: -1, Phase: engine.Waiting},
			{Name: "public.gone", TotalRows: -1, TotalBytes: -1, Phase: engine.Broken},
		},
		Sinks: []engine.SinkStatus{
			{Name: "sqlite-a", Rows: copied, Durable: copied, Queued: 3_100_000, Failed: map[string]string{"public.gone": "permission\ndenied"}},
			{Name: "file-out", Rows: copied, Durable: copied},
		},
		Lag: connector.Lag{Bytes: 1_200_000, Events: -1, Age: 3200 * time.Millisecond, Retained: 14_000_000},
	}
	if copied == 10_000 {
		st.Datasets[0].Phase = engine.Live
	}
	return st
}

func viewsOf(t *tracker, from, to int64) view {
	var v view
	for s := from; s <= to; s++ {
		v = t.observe(start0.Add(time.Duration(s)*time.Second), following(s))
	}
	return v
}

// case C106: rows, rate, ETA and phase of every dataset, lag in bytes and seconds, retained log, queues.
func TestFollowLines(t *testing.T) {
	tr := newTracker(start0, watching{follows: true, stallAfter: time.Minute})
	v := viewsOf(tr, 1, 4)
	want := []string{
		"public.gone    failed    sqlite-a: permission␊denied",
		"public.lines   live               508 rows       1.1 changes/s  8 changes",
		"public.orders  snapshot         4,000 rows     1.00k rows/s   40%  ETA 6.0s",
		"public.users   waiting",
		"behind by 3.2s, 1.20 MB; the source keeps 14.0 MB of its log; 3.10 MB waits for sqlite-a",
	}
	if diff := cmp.Diff(want, followLines(v, 20, 120)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	v = viewsOf(tr, 5, 12)
	if got := followLines(v, 20, 120)[2]; got != "public.orders  live            10,000 rows         0 changes/s  0 changes" {
		t.Errorf("copied: %q", got)
	}
}

// Never more lines than there are, never longer than they are.
func TestFollowLinesFit(t *testing.T) {
	var st engine.Status
	st.State = engine.Running
	for i := range 300 {
		d := engine.DatasetStatus{Name: fmt.Sprintf("t%03d", i), Phase: engine.Live, TotalRows: -1, TotalBytes: -1}
		switch {
		case i%100 == 7:
			d.Phase, d.Rows, d.Changes = engine.Live, int64(i)*10, int64(i)*10 // the busy ones
		case i == 50:
			d.Phase = engine.Broken
		case i > 200:
			d.Phase = engine.Waiting
		}
		st.Datasets = append(st.Datasets, d)
	}
	st.Sinks = []engine.SinkStatus{{Name: "a", Failed: map[string]string{"t050": strings.Repeat("very long reason ", 50)}}}
	st.Lag = connector.Lag{Bytes: 0, Events: -1, Age: 0, Retained: 99}
	v := newTracker(start0, watching{follows: true}).observe(start0.Add(time.Second), st)
	want := []string{
		"t007  live                70 rows        13 changes/s  70 changes",
		"t050  failed    a: very long reason very long reason very long reason very lon…",
		"t107  live             1,070 rows       194 changes/s  1,070 changes",
		"t207  live             2,070 rows       375 changes/s  2,070 changes",
		"and 296 more datasets: 198 live, 98 waiting",
		"nothing is waiting in the source; the source keeps 99 B of its log",
	}
	if diff := cmp.Diff(want, followLines(v, 6, 80)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for rows := range 12 {
		for _, columns := range []int{20, 80} {
			lines := followLines(v, rows, columns)
			if len(lines) > max(rows, 1) {
				t.Errorf("%d lines in %d", len(lines), rows)
			}
			for _, l := range lines {
				if n := len([]rune(l)); n >= columns {
					t.Errorf("%d characters in %d: %s", n, columns, l)
				}
			}
		}
	}
}

func TestFootLines(t *testing.T) {
	for _, c := range []struct {
		name string
		v    view
		want []string
	}{
		{"unknown lag", view{State: "running", Lag: connector.Lag{Bytes: -1, Events: -1, Age: -1, Retained: -1}}, nil},
		{"not asked yet", view{State: "running"}, nil},
		{"bytes alone", view{State: "running", Lag: connector.Lag{Bytes: 5, Events: -1, Age: -1, Retained: -1}}, []string{"behind by 5 B"}},
		{"age alone", view{State: "running", Lag: connector.Lag{Bytes: -1, Events: -1, Age: time.Second, Retained: -1}}, []string{"behind by 1.0s"}},
		{"trying again", view{State: "starting", Doing: "trying again in 2s"}, []string{"starting: trying again in 2s"}},
		{"stopping", view{State: "draining"}, []string{"draining"}},
		{
			"stalled",
			view{State: "running", Stalled: 40 * time.Second, Sinks: []sinkView{{Name: "a", Queued: 5}, {Name: "b"}}},
			[]string{"stalled: nothing has moved for 40s; running", "5 B waits for a"},
		},
		{
			"latencies",
			view{State: "running", Sinks: []sinkView{
				{Name: "a", Usual: 2312 * time.Microsecond, Most: 119 * time.Millisecond}, {Name: "b", Usual: time.Second, Most: time.Minute},
			}},
			[]string{"changes take 2.3ms, at most 120ms, to a; changes take 1s, at most 1m00s, to b"},
		},
	} {
		if diff := cmp.Diff(c.want, footLines(c.v)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// case C106: a run that is followed is stalled only where something waits, and a sink that blocks shows.
func TestFollowStall(t *testing.T) {
	live := func(read, durable int64) engine.Status {
		return engine.Status{
			State:    engine.Running,
			Datasets: []engine.DatasetStatus{{Name: "t", Rows: read, Changes: read, Phase: engine.Live}},
			Sinks:    []engine.SinkStatus{{Name: "a", Rows: read, Durable: durable, Position: record.Position{Data: fmt.Append(nil, durable)}}},
			Lag:      connector.Lag{Age: 0, Bytes: 10, Events: -1, Retained: 10},
		}
	}
	tr := newTracker(start0, watching{follows: true, stallAfter: 10 * time.Second})
	at := func(second int, st engine.Status) time.Duration {
		return tr.observe(start0.Add(time.Duration(second)*time.Second), st).Stalled
	}
	at(1, live(5, 5))
	if d := at(100, live(5, 5)); d != 0 {
		t.Errorf("idle, and stalled for %s", d)
	}
	at(101, live(9, 5)) // the sink does not move
	if d := at(110, live(9, 5)); d != 0 {
		t.Errorf("stalled too early: %s", d)
	}
	if d := at(111, live(9, 5)); d != 10*time.Second {
		t.Errorf("the sink blocks, and it is stalled for %s", d)
	}
	if d := at(112, live(9, 9)); d != 0 {
		t.Errorf("stalled for %s after it moved", d)
	}
	behind := live(9, 9)
	behind.Lag.Age = time.Second // the source does not come on
	at(113, behind)
	if d := at(123, behind); d != 11*time.Second {
		t.Errorf("the source blocks, and it is stalled for %s", d)
	}
	copying := live(9, 9)
	copying.Datasets[0].Phase = engine.Snapshotting
	if d := at(124, copying); d != 12*time.Second {
		t.Errorf("the snapshot blocks, and it is stalled for %s", d)
	}
}

// Without a terminal: a line every ten seconds, and one whenever datasets come into another phase.
func TestFollowLogger(t *testing.T) {
	var out bytes.Buffer
	l := newFollowLogger(10 * time.Second)
	l.log = slog.New(slog.NewJSONHandler(&out, nil))
	tr := newTracker(start0, watching{follows: true, stallAfter: time.Minute})
	for second := int64(1); second <= 20; second++ {
		l.show(tr.observe(start0.Add(time.Duration(second)*time.Second), following(second)))
	}
	var got []string
	var last map[string]any
	for line := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == "phase" {
			got = append(got, fmt.Sprint(m["level"], " ", m["phase"], " ", m["datasets"]))
			continue
		}
		got = append(got, fmt.Sprint(m["msg"], " ", m["phases"], " ", num(m["rows"]), " ", num(m["changes"]), " ", m["changes_per_second"]))
		last = m
	}
	want := []string{
		"INFO waiting public.users", "INFO snapshot public.orders", "INFO live public.lines", "WARN failed public.gone",
		"INFO live public.orders", "progress 1 failed, 2 live, 1 waiting 10520 20 1.7",
		"progress 1 failed, 2 live, 1 waiting 10540 40 2.0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	queued, _ := last["queued_bytes"].(map[string]any)
	if num(last["lag_bytes"]) != "1200000" || num(last["retained_bytes"]) != "14000000" || num(last["lag"]) != "3200000000" ||
		num(queued["sqlite-a"]) != "3100000" || num(queued["file-out"]) != "0" {
		t.Errorf("got %v", last)
	}
}

// What stands still is said at once, and then no more often than progress.
func TestFollowLoggerStall(t *testing.T) {
	var out bytes.Buffer
	l := newFollowLogger(10 * time.Second)
	l.log = slog.New(slog.NewTextHandler(&out, nil))
	for second := range 40 {
		v := view{State: "running", Elapsed: time.Duration(second) * time.Second}
		if second > 15 && second < 35 {
			v.Stalled = v.Elapsed
		}
		l.show(v)
	}
	if n := strings.Count(out.String(), "stalled: nothing has moved"); n != 3 { // after 16, 20 and 30 seconds
		t.Errorf("said %d times:\n%s", n, out.String())
	}
	if n := strings.Count(out.String(), "moving again"); n != 1 {
		t.Errorf("%d times moving again:\n%s", n, out.String())
	}
}

func TestFollowSummary(t *testing.T) {
	sum := engine.Summary{
		Pipeline: "sync-shop-a-1", Reached: connector.ExactlyOnce, Took: 3*time.Hour + 5*time.Minute, Resumed: true,
		Position: record.Position{Shape: 2, Data: []byte(`{"lsn":"0/1"}`)},
		Datasets: []engine.DatasetStatus{
			{Name: "orders", Rows: 1_000_001, Bytes: 114e6, Phase: engine.Live, Snapshot: 1_000_000, Changes: 1},
			{Name: "lines", Phase: engine.Waiting},
		},
		Sinks: []engine.SinkStatus{{Name: "a", Rows: 1_000_001}},
	}
	s := newSummary(sum, nil, "").follow(sum, false)
	s.PeakMemory = 0
	want := `orders     1,000,000 rows copied             1 changes  live
lines              0 rows copied             0 changes  waiting
stopped after 3h05m: 1,000,000 rows copied, 1 change followed
went on where the last run ended
the same command goes on from here; leat status sync-shop-a-1 shows how far it is
guarantee: exactly-once
`
	if diff := cmp.Diff(want, s.text()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := ending(s, nil); err != nil {
		t.Errorf("to stop is how it ends: %v", err)
	}
	for _, part := range []string{`"state":"stopped"`, `"position":{"lsn":"0/1"}`, `"changes":1`, `"phase":"waiting"`} {
		if text := s.json(&redactor{}); !strings.Contains(text, part) {
			t.Errorf("lacks %s: %s", part, text)
		}
	}
	// case C044: a run that was to end has succeeded only if it came to the end.
	once := newSummary(sum, nil, "").follow(sum, true)
	if once.State != "interrupted" || exitCode(ending(once, nil)) != ExitInterrupted {
		t.Errorf("got %s", once.State)
	}
	sum.Done = true
	once = newSummary(sum, nil, "").follow(sum, true)
	if err := ending(once, nil); once.State != "done" || err != nil ||
		!strings.Contains(once.text(), "came to the end of the changes after 3h05m") || !strings.Contains(once.text(), "leat drop") {
		t.Errorf("got %s, %v:\n%s", once.State, err, once.text())
	}
}
