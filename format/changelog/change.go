package changelog

import (
	"fmt"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/record"
)

// Op is what happened, as the letter that logs hold.
type Op byte

// The operations.
const (
	Read     Op = 'r' // a row that was there when the dataset was read; it is no change
	Insert   Op = 'c'
	Update   Op = 'u'
	Upsert   Op = 'm' // insert or update: the source can't tell
	Delete   Op = 'd'
	Truncate Op = 't' // the dataset was emptied
)

// Change is one change of a batch. It is valid as long as the batch.
type Change struct {
	Batch *record.Batch
	Op    Op
	Row   int         // in the batch; -1 for Truncate
	Txn   *record.Txn // the source transaction; nil: a row that was read
}

// Count returns how many changes a batch holds: its rows, and the truncation in front of them.
func Count(b *record.Batch) int {
	if b.Truncate {
		return b.NumRows() + 1
	}
	return b.NumRows()
}

// Check reports whether the transactions of a batch account for all its rows, as every batch of changes promises.
func Check(b *record.Batch) error {
	n := 0
	for i := range b.Txns {
		n += b.Txns[i].Rows
	}
	if b.Txns != nil && n != b.NumRows() {
		return fmt.Errorf("a batch of %s has %d rows, and its transactions have %d", b.Schema.Dataset, b.NumRows(), n)
	}
	return nil
}

// Changes yields the changes of a batch that Check accepts, in order. A truncation comes first and belongs to the first transaction.
func Changes(b *record.Batch) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		if b.Truncate {
			c := Change{Batch: b, Op: Truncate, Row: -1}
			if len(b.Txns) > 0 {
				c.Txn = &b.Txns[0]
			}
			if !yield(c) {
				return
			}
		}
		txn, left := -1, 0
		for i := range b.NumRows() {
			c := Change{Batch: b, Op: opOf(b, i), Row: i}
			for left == 0 && txn+1 < len(b.Txns) {
				txn++
				left = b.Txns[txn].Rows
			}
			if txn >= 0 {
				c.Txn = &b.Txns[txn]
				left--
			}
			if !yield(c) {
				return
			}
		}
	}
}

// opOf is the operation of row i. Rows of chunks, and of reads that know neither operations nor transactions, are no changes.
func opOf(b *record.Batch, i int) Op {
	if b.Chunk != nil || (b.Ops == nil && b.Txns == nil) {
		return Read
	}
	switch b.Op(i) {
	case record.Update:
		return Update
	case record.Upsert:
		return Upsert
	case record.Delete:
		return Delete
	default:
		return Insert
	}
}

// Extent is how much of a row is known.
type Extent uint8

// The extents.
const (
	Nothing Extent = iota
	Key            // the key columns
	Whole          // every column
)

// Before returns what is known of the row before the change: row c.Row of the result, to the given extent. A source that sends nothing
// but keys can't be told from one whose other columns are all NULL: such a row is known by its key.
func (c Change) Before() (arrow.RecordBatch, Extent) {
	switch {
	case c.Op == Delete:
		return c.Batch.Rows, max(Key, extent(c.Batch.Rows, c.Batch.Schema, c.Row))
	case (c.Op == Update || c.Op == Upsert) && c.Batch.Old != nil:
		if e := extent(c.Batch.Old, c.Batch.Schema, c.Row); e != Nothing {
			return c.Batch.Old, e
		}
	}
	return nil, Nothing
}

// After returns the row after the change, which is row c.Row of the result; nil: there is none.
func (c Change) After() arrow.RecordBatch {
	if c.Op == Delete || c.Op == Truncate {
		return nil
	}
	return c.Batch.Rows
}

// extent finds out which part of a row has values. Without a key a row is known only as a whole.
func extent(rows arrow.RecordBatch, s *record.Schema, i int) Extent {
	if len(s.Key) == 0 {
		return Whole
	}
	e := Nothing
	for _, k := range s.Key {
		if !rows.Column(k).IsNull(i) {
			e = Key
		}
	}
	for n, c := range rows.Columns() {
		if !c.IsNull(i) && !slices.Contains(s.Key, n) {
			return Whole
		}
	}
	return e
}
