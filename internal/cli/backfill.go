package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/state"
)

// backfillFlags say what is copied once more, or what happens to such a request.
type backfillFlags struct {
	sinks    []string
	datasets []string
	where    string
	wait     bool
	list     bool
	json     bool
	cancel   uint64
	cancels  bool // --cancel was given
}

func (s *session) backfillCommand() *cobra.Command {
	var f backfillFlags
	cmd := &cobra.Command{
		Use:   "backfill FILE | NAME",
		Short: "Copy datasets of a followed source once more",
		Long: `Asks for datasets to be copied once more while their changes are followed: all or some of them, into all or some of the
sinks. What a sink holds of such a dataset is replaced by what the source has. With --where only rows for which it holds
are copied, and all others stay as they are.

A process that runs the pipeline begins within a second; where none runs it, the next one carries it out. The request is kept
until it is complete, also over crashes. The same request is kept once. leat backfill NAME --list shows what is asked for,
and --cancel takes a request back.`,
		Example: `  leat backfill shop.yaml --dataset public.orders
  leat backfill shop.yaml --sink lake --wait
  leat backfill shop.yaml --dataset public.orders --where "created > '2025-01-01'"
  leat backfill shop.yaml --list
  leat backfill shop.yaml --cancel 3`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.cancels = cmd.Flags().Changed("cancel")
			if err := f.check(); err != nil {
				return err
			}
			return s.withStore(cmd.Context(), func(ctx context.Context, store state.Store) error {
				t, err := s.target(ctx, store, args[0])
				if err != nil {
					return err
				}
				return s.backfill(ctx, store, t, f)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.sinks, "sink", nil, "only into this sink; may be repeated")
	fs.StringArrayVar(&f.datasets, "dataset", nil, "only this dataset; may be repeated")
	fs.StringVar(&f.where, "where", "", "only rows for which this holds, in the source's language; needs one --dataset")
	fs.BoolVar(&f.wait, "wait", false, "show how it goes until it is complete; ^C ends the waiting, not the backfill")
	fs.BoolVar(&f.list, "list", false, "list what is asked for and not complete")
	fs.BoolVar(&f.json, "json", false, "with --list: print as JSON")
	fs.Uint64Var(&f.cancel, "cancel", 0, "ID: take a request back")
	return cmd
}

// check refuses flags that don't go together.
func (f *backfillFlags) check() error {
	asks := len(f.sinks) > 0 || len(f.datasets) > 0 || f.where != ""
	switch {
	case f.list && f.cancels:
		return usagef("--list and --cancel: want one of them")
	case (f.list || f.cancels) && (asks || f.wait):
		return usagef("--list and --cancel are about requests that there are: leave --sink, --dataset, --where and --wait out")
	case f.json && !f.list:
		return usagef("--json is for --list")
	case f.where != "" && len(f.datasets) != 1:
		return &usageError{
			err:  errors.New("--where: a condition belongs to one dataset"),
			hint: "name it with --dataset, and ask for others one by one",
		}
	}
	return nil
}

func (s *session) backfill(ctx context.Context, store state.Store, t target, f backfillFlags) error {
	switch {
	case f.list:
		return s.listBackfills(t, f.json)
	case f.cancels:
		return s.cancelBackfill(ctx, store, t, f.cancel)
	}
	b, err := request(t, f)
	if err != nil {
		return err
	}
	id, news, err := ask(ctx, store, t, b, s.clock()())
	if err != nil {
		return err
	}
	b.ID = id
	text := fmt.Sprintf("backfill %d: %s\n", id, described(b))
	if !news {
		text = fmt.Sprintf("backfill %d asks for that already: %s\n", id, described(b))
	}
	if !f.wait {
		text += fmt.Sprintf("a process that runs %s begins within a second, else the next one that is started\n", t.p.Name)
	}
	if err := s.print("%s", s.redact.text(text)); err != nil || !f.wait {
		return err
	}
	return s.waitFor(ctx, store, t, b)
}

// request makes a request of what was typed.
func request(t target, f backfillFlags) (b state.Backfill, err error) {
	if err := t.mustFollow("backfill"); err != nil {
		return b, err
	}
	if b.Sinks, err = chosen("sink", f.sinks, t.sinks()); err != nil {
		return b, err
	}
	if b.Datasets, err = chosen("dataset", f.datasets, t.datasets()); err != nil {
		return b, err
	}
	for _, d := range t.order.Datasets {
		if len(b.Datasets) == 0 || slices.Contains(b.Datasets, d) {
			return b, &usageError{
				err:  fmt.Errorf("dataset %s is paused: it is copied once more when it is resumed", d),
				hint: "leat resume " + t.p.Name + flagsOf("dataset", []string{d}),
			}
		}
	}
	if b.Where = strings.TrimSpace(f.where); b.Where == "" || !t.file {
		return b, nil
	}
	c, err := t.p.Source.Config.Contract()
	if err == nil && !c.Conditions {
		return b, usagef("--where: %s can't copy only some of the rows", t.p.Source.Connector)
	}
	return b, err
}

// ask puts a request on the list, unless the same is there already, and returns its id.
func ask(ctx context.Context, store state.OrderStore, t target, b state.Backfill, now time.Time) (id uint64, news bool, err error) {
	_, err = state.UpdateOrders(ctx, store, t.p.Name, func(o *state.Orders) error {
		for _, open := range o.Backfills {
			same := slices.Equal(open.Sinks, b.Sinks) && slices.Equal(open.Datasets, b.Datasets)
			if same && open.Where == b.Where && len(open.Keys) == 0 {
				id, news = open.ID, false
				return nil
			}
		}
		o.Last++
		b.ID, b.Asked = o.Last, now.UTC()
		o.Backfills = append(o.Backfills, b)
		id, news = b.ID, true
		return nil
	})
	return id, news, err
}

// described says what a request asks for.
func described(b state.Backfill) string {
	what := orAll("dataset", b.Datasets)
	switch {
	case b.Where != "":
		what += " where " + b.Where
	case len(b.Keys) > 0:
		what += ", " + plural(int64(len(b.Keys)), "key")
	}
	verb := " is"
	if len(b.Datasets) != 1 {
		verb = " are"
	}
	return what + verb + " copied once more into " + orAll("sink", b.Sinks)
}

func orAll(noun string, names []string) string {
	if len(names) == 0 {
		return "all " + noun + "s"
	}
	return nouns(noun, names)
}

// listBackfills shows what is asked for.
func (s *session) listBackfills(t target, asJSON bool) error {
	if asJSON {
		list := t.order.Backfills
		if list == nil {
			list = []state.Backfill{}
		}
		return s.printJSON(list)
	}
	if len(t.order.Backfills) == 0 {
		return s.print("no backfill of %s is asked for\n", t.p.Name)
	}
	return s.print("%s\n", s.redact.text(backfillTable(t.order.Backfills)))
}

func backfillTable(list []state.Backfill) string {
	tab := newTable()
	tab.AppendHeader(table.Row{"id", "datasets", "sinks", "rows", "asked"})
	for _, b := range list {
		rows := "all"
		switch {
		case b.Where != "":
			rows = "where " + b.Where
		case len(b.Keys) > 0:
			rows = plural(int64(len(b.Keys)), "key")
		}
		tab.AppendRow(table.Row{
			b.ID, orAllNames(b.Datasets), orAllNames(b.Sinks), rows, b.Asked.Local().Format(time.DateTime),
		})
	}
	return tab.Render()
}

func orAllNames(names []string) string {
	if len(names) == 0 {
		return "all"
	}
	return strings.Join(names, ", ")
}

// cancelled is why a backfill that somebody took back was not run to its end.
const cancelled = "it was cancelled"

// cancelBackfill takes a request back.
func (s *session) cancelBackfill(ctx context.Context, store state.Store, t target, id uint64) error {
	open := func(b state.Backfill) bool { return b.ID == id }
	there := false
	o, err := state.UpdateOrders(ctx, store, t.p.Name, func(o *state.Orders) error {
		there = slices.ContainsFunc(o.Backfills, open)
		*o = o.Fail(id, cancelled)
		return nil
	})
	if err != nil {
		return err
	}
	if id == 0 || id > o.Last {
		return &usageError{
			err:  fmt.Errorf("--cancel %d: nobody asked for such a backfill of %s", id, t.p.Name),
			hint: "leat backfill " + t.p.Name + " --list shows what is asked for",
		}
	}
	if !there {
		return s.print("backfill %d is %s: there is nothing to cancel\n", id, ended(o, id))
	}
	return s.print("backfill %d is cancelled: where its copy has not begun it is not made; one that has begun goes on to its end\n", id)
}

// ended says how a backfill that is not on the list any more ended.
func ended(o state.Orders, id uint64) string {
	if why := failure(o, id); why != "" {
		return "off the list: " + why
	}
	return "complete"
}

// failure says why a backfill was not run to its end; empty: it was, or is not known any more.
func failure(o state.Orders, id uint64) string {
	for _, f := range o.Failed {
		if f.ID == id {
			return f.Why
		}
	}
	return ""
}

// How often somebody who waits for a backfill looks, and after how long it is said that nothing happens.
const (
	backfillPoll   = 500 * time.Millisecond
	backfillSilent = 10 * time.Second
)

// waitFor shows how a backfill goes until it is complete.
func (s *session) waitFor(ctx context.Context, store state.Store, t target, b state.Backfill) error {
	tick := time.NewTicker(backfillPoll)
	defer tick.Stop()
	w := backfillWatch{s: s, b: b, moved: s.clock()(), begun: map[[2]string]bool{}}
	for {
		o, _, err := store.Orders(ctx, t.p.Name)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(o.Backfills, func(open state.Backfill) bool { return open.ID == b.ID }) {
			if why := failure(o, b.ID); why != "" {
				return fmt.Errorf("backfill %d was not run to its end: %s", b.ID, why)
			}
			return s.print("backfill %d is complete\n", b.ID)
		}
		rec, version, err := store.Load(ctx, t.p.Name)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		if err := w.look(rec, version); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.say(fmt.Sprintf("leat: backfill %d stays asked for; leat backfill %s --list shows it\n", b.ID, t.p.Name))
			return ctx.Err()
		}
	}
}

// concerns reports whether a request is about a dataset for a sink.
func concerns(b state.Backfill, dataset, sink string) bool {
	return (len(b.Datasets) == 0 || slices.Contains(b.Datasets, dataset)) && (len(b.Sinks) == 0 || slices.Contains(b.Sinks, sink))
}

// backfillWatch says what is new about a backfill.
type backfillWatch struct {
	s       *session
	b       state.Backfill
	said    string
	version state.Version
	moved   time.Time          // when anything was saved
	silent  bool               // that nothing moves was said
	begun   map[[2]string]bool // datasets and sinks that were seen being copied
}

// look says how far the datasets are, where that is news. A dataset that failed since is an error: it is not copied any further.
func (w *backfillWatch) look(rec state.Record, version state.Version) error {
	now := w.s.clock()()
	if version != w.version {
		w.version, w.moved, w.silent = version, now, false
	}
	phases, err := savedPhases(rec.Progress.Ledger)
	if err != nil {
		return err
	}
	var parts []string
	for _, p := range phases {
		if !concerns(w.b, p.Dataset, p.Sink) {
			continue
		}
		part, err := w.phase(p)
		if err != nil {
			return err
		}
		if part != "" {
			parts = append(parts, part)
		}
	}
	if text := strings.Join(parts, "; "); text != w.said && text != "" {
		w.said = text
		w.say(text)
	}
	if !w.silent && now.Sub(w.moved) > backfillSilent {
		w.silent = true
		w.say("nothing is saved any more: is a process running the pipeline?")
	}
	return nil
}

// phase says how far one dataset is for one sink; empty: nothing is being done.
func (w *backfillWatch) phase(p statusDataset) (string, error) {
	at := [2]string{p.Dataset, p.Sink}
	switch p.Phase {
	case engine.Broken.String():
		if !w.begun[at] { // before this backfill, which mends it
			return "", nil
		}
		return "", &connector.Error{
			Class: connector.ClassPermanent, Code: "backfill.failed",
			Err:  fmt.Errorf("backfill %d: dataset %s failed for sink %s", w.b.ID, p.Dataset, p.Sink),
			Hint: "the log of the process that runs it says why",
		}
	case engine.Snapshotting.String():
		w.begun[at] = true
		return fmt.Sprintf("%s for %s: %s", p.Dataset, p.Sink, plural(p.Rows, "row")), nil
	case engine.Waiting.String():
		w.begun[at] = true
		return fmt.Sprintf("%s for %s: waiting", p.Dataset, p.Sink), nil
	}
	return "", nil
}

func (w *backfillWatch) say(text string) {
	if !w.s.quiet {
		w.s.say(fmt.Sprintf("leat: backfill %d: %s\n", w.b.ID, text))
	}
}
