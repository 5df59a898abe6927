package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/state"
)

func (s *session) stateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Show and change how far pipelines got",
		Long: `Shows and changes what is saved about pipelines: how far each got, and under which identity. Where a sink keeps the
position in its own transaction, the sink's word wins over what is saved here.`,
		Example: `  leat state list
  leat state show orders-to-lake
  leat state reset orders-to-lake`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			err := connector.UnknownName("command", args[0], []string{"list", "show", "set", "reset"})
			return &usageError{err: err, hint: "leat state --help"}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(s.stateListCommand(), s.stateShowCommand(), s.stateSetCommand(), s.stateResetCommand())
	return cmd
}

// withStore hands the state store to use.
func (s *session) withStore(ctx context.Context, use func(ctx context.Context, store state.Store) error) (err error) {
	ctx, cancel := s.untilDrain(ctx)
	defer cancel()
	store, err := s.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = join(err, store.Close()) }()
	return use(ctx, store)
}

func (s *session) stateListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the pipelines that something is saved about",
		Long:    "Lists the pipelines that something is saved about, how far each got and when that was saved.",
		Example: "  leat state list\n  leat state list --json",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withStore(cmd.Context(), func(ctx context.Context, store state.Store) error {
				records, err := store.List(ctx)
				if asJSON {
					return join(s.printJSON(recordsJSON(records)), err)
				}
				return join(s.printRecords(records), err)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func recordsJSON(records []state.Record) []json.RawMessage {
	out := []json.RawMessage{}
	for _, r := range records {
		if text, err := state.Encode(r); err == nil {
			out = append(out, text)
		}
	}
	return out
}

func (s *session) printRecords(records []state.Record) error {
	if len(records) == 0 {
		return s.print("nothing is saved\n")
	}
	t := newTable()
	t.AppendHeader(table.Row{"pipeline", "stands", "rows", "set aside", "saved"})
	for _, r := range records {
		t.AppendRow(table.Row{r.Pipeline, stands(r), thousands(r.Rows), thousands(r.Rejected), r.Updated.Local().Format(time.DateTime)})
	}
	return s.print("%s\n", s.redact.text(t.Render()))
}

// stands says in a word how far a pipeline got.
func stands(r state.Record) string {
	switch {
	case r.Progress.Done:
		return standsDone
	case r.Progress.Run == "":
		return standsBeginning
	}
	if followed, err := engine.Backfills(r.Progress.Ledger); err == nil && len(followed) > 0 {
		return standsFollowing
	}
	return "in the middle"
}

const (
	standsFollowing = "following"
	standsDone      = "done"
	standsBeginning = "at the beginning"
)

func (s *session) stateShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show PIPELINE",
		Short: "Show what is saved about a pipeline",
		Long: `Shows what is saved about a pipeline, which is all that its newest checkpoint knows: run, position and epoch, the lane to
each sink, what is being copied, what people ordered, and the options that the position depends on.`,
		Example: "  leat state show orders-to-lake\n  leat state show orders-to-lake --json > saved.json",
		Args:    argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withStore(cmd.Context(), func(ctx context.Context, store state.Store) error {
				r, _, err := loadRecord(ctx, store, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					text, err := state.Encode(r)
					return join(err, s.print("%s\n", s.redact.text(string(text))))
				}
				o, _, err := store.Orders(ctx, args[0])
				return join(s.printRecord(r, o), err)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON, in the form that state set takes")
	return cmd
}

// loadRecord loads what is saved; where there is nothing, the error names the nearest pipeline.
func loadRecord(ctx context.Context, store state.Store, name string) (state.Record, state.Version, error) {
	r, version, err := store.Load(ctx, name)
	if !errors.Is(err, state.ErrNotFound) {
		return r, version, err
	}
	records, listErr := store.List(ctx)
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.Pipeline
	}
	if listErr != nil || len(names) == 0 {
		return r, 0, &usageError{err: fmt.Errorf("nothing is saved about pipeline %q", name), hint: "leat state list shows what there is"}
	}
	return r, 0, &usageError{err: connector.UnknownName("pipeline", name, names), hint: "leat state list shows what there is"}
}

func (s *session) printRecord(r state.Record, o state.Orders) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("pipeline", "%s", r.Pipeline)
	line("stands", "%s", stands(r))
	line("run", "%s", orNone(r.Progress.Run))
	line("position", "%s", r.Progress.Position)
	if r.Progress.Epoch > 0 {
		line("epoch", "%d", r.Progress.Epoch)
	}
	if !r.Origin.Zero() {
		line("began at", "%s", r.Origin)
	}
	if r.Stream != "" {
		line("stream", "%s", r.Stream)
	}
	line("rows", "%s", thousands(r.Rows))
	line("set aside", "%s", thousands(r.Rejected))
	line("attempt", "%d", r.Attempt)
	line("saved", "%s", r.Updated.Local().Format(time.DateTime))
	if text := pauses(o); text != "" {
		line("paused", "%s", text)
	}
	b.WriteString("identity\n")
	for _, k := range slices.Sorted(maps.Keys(r.Identity)) {
		fmt.Fprintf(&b, "  %s: %s\n", k, r.Identity[k])
	}
	if lanes := savedLanes(r, o); len(lanes) > 0 {
		b.WriteString("\n" + laneTable(lanes, s.clock()()) + "\n")
	}
	phases, err := savedPhases(r.Progress.Ledger)
	showPaused(phases, o.Datasets)
	if len(phases) > 0 {
		b.WriteString("\n" + datasetTable(phases) + "\n")
	}
	if len(o.Backfills) > 0 {
		b.WriteString("\nbackfills asked for\n" + backfillTable(o.Backfills) + "\n")
	}
	return join(s.print("%s", s.redact.text(b.String())), err)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func (s *session) stateSetCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "set PIPELINE FILE",
		Short: "Replace what is saved about a pipeline",
		Long: `Replaces what is saved about a pipeline by a file in the form of state show --json; - reads standard input. This moves a
pipeline to another machine, or sets it to another position: rows in between are copied again, or never. It asks first,
unless --yes is given.`,
		Example: "  leat state show orders --json > saved.json\n  leat state set orders saved.json --yes",
		Args:    argCount(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := s.readRecord(args[0], args[1])
			if err != nil {
				return err
			}
			return s.withStore(cmd.Context(), func(ctx context.Context, store state.Store) error {
				if err := s.confirm(yes, "replace what is saved about "+args[0]); err != nil {
					return err
				}
				old, version, err := store.Load(ctx, r.Pipeline)
				if err != nil && !errors.Is(err, state.ErrNotFound) {
					return err
				}
				r.Attempt = max(r.Attempt, old.Attempt) // attempts never go back: late owners stay shut out
				r.Updated = s.Now().UTC()
				if _, err := store.Save(ctx, r, version); err != nil {
					return err
				}
				text := fmt.Sprintf("saved: %s stands %s\n", r.Pipeline, stands(r))
				if r.Stream != "" {
					text += "what waits in its lanes on disk is no part of it: their folder has to be the one of this state\n"
				}
				return s.print("%s", text)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (s *session) readRecord(name, file string) (state.Record, error) {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(s.Stdin)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		err = fmt.Errorf("reading the state: %w", err)
		return state.Record{}, &usageError{err: err, hint: "leat state show PIPELINE --json prints such a file"}
	}
	r, err := state.Decode(data, name)
	if err != nil {
		return r, &usageError{err: err, hint: "leat state show PIPELINE --json prints the form that is wanted"}
	}
	return r, nil
}

func (s *session) stateResetCommand() *cobra.Command {
	var yes, orders bool
	cmd := &cobra.Command{
		Use:   "reset PIPELINE",
		Short: "Make the next run of a pipeline begin anew",
		Long: `Forgets how far a pipeline got, so that its next run begins anew. What the sinks hold stays; in mode append rows are then
written a second time. What was paused stays paused; --orders forgets pauses and backfills, and nothing else. It asks first,
unless --yes is given.`,
		Example: "  leat state reset orders-to-lake\n  leat state reset orders-to-lake --yes\n  leat state reset orders-to-lake --orders",
		Args:    argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withStore(cmd.Context(), func(ctx context.Context, store state.Store) error {
				if orders {
					return s.forgetOrders(ctx, store, args[0], yes)
				}
				r, version, err := loadRecord(ctx, store, args[0])
				if connector.ClassOf(err) == connector.ClassPosition && state.ValidateName(args[0]) == nil {
					return s.forgetUnreadable(ctx, store, args[0], yes, err)
				}
				if err != nil {
					return err
				}
				if err := s.confirm(yes, fmt.Sprintf("make %s begin anew (it stands %s)", args[0], stands(r))); err != nil {
					return err
				}
				r = r.Reset()
				r.Updated = s.Now().UTC()
				if _, err := store.Save(ctx, r, version); err != nil {
					return err
				}
				return s.print("%s begins anew with its next run\n", args[0])
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&orders, "orders", false, "forget what is paused and which backfills are asked for, and keep how far it got")
	return cmd
}

// forgetOrders takes back all that people ordered, also where this program can't read it.
func (s *session) forgetOrders(ctx context.Context, store state.Store, name string, yes bool) error {
	o, version, err := store.Orders(ctx, name)
	unreadable := connector.ClassOf(err) == connector.ClassPosition && version > 0
	if err != nil && !unreadable {
		return err
	}
	if version == 0 || (err == nil && o.Empty()) {
		return s.print("nothing was ordered for %s\n", name)
	}
	kept := state.Orders{Last: o.Last, Failed: o.Failed}
	what := "forget all pauses and " + plural(int64(len(o.Backfills)), "requested backfill")
	if unreadable {
		what = "forget orders that can't be read"
		kept.Last = uint64(max(0, s.clock()().Unix())) // beyond every id that was used
	}
	if err := s.confirm(yes, what+" for "+name); err != nil {
		return err
	}
	if _, err := store.SaveOrders(ctx, name, kept, version); err != nil {
		return err
	}
	return s.print("what was ordered for %s is forgotten\n", name)
}

// forgetUnreadable is the way out where a record can't be read, which then can't be kept in parts either.
func (s *session) forgetUnreadable(ctx context.Context, store state.Store, name string, yes bool, why error) error {
	s.say("leat: " + why.Error() + "\n")
	if err := s.confirm(yes, "forget all that is saved about "+name+", its pauses and backfills included"); err != nil {
		return err
	}
	if err := store.Delete(ctx, name); err != nil {
		return err
	}
	return s.print("%s begins anew with its next run\n", name)
}

// confirm asks a person. Without one, --yes is needed.
func (s *session) confirm(yes bool, what string) error {
	if yes {
		return nil
	}
	if !isTerminal(s.Stdin) {
		return &usageError{err: fmt.Errorf("nobody is there to ask whether to %s", what), hint: "add --yes"}
	}
	s.say("leat: " + what + "? [y/N] ")
	answer, err := bufio.NewReader(s.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return &usageError{err: errors.New("nothing was changed")}
	}
	return nil
}
