package transform_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/transform"
)

// batch builds rows from JSON arrays, one for each column of the fixed schema.
func batch(t *testing.T, rows ...string) *record.Batch {
	t.Helper()
	schema := &record.Schema{Dataset: "orders", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "amount", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}, Nullable: true},
		{Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
		{Name: "a b", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}, nil)}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema.Columns)
	for _, r := range rows {
		var vals []json.RawMessage
		if err := json.Unmarshal([]byte(r), &vals); err != nil {
			t.Fatalf("row %s: %v", r, err)
		}
		for c, v := range vals {
			if err := record.ParseJSON(b.Field(c), v); err != nil {
				t.Fatalf("row %s: %v", r, err)
			}
		}
	}
	return &record.Batch{Schema: schema, Rows: b.NewRecordBatch()}
}

func rowsOf(b *record.Batch) []string {
	out := []string{}
	for i := range b.NumRows() {
		out = append(out, string(b.RowJSON(i)))
	}
	return out
}

const (
	first  = `[1,"Ann",12.50,"2026-01-30",0.5]`
	second = `[2,null,null,null,null]`
	third  = `[3,"Zoë",-1.00,"2026-02-01",2]`
)

func TestSteps(t *testing.T) {
	for _, tc := range []struct {
		name, kind string
		args       any
		want       []string
		key        []string
		rejects    []string
	}{
		{
			name: "select keeps the order of the names", kind: "select", args: []any{"day", "id"}, key: []string{"id"},
			want: []string{`{"day":"2026-01-30","id":1}`, `{"day":null,"id":2}`, `{"day":"2026-02-01","id":3}`},
		},
		{
			name: "a dropped key column takes the key with it", kind: "drop", args: []any{"id", "name", "day", "a b"},
			want: []string{`{"amount":12.50}`, `{"amount":null}`, `{"amount":-1.00}`},
		},
		{
			name: "filter treats what a null hides as not true", kind: "filter", args: `amount > 0 || name == "Zoë"`, key: []string{"id"},
			want: []string{`{"id":1,"name":"Ann","amount":12.50,"day":"2026-01-30","a b":0.5}`, `{"id":3,"name":"Zoë","amount":-1.00,"day":"2026-02-01","a b":2}`},
		},
		{
			name: "filter compares dates as text", kind: "filter", args: `day >= "2026-02-01"`, key: []string{"id"},
			want: []string{`{"id":3,"name":"Zoë","amount":-1.00,"day":"2026-02-01","a b":2}`},
		},
		{
			name: "a name that is no identifier", kind: "filter", args: `$env["a b"] == 2`, key: []string{"id"},
			want: []string{`{"id":3,"name":"Zoë","amount":-1.00,"day":"2026-02-01","a b":2}`},
		},
		{
			name: "cast sets aside what does not fit", kind: "cast", args: map[string]any{"amount": "int8", "day": "timestamptz"}, key: []string{"id"},
			want: []string{
				`{"id":2,"name":null,"amount":null,"day":null,"a b":null}`,
				`{"id":3,"name":"Zoë","amount":-1,"day":"2026-02-01T00:00:00Z","a b":2}`,
			},
			rejects: []string{`"12.50" is no whole number`},
		},
		{
			name: "set takes constants and expressions", kind: "set",
			args: map[string]any{"name": "x", "twice": map[string]any{"expr": "id * 2"}, "n": 7}, key: []string{"id"},
			want: []string{
				`{"id":1,"name":"x","amount":12.50,"day":"2026-01-30","a b":0.5,"n":7,"twice":2}`,
				`{"id":2,"name":"x","amount":null,"day":null,"a b":null,"n":7,"twice":4}`,
				`{"id":3,"name":"x","amount":-1.00,"day":"2026-02-01","a b":2,"n":7,"twice":6}`,
			},
		},
		{
			name: "mask keeps the last characters", kind: "mask", args: map[string]any{"columns": "name", "keep": 1}, key: []string{"id"},
			want: []string{
				`{"id":1,"name":"**n","amount":12.50,"day":"2026-01-30","a b":0.5}`,
				`{"id":2,"name":null,"amount":null,"day":null,"a b":null}`,
				`{"id":3,"name":"**ë","amount":-1.00,"day":"2026-02-01","a b":2}`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := transform.New(tc.kind, tc.args)
			if err != nil {
				t.Fatal(err)
			}
			in := batch(t, first, second, third)
			schema, err := s.Schema(in.Schema)
			if err != nil {
				t.Fatal(err)
			}
			out, err := s.Apply(in)
			if err != nil {
				t.Fatal(err)
			}
			if schema != out.Schema {
				t.Error("the batch's schema is not the one that Schema returned")
			}
			if err := out.Schema.Validate(); err != nil {
				t.Error(err)
			}
			if d := cmp.Diff(tc.want, rowsOf(out)); d != "" {
				t.Errorf("rows (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.key, out.Schema.KeyNames(), emptyIsNil()); d != "" {
				t.Errorf("key (-want +got):\n%s", d)
			}
			if len(out.Rejects) != len(tc.rejects) {
				t.Fatalf("rejects: %v", out.Rejects)
			}
			for i, r := range out.Rejects {
				if !strings.Contains(r.Message, tc.rejects[i]) || r.Column == "" || len(r.Raw) == 0 || len(r.Key) == 0 {
					t.Errorf("reject %+v: want a message with %s, the column, the key and the row", r, tc.rejects[i])
				}
			}
		})
	}
}

func emptyIsNil() cmp.Option {
	return cmp.Transformer("nil", func(s []string) string { return strings.Join(s, ",") })
}

// Equal values stay equal, nobody sees them, and another key gives another result.
func TestHash(t *testing.T) {
	digest := func(key string) []string {
		s, err := transform.New("hash", map[string]any{"columns": []any{"name"}, "key": key})
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Apply(batch(t, first, second, first))
		if err != nil {
			t.Fatal(err)
		}
		return rowsOf(out)
	}
	a, b := digest("k1"), digest("k2")
	if a[0] != a[2] || a[0] == b[0] || strings.Contains(a[0], "Ann") || !strings.Contains(a[1], `"name":null`) {
		t.Errorf("hashes:\n%q\n%q", a, b)
	}
	if _, err := transform.New("hash", map[string]any{"columns": "name", "key": ""}); err == nil {
		t.Error("a hash without a key was accepted")
	}
}

// In a stream of changes an update that leaves the filter must not leave its row behind.
func TestFilterOfChanges(t *testing.T) {
	s, err := transform.Filter("amount > 0")
	if err != nil {
		t.Fatal(err)
	}
	in := batch(t, third, third, first, third)
	in.Ops = []record.Op{record.Update, record.Delete, record.Update, record.Insert}
	out, err := s.Apply(in)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]record.Op{record.Delete, record.Delete, record.Update}, out.Ops); d != "" {
		t.Errorf("operations (-want +got):\n%s", d)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for kind, tc := range map[string]struct {
		args any
		want string
	}{
		"selct":  {"id", `did you mean "select"?`},
		"select": {map[string]any{"x": 1}, "want a list of names"},
		"cast":   {map[string]any{"id": "int65"}, `unknown type "int65"`},
		"hash":   {map[string]any{"column": "id", "key": "k"}, `did you mean "columns"?`},
		"set":    {map[string]any{"x": map[string]any{"exp": "1"}}, `did you mean "expr"?`},
	} {
		if _, err := transform.New(kind, tc.args); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", kind, err, tc.want)
		}
	}
	for name, s := range map[string]transform.Step{
		`no column ["nme"]`:                   transform.Select("nme"),
		`two columns would be named "id"`:     transform.Rename(map[string]string{"name": "id"}),
		`has no column "nme" to use as key`:   transform.Key("nme"),
		`unknown name amont`:                  must(t)(transform.Filter("amont > 1")),
		`expected bool, but got int`:          must(t)(transform.Filter("id + 1")),
		`mismatched types string and integer`: must(t)(transform.Filter("name > 1")),
	} {
		if _, err := s.Schema(batch(t).Schema); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "int64", "int"), strings.ReplaceAll(name, "integer", "int")) {
			t.Errorf("%v, want %s", err, name)
		}
	}
}

func must(t *testing.T) func(transform.Step, error) transform.Step {
	t.Helper()
	return func(s transform.Step, err error) transform.Step {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func TestOnlyNarrows(t *testing.T) {
	s := transform.Only([]string{"public.*"}, transform.Drop("name"))
	in := batch(t, first)
	if out, err := s.Apply(in); err != nil || out != in {
		t.Errorf("a dataset that does not match was changed: %v", err)
	}
	schema := *in.Schema
	schema.Dataset = "public.orders"
	in.Schema = &schema
	if out, err := s.Apply(in); err != nil || out.Schema.Column("name") >= 0 {
		t.Errorf("a dataset that matches was not changed: %v", err)
	}
}

// Batches are shared: a step never changes its input.
func TestInputStaysAsItIs(t *testing.T) {
	for _, k := range transform.Kinds() {
		in := batch(t, first, second, third)
		in.Ops = []record.Op{record.Update, record.Update, record.Insert}
		in.Rejects = append(make([]record.Reject, 0, 8), record.Reject{Message: "earlier"})
		before := strings.Join(rowsOf(in), "\n")
		args := map[string]any{
			"select": "id", "drop": "name", "rename": map[string]any{"id": "n"}, "cast": map[string]any{"amount": "int8"},
			"set": map[string]any{"id": 1}, "filter": "amount > 0", "hash": map[string]any{"columns": "id", "key": "k"}, "mask": "name",
			"key": "name", "route": map[string]any{"orders": "o"},
		}[k.Name]
		s, err := transform.New(k.Name, args)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(in); err != nil {
			t.Fatal(err)
		}
		if after := strings.Join(rowsOf(in), "\n"); after != before || len(in.Rejects) != 1 || in.Ops[0] != record.Update || in.Schema.Dataset != "orders" {
			t.Errorf("%s changed its input", k.Name)
		}
	}
}
