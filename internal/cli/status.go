package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/state"
)

// statusFlags say what is asked, and what is too much.
type statusFlags struct {
	source     string
	sourceOpt  []string
	staleAfter time.Duration
	json       bool
}

func (s *session) statusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status FILE | NAME",
		Short: "Show how far a pipeline is, running or not",
		Long: `Shows how far a pipeline is, from what is saved about it, while it runs elsewhere or is stopped: its position and when that
was saved, and the phase of every dataset for every sink. With a pipeline file, or with --source, the source is asked too:
how far the pipeline is behind, and how much of its log the source keeps for it. leat state list lists the names.

It ends with 0 where all is well, and with 3 where a dataset failed, where changes have waited for longer than
--stale-after, or where the source can't be asked. Where no source is asked, a pipeline that has saved nothing for so long
counts as stale, too.`,
		Example: `  leat status shop.yaml
  leat status sync-shop-replica-0a1b2c3d4e --source 'postgres://app@db/shop'
  leat status shop.yaml --json --stale-after 1m`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.staleAfter <= 0 {
				return usagef("--stale-after %s: want a positive duration", f.staleAfter)
			}
			st, err := s.status(cmd.Context(), args[0], f)
			if err != nil {
				return err
			}
			if f.json {
				err = s.printJSON(st)
			} else {
				err = s.printStatus(st)
			}
			if err == nil && !st.OK {
				return outcomeError{ExitCheck}
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.source, "source", "", "source of the pipeline, to ask it how far the pipeline is behind")
	fs.StringArrayVar(&f.sourceOpt, "source-opt", nil, "NAME=VALUE: an option of the source")
	fs.DurationVar(&f.staleAfter, "stale-after", 5*time.Minute, "how long changes may wait")
	fs.BoolVar(&f.json, "json", false, "print as JSON")
	return cmd
}

// pipelineStatus is what there is to say about a pipeline, as --json prints it.
type pipelineStatus struct {
	Pipeline string           `json:"pipeline"`
	OK       bool             `json:"ok"`
	Problems []string         `json:"problems"` // why it is not ok
	Stands   string           `json:"stands"`
	Run      string           `json:"run,omitempty"`
	Attempt  uint64           `json:"attempt,omitempty"`
	Position json.RawMessage  `json:"position,omitempty"`
	Saved    *time.Time       `json:"saved,omitempty"`
	Ago      float64          `json:"seconds_since_saved,omitempty"`
	Rows     int64            `json:"rows"`
	SetAside int64            `json:"set_aside"`
	Lag      *statusLag       `json:"lag,omitempty"`
	Kept     []string         `json:"kept,omitempty"` // what the source keeps for the pipeline
	Paused   *statusPaused    `json:"paused,omitempty"`
	Asked    []state.Backfill `json:"backfills,omitempty"` // that are asked for and not complete
	Lanes    []statusLane     `json:"lanes,omitempty"`
	Datasets []statusDataset  `json:"datasets"`
}

// statusPaused is what people paused.
type statusPaused struct {
	Pipeline bool     `json:"pipeline"`
	Sinks    []string `json:"sinks,omitempty"`
	Datasets []string `json:"datasets,omitempty"`
}

type statusLag struct {
	Bytes    *int64   `json:"bytes"`          // null: unknown
	Seconds  *float64 `json:"seconds"`        // likewise; 0: nothing is waiting
	Retained *int64   `json:"retained_bytes"` // likewise

	lag connector.Lag
}

type statusDataset struct {
	Dataset string `json:"dataset"`
	Sink    string `json:"sink"`
	Phase   string `json:"phase"`
	Rows    int64  `json:"snapshot_rows,omitempty"` // of a snapshot that is not complete
}

// lagTimeout is how long a source may take to say how far behind it is.
const lagTimeout = 15 * time.Second

// status gathers what is known about the pipeline that a person named.
func (s *session) status(ctx context.Context, arg string, f statusFlags) (*pipelineStatus, error) {
	p, err := s.named(arg, f.source, f.sourceOpt)
	if err != nil {
		return nil, err
	}
	st := &pipelineStatus{Pipeline: p.Name, Problems: []string{}, Datasets: []statusDataset{}}
	err = s.withStore(ctx, func(ctx context.Context, store state.Store) error {
		o, _, err := store.Orders(ctx, p.Name)
		if err != nil {
			return err
		}
		st.ordered(o)
		rec, _, err := store.Load(ctx, p.Name)
		switch {
		case errors.Is(err, state.ErrNotFound) && p.Source.Config != nil && f.source == "":
			st.Stands = "never ran"
			st.Problems = append(st.Problems, "it never ran with this state folder")
			return nil
		case errors.Is(err, state.ErrNotFound):
			_, _, err = loadRecord(ctx, store, p.Name)
			return err
		case err != nil:
			return err
		}
		st.Lanes = savedLanes(rec, o)
		return st.fill(rec, s.clock()())
	})
	if err != nil {
		return nil, err
	}
	if p.Source.Config != nil && follows(p) {
		s.ask(ctx, p, st)
	}
	st.judge(f.staleAfter)
	return st, nil
}

// named finds the pipeline that an argument names: a file, or the name of a pipeline, whose source is known only if it is given.
func (s *session) named(arg, source string, opts []string) (*config.Pipeline, error) {
	if s.isPipelineFile(arg) || state.ValidateName(arg) != nil {
		if source != "" {
			return nil, usagef("--source: the pipeline file says what the source is")
		}
		return s.load(arg)
	}
	p := &config.Pipeline{Name: arg}
	if source == "" {
		return p, nil
	}
	e, cfg, err := s.source(source, opts)
	if err != nil {
		return nil, err
	}
	p.Source = config.Source{Connector: e.def.Name, Config: cfg}
	if hasOption(cfg, followOption) {
		if err := connector.SetOption(cfg, followOption, true); err != nil {
			return nil, &usageError{err: fmt.Errorf("source: %w", err)}
		}
	}
	_, err = cfg.Contract()
	return p, err
}

// fill takes in what is saved.
func (st *pipelineStatus) fill(rec state.Record, now time.Time) error {
	st.Stands, st.Run, st.Attempt, st.Position = stands(rec), rec.Progress.Run, rec.Attempt, rec.Progress.Position.Data
	st.Rows, st.SetAside = rec.Rows, rec.Rejected
	if !rec.Updated.IsZero() {
		saved := rec.Updated.UTC()
		st.Saved, st.Ago = &saved, now.Sub(rec.Updated).Seconds()
	}
	var err error
	if st.Datasets, err = savedPhases(rec.Progress.Ledger); err == nil && st.Paused != nil {
		showPaused(st.Datasets, st.Paused.Datasets)
	}
	return err
}

// phasePaused is the phase of a dataset that somebody paused.
const phasePaused = "paused"

// showPaused marks the datasets that are paused. What is saved says that they have to be copied once more, as if they had failed.
func showPaused(datasets []statusDataset, paused []string) {
	for i := range datasets {
		if slices.Contains(paused, datasets[i].Dataset) {
			datasets[i].Phase = phasePaused
		}
	}
}

// ordered takes in what people want.
func (st *pipelineStatus) ordered(o state.Orders) {
	st.Asked = o.Backfills
	if pauses(o) != "" {
		st.Paused = &statusPaused{Pipeline: o.Paused, Sinks: o.Sinks, Datasets: o.Datasets}
	}
}

// paused reports whether the whole pipeline is paused, so that nothing is saved of it.
func (st *pipelineStatus) paused() bool { return st.Paused != nil && st.Paused.Pipeline }

// ask asks the source how far the pipeline is behind, and what is kept for it. That it can't say is a problem to report, and no error.
func (s *session) ask(ctx context.Context, p *config.Pipeline, st *pipelineStatus) {
	if err := s.askSource(ctx, p, st); err != nil {
		st.Problems = append(st.Problems, "asking the source: "+s.redact.text(err.Error()))
	}
}

func (s *session) askSource(ctx context.Context, p *config.Pipeline, st *pipelineStatus) (err error) {
	log, err := s.logger(s.Stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	ctx, l, err := s.open(ctx, p.Name, p.Source.Config, log)
	if err != nil {
		return err
	}
	defer func() { err = join(err, l.close(ctx)) }()
	if r, ok := connector.As[connector.LagReporter](l.src); ok {
		lag, err := r.Lag(ctx)
		if err != nil {
			return err
		}
		st.setLag(lag)
	}
	d, ok := connector.As[connector.Dropper](l.src)
	if !ok {
		return nil
	}
	if st.Kept, err = d.Describe(ctx); err != nil {
		return err
	}
	if len(st.Kept) == 0 && len(st.Position) > 0 && st.Stands == standsFollowing {
		st.Problems = append(st.Problems, "the source keeps nothing for it any more, so it can't go on: --restart copies anew")
	}
	return nil
}

func (st *pipelineStatus) setLag(lag connector.Lag) {
	if !lag.Known() {
		return
	}
	st.Lag = &statusLag{Bytes: known(lag.Bytes), Retained: known(lag.Retained), lag: lag}
	if lag.Age >= 0 {
		seconds := lag.Age.Seconds()
		st.Lag.Seconds = &seconds
	}
}

// judge says what is not well.
func (st *pipelineStatus) judge(staleAfter time.Duration) {
	failed := 0
	for _, d := range st.Datasets {
		if d.Phase == engine.Broken.String() {
			failed++
		}
	}
	if failed > 0 {
		st.Problems = append(st.Problems, plural(int64(failed), "dataset")+" failed")
	}
	if why := st.stale(staleAfter); why != "" {
		st.Problems = append(st.Problems, why)
	}
	st.OK = len(st.Problems) == 0
}

// stale says why the pipeline is too far behind; empty: it is not.
func (st *pipelineStatus) stale(after time.Duration) string {
	ago := time.Duration(st.Ago * float64(time.Second))
	silent := st.Saved != nil && ago > after
	switch {
	case st.Saved == nil || st.Stands == standsDone || st.Stands == standsBeginning:
		return ""
	case st.paused() && st.Lag != nil && st.Lag.lag.Age > after:
		return "changes have waited for " + shortDuration(st.Lag.lag.Age) + ", as the pipeline is paused"
	case st.paused():
		return ""
	case st.Lag == nil && silent:
		return "nothing was saved for " + shortDuration(ago)
	case st.Lag == nil:
		return ""
	case st.Lag.lag.Age > after:
		return "changes have waited for " + shortDuration(st.Lag.lag.Age)
	case st.Lag.lag.Age != 0 && st.Lag.lag.Bytes > 0 && silent:
		return fmt.Sprintf("nothing was saved for %s, and the source has more", shortDuration(ago))
	}
	return ""
}

// printStatus writes the status for people.
func (s *session) printStatus(st *pipelineStatus) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("pipeline", "%s", st.Pipeline)
	line("stands", "%s", st.Stands)
	if st.Saved != nil {
		line("run", "%s", orNone(st.Run))
		line("position", "%s", cmp.Or(string(st.Position), "none"))
		line("saved", "%s, %s ago", st.Saved.Local().Format(time.DateTime), shortDuration(time.Duration(st.Ago*float64(time.Second))))
		line("rows", "%s", thousands(st.Rows))
		line("set aside", "%s", thousands(st.SetAside))
	}
	if p := st.Paused; p != nil {
		line("paused", "%s", pauses(state.Orders{Paused: p.Pipeline, Sinks: p.Sinks, Datasets: p.Datasets}))
	}
	if st.Lag != nil {
		line("lag", "%s", strings.Join(lagTexts(st.Lag.lag), "; "))
	}
	for _, k := range st.Kept {
		line("kept", "%s", k)
	}
	if len(st.Lanes) > 0 {
		b.WriteString("\n" + laneTable(st.Lanes, s.clock()()) + "\n")
	}
	if len(st.Datasets) > 0 {
		b.WriteString("\n" + datasetTable(st.Datasets) + "\n")
	}
	if len(st.Asked) > 0 {
		b.WriteString("\nbackfills asked for\n" + backfillTable(st.Asked) + "\n")
	}
	if st.OK {
		b.WriteString("\nok\n")
	}
	for i, p := range st.Problems {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString("not ok: " + p + "\n")
	}
	return s.print("%s", s.redact.text(b.String()))
}

// datasetTable is the phase of every dataset for every sink.
func datasetTable(datasets []statusDataset) string {
	t := newTable()
	t.AppendHeader(table.Row{"dataset", "sink", "phase", "copied"})
	for _, d := range datasets {
		copied := ""
		if d.Rows > 0 {
			copied = plural(d.Rows, "row")
		}
		t.AppendRow(table.Row{d.Dataset, d.Sink, d.Phase, copied})
	}
	return t.Render()
}
