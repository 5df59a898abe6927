package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
)

// copyFlags say what is copied and how, for copy and check.
type copyFlags struct {
	mode        string
	key         []string
	columns     []string
	where       string
	limit       int64
	tables      []string
	setAside    string
	perDataset  int64
	deadLetters string
	guarantee   string
	batchRows   int
	policies    []string
	sourceOpt   []string
	sinkOpt     []string
	name        string
	deletes     string
}

const endpointHelp = `SRC and DST are URLs or file names; leat connectors lists what there is, leat connectors NAME its options,
which stand behind a question mark: 'postgres://app@db/shop?table=orders'. A - reads standard input or
writes standard output: csv:- and jsonl:-. ${env:NAME} and ${file:PATH} put in a secret, such as a password.`

func (s *session) copyCommand() *cobra.Command {
	var f copyFlags
	var r runFlags
	cmd := &cobra.Command{
		Use:   "copy SRC DST",
		Short: "Copy from a source to a sink, once",
		Long: `Copies everything that the source has now, and ends.

` + endpointHelp + `

Interrupted or crashed, the same command goes on where it was. Once it is done, the same command copies anew.`,
		Example: `  leat copy sales.csv lake.duckdb
  leat copy lake.duckdb?table=sales jsonl:- | head
  leat copy 'postgres://app:${env:PGPASSWORD}@db/shop?tables=public.*' sqlite:shop.db
  leat copy new.csv lake.duckdb?table=sales --mode upsert --key id
  leat copy 'postgres://app@db/shop?table=orders' orders.parquet --columns id,total --where "total > 100"`,
		Args: argCount(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := s.copyPipeline(args[0], args[1], f)
			if err != nil {
				return err
			}
			return s.execute(cmd.Context(), p, &r)
		},
	}
	f.register(cmd.Flags())
	r.register(cmd.Flags())
	return cmd
}

func (f *copyFlags) register(fs *pflag.FlagSet) {
	f.shared(fs)
	f.whole(fs)
}

// shared registers what copy and sync have in common.
func (f *copyFlags) shared(fs *pflag.FlagSet) {
	fs.StringVar(&f.mode, "mode", "", "append, upsert or replace (default: the sink's own)")
	fs.StringSliceVar(&f.key, "key", nil, "key columns, where the source does not say")
	fs.StringSliceVar(&f.columns, "columns", nil, "only these columns, in this order")
	fs.StringVar(&f.where, "where", "",
		"only rows for which this holds: SQL where the source takes SQL, else an expression such as 'total > 100'")
	fs.StringSliceVar(&f.tables, "tables", nil, "tables to read, patterns with * allowed")
	fs.StringVar(&f.setAside, "set-aside", "", "set rows aside that can't be carried, and go on; =N: more than N stop the run")
	fs.Lookup("set-aside").NoOptDefVal = "0"
	fs.Int64Var(&f.perDataset, "set-aside-per-dataset", 0, "with --set-aside: more than so many of one dataset stop the run; 0: no limit")
	fs.StringVar(&f.deadLetters, "dead-letters", "",
		"a sink that gets rows that were set aside, besides what is kept of them, such as sqlite:dead.db")
	fs.StringArrayVar(&f.policies, "policy", nil,
		"COLUMN=text|null|clamp|strip|fail: what to do with values that don't fit; * for all columns")
	fs.StringVar(&f.guarantee, "guarantee", "", "at-least-once, effectively-once or exactly-once (default: the best that is reached)")
	fs.IntVar(&f.batchRows, "batch-rows", 0, "rows of a batch; 0: a default that fits")
	fs.StringArrayVar(&f.sourceOpt, "source-opt", nil, "NAME=VALUE: an option of the source")
	fs.StringArrayVar(&f.sinkOpt, "sink-opt", nil, "NAME=VALUE: an option of the sink")
	fs.StringVar(&f.name, "name", "", "name of what is saved about it (default: made of source, sink and selection)")
}

// whole registers what only makes sense where a source is read to its end.
func (f *copyFlags) whole(fs *pflag.FlagSet) {
	fs.Int64Var(&f.limit, "limit", 0, "at most so many rows of each dataset; 0: all")
	fs.StringVar(&f.deletes, "deletes", "",
		"keep, hard or soft: what to do with rows that are gone from the source, found by comparing all keys; needs --mode upsert")
}

// copyPipeline makes a pipeline of what was typed.
func (s *session) copyPipeline(src, dst string, f copyFlags) (*config.Pipeline, error) {
	from, source, err := s.source(src, f.sourceOpt)
	if err != nil {
		return nil, err
	}
	to, sink, err := s.sink(dst, f.sinkOpt)
	if err != nil {
		return nil, err
	}
	p := &config.Pipeline{
		Name: f.name, Source: config.Source{Connector: from.def.Name, Config: source}, Limit: f.limit, BatchRows: f.batchRows,
		Sinks: []config.Sink{{Name: "target", Connector: to.def.Name, Config: sink, Key: f.key}},
	}
	if err := f.apply(p); err != nil {
		return nil, &usageError{err: err, hint: "leat copy --help shows what each flag takes"}
	}
	if p.DeadLetters, err = s.deadLetterSink(f.deadLetters); err != nil {
		return nil, err
	}
	if p.Name == "" {
		p.Name = copyName(from, to, p)
	}
	return p, nil
}

// apply changes a pipeline as the flags say.
func (f *copyFlags) apply(p *config.Pipeline) error {
	if f.limit < 0 || f.batchRows < 0 {
		return errors.New("--limit and --batch-rows: want no negative number")
	}
	var steps []config.Step
	if err := errors.Join(f.selection(p.Source.Config, p.Source.Connector, &steps), f.modes(p)); err != nil {
		return err
	}
	var err error
	p.Transforms, err = config.MakeTransforms(steps...)
	return err
}

// selection hands tables, columns and the condition to the source where it takes them, and makes transforms of the others.
func (f *copyFlags) selection(source connector.SourceConfig, name string, steps *[]config.Step) error {
	var errs []error
	if len(f.tables) > 0 {
		if hasOption(source, "tables") {
			errs = append(errs, connector.SetOption(source, "tables", anyList(f.tables)))
		} else {
			errs = append(errs, fmt.Errorf("--tables: %s has no tables", name))
		}
	}
	if f.where != "" {
		if hasOption(source, "where") {
			errs = append(errs, connector.SetOption(source, "where", f.where))
		} else {
			*steps = append(*steps, config.Step{Kind: "filter", Args: f.where})
		}
	}
	if len(f.columns) > 0 {
		if hasOption(source, "columns") && (f.where == "" || hasOption(source, "where")) {
			errs = append(errs, connector.SetOption(source, "columns", anyList(f.columns)))
		} else {
			*steps = append(*steps, config.Step{Kind: "select", Args: anyList(f.columns)})
		}
	}
	return errors.Join(errs...)
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = e
	}
	return out
}

// modes reads the flags that are names.
func (f *copyFlags) modes(p *config.Pipeline) error {
	var errs []error
	g, err := connector.ParseGuarantee(f.guarantee)
	errs, p.Guarantee = append(errs, err), g
	if f.setAside != "" {
		n, err := strconv.ParseInt(f.setAside, 10, 64)
		if err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("--set-aside=%s: want a number of rows", f.setAside))
		}
		p.BadRows = &config.BadRows{SetAside: true, Limit: n, PerDataset: f.perDataset}
	}
	if f.perDataset < 0 || (f.perDataset > 0 && f.setAside == "") {
		errs = append(errs, errors.New("--set-aside-per-dataset: want a number of rows, beside --set-aside"))
	}
	sink, err := f.sinkModes()
	for i := range p.Sinks {
		p.Sinks[i].Mode, p.Sinks[i].Deletes, p.Sinks[i].Policies = sink.Mode, sink.Deletes, maps.Clone(sink.Policies)
	}
	return errors.Join(append(errs, err)...)
}

// sinkModes reads those that are about sinks.
func (f *copyFlags) sinkModes() (sink config.Sink, err error) {
	var errs []error
	if f.mode != "" {
		m, err := connector.ParseWriteMode(f.mode)
		errs, sink.Mode = append(errs, err), &m
	}
	if f.deletes != "" {
		d, err := config.ParseDeletes(f.deletes)
		errs, sink.Deletes = append(errs, err), d
		if d != config.DeletesKeep && f.mode != connector.Upsert.String() {
			errs = append(errs, fmt.Errorf("--deletes %s needs --mode upsert", f.deletes))
		}
	}
	for _, text := range f.policies {
		column, policy, ok := strings.Cut(text, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("--policy %q: want COLUMN=POLICY", text))
			continue
		}
		parsed, err := connector.ParsePolicy(policy)
		errs = append(errs, err)
		if sink.Policies == nil {
			sink.Policies = map[string]connector.Policy{}
		}
		sink.Policies[column] = parsed
	}
	return sink, errors.Join(errs...)
}

// copyName names a copy by all that decides what it does, so that typing it again goes on with it, and by nothing else: a new password
// or batch size changes no name.
func copyName(from, to endpoint, p *config.Pipeline) string {
	n := newNamer()
	n.add(from.def.Name, from.place(), to.def.Name, to.place(), p.Transforms.Text, strconv.FormatInt(p.Limit, 10))
	n.addMap(p.Source.Config.Identity())
	n.addMap(p.Sinks[0].Config.Identity())
	if m := p.Sinks[0].Mode; m != nil {
		n.add(m.String())
	}
	n.add(p.Sinks[0].Key...)
	if p.Sinks[0].Deletes == config.DeletesSoft {
		n.add(p.Sinks[0].Deletes)
	}
	return fmt.Sprintf("copy-%s-%s-%s", from.label(), to.label(), n.text(5))
}

// namer makes a short text of many, which differs where any of them does.
type namer struct{ h hash.Hash }

func newNamer() namer { return namer{h: sha256.New()} }

func (n namer) add(values ...string) {
	for _, v := range values {
		n.h.Write(fmt.Appendf(nil, "%d:%s", len(v), v))
	}
}

func (n namer) addMap(m map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		n.add(k, m[k])
	}
}

// text returns two characters for each of so many bytes.
func (n namer) text(bytes int) string { return hex.EncodeToString(n.h.Sum(nil)[:bytes]) }
