package sqlgen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
)

// Select returns the names that a list of patterns selects, sorted and each once. In a pattern * stands for any text and ? for one
// character; a pattern that starts with ! takes names away again, whatever its place in the list; names are compared without regard
// to case, as embedded databases do. A pattern without * and ? must name something: else it is an error that says which name was
// probably meant. No patterns select everything.
func Select(names, patterns []string) ([]string, error) {
	var with, without []string
	for _, p := range patterns {
		p = strings.TrimSpace(p)
		if not, ok := strings.CutPrefix(p, "!"); ok {
			without = append(without, not)
		} else if p != "" {
			with = append(with, p)
		}
	}
	for _, p := range with {
		if strings.ContainsAny(p, "*?") || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, p) }) {
			continue
		}
		return nil, connector.UnknownName("table", p, names)
	}
	var out []string
	for _, n := range names {
		if (len(with) == 0 || matchAny(with, n)) && !matchAny(without, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) == 0 && len(names) > 0 {
		return nil, fmt.Errorf("no table matches %q; there are %s", strings.Join(patterns, ","), strings.Join(names, ", "))
	}
	return out, nil
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// Match reports whether a pattern with * and ? covers the whole name, without regard to case.
func Match(pattern, name string) bool {
	p, n := []rune(strings.ToLower(pattern)), []rune(strings.ToLower(name))
	star, resume := -1, 0 // the last * and where its text ends so far
	i, j := 0, 0
	for j < len(n) {
		switch {
		case i < len(p) && p[i] == '*':
			star, resume = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == n[j]):
			i++
			j++
		case star >= 0:
			resume++
			i, j = star+1, resume
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
