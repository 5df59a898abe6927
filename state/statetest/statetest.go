// Package statetest is the contract of a checkpoint store as a test: every implementation of state.Store passes it.
package statetest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// Open opens the store at one place; it is called several times for the same place, also while earlier ones are open.
type Open func(t *testing.T) state.Store

// Run tests the stores that the function opens at a fresh place for each call of place.
func Run(t *testing.T, place func(t *testing.T) Open) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Open){
		"round trip":        roundTrip,
		"compare and set":   compareAndSet,
		"versions":          versionsAreNotReused,
		"list":              list,
		"names":             names,
		"two processes":     twoProcesses,
		"concurrent owners": concurrentOwners,
		"ended context":     endedContext,
		"closed":            closedStore,

		"orders":                       ordersRoundTrip,
		"orders, compare and set":      ordersCompareAndSet,
		"orders, beside the record":    ordersBesideTheRecord,
		"orders, concurrent processes": concurrentOrders,
	} {
		t.Run(name, func(t *testing.T) { test(t, place(t)) })
	}
}

// Sample is a record with a value in every field.
func Sample(pipeline string) state.Record {
	r := SampleOfFormat1(pipeline)
	r.Stream = "leat-orders-3f2a"
	r.Progress.Epoch, r.Progress.Item = 12, 1<<64-1
	r.Lanes = map[string]state.Lane{
		"lake": {
			Progress: r.Progress, State: state.LaneLive,
			Epoch: &state.Epoch{
				Number: 13, Decided: true, Progress: record.Progress{Run: "01JB2Z", Epoch: 13, Item: 7},
				Staged: json.RawMessage(`{ "files": ["a<b>.parquet"],	"bytes": 18446744073709551615 }`),
			},
		},
		`odd "name"`: {
			Progress: record.Progress{Run: "01JB2Z", Position: record.Position{Shape: 3, Data: json.RawMessage(`{ "lsn" : 1.0 }`)}},
			State:    state.LaneDown, Held: 1 << 40, Items: 77, Oldest: r.Updated.Add(-time.Hour), Error: "connecting: refused\n<again>",
			Epoch: &state.Epoch{Number: 1},
		},
		"replica": {},
	}
	return r
}

// SampleOfFormat1 is a record with a value in every field that format 1 had.
func SampleOfFormat1(pipeline string) state.Record {
	return state.Record{
		Pipeline: pipeline,
		Identity: map[string]string{"source": "postgres", "tables": `["public.orders"]`, "quote": `a "b" <c> é ` + "\n\u2028"},
		Attempt:  7,
		Origin:   record.Position{Shape: 2, Data: json.RawMessage(`{"lsn":"0/0"}`)},
		Progress: record.Progress{
			Run:      "01JB2Z",
			Position: record.Position{Shape: 3, Data: json.RawMessage(`{ "lsn": "16/B374D848", "n": 18446744073709551615, "<": 1.10 }`)},
			Ledger:   json.RawMessage(`[{"dataset":"public.orders","to":[12]}]`),
			Done:     true,
		},
		Rows: 1 << 60, Rejected: 3,
		Updated: time.Date(2025, 3, 30, 1, 2, 3, 456789, time.UTC),
	}
}

func use(t *testing.T, open Open) state.Store {
	t.Helper()
	s := open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

func save(t *testing.T, s state.Store, r state.Record, prev state.Version) state.Version {
	t.Helper()
	v, err := s.Save(t.Context(), r, prev)
	if err != nil {
		t.Fatalf("saving %s: %v", r.Pipeline, err)
	}
	return v
}

// Expect fails the test unless the store holds this record in this version.
func Expect(t *testing.T, s state.Store, want state.Record, version state.Version) {
	t.Helper()
	got, v, err := s.Load(t.Context(), want.Pipeline)
	if err != nil {
		t.Fatalf("loading %s: %v", want.Pipeline, err)
	}
	if v != version {
		t.Errorf("version %d, want %d", v, version)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got)\n%s", diff)
	}
}

func roundTrip(t *testing.T, open Open) {
	t.Helper()
	s := use(t, open)
	if _, _, err := s.Load(t.Context(), "orders"); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("loading what is not there: %v", err)
	}
	want := Sample("orders")
	v := save(t, s, want, 0)
	Expect(t, s, want, v)
	want.Progress, want.Origin = record.Progress{}, record.Position{}
	want.Lanes, want.Stream = nil, ""
	want.Attempt++
	v = save(t, s, want, v)
	Expect(t, s, want, v)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	Expect(t, use(t, open), want, v)
}

func compareAndSet(t *testing.T, open Open) {
	t.Helper()
	s := use(t, open)
	r := Sample("orders")
	if _, err := s.Save(t.Context(), r, 5); !errors.Is(err, state.ErrConflict) {
		t.Errorf("replacing what is not there: %v", err)
	}
	v := save(t, s, r, 0)
	loser := r
	loser.Rows = 1
	for _, prev := range []state.Version{0, v - 1, v + 1} {
		if _, err := s.Save(t.Context(), loser, prev); !errors.Is(err, state.ErrConflict) {
			t.Errorf("saving over version %d with %d: %v", v, prev, err)
		}
	}
	Expect(t, s, r, v)
	for name, bad := range map[string]func(*state.Record){
		"attempt 0":            func(r *state.Record) { r.Attempt = 0 },
		"position without run": func(r *state.Record) { r.Progress.Run = "" },
		"progress without run": func(r *state.Record) { r.Progress = record.Progress{Done: true} },
		"lane without name":    func(r *state.Record) { r.Lanes = map[string]state.Lane{"": {}} },
		"epoch 0":              func(r *state.Record) { r.Lanes = map[string]state.Lane{"a": {Epoch: &state.Epoch{}}} },
		"lane's position without run": func(r *state.Record) {
			r.Lanes = map[string]state.Lane{"a": {Progress: record.Progress{Position: r.Progress.Position}}}
		},
		"staged that isn't JSON": func(r *state.Record) {
			r.Lanes = map[string]state.Lane{"a": {Epoch: &state.Epoch{Number: 1, Staged: json.RawMessage(`{`)}}}
		},
		"position that isn't JSON": func(r *state.Record) { r.Progress.Position.Data = json.RawMessage(`{`) },
		"name":                     func(r *state.Record) { r.Pipeline = "../orders" },
	} {
		b := r
		bad(&b)
		if _, err := s.Save(t.Context(), b, v); err == nil || errors.Is(err, state.ErrConflict) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	Expect(t, s, r, v)
}

func versionsAreNotReused(t *testing.T, open Open) {
	t.Helper()
	s := use(t, open)
	r := Sample("orders")
	old := save(t, s, r, 0)
	if err := s.Delete(t.Context(), r.Pipeline); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), r.Pipeline); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("deleting twice: %v", err)
	}
	if _, err := s.Save(t.Context(), r, old); !errors.Is(err, state.ErrConflict) {
		t.Errorf("saving after deletion: %v", err)
	}
	v := save(t, s, r, 0)
	if v == old {
		t.Errorf("version %d is used again", v)
	}
	if _, err := s.Save(t.Context(), r, old); !errors.Is(err, state.ErrConflict) {
		t.Errorf("the owner from before the deletion saved: %v", err)
	}
}

func list(t *testing.T, open Open) {
	t.Helper()
	s := use(t, open)
	var want []state.Record
	for _, n := range []string{"Orders", "b", "orders", "orders-2", "orders.2"} {
		want = append(want, Sample(n))
	}
	for _, i := range []int{3, 0, 4, 2, 1} {
		save(t, s, want[i], 0)
	}
	got, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func names(t *testing.T, open Open) {
	t.Helper()
	s := use(t, open)
	long := strings.Repeat("n", state.MaxName)
	versions := map[string]state.Version{}
	for _, n := range []string{long, strings.ToUpper(long), "a", "A", "1.2_3-4", "lock", "con", "x.json", "x.tmp"} {
		versions[n] = save(t, s, Sample(n), 0)
	}
	for n, v := range versions {
		Expect(t, s, Sample(n), v)
	}
	for _, n := range []string{"", long + "n", ".hidden", "-x", "a/b", `a\b`, "a b", "é", "a\x00", "a:b", "..", "a%", "a~b"} {
		if _, _, err := s.Load(t.Context(), n); err == nil || errors.Is(err, state.ErrNotFound) {
			t.Errorf("loading %q: %v", n, err)
		}
		if err := s.Delete(t.Context(), n); err == nil || errors.Is(err, state.ErrNotFound) {
			t.Errorf("deleting %q: %v", n, err)
		}
	}
}

func twoProcesses(t *testing.T, open Open) {
	t.Helper()
	a, b := use(t, open), use(t, open)
	r := Sample("orders")
	v := save(t, a, r, 0)
	Expect(t, b, r, v)
	r.Attempt++
	taken := save(t, b, r, v)
	if _, err := a.Save(t.Context(), r, v); !errors.Is(err, state.ErrConflict) {
		t.Errorf("the owner that was replaced saved: %v", err)
	}
	Expect(t, a, r, taken)
}

// concurrentOwners lets several owners in several stores take turns: no turn may be lost.
func concurrentOwners(t *testing.T, open Open) {
	t.Helper()
	const owners, turns = 4, 10
	first := use(t, open)
	r := Sample("orders")
	r.Attempt = 1
	save(t, first, r, 0)
	var wg sync.WaitGroup
	for range owners {
		s := use(t, open)
		wg.Go(func() {
			for done := 0; done < turns; {
				r, v, err := s.Load(t.Context(), "orders")
				if err != nil {
					t.Errorf("loading: %v", err)
					return
				}
				r.Attempt++
				_, err = s.Save(t.Context(), r, v)
				switch {
				case err == nil:
					done++
				case !errors.Is(err, state.ErrConflict):
					t.Errorf("saving: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	r, _, err := first.Load(t.Context(), "orders")
	if err != nil || r.Attempt != 1+owners*turns {
		t.Errorf("attempt %d, error %v, want %d", r.Attempt, err, 1+owners*turns)
	}
}

func endedContext(t *testing.T, open Open) {
	t.Helper()
	s := use(t, open)
	r := Sample("orders")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, saved := s.Save(ctx, r, 0)
	_, _, loaded := s.Load(ctx, r.Pipeline)
	_, listed := s.List(ctx)
	_, _, asked := s.Orders(ctx, r.Pipeline)
	_, ordered := s.SaveOrders(ctx, r.Pipeline, state.Orders{}, 0)
	for i, err := range []error{saved, loaded, listed, asked, ordered, s.Delete(ctx, r.Pipeline)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	Expect(t, s, r, save(t, s, r, 0))
}

func closedStore(t *testing.T, open Open) {
	t.Helper()
	s := open(t)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, saved := s.Save(t.Context(), Sample("orders"), 0)
	_, _, loaded := s.Load(t.Context(), "orders")
	_, listed := s.List(t.Context())
	_, _, asked := s.Orders(t.Context(), "orders")
	_, ordered := s.SaveOrders(t.Context(), "orders", state.Orders{}, 0)
	for i, err := range []error{saved, loaded, listed, asked, ordered, s.Delete(t.Context(), "orders")} {
		if err == nil || errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrConflict) {
			t.Errorf("call %d of a closed store: %v", i, err)
		}
	}
}
