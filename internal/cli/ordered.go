package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/state"
)

// target is the pipeline that somebody has an order for, and what is known of it.
type target struct {
	p     *config.Pipeline // of a file all of it, else its name alone
	file  bool
	ran   bool         // something is saved about it
	rec   state.Record // what is saved
	order state.Orders
}

// target finds the pipeline that an argument names. One that was never run is known only by its file.
func (s *session) target(ctx context.Context, store state.Store, arg string) (t target, err error) {
	if t.p, err = s.named(arg, "", nil); err != nil {
		return t, err
	}
	t.file = t.p.Source.Config != nil
	if t.order, _, err = store.Orders(ctx, t.p.Name); err != nil {
		return t, err
	}
	t.rec, _, err = store.Load(ctx, t.p.Name)
	t.ran = err == nil
	if errors.Is(err, state.ErrNotFound) {
		if t.file || !t.order.Empty() {
			return t, nil
		}
		_, _, err = loadRecord(ctx, store, t.p.Name)
	}
	return t, err
}

// sinks are the names of the sinks that the pipeline has, sorted; nil: not known.
func (t target) sinks() []string {
	known := map[string]bool{}
	for _, sink := range t.p.Sinks {
		known[sink.Name] = true
	}
	if !t.file {
		for name := range t.rec.Lanes {
			known[name] = true
		}
		for _, name := range identified(t.rec.Identity, "sink ", " mode") {
			known[name] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// datasets are the names of those that the last run had, sorted; nil: not known.
func (t target) datasets() []string {
	known := map[string]bool{}
	for _, name := range identified(t.rec.Identity, "dataset ", " key") {
		known[name] = true
	}
	if phases, err := savedPhases(t.rec.Progress.Ledger); err == nil {
		for _, d := range phases {
			known[d.Dataset] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// identified returns what stands between prefix and suffix in the names of an identity.
func identified(identity map[string]string, prefix, suffix string) []string {
	var names []string
	for k := range identity {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			if name, ok := strings.CutSuffix(rest, suffix); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

// copies reports whether it is known that the pipeline follows no changes of tables: it reads its source to an end, or what is added to it.
func (t target) copies() bool {
	if t.file {
		c, err := t.p.Source.Config.Contract()
		return err == nil && (c.Bounded || c.Input != connector.Changelog)
	}
	followed, err := engine.Backfills(t.rec.Progress.Ledger)
	return err == nil && t.rec.Progress.Run != "" && len(followed) == 0
}

// mustFollow refuses what only makes sense where changes are followed.
func (t target) mustFollow(what string) error {
	if !t.copies() {
		return nil
	}
	return &usageError{
		err:  fmt.Errorf("%s: pipeline %s follows no changes of tables", what, t.p.Name),
		hint: "leat state reset " + t.p.Name + " makes its next run copy everything again",
	}
}

// laneKind is where the lanes of the pipeline are, as far as it is known: memory or durable; empty: not known.
func (t target) laneKind() string {
	switch {
	case t.rec.Stream != "":
		return config.LanesDurable
	case t.rec.Progress.Run != "":
		return config.LanesMemory
	case !t.file:
		return ""
	case t.p.Lanes.Kind == config.LanesMemory, t.p.Lanes.Kind == config.LanesDurable:
		return t.p.Lanes.Kind
	case follows(t.p) && len(t.p.Sinks) > 1:
		return config.LanesDurable
	}
	return config.LanesMemory
}

// chosen checks names that were typed against those that are known, and returns them sorted, each once. Where none is known all are taken.
func chosen(what string, names, known []string) ([]string, error) {
	for _, n := range names {
		if n == "" {
			return nil, usagef("--%s: the name is empty", what)
		}
		if len(known) > 0 && !slices.Contains(known, n) {
			return nil, &usageError{err: connector.UnknownName(what, n, known)}
		}
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// with adds names to a sorted list.
func with(list, names []string) []string {
	out := slices.Concat(list, names)
	slices.Sort(out)
	return slices.Compact(out)
}

// without takes names out of a list.
func without(list, names []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(n string) bool { return slices.Contains(names, n) })
}

// pauses says what is paused, in words; empty: nothing.
func pauses(o state.Orders) string {
	var parts []string
	if o.Paused {
		parts = append(parts, "the pipeline")
	}
	if text := nouns("sink", o.Sinks); text != "" {
		parts = append(parts, text)
	}
	if text := nouns("dataset", o.Datasets); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// nouns writes names with their noun: sink a; sinks a, b. Of no names it is empty.
func nouns(noun string, names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return noun + " " + names[0]
	}
	return noun + "s " + strings.Join(names, ", ")
}

// names repeats a flag for each name, as a person types it.
func flagsOf(flag string, names []string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, " --%s %s", flag, shellWord(n))
	}
	return b.String()
}
