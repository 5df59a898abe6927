package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/deadletter"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/transform"
)

const (
	maxKeys      = 1000   // of one order
	maxAskedRows = 10_000 // of one replay: more are copied faster as a dataset
)

// askFor is one order: rows of one dataset for one sink, or for all.
type askFor struct {
	sink    string // empty: all
	dataset string // as the source calls it
}

// asked is what is asked for, and the letters that it is asked for.
type asked struct {
	keys    []json.RawMessage
	known   map[string]bool
	letters []int64
}

// ask orders the rows of letters to be read again, by their keys.
func (r replayer) ask(ctx context.Context, p *config.Pipeline, plan engine.Plan, filter deadletter.Filter) error {
	orders := map[askFor]*asked{}
	lost := map[string]int64{} // letters whose rows can't be told, by dataset
	err := r.s.look(ctx, plan.Source.Config, func(ctx context.Context, _ *looker, found []connector.Dataset) error {
		return r.letters.Each(ctx, filter, func(l deadletter.Letter) error {
			if l.Asked > 0 {
				return nil
			}
			source, keys := keysOf(l, plan, found)
			if len(keys) == 0 {
				lost[l.Dataset]++
				return nil
			}
			to := askFor{sink: l.Sink, dataset: source}
			if orders[to] == nil {
				orders[to] = &asked{known: map[string]bool{}}
			}
			return orders[to].add(l.Number, keys)
		})
	})
	if err != nil {
		return err
	}
	n := int64(0)
	for _, a := range orders {
		n += int64(len(a.letters))
	}
	for _, dataset := range slices.Sorted(maps.Keys(lost)) {
		r.s.say(fmt.Sprintf("leat: %s of %s can't be found again by a key: leat backfill %s --dataset %s copies all of it once more\n",
			plural(lost[dataset], "row"), dataset, p.Name, dataset))
	}
	if n == 0 {
		return r.s.print("no row is to be read again\n")
	}
	if err := r.s.confirm(r.f.yes, fmt.Sprintf("read %s of pipeline %s again", plural(n, "row"), p.Name)); err != nil {
		return err
	}
	for to, a := range orders {
		if err := r.order(ctx, p.Name, to, a); err != nil {
			return err
		}
	}
	err = r.s.print("asked: %s to be read again by the process that runs %s, or by the next one\n", plural(n, "row"), p.Name)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		return outcomeError{ExitSetAside}
	}
	return nil
}

func (a *asked) add(letter int64, keys []json.RawMessage) error {
	for _, k := range keys {
		if !a.known[string(k)] {
			a.known[string(k)] = true
			a.keys = append(a.keys, k)
		}
	}
	a.letters = append(a.letters, letter)
	if len(a.keys) > maxAskedRows {
		return &usageError{
			err:  fmt.Errorf("more than %d rows would be read again one by one", maxAskedRows),
			hint: "leat backfill copies a dataset once more, and leat dlq drop forgets its letters; or choose some with --dataset or --id",
		}
	}
	return nil
}

// order saves what is asked for, and which letters wait for it. A letter is marked after the order is saved: a crash in between asks
// twice, and loses nothing.
func (r replayer) order(ctx context.Context, pipeline string, to askFor, a *asked) error {
	var last uint64
	_, err := state.UpdateOrders(ctx, r.states, pipeline, func(o *state.Orders) error {
		for keys := range slices.Chunk(a.keys, maxKeys) {
			o.Last++
			b := state.Backfill{ID: o.Last, Datasets: []string{to.dataset}, Keys: keys, Asked: r.s.Now().UTC()}
			if to.sink != "" {
				b.Sinks = []string{to.sink}
			}
			o.Backfills = append(o.Backfills, b)
		}
		last = o.Last
		return nil
	})
	if err != nil {
		return fmt.Errorf("asking for rows of %s: %w", to.dataset, err)
	}
	return r.letters.Ask(ctx, a.letters, last) // orders are carried out in their order: the last one is done when all are
}

// keysOf finds the dataset of the source that a letter's row is of, and the keys of the row there: two where it has moved. None: the
// row has no key, or a transform has changed it.
func keysOf(l deadletter.Letter, plan engine.Plan, found []connector.Dataset) (string, []json.RawMessage) {
	own := []transform.Step{}
	for _, sink := range plan.Sinks {
		if sink.Name == l.Sink {
			own = sink.Transforms
		}
	}
	for _, d := range found {
		if d.Schema == nil || !becomes(d.Schema, l.Dataset, plan.Source.Transforms, own) {
			continue
		}
		names := d.Schema.KeyNames()
		if len(names) == 0 {
			return d.Name, nil
		}
		if l.Schema == nil {
			if hasExactly(l.Key, names) {
				return d.Name, []json.RawMessage{l.Key}
			}
			return d.Name, nil
		}
		columns := keyColumns(d.Schema, l.Schema)
		if columns == nil {
			return d.Name, nil
		}
		keys := []json.RawMessage{keyFrom(l.Raw, names, columns)}
		if before := keyFrom(l.Before, names, columns); before != nil && !bytes.Equal(before, keys[0]) {
			keys = append(keys, before)
		}
		return d.Name, slices.DeleteFunc(keys, func(k json.RawMessage) bool { return k == nil })
	}
	return l.Dataset, nil
}

// becomes reports whether a dataset of the source is called so at any point on its way.
func becomes(s *record.Schema, name string, lists ...[]transform.Step) bool {
	if s.Dataset == name {
		return true
	}
	for _, steps := range lists {
		for _, step := range steps {
			var err error
			if s, err = step.Schema(s); err != nil || s == nil {
				return false
			}
			if s.Dataset == name {
				return true
			}
		}
	}
	return false
}

// keyColumns are the columns of a letter that are the key of the source: with the same identity where the source gives columns one, else
// with the same name; nil: one of them is not there as it was.
func keyColumns(source, letter *record.Schema) []string {
	var out []string
	for _, k := range source.Key {
		want := source.Columns.Field(k)
		i := slices.IndexFunc(letter.Columns.Fields(), func(f arrow.Field) bool {
			if id := record.IDOf(want); id != "" && record.IDOf(f) != "" {
				return record.IDOf(f) == id
			}
			return f.Name == want.Name
		})
		if i < 0 || !arrow.TypeEqual(letter.Columns.Field(i).Type, want.Type) {
			return nil
		}
		out = append(out, letter.Columns.Field(i).Name)
	}
	return out
}

// keyFrom makes a key of the source of a row; nil: a part of it is missing.
func keyFrom(row []byte, names, columns []string) json.RawMessage {
	var values map[string]json.RawMessage
	if json.Unmarshal(row, &values) != nil {
		return nil
	}
	out := []byte{'{'}
	for i, c := range columns {
		v := values[c]
		if len(v) == 0 || string(v) == "null" {
			return nil
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(record.AppendJSONString(out, names[i]), ':'), v...)
	}
	return append(out, '}')
}

// hasExactly reports whether a JSON object has these members and no others.
func hasExactly(doc json.RawMessage, names []string) bool {
	var values map[string]json.RawMessage
	if len(doc) == 0 || json.Unmarshal(doc, &values) != nil || len(values) != len(names) {
		return false
	}
	for _, n := range names {
		if _, ok := values[n]; !ok {
			return false
		}
	}
	return true
}
