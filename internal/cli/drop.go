package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/jetstream"
	"github.com/leatdata/leat/state"
)

// dropFlags say which pipeline is dropped, and how.
type dropFlags struct {
	name      string
	sourceOpt []string
	yes       bool
	keepState bool
}

func (s *session) dropCommand() *cobra.Command {
	var f dropFlags
	cmd := &cobra.Command{
		Use:   "drop FILE | SRC",
		Short: "Remove what a source keeps for a retired pipeline",
		Long: `Removes what the source keeps on its server for a pipeline that follows it and is not used any more, such as a replication
slot and a publication, which would keep the server's log for ever; then forgets how far the pipeline got. What the sinks
hold stays. It shows what there is and asks first, unless --yes is given.

With SRC in place of a file, --name says which pipeline; it may be left out where only one of that source is known.`,
		Example: `  leat drop shop.yaml
  leat drop 'postgres://app@db/shop' --name sync-shop-replica-0a1b2c3d4e --yes`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withStore(cmd.Context(), func(ctx context.Context, store state.Store) error {
				p, err := s.retired(ctx, store, args[0], f)
				if err != nil {
					return err
				}
				return s.drop(ctx, store, p, f)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "", "name of the pipeline, where SRC is given")
	fs.StringArrayVar(&f.sourceOpt, "source-opt", nil, "NAME=VALUE: an option of the source")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	fs.BoolVar(&f.keepState, "keep-state", false, "keep what is saved about the pipeline")
	return cmd
}

// retired is the pipeline to drop, of a file or of what was typed.
func (s *session) retired(ctx context.Context, store state.Store, arg string, f dropFlags) (*config.Pipeline, error) {
	if s.isPipelineFile(arg) {
		if f.name != "" || len(f.sourceOpt) > 0 {
			return nil, usagef("--name and --source-opt are for SRC: the pipeline file has its own")
		}
		p, err := s.load(arg)
		if err == nil && !follows(p) {
			return nil, &usageError{
				err:  fmt.Errorf("pipeline %s follows nothing: its source keeps nothing for it", p.Name),
				hint: "leat state reset " + p.Name + " forgets how far it got",
			}
		}
		return p, err
	}
	e, cfg, err := s.source(arg, f.sourceOpt)
	if err != nil {
		return nil, err
	}
	if !hasOption(cfg, followOption) {
		return nil, usagef("%s can't be followed: it keeps nothing for a pipeline", e.def.Title)
	}
	if err := connector.SetOption(cfg, followOption, true); err != nil {
		return nil, &usageError{err: fmt.Errorf("source: %w", err)}
	}
	if _, err := cfg.Contract(); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	p := &config.Pipeline{Name: f.name, Source: config.Source{Connector: e.def.Name, Config: cfg}}
	if p.Name != "" {
		return p, state.ValidateName(p.Name)
	}
	p.Name, err = onlyPipeline(ctx, store, "sync-"+e.label()+"-")
	return p, err
}

// isPipelineFile reports whether an argument is a pipeline file, and nothing else that has a place.
func (s *session) isPipelineFile(arg string) bool {
	lower := strings.ToLower(arg)
	if strings.HasSuffix(lower, ".yaml") || strings.HasSuffix(lower, ".yml") {
		return true
	}
	if _, err := s.Registry.Resolve(arg); err == nil {
		return false
	}
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular()
}

// onlyPipeline finds the one pipeline whose name begins so.
func onlyPipeline(ctx context.Context, store state.Store, prefix string) (string, error) {
	records, err := store.List(ctx)
	if err != nil {
		return "", err
	}
	var names []string
	for _, r := range records {
		if strings.HasPrefix(r.Pipeline, prefix) {
			names = append(names, r.Pipeline)
		}
	}
	switch len(names) {
	case 0:
		return "", &usageError{
			err: errors.New("no pipeline of that source is known"), hint: "name it with --name; leat state list lists those that are known",
		}
	case 1:
		return names[0], nil
	}
	slices.Sort(names)
	return "", &usageError{
		err: fmt.Errorf("several pipelines of that source are known: %s", strings.Join(names, ", ")), hint: "add --name and one of them",
	}
}

// drop shows what there is, asks, and removes it: on the server first, so that a failure in between can be mended by typing it again.
func (s *session) drop(ctx context.Context, store state.Store, p *config.Pipeline, f dropFlags) (err error) {
	log, err := s.logger(s.Stderr)
	if err != nil {
		return err
	}
	_, _, err = store.Load(ctx, p.Name)
	saved := err == nil
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	ctx, l, err := s.open(ctx, p.Name, p.Source.Config, log)
	if err != nil {
		return err
	}
	defer func() { err = join(err, l.close(ctx)) }()
	d, ok := connector.As[connector.Dropper](l.src)
	if !ok {
		return usagef("%s keeps nothing for a pipeline", p.Source.Connector)
	}
	there, err := d.Describe(ctx)
	if err != nil {
		return err
	}
	forget := saved && !f.keepState
	if len(there) == 0 && !forget {
		if f.name != "" && !saved {
			if _, _, err := loadRecord(ctx, store, p.Name); err != nil {
				return fmt.Errorf("the source keeps nothing for it, and %w", err)
			}
		}
		return s.print("nothing is kept for pipeline %s\n", p.Name)
	}
	lanes, err := s.keptLanes(ctx, p, log, forget)
	if err != nil {
		return err
	}
	if err := s.printDrop(p.Name, there, lanes != nil, forget); err != nil {
		return err
	}
	if err := s.confirm(f.yes, "drop pipeline "+p.Name); err != nil {
		return err
	}
	if len(there) > 0 {
		if err := d.Drop(ctx); err != nil {
			return err
		}
	}
	if lanes != nil {
		if err := jetstream.Remove(ctx, *lanes, p.Name); err != nil {
			return fmt.Errorf("removing the lanes of pipeline %s, whose part of the source is gone: %w", p.Name, err)
		}
	}
	if forget {
		if err := store.Delete(ctx, p.Name); err != nil {
			return fmt.Errorf("forgetting pipeline %s, whose part of the source is gone: %w", p.Name, err)
		}
	}
	return s.print("dropped\n")
}

// keptLanes returns where durable lanes of the pipeline are that go with what is saved about it; nil: there are none.
func (s *session) keptLanes(ctx context.Context, p *config.Pipeline, log *slog.Logger, forget bool) (*jetstream.Config, error) {
	if !forget {
		return nil, nil
	}
	c, err := s.laneStore(p, log)
	if err != nil {
		return nil, err
	}
	err = jetstream.List(ctx, c, p.Name, func(*lane.Inspection) error { return nil })
	if known, ok := errors.AsType[*connector.Error](err); ok && known.Code == "lanes.none" {
		return nil, nil
	} else if ok && known.Code == "lanes.locked" {
		return nil, err
	}
	return &c, nil // also where they are damaged
}

// printDrop says what goes.
func (s *session) printDrop(name string, there []string, lanes, forget bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "pipeline %s\n", name)
	for _, line := range there {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	if lanes {
		b.WriteString("  its durable lanes, and what still waits in them\n")
	}
	if forget {
		b.WriteString("  how far it got, saved here\n")
	}
	return s.print("%s", s.redact.text(b.String()))
}
