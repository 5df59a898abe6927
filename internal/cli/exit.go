package cli

import (
	"context"
	"errors"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
)

// The exit codes. They are a promise to scripts; exitHelp explains them.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitCheck       = 3
	ExitSetAside    = 4
	ExitInterrupted = 130
)

const exitHelp = `Exit codes:
  0    done; or the following of a source was stopped by ^C or SIGTERM, in good order
  1    the run failed; what was saved stays, and the same command goes on from there
  2    it could not start: wrong usage, a mistake in the pipeline file, a wrong name or password, a plan that was refused
  3    leat check found something that would fail, leat status a pipeline that failed or is too far behind
  4    done, but rows were set aside; the summary says where they are
  130  interrupted by ^C or SIGTERM before its end; the same command goes on from there`

// usageError marks what was typed wrongly.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }

// Unwrap returns what is wrong.
func (e *usageError) Unwrap() error { return e.err }

// outcomeError ends a command with an exit code after everything was said.
type outcomeError struct{ code int }

func (outcomeError) Error() string { return "done" }

// exitCode decides how the process ends.
func exitCode(err error) int {
	var o outcomeError
	var usage *usageError
	var problems config.Problems
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &o):
		return o.code
	case errors.As(err, &usage), errors.As(err, &problems), connector.ClassOf(err) == connector.ClassConfig:
		return ExitUsage
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	return ExitFailed
}
