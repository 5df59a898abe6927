package engine

import "github.com/leatdata/leat/record"

// grid cuts what is read of a dataset where the row groups of a sink end, so that its commits can do so too.
type grid struct {
	size    int // rows of a row group; 0: no sink has any
	dataset string
	rows    int // since the last cut
}

// gridFor is the grid of a run that ends: in one that goes on, changes are not kept waiting for others.
func gridFor(g *generation) grid {
	var out grid
	if !g.r.contract.Bounded {
		return out
	}
	for _, o := range g.r.offers {
		out.size = max(out.size, o.Contract.RowGroup)
	}
	return out
}

// limit is how many of so many rows lie in front of the next cut.
func (g *grid) limit(rows int) int {
	if g.size == 0 {
		return rows
	}
	return min(rows, g.size-g.rows)
}

// add counts what was read.
func (g *grid) add(b *record.Batch) {
	if g.size == 0 || b == nil || b.Schema == nil {
		return
	}
	if b.Schema.Dataset != g.dataset {
		g.dataset, g.rows = b.Schema.Dataset, 0
	}
	g.rows = (g.rows + b.NumRows()) % g.size
}

// groupStretch is how many times larger, and older, than others a commit may get that waits for the end of a row group.
const groupStretch = 3

// rowGroup is how many rows of a dataset the sink stores at once; 0: any number, or it does not matter.
func (d *deliverer) rowGroup() int64 {
	if !d.g.r.contract.Bounded || d.into == nil {
		return 0
	}
	return int64(d.offer.Contract.RowGroup)
}

// midGroup reports whether the sink would store the end of what it has got as a part of a row group.
func (d *deliverer) midGroup() bool {
	n := d.rowGroup()
	return n > 0 && d.into.given%n != 0
}

// stretched is a bound of a commit, or a larger one where the end of a row group is waited for.
func (d *deliverer) stretched(bound int64) int64 {
	if d.midGroup() {
		return groupStretch * bound
	}
	return bound
}

// full reports whether what was written is as much as a commit should have: so many bytes, or, for a sink with row groups, as many of
// those as have no more.
func (d *deliverer) full(size int64) bool {
	n := d.rowGroup()
	if n == 0 || d.midGroup() {
		return d.bytes >= d.stretched(size)
	}
	groups := max(d.into.given/n-d.into.before/n, 1) // none where it is a dataset without rows, behind another one
	return d.bytes+d.bytes/groups > size             // one more would be too much
}
