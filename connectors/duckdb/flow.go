//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

const (
	flowAhead = 2        // batches that wait for DuckDB: it reads on another thread
	flowBytes = 48 << 20 // more rows are another statement: DuckDB keeps a row group in memory, however wide it is
)

// flow is one INSERT that is fed batch by batch. DuckDB writes the whole row groups of a statement straight into the file; the rest of
// each statement goes through its log, and is written once more by a checkpoint. So one long statement costs half of many short ones.
type flow struct {
	set     *set
	bytes   int64 // of the rows so far
	batches chan arrow.RecordBatch
	done    chan struct{} // closed when the statement has ended
	cancel  context.CancelFunc
	err     error // of the statement, once done
}

// pour inserts one batch of x, of so many bytes. A flow that is open is fed; errors of the statement come with a later batch, or from
// settle.
func (d *db) pour(ctx context.Context, x *set, rb arrow.RecordBatch, bytes int64) error {
	if d.flow != nil && (d.flow.set != x || d.flow.bytes+bytes > flowBytes) {
		if err := d.settle(ctx); err != nil {
			return err
		}
	}
	if d.flow == nil {
		if err := d.begin(ctx, x, rb.Schema()); err != nil {
			return err
		}
	}
	d.flow.bytes += bytes
	select {
	case d.flow.batches <- rb:
		return nil
	case <-d.flow.done: // it fails before its end, if at all
		return d.settle(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin opens a flow: the statement runs on a goroutine that settle and abandon wait for.
func (d *db) begin(ctx context.Context, x *set, schema *arrow.Schema) error {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flow{set: x, batches: make(chan arrow.RecordBatch, flowAhead), done: make(chan struct{}), cancel: cancel}
	release, err := d.arrow.RegisterView(&feed{ctx: run, schema: schema, from: f.batches}, viewName)
	if err != nil {
		cancel()
		return wrap(err, "inserting rows", x.dataset, "")
	}
	d.roundtrip("exec")
	d.flow = f
	sql := x.insertSQL() // as it is now: the set may get other columns before the statement ends
	go func() {
		defer close(f.done)
		defer release()
		_, f.err = d.conn.ExecContext(run, sql, nil)
	}()
	return nil
}

// settle ends the flow that is open, if any: every statement does so first, as a connection runs one at a time.
func (d *db) settle(ctx context.Context) error {
	f := d.flow
	if f == nil {
		return nil
	}
	d.flow = nil
	close(f.batches)
	defer f.cancel()
	select {
	case <-f.done:
	case <-ctx.Done():
		f.cancel()
		<-f.done
	}
	return wrap(f.err, "inserting rows", f.set.dataset, "")
}

// abandon ends the flow that is open without its rows.
func (d *db) abandon() {
	if d.flow == nil {
		return
	}
	d.flow.cancel()
	<-d.flow.done
	d.flow = nil
}

// feed is the reader that DuckDB gets batches from; only DuckDB's thread uses it.
type feed struct {
	ctx    context.Context //nolint:containedctx // DuckDB calls without one
	schema *arrow.Schema
	from   <-chan arrow.RecordBatch
	now    arrow.RecordBatch
	err    error
}

var _ array.RecordReader = (*feed)(nil)

func (*feed) Retain()  {}
func (*feed) Release() {}

// Schema implements array.RecordReader.
func (f *feed) Schema() *arrow.Schema { return f.schema }

// Next implements array.RecordReader: it waits for the next batch.
func (f *feed) Next() bool {
	if f.err != nil {
		return false
	}
	select {
	case <-f.ctx.Done():
		f.err = fmt.Errorf("duckdb: rows were given up: %w", context.Cause(f.ctx))
		return false
	case rb, ok := <-f.from:
		f.now = rb
		return ok
	}
}

// RecordBatch implements array.RecordReader.
func (f *feed) RecordBatch() arrow.RecordBatch { return f.now }

// Record implements array.RecordReader.
//
// Deprecated: as in the interface.
func (f *feed) Record() arrow.RecordBatch { return f.now }

// Err implements array.RecordReader.
func (f *feed) Err() error { return f.err }
