package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/state"
)

// pauseFlags say what is paused, or goes on.
type pauseFlags struct {
	sinks    []string
	datasets []string
	all      bool // of resume
}

func (s *session) pauseCommand() *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "pause FILE | NAME",
		Short: "Pause a pipeline, some of its sinks, or some of its datasets",
		Long: `Pauses a pipeline until leat resume: a process that runs it does so within a second, and keeps its connections; one that is
started later starts paused. Nothing is lost, and no position moves past what is durable.

  without flags   nothing more is read; what was read is delivered. The source keeps its log meanwhile
  --sink          the sink gets nothing more. Where the lanes are durable its changes wait on disk, and nobody else waits; where
                  they are in memory, the other sinks are held, too, once its lane is full
  --dataset       the dataset's changes are let go, for all sinks, and the others go on; when it is resumed it is copied once
                  more, while its changes are followed

leat status shows what is paused. leat state list lists the names.`,
		Example: `  leat pause shop.yaml
  leat pause shop.yaml --sink lake
  leat pause sync-shop-replica-0a1b2c3d4e --dataset public.events`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.reorder(cmd.Context(), args[0], f, pause)
		},
	}
	cmd.Flags().StringArrayVar(&f.sinks, "sink", nil, "pause only this sink; may be repeated")
	cmd.Flags().StringArrayVar(&f.datasets, "dataset", nil, "pause only this dataset, for all sinks; may be repeated")
	return cmd
}

func (s *session) resumeCommand() *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "resume FILE | NAME",
		Short: "Let go on what was paused",
		Long: `Ends a pause. Without flags it ends that of the pipeline; sinks and datasets that were paused by name stay so, and are named.
A process that runs the pipeline goes on within a second. A dataset that was paused is copied once more, while its changes
are followed.`,
		Example: `  leat resume shop.yaml
  leat resume shop.yaml --sink lake
  leat resume shop.yaml --all`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.all && len(f.sinks)+len(f.datasets) > 0 {
				return usagef("--all ends every pause: leave --sink and --dataset out")
			}
			return s.reorder(cmd.Context(), args[0], f, resume)
		},
	}
	cmd.Flags().StringArrayVar(&f.sinks, "sink", nil, "let this sink go on; may be repeated")
	cmd.Flags().StringArrayVar(&f.datasets, "dataset", nil, "let this dataset go on; may be repeated")
	cmd.Flags().BoolVar(&f.all, "all", false, "end every pause: of the pipeline, of sinks and of datasets")
	return cmd
}

// pauseChange changes pauses, and says what that does.
type pauseChange func(t target, f pauseFlags, o *state.Orders) string

// reorder changes the pauses of the pipeline that a person named.
func (s *session) reorder(ctx context.Context, arg string, f pauseFlags, change pauseChange) error {
	return s.withStore(ctx, func(ctx context.Context, store state.Store) error {
		t, err := s.target(ctx, store, arg)
		if err != nil {
			return err
		}
		// What was paused is a name to resume, even if the pipeline has it no more.
		if f.sinks, err = chosen("sink", f.sinks, alsoPaused(t.sinks(), t.order.Sinks)); err != nil {
			return err
		}
		if f.datasets, err = chosen("dataset", f.datasets, alsoPaused(t.datasets(), t.order.Datasets)); err != nil {
			return err
		}
		if len(f.datasets) > 0 {
			if err := t.mustFollow("--dataset"); err != nil {
				return err
			}
		}
		text := ""
		_, err = state.UpdateOrders(ctx, store, t.p.Name, func(o *state.Orders) error {
			text = change(t, f, o)
			return nil
		})
		if err != nil {
			return err
		}
		return s.print("%s", s.redact.text(text))
	})
}

// alsoPaused adds the paused names to those that are known; none are known where the pipeline never ran.
func alsoPaused(known, paused []string) []string {
	if len(known) == 0 {
		return nil
	}
	return with(known, paused)
}

// pause adds pauses to the orders, and says what they do.
func pause(t target, f pauseFlags, o *state.Orders) string {
	var b strings.Builder
	news := false
	if len(f.sinks)+len(f.datasets) == 0 {
		if o.Paused {
			fmt.Fprintf(&b, "pipeline %s is paused already\n", t.p.Name)
		} else {
			news = true
			fmt.Fprintf(&b, "pipeline %s is paused: nothing more is read, and what was read is delivered\n", t.p.Name)
		}
		o.Paused = true
	}
	for _, n := range f.sinks {
		if held := with(o.Sinks, []string{n}); len(held) > len(o.Sinks) {
			news, o.Sinks = true, held
			fmt.Fprintf(&b, "sink %s is paused: it gets nothing more\n%s", n, waiting(t, n))
		} else {
			fmt.Fprintf(&b, "sink %s is paused already\n", n)
		}
	}
	for _, n := range f.datasets {
		if held := with(o.Datasets, []string{n}); len(held) > len(o.Datasets) {
			news, o.Datasets = true, held
			fmt.Fprintf(&b, "dataset %s is paused: its changes are let go, and it is copied once more when it is resumed\n", n)
		} else {
			fmt.Fprintf(&b, "dataset %s is paused already\n", n)
		}
	}
	if news {
		b.WriteString("a process that runs it does so within a second; one that is started later starts paused\n")
		fmt.Fprintf(&b, "leat resume %s%s%s ends it\n", t.p.Name, flagsOf("sink", f.sinks), flagsOf("dataset", f.datasets))
	}
	return b.String()
}

// waiting says what a paused sink means for the others.
func waiting(t target, sink string) string {
	others := without(t.sinks(), []string{sink})
	wait := " wait"
	if len(others) == 1 {
		wait = " waits"
	}
	switch kind := t.laneKind(); {
	case kind == config.LanesDurable:
		return "  its changes wait on disk, and nobody else waits\n"
	case len(others) == 0:
		return "  its changes wait in the source, which keeps its log for them\n"
	case kind == config.LanesMemory:
		return "  its changes wait in memory: once its lane is full, " + nouns("sink", others) + wait + ", too\n"
	}
	return "  where its lane is in memory, " + nouns("sink", others) + wait +
		", too, once that is full; where it is durable, nobody else waits\n"
}

// resume takes pauses out of the orders, and says what goes on.
func resume(t target, f pauseFlags, o *state.Orders) string {
	var b strings.Builder
	news := false
	if f.all {
		f.sinks, f.datasets = o.Sinks, o.Datasets
	}
	switch whole := f.all || len(f.sinks)+len(f.datasets) == 0; {
	case whole && o.Paused:
		news, o.Paused = true, false
		fmt.Fprintf(&b, "pipeline %s goes on\n", t.p.Name)
	case whole && (!f.all || len(f.sinks)+len(f.datasets) == 0):
		fmt.Fprintf(&b, "pipeline %s is not paused\n", t.p.Name)
	}
	for _, n := range f.sinks {
		if left := without(o.Sinks, []string{n}); len(left) < len(o.Sinks) {
			news, o.Sinks = true, left
			fmt.Fprintf(&b, "sink %s goes on with what waits for it\n", n)
		} else {
			fmt.Fprintf(&b, "sink %s is not paused\n", n)
		}
	}
	for _, n := range f.datasets {
		if left := without(o.Datasets, []string{n}); len(left) < len(o.Datasets) {
			news, o.Datasets = true, left
			fmt.Fprintf(&b, "dataset %s goes on: it is copied once more, while its changes are followed\n", n)
		} else {
			fmt.Fprintf(&b, "dataset %s is not paused\n", n)
		}
	}
	if news {
		b.WriteString("a process that runs it does so within a second, else the next one that is started\n")
	}
	if left := pauses(*o); left != "" {
		fmt.Fprintf(&b, "still paused: %s (leat resume %s --all ends every pause)\n", left, t.p.Name)
	}
	return b.String()
}
