package connector

import (
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
	var where []string
	if e.Dataset != "" {
		where = append(where, e.Dataset)
	}
	if e.Column != "" {
		where = append(where, fmt.Sprintf("column %q", e.Column))
	}
	if len(where) > 0 {
		parts = append(parts, strings.Join(where, ", "))
	}
	switch {
	case e.Err != nil:
		parts = append(parts, e.Err.Error())
	case e.Code != "":
		parts = append(parts, e.Code)
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of the outermost *Error in err's tree that has one; of joined errors the first that has one.
func ClassOf(err error) Class {
	if e, ok := err.(*Error); ok && e.Class != ClassUnknown { //nolint:errorlint // the tree is walked here
		return e.Class
	}
	for _, inner := range causes(err) {
		if c := ClassOf(inner); c != ClassUnknown {
			return c
		}
	}
	return ClassUnknown
}

// HintOf returns the innermost hint in err's tree: the most exact one; of joined errors the first that has one.
func HintOf(err error) string {
	for _, inner := range causes(err) {
		if hint := HintOf(inner); hint != "" {
			return hint
		}
	}
	if e, ok := err.(*Error); ok { //nolint:errorlint // the tree is walked here
		return e.Hint
	}
	return ""
}

// causes returns what an error directly wraps.
func causes(err error) []error {
	switch e := err.(type) { //nolint:errorlint // the tree is walked here
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return []error{inner}
		}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
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
	switch len(e.Rows) {
	case 0:
		return "no rows were refused"
	case 1:
		return e.Rows[0].Reject.Error()
	}
	return fmt.Sprintf("%s (and %d more rows)", e.Rows[0].Reject.Error(), len(e.Rows)-1)
}
