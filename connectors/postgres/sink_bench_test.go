package postgres

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

const benchRows = 8192

// as is a checked type assertion.
func as[T any](v any) T {
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("a %T", v)) // a mistake in the benchmark
	}
	return t
}

// benchBatches returns n batches of 10 columns whose ids count up by step, modulo mod.
func benchBatches(n, step, mod int) []*record.Batch {
	s := keyed("t", idField,
		arrow.Field{Name: "qty", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		arrow.Field{Name: "price", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		arrow.Field{Name: "amt", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}, Nullable: true},
		arrow.Field{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "code", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "ok", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		arrow.Field{Name: "ts", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
		arrow.Field{Name: "doc", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "uid", Type: record.UUIDType(), Nullable: true},
	)
	out := make([]*record.Batch, n)
	id := 0
	for k := range out {
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
		for range benchRows {
			i := int64(id%mod + 1)
			id += step
			as[*array.Int64Builder](b.Field(0)).Append(i)
			as[*array.Int32Builder](b.Field(1)).Append(int32(i % 1000))
			as[*array.Float64Builder](b.Field(2)).Append(float64(i) * 1.01)
			as[*array.Decimal128Builder](b.Field(3)).Append(decimal128.FromI64(i * 31))
			as[*array.StringBuilder](b.Field(4)).Append("customer name number " + strconv.FormatInt(i, 10))
			as[*array.StringBuilder](b.Field(5)).Append("C" + strconv.FormatInt(i%5000, 10))
			as[*array.BooleanBuilder](b.Field(6)).Append(i%3 == 0)
			as[*array.TimestampBuilder](b.Field(7)).Append(arrow.Timestamp(1_700_000_000_000_000 + i*1_000_000))
			as[*array.StringBuilder](b.Field(8)).Append(`{"k":` + strconv.FormatInt(i, 10) + `}`)
			u := as[interface{ StorageBuilder() array.Builder }](b.Field(9)).StorageBuilder()
			as[*array.FixedSizeBinaryBuilder](u).Append(fmt.Appendf(nil, "%016d", i))
		}
		out[k] = &record.Batch{Schema: s, Rows: b.NewRecordBatch()}
	}
	return out
}

// BenchmarkSinkAppend writes 2 million rows of 10 columns; its peer is one binary COPY of the same bytes on the same server.
func BenchmarkSinkAppend(b *testing.B) {
	const batches = 244
	all := benchBatches(batches, 1, 1<<40)
	for _, logged := range []string{"UNLOGGED", ""} {
		url := pgtest.Database(b)
		conn := pgtest.Conn(b, url)
		reset := func(b *testing.B) {
			b.Helper()
			sqlExec(b, conn, "DROP TABLE IF EXISTS public.t; CREATE "+logged+` TABLE public.t (id bigint NOT NULL, qty integer, price double precision, amt numeric(12,2), name text,
				code text, ok boolean, ts timestamptz, doc text, uid uuid)`)
			sqlExec(b, conn, "CHECKPOINT")
		}
		b.Run("leat/"+logged, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				reset(b)
				snk := startSink(b, sinkConfig(b, url), connector.Append, 1)
				b.StartTimer()
				for _, batch := range all {
					must(b, snk.Write(b.Context(), batch))
				}
				must(b, snk.Commit(b.Context(), position(1)))
			}
			b.ReportMetric(float64(batches*benchRows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
		b.Run("one COPY/"+logged, func(b *testing.B) {
			reset(b)
			snk := startSink(b, sinkConfig(b, url), connector.Append, 1)
			for _, batch := range all {
				must(b, snk.Write(b.Context(), batch))
			}
			must(b, snk.Commit(b.Context(), position(1)))
			var raw copied
			_, err := conn.PgConn().CopyTo(b.Context(), &raw, "COPY public.t TO STDOUT (FORMAT binary)")
			must(b, err)
			for b.Loop() {
				b.StopTimer()
				reset(b)
				b.StartTimer()
				_, err := conn.PgConn().CopyFrom(context.Background(), &copied{chunks: raw.chunks}, "COPY public.t FROM STDIN (FORMAT binary)")
				must(b, err)
			}
			b.ReportMetric(float64(batches*benchRows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// copied keeps a COPY's bytes in chunks, and gives them out again.
type copied struct {
	chunks [][]byte
	at     int
	off    int
}

func (c *copied) Write(p []byte) (int, error) {
	if n := len(c.chunks); n == 0 || len(c.chunks[n-1])+len(p) > cap(c.chunks[n-1]) {
		c.chunks = append(c.chunks, make([]byte, 0, max(1<<20, len(p))))
	}
	last := len(c.chunks) - 1
	c.chunks[last] = append(c.chunks[last], p...)
	return len(p), nil
}

func (c *copied) Read(p []byte) (int, error) {
	if c.at == len(c.chunks) {
		return 0, io.EOF
	}
	n := copy(p, c.chunks[c.at][c.off:])
	if c.off += n; c.off == len(c.chunks[c.at]) {
		c.at, c.off = c.at+1, 0
	}
	return n, nil
}

// BenchmarkSinkUpsert updates rows of a table of a million rows by batches of 8,192, each committed with its position.
func BenchmarkSinkUpsert(b *testing.B) {
	const keys = 1_000_000
	url := pgtest.Database(b)
	conn := pgtest.Conn(b, url)
	snk := startSink(b, sinkConfig(b, url), connector.Upsert, 1)
	for _, batch := range benchBatches(keys/benchRows+1, 1, keys) {
		must(b, snk.Write(b.Context(), batch))
	}
	must(b, snk.Commit(b.Context(), position(1)))
	sqlExec(b, conn, "VACUUM ANALYZE public.t")
	for name, step := range map[string]int{"in key order": 1, "random keys": 7_368_787} {
		batches := benchBatches(30, step, keys)
		for _, batch := range batches {
			batch.Ops = make([]record.Op, benchRows)
			for i := range batch.Ops {
				batch.Ops[i] = record.Update
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				must(b, snk.Write(b.Context(), batches[n%len(batches)]))
				must(b, snk.Commit(b.Context(), position(n)))
				n++
			}
			b.ReportMetric(float64(benchRows*b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(benchRows, "rows/op")
		})
	}
}

// BenchmarkSinkMicro commits a few changed rows of a table of a million, as a stream does that waits for nothing: with progress, and
// with the ledger of a snapshot that runs.
func BenchmarkSinkMicro(b *testing.B) {
	const keys = 1_000_000
	url := pgtest.Database(b)
	conn := pgtest.Conn(b, url)
	snk := startSink(b, sinkConfig(b, url), connector.Upsert, 1)
	for _, batch := range benchBatches(keys/benchRows+1, 1, keys) {
		must(b, snk.Write(b.Context(), batch))
	}
	must(b, snk.Commit(b.Context(), position(1)))
	sqlExec(b, conn, "VACUUM ANALYZE public.t")
	all := benchBatches(1, 7_368_787, keys)[0]
	for _, rows := range []int64{1, 10, 100, 300, 1000, 2000, 4000} {
		batches := make([]*record.Batch, 0, 64)
		for from := int64(0); from+rows <= benchRows && len(batches) < cap(batches); from += rows {
			batch := &record.Batch{Schema: all.Schema, Rows: all.Rows.NewSlice(from, from+rows), Ops: make([]record.Op, rows)}
			for i := range batch.Ops {
				batch.Ops[i] = record.Update
			}
			batches = append(batches, batch)
		}
		for _, ledger := range []string{"", "ledger/"} {
			b.Run(ledger+strconv.FormatInt(rows, 10), func(b *testing.B) {
				b.ReportAllocs()
				trips := 0
				snk.db.env.Roundtrip = func(string) { trips++ }
				for n := 0; b.Loop(); n++ {
					p := position(n)
					if ledger != "" {
						p.Ledger = benchLedger()
					}
					must(b, snk.Write(b.Context(), batches[n%len(batches)]))
					must(b, snk.Commit(b.Context(), p))
				}
				b.ReportMetric(float64(trips)/float64(b.N), "trips/op")
				b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
				b.ReportMetric(float64(rows), "rows/op")
			})
		}
	}
}

// benchLedger is the ledger of an open snapshot: 20 kB.
func benchLedger() []byte {
	out := []byte(`[`)
	for i := range 150 {
		out = fmt.Appendf(out, `{"dataset":"public.orders","from":[%d],"to":[%d],"snapshot":{"xmin":"%d","xmax":"%d","lsn":"0/%X"}},`, i*7919, (i+1)*7919, i*13, i*17, i*104729)
	}
	return append(out[:len(out)-1], ']')
}
