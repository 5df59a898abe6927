package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// promise is one row of the catalogue: a clause, or a case when its id begins with C.
type promise struct {
	id        string
	statement string
	required  bool
}

func (p promise) isCase() bool { return strings.HasPrefix(p.id, "C") }

// idExpr matches an id: a letter and a number, of three digits for a case.
const idExpr = `(?:[SWEKD][1-9][0-9]?|C[0-9]{3})`

var tableID = regexp.MustCompile(`^` + idExpr + `$`)

// readCatalogue reads the tables of the catalogue in order and skips all other text.
func readCatalogue(r io.Reader) ([]promise, error) {
	var promises []promise
	seen := map[string]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		cells := strings.Split(lines.Text(), "|")
		if len(cells) < 2 || strings.TrimSpace(cells[0]) != "" {
			continue
		}
		id := strings.TrimSpace(cells[1])
		if !tableID.MatchString(id) {
			continue // a heading or a ruler
		}
		if len(cells) != 5 {
			return nil, fmt.Errorf("line %d: a row is | id | statement | now or nothing |", n)
		}
		required := strings.TrimSpace(cells[3])
		if required != "" && required != "now" {
			return nil, fmt.Errorf("line %d: %s is marked %q: only \"now\" is known", n, id, required)
		}
		if seen[id] {
			return nil, fmt.Errorf("line %d: %s is declared twice", n, id)
		}
		seen[id] = true
		promises = append(promises, promise{id: id, statement: strings.TrimSpace(cells[2]), required: required == "now"})
	}
	return promises, lines.Err()
}
