package config

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a pipeline file.
type Problem struct { //nolint:errname // it is one of many, and errors only together
	File         string
	Line, Column int // 1-based
	Message      string
}

// Error returns FILE:LINE:COLUMN: message.
func (p *Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Problems is all mistakes of a file, in the order of the file.
type Problems []*Problem //nolint:errname // likewise

// Error returns a line for each.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

func problemAt(file string, at *node, format string, args ...any) *Problem {
	return &Problem{File: file, Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...)}
}

// err returns the problems as an error, or nil where there are none.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b *Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return ps
}
