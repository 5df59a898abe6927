package kafka_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/record"
)

// orders is a model of a table whose changes are sent, a row and a version for each key.
type orders map[int]int

// change makes a random change of the table, and says how a stream tells of it.
func (o orders) change(r *rand.Rand, version int) connectortest.Change {
	doc := func(id, v int) []string { return []string{strconv.Itoa(id), fmt.Sprintf(`"v%d"`, v)} }
	keys := slices.Sorted(maps.Keys(o))
	id := r.IntN(40)
	was, there := o[id]
	switch {
	case !there:
		o[id] = version
		return connectortest.Change{Op: record.Insert, Row: doc(id, version)}
	case r.IntN(4) == 0:
		delete(o, id)
		return connectortest.Change{Op: record.Delete, Row: doc(id, was)}
	case r.IntN(3) == 0:
		to := 100 + r.IntN(1_000_000)
		if slices.Contains(keys, to) {
			to += 2_000_000
		}
		delete(o, id)
		o[to] = version
		return connectortest.Change{Op: record.Update, Row: doc(to, version), Old: doc(id, was)}
	default:
		o[id] = version
		return connectortest.Change{Op: record.Update, Row: doc(id, version), Old: doc(id, was)}
	}
}

// clauses E5, E12, cases C066, C098: random changes, keys that move included, through owners that are killed at random and replaced: what
// each key has at last is what the table has, behind every commit.
func TestRandomChanges(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 5))
		prefix := kafkatest.Prefix(t)
		cfg := sinkConfig(t, prefix, "timeout", "10s")
		s := keyedSchema("orders")
		committed, n, version := orders{}, 0, 0
		for fence := range uint64(4) {
			w := startSink(t, cfg, sinkStart(fence+1, connector.Upsert))
			p, found, err := w.store.Committed(t.Context())
			if err != nil || found != (n > 0) || (found && p.Epoch != uint64(n)) {
				t.Fatalf("seed %d: the position is %+v, %v, %v: want %d", seed, p, found, err, n)
			}
			now := maps.Clone(committed)
			for range 1 + r.IntN(4) {
				for range 1 + r.IntN(3) {
					changes := make([]connectortest.Change, 1+r.IntN(30))
					for i := range changes {
						version++
						changes[i] = now.change(r, version)
					}
					w.write(connectortest.Changes(s, changes...))
				}
				if r.IntN(3) > 0 {
					n++
					w.commit(n)
					committed = maps.Clone(now)
				}
			}
			if r.IntN(2) == 0 { // else it hangs, with a transaction open, until the next one comes
				if err := w.snk.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		startSink(t, cfg, sinkStart(9, connector.Upsert)) // what the last one left open is rolled back
		var want []string
		for id, v := range committed {
			want = append(want, fmt.Sprintf(`{"id":%d,"v":"v%d"}`, id, v))
		}
		if n == 0 {
			continue
		}
		got, _ := table(t, topicOf(t, cfg, "orders"), s)
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("seed %d: the rows are\n%q\nwant\n%q", seed, got, want)
		}
	}
}
