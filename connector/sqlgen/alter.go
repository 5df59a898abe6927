package sqlgen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/record"
)

// Held is a column that a table has: its name, and the source's id of it where that is known.
type Held struct{ Name, ID string }

// Alteration is how a table follows the columns of a dataset. The steps are in the order in which they have to be done.
type Alteration struct {
	Drop   []string
	Rename []record.Renamed // one after the other; a name that is free in between may stand there
	Add    []int            // columns of the new schema
	// Held is the name of each column of the new schema in the table as it was; empty: it is added.
	Held []string
}

// Empty reports whether the table has exactly the columns already.
func (a Alteration) Empty() bool { return len(a.Drop)+len(a.Rename)+len(a.Add) == 0 }

// Alter works out how a table follows from one schema to another one. Where the ids of the table's columns are known, they say which
// column is which, so that it does not matter how often, and from where, the same is asked; else names do, with the help of from, which
// may be nil: then nothing is dropped but what another column takes the name of. Names are compared without regard to case.
func Alter(table []Held, from, to *record.Schema) (Alteration, error) {
	m := matcher{table: table, to: to, of: slices.Repeat([]int{-1}, to.Columns.NumFields()), by: slices.Repeat([]int{-1}, len(table))}
	if from != nil {
		m.from, m.diff = from, record.Diff(from, to)
	}
	m.byID()
	m.byHistory()
	m.byName()
	a := Alteration{Held: make([]string, len(m.of))}
	var renames []record.Renamed
	for i, f := range to.Columns.Fields() {
		if m.of[i] < 0 {
			a.Add = append(a.Add, i)
			continue
		}
		a.Held[i] = table[m.of[i]].Name
		if !strings.EqualFold(a.Held[i], f.Name) {
			renames = append(renames, record.Renamed{From: a.Held[i], To: f.Name})
		}
	}
	var err error
	if a.Drop, err = m.drops(); err != nil {
		return a, err
	}
	names := make([]string, 0, len(table))
	for _, h := range table {
		if !slices.Contains(a.Drop, h.Name) {
			names = append(names, h.Name)
		}
	}
	a.Rename = sequence(renames, names)
	return a, nil
}

// matcher finds out which column of a table is which of a schema.
type matcher struct {
	table []Held
	from  *record.Schema // nil: not known
	to    *record.Schema
	diff  record.Difference
	of    []int // by column of the schema: the table's; -1: none
	by    []int // by column of the table: the schema's; -1: none
}

func (m *matcher) match(i, h int) { m.of[i], m.by[h] = h, i }

// find returns the table's column of this name that is not matched yet, or -1.
func (m *matcher) find(name string) int {
	return slices.IndexFunc(m.table, func(h Held) bool { return strings.EqualFold(h.Name, name) })
}

func (m *matcher) byID() {
	for i, f := range m.to.Columns.Fields() {
		id := record.IDOf(f)
		h := slices.IndexFunc(m.table, func(h Held) bool { return id != "" && h.ID == id })
		if h >= 0 && m.by[h] < 0 {
			m.match(i, h)
		}
	}
}

// byHistory follows renames of columns whose ids the table does not know.
func (m *matcher) byHistory() {
	for _, r := range m.diff.Renamed {
		i, h := m.to.Column(r.To), m.find(r.From)
		if m.of[i] >= 0 || h < 0 || m.by[h] >= 0 || m.table[h].ID != "" {
			continue
		}
		if m.find(r.To) < 0 || m.has(m.from, r.To) { // else the table has both names: it was done before
			m.match(i, h)
		}
	}
}

// byName takes columns by their names, but not one that is another one's by what is known.
func (m *matcher) byName() {
	for i, f := range m.to.Columns.Fields() {
		h := m.find(f.Name)
		if m.of[i] >= 0 || h < 0 || m.by[h] >= 0 {
			continue
		}
		id := record.IDOf(f)
		if id != "" && m.table[h].ID != "" {
			continue // another column that had the name
		}
		if m.table[h].ID == "" && slices.Contains(m.diff.Added, f.Name) && m.has(m.from, f.Name) {
			continue // likewise
		}
		m.match(i, h)
	}
}

func (*matcher) has(s *record.Schema, name string) bool {
	return s != nil && slices.ContainsFunc(s.Names(), func(n string) bool { return strings.EqualFold(n, name) })
}

// drops lists what the source dropped, and what stands in the way of a column that takes its name.
func (m *matcher) drops() ([]string, error) {
	gone := make([]bool, len(m.table))
	for _, name := range m.diff.Dropped {
		id := record.IDOf(m.from.Columns.Field(m.from.Column(name)))
		for h, c := range m.table {
			byID := id != "" && c.ID == id
			if m.by[h] < 0 && (byID || c.ID == "" && strings.EqualFold(c.Name, name)) {
				gone[h] = true
			}
		}
	}
	for i, f := range m.to.Columns.Fields() {
		h := m.find(f.Name)
		if h < 0 || m.by[h] >= 0 || gone[h] {
			continue
		}
		if m.table[h].ID == "" && m.of[i] >= 0 {
			was := m.table[m.of[i]].Name
			return nil, fmt.Errorf("column %q is renamed to %q, and the table has another column of this name", was, f.Name)
		}
		gone[h] = true
	}
	var out []string
	for h, c := range m.table {
		if gone[h] {
			out = append(out, c.Name)
		}
	}
	return out, nil
}

// sequence orders renames so that each new name is free when its turn comes; a ring of names is broken by a name in between.
func sequence(renames []record.Renamed, names []string) []record.Renamed {
	var out []record.Renamed
	taken := func(name string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	}
	do := func(r record.Renamed) {
		names = slices.DeleteFunc(names, func(n string) bool { return n == r.From })
		names = append(names, r.To)
		out = append(out, r)
	}
	for len(renames) > 0 {
		i := slices.IndexFunc(renames, func(r record.Renamed) bool { return !taken(r.To) })
		if i < 0 { // all wait for each other
			between := "_leat_" + renames[0].From
			for taken(between) {
				between += "_"
			}
			do(record.Renamed{From: renames[0].From, To: between})
			renames[0].From = between
			continue
		}
		do(renames[i])
		renames = slices.Delete(renames, i, i+1)
	}
	return out
}

// Holds returns what the table has behind the alteration, with the ids of the new schema. Columns that are neither in it nor dropped
// stay as they were.
func (a Alteration) Holds(table []Held, to *record.Schema) []Held {
	var out []Held
	for _, f := range to.Columns.Fields() {
		out = append(out, Held{Name: f.Name, ID: record.IDOf(f)})
	}
	for _, h := range table {
		if !slices.Contains(a.Drop, h.Name) && !slices.Contains(a.Held, h.Name) {
			out = append(out, h)
		}
	}
	return out
}
