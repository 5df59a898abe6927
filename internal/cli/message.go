package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
)

// problem is one thing that is wrong, for people and programs.
type problem struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// problemsOf takes an error apart into what a person has to deal with: every mistake of a file, every reason why a plan was refused,
// or the error itself.
func problemsOf(err error) []problem {
	var file config.Problems
	var plan *engine.PlanError
	var usage *usageError
	switch {
	case errors.As(err, &file):
		out := make([]problem, len(file))
		for i, p := range file {
			out[i] = problem{Message: p.Error(), Code: codeFile}
		}
		return out
	case errors.As(err, &plan):
		out := make([]problem, len(plan.Problems))
		for i, p := range plan.Problems {
			out[i] = problem{Message: p.String(), Code: p.Code, Hint: p.Hint}
		}
		return out
	case errors.As(err, &usage):
		return []problem{{Message: err.Error(), Code: "usage", Hint: usage.hint}}
	}
	return []problem{{Message: err.Error(), Code: codeOf(err), Hint: connector.HintOf(err)}}
}

// codeFile is the code of a mistake in a pipeline file.
const codeFile = "config.file"

// codeOf returns the innermost code in err's tree, the most exact one.
func codeOf(err error) string {
	code := ""
	var e *connector.Error
	for errors.As(err, &e) {
		if e.Code != "" {
			code = e.Code
		}
		err = e.Err
	}
	return code
}

// errorText is an error as a person reads it: what is wrong, and indented below it what to do. It never has a stack.
func errorText(err error) string {
	var b strings.Builder
	for _, p := range problemsOf(err) {
		prefix := "leat: "
		if p.Code == codeFile { // FILE:LINE:COLUMN first, where editors look for it
			prefix = ""
		}
		fmt.Fprintf(&b, "%s%s\n", prefix, strings.ReplaceAll(p.Message, "\n", "\n      "))
		if p.Hint != "" {
			fmt.Fprintf(&b, "      %s\n", strings.ReplaceAll(p.Hint, "\n", "\n      "))
		}
	}
	return b.String()
}
