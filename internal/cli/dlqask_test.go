package cli

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/deadletter"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/transform"
)

// clause E13: the key that the source knows a row by is found behind transforms, or it is said that it can't be.
func TestKeysOfLetters(t *testing.T) {
	field := func(name, id string, dt arrow.DataType) arrow.Field {
		f := arrow.Field{Name: name, Type: dt, Nullable: true}
		if id != "" {
			f = record.WithID(f, id)
		}
		return f
	}
	schema := func(dataset string, key []int, fields ...arrow.Field) *record.Schema {
		return &record.Schema{Dataset: dataset, Key: key, Columns: arrow.NewSchema(fields, nil)}
	}
	number, text := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String
	source := schema("public.t", []int{0}, field("id", "1", number), field("total", "2", number))
	route, err := transform.New("route", map[string]any{"public.t": "orders"})
	if err != nil {
		t.Fatal(err)
	}
	plan := engine.Plan{Source: engine.SourceSpec{Transforms: []transform.Step{route}}, Sinks: []engine.SinkSpec{{Name: "s"}}}
	for _, c := range []struct {
		name        string
		of          *record.Schema
		raw, before string
		key         string
		want        string
	}{
		{"as it is", source, `{"id":7,"total":1}`, "", "", `public.t {"id":7}`},
		{"routed and renamed", schema("orders", []int{0}, field("number", "1", number)), `{"number":7}`, "", "", `public.t {"id":7}`},
		{"moved", source, `{"id":7}`, `{"id":6}`, "", `public.t {"id":7} {"id":6}`},
		{"image before without key", source, `{"id":7}`, `{"id":null,"total":3}`, "", `public.t {"id":7}`},
		{"another type", schema("orders", []int{0}, field("id", "1", text)), `{"id":"abc"}`, "", "", "public.t"},
		{"dropped", schema("orders", nil, field("total", "2", number)), `{"total":3}`, "", "", "public.t"},
		{"not read", nil, "", "", `{"id":7}`, `public.t {"id":7}`},
		{"not read, no key", nil, "", "", "", "public.t"},
	} {
		l := deadletter.Letter{Rejected: engine.Rejected{Sink: "s", Reject: record.Reject{
			Dataset: "public.t", Schema: c.of, Raw: []byte(c.raw), Before: []byte(c.before), Key: []byte(c.key),
		}}}
		if c.of != nil {
			l.Dataset = c.of.Dataset
		}
		name, keys := keysOf(l, plan, []connector.Dataset{{Name: "public.t", Schema: source}})
		got := []string{name}
		for _, k := range keys {
			got = append(got, string(k))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: got %s, want %s", c.name, text, c.want)
		}
	}
	l := deadletter.Letter{Rejected: engine.Rejected{Reject: record.Reject{Dataset: "strange"}}}
	if name, keys := keysOf(l, plan, nil); name != "strange" || keys != nil {
		t.Errorf("a dataset that the source does not have: %s %s", name, keys)
	}
}

// A replay is kept under a name that every store takes.
func TestReplayName(t *testing.T) {
	long := strings.Repeat("p", 190)
	if a, b := replayName(long, strings.Repeat("s", 60)), replayName(long, strings.Repeat("s", 61)); a == b || len(a) > 200 {
		t.Errorf("%s and %s", a, b)
	}
	if got := replayName("orders", "lake"); got != "orders.dlq.lake" {
		t.Error(got)
	}
}
