package cli

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
)

// view is one look at a run.
type view struct {
	State    string
	Doing    string
	Elapsed  time.Duration
	Datasets []datasetView
	Stalled  time.Duration // for how long nothing has moved, once that is too long; 0: it moves, or has no reason to
	Lag      connector.Lag
	Sinks    []sinkView // in plan order
}

// sinkView is one sink of a view.
type sinkView struct {
	Name   string
	Queued int64 // bytes that wait for it
	// How long changes took from their commit until they were durable, lately: half of them, and 99 of 100; 0: there were none.
	Usual, Most time.Duration
}

// datasetView is one dataset of a view.
type datasetView struct {
	Name     string
	Rows     int64
	Bytes    int64
	Rate     float64       // rows per second, lately
	Done     float64       // share that was read, 0 to 1; -1: unknown
	Left     time.Duration // -1: unknown
	SetAside int64
	Moved    bool // since the last view

	// Of a source that is followed.
	Phase      engine.Phase
	Snapshot   int64   // of Rows
	Changes    int64   // of Rows
	ChangeRate float64 // changes per second, lately
	Why        string  // why it failed
}

// tracker makes views out of what a control shows. It keeps the clock out: every call is told the time.
type tracker struct {
	follows    bool // the source is followed: that nothing moves is no reason to worry where nothing waits
	stallAfter time.Duration
	began      time.Time
	moved      time.Time
	last       time.Time
	total      int64
	datasets   map[string]*track
	read       int64 // of total
	readAt     time.Time
	sinks      map[string]sinkTrack

	older, newer map[string]*engine.Latencies // as they were at two times of the past, by sink
	newerAt      time.Time
}

// sinkTrack is what a tracker knows of one sink: what was durable, and when that was seen first.
type sinkTrack struct {
	durable  int64
	position string
	at       time.Time
}

// track is what a tracker knows of one dataset.
type track struct {
	began   time.Time
	rows    speed
	changes speed
}

func newTracker(now time.Time, w watching) *tracker {
	return &tracker{
		follows: w.follows, stallAfter: w.stallAfter, began: now, moved: now, last: now, datasets: map[string]*track{},
		readAt: now, sinks: map[string]sinkTrack{},
	}
}

// rateWindow is how much of the past a rate looks at.
const rateWindow = 5 * time.Second

// observe makes the view of a status at a time.
func (t *tracker) observe(now time.Time, st engine.Status) view {
	windows := t.window(now, st.Sinks)
	v := view{State: st.State.String(), Doing: st.Doing, Elapsed: now.Sub(t.began), Lag: st.Lag}
	total := int64(0)
	why := map[string]string{}
	for _, s := range st.Sinks {
		total += s.Rows + s.Durable + s.Bytes + s.Skipped
		lately := s.Latencies.Since(windows[s.Name])
		v.Sinks = append(v.Sinks, sinkView{s.Name, s.Queued, lately.Quantile(0.5), lately.Quantile(0.99)})
		for d, reason := range s.Failed {
			why[d] = s.Name + ": " + reason
		}
	}
	read := int64(0)
	for _, d := range st.Datasets {
		read += d.Rows + d.Bytes + d.SetAside
		dv := t.dataset(now, d)
		dv.Why = why[d.Name]
		v.Datasets = append(v.Datasets, dv)
	}
	total += read
	behind := t.behind(now, read, st.Sinks)
	if total != t.total || st.State == engine.Paused || (t.follows && !behind && !waits(st)) {
		t.total, t.moved = total, now
	}
	if still := now.Sub(t.moved); t.stallAfter > 0 && still >= t.stallAfter {
		v.Stalled = still
	}
	t.last = now
	return v
}

// window returns the latencies as they were one or two rateWindows ago, by sink.
func (t *tracker) window(now time.Time, sinks []engine.SinkStatus) map[string]*engine.Latencies {
	if now.Sub(t.newerAt) >= rateWindow {
		t.older, t.newer, t.newerAt = t.newer, map[string]*engine.Latencies{}, now
		for _, s := range sinks {
			t.newer[s.Name] = &s.Latencies
		}
	}
	then := map[string]*engine.Latencies{}
	for _, s := range sinks {
		then[s.Name] = cmp.Or(t.older[s.Name], &engine.Latencies{})
	}
	return then
}

func (t *tracker) dataset(now time.Time, d engine.DatasetStatus) datasetView {
	tr, ok := t.datasets[d.Name]
	if !ok {
		tr = &track{changes: speed{bursts: true}}
		t.datasets[d.Name] = tr
	}
	if tr.rows.count == 0 {
		tr.began = t.last
	}
	dv := datasetView{
		Name: d.Name, Rows: d.Rows, Bytes: d.Bytes, SetAside: d.SetAside, Moved: d.Rows != tr.rows.count,
		Phase: d.Phase, Snapshot: d.Snapshot, Changes: d.Changes,
	}
	since := now.Sub(t.last)
	dv.Rate, dv.ChangeRate = tr.rows.update(d.Rows, since), tr.changes.update(d.Changes, since)
	dv.Done, dv.Left = remaining(d, now.Sub(tr.began))
	return dv
}

// behind reports whether a sink has made nothing durable since the source was read last.
func (t *tracker) behind(now time.Time, read int64, sinks []engine.SinkStatus) bool {
	if read != t.read {
		t.read, t.readAt = read, now
	}
	behind := false
	for _, s := range sinks {
		seen := t.sinks[s.Name]
		if durable, at := s.Durable+s.Skipped, string(s.Position.Data); seen.at.IsZero() || durable != seen.durable || at != seen.position {
			seen = sinkTrack{durable: durable, position: at, at: now}
			t.sinks[s.Name] = seen
		}
		behind = behind || seen.at.Before(t.readAt)
	}
	return behind
}

// waits reports whether the source of a run that is followed has something to send.
func waits(st engine.Status) bool {
	return st.State != engine.Running || st.Lag.Age > 0 || slices.ContainsFunc(st.Datasets, func(d engine.DatasetStatus) bool {
		return d.Phase == engine.Waiting || d.Phase == engine.Snapshotting
	})
}

// speed is a count that grows, and how fast it did lately.
type speed struct {
	bursts bool // it comes in bursts, so that the first one tells nothing
	count  int64
	rate   float64
}

// update folds what came since the last view into the rate, and returns it.
func (s *speed) update(count int64, since time.Duration) float64 {
	if since <= 0 {
		return s.rate
	}
	lately := float64(count-s.count) / since.Seconds()
	if s.count == 0 && !s.bursts {
		s.rate = lately
	} else {
		weight := 1 - math.Exp(-since.Seconds()/rateWindow.Seconds())
		s.rate += weight * (lately - s.rate)
	}
	s.count = count
	return s.rate
}

// remaining estimates how much of a dataset was read and how long the rest takes, by bytes where the source knows them. Of a dataset
// that is followed, it is the snapshot that is estimated.
func remaining(d engine.DatasetStatus, took time.Duration) (done float64, left time.Duration) {
	switch {
	case d.Phase == engine.Waiting, d.Phase == engine.Live, d.Phase == engine.Broken:
		return -1, -1
	case d.Phase == engine.Snapshotting && d.TotalRows > 0:
		done = float64(d.Snapshot) / float64(d.TotalRows)
	case d.Phase == engine.Snapshotting:
		return -1, -1
	case d.TotalBytes > 0 && d.Bytes > 0:
		done = float64(d.Bytes) / float64(d.TotalBytes)
	case d.TotalRows > 0 && d.Rows > 0:
		done = float64(d.Rows) / float64(d.TotalRows)
	default:
		return -1, -1
	}
	switch {
	case done >= 1: // an estimate that was too low says nothing any more
		return 1, -1
	case done <= 0:
		return 0, -1
	}
	return done, time.Duration(float64(took) * (1 - done) / done)
}

// shower shows views while a run goes on.
type shower interface {
	show(v view)
	close()
}

// watching is how a run is shown.
type watching struct {
	follows    bool
	every      time.Duration
	stallAfter time.Duration
	shower     shower
}

// watch shows where a run stands every so often, until the returned function is called.
func (s *session) watch(ctx context.Context, ctl *engine.Control, w watching) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := newTracker(s.Now(), w)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(w.every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.shower.show(t.observe(s.Now(), ctl.Status()))
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		w.shower.close()
	}
}

// logShower logs the datasets that move, and when nothing does.
type logShower struct {
	log     *slog.Logger
	stalled bool
}

func (l *logShower) show(v view) {
	l.stalled = logStall(l.log, v, l.stalled)
	for _, d := range v.Datasets {
		if !d.Moved {
			continue
		}
		attrs := []any{
			slog.String("dataset", d.Name), slog.String("state", v.State), slog.Int64("rows", d.Rows), slog.Int64("bytes", d.Bytes),
			slog.Int64("rows_per_second", int64(d.Rate)), slog.Bool("stalled", l.stalled),
		}
		if d.Done >= 0 {
			attrs = append(attrs, slog.Float64("done", math.Round(d.Done*1000)/1000))
		}
		if d.Left >= 0 {
			attrs = append(attrs, slog.Duration("eta", d.Left.Round(time.Second)))
		}
		if d.SetAside > 0 {
			attrs = append(attrs, slog.Int64("set_aside", d.SetAside))
		}
		l.log.Info("progress", attrs...)
	}
}

func (*logShower) close() {}

// logStall logs that nothing moves, or that it moves again; it returns whether nothing does.
func logStall(log *slog.Logger, v view, stalled bool) bool {
	switch {
	case v.Stalled > 0:
		log.Warn("stalled: nothing has moved",
			slog.Bool("stalled", true), slog.String("state", v.State), slog.String("doing", v.Doing),
			slog.Duration("for", v.Stalled.Round(time.Second)))
	case stalled:
		log.Info("moving again", slog.Bool("stalled", false), slog.String("state", v.State))
	}
	return v.Stalled > 0
}

// noShower shows nothing.
type noShower struct{}

func (noShower) show(view) {}
func (noShower) close()    {}
