package cli

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/leatdata/leat/internal/engine"
)

// view is one look at a run.
type view struct {
	State    string
	Doing    string
	Elapsed  time.Duration
	Datasets []datasetView
	Stalled  time.Duration // for how long nothing has moved, once that is too long; 0: it moves
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
}

// tracker makes views out of what a control shows. It keeps the clock out: every call is told the time.
type tracker struct {
	stallAfter time.Duration
	began      time.Time
	moved      time.Time
	last       time.Time
	total      int64
	datasets   map[string]*track
}

// track is what a tracker knows of one dataset.
type track struct {
	began time.Time
	rows  int64
	rate  float64
}

func newTracker(now time.Time, stallAfter time.Duration) *tracker {
	return &tracker{stallAfter: stallAfter, began: now, moved: now, last: now, datasets: map[string]*track{}}
}

// rateWindow is how much of the past a rate looks at.
const rateWindow = 5 * time.Second

// observe makes the view of a status at a time.
func (t *tracker) observe(now time.Time, st engine.Status) view {
	v := view{State: st.State.String(), Doing: st.Doing, Elapsed: now.Sub(t.began)}
	since := now.Sub(t.last)
	total := int64(0)
	for _, d := range st.Datasets {
		total += d.Rows + d.Bytes + d.SetAside
		tr, ok := t.datasets[d.Name]
		if !ok {
			tr = &track{began: t.last}
			t.datasets[d.Name] = tr
		}
		dv := datasetView{Name: d.Name, Rows: d.Rows, Bytes: d.Bytes, SetAside: d.SetAside, Moved: d.Rows != tr.rows}
		tr.update(d.Rows, since)
		dv.Rate = tr.rate
		dv.Done, dv.Left = remaining(d, now.Sub(tr.began))
		v.Datasets = append(v.Datasets, dv)
	}
	for _, s := range st.Sinks {
		total += s.Rows + s.Durable + s.Bytes + s.Skipped
	}
	if total != t.total || st.State == engine.Paused {
		t.total, t.moved = total, now
	}
	if still := now.Sub(t.moved); t.stallAfter > 0 && still >= t.stallAfter {
		v.Stalled = still
	}
	t.last = now
	return v
}

// update folds what came since the last view into the rate.
func (tr *track) update(rows int64, since time.Duration) {
	if since <= 0 {
		return
	}
	lately := float64(rows-tr.rows) / since.Seconds()
	if tr.rows == 0 {
		tr.rate = lately
	} else {
		weight := 1 - math.Exp(-since.Seconds()/rateWindow.Seconds())
		tr.rate += weight * (lately - tr.rate)
	}
	tr.rows = rows
}

// remaining estimates how much of a dataset was read and how long the rest takes, by bytes where the source knows them.
func remaining(d engine.DatasetStatus, took time.Duration) (done float64, left time.Duration) {
	switch {
	case d.TotalBytes > 0 && d.Bytes > 0:
		done = float64(d.Bytes) / float64(d.TotalBytes)
	case d.TotalRows > 0 && d.Rows > 0:
		done = float64(d.Rows) / float64(d.TotalRows)
	default:
		return -1, -1
	}
	if done >= 1 { // an estimate that was too low says nothing any more
		return 1, -1
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
	every      time.Duration
	stallAfter time.Duration
	shower     shower
}

// watch shows where a run stands every so often, until the returned function is called.
func (s *session) watch(ctx context.Context, ctl *engine.Control, w watching) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := newTracker(s.Now(), w.stallAfter)
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
	switch {
	case v.Stalled > 0:
		l.log.Warn("stalled: nothing has moved",
			slog.Bool("stalled", true), slog.String("state", v.State), slog.String("doing", v.Doing),
			slog.Duration("for", v.Stalled.Round(time.Second)))
	case l.stalled:
		l.log.Info("moving again", slog.Bool("stalled", false), slog.String("state", v.State))
	}
	l.stalled = v.Stalled > 0
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

// noShower shows nothing.
type noShower struct{}

func (noShower) show(view) {}
func (noShower) close()    {}
