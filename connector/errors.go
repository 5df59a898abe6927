package connector

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leatdata/leat/record"
)

// Class is what the engine does about an error.
type Class uint8

// The classes. The zero value is an error that nobody classified: it is treated as permanent.
const (
	ClassUnknown   Class = iota
	ClassTransient       // try again, with backoff
	ClassPermanent       // stop
	ClassPosition        // the position can't be resumed from: stop, name what is missing and the declared choices
	ClassFenced          // another owner took over: stop at once, write nothing more
	ClassOutcome         // unknown outcome: read back what happened before anything is tried again
	ClassConfig          // the configuration is wrong: stop before anything is done
)

// String returns the name that logs and state use.
func (c Class) String() string {
	return name(int(c), "unknown", "transient", "permanent", "position", "fenced", "outcome-unknown", "config")
}

// Error is an error that a person will read. Messages say what was being done, outside in.
type Error struct {
	Class   Class
	Code    string // stable, such as postgres.auth or csv.ragged; empty: none
	Doing   string // what was being done: `opening orders.csv`
	Dataset string
	Column  string
	Err     error  // why
	Hint    string // what to type next
}

// Error returns one line: what, where, why. The hint is not part of it; the command line prints it beneath.
func (e *Error) Error() string {
	var parts []string
	if e.Doing != "" {
		parts = append(parts, e.Doing)
	}
	if e.Dataset != "" {
		where := e.Dataset
		if e.Column != "" {
			where += fmt.Sprintf(", column %q", e.Column)
		}
		parts = append(parts, where)
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of the outermost *Error in err's tree that has one.
func ClassOf(err error) Class {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return ClassUnknown
		}
		if e.Class != ClassUnknown {
			return e.Class
		}
		err = e.Err
	}
	return ClassUnknown
}

// HintOf returns the innermost hint in err's tree: the most exact one.
func HintOf(err error) string {
	hint := ""
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return hint
		}
		if e.Hint != "" {
			hint = e.Hint
		}
		err = e.Err
	}
	return hint
}

// RowErrors is what a RowRejecter's Write returns when the target refused rows and took all others.
type RowErrors struct { //nolint:errname // several
	Rows []RowError
}

// RowError is one refused row.
type RowError struct {
	Index  int // in the batch
	Reject record.Reject
}

// Error names the first row.
func (e *RowErrors) Error() string {
	if len(e.Rows) == 1 {
		return e.Rows[0].Reject.Error()
	}
	return fmt.Sprintf("%s (and %d more rows)", e.Rows[0].Reject.Error(), len(e.Rows)-1)
}
