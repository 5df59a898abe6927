package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/deadletter"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/state"
)

// replayFlags are those of copy and sync, which say what the pipeline is, and those that choose letters.
type replayFlags struct {
	checkFlags
	letters letterFlags
	yes     bool
}

func (s *session) dlqReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay FILE | SRC DST...",
		Short: "Bring rows that were set aside to where they belong",
		Long: `Brings rows that were set aside to the sinks that refused them, once the reason is mended. What is typed is the pipeline: its
file, or the SRC and DST and the flags of leat copy, or with --sync those of leat sync.

Of a pipeline that copies, the rows that are kept are written, in the order in which they came: those that the sink takes are
no longer set aside, the others stay with the new reason. Rows that a transform could not take go through it as it is now.
In mode upsert only rows of the last run are written, as a later run has copied the others anew; --run or --id names rows of
an earlier one.

A pipeline that follows changes reads the rows again from the source, by their keys, as what is kept may be older than what
the sink has by now. The process that runs the pipeline does so within seconds, or else the next one. Until then they are
shown as asked for; after that they are gone, unless they were refused again.

Rows that could not be read have no columns: leat dlq show --sink - --raw writes them in the source's own form, to be mended and
copied. It asks first, unless --yes is given.`,
		Example: `  leat dlq replay orders.yaml
  leat dlq replay orders.yaml --sink lake --dataset public.orders --yes
  leat dlq replay sales.csv lake.duckdb --mode upsert --key id`,
		Args: argCount(1, maxSinks+1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := s.checked(args, f.checkFlags)
			if err != nil {
				return err
			}
			return s.withLetters(cmd.Context(), func(ctx context.Context, letters *deadletter.Store, states state.Store) error {
				return s.replay(ctx, p, replayer{s: s, letters: letters, states: states, f: f})
			})
		},
	}
	fs := cmd.Flags()
	f.letters.register(fs)
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	f.register(fs)
	return cmd
}

// replayer brings letters of one pipeline to their sinks.
type replayer struct {
	s       *session
	letters *deadletter.Store
	states  state.Store
	f       replayFlags
}

func (s *session) replay(ctx context.Context, p *config.Pipeline, r replayer) error {
	groups, err := r.letters.List(ctx, deadletter.Filter{Pipeline: p.Name})
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		if err := s.noLetters(ctx, r.letters, p.Name); err != nil {
			return err
		}
		return s.print("no row of pipeline %s is set aside\n", p.Name)
	}
	if err := r.f.letters.check(groups); err != nil {
		return err
	}
	filter := r.f.letters.filter(p.Name)
	n, err := countLetters(ctx, r.letters, filter)
	if err != nil || n == 0 {
		return join(err, s.print("no row that was chosen is set aside\n"))
	}
	plan, err := planOf(p)
	if err != nil {
		return err
	}
	contract, err := plan.Source.Config.Contract()
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if !contract.Bounded && contract.Input == connector.Changelog {
		return r.ask(ctx, p, plan, filter)
	}
	if err := s.confirm(r.f.yes, fmt.Sprintf("replay %s of pipeline %s", plural(n, "row"), p.Name)); err != nil {
		return err
	}
	return r.write(ctx, plan, filter)
}

// replayed is what became of the letters for one sink.
type replayed struct {
	written, refused, earlier int64
}

// write brings what is kept to the sinks, one after the other.
func (r replayer) write(ctx context.Context, plan engine.Plan, filter deadletter.Filter) error {
	names := make([]string, len(plan.Sinks))
	for i, sink := range plan.Sinks {
		names[i] = sink.Name
	}
	unread, err := r.unreadable(ctx, filter)
	if err != nil {
		return err
	}
	var refused int64
	for _, sink := range plan.Sinks {
		if filter.Sink != nil && *filter.Sink != "" && *filter.Sink != sink.Name {
			continue
		}
		done, err := r.into(ctx, plan, sink, names, filter)
		if err != nil {
			return fmt.Errorf("replaying into sink %q: %w", sink.Name, err)
		}
		refused += done.refused
		if err := r.tell(plan.Name, sink.Name, done); err != nil {
			return err
		}
	}
	if unread > 0 {
		have := "have"
		if unread == 1 {
			have = "has"
		}
		err := r.s.print("%s could not be read and %s no columns: "+
			"leat dlq show %s --sink - --raw > FILE writes them, to be mended and copied\n", plural(unread, "row"), have, plan.Name)
		if err != nil {
			return err
		}
	}
	if refused > 0 || unread > 0 {
		return outcomeError{ExitSetAside}
	}
	return nil
}

func (r replayer) tell(pipeline, sink string, done replayed) error {
	text := fmt.Sprintf("sink %s: %s written", sink, plural(done.written, "row"))
	if done.refused > 0 {
		text += fmt.Sprintf(", %s refused again: leat dlq show %s --sink %s", thousands(done.refused), pipeline, sink)
	}
	if done.earlier > 0 {
		text += fmt.Sprintf(", %s of earlier runs left, whose rows a later run has copied anew (--run writes them nevertheless)",
			thousands(done.earlier))
	}
	return r.s.print("%s\n", text)
}

// unreadable counts the letters that have no row of columns.
func (r replayer) unreadable(ctx context.Context, filter deadletter.Filter) (n int64, err error) {
	err = r.letters.Each(ctx, filter, func(l deadletter.Letter) error {
		if !l.Replayable() {
			n++
		}
		return nil
	})
	return n, err
}

// into brings letters to one sink, pass by pass.
func (r replayer) into(ctx context.Context, plan engine.Plan, sink engine.SinkSpec, names []string, filter deadletter.Filter,
) (done replayed, err error) {
	if sink, err = replaySpec(sink); err != nil {
		return done, err
	}
	if *sink.Mode != connector.Append && filter.Run == "" && len(filter.IDs) == 0 {
		rec, _, err := r.states.Load(ctx, plan.Name)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return done, err
		}
		everything, err := countLetters(ctx, r.letters, only(filter, sink.Name))
		if err != nil {
			return done, err
		}
		if rec.Progress.Run != "" {
			filter.Run = rec.Progress.Run
		}
		newest, err := countLetters(ctx, r.letters, only(filter, sink.Name))
		if err != nil {
			return done, err
		}
		done.earlier = everything - newest
	}
	of := deadletter.ReplayOf{Filter: filter, Into: sink.Name, Sinks: names, Shared: plan.Source.Transforms, Own: sink.Transforms}
	for {
		pass, err := r.letters.NewReplay(ctx, of)
		if err != nil || pass == nil {
			return done, err
		}
		sum, err := r.pass(ctx, plan, sink, pass)
		if err != nil {
			return done, err
		}
		for _, st := range sum.Sinks {
			done.written += st.Durable
		}
		done.refused += sum.SetAside
		if pass.Started() { // else the run before was found to be done
			of.Earlier = pass.Until()
		}
	}
}

// only narrows a filter to what one sink refused.
func only(f deadletter.Filter, sink string) deadletter.Filter {
	f.Sink = &sink
	return f
}

// pass runs one pass as a pipeline of its own.
func (r replayer) pass(ctx context.Context, plan engine.Plan, sink engine.SinkSpec, pass *deadletter.Replay) (engine.Summary, error) {
	log, err := r.s.logger(r.s.Stderr)
	if err != nil {
		return engine.Summary{}, err
	}
	sink.Transforms, sink.Text, sink.Schema = nil, "", nil
	sink.Policies = usedPolicies(sink.Policies, pass)
	sink.BadRows = &engine.BadRows{Action: engine.SetAside}
	sum, err := engine.Run(ctx, engine.Plan{
		Name: replayName(plan.Name, sink.Name), Source: engine.SourceSpec{Connector: "dead_letters", Config: pass},
		Sinks: []engine.SinkSpec{sink}, BadRows: *sink.BadRows, Changed: engine.AdoptChanged, Batch: plan.Batch, Commit: plan.Commit,
	}, engine.Deps{Store: r.states, Rejects: pass.Rejects(), Log: log, Now: r.s.Now})
	if err == nil && sum.Done {
		err = pass.Settle(ctx, sum.Position)
	}
	if err == nil && !sum.Done {
		err = &connector.Error{
			Class: connector.ClassTransient, Code: "deadletter.stopped", Doing: "replaying",
			Err: errors.New("it was stopped before its end"), Hint: "the same command goes on",
		}
	}
	return sum, err
}

// replayName is the pipeline that the positions of a replay are kept under.
func replayName(pipeline, sink string) string {
	name := pipeline + ".dlq." + sink
	if state.ValidateName(name) == nil {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	const kept = 150
	return name[:min(len(name), kept)] + "-" + hex.EncodeToString(sum[:8])
}

// replaySpec is the sink in a mode that adds rows to what is there.
func replaySpec(sink engine.SinkSpec) (engine.SinkSpec, error) {
	c, err := sink.Config.Contract()
	if err != nil {
		return sink, err
	}
	mode := connector.Append
	switch {
	case sink.Mode != nil:
		mode = *sink.Mode
	case len(c.Modes) > 0:
		mode = c.Modes[0]
	}
	if mode == connector.Replace {
		mode = connector.Append
	}
	if c.Atomicity == connector.Whole || !slices.Contains(c.Modes, mode) {
		return sink, &connector.Error{
			Class: connector.ClassConfig, Code: "deadletter.whole",
			Err:  errors.New("it is written as a whole, and takes no rows afterwards"),
			Hint: "mend the cause and copy again; leat dlq drop forgets the rows",
		}
	}
	sink.Mode = &mode
	return sink, nil
}

// usedPolicies leaves out policies for columns that no letter of the pass has.
func usedPolicies(all map[string]connector.Policy, pass *deadletter.Replay) map[string]connector.Policy {
	used := map[string]connector.Policy{}
	for name, policy := range all {
		for _, schema := range pass.Schemas() {
			column := strings.TrimPrefix(name, schema.Dataset+".")
			if name == "*" || schema.Column(name) >= 0 || schema.Column(column) >= 0 {
				used[name] = policy
			}
		}
	}
	return used
}
