package connectortest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leatdata/leat/connector"
)

// patience bounds every call to a connector: longer means stuck.
const patience = 60 * time.Second

// Env returns an environment for one generation, as the engine hands it out: a fixed clock, a log that is dropped, and tracked
// goroutines that are cancelled and waited for when the test ends. Connectors' own tests use it too.
func Env(t testing.TB) connector.Env {
	e := newEnv()
	t.Cleanup(func() {
		e.stop()
		e.wait(t)
	})
	return e.Env
}

// env is one generation's environment, observed.
type env struct {
	connector.Env
	log    *syncBuffer
	cancel context.CancelFunc

	mu       sync.Mutex
	calls    int
	badNames []string // of calls, which can't be names of metrics
	sealed   bool
	group    sync.WaitGroup
}

// operation is what a connector may call its calls: metrics are named by it (S30).
var operation = regexp.MustCompile(`^[a-z][a-z _-]{0,30}$`)

func newEnv() *env {
	e := &env{log: new(syncBuffer)}
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	clock := time.Date(2026, 3, 4, 5, 6, 7, 8_000, time.UTC)
	e.Env = connector.Env{
		Log: slog.New(slog.NewTextHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now: func() time.Time { return clock },
		Roundtrip: func(op string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.calls++
			if !operation.MatchString(op) {
				e.badNames = append(e.badNames, op)
			}
		},
		Go: func(f func(context.Context)) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.sealed {
				return errors.New("the generation is closed")
			}
			e.group.Go(func() { f(ctx) })
			return nil
		},
	}
	return e
}

// roundtrips returns how often the connector said that it called the system.
func (e *env) roundtrips() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls
}

// stop refuses further goroutines and cancels those that run.
func (e *env) stop() {
	e.mu.Lock()
	e.sealed = true
	e.mu.Unlock()
	e.cancel()
}

// wait fails the test where a tracked goroutine does not end, or where a call had a name that metrics can't have (clause S30).
func (e *env) wait(t testing.TB) {
	t.Helper()
	e.mu.Lock()
	if len(e.badNames) > 0 {
		t.Errorf("Roundtrip(%q): want a short name of what is done, in lower case, that is the same each time", e.badNames[0])
	}
	e.mu.Unlock()
	done := make(chan struct{})
	go func() {
		e.group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Errorf("a goroutine that was started with Env.Go did not end within %s of Close", patience)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// secrets are texts that must show nowhere.
type secrets []string

func (s secrets) check(t testing.TB, where, text string) {
	t.Helper()
	for _, secret := range s {
		if secret != "" && strings.Contains(text, secret) {
			t.Errorf("%s shows the secret %q", where, secret)
		}
	}
}

// err checks all that an error says.
func (s secrets) err(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		s.check(t, "an error", err.Error()+connector.HintOf(err))
	}
}

// runner is implemented by a testing.TB that runs named sub-tests; *testing.T is asked in its own way.
type runner interface {
	Run(name string, f func(testing.TB)) bool
}

// run starts a sub-test.
func run(t testing.TB, name string, f func(t testing.TB)) {
	t.Helper()
	switch r := t.(type) {
	case *testing.T:
		r.Run(name, func(t *testing.T) { f(t) })
	case runner:
		r.Run(name, f)
	default:
		f(t)
	}
}

// leaks returns a function that fails the test where goroutines run that did not run when leaks was called.
func leaks(t testing.TB) func() {
	before := goleak.IgnoreCurrent()
	return func() {
		t.Helper()
		if err := goleak.Find(before); err != nil {
			t.Errorf("after Close: %v", err)
		}
	}
}

// deadline is a context for the calls of one sub-test.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
