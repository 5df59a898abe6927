package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
)

func (s *session) checkCommand() *cobra.Command {
	var f checkFlags
	var offline, asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE | SRC DST...",
		Short: "Say what would go wrong, and how to fix it",
		Long: `Looks at a pipeline, or at what a copy would do, or with --sync a sync, and changes nothing: which guarantee is reached
and why, how every column will be stored and whether that is exact, privileges and settings, each with what to type to
fix it. Everything is told at once, what has to be fixed last.
With --offline only the file and the guarantee are checked, without connecting to anything.

It ends with 0 where a run would start, and with 3 where it would not.`,
		Example: `  leat check orders.yaml
  leat check --offline orders.yaml
  leat check 'postgres://app@db/shop?table=orders' lake.duckdb --mode upsert
  leat check 'postgres://app@db/shop' lake.duckdb --sync`,
		Args: argCount(1, maxSinks+1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := s.checked(args, f)
			if err != nil {
				return err
			}
			plan, err := planOf(p)
			if err != nil {
				return err
			}
			report, err := s.check(cmd.Context(), p, plan, offline)
			if err == nil && !offline {
				var probes []engine.ProbeReport
				probes, err = s.checkDeadLetters(cmd.Context(), p)
				report.Probes = append(report.Probes, probes...)
			}
			if err != nil {
				return err
			}
			if asJSON {
				err = s.printJSON(checkJSON(report))
			} else {
				err = s.printCheck(p, report)
			}
			if err == nil && !report.OK() {
				return outcomeError{ExitCheck}
			}
			return err
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&offline, "offline", false, "connect to nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

// checkFlags are those of copy and of sync.
type checkFlags struct {
	syncFlags
	follow followFlags
	sync   bool
}

func (f *checkFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.sync, "sync", false, "check what leat sync would do with SRC and DST")
	f.copyFlags.register(fs)
	f.own(fs)
	f.follow.register(fs)
}

// checked is the pipeline to check. A single argument is a pipeline file.
func (s *session) checked(args []string, f checkFlags) (p *config.Pipeline, err error) {
	switch {
	case len(args) == 1 && f.sync:
		return nil, &usageError{err: errors.New("--sync is for SRC and DST: a file says itself what is followed"), hint: "leave --sync out"}
	case len(args) == 1:
		p, err = s.load(args[0])
	case f.sync && (f.limit > 0 || f.deletes != ""):
		return nil, usagef("--limit and --deletes are for copies: a sync follows every change, deletes included")
	case f.sync:
		p, err = s.syncPipeline(args, f.syncFlags)
	case len(args) > 2 || len(f.schema) > 0 || f.lanes != "": //nolint:mnd // source and sink
		return nil, &usageError{err: errors.New("several sinks, --schema and --lanes are for sync"), hint: "add --sync"}
	default:
		p, err = s.copyPipeline(args[0], args[1], f.copyFlags)
	}
	if err != nil {
		return nil, err
	}
	return p, f.follow.apply(p)
}

func (s *session) check(ctx context.Context, p *config.Pipeline, plan engine.Plan, offline bool) (report engine.Report, err error) {
	if offline {
		return admission(plan)
	}
	log, err := s.logger(s.Stderr)
	if err != nil {
		return report, err
	}
	store, err := s.openStore(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = join(err, store.Close()) }()
	ctx, cancel := s.untilDrain(ctx)
	defer cancel()
	return engine.Check(ctx, plan, engine.Deps{Store: store, Log: log, Now: s.Now, DurableLanes: s.openLanes(p, log)})
}

// admission is the part of a check that needs no connection.
func admission(plan engine.Plan) (engine.Report, error) {
	src, err := plan.Source.Config.Contract()
	if err != nil {
		return engine.Report{}, fmt.Errorf("source: %w", err)
	}
	offers := make([]engine.SinkOffer, len(plan.Sinks))
	var errs []error
	for i, sink := range plan.Sinks {
		c, err := sink.Config.Contract()
		if err != nil {
			errs = append(errs, fmt.Errorf("sink %q: %w", sink.Name, err))
			continue
		}
		offers[i] = engine.SinkOffer{Name: sink.Name, Contract: c}
		switch {
		case sink.Mode != nil:
			offers[i].Mode = *sink.Mode
		case len(c.Modes) > 0:
			offers[i].Mode = c.Modes[0]
		}
	}
	if len(errs) > 0 {
		return engine.Report{}, errors.Join(errs...)
	}
	a := engine.Admit(src, offers, plan.Guarantee)
	return engine.Report{Admission: a, Problems: a.Problems}, nil
}

// printCheck writes the report for people.
func (s *session) printCheck(p *config.Pipeline, r engine.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "pipeline %s\n", p.Name)
	fmt.Fprintf(&b, "guarantee: %s (%s)\n", engine.GuaranteeName(r.Admission.Reached), r.Admission.Why)
	if len(r.Admission.Lanes) > 1 {
		for _, l := range r.Admission.Lanes {
			fmt.Fprintf(&b, "  sink %s, mode %s: %s (%s)\n", l.Sink, l.Mode, engine.GuaranteeName(l.Reached), l.Why)
		}
	}
	if p.DeadLetters != nil {
		l, err := deadLetterTarget(p).Promise()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "dead letters to %s, mode %s: %s (%s)\n", p.DeadLetters.Connector, l.Mode, engine.GuaranteeName(l.Reached), l.Why)
	}
	if r.WhyLanes != "" && follows(p) {
		fmt.Fprintf(&b, "lanes: %s (%s)\n", r.Lanes, r.WhyLanes)
	}
	if r.Resume != "" {
		fmt.Fprintf(&b, "a run starts %s\n", r.Resume)
	}
	for _, sink := range r.Sinks {
		for _, d := range sink.Datasets {
			fmt.Fprintf(&b, "\n%s to sink %s, mode %s", d.Dataset, sink.Name, sink.Mode)
			if len(d.Key) > 0 {
				fmt.Fprintf(&b, ", key %s", strings.Join(d.Key, ", "))
			}
			b.WriteString("\n" + columnTable(d) + "\n" + encodingLine(d))
		}
	}
	writeProbes(&b, byStatus(r.Probes))
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "\nproblem: %s\n", p.String())
		if p.Hint != "" {
			fmt.Fprintf(&b, "  fix: %s\n", p.Hint)
		}
	}
	if r.OK() {
		b.WriteString("\nok: a run would start\n")
	} else {
		fmt.Fprintf(&b, "\nnot ok: a run would not start: %s to fix\n", plural(faults(r), "thing"))
	}
	return s.print("%s", s.redact.text(b.String()))
}

// faults counts what keeps a run from starting.
func faults(r engine.Report) int64 {
	n := len(r.Problems)
	for _, p := range r.Probes {
		if p.Status == connector.Fail {
			n++
		}
	}
	return int64(n)
}

// encodingLine says whether rows are decoded on their way, where that is a question.
func encodingLine(d engine.DatasetReport) string {
	switch {
	case d.Encoding != "":
		return "rows are passed on as they come: nothing in between needs them decoded\n"
	case d.WhyDecoded != "":
		return "rows are decoded: " + d.WhyDecoded + "\n"
	}
	return ""
}

func columnTable(d engine.DatasetReport) string {
	t := newTable()
	t.AppendHeader(table.Row{"column", "type", "stored as", "fidelity", "otherwise", "note"})
	for _, c := range d.Columns {
		native, policy := c.Native, ""
		if native == "" {
			native = "(left out)"
		}
		if c.Fidelity != connector.Exact {
			policy = c.Policy.String()
		}
		t.AppendRow(table.Row{c.Column, c.Type.String(), native, c.Fidelity.String(), policy, c.Why})
	}
	return t.Render()
}

// byStatus sorts what has to be done to the end, where a person looks first.
func byStatus(probes []engine.ProbeReport) []engine.ProbeReport {
	return slices.SortedStableFunc(slices.Values(probes), func(a, b engine.ProbeReport) int { return cmp.Compare(a.Status, b.Status) })
}

func writeProbes(b *strings.Builder, probes []engine.ProbeReport) {
	for i, p := range probes {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(b, "%-4s  %s: %s", p.Status, p.Where, p.Name)
		if p.Detail != "" {
			fmt.Fprintf(b, ": %s", p.Detail)
		}
		b.WriteString("\n")
		if p.Fix != "" {
			fmt.Fprintf(b, "      fix: %s\n", strings.ReplaceAll(p.Fix, "\n", "\n           "))
		}
	}
}

// checkJSON is the report for programs.
func checkJSON(r engine.Report) any {
	type column struct {
		Column   string `json:"column"`
		Type     string `json:"type"`
		Native   string `json:"native"`
		Fidelity string `json:"fidelity"`
		Policy   string `json:"policy"`
		Why      string `json:"why,omitempty"`
	}
	type dataset struct {
		Sink    string   `json:"sink"`
		Dataset string   `json:"dataset"`
		Mode    string   `json:"mode"`
		Key     []string `json:"key"`
		Columns []column `json:"columns"`

		Encoding   string `json:"encoding,omitempty"`
		WhyDecoded string `json:"why_decoded,omitempty"`
	}
	type probe struct {
		Where  string `json:"where"`
		Name   string `json:"name"`
		Status string `json:"status"`
		Detail string `json:"detail,omitempty"`
		Fix    string `json:"fix,omitempty"`
	}
	type lane struct {
		Sink    string `json:"sink"`
		Mode    string `json:"mode"`
		Reached string `json:"reached"`
		Why     string `json:"why"`
	}
	out := struct {
		OK        bool      `json:"ok"`
		Guarantee string    `json:"guarantee"`
		Why       string    `json:"why"`
		Resume    string    `json:"resume,omitempty"`
		Lanes     []lane    `json:"lanes"`
		Datasets  []dataset `json:"datasets"`
		Probes    []probe   `json:"probes"`
		Problems  []problem `json:"problems"`
	}{
		OK: r.OK(), Guarantee: engine.GuaranteeName(r.Admission.Reached), Why: r.Admission.Why, Resume: r.Resume,
		Lanes: []lane{}, Datasets: []dataset{}, Probes: []probe{}, Problems: []problem{},
	}
	for _, l := range r.Admission.Lanes {
		out.Lanes = append(out.Lanes, lane{l.Sink, l.Mode.String(), engine.GuaranteeName(l.Reached), l.Why})
	}
	for _, s := range r.Sinks {
		for _, d := range s.Datasets {
			ds := dataset{
				Sink: s.Name, Dataset: d.Dataset, Mode: s.Mode.String(), Key: append([]string{}, d.Key...), Columns: []column{},
				Encoding: d.Encoding, WhyDecoded: d.WhyDecoded,
			}
			for _, c := range d.Columns {
				ds.Columns = append(ds.Columns, column{c.Column, c.Type.String(), c.Native, c.Fidelity.String(), c.Policy.String(), c.Why})
			}
			out.Datasets = append(out.Datasets, ds)
		}
	}
	for _, p := range byStatus(r.Probes) {
		out.Probes = append(out.Probes, probe{p.Where, p.Name, p.Status.String(), p.Detail, p.Fix})
	}
	for _, p := range r.Problems {
		out.Problems = append(out.Problems, problem{Message: p.String(), Code: p.Code, Hint: p.Hint})
	}
	return out
}
