package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutation is one deliberate break. A list has them one behind the other, as in
//
//	# the ledger of one lane
//	break W5, W6: the frontier jumps over a gap
//	in lane/ledger.go
//	test ./lane TestModel|TestScripts
//	quick
//	-	for len(l.entries) > 0 && l.entries[0].state == acked {
//	+	for len(l.entries) > 0 {
//
// The lines behind it are a diff: "-" and " " lines are the code that is there, whole lines that occur exactly once in the file, and "+"
// and " " lines are what stands there instead. @@ separates several places of the file. "env NAME=VALUE" and "timeout 30s" are for the
// run of the tests; "quick" marks those that need no server and little time. Lines that begin with # are comments.
type mutation struct {
	ids     []string
	text    string
	file    string // from the root of the repository
	pkg     string // of the tests
	pattern string // their names, as go test -run takes them
	env     []string
	timeout time.Duration
	quick   bool
	edits   []edit
	where   string // in which list, for people
}

// edit is one place: whole lines, each with its end.
type edit struct{ old, replacement string }

func (m *mutation) title() string { return strings.Join(m.ids, ", ") + ": " + m.text }

const defaultTimeout = time.Minute

// readLists reads all lists in the order of their names.
func readLists(root string) ([]mutation, error) {
	names, err := filepath.Glob(filepath.Join(root, listFiles))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there are no lists: %s", filepath.Join(root, listFiles))
	}
	var all []mutation
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list, err := parse(filepath.Base(name), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

var breakLine = regexp.MustCompile(`^break ((?:[A-Z][0-9]+, )*[A-Z][0-9]+): (.+)$`)

// parse reads one list.
func parse(name, text string) ([]mutation, error) {
	var all []mutation
	n := 0
	for line := range strings.Lines(text) {
		n++
		where := fmt.Sprintf("%s:%d", name, n)
		if head := breakLine.FindStringSubmatch(strings.TrimSpace(line)); head != nil {
			all = append(all, mutation{ids: strings.Split(head[1], ", "), text: head[2], timeout: defaultTimeout, where: where})
			continue
		}
		if strings.HasPrefix(line, "#") || (len(all) == 0 && strings.TrimSpace(line) == "") {
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s: a list begins with a line such as: break W5: what is broken", where)
		}
		if err := all[len(all)-1].line(line); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	for i := range all {
		if err := all[i].complete(); err != nil {
			return nil, fmt.Errorf("%s: %w", all[i].where, err)
		}
	}
	return all, nil
}

// line takes one line behind the first.
func (m *mutation) line(line string) error {
	switch {
	case strings.HasPrefix(line, "@@"):
		m.edits = append(m.edits, edit{})
		return nil
	case strings.HasPrefix(line, "-"), strings.HasPrefix(line, "+"), strings.HasPrefix(line, " "):
		if len(m.edits) == 0 {
			m.edits = append(m.edits, edit{})
		}
		e := &m.edits[len(m.edits)-1]
		if line[0] != '+' {
			e.old += line[1:]
		}
		if line[0] != '-' {
			e.replacement += line[1:]
		}
		return nil
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	var err error
	switch word {
	case "":
	case "in":
		m.file = rest
	case "test":
		m.pkg, m.pattern, _ = strings.Cut(rest, " ")
	case "env":
		m.env = append(m.env, rest)
	case "timeout":
		m.timeout, err = time.ParseDuration(rest)
	case "quick":
		m.quick = true
	default:
		err = fmt.Errorf("unknown word %q: known are in, test, env, timeout, quick, and lines of a diff", word)
	}
	return err
}

// complete checks that nothing is missing.
func (m *mutation) complete() error {
	switch {
	case m.file == "":
		return errors.New("which file is broken? add a line such as: in lane/ledger.go")
	case m.pkg == "" || m.pattern == "":
		return errors.New("which tests notice it? add a line such as: test ./lane TestModel")
	case len(m.edits) == 0:
		return errors.New("what is broken? add lines of a diff")
	}
	for _, e := range m.edits {
		if e.old == "" || e.old == e.replacement {
			return errors.New("each place needs code that is there, and other code instead")
		}
	}
	return nil
}

// apply returns the broken file.
func (m *mutation) apply(src []byte) ([]byte, error) {
	src = append([]byte("\n"), src...) // so that the first line begins like every other
	for _, e := range m.edits {
		old := []byte("\n" + e.old)
		if n := count(src, old); n != 1 {
			first, _, _ := strings.Cut(e.old, "\n")
			return nil, fmt.Errorf("%s has the lines that begin with %q %d times: want exactly once", m.file, strings.TrimSpace(first), n)
		}
		src = bytes.Replace(src, old, []byte("\n"+e.replacement), 1)
	}
	return src[1:], nil
}

// count counts overlapping occurrences, too.
func count(s, part []byte) int {
	n := 0
	for {
		i := bytes.Index(s, part)
		if i < 0 {
			return n
		}
		n++
		s = s[i+1:]
	}
}
