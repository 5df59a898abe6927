package mysql

import (
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/mybinlog"
	"github.com/leatdata/leat/record"
)

// maxGroupBytes bounds what is collected where the caller sets no limit.
const maxGroupBytes = 16 << 20

// transaction is one whose changes are being read.
type transaction struct {
	gtid  mybinlog.GTID
	place place // within it
	time  time.Time
	at    int // in the group; -1: it has no change there
}

// txnEnd is where a transaction ends, or where nothing happened.
type txnEnd struct {
	gtids []byte // all transactions up to here, in the server's form
	gtid  mybinlog.GTID
	place place
	time  time.Time
}

// group is whole transactions that are handed over together, one batch for each dataset; or a piece of one that is too large for that.
type group struct {
	parts  []*part
	places []txnEnd // of the transactions that have changes here
	rows   int
	bytes  int64
	atEnd  struct { // of the last whole transaction
		rows  int
		bytes int64
	}
	largest struct { // of the transactions so far
		rows  int
		bytes int64
	}
	whole bool // it holds at least one transaction to its end
	end   txnEnd
}

// part is a batch under way.
type part struct {
	dataset  *streamDataset
	schema   *record.Schema
	rows     *logRows // nil: they were taken already, or there are none
	taken    *record.Batch
	gone     []int // rows of it that were set aside
	truncate bool
	runs     []run
}

// run is the rows of one transaction in a part.
type run struct {
	rows int
	txn  int // in the group's places
}

// limits makes sense of what the caller wants.
func limits(want connector.Limit) connector.Limit {
	if want.Bytes <= 0 {
		want.Bytes = maxGroupBytes
	}
	return want
}

// full reports that no other change fits.
func (g *group) full(want connector.Limit) bool {
	return (want.Rows > 0 && g.rows >= want.Rows) || g.bytes >= want.Bytes
}

// enough reports that another transaction as large as the largest so far would not fit: it is better to end in front of it than
// within it.
func (g *group) enough(want connector.Limit) bool {
	return (want.Rows > 0 && g.rows+g.largest.rows > want.Rows) || g.bytes+g.largest.bytes > want.Bytes
}

// finish notes the end of a transaction.
func (g *group) finish(t *transaction, end txnEnd) {
	if t.at >= 0 {
		g.places[t.at] = end
	}
	g.whole, g.end = true, end
	g.largest.rows = max(g.largest.rows, g.rows-g.atEnd.rows)
	g.largest.bytes = max(g.largest.bytes, g.bytes-g.atEnd.bytes)
	g.atEnd.rows, g.atEnd.bytes = g.rows, g.bytes
}

// part returns the batch under way of a dataset.
func (g *group) part(d *streamDataset) *part {
	if d.part == nil {
		d.part = &part{dataset: d, schema: d.schema, rows: d.rows}
		g.parts = append(g.parts, d.part)
	}
	return d.part
}

// seal ends the batch under way of a dataset; the next change begins another one.
func (f *stream) seal(d *streamDataset) error {
	if d.part == nil {
		return nil
	}
	err := f.takePart(d.part)
	d.part = nil
	return err
}

// takePart makes a batch of what was collected. Runs lose the rows that were set aside.
func (f *stream) takePart(p *part) (err error) {
	if p.rows == nil {
		return nil
	}
	if p.taken, p.gone, err = p.rows.take(); err != nil {
		return err
	}
	f.zeros += p.rows.zeros
	p.rows.zeros = 0
	p.rows = nil
	from := 0
	for i := range p.runs {
		to := from + p.runs[i].rows
		low, _ := slices.BinarySearch(p.gone, from)
		high, _ := slices.BinarySearch(p.gone, to)
		p.runs[i].rows -= high - low
		from = to
	}
	return nil
}

// touch makes t the transaction of the part's next rows.
func (g *group) touch(p *part, t *transaction) *run {
	if t.at < 0 {
		t.at = len(g.places)
		g.places = append(g.places, txnEnd{gtid: t.gtid, place: t.place, time: t.time}) // where it ends is not known yet
	}
	if n := len(p.runs); n == 0 || p.runs[n-1].txn != t.at {
		p.runs = append(p.runs, run{txn: t.at})
	}
	return &p.runs[len(p.runs)-1]
}

// take returns the batches, in the order of their first changes, without positions, and leaves the group empty.
func (f *stream) take() ([]*record.Batch, error) {
	g := &f.group
	positions := make([]record.Position, len(g.places))
	for i, p := range g.places {
		positions[i] = f.code.encode(p.gtids, p.gtid, p.place, false)
	}
	out := make([]*record.Batch, 0, len(g.parts)+1)
	for _, p := range g.parts {
		if err := f.takePart(p); err != nil {
			return nil, err
		}
		b := p.taken
		if b == nil {
			b = &record.Batch{Schema: p.schema}
		}
		b.Truncate = p.truncate
		if len(p.runs) > 0 {
			b.Txns = make([]record.Txn, len(p.runs))
		}
		for i, r := range p.runs {
			b.Txns[i] = record.Txn{Rows: r.rows, Position: positions[r.txn], Time: g.places[r.txn].time}
		}
		if p.dataset.part == p {
			p.dataset.part = nil
		}
		out = append(out, b)
	}
	*g = group{parts: g.parts[:0], places: g.places[:0]}
	return out, nil
}
