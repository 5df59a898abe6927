package orderfeed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/examples/orderfeed"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state/sqlite"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := os.RemoveAll(stateFolder); err != nil {
		panic(err)
	}
	if err := goleak.Find(); err != nil && code == 0 {
		panic(err)
	}
	os.Exit(code)
}

// The feed keeps what every source promises, bounded and followed.
func TestSource(t *testing.T) {
	s := startServices(manyOrders(23)...)
	defer s.Close()
	cfg := orderfeed.NewSource()
	cfg.URL, cfg.Token = s.URL+"/feed", token
	src, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Start(t.Context(), connector.SourceStart{}); err != nil {
		t.Fatal(err)
	}
	whole, err := src.Read(t.Context(), connector.Limit{})
	if err != nil || whole.NumRows() != len(s.feed) {
		t.Fatal(whole, err)
	}
	if err := src.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow=%v", follow), func(t *testing.T) {
			cfg := func(url string) connector.SourceConfig {
				c := orderfeed.NewSource()
				c.URL, c.Token, c.Page, c.Follow = url, token, 5, follow
				return c
			}
			connectortest.Source(t, connectortest.SourceCase{
				New:         func(testing.TB) connector.SourceConfig { return cfg(s.URL + "/feed") },
				Unreachable: func(testing.TB) connector.SourceConfig { return cfg("http://127.0.0.1:1/feed") },
				Want:        map[string][]string{"orders": connectortest.Rows(whole)},
				Secrets:     []string{token},
			})
		})
	}
}

// The ledger keeps what every sink promises, types and position included.
func TestSink(t *testing.T) {
	cfg := func(url string) *orderfeed.SinkConfig {
		c := orderfeed.NewSink()
		c.URL, c.Token = url, token
		return c
	}
	connectortest.Sink(t, connectortest.SinkCase{
		New: func(t testing.TB) connectortest.Target {
			t.Helper()
			s := startServices()
			t.Cleanup(s.Close)
			return connectortest.Target{
				Config: func() connector.SinkConfig { return cfg(s.URL + "/ledger") },
				Read:   func(_ testing.TB, sch *record.Schema) ([]string, bool) { return s.ledgerRows(sch.Dataset) },
			}
		},
		Unreachable: func(testing.TB) connector.SinkConfig { return cfg("http://127.0.0.1:1/ledger") },
		Secrets:     []string{token},
	})
}

// Requests that never arrive, answers that get lost, a service that is busy, and a sender that is stopped at any time: in the end the
// ledger has every order once, in order, and nothing was released before it was there.
//
// clauses E5, E8, S11.
func TestExactlyOnce(t *testing.T) {
	for seed := range uint64(5) {
		s := startServices(manyOrders(400)...)
		r := rand.New(rand.NewPCG(seed, 1))
		s.faults = rand.New(rand.NewPCG(seed, 2))
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
		if err != nil {
			t.Fatal(err)
		}
		src, snk := orderfeed.NewSource(), orderfeed.NewSink()
		src.URL, src.Token, src.Page, src.Follow = s.URL+"/feed", token, 20, true
		snk.URL, snk.Token = s.URL+"/ledger", token
		plan := engine.Plan{
			Name: "orders", Once: true, Guarantee: connector.ExactlyOnce,
			Source: engine.SourceSpec{Connector: "orderfeed", Config: src},
			Sinks:  []engine.SinkSpec{{Name: "ledger", Connector: "orderfeed", Config: snk}},
			Batch:  connector.Limit{Rows: 7, Bytes: 1 << 20}, Commit: engine.Commit{Every: time.Millisecond, Bytes: 1},
			Retry: engine.Retry{Attempts: 100, Min: time.Millisecond, Max: 2 * time.Millisecond}, Drain: 5 * time.Second,
		}
		done := false
		for tries := 0; !done && tries < 200; tries++ {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(5+r.IntN(60))*time.Millisecond)
			sum, err := engine.Run(ctx, plan, engine.Deps{Store: store})
			cancel()
			if class := connector.ClassOf(err); class == connector.ClassPosition || class == connector.ClassFenced {
				t.Fatalf("seed %d: %v", seed, err)
			}
			done = sum.Done
		}
		want := make([]int64, len(s.feed))
		for i := range want {
			want[i] = int64(i + 1)
		}
		if got := s.orders(); !done || !slices.Equal(got, want) {
			t.Errorf("seed %d: done %v; the ledger has %v", seed, done, got)
		}
		if len(s.early) > 0 {
			t.Errorf("seed %d: %s", seed, s.early[0])
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	}
}

// Lines that are gone are an error of class position, with a way out.
//
// clause S4.
func TestLinesAreGone(t *testing.T) {
	s := startServices(manyOrders(9)...)
	defer s.Close()
	s.kept = 3
	cfg := orderfeed.NewSource()
	cfg.URL, cfg.Token = s.URL+"/feed", token
	src, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close(t.Context()) }()
	err = src.Start(t.Context(), connector.SourceStart{})
	if connector.ClassOf(err) != connector.ClassPosition || connector.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
}

// A line that can't be read is set aside with its text; the others come.
func TestBadLine(t *testing.T) {
	s := startServices(manyOrders(3)...)
	defer s.Close()
	s.feed[1] = `{"number":2,"customer":"c","total":1.234,"placed":"2026-03-04T05:06:07Z"}`
	cfg := orderfeed.NewSource()
	cfg.URL, cfg.Token = s.URL+"/feed", token
	src, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close(t.Context()) }()
	if err := src.Start(t.Context(), connector.SourceStart{}); err != nil {
		t.Fatal(err)
	}
	b, err := src.Read(t.Context(), connector.Limit{Rows: 10})
	if err != nil || b.NumRows() != 2 || len(b.Rejects) != 1 {
		t.Fatalf("%v, %v", b, err)
	}
	if r := b.Rejects[0]; r.Column != "total" || r.Value != "1.234" || string(r.Raw) != s.feed[1] || r.Line != 2 {
		t.Errorf("got %+v", r)
	}
}
