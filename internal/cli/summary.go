package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leatdata/leat/internal/engine"
)

// summary is the end of a run as --json prints it.
type summary struct {
	Pipeline      string           `json:"pipeline"`
	Run           string           `json:"run,omitempty"`
	State         string           `json:"state"` // done, stopped (a source that is followed, in good order), interrupted, failed
	Guarantee     string           `json:"guarantee"`
	Resumed       bool             `json:"resumed"`
	Rows          int64            `json:"rows"`  // read, by this process
	Bytes         int64            `json:"bytes"` // likewise
	Seconds       float64          `json:"seconds"`
	RowsPerSecond float64          `json:"rows_per_second"`
	PeakMemory    int64            `json:"peak_memory_bytes,omitempty"`
	SetAside      int64            `json:"set_aside"`
	DeadLetters   string           `json:"dead_letters,omitempty"`  // the file that they are kept in
	Deleted       map[string]int64 `json:"deleted,omitempty"`       // rows that were gone from the source, by dataset
	Snapshot      int64            `json:"snapshot_rows,omitempty"` // of Rows, where the source is followed
	Changes       int64            `json:"changes,omitempty"`       // likewise
	Position      json.RawMessage  `json:"position,omitempty"`      // that was saved last, where the source is followed
	Datasets      []summaryDataset `json:"datasets"`
	Sinks         []summarySink    `json:"sinks"`
	Errors        []problem        `json:"errors,omitempty"`

	followed bool
}

type summaryDataset struct {
	Name     string `json:"name"`
	Rows     int64  `json:"rows"`
	Bytes    int64  `json:"bytes"`
	SetAside int64  `json:"set_aside"`
	Phase    string `json:"phase,omitempty"` // where the source is followed
	Snapshot int64  `json:"snapshot_rows,omitempty"`
	Changes  int64  `json:"changes,omitempty"`
}

// latencyOf is nil where no changes were counted.
func latencyOf(l *engine.Latencies) *summaryLatency {
	n := l.Count()
	if n == 0 {
		return nil
	}
	return &summaryLatency{n, l.Quantile(0.5).Seconds(), l.Quantile(0.99).Seconds(), l.Quantile(1).Seconds()}
}

// summaryLatency is how long changes took from their commit in the source until they were durable in a sink.
type summaryLatency struct {
	Changes int64   `json:"changes"`
	P50     float64 `json:"p50_seconds"`
	P99     float64 `json:"p99_seconds"`
	Max     float64 `json:"max_seconds"`
}

type summarySink struct {
	Name     string            `json:"name"`
	Rows     int64             `json:"rows"`
	Skipped  int64             `json:"skipped"`
	SetAside int64             `json:"set_aside"`
	Altered  int64             `json:"altered"`
	Retries  int64             `json:"retries"`
	Latency  *summaryLatency   `json:"commit_to_durable,omitempty"` // of changes, where the source is followed
	Failed   map[string]string `json:"failed,omitempty"`
}

func newSummary(sum engine.Summary, runErr error, deadLetters string) summary {
	out := summary{
		Pipeline: sum.Pipeline, Run: sum.Run, State: "done", Guarantee: engine.GuaranteeName(sum.Reached), Resumed: sum.Resumed,
		Seconds: sum.Took.Seconds(), PeakMemory: peakMemory(), SetAside: sum.SetAside,
		Datasets: []summaryDataset{}, Sinks: []summarySink{},
	}
	switch {
	case runErr != nil:
		out.State, out.Errors = "failed", problemsOf(runErr)
	case !sum.Done:
		out.State = "interrupted"
	}
	for _, d := range sum.Datasets {
		out.Rows, out.Bytes = out.Rows+d.Rows, out.Bytes+d.Bytes
		out.Datasets = append(out.Datasets, summaryDataset{Name: d.Name, Rows: d.Rows, Bytes: d.Bytes, SetAside: d.SetAside})
	}
	for _, s := range sum.Sinks {
		out.Sinks = append(out.Sinks, summarySink{
			Name: s.Name, Rows: s.Rows, Skipped: s.Skipped, SetAside: s.SetAside, Altered: s.Altered, Retries: s.Retries,
			Latency: latencyOf(&s.Latencies), Failed: s.Failed,
		})
	}
	if out.Seconds > 0 {
		out.RowsPerSecond = float64(out.Rows) / out.Seconds
	}
	if out.SetAside > 0 {
		out.DeadLetters = deadLetters
	}
	return out
}

// follow makes it the summary of a run of a source that is followed. Such a run is stopped in good order, unless it was to end by
// itself.
func (s summary) follow(sum engine.Summary, ends bool) summary {
	s.followed, s.Position = true, sum.Position.Data
	if s.State == "interrupted" && !ends {
		s.State = "stopped"
	}
	for i, d := range sum.Datasets {
		s.Snapshot, s.Changes = s.Snapshot+d.Snapshot, s.Changes+d.Changes
		s.Datasets[i].Phase, s.Datasets[i].Snapshot, s.Datasets[i].Changes = d.Phase.String(), d.Snapshot, d.Changes
	}
	return s
}

// json is the summary as one redacted line.
func (s summary) json(r *redactor) string {
	for i := range s.Errors {
		s.Errors[i].Message, s.Errors[i].Hint = r.text(s.Errors[i].Message), r.text(s.Errors[i].Hint)
	}
	for _, sink := range s.Sinks {
		for d, why := range sink.Failed {
			sink.Failed[d] = r.text(why)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Sprintf(`{"state":%q}`, s.State) + "\n"
	}
	return string(text) + "\n"
}

// text is the summary as a person reads it.
func (s summary) text() string {
	var b strings.Builder
	width := 0
	for _, d := range s.Datasets {
		width = max(width, len(d.Name))
	}
	if len(s.Datasets) > 1 {
		for _, d := range s.Datasets {
			if s.followed {
				fmt.Fprintf(&b, "%-*s  %12s rows copied  %12s changes  %s\n", width, d.Name, thousands(d.Snapshot), thousands(d.Changes),
					cmp.Or(d.Phase, "not begun"))
				continue
			}
			fmt.Fprintf(&b, "%-*s  %12s rows  %9s\n", width, d.Name, thousands(d.Rows), bytesText(d.Bytes))
		}
	}
	s.headline(&b)
	if s.PeakMemory > 0 {
		fmt.Fprintf(&b, ", peak memory %s", bytesText(s.PeakMemory))
	}
	b.WriteString("\n")
	for _, k := range s.Sinks {
		b.WriteString(k.text(s.Rows, len(s.Sinks)))
	}
	for _, d := range slices.Sorted(maps.Keys(s.Deleted)) {
		fmt.Fprintf(&b, "%s of %s were gone from the source\n", plural(s.Deleted[d], "row"), d)
	}
	if s.Resumed {
		b.WriteString("went on where the last run ended\n")
	}
	switch {
	case s.State == "stopped":
		fmt.Fprintf(&b, "the same command goes on from here; leat status %s shows how far it is\n", s.Pipeline)
	case s.State == "done" && s.followed:
		b.WriteString("the same command goes on from here; until then the source keeps its changes, unless leat drop ends that\n")
	}
	if s.SetAside > 0 {
		fmt.Fprintf(&b, "set aside: %s: leat dlq show %s\n", plural(s.SetAside, "row"), s.Pipeline)
	}
	if s.State != "failed" {
		fmt.Fprintf(&b, "guarantee: %s\n", s.Guarantee)
	}
	return b.String()
}

// headline begins the line that says how a run ended, how much it was and how long it took.
func (s summary) headline(b *strings.Builder) {
	took := shortDuration(time.Duration(s.Seconds * float64(time.Second)))
	if s.followed {
		verb := map[string]string{"done": "came to the end of the changes", "failed": "failed"}[s.State]
		fmt.Fprintf(b, "%s after %s: %s copied, %s followed", cmp.Or(verb, s.State), took, plural(s.Snapshot, "row"),
			plural(s.Changes, "change"))
		return
	}
	verb := map[string]string{"done": "copied", "interrupted": "interrupted after", "failed": "failed after"}[s.State]
	fmt.Fprintf(b, "%s %s (%s) in %s", verb, plural(s.Rows, "row"), bytesText(s.Bytes), took)
	if s.Rows > 0 {
		fmt.Fprintf(b, ", %s rows/s", shortNumber(s.RowsPerSecond))
	}
}

// text says of a sink what the first line does not.
func (k summarySink) text(read int64, sinks int) string {
	var parts []string
	if k.Rows != read || sinks > 1 {
		parts = append(parts, plural(k.Rows, "row")+" written")
	}
	if k.Skipped > 0 {
		parts = append(parts, plural(k.Skipped, "row")+" it had already")
	}
	if k.Altered > 0 {
		parts = append(parts, plural(k.Altered, "value")+" changed by a declared policy")
	}
	if k.Retries > 0 {
		parts = append(parts, "started again "+plural(k.Retries, "time"))
	}
	if n := len(k.Failed); n > 0 {
		parts = append(parts, plural(int64(n), "dataset")+" failed")
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("sink %s: %s\n", k.Name, strings.Join(parts, ", "))
}

// log writes the summary as one log record.
func (s summary) log(log *slog.Logger) {
	attrs := []any{
		slog.String("pipeline", s.Pipeline), slog.Int64("rows", s.Rows), slog.Int64("bytes", s.Bytes),
		slog.Float64("seconds", float64(int64(s.Seconds*1000))/1000), slog.Int64("rows_per_second", int64(s.RowsPerSecond)),
		slog.Int64("peak_memory_bytes", s.PeakMemory), slog.Int64("set_aside", s.SetAside), slog.String("guarantee", s.Guarantee),
		slog.Bool("resumed", s.Resumed),
	}
	if s.followed {
		attrs = append(attrs, slog.Int64("snapshot_rows", s.Snapshot), slog.Int64("changes", s.Changes),
			slog.String("position", string(s.Position)))
	}
	if s.DeadLetters != "" {
		attrs = append(attrs, slog.String("dead_letters", s.DeadLetters))
	}
	log.Info(s.State, attrs...) //nolint:sloglint // one of four constants
}
