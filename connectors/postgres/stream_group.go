package postgres

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgoutput"
	"github.com/leatdata/leat/record"
)

// maxGroupBytes bounds what is collected where the caller sets no limit.
const maxGroupBytes = 16 << 20

// transaction is one whose changes are being read.
type transaction struct {
	id      uint64
	lsn     lsn // of its end; before that is known, a place within its commit record
	time    time.Time
	foreign bool // replicated to the server from elsewhere, and not wanted
	at      int  // in the group; -1: it has no change there
}

// txnEnd is where a transaction ends.
type txnEnd struct {
	lsn  lsn
	xid  uint64
	time time.Time
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
	rows     *pgoutput.Rows // nil: they were taken already, or there are none
	taken    *record.Batch
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

// full reports that a change of size bytes does not fit any more.
func (g *group) full(want connector.Limit, size int) bool {
	return (want.Rows > 0 && g.rows >= want.Rows) || (g.rows > 0 && g.bytes+int64(size) > want.Bytes)
}

// enough reports that another transaction as large as the largest so far would not fit: it is better to end in front of it than
// within it.
func (g *group) enough(want connector.Limit) bool {
	return (want.Rows > 0 && g.rows+g.largest.rows > want.Rows) || g.bytes+g.largest.bytes > want.Bytes
}

// finish notes the end of a transaction.
func (g *group) finish(t *transaction) {
	if t.at >= 0 {
		g.places[t.at].lsn = t.lsn
	}
	g.whole, g.end = true, txnEnd{lsn: t.lsn, xid: t.id, time: t.time}
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
func (d *streamDataset) seal() {
	if d.part == nil {
		return
	}
	d.part.take()
	d.part = nil
}

func (p *part) take() {
	if p.rows != nil {
		p.taken, p.rows = p.rows.Take(), nil
	}
}

// touch makes t the transaction of the part's next rows.
func (g *group) touch(p *part, t *transaction) *run {
	if t.at < 0 {
		t.at = len(g.places)
		g.places = append(g.places, txnEnd{lsn: t.lsn, xid: t.id, time: t.time})
	}
	if n := len(p.runs); n == 0 || p.runs[n-1].txn != t.at {
		p.runs = append(p.runs, run{txn: t.at})
	}
	return &p.runs[len(p.runs)-1]
}

// take returns the batches, in the order of their first changes, without positions, and leaves the group empty.
func (g *group) take(code *positionCode) []*record.Batch {
	positions := code.encodeAll(g.places)
	out := make([]*record.Batch, 0, len(g.parts)+1)
	for _, p := range g.parts {
		p.take()
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
	return out
}

// positionCode makes positions of one stream, with the same bytes as streamPosition.encode.
type positionCode struct {
	origin origin
	tail   string // what all of them end with
}

func newPositionCode(o origin) *positionCode {
	doc, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("postgres: encoding an origin: %v", err)) // strings and numbers always marshal
	}
	return &positionCode{origin: o, tail: "," + string(doc[1:])}
}

func (c *positionCode) append(dst []byte, p txnEnd) []byte {
	dst = append(dst, `{"lsn":"`...)
	dst = appendHex(dst, uint64(p.lsn)>>32)
	dst = append(dst, '/')
	dst = append(appendHex(dst, uint64(uint32(p.lsn))), '"')
	if p.xid != 0 {
		dst = strconv.AppendUint(append(dst, `,"xid":`...), p.xid, 10)
	}
	return append(dst, c.tail...)
}

// appendHex appends upper-case digits without leading zeros.
func appendHex(dst []byte, v uint64) []byte {
	const digits = "0123456789ABCDEF"
	shift := 0
	for v>>shift > 15 {
		shift += 4
	}
	for ; shift >= 0; shift -= 4 {
		dst = append(dst, digits[v>>shift&15])
	}
	return dst
}

func (c *positionCode) encode(p txnEnd) record.Position {
	return record.Position{Shape: streamShape, Data: c.append(nil, p)}
}

// encodeAll makes many positions in one buffer.
func (c *positionCode) encodeAll(places []txnEnd) []record.Position {
	out := make([]record.Position, len(places))
	buf := make([]byte, 0, len(places)*(len(c.tail)+48))
	for i, p := range places {
		from := len(buf)
		buf = c.append(buf, p)
		out[i] = record.Position{Shape: streamShape, Data: json.RawMessage(buf[from:len(buf):len(buf)])}
	}
	return out
}
