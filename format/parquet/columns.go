package parquet

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// mostWorkers bounds how many columns are encoded at the same time.
const mostWorkers = 4

// columns writes the columns of a file. A row group begins with the first rows that it has, so that none is empty.
type columns interface {
	// write appends the same rows of n columns to the open row group; column makes each of them, on any goroutine.
	write(n int, column func(i int) (arrow.Array, error)) error
	// endGroup ends the open row group.
	endGroup() error
	close() error
	AppendKeyValueMetadata(key, value string) error
}

// flatColumns writes files without nested columns, several columns at a time: those of a row group share nothing before the group ends.
// The library's writer of Arrow data takes one after the other. How many there are at a time changes nothing in the file.
type flatColumns struct {
	file   *file.Writer
	group  file.BufferedRowGroupWriter // nil: none is open
	levels [][]int16                   // of the column that a worker encodes; a worker for each
}

// newFlatColumns begins a file; metadata are added to it before it is closed.
func newFlatColumns(stored *arrow.Schema, w io.Writer, props *parquet.WriterProperties) (*flatColumns, error) {
	tree, err := pqarrow.ToParquet(stored, props, pqarrow.NewArrowWriterProperties())
	if err != nil {
		return nil, err //nolint:wrapcheck // begin wraps it
	}
	meta := metadata.KeyValueMetadata{}
	arrows := flight.SerializeSchema(stored, memory.DefaultAllocator)
	if err := meta.Append(arrowSchemaKey, base64.StdEncoding.EncodeToString(arrows)); err != nil {
		return nil, err //nolint:wrapcheck // begin wraps it
	}
	out, err := file.NewParquetWriterWithError(w, tree.Root(), file.WithWriterProps(props), file.WithWriteMetadata(meta))
	if err != nil {
		return nil, err //nolint:wrapcheck // begin wraps it
	}
	return &flatColumns{file: out, levels: make([][]int16, min(runtime.GOMAXPROCS(0), mostWorkers, stored.NumFields()))}, nil
}

// AppendKeyValueMetadata adds to the file's metadata.
func (f *flatColumns) AppendKeyValueMetadata(key, value string) error {
	return f.file.AppendKeyValueMetadata(key, value) //nolint:wrapcheck // begin wraps it
}

func (f *flatColumns) write(n int, column func(i int) (arrow.Array, error)) error {
	if f.group == nil {
		group, err := f.file.AppendBufferedRowGroupChecked()
		if err != nil {
			return fmt.Errorf("beginning a row group: %w", err)
		}
		f.group = group
	}
	return f.each(n, func(worker, i int) error {
		values, err := column(i)
		if err != nil {
			return err
		}
		out, err := f.group.Column(i)
		if err != nil {
			return err //nolint:wrapcheck // it does not happen
		}
		return f.encode(worker, out, values)
	})
}

// each calls do for the columns 0 to n-1, from all workers, and returns when they are done. The error is that of the first column that
// has one; a panic goes on in the caller.
func (f *flatColumns) each(n int, do func(worker, i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var panicked atomic.Value
	work := func(worker int) {
		defer func() {
			if p := recover(); p != nil {
				panicked.Store(fmt.Sprintf("%v\n%s", p, debug.Stack()))
			}
		}()
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			errs[i] = do(worker, i)
		}
	}
	var wait sync.WaitGroup
	for worker := 1; worker < len(f.levels); worker++ {
		wait.Go(func() { work(worker) })
	}
	work(0)
	wait.Wait()
	if p := panicked.Load(); p != nil {
		panic(p)
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// encode appends values to a column of the open row group.
func (f *flatColumns) encode(worker int, out file.ColumnChunkWriter, values arrow.Array) error {
	var defined []int16
	optional := out.Descr().MaxDefinitionLevel() > 0
	if optional {
		f.levels[worker] = appendDefined(f.levels[worker][:0], values)
		defined = f.levels[worker]
	}
	ctx := pqarrow.NewArrowWriteContext(context.Background(), nil)              //nolint:forbidigo // nothing waits for it
	return pqarrow.WriteArrowToColumn(ctx, out, values, defined, nil, optional) //nolint:wrapcheck // the writer wraps it
}

// appendDefined appends the definition levels of a column that may be null: 1 where there is a value.
func appendDefined(levels []int16, values arrow.Array) []int16 {
	for range values.Len() {
		levels = append(levels, 1)
	}
	if values.NullN() > 0 {
		for i := range levels {
			if values.IsNull(i) {
				levels[i] = 0
			}
		}
	}
	return levels
}

func (f *flatColumns) endGroup() error {
	if f.group == nil {
		return nil
	}
	group := f.group
	f.group = nil
	return group.Close() //nolint:wrapcheck // the writer wraps it
}

func (f *flatColumns) close() error {
	if err := f.endGroup(); err != nil {
		return err
	}
	return f.file.Close() //nolint:wrapcheck // the writer wraps it
}

// nestedColumns writes files with nested columns by the library's writer of Arrow data, which works out their levels.
type nestedColumns struct {
	*pqarrow.FileWriter
	stored *arrow.Schema
	ended  bool // the next rows begin a row group
}

func newNestedColumns(stored *arrow.Schema, w io.Writer, props *parquet.WriterProperties) (*nestedColumns, error) {
	fw, err := pqarrow.NewFileWriter(stored, w, props, pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	return &nestedColumns{FileWriter: fw, stored: stored}, err //nolint:wrapcheck // begin wraps it
}

func (w *nestedColumns) write(n int, column func(i int) (arrow.Array, error)) error {
	cols := make([]arrow.Array, n)
	for i := range cols {
		var err error
		if cols[i], err = column(i); err != nil {
			return err
		}
	}
	if w.ended {
		w.ended = false
		if err := w.NewBufferedRowGroupChecked(); err != nil {
			return fmt.Errorf("ending a row group: %w", err)
		}
	}
	return w.WriteBuffered(array.NewRecordBatch(w.stored, cols, int64(cols[0].Len()))) //nolint:wrapcheck // the writer wraps it
}

func (w *nestedColumns) endGroup() error {
	w.ended = true
	return nil
}

func (w *nestedColumns) close() error { return w.Close() } //nolint:wrapcheck // the writer wraps it
