package formats_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/internal/benchtest"
)

// written are the formats that rows are written in.
func writtenFormats() []string {
	return []string{"json", "avro", "json-schema", "debezium", "debezium-avro"}
}

func opened(b *testing.B, name string) message.Format {
	b.Helper()
	reg := srfake.New()
	b.Cleanup(reg.Close)
	c, err := registry.New(registry.Options{URL: reg.URL()})
	if err != nil {
		b.Fatal(err)
	}
	f, err := formats.New(name, formats.Options{Registry: c})
	if err != nil {
		b.Fatal(err)
	}
	return f
}

func BenchmarkEncode(b *testing.B) {
	batch := benchtest.Changes(benchtest.Orders(), 0, benchtest.Rows)
	batch.Ops, batch.Old, batch.Unchanged = nil, nil, nil
	for _, name := range writtenFormats() {
		b.Run(name, func(b *testing.B) {
			e, err := opened(b, name).NewEncoder(message.Topic{Name: "t"})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				refused, err := e.Encode(b.Context(), batch, func(int, *message.Message) error { return nil })
				if err != nil || len(refused) > 0 {
					b.Fatal(err, refused)
				}
			}
			benchtest.PerRow(b, benchtest.Rows)
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	batch := benchtest.Changes(benchtest.Orders(), 0, benchtest.Rows)
	batch.Ops, batch.Old, batch.Unchanged = nil, nil, nil
	for _, name := range append(writtenFormats(), "raw") {
		b.Run(name, func(b *testing.B) {
			write := name
			if name == "raw" {
				write = "json"
			}
			f := opened(b, name)
			topic := message.Topic{Name: "t", Keyed: true}
			from := f
			if write != name {
				from = opened(b, write)
			}
			e, err := from.NewEncoder(topic)
			if err != nil {
				b.Fatal(err)
			}
			var in []message.Message
			if _, err := e.Encode(b.Context(), batch, func(_ int, m *message.Message) error {
				in = append(in, message.Message{Topic: "t", Key: append([]byte(nil), m.Key...), Value: append([]byte(nil), m.Value...)})
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			s, err := f.Learn(b.Context(), topic, in[:100])
			if err != nil {
				b.Fatal(err)
			}
			d, err := f.NewDecoder(topic, s)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				for i := range in {
					if ok, err := d.Append(b.Context(), &in[i]); !ok || err != nil {
						b.Fatal(ok, err)
					}
				}
				if out, err := d.Batch(); err != nil || out.NumRows() != batch.NumRows() || len(out.Rejects) > 0 {
					b.Fatal("other rows", err)
				}
			}
			benchtest.PerRow(b, benchtest.Rows)
		})
	}
}
