package statetest

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/leatdata/leat/state"
)

// SampleOrders are orders with a value in every field.
func SampleOrders() state.Orders {
	asked := time.Date(2025, 3, 30, 1, 2, 3, 456789, time.UTC)
	return state.Orders{
		Paused:   true,
		Sinks:    []string{"lake", "replica"},
		Datasets: []string{`odd "name" <é>`, "public.orders"},
		Backfills: []state.Backfill{
			{ID: 3, Asked: asked},
			{
				ID: 4, Sinks: []string{"lake"}, Datasets: []string{"public.orders"}, Asked: asked,
				Where: `total > 10 and name <> 'a "b" & c'`,
			},
			{
				ID: 1<<64 - 1, Datasets: []string{"public.lines"}, Asked: asked,
				Keys: []json.RawMessage{[]byte(`{ "id": 18446744073709551615, "<": 1.10 }`), []byte(`{}`)},
			},
		},
		Failed: []state.Failure{{ID: 2, Why: `none of its sinks "a" can be filled`}, {ID: 1, Why: "it was cancelled"}},
		Last:   1<<64 - 1,
	}
}

func order(t *testing.T, s state.Store, o state.Orders, prev state.Version) state.Version {
	t.Helper()
	v, err := s.SaveOrders(t.Context(), "orders", o, prev)
	if err != nil {
		t.Fatalf("saving orders: %v", err)
	}
	return v
}

// ExpectOrders fails the test unless the store holds these orders of the pipeline in this version.
func ExpectOrders(t *testing.T, s state.Store, pipeline string, want state.Orders, version state.Version) {
	t.Helper()
	got, v, err := s.Orders(t.Context(), pipeline)
	if err != nil {
		t.Fatalf("the orders of %s: %v", pipeline, err)
	}
	if v != version {
		t.Errorf("orders of version %d, want %d", v, version)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("orders (-want +got)\n%s", diff)
	}
}

// ordersRoundTrip: they need no record, and are there for the next process.
func ordersRoundTrip(t *testing.T, open Open) {
	t.Helper()
	s := use(t, open)
	ExpectOrders(t, s, "orders", state.Orders{}, 0)
	want := SampleOrders()
	v := order(t, s, want, 0)
	ExpectOrders(t, s, "orders", want, v)
	ExpectOrders(t, use(t, open), "orders", want, v)
	ExpectOrders(t, s, "Orders", state.Orders{}, 0)
	ExpectOrders(t, s, "orders-2", state.Orders{}, 0)
	if list, err := s.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("orders without a record are listed: %d records, %v", len(list), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := use(t, open)
	ExpectOrders(t, again, "orders", want, v)
	done := state.Orders{Last: want.Last} // ids are not used again, though nothing is wanted any more
	ExpectOrders(t, again, "orders", done, order(t, again, done, v))
	for _, n := range []string{"", "a/b", ".."} {
		if _, _, err := s.Orders(t.Context(), n); err == nil {
			t.Errorf("the orders of %q were read", n)
		}
	}
}

func ordersCompareAndSet(t *testing.T, open Open) {
	t.Helper()
	s := use(t, open)
	want := SampleOrders()
	if _, err := s.SaveOrders(t.Context(), "orders", want, 5); !errors.Is(err, state.ErrConflict) {
		t.Errorf("replacing what is not there: %v", err)
	}
	v := order(t, s, want, 0)
	for _, prev := range []state.Version{0, v - 1, v + 1} {
		if _, err := s.SaveOrders(t.Context(), "orders", state.Orders{}, prev); !errors.Is(err, state.ErrConflict) {
			t.Errorf("saving over version %d with %d: %v", v, prev, err)
		}
	}
	for name, bad := range map[string]func(*state.Orders){
		"unsorted sinks":           func(o *state.Orders) { slices.Reverse(o.Sinks) },
		"a dataset twice":          func(o *state.Orders) { o.Datasets = []string{"a", "a"} },
		"an empty name":            func(o *state.Orders) { o.Sinks = []string{""} },
		"no UTF-8":                 func(o *state.Orders) { o.Sinks = []string{"\xff"} },
		"id 0":                     func(o *state.Orders) { o.Backfills[0].ID = 0 },
		"an id twice":              func(o *state.Orders) { o.Backfills[0].ID = o.Backfills[1].ID },
		"an id of the past":        func(o *state.Orders) { o.Last = 3 },
		"where without dataset":    func(o *state.Orders) { o.Backfills[1].Datasets = nil },
		"keys that aren't objects": func(o *state.Orders) { o.Backfills[2].Keys[0] = json.RawMessage(`1`) },
		"a failure of the future":  func(o *state.Orders) { o.Failed, o.Backfills, o.Last = []state.Failure{{ID: 2}}, nil, 1 },
		"keys and where":           func(o *state.Orders) { o.Backfills[2].Where = "true" },
	} {
		b := SampleOrders()
		bad(&b)
		if _, err := s.SaveOrders(t.Context(), "orders", b, v); err == nil || errors.Is(err, state.ErrConflict) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := s.SaveOrders(t.Context(), "../orders", want, 0); err == nil || errors.Is(err, state.ErrConflict) {
		t.Errorf("a name that is none: %v", err)
	}
	ExpectOrders(t, s, "orders", want, v)
}

// ordersBesideTheRecord: each has its own versions; orders outlive Save and Reset, and go with Delete.
func ordersBesideTheRecord(t *testing.T, open Open) {
	t.Helper()
	s := use(t, open)
	want, r := SampleOrders(), Sample("orders")
	ordered := order(t, s, want, 0)
	saved := save(t, s, r, 0)
	saved = save(t, s, r.Reset(), saved)
	ExpectOrders(t, s, "orders", want, ordered)
	want.Paused = false
	ordered = order(t, s, want, ordered)
	Expect(t, s, r.Reset(), saved)
	if err := s.Delete(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	ExpectOrders(t, s, "orders", state.Orders{}, 0)
	if _, err := s.SaveOrders(t.Context(), "orders", want, ordered); !errors.Is(err, state.ErrConflict) {
		t.Errorf("changing orders that were deleted: %v", err)
	}
	if again := order(t, s, want, 0); again == ordered {
		t.Errorf("version %d is used again", again)
	}
	if _, _, err := s.Load(t.Context(), "orders"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("loading a record that was deleted: %v", err)
	}
	if err := s.Delete(t.Context(), "orders"); err != nil {
		t.Errorf("deleting orders alone: %v", err)
	}
	if err := s.Delete(t.Context(), "orders"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("deleting twice: %v", err)
	}
}

// concurrentOrders lets several processes ask for backfills at once: none is lost, and no id is given twice.
func concurrentOrders(t *testing.T, open Open) {
	t.Helper()
	const processes, turns = 4, 10
	first := use(t, open)
	var wg sync.WaitGroup
	for range processes {
		s := use(t, open)
		wg.Go(func() {
			for range turns {
				_, err := state.UpdateOrders(t.Context(), s, "orders", func(o *state.Orders) error {
					o.Last++
					o.Backfills = append(o.Backfills, state.Backfill{ID: o.Last})
					return nil
				})
				if err != nil {
					t.Errorf("ordering: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	o, version, err := first.Orders(t.Context(), "orders")
	if err != nil || len(o.Backfills) != processes*turns || o.Last != processes*turns {
		t.Errorf("%d backfills, the last is %d, error %v, want %d", len(o.Backfills), o.Last, err, processes*turns)
	}
	same, err := state.UpdateOrders(t.Context(), first, "orders", func(*state.Orders) error { return nil })
	if err != nil || len(same.Backfills) != len(o.Backfills) {
		t.Errorf("changing nothing: %d backfills, error %v", len(same.Backfills), err)
	}
	ExpectOrders(t, first, "orders", o, version) // nothing was saved for nothing
}
