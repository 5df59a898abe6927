package fold

import (
	"cmp"
	"slices"
	"strings"
)

// Room is what folds work with; the next one takes it over. The zero value is ready. It serves one fold at a time.
type Room struct {
	at      map[string]*slot
	slots   []*slot
	rooms   arena[slot]
	places  arena[Change]
	slab    int    // how many slots or changes are allocated at a time
	ids     []byte // of the rows, one behind the other
	ends    []int  // where they end
	out     []*Change
	sorting []sortedChange
}

// slot is what stands under one key. With full images, and under a constraint that the source defers, two rows may have the same key
// for a moment; then the image says which of them is meant.
type slot struct {
	key   Key
	id    string
	last  int       // the row that touched it last
	taken bool      // the target's row of this key went away, or goes on as one of the live ones
	live  []*Change // the batch's rows that have the key now
	lost  int       // rows of this key that the target had to give up in an earlier batch of this transaction

	one [1]*Change // room for live, which has seldom more
}

// maxSlab is how many slots or changes are allocated at a time, at most.
const maxSlab = 64

// arena hands out values that stay where they are, and takes all of them back at once.
type arena[T any] struct {
	pages    [][]T
	page, at int
}

// next returns a zero value; slab is how many are allocated where none is left.
func (p *arena[T]) next(slab int) *T {
	if p.page < len(p.pages) && p.at == len(p.pages[p.page]) {
		p.page, p.at = p.page+1, 0
	}
	if p.page == len(p.pages) {
		p.pages = append(p.pages, make([]T, slab))
	}
	v := &p.pages[p.page][p.at]
	p.at++
	*v = *new(T)
	return v
}

func (p *arena[T]) takeBack() { p.page, p.at = 0, 0 }

// begin takes back what the fold before handed out.
func (r *Room) begin(rows int) {
	if r.at == nil {
		r.at = make(map[string]*slot, rows)
	}
	clear(r.at)
	r.rooms.takeBack()
	r.places.takeBack()
	r.slots, r.out, r.slab = r.slots[:0], r.out[:0], min(max(rows, 1), maxSlab)
}

// sortedChange is a change and the beginning of its key.
type sortedChange struct {
	prefix uint64
	ch     *Change
}

// sort puts changes in the order of prefixes, and then of ids.
func (r *Room) sort(changes []*Change, prefix func(*Change) uint64) {
	r.sorting = r.sorting[:0]
	for _, ch := range changes {
		r.sorting = append(r.sorting, sortedChange{prefix(ch), ch})
	}
	slices.SortFunc(r.sorting, func(a, b sortedChange) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		return strings.Compare(a.ch.ID, b.ch.ID)
	})
	for i, s := range r.sorting {
		changes[i] = s.ch
	}
}
