package cli

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
)

// The size of a terminal that does not say.
const (
	usualRows    = 24
	usualColumns = 80
)

// followLines is what a terminal of so many free lines shows of a source that is followed: the datasets that need a look, or are the
// busiest, a count of the others, and below how far everything is behind.
func followLines(v view, rows, columns int) []string {
	rows = max(rows, 1)
	foot := footLines(v)
	foot = foot[:min(len(foot), rows)]
	var lines []string
	if room := rows - len(foot); room > 0 {
		shown := busiest(v.Datasets, room)
		width := 0
		for _, d := range shown {
			width = max(width, utf8.RuneCountInString(d.Name))
		}
		for _, d := range shown {
			lines = append(lines, followLine(d, min(width, maxNameWidth)))
		}
		if len(shown) < len(v.Datasets) {
			lines = append(lines, othersLine(v.Datasets, shown))
		}
		lines = lines[:min(len(lines), room)]
	}
	lines = append(lines, foot...)
	for i := range lines {
		lines[i] = shorten(lines[i], columns-1)
	}
	return lines
}

const maxNameWidth = 40

// busiest picks the datasets that fit into so many lines, one of which counts the others where not all fit. They stay in the order of
// their names, so that lines do not jump.
func busiest(all []datasetView, room int) []datasetView {
	list := slices.Clone(all)
	if len(list) > room {
		slices.SortStableFunc(list, func(a, b datasetView) int {
			return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Rows, a.Rows))
		})
		list = list[:max(room-1, 0)]
	}
	slices.SortFunc(list, func(a, b datasetView) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// urgency orders datasets by how much a person wants to see them.
func urgency(d datasetView) int {
	switch {
	case d.Phase == engine.Broken:
		return 0
	case d.Rate > 0.05, d.Phase == engine.Snapshotting:
		return 1
	case d.Phase == engine.Live:
		return 2
	}
	return 3
}

func followLine(d datasetView, width int) string {
	s := fmt.Sprintf("%-*s  %-8s", width, shorten(d.Name, width), d.Phase)
	switch d.Phase {
	case engine.Broken:
		return s + "  " + oneLine(d.Why)
	case engine.Waiting, engine.Resting:
		return strings.TrimRight(s, " ")
	case engine.NoPhase:
		return strings.TrimRight(s, " ") + "  not begun"
	case engine.Snapshotting:
		s += fmt.Sprintf("  %12s rows  %8s rows/s", thousands(d.Rows), shortNumber(d.Rate))
		if d.Done >= 0 && d.Done < 1 {
			s += fmt.Sprintf("  %3.0f%%", d.Done*100)
		}
		if d.Left >= time.Second {
			s += "  ETA " + shortDuration(d.Left)
		}
		if d.Changes > 0 {
			s += "  " + plural(d.Changes, "change")
		}
	case engine.Live:
		s += fmt.Sprintf("  %12s rows  %8s changes/s  %s", thousands(d.Rows), rateText(d.ChangeRate), plural(d.Changes, "change"))
	}
	if d.SetAside > 0 {
		s += fmt.Sprintf("  %s set aside", thousands(d.SetAside))
	}
	return s
}

// rateText is a rate, with a digit behind the point where it is small.
func rateText(x float64) string {
	if x >= 0.05 && x < 9.95 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return shortNumber(x)
}

// othersLine counts by phase the datasets that are not shown.
func othersLine(all, shown []datasetView) string {
	n := len(all) - len(shown)
	return fmt.Sprintf("and %s: %s", plural(int64(n), "more dataset"), phaseCounts(subtract(all, shown)))
}

func subtract(all, shown []datasetView) []datasetView {
	return slices.DeleteFunc(slices.Clone(all), func(d datasetView) bool {
		return slices.ContainsFunc(shown, func(s datasetView) bool { return s.Name == d.Name })
	})
}

// phaseCounts says how many datasets are in each phase: 80 live, 12 waiting.
func phaseCounts(list []datasetView) string {
	var parts []string
	for _, p := range []engine.Phase{engine.Broken, engine.Snapshotting, engine.Live, engine.Resting, engine.Waiting, engine.NoPhase} {
		n := 0
		for _, d := range list {
			if d.Phase == p {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, cmp.Or(p.String(), "not begun")))
		}
	}
	return strings.Join(parts, ", ")
}

// footLines is what is below the datasets: trouble first.
func footLines(v view) []string {
	var lines []string
	switch {
	case v.Stalled > 0:
		line := fmt.Sprintf("stalled: nothing has moved for %s; %s %s", shortDuration(v.Stalled), v.State, oneLine(v.Doing))
		lines = append(lines, strings.TrimSpace(line))
	case v.Doing != "":
		lines = append(lines, v.State+": "+oneLine(v.Doing))
	case v.State != engine.Running.String():
		lines = append(lines, v.State)
	}
	parts := lagTexts(v.Lag)
	for _, k := range v.Sinks {
		if k.Queued > 0 {
			parts = append(parts, fmt.Sprintf("%s waits for %s", bytesText(k.Queued), k.Name))
		}
		if k.Most > 0 {
			parts = append(parts, fmt.Sprintf("changes take %s, at most %s, to %s", latencyText(k.Usual), latencyText(k.Most), k.Name))
		}
	}
	if len(parts) > 0 {
		lines = append(lines, strings.Join(parts, "; "))
	}
	return lines
}

// lagTexts says in words how far a source is behind, as far as it knows.
func lagTexts(l connector.Lag) []string {
	if !l.Known() {
		return nil
	}
	var parts []string
	switch {
	case l.Age == 0:
		parts = append(parts, "nothing is waiting in the source")
	case l.Age > 0 && l.Bytes >= 0:
		parts = append(parts, fmt.Sprintf("behind by %s, %s", shortDuration(l.Age), bytesText(l.Bytes)))
	case l.Age > 0:
		parts = append(parts, "behind by "+shortDuration(l.Age))
	case l.Bytes >= 0:
		parts = append(parts, "behind by "+bytesText(l.Bytes))
	}
	if l.Retained >= 0 {
		parts = append(parts, fmt.Sprintf("the source keeps %s of its log", bytesText(l.Retained)))
	}
	return parts
}

// latencyText is a short duration, as exact as anyone wants to know it.
func latencyText(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return shortDuration(d)
	case d >= 100*time.Millisecond:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// followLogger logs one line every so often, and one whenever datasets came into another phase.
type followLogger struct {
	log     *slog.Logger
	every   time.Duration
	logged  time.Duration // when progress was logged last, since the start
	phases  map[string]engine.Phase
	stalled bool
}

func newFollowLogger(every time.Duration) *followLogger {
	return &followLogger{every: every, phases: map[string]engine.Phase{}}
}

func (l *followLogger) show(v view) {
	due := v.Elapsed-l.logged >= l.every
	if stalled := v.Stalled > 0; due || stalled != l.stalled {
		l.stalled = logStall(l.log, v, l.stalled)
	}
	l.showPhases(v)
	if !due {
		return
	}
	l.logged = v.Elapsed
	rows, changes, rate, changeRate := int64(0), int64(0), 0.0, 0.0
	for _, d := range v.Datasets {
		rows, changes, rate, changeRate = rows+d.Rows, changes+d.Changes, rate+d.Rate, changeRate+d.ChangeRate
	}
	attrs := []any{
		slog.String("state", v.State), slog.String("phases", phaseCounts(v.Datasets)), slog.Int64("rows", rows),
		slog.Int64("changes", changes), slog.Int64("rows_per_second", int64(rate)), slog.String("changes_per_second", rateText(changeRate)),
		slog.Bool("stalled", l.stalled),
	}
	if l := v.Lag; l.Known() {
		if l.Age >= 0 {
			attrs = append(attrs, slog.Duration("lag", l.Age.Round(time.Millisecond)))
		}
		attrs = append(attrs, slog.Int64("lag_bytes", l.Bytes), slog.Int64("retained_bytes", l.Retained))
	}
	var queues, usual, most []any
	for _, k := range v.Sinks {
		queues = append(queues, slog.Int64(k.Name, k.Queued))
		if k.Most > 0 {
			usual, most = append(usual, slog.Duration(k.Name, k.Usual)), append(most, slog.Duration(k.Name, k.Most))
		}
	}
	l.log.Info("progress", append(attrs,
		slog.Group("queued_bytes", queues...), slog.Group("latency_p50", usual...), slog.Group("latency_p99", most...))...)
}

// maxNamed is how many datasets a log line names.
const maxNamed = 5

// showPhases logs the datasets that came into another phase, together.
func (l *followLogger) showPhases(v view) {
	for _, p := range []engine.Phase{engine.Waiting, engine.Snapshotting, engine.Live, engine.Broken} {
		var names []string
		for _, d := range v.Datasets {
			if d.Phase == p && l.phases[d.Name] != p {
				l.phases[d.Name] = p
				names = append(names, d.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		attrs := []any{
			slog.String("phase", p.String()), slog.Int("count", len(names)),
			slog.String("datasets", strings.Join(names[:min(len(names), maxNamed)], ", ")),
		}
		if p == engine.Broken {
			l.log.Warn("phase", attrs...)
			continue
		}
		l.log.Info("phase", attrs...)
	}
}

func (*followLogger) close() {}
