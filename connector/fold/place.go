package fold

import "slices"

// Place says where a value stands: a row of the batch, the image before a row, or, OwnValue, in the target.
type Place int

// OwnValue marks a column whose value is the one that the target has.
const OwnValue Place = -1

// imageBefore is the image before row i.
func imageBefore(i int) Place { return Place(-2 - i) }

// Row returns the row of the batch, and whether the image before it is meant. OwnValue has none.
func (p Place) Row() (i int, old bool) {
	if p < OwnValue {
		return int(-2 - p), true
	}
	return int(p), false
}

// Key is where a key stands in a batch: in a row, or in the image before it.
type Key struct {
	Row int
	Old bool
}

// Change is what a run of a batch's rows does to one row of the target, in all. It is valid until the next fold in the same [Room].
type Change struct {
	Key    Key
	Last   int     // the row that decided it
	Gone   bool    // there is no row of this key in the end
	Values []Place // where the value of each sent column stands; nil: all in Last
	Origin *Key    // the key under which the target has the row; nil: the row is new
	From   string  // the id of that key
	ID     string  // the id of its key now
	There  bool    // an update says that the target has the row
	Own    bool    // Origin is the row's own key
	Again  bool    // the target's row of this key went away before: this one does not continue it

	moved bool // it had another key
}

// Partial reports whether the target holds some of the values.
func (c *Change) Partial() bool { return slices.Contains(c.Values, OwnValue) }

// Value returns where the value of a sent column stands.
func (c *Change) Value(n int) Place {
	if c.Values == nil {
		return Place(c.Last)
	}
	return c.Values[n]
}

// Patterns numbers the sets of columns that changes have values of their own for, from 1. The zero value is empty.
type Patterns struct {
	Own [][]bool // by number - 1

	number map[string]int
}

// Of returns the number of a change's pattern; columns is how many are sent.
func (p *Patterns) Of(ch *Change, columns int) int {
	key := make([]byte, columns)
	own := make([]bool, columns)
	for i := range own {
		if own[i] = ch.Value(i) != OwnValue; own[i] {
			key[i] = 1
		}
	}
	n, ok := p.number[string(key)]
	if !ok {
		p.Own = append(p.Own, own)
		n = len(p.Own)
		if p.number == nil {
			p.number = map[string]int{}
		}
		p.number[string(key)] = n
	}
	return n
}
