package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/deadletter"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/state"
)

// deadLetters is the store of rows that were set aside, in the state folder. The file is made with the first of them.
func (s *session) deadLetters() (*deadletter.Store, error) {
	dir, err := s.stateDir()
	if err != nil {
		return nil, err
	}
	return deadletter.New(filepath.Join(dir, "dead.db")), nil
}

// letterBox is where a run puts rows aside: the store, and the sink that gets them besides.
type letterBox struct {
	*deadletter.Store
	forwarder *deadletter.Forwarder // nil: there is none
}

// letterBox opens what a pipeline asks for.
func (s *session) letterBox(p *config.Pipeline, log *slog.Logger) (*letterBox, error) {
	store, err := s.deadLetters()
	if err != nil {
		return nil, err
	}
	b := &letterBox{Store: store}
	if p.DeadLetters != nil {
		b.forwarder, err = deadletter.NewForwarder(store, p.Name, deadLetterTarget(p), log, s.Now)
	}
	return b, err
}

// deadLetterSink is the sink that a flag names; nil: it names none.
func (s *session) deadLetterSink(arg string) (*config.Sink, error) {
	if arg == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	e, cfg, err := s.sink(arg, nil)
	if err != nil {
		return nil, fmt.Errorf("--dead-letters: %w", err)
	}
	if _, err := cfg.Contract(); err != nil {
		return nil, fmt.Errorf("--dead-letters: %w", err)
	}
	return &config.Sink{Name: "dead_letters", Connector: e.def.Name, Config: cfg}, nil
}

// checkDeadLetters looks for what would keep the sink of letters from taking them.
func (s *session) checkDeadLetters(ctx context.Context, p *config.Pipeline) ([]engine.ProbeReport, error) {
	if p.DeadLetters == nil {
		return nil, nil
	}
	log, err := s.logger(s.Stderr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.untilDrain(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	found, err := deadLetterTarget(p).Check(ctx, connector.Env{
		Pipeline: p.Name, Log: log, Now: s.Now, Roundtrip: func(string) {},
		Go: func(f func(context.Context)) error {
			wg.Go(func() { f(ctx) })
			return nil
		},
	})
	probes := make([]engine.ProbeReport, len(found))
	for i, probe := range found {
		probes[i] = engine.ProbeReport{Where: "dead_letters", Probe: probe}
	}
	return probes, err
}

func deadLetterTarget(p *config.Pipeline) deadletter.Target {
	return deadletter.Target{Connector: p.DeadLetters.Connector, Config: p.DeadLetters.Config, Mode: p.DeadLetters.Mode}
}

// rejects is what the engine is handed.
func (b *letterBox) rejects() engine.RejectStore {
	if b.forwarder != nil {
		return b.forwarder
	}
	return b.Store
}

// end makes durable and passes on what there is, and lets go of letters whose rows were read again.
func (b *letterBox) end(ctx context.Context, states state.Store, pipeline string) error {
	var err error
	if b.forwarder != nil {
		err = b.forwarder.End(ctx)
	}
	if ctx.Err() == nil {
		err = join(err, settle(ctx, b.Store, states, pipeline))
	}
	return join(err, b.Close())
}

// settle lets go of the letters of a pipeline whose rows were read again.
func settle(ctx context.Context, letters *deadletter.Store, states state.Store, pipeline string) error {
	o, _, err := states.Orders(ctx, pipeline)
	if err != nil {
		return err
	}
	return letters.Settle(ctx, pipeline, o)
}

// letterFlags choose letters.
type letterFlags struct {
	sink    string
	dataset string
	class   string
	run     string
	ids     []string
}

// sourceLetters is what --sink says for rows that no sink has refused.
const sourceLetters = "-"

func (f *letterFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.sink, "sink", "", "only what this sink refused; -: what could not be read, or transformed for all sinks")
	fs.StringVar(&f.dataset, "dataset", "", "only rows of this dataset")
	fs.StringVar(&f.class, "class", "", "only rows with this class of error")
	fs.StringVar(&f.run, "run", "", "only rows of this run")
	fs.StringSliceVar(&f.ids, "id", nil, "only the letters with these ids, or beginnings of ids")
}

func (f *letterFlags) filter(pipeline string) deadletter.Filter {
	out := deadletter.Filter{Pipeline: pipeline, Dataset: f.dataset, Class: f.class, Run: f.run, IDs: f.ids}
	switch f.sink {
	case "":
	case sourceLetters:
		none := ""
		out.Sink = &none
	default:
		out.Sink = &f.sink
	}
	return out
}

// check names the nearest right name of what no letter has.
func (f *letterFlags) check(groups []deadletter.Group) error {
	known := func(of func(g deadletter.Group) string) []string {
		var names []string
		for _, g := range groups {
			if n := of(g); n != "" && !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
		return names
	}
	var errs []error
	for _, n := range []struct {
		what, name string
		known      []string
	}{
		{"sink", f.sink, append(known(func(g deadletter.Group) string { return g.Sink }), sourceLetters)},
		{"dataset", f.dataset, known(func(g deadletter.Group) string { return g.Dataset })},
		{"class", f.class, known(func(g deadletter.Group) string { return g.Class })},
	} {
		if n.name != "" && !slices.Contains(n.known, n.name) {
			errs = append(errs, connector.UnknownName(n.what, n.name, n.known))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &usageError{err: err, hint: "leat dlq list shows what there is"}
	}
	return nil
}

func (s *session) dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, show, replay and drop rows that were set aside",
		Long: `Rows that can't be carried are set aside where a pipeline says so: --set-aside, or bad_rows in its file. They are kept with
the reason, in dead.db in the state folder; dead_letters in a pipeline file names a sink that gets them besides.`,
		Example: `  leat dlq list
  leat dlq show orders
  leat dlq replay orders.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return &usageError{
				err:  connector.UnknownName("command of dlq", args[0], []string{"list", "show", "replay", "drop"}),
				hint: "leat dlq --help lists them",
			}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(s.dlqListCommand(), s.dlqShowCommand(), s.dlqReplayCommand(), s.dlqDropCommand())
	for _, c := range cmd.Commands() {
		c.Flags().SortFlags = false
	}
	return cmd
}

// letterFunc works on letters, and on what is saved of pipelines.
type letterFunc func(ctx context.Context, letters *deadletter.Store, states state.Store) error

// withLetters opens the stores, and lets go of letters whose rows were read again.
func (s *session) withLetters(ctx context.Context, use letterFunc) error {
	letters, err := s.deadLetters()
	if err != nil {
		return err
	}
	err = s.withStore(ctx, func(ctx context.Context, states state.Store) error {
		waiting, err := letters.Waiting(ctx)
		for i := 0; err == nil && i < len(waiting); i++ {
			err = settle(ctx, letters, states, waiting[i])
		}
		if err != nil {
			return err
		}
		return use(ctx, letters, states)
	})
	return join(err, letters.Close())
}

// lettersOf counts the letters of a pipeline, which is named by its name or by its file; the error names the nearest one that has any.
func (s *session) lettersOf(ctx context.Context, letters *deadletter.Store, arg string) (string, []deadletter.Group, error) {
	name := arg
	if s.isPipelineFile(arg) {
		p, err := s.load(arg)
		if err != nil {
			return "", nil, err
		}
		name = p.Name
	}
	groups, err := letters.List(ctx, deadletter.Filter{Pipeline: name})
	if err != nil || len(groups) > 0 || name != arg {
		return name, groups, err
	}
	return name, nil, s.noLetters(ctx, letters, name)
}

// letterFilter is the letters of a pipeline that the flags choose; an error names the nearest right name of what no letter has.
func (s *session) letterFilter(ctx context.Context, letters *deadletter.Store, arg string, f *letterFlags) (deadletter.Filter, error) {
	name, groups, err := s.lettersOf(ctx, letters, arg)
	if err == nil && len(groups) > 0 {
		err = f.check(groups)
	}
	return f.filter(name), err
}

// noLetters says that a pipeline has no letters, or that there is no such pipeline; nil: it is known and has none.
func (s *session) noLetters(ctx context.Context, letters *deadletter.Store, name string) error {
	all, err := letters.List(ctx, deadletter.Filter{})
	if err != nil {
		return err
	}
	var names []string
	for _, g := range all {
		names = append(names, g.Pipeline)
	}
	err = s.withStore(ctx, func(ctx context.Context, states state.Store) error {
		records, err := states.List(ctx)
		for _, r := range records {
			names = append(names, r.Pipeline)
		}
		return err
	})
	switch {
	case err != nil || slices.Contains(names, name):
		return err
	case len(names) == 0:
		return &usageError{err: fmt.Errorf("nothing is known of pipeline %q", name), hint: "leat dlq list shows what there is"}
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	return &usageError{err: connector.UnknownName("pipeline", name, names), hint: "leat dlq list shows what there is"}
}

func (s *session) dlqListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list [PIPELINE|FILE]",
		Short:   "Count the rows that were set aside",
		Long:    "Counts the rows that were set aside, of all pipelines or of one, by sink, dataset and class of error.",
		Example: "  leat dlq list\n  leat dlq list orders.yaml --json",
		Args:    argCount(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withLetters(cmd.Context(), func(ctx context.Context, letters *deadletter.Store, _ state.Store) error {
				var groups []deadletter.Group
				var err error
				if len(args) == 0 {
					groups, err = letters.List(ctx, deadletter.Filter{})
				} else {
					_, groups, err = s.lettersOf(ctx, letters, args[0])
				}
				if err != nil {
					return err
				}
				if asJSON {
					return s.printJSON(groupsJSON(groups))
				}
				return s.printGroups(groups)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func (s *session) printGroups(groups []deadletter.Group) error {
	s.sayEarlierFiles()
	if len(groups) == 0 {
		return s.print("no row is set aside\n")
	}
	t := newTable()
	t.AppendHeader(table.Row{"pipeline", "sink", "dataset", "class", "rows", "asked", "first", "last"})
	for _, g := range groups {
		t.AppendRow(table.Row{
			g.Pipeline, sinkOr(g.Sink), g.Dataset, g.Class, thousands(g.Letters), thousands(g.Asked),
			g.First.Local().Format(time.DateTime), g.Last.Local().Format(time.DateTime),
		})
	}
	return s.print("%s\n", s.redact.text(t.Render()))
}

// sinkOr names who refused a row.
func sinkOr(sink string) string {
	if sink == "" {
		return "- (source)"
	}
	return sink
}

// sayEarlierFiles tells of files that earlier versions kept rows in.
func (s *session) sayEarlierFiles() {
	dir, err := s.stateDir()
	if err != nil || s.quiet {
		return
	}
	files, _ := filepath.Glob(filepath.Join(dir, "rejects", "*.jsonl")) // the pattern is right
	if len(files) > 0 {
		s.say(fmt.Sprintf("leat: an earlier version has set rows aside in %s: they stay there, as JSON Lines\n", strings.Join(files, ", ")))
	}
}

// groupJSON is one line of dlq list for programs.
type groupJSON struct {
	Pipeline string    `json:"pipeline"`
	Sink     string    `json:"sink"` // empty: the source
	Dataset  string    `json:"dataset"`
	Class    string    `json:"class"`
	Rows     int64     `json:"rows"`
	Asked    int64     `json:"asked"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
}

func groupsJSON(groups []deadletter.Group) []groupJSON {
	out := make([]groupJSON, len(groups))
	for i, g := range groups {
		out[i] = groupJSON{g.Pipeline, g.Sink, g.Dataset, g.Class, g.Letters, g.Asked, g.First, g.Last}
	}
	return out
}

func (s *session) dlqDropCommand() *cobra.Command {
	var f letterFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop PIPELINE|FILE",
		Short: "Forget rows that were set aside",
		Long: `Forgets rows that were set aside, for good: all of a pipeline, or those that the flags choose. It asks first, unless --yes is
given.`,
		Example: `  leat dlq drop orders
  leat dlq drop orders --dataset public.orders --class bad_value --yes
  leat dlq drop orders --id 3f2a9c0b1d2e`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withLetters(cmd.Context(), func(ctx context.Context, letters *deadletter.Store, _ state.Store) error {
				filter, err := s.letterFilter(ctx, letters, args[0], &f)
				if err != nil {
					return err
				}
				n, err := countLetters(ctx, letters, filter)
				if err != nil || n == 0 {
					return join(err, s.print("no row is set aside\n"))
				}
				if err := s.confirm(yes, fmt.Sprintf("forget %s of pipeline %s", plural(n, "row"), filter.Pipeline)); err != nil {
					return err
				}
				if n, err = letters.Drop(ctx, filter); err != nil {
					return err
				}
				return s.print("dropped: %s\n", plural(n, "row"))
			})
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func countLetters(ctx context.Context, letters *deadletter.Store, f deadletter.Filter) (n int64, err error) {
	groups, err := letters.List(ctx, f)
	for _, g := range groups {
		n += g.Letters
	}
	return n, err
}
