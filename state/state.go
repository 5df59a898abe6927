package state

import (
	"context"
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

// Record is what is kept of one pipeline.
type Record struct {
	Pipeline string            // stable name, see ValidateName
	Identity map[string]string // what the positions depend on, see IdentityHash; no secrets
	Attempt  uint64            // of the owner that saved this; nonzero, one more than the last owner's, never reused
	Origin   record.Position   // where the run began, resolved once and saved before the first read; zero: not resolved
	Progress record.Progress   // run, watermark, ledger, done
	Rows     int64             // rows delivered by the run
	Rejected int64             // rows set aside by the run
	Updated  time.Time         // when it was saved, in UTC, on the clock of the process that saved it
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
	if !r.Progress.Position.Zero() && r.Progress.Run == "" {
		return fmt.Errorf("saving the state of %s: a position without the run that it belongs to", r.Pipeline)
	}
	return nil
}
