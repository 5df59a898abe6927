package kafka_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/record"
)

// Every format that has schemas, with a real registry: what the sink writes, upserts and deletions of any key included, the source reads
// back, with the types of the columns.
func TestFormatsRoundTrip(t *testing.T) {
	s := &record.Schema{Dataset: "orders", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "ok", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
	}, nil)}
	batch := connectortest.Changes(s,
		connectortest.Change{Op: record.Insert, Row: []string{"1", `"a"`, "true", `"2026-01-31T12:00:00.000001Z"`}},
		connectortest.Change{Op: record.Update, Row: []string{"1", "null", "false", "null"}},
		connectortest.Change{Op: record.Delete, Row: []string{"1", "null", "null", "null"}},
		connectortest.Change{Op: record.Insert, Row: []string{"-9", `"ü"`, "null", `"1969-12-31T23:59:59.999999Z"`}})
	for _, format := range formats.Names() {
		if format == "raw" {
			continue
		}
		t.Run(format, func(t *testing.T) {
			prefix := kafkatest.Prefix(t)
			options := []string{"format", format, "registry", kafkatest.Registry(t)}
			cfg := sinkConfig(t, prefix, append(options, "partitions", "1")...)
			contract, err := cfg.Contract()
			if only := []string{"protobuf", "debezium-protobuf", "debezium-json-schema"}; slices.Contains(only, format) {
				if connector.ClassOf(err) != connector.ClassConfig {
					t.Errorf("a format that is only read gave %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			mode, keyed := connector.Append, "false"
			if slices.Contains(contract.Modes, connector.Upsert) {
				mode, keyed = connector.Upsert, "true"
			}
			w := startSink(t, cfg, sinkStart(1, mode))
			w.write(batch)
			w.commit(1)
			r := start(t, sourceConfig(t, prefix+"orders", append(options, "keyed", keyed, "metadata", everyPart)...), record.Position{})
			last := map[int64]string{}
			n := 0
			written := records(t, prefix+"orders")
			for n < 4 {
				b, err := r.next(100)
				if err != nil {
					t.Fatal(err)
				}
				for _, reject := range b.Rejects {
					t.Error(reject.Error())
				}
				for i := range b.NumRows() {
					ids, ok := b.Rows.Column(b.Schema.Column("id")).(interface{ Value(i int) int64 })
					if !ok {
						t.Fatalf("column id is %s", b.Schema.Columns)
					}
					if row := string(b.RowJSON(i)); !slices.ContainsFunc(written, func(r *kgo.Record) bool { return strings.HasSuffix(row, metadataOf(r)) }) {
						t.Errorf("no message has the metadata of %s", row)
					}
					last[ids.Value(i)] = b.Op(i).String() + " " + string(b.RowJSON(i))
				}
				n += b.NumRows()
			}
			if len(last) != 2 || last[1][:6] != "delete" || last[-9][:6] == "delete" {
				t.Errorf("the rows are %v", last)
			}
		})
	}
}
