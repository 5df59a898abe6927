package sqlgen_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// schema reads "a:1 b:2 c": names, with ids where there are some.
func schema(text string) *record.Schema {
	if text == "" {
		return nil
	}
	var fields []arrow.Field
	for _, h := range held(text) {
		f := arrow.Field{Name: h.Name, Type: arrow.BinaryTypes.String, Nullable: true}
		if h.ID != "" {
			f = record.WithID(f, h.ID)
		}
		fields = append(fields, f)
	}
	return &record.Schema{Dataset: "t", Columns: arrow.NewSchema(fields, nil)}
}

func held(text string) []sqlgen.Held {
	var out []sqlgen.Held
	for w := range strings.FieldsSeq(text) {
		name, id, _ := strings.Cut(w, ":")
		out = append(out, sqlgen.Held{Name: name, ID: id})
	}
	return out
}

// steps prints an alteration: -dropped, from>to, +added.
func steps(a sqlgen.Alteration, to *record.Schema) string {
	var out []string
	for _, d := range a.Drop {
		out = append(out, "-"+d)
	}
	for _, r := range a.Rename {
		out = append(out, r.From+">"+r.To)
	}
	for _, i := range a.Add {
		out = append(out, "+"+to.Columns.Field(i).Name)
	}
	return strings.Join(out, " ")
}

// clause E15; cases C037, C038.
func TestAlter(t *testing.T) {
	for _, tt := range []struct{ table, from, to, want string }{
		{"a b", "a b", "a b", ""},
		{"a", "", "a b", "+b"},
		{"A", "", "a", ""},
		{"a b", "a:1 b:2", "a:1 c:2", "b>c"},
		{"a c", "a:1 b:2", "a:1 c:2", ""}, // asked for again
		{"a b", "a:1 b:2", "a:1", "-b"},
		{"a", "a:1 b:2", "a:1", ""},
		{"a b", "a b", "a", "-b"},
		{"a own", "a:1", "a:1 b:2", "+b"}, // a column of somebody else stays
		{"a b", "a:1 b:2", "a:1 b:3", "-b +b"},
		{"a b", "a:1 b:2", "b:1 a:2", "a>_leat_a b>a _leat_a>b"},
		{"a b c", "a:1 b:2 c:3", "b:1 c:2", "-c b>c a>b"},
		{"a b c", "a:1 b:2 c:3", "b:1 c:2 a:3", "a>_leat_a c>a b>c _leat_a>b"},
		{"a b", "a:1 b:2", "a:1 c:2 b:3", "b>c +b"},
		// Ids of the table's columns decide, whatever is asked.
		{"a:1 b:2", "", "a:1 c:2", "b>c"},
		{"a:1 c:2", "a:1 b:2", "a:1 c:2", ""},
		{"b:1 a:2", "a:1 b:2", "b:1 a:2", ""},
		{"a:1 b:3", "a:1 b:2", "a:1 b:3", ""},
		{"a:1 b:2", "", "a:1 b:3", "-b +b"},
		{"a:1 b:2", "", "a:1", ""},
		{"a:1 b:2 c:9", "", "a:1 c:2", "-c b>c"},
		{"a:1 b:2", "", "a:1 c:2 b:3", "b>c +b"},
		{"a:1 b", "", "a:1 b:2", ""},
		{"a:1 b:2", "a:1 b:2", "b:1", "-b a>b"},
		{"a b", "", "c:7 a:1 b:2", "+c"},
	} {
		to := schema(tt.to)
		have := held(tt.table)
		a, err := sqlgen.Alter(have, schema(tt.from), to)
		if got := steps(a, to); err != nil || got != tt.want {
			t.Errorf("Alter(%s; %s -> %s) = %q, %v; want %q", tt.table, tt.from, tt.to, got, err, tt.want)
			continue
		}
		again, err := sqlgen.Alter(a.Holds(have, to), schema(tt.from), to)
		if err != nil || (strings.Contains(tt.to, ":") && !again.Empty()) {
			t.Errorf("Alter(%s; %s -> %s), done again: %q, %v", tt.table, tt.from, tt.to, steps(again, to), err)
		}
	}
	if a, err := sqlgen.Alter(held("a:1 b:2 c"), nil, schema("a:1 c:2")); err == nil {
		t.Errorf("a rename onto a column of somebody else: %q", steps(a, schema("a:1 c:2")))
	}
}

func TestHolds(t *testing.T) {
	have, to := held("a:1 b:2 own c:3"), schema("x:1 d:4")
	a, err := sqlgen.Alter(have, schema("a:1 c:3"), to)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("[{x 1} {d 4} {b 2} {own }]", fmt.Sprint(a.Holds(have, to))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
