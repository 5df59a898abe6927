package connector

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/leatdata/leat/record"
)

// Env is all that a connector is handed besides its configuration. Fields are set where nothing else is said.
type Env struct {
	Pipeline  string // the pipeline's stable name
	Log       *slog.Logger
	Now       func() time.Time // the run's clock, so that a replay is reproducible
	Roundtrip func(op string)  // count a real call to the system, retries too
	Memory    int64            // most bytes that buffers of this connector should take, of the run's budget; 0: the connector's choice
	Parent    map[string]any   // values of the parent record, for a child source, see ResolveParent; nil: a root
	// Go starts a goroutine that the engine waits for: a replacement generation starts only after all of them ended. It is refused
	// after Close.
	Go func(f func(ctx context.Context)) error
}

// Buffer is how many bytes a buffer may take that has a use for so many.
func (e Env) Buffer(most int64) int64 {
	if e.Memory <= 0 {
		return most
	}
	return min(most, e.Memory)
}

// Secret is a value that never shows: it prints as *** in every format.
type Secret string

// Reveal returns the value. Only the call that hands it to a driver may use it.
func (s Secret) Reveal() string { return string(s) }

// String returns ***, or nothing where there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// Format hides the value from every verb of fmt, also from those that are no verb of a string, which would show it. A secret in an
// unexported field is beyond the reach of any method: keep secrets in exported ones.
func (s Secret) Format(f fmt.State, verb rune) {
	text := s.String()
	if verb == 'q' || (verb == 'v' && f.Flag('#')) {
		text = strconv.Quote(text)
	}
	_, _ = io.WriteString(f, text)
}

// MarshalText hides the value from JSON, YAML and logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Split is an independent part of a source.
type Split struct {
	ID       string // stable
	From, To []byte // key range, From exclusive, To inclusive; nil: open
}

// Dataset is what discovery tells of one dataset.
type Dataset struct {
	Name   string
	Schema *record.Schema
	Rows   int64             // estimate; -1: unknown
	Bytes  int64             // estimate of what will be read; -1: unknown
	Patch  map[string]string // options that select exactly this dataset; no credentials
}

// ProbeStatus is the outcome of a probe.
type ProbeStatus uint8

// The outcomes.
const (
	Pass ProbeStatus = iota
	Warn
	Fail
)

// String returns pass, warn or fail.
func (s ProbeStatus) String() string { return name(int(s), "pass", "warn", "fail") }

// Probe is one thing that was checked.
type Probe struct {
	Name   string
	Status ProbeStatus
	Detail string
	Fix    string // exactly what to type; empty for Pass
}

// Lag is how far a source is behind; -1: unknown.
type Lag struct {
	Bytes    int64 // of the upstream's log that were not delivered yet
	Events   int64
	Age      time.Duration // since the commit of the newest change that was delivered; 0: nothing is waiting
	Retained int64         // bytes of log that the upstream keeps for this source
}

// Known reports whether the source said how far it is behind. No source that does keeps nothing at all.
func (l Lag) Known() bool {
	return l != Lag{} && l != Lag{Bytes: -1, Events: -1, Age: -1, Retained: -1}
}

// As finds capability T in v or in what v wraps.
func As[T any](v any) (T, bool) {
	for v != nil {
		if t, ok := v.(T); ok {
			return t, true
		}
		u, ok := v.(interface{ Unwrap() any })
		if !ok {
			break
		}
		v = u.Unwrap()
	}
	var none T
	return none, false
}
