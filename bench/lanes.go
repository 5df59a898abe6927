package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/jetstream"
	"github.com/leatdata/leat/record"
)

// laneRows is how many rows a batch has that goes through the lanes.
const laneRows = 8192

// lanesSynced writes batches to durable lanes and takes them out again, all of which is on the disk before it counts.
func lanesSynced() job {
	return job{
		name: "lanes-synced", title: "Durable lanes", rows: 10_000_000,
		note: "Batches of 8,192 rows are published, stored and synced, delivered and acknowledged, in one process; MB are those of " +
			"the columns in " +
			"memory. `dd` writes as many bytes in blocks of 256 KiB, each synced.",
		prepare: func(_ context.Context, e *jobEnv) (string, error) {
			e.rows = max(1, e.rows/laneRows) * laneRows
			return fmt.Sprintf("%s rows, 3 columns, %.0f MB", count(e.rows), float64(laneBytes(e.rows))/1e6), nil
		},
		contenders: func(e jobEnv) []contender {
			out := e.dir + "/lanes"
			return []contender{
				{
					name: "dd, oflag=dsync", limit: true, reset: "rm -f " + e.dir + "/dd",
					command: fmt.Sprintf("dd if=/dev/zero of=%s/dd bs=256K count=%d oflag=dsync", e.dir, 1+laneBytes(e.rows)>>18),
				},
				{
					name: "leat's lanes", reset: "rm -rf " + out, command: fmt.Sprintf("%s lanes -dir %s -rows %d > %s.said", e.self,
						out, e.rows, out),
					verify: func(context.Context, string) error { return laneSum(out+".said", e.rows) },
				},
			}
		},
		measure: func(ctx context.Context, e jobEnv, c contender) (measured, error) {
			m, err := measure(ctx, e, c)
			m.Extra = map[string]float64{"mb_per_second": float64(laneBytes(e.rows)) / 1e6 / m.Wall}
			return m, err
		},
	}
}

// laneBytes is what rows of laneBatch weigh.
func laneBytes(rows int64) int64 { return rows / laneRows * laneBatch(0).Bytes() }

// laneBatch makes one batch: numbers, and a text of 80 bytes.
func laneBatch(from int64) *record.Batch {
	columns := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "n", Type: arrow.PrimitiveTypes.Float64},
		{Name: "text", Type: arrow.BinaryTypes.String},
	}, nil)
	id, n, text := array.NewInt64Builder(memory.DefaultAllocator), array.NewFloat64Builder(memory.DefaultAllocator),
		array.NewStringBuilder(memory.DefaultAllocator)
	for i := from; i < from+laneRows; i++ {
		id.Append(i)
		n.Append(float64(i) / 7)
		text.Append(fmt.Sprintf("%080d", i*7919))
	}
	rows := array.NewRecordBatch(columns, []arrow.Array{id.NewArray(), n.NewArray(), text.NewArray()}, laneRows)
	return &record.Batch{Schema: &record.Schema{Dataset: "t", Columns: columns, Key: []int{0}}, Rows: rows, Changes: laneRows}
}

// runLanes moves rows through durable lanes, and says how many arrived and the sum of their ids.
func runLanes(ctx context.Context, dir string, rows int64, out io.Writer) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d, err := jetstream.Open(ctx, jetstream.Config{Dir: dir}, lane.Spec{Pipeline: "bench", Run: "r", Sinks: []string{"sink"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Release()) }()
	type arrived struct {
		rows, sum int64
		err       error
	}
	done := make(chan arrived, 1)
	go func() {
		a := arrived{}
		a.rows, a.sum, a.err = receive(ctx, d)
		done <- a
	}()
	batch := laneBatch(0) // made once: what is measured is the lanes
	for at := int64(0); at < rows; at += laneRows {
		b := *batch
		b.Position = record.Position{Shape: 1, Data: json.RawMessage(strconv.FormatInt(at, 10))}
		if err := d.Publish(ctx, lane.Batch{Batch: &b}); err != nil {
			return err
		}
	}
	if err := d.Close(); err != nil {
		return err
	}
	a := <-done
	_, err = fmt.Fprintln(out, a.rows, a.sum)
	return errors.Join(a.err, err)
}

// receive takes all that comes out of the lane.
func receive(ctx context.Context, d lane.Durable) (rows, sum int64, err error) {
	l, err := d.Lane("sink")
	if err != nil {
		return 0, 0, err
	}
	for {
		x, err := l.Receive(ctx)
		if errors.Is(err, io.EOF) {
			return rows, sum, nil
		}
		if err != nil {
			return 0, 0, err
		}
		if b, ok := x.Item().(lane.Batch); ok {
			rows += b.Batch.Rows.NumRows()
			if ids, ok := b.Batch.Rows.Column(0).(*array.Int64); ok {
				for _, id := range ids.Int64Values() {
					sum += id
				}
			}
		}
		if err := x.Ack(); err != nil {
			return 0, 0, err
		}
	}
}

// laneSum says whether all rows came out.
func laneSum(path string, rows int64) error {
	said, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return err
	}
	want := fmt.Sprint(rows, " ", rows/laneRows*(laneRows*(laneRows-1)/2))
	if strings.TrimSpace(string(said)) != want {
		return fmt.Errorf("rows and sum of ids are %s, not %s", said, want)
	}
	return nil
}
