package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// The errors of stores; they may be wrapped.
var (
	// ErrNotFound says that nothing is saved for the pipeline.
	ErrNotFound = errors.New("no state is saved for this pipeline")
	// ErrConflict says that the record is not at the version that was expected: another process saved it, or deleted it.
	ErrConflict = errors.New("the saved state was changed by another process")
)

// Record is what is kept of one pipeline: the manifest of its newest checkpoint.
type Record struct {
	Pipeline string            // stable name, see ValidateName
	Identity map[string]string // what the positions depend on, see IdentityHash; no secrets
	Attempt  uint64            // of the owner that saved this; nonzero, one more than the last owner's, never reused
	Origin   record.Position   // where the run began, resolved once and saved before the first read; zero: not resolved
	Stream   string            // identity of the durable stream that lanes wait in; empty: they are kept in memory
	Progress record.Progress   // run, watermark, ledger, done
	Lanes    map[string]Lane   // by sink; nil: nothing is known of them one by one
	Rows     int64             // rows delivered by the run
	Rejected int64             // rows set aside by the run
	Updated  time.Time         // when it was saved, in UTC, on the clock of the process that saved it
}

// Lane is what is kept of the lane to one sink. All but the epoch is for people: a sink that keeps its own position, and the stream,
// know better.
type Lane struct {
	Progress record.Progress // what its sink has acknowledged
	State    string          // one of the Lane constants; empty: unknown
	Held     int64           // bytes that wait in it
	Items    int64           // items that wait in it
	Oldest   time.Time       // when the oldest of them was published; zero: none waits, or it is not known
	Error    string          // the last failure of its sink, without secrets; empty: none since it last got on
	Epoch    *Epoch          // of a sink that publishes in two phases, the newest epoch; nil: there was none
}

// The states of lanes.
const (
	LaneLive     = "live"     // its sink follows
	LaneFilling  = "filling"  // its sink is being filled: a copy of what the source has is not complete
	LanePaused   = "paused"   // a person paused it
	LaneDown     = "down"     // its sink fails, and is tried again
	LaneJoining  = "joining"  // its sink was added to the run, and has acknowledged nothing yet
	LaneDetached = "detached" // it held more than its quota and was let go; its sink has to be filled anew
)

// Epoch is what a two-phase sink makes visible at once. Saving it with Decided set is the decision itself: from then on it is
// published, whatever happens, and before that it may only be aborted.
type Epoch struct {
	Number   uint64          // from 1, in order
	Decided  bool            // it was prepared, and is published, now or after a crash
	Progress record.Progress // of the lane, once it is published
	Staged   json.RawMessage // what Prepare returned, byte for byte
}

// Version identifies one saved state of one record. 0 is none. A version is never used again, not even after Delete.
type Version uint64

// Store keeps records. Its methods may be called from any goroutine, and by many processes on one place.
type Store interface {
	// Load returns the pipeline's record and its version. Errors: ErrNotFound; class ClassPosition for a record that this
	// program can't read.
	Load(ctx context.Context, pipeline string) (Record, Version, error)
	// Save replaces the record of version prev (0: creates it) and returns the new version. What it saved survives loss of
	// power. After ErrConflict nothing was saved. After any other error the record is the old one or the saved one: Load tells.
	Save(ctx context.Context, r Record, prev Version) (Version, error)
	// List returns all records by name. The error names the first one that can't be read; the others are returned.
	List(ctx context.Context) ([]Record, error)
	// Delete forgets the pipeline, its last attempt and its orders included; ErrNotFound where there is neither record nor order. To
	// run a pipeline from the beginning while late owners stay fenced, save Record.Reset instead.
	Delete(ctx context.Context, pipeline string) error
	// Close releases the store. Idempotent; after it all other calls fail.
	Close() error
	OrderStore
}

// Reset returns the record as it was before its first run: only name, identity and attempt stay, so that attempts keep growing.
func (r Record) Reset() Record {
	return Record{Pipeline: r.Pipeline, Identity: r.Identity, Attempt: r.Attempt, Updated: r.Updated}
}

// MaxName is the longest name of a pipeline, in bytes.
const MaxName = 200

// ValidateName checks the name of a pipeline: 1 to 200 ASCII letters, digits, dots, hyphens and underscores, beginning with a letter
// or digit. Such a name is a key of every store and part of file names and subjects; it says nothing of hosts or users.
func ValidateName(name string) error {
	fault := ""
	switch {
	case name == "":
		fault = "is empty"
	case len(name) > MaxName:
		fault = fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), MaxName)
	case !alphanumeric(name[0]):
		fault = "must begin with a letter or a digit"
	default:
		for i := range len(name) {
			if c := name[i]; !alphanumeric(c) && c != '.' && c != '-' && c != '_' {
				fault = fmt.Sprintf("has %q at byte %d: only letters, digits, dots, hyphens and underscores are allowed", c, i)
				break
			}
		}
	}
	if fault == "" {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "state.name", Err: fmt.Errorf("pipeline name %q %s", name, fault),
		Hint: "set a name such as orders-to-lake",
	}
}

func alphanumeric(c byte) bool {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')
}

// Validate checks what every store must refuse to save.
func (r Record) Validate() error {
	if err := ValidateName(r.Pipeline); err != nil {
		return err
	}
	if r.Attempt == 0 {
		return fmt.Errorf("saving the state of %s: attempt 0", r.Pipeline)
	}
	for k, v := range r.Identity {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("saving the state of %s: identity option %q is not valid UTF-8", r.Pipeline, k)
		}
	}
	if err := validateProgress(r.Progress); err != nil {
		return fmt.Errorf("saving the state of %s: %w", r.Pipeline, err)
	}
	for name, l := range r.Lanes {
		if err := l.validate(name); err != nil {
			return fmt.Errorf("saving the state of %s: lane %q: %w", r.Pipeline, name, err)
		}
	}
	return nil
}

func (l Lane) validate(name string) error {
	if name == "" || !utf8.ValidString(name) {
		return errors.New("it has no valid name")
	}
	if err := validateProgress(l.Progress); err != nil {
		return err
	}
	if l.Epoch == nil {
		return nil
	}
	if l.Epoch.Number == 0 {
		return errors.New("epoch 0: they count from 1")
	}
	return validateProgress(l.Epoch.Progress)
}

// validateProgress refuses progress that would be lost on the way, as it lacks its run.
func validateProgress(p record.Progress) error {
	if p.Run != "" {
		return nil
	}
	switch {
	case !p.Position.Zero():
		return errors.New("a position without the run that it belongs to")
	case len(p.Ledger) > 0 || p.Done || p.Epoch > 0 || p.Item > 0:
		return errors.New("progress without the run that it belongs to")
	}
	return nil
}
