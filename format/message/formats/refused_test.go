package formats_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/record"
)

// A row whose key moved and whose new values have no form is refused with all of its messages: one that deleted the old key would lose it.
func TestRefusedRowLeavesNothing(t *testing.T) {
	s := &record.Schema{Dataset: "d", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "tags", Type: record.ArrayType(arrow.PrimitiveTypes.Int32, 1), Nullable: true},
	}, nil)}
	b := connectortest.Changes(s,
		connectortest.Change{Op: record.Update, Row: []string{"2", "[[1,2],[3,4]]"}, Old: []string{"1", "null"}},
		connectortest.Change{Op: record.Update, Row: []string{"4", "[5]"}, Old: []string{"3", "null"}})
	for _, name := range []string{"avro", "debezium-avro"} {
		t.Run(name, func(t *testing.T) {
			r, _ := fake(t)
			f, err := formats.New(name, formats.Options{Registry: r, Debezium: debezium.Options{Name: "x"}})
			if err != nil {
				t.Fatal(err)
			}
			e, err := f.NewEncoder(message.Topic{Name: "t", Dataset: "d", Keyed: true})
			if err != nil {
				t.Fatal(err)
			}
			written := map[int]int{}
			refused, err := e.Encode(t.Context(), b, func(row int, _ *message.Message) error {
				written[row]++
				return nil
			})
			if err != nil || len(refused) != 1 || refused[0].Index != 0 {
				t.Fatalf("refused are %+v, %v: want row 0", refused, err)
			}
			if written[0] != 0 || written[1] < 2 {
				t.Errorf("messages by row: %v: want none of row 0, and a deletion and a row of row 1", written)
			}
		})
	}
}
