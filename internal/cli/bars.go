package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// maxBars is how many datasets have a line on the terminal; those that moved last are shown.
const maxBars = 10

// barShower shows one line for each dataset that moves, on a terminal. Logs that are written through it appear above the lines.
type barShower struct {
	out  io.Writer
	bars *mpb.Progress
	size func() (rows, columns int) // of the terminal
	// follows shows a run of a source that is followed.
	follows bool

	mu     sync.Mutex
	lines  []string
	slots  []*mpb.Bar
	recent []string // names, the one that moved last in front
	closed bool
}

func newBarShower(out io.Writer, follows bool) *barShower {
	return &barShower{
		out: out, follows: follows, size: func() (int, int) { return terminalSize(out) },
		bars: mpb.New(mpb.WithOutput(out), mpb.WithRefreshRate(refreshBars), mpb.WithAutoRefresh()),
	}
}

const refreshBars = 200 * time.Millisecond

// Write puts a log line above the bars.
func (b *barShower) Write(p []byte) (int, error) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return b.out.Write(p)
	}
	return b.bars.Write(p)
}

func (b *barShower) show(v view) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.follows {
		rows, columns := b.size()
		b.lines = followLines(v, rows-1, columns) // the cursor's line stays free
	} else {
		b.lines = barLines(v, b.order(v))
	}
	for n := len(b.slots) - 1; n >= len(b.lines); n-- {
		b.slots[n].Abort(true)
		b.slots = b.slots[:n]
	}
	for len(b.slots) < len(b.lines) {
		i := len(b.slots)
		b.slots = append(b.slots, b.bars.New(1, mpb.NopStyle(), mpb.PrependDecorators(decor.Any(func(decor.Statistics) string {
			return b.line(i)
		}))))
	}
}

func (b *barShower) line(i int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i >= len(b.lines) {
		return ""
	}
	return b.lines[i]
}

// order picks the datasets to show: those that moved last, by name so that lines do not jump.
func (b *barShower) order(v view) []string {
	for _, d := range v.Datasets {
		if d.Moved || (d.Rows > 0 && !slices.Contains(b.recent, d.Name)) {
			b.recent = slices.DeleteFunc(b.recent, func(n string) bool { return n == d.Name })
			b.recent = slices.Insert(b.recent, 0, d.Name)
		}
	}
	shown := slices.Clone(b.recent[:min(len(b.recent), maxBars)])
	slices.Sort(shown)
	return shown
}

// barLines is what the terminal shows of a view.
func barLines(v view, shown []string) []string {
	var lines []string
	width := 0
	for _, n := range shown {
		width = max(width, len(n))
	}
	for _, d := range v.Datasets {
		if slices.Contains(shown, d.Name) {
			lines = append(lines, barLine(d, min(width, 40)))
		}
	}
	slices.SortFunc(lines, cmp.Compare[string])
	if n := len(v.Datasets) - len(lines); n > 0 && len(lines) > 0 {
		lines = append(lines, "and "+plural(int64(n), "more dataset"))
	}
	switch {
	case v.Stalled > 0:
		line := fmt.Sprintf("stalled: nothing has moved for %s; %s %s", shortDuration(v.Stalled), v.State, v.Doing)
		lines = append(lines, strings.TrimSpace(line))
	case v.Doing != "":
		lines = append(lines, v.State+": "+v.Doing)
	case len(lines) == 0:
		lines = append(lines, v.State)
	}
	return lines
}

func barLine(d datasetView, width int) string {
	s := fmt.Sprintf("%-*s  %12s rows  %9s  %8s rows/s", width, d.Name, thousands(d.Rows), bytesText(d.Bytes), shortNumber(d.Rate))
	if d.Done >= 0 && d.Done < 1 {
		s += fmt.Sprintf("  %3.0f%%", d.Done*100)
	}
	if d.Left >= time.Second {
		s += "  ETA " + shortDuration(d.Left)
	}
	if d.SetAside > 0 {
		s += fmt.Sprintf("  %s set aside", thousands(d.SetAside))
	}
	return s
}

func (b *barShower) close() {
	b.mu.Lock()
	slots := b.slots
	b.closed = true
	b.mu.Unlock()
	for _, bar := range slots {
		bar.Abort(true)
	}
	b.bars.Wait()
}
