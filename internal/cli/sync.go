package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/state"
)

// syncFlags say what is followed and how, for sync and check.
type syncFlags struct {
	copyFlags
	schema []string
	lanes  string
}

func (s *session) syncCommand() *cobra.Command {
	var f syncFlags
	var r runFlags
	cmd := &cobra.Command{
		Use:   "sync SRC DST...",
		Short: "Copy what is there, then follow every change",
		Long: `Copies everything that the source has, and follows every change from then on: inserts, updates, deletes, truncations and
new columns, each once and in order, until it is stopped by ^C or SIGTERM. Several sinks are fed from one reading. Tables
are written by key; files become logs of changes.

` + endpointHelp + `

Stopped or crashed, the same command goes on where it was, also after days: the source keeps what was not delivered yet.
leat status shows how far it is, leat check SRC DST --sync what would go wrong, and leat drop removes what the source keeps
for a pipeline that is not used any more.`,
		Example: `  leat sync 'postgres://app:${env:PGPASSWORD}@db/shop' sqlite:replica.db
  leat sync 'postgres://app@db/shop' lake.duckdb 'jsonl:changes/' --tables 'public.*'
  leat sync 'postgres://app@db/shop' sqlite:replica.db --once
  leat sync 'postgres://app@db/shop' lake.duckdb --schema ignore --schema public.orders=fail
  leat sync 'postgres://app@db/shop' lake.duckdb --resnapshot public.orders`,
		Args: argCount(2, maxSinks+1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := s.syncPipeline(args, f)
			if err != nil {
				return err
			}
			if err := s.warnOfOthers(cmd.Context(), p.Name, args[0]); err != nil {
				return err
			}
			return s.execute(cmd.Context(), p, &r)
		},
	}
	f.register(cmd.Flags())
	r.follow.register(cmd.Flags())
	r.register(cmd.Flags())
	return cmd
}

// maxSinks is how many sinks a command line may name.
const maxSinks = 64

func (f *syncFlags) register(fs *pflag.FlagSet) {
	f.shared(fs)
	fs.Lookup("mode").Usage = "append, upsert or replace (default: upsert where the sink has it)"
	fs.Lookup("where").Usage = "copy only what is there for which this holds, in SQL; changes are followed whatever they are"
	fs.Lookup("sink-opt").Usage = "NAME=VALUE: an option of the sinks that have it"
	f.own(fs)
}

// own registers what copy does not have.
func (f *syncFlags) own(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.schema, "schema", nil,
		"[DATASET=]evolve|ignore|set_aside|fail: what to do when columns change while they are followed (default evolve)")
	fs.StringVar(&f.lanes, "lanes", "",
		"auto, memory or durable: where changes wait for the sinks; durable: on disk, so that no sink holds another one (default auto)")
}

// syncPipeline makes a pipeline of what was typed: the source, then the sinks.
func (s *session) syncPipeline(args []string, f syncFlags) (*config.Pipeline, error) {
	from, source, err := s.source(args[0], f.sourceOpt)
	if err != nil {
		return nil, err
	}
	if !hasOption(source, followOption) {
		return nil, cannotFollow(from.def.Title+" can't be followed, it is read to its end", args)
	}
	p := &config.Pipeline{Name: f.name, Source: config.Source{Connector: from.def.Name, Config: source}, BatchRows: f.batchRows}
	var to []endpoint
	for _, arg := range args[1:] {
		e, sink, err := s.sink(arg, f.optionsOf(s, arg, len(args)-1))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(to, func(o endpoint) bool { return o.place() == e.place() }) {
			return nil, usagef("%s is named twice", s.redact.text(arg))
		}
		to = append(to, e)
		p.Sinks = append(p.Sinks, config.Sink{Connector: e.def.Name, Config: sink, Key: f.key})
	}
	for i, name := range laneNames(to) {
		p.Sinks[i].Name = name
	}
	if err := f.apply(p); err != nil {
		return nil, &usageError{err: err, hint: "leat sync --help shows what each flag takes"}
	}
	if err := startFollowing(p.Source, args); err != nil {
		return nil, err
	}
	if err := followDefaults(p); err != nil {
		return nil, err
	}
	if p.DeadLetters, err = s.deadLetterSink(f.deadLetters); err != nil {
		return nil, err
	}
	if p.Name == "" {
		p.Name = syncName(from, to, p)
	}
	return p, nil
}

// warnOfOthers names the other pipelines of the source that are known, when one begins: a flag that was changed makes another pipeline,
// and the source goes on keeping its log for the one before.
func (s *session) warnOfOthers(ctx context.Context, name, src string) error {
	log, err := s.logger(s.Stderr)
	if err != nil {
		return err
	}
	return s.withStore(ctx, func(ctx context.Context, store state.Store) error {
		records, err := store.List(ctx)
		if err != nil || slices.ContainsFunc(records, func(r state.Record) bool { return r.Pipeline == name }) {
			return nil //nolint:nilerr // it is a service, and the run says what is wrong with the store
		}
		for _, r := range records {
			if kin(name, r.Pipeline) && stands(r) == standsFollowing {
				log.Warn("the source also keeps its log for another pipeline",
					slog.String("pipeline", name), slog.String("other", r.Pipeline), slog.Time("saved", r.Updated),
					slog.String("if_it_has_retired", fmt.Sprintf("leat drop %s --name %s", shellWord(src), r.Pipeline)))
			}
		}
		return nil
	})
}

// kin reports whether two names were made of the same labels of source and sink.
func kin(a, b string) bool {
	i, j := strings.LastIndexByte(a, '-'), strings.LastIndexByte(b, '-')
	return i >= 0 && j >= 0 && strings.HasPrefix(a, "sync-") && a[:i] == b[:j]
}

// startFollowing makes a source follow changes, or says why it can't.
func startFollowing(src config.Source, args []string) error {
	_, before := src.Config.Contract() // may lack the option that is set here
	if err := connector.SetOption(src.Config, followOption, true); err != nil {
		return &usageError{err: fmt.Errorf("source: %w", err)}
	}
	c, err := src.Config.Contract()
	switch {
	case err != nil && before != nil:
		return fmt.Errorf("source: %w", err)
	case err != nil:
		return &usageError{err: fmt.Errorf("source: %w", err), hint: strings.TrimLeft(connector.HintOf(err)+"\n"+copyHint(args), "\n")}
	case c.Bounded:
		return cannotFollow("what was named of "+src.Connector+" can't be followed, it is read to its end", args)
	}
	return nil
}

func cannotFollow(why string, args []string) error {
	return &usageError{err: errors.New("source: " + why), hint: copyHint(args)}
}

// copyHint is what to type instead, as it was typed.
func copyHint(args []string) string {
	lines := make([]string, 0, len(args))
	for _, dst := range args[1:] {
		lines = append(lines, fmt.Sprintf("leat copy %s %s", shellWord(args[0]), shellWord(dst)))
	}
	return "copy it, as often as you like:\n" + strings.Join(lines, "\n")
}

// shellWord quotes an argument as a shell wants it.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r == '-' || r == '_' || r == '.' || r == '/' || r == ':' || r == '@' || r == '=' || r == '%' || r == ',' ||
			(r >= '0' && r <= '9') || (r >= 'A' && r <= 'Z') || (r >= 'a' && r <= 'z')
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// optionsOf returns the options that are meant for one of several sinks: those that it has, and those that look like nobody's.
func (f *syncFlags) optionsOf(s *session, arg string, sinks int) []string {
	if sinks == 1 {
		return f.sinkOpt
	}
	e, err := s.locate("sink", arg, nil)
	if err != nil || e.def.Sink == nil {
		return nil // said by whoever takes it
	}
	var own []string
	for _, o := range f.sinkOpt {
		name, _, _ := strings.Cut(o, "=")
		if hasOption(e.def.Sink(), name) {
			own = append(own, o)
		}
	}
	return own
}

// apply changes a pipeline as the flags say.
func (f *syncFlags) apply(p *config.Pipeline) error {
	if f.where != "" && !hasOption(p.Source.Config, "where") {
		return fmt.Errorf("--where: %s can't filter what it copies of what is there", p.Source.Connector)
	}
	var errs []error
	for _, o := range f.sinkOpt {
		name, _, _ := strings.Cut(o, "=")
		if !slices.ContainsFunc(p.Sinks, func(s config.Sink) bool { return hasOption(s.Config, name) }) {
			errs = append(errs, fmt.Errorf("--sink-opt %s: none of the sinks has the option %q", o, name))
		}
	}
	if f.lanes != "" {
		kind, err := config.ParseLanes(f.lanes)
		if err != nil {
			errs = append(errs, fmt.Errorf("--lanes: %w", err))
		}
		p.Lanes.Kind = kind
	}
	schema, err := f.schemas()
	for i := range p.Sinks {
		p.Sinks[i].Schema = schema
	}
	return errors.Join(append(errs, f.copyFlags.apply(p), err)...)
}

// schemas reads --schema.
func (f *syncFlags) schemas() (map[string]string, error) {
	var errs []error
	var out map[string]string
	for _, text := range f.schema {
		dataset, policy := "*", text
		if i := strings.LastIndexByte(text, '='); i >= 0 {
			dataset, policy = text[:i], text[i+1:]
		}
		if _, err := config.ParseSchema(policy); err != nil {
			errs = append(errs, fmt.Errorf("--schema %s: %w", text, err))
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[dataset] = policy
	}
	return out, errors.Join(errs...)
}

// laneNames names the sinks by connector and path. A name depends on all sinks as a set, never on their order.
func laneNames(to []endpoint) []string {
	names := make([]string, len(to))
	count := map[string]int{}
	for i, e := range to {
		names[i] = e.def.Name
		if l := e.label(); l != e.def.Name {
			names[i] += "-" + l
		}
		count[names[i]]++
	}
	for i, e := range to {
		if count[names[i]] > 1 {
			n := newNamer()
			n.add(e.place())
			names[i] += "-" + n.text(3)
		}
	}
	return names
}

// syncName names what sync does by all that decides what it does, as copyName does. The order of the sinks is no part of it, nor
// whether it ends.
func syncName(from endpoint, to []endpoint, p *config.Pipeline) string {
	n := newNamer()
	n.add(from.def.Name, from.place(), p.Transforms.Text)
	n.addMap(p.Source.Config.Identity())
	order := make([]int, len(to))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(to[a].def.Name+to[a].place(), to[b].def.Name+to[b].place()) })
	for _, i := range order {
		n.add(to[i].def.Name, to[i].place())
		n.addMap(p.Sinks[i].Config.Identity())
		if m := p.Sinks[i].Mode; m != nil {
			n.add(m.String())
		}
		n.add(p.Sinks[i].Key...)
	}
	label := to[order[0]].label()
	if len(to) > 1 {
		label += fmt.Sprintf("-and-%d", len(to)-1)
	}
	return fmt.Sprintf("sync-%s-%s-%s", from.label(), label, n.text(5))
}
