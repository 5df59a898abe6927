package main

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// breakLists are the lists of deliberate breaks; dev/mutants says how they are written.
const breakLists = "dev/mutants/lists/*.txt"

var breakLine = regexp.MustCompile(`(?m)^break ((?:[A-Z][0-9]+, )*[A-Z][0-9]+):`)

// scanBreaks counts the breaks of each id.
func scanBreaks(repo fs.FS) (map[string]int, error) {
	names, err := fs.Glob(repo, breakLists)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", breakLists, err)
	}
	breaks := map[string]int{}
	for _, name := range names {
		text, err := fs.ReadFile(repo, name)
		if err != nil {
			return nil, err
		}
		for _, head := range breakLine.FindAllStringSubmatch(string(text), -1) {
			for id := range strings.SplitSeq(head[1], ", ") {
				breaks[id]++
			}
		}
	}
	return breaks, nil
}
