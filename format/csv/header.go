package csv

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
)

// Rename makes column names of a header: names that are empty or appear before, also in other case, are made unique. An empty one
// becomes col_N, N being its place from 1; a repeated one gets _2, _3 …; the first of equal names keeps it. The same header always
// gets the same names, and values stay in their places: a,A,,a,col_3 becomes a, A_2, col_3_2, a_3, col_3.
func Rename(header []string) []string {
	taken := map[string]bool{}
	out := make([]string, len(header))
	for i, h := range header {
		if fold := strings.ToLower(h); h != "" && !taken[fold] {
			taken[fold] = true
			out[i] = h
		}
	}
	for i, h := range header {
		if out[i] != "" {
			continue
		}
		if h == "" {
			h = fmt.Sprintf("col_%d", i+1)
		}
		name := h
		for n := 2; taken[strings.ToLower(name)]; n++ {
			name = fmt.Sprintf("%s_%d", h, n)
		}
		taken[strings.ToLower(name)] = true
		out[i] = name
	}
	return out
}

// header finds the column names: from the first row, from what was given, or by counting the fields of the first row, which then
// stays to be read. io.EOF: the input has no row.
func (s *scanner) header(hasHeader bool, given []string) ([]string, error) {
	s.SkipBOM()
	if given != nil && !hasHeader {
		s.skipBlank = len(given) > 1
		return given, nil
	}
	ok, err := s.next()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, io.EOF
	}
	names := make([]string, len(s.fields))
	s.skipBlank = len(names) > 1
	if !hasHeader {
		return Rename(names), nil
	}
	switch {
	case s.problem != "":
		return nil, s.failure("csv.syntax", errors.New(s.problem+" in the header"), "correct the header, or say quote=none")
	case s.invalid() >= 0:
		return nil, s.notUTF8()
	}
	for i := range s.fields {
		names[i] = string(s.value(&s.fields[i]))
	}
	s.consume()
	return Rename(names), nil
}

const encodingHint = "say which encoding it is, such as encoding=windows-1252"

func (s *scanner) notUTF8() error {
	at := s.invalid()
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "csv.encoding", Hint: encodingHint,
		Err: fmt.Errorf("line %d (byte %d): byte %#02x is not valid UTF-8", s.line()+countLines(s.row()[:at]), s.Offset()+int64(at),
			s.row()[at]),
	}
}

// match finds where each column of the file goes in want: -1: nowhere. All names that are expected must be there, unless missing
// ones are allowed, and no others.
func match(file, expected, want []string, missing bool) ([]int, error) {
	to := make([]int, len(file))
	for i, name := range file {
		to[i] = slices.Index(want, name)
	}
	var extra, absent []string
	if expected != nil {
		extra = without(file, expected)
		absent = without(expected, file)
	} else {
		absent = without(want, file)
	}
	if missing {
		absent = nil
	}
	if len(extra)+len(absent) == 0 {
		return to, nil
	}
	why := "its columns differ from those of the other files:"
	if len(absent) > 0 {
		why += fmt.Sprintf(" %q missing", absent)
	}
	if len(extra) > 0 {
		why += fmt.Sprintf(" %q unexpected", extra)
	}
	return nil, &connector.Error{
		Class: connector.ClassPermanent, Code: "csv.columns", Err: errors.New(why),
		Hint: "read it on its own, or say union=true to read files with different columns as one dataset",
	}
}

func without(list, other []string) []string {
	var out []string
	for _, n := range list {
		if !slices.Contains(other, n) {
			out = append(out, n)
		}
	}
	return out
}
