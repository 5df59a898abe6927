package file_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/file"
)

const benchRows = 200_000

// BenchmarkCopy takes a CSV file from the source to a sink of JSON Lines, batch by batch, inference and sync included.
func BenchmarkCopy(b *testing.B) {
	var text strings.Builder
	text.WriteString("id,qty,price,amount,name,active,created,note\n")
	for i := range benchRows {
		fmt.Fprintf(&text, "%d,%d,%d.%03d,%d.%02d,customer name number %d,%t,2026-01-%02dT%02d:%02d:%02d,\"a note, with a comma %x\"\n",
			i, i%1000, i%977, i%1000, i%99_991, i%100, i*7919, i%2 == 0, 1+i%28, i%24, i%60, i%59, i*1_000_003)
	}
	same := func(_ testing.TB, s string) string { return s }
	for _, c := range []struct {
		ending string
		pack   func(testing.TB, string) string
	}{{"csv", same}, {"csv.gz", member}, {"csv.zst", frame}} {
		b.Run(c.ending, func(b *testing.B) {
			in := put(b, b.TempDir(), "in."+c.ending, c.pack(b, text.String()))
			out := filepath.Join(b.TempDir(), "out.jsonl")
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			for b.Loop() {
				copyFile(b, in, out)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRows, "ns/row")
			b.ReportMetric(benchRows, "rows/op")
		})
	}
}

func copyFile(b *testing.B, in, out string) {
	b.Helper()
	ctx := context.Background()
	src, err := file.NewSource(in).Open(connectortest.Env(b))
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close(ctx) //nolint:errcheck // it was only read
	if err := src.Start(ctx, connector.SourceStart{}); err != nil {
		b.Fatal(err)
	}
	snk := begin(b, file.NewSink(out), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Mode: connector.Replace})
	rows := 0
	for {
		batch, err := src.Read(ctx, connector.Limit{Rows: 8192, Bytes: 4 << 20})
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = snk.Write(ctx, batch)
		}
		if err != nil {
			b.Fatal(err)
		}
		rows += batch.NumRows()
	}
	if finish(b, snk); rows != benchRows {
		b.Fatalf("%d rows", rows)
	}
}
