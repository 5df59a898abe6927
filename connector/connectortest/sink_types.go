package connectortest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// types: every value that the sink says it can hold comes out as it went in, from whole arrays and from windows on longer ones.
func (s *sinkSuite) types(t testing.TB, mode connector.WriteMode) {
	target := s.New(t)
	cases, limits := s.offered(t, target)
	schema := Schema("types", cases...)
	first, second := typeRows(schema, cases, limits)
	x := s.start(t, target, request(mode))
	x.write(t, first, Sliced(second))
	x.mustComplete(t, progress("r1", 1))
	got, exists := target.Read(t, schema)
	if !exists {
		t.Fatalf("the dataset does not exist")
	}
	compareColumns(t, schema, limits, append(Rows(first), Rows(second)...), got)
	s.readback(t, target, mode, schema, append(Rows(first), Rows(second)...))
}

// offered returns the cases that the mapping keeps, and the limits of each column.
func (s *sinkSuite) offered(t testing.TB, target Target) ([]Case, map[string]connector.Limits) {
	t.Helper()
	limits := map[string]connector.Limits{}
	x := s.openConfig(t, target.Config())
	defer x.end(t)
	m, ok := connector.As[connector.Mapper](x.snk)
	if !ok {
		return s.Cases, limits
	}
	schema := Schema("types", s.Cases...)
	mappings := s.mapped(t, m, schema)
	var kept []Case
	for i, c := range s.Cases {
		if m := mappings[i+1]; m.Native != "" && m.Fidelity != connector.Inexact {
			kept = append(kept, c)
			limits[c.Name] = m.Limits
		}
	}
	return kept, limits
}

// mapped asks for the mapping and checks its shape.
func (s *sinkSuite) mapped(t testing.TB, m connector.Mapper, schema *record.Schema) []connector.Mapping {
	t.Helper()
	mappings, err := m.Map(deadline(t), schema)
	secrets(s.Secrets).err(t, err)
	if err != nil {
		t.Fatalf("Map: %v", err)
	}
	if len(mappings) != schema.Columns.NumFields() {
		t.Fatalf("Map returned %d mappings for %d columns", len(mappings), schema.Columns.NumFields())
	}
	for i, m := range mappings {
		switch {
		case m.Column != schema.Columns.Field(i).Name:
			t.Errorf("mapping %d is of column %q, the column is %q", i, m.Column, schema.Columns.Field(i).Name)
		case m.Native == "" && m.Why == "":
			t.Errorf("column %q is left out and no reason is given", m.Column)
		case m.Fidelity == connector.Exact && !m.Limits.Zero():
			t.Errorf("column %q is exact and has limits %+v", m.Column, m.Limits)
		case m.Fidelity == connector.Checked && (m.Limits.Zero() || m.Why == ""):
			t.Errorf("column %q is checked: want limits and a reason, got %+v", m.Column, m)
		case m.Fidelity == connector.Inexact && m.Why == "":
			t.Errorf("column %q is inexact and no reason is given", m.Column)
		}
	}
	return mappings
}

// typeRows returns all values twice, in two batches; a value outside of its column's limits is null.
func typeRows(schema *record.Schema, cases []Case, limits map[string]connector.Limits) (first, second *record.Batch) {
	all := Batch("types", cases...)
	rows := make([][]string, all.NumRows())
	for i := range rows {
		rows[i] = []string{strconv.Itoa(i)}
		for c, cs := range cases {
			col := all.Rows.Column(c + 1)
			if !fits(limits[cs.Name], col, i) {
				rows[i] = append(rows[i], "null")
				continue
			}
			rows[i] = append(rows[i], string(record.AppendJSON(nil, col, i)))
		}
	}
	first = BatchOf(schema, rows...)
	for i := range rows {
		rows[i][0] = strconv.Itoa(i + len(rows))
	}
	return first, BatchOf(schema, rows...)
}

// compareColumns reports differences column by column: a hundred columns in one line say nothing.
func compareColumns(t testing.TB, schema *record.Schema, limits map[string]connector.Limits, want, got []string) {
	t.Helper()
	index := func(rows []string) map[string]map[string]json.RawMessage {
		out := map[string]map[string]json.RawMessage{}
		for _, r := range rows {
			var cols map[string]json.RawMessage
			if err := json.Unmarshal([]byte(r), &cols); err != nil {
				t.Errorf("row %.200s is no JSON object: %v", r, err)
				continue
			}
			if id := string(cols["id"]); out[id] == nil {
				out[id] = cols
			} else {
				t.Errorf("row %s is there twice", id)
			}
		}
		return out
	}
	w, g := index(want), index(got)
	if len(w) != len(g) {
		t.Errorf("%d rows, want %d", len(g), len(w))
	}
	for i := range schema.Columns.NumFields() {
		f := schema.Columns.Field(i)
		shown := 0
		for n := range len(want) {
			id := strconv.Itoa(n)
			a, b := comparableText(f, limits[f.Name], w[id][f.Name]), comparableText(f, limits[f.Name], g[id][f.Name])
			if a != b && shown < 3 {
				shown++
				t.Errorf("column %s (%s), row %s: wrote %.300s, the target holds %.300s", f.Name, f.Type, id, a, b)
			}
		}
	}
}

// comparableText drops the zeros at the end of numbers of any precision that are kept with a fixed scale.
func comparableText(f arrow.Field, l connector.Limits, v json.RawMessage) string {
	text := string(v)
	if t, err := record.TypeOf(f.Type); err == nil && t.Kind == record.Numeric && l.Precision > 0 && strings.Contains(text, ".") {
		return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// readback: a source over what was written delivers it.
func (s *sinkSuite) readback(t testing.TB, target Target, mode connector.WriteMode, schema *record.Schema, want []string) {
	t.Helper()
	x := s.start(t, target, request(mode))
	r, ok := connector.As[connector.Readback](x.snk)
	if !ok {
		x.end(t)
		return
	}
	cfg, err := r.Readback(schema.Dataset)
	x.end(t)
	if err != nil {
		t.Errorf("Readback: %v", err)
		return
	}
	src := &sourceSuite{SourceCase: SourceCase{Secrets: s.Secrets}, contract: connector.SourceContract{Bounded: true}}
	g := src.openConfig(t, cfg)
	defer g.end(t)
	ctx := deadline(t)
	if err := g.src.Start(ctx, connector.SourceStart{}); err != nil {
		t.Errorf("starting the source that Readback hands out: %v", err)
		return
	}
	same(t, "what the readback source delivers", want, g.drain(t, ctx, rowLimit(1_000), len(want)).plain())
}

// plain returns the rows without their datasets.
func (h *history) plain() []string {
	out := make([]string, len(h.rows))
	for i, r := range h.rows {
		_, out[i], _ = strings.Cut(r, "\t")
	}
	return out
}

// names proves cases C099, C100: any name of a dataset or a column works, and names that look alike are kept apart or refused, never mixed.
func (s *sinkSuite) names(t testing.TB, mode connector.WriteMode) {
	columns := []Case{
		{Name: "user", Type: arrow.BinaryTypes.String, Values: []string{`"u"`}},
		{Name: "Group", Type: arrow.BinaryTypes.String, Values: []string{`"G"`}},
		{Name: "a b", Type: arrow.BinaryTypes.String, Values: []string{`"ab"`}},
		{Name: `x"y`, Type: arrow.BinaryTypes.String, Values: []string{`"xy"`}},
		{Name: "ünï", Type: arrow.BinaryTypes.String, Values: []string{`"u"`}},
		{Name: "select", Type: arrow.BinaryTypes.String, Values: []string{`"s"`}},
		{Name: "it's", Type: arrow.BinaryTypes.String, Values: []string{`"i"`}},
		{Name: "%s", Type: arrow.BinaryTypes.String, Values: []string{`"p"`}},
	}
	for _, name := range []string{"select", "a b", `x"y`, "ünï", "it's", "Order", "a.b", strings.Repeat("t", 63)} {
		target := s.New(t)
		b := Batch(record.JoinName(name), columns...)
		s.load(t, target, request(mode), b)
		holds(t, target, fmt.Sprintf("a dataset called %q", name), b.Schema, b)
	}
	if s.OneDataset {
		return
	}
	same := strings.Repeat("n", 63)
	for _, pair := range [][2]string{{"plain", "other"}, {"Order", "order"}, {same + "_one__", same + "_two__"}, {"a b", "a_b"}} {
		s.namePair(t, mode, pair)
	}
}

func (s *sinkSuite) namePair(t testing.TB, mode connector.WriteMode, pair [2]string) {
	t.Helper()
	target := s.New(t)
	one, two := Numbered(record.JoinName(pair[0]), 0, 5), Numbered(record.JoinName(pair[1]), 100, 7)
	more, rest := Numbered(one.Schema.Dataset, 50, 3), Numbered(two.Schema.Dataset, 150, 2)
	more.Schema, rest.Schema = one.Schema, two.Schema
	x := s.start(t, target, request(mode))
	for _, b := range []*record.Batch{one, two, more, rest} {
		if err := x.offer(t, b); err != nil {
			x.end(t)
			if pair[0] == "plain" || connector.ClassOf(err) == connector.ClassUnknown {
				t.Errorf("datasets %q: %v", pair, err)
			}
			return // refused: nothing is mixed, see uncommitted
		}
	}
	x.mustComplete(t, progress("r1", 1))
	holds(t, target, "two datasets in one run", one.Schema, one, more)
	holds(t, target, "two datasets in one run", two.Schema, two, rest)
}

// empty: a dataset without rows exists.
func (s *sinkSuite) empty(t testing.TB, mode connector.WriteMode) {
	target := s.New(t)
	b := Batch("nothing", Pick("int32", "text", "list_int")...)
	b.Rows = b.Rows.NewSlice(0, 0)
	s.load(t, target, request(mode), b)
	holds(t, target, "a dataset without rows", b.Schema)
}

// rejects: refused rows are named exactly, and all others are written.
func (s *sinkSuite) rejects(t testing.TB) {
	if s.Refused == nil {
		return
	}
	target := s.New(t)
	b, bad := s.Refused(t, target)
	x := s.start(t, target, request(s.contract.Modes[0]))
	if _, ok := connector.As[connector.RowRejecter](x.snk); !ok {
		x.end(t)
		t.Fatalf("rows are refused, and the sink is no RowRejecter")
	}
	err := x.offer(t, b)
	refused := map[int]bool{}
	for _, r := range rowErrors(err) {
		refused[r.Index] = true
		if r.Reject.Message == "" || r.Reject.Dataset != b.Schema.Dataset || r.Reject.Class == "" {
			t.Errorf("a refused row lacks its dataset, class or message: %+v", r.Reject)
		}
	}
	want := map[int]bool{}
	for _, i := range bad {
		want[i] = true
	}
	if diff := cmp.Diff(want, refused); diff != "" {
		t.Errorf("Write returned %v: other rows were refused (-want +got):\n%s", err, diff)
	}
	x.mustComplete(t, progress("r1", 1))
	good, err := b.Keep(func(i int) bool { return !want[i] })
	if err != nil {
		t.Fatalf("Keep: %v", err)
	}
	holds(t, target, "after refused rows", b.Schema, good)
}

// evolves: a column more, twice, and rows of both schemas.
func (s *sinkSuite) evolves(t testing.TB) {
	target := s.New(t)
	x := s.start(t, target, request(s.contract.Modes[0]))
	ev, ok := connector.As[connector.Evolver](x.snk)
	if !ok {
		x.end(t)
		return
	}
	text := Case{Name: "v", Type: arrow.BinaryTypes.String}
	from := Schema("grows", text)
	to := Schema("grows", text, Case{Name: "more", Type: arrow.PrimitiveTypes.Int64})
	to.Version = 1
	x.write(t, BatchOf(from, []string{"1", `"a"`}))
	for range 2 {
		if err := ev.Evolve(deadline(t), from, to); err != nil {
			x.end(t)
			t.Fatalf("Evolve: %v", err)
		}
	}
	x.write(t, BatchOf(to, []string{"2", `"b"`, "7"}))
	x.mustComplete(t, progress("r1", 1))
	holds(t, target, "after a column more", to, BatchOf(to, []string{"1", `"a"`, "null"}, []string{"2", `"b"`, "7"}))
}

// check proves clause S23 for sinks.
func (s *sinkSuite) check(t testing.TB) {
	x := s.openConfig(t, s.New(t).Config())
	defer x.end(t)
	if n, ok := connector.As[connector.Named](x.snk); ok {
		secrets(s.Secrets).check(t, "a URI", n.URI("one"))
	}
	if c, ok := connector.As[connector.Checker](x.snk); ok {
		checkProbes(t, s.Secrets, func() ([]connector.Probe, error) { return c.Check(deadline(t)) })
	}
}

// close proves clause S12: at every stage, twice, and nothing runs on.
func (s *sinkSuite) close(t testing.TB) {
	stages := map[string]func(ctx context.Context, x *session){
		"Open":  func(context.Context, *session) {},
		"Start": func(ctx context.Context, x *session) { s.mustStart(ctx, t, x) },
		"a Write": func(ctx context.Context, x *session) {
			s.mustStart(ctx, t, x)
			x.write(t, Numbered("one", 0, 10))
		},
		"a Start that was cancelled": func(ctx context.Context, x *session) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			secrets(s.Secrets).err(t, x.snk.Start(ctx, request(s.contract.Modes[0])))
		},
	}
	for name, do := range stages {
		cfg := s.New(t).Config()
		before := activity(t, s.Activity)
		check := leaks(t)
		x := s.openConfig(t, cfg)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		do(ctx, x)
		x.end(t)
		cancel()
		check()
		if after := activity(t, s.Activity); after > before {
			t.Errorf("closed after %s, %d things are open outside, before it were %d", name, after, before)
		}
		if err := x.snk.Write(deadline(t), Numbered("one", 0, 1)); err == nil {
			t.Errorf("Write after Close (after %s) returned no error", name)
		}
	}
}

func (s *sinkSuite) mustStart(ctx context.Context, t testing.TB, x *session) {
	t.Helper()
	if err := x.snk.Start(ctx, request(s.contract.Modes[0])); err != nil {
		t.Errorf("Start: %v", err)
	}
}

func activity(t testing.TB, count func(t testing.TB) int) int {
	if count == nil {
		return 0
	}
	return count(t)
}

// unreachable: the error has a class and a code, comes in time and tells no secret.
func (s *sinkSuite) unreachable(t testing.TB) {
	cfg := s.Unreachable(t)
	check := leaks(t)
	x := s.openConfig(t, cfg)
	err := x.snk.Start(deadline(t), request(s.contract.Modes[0]))
	if err == nil { // a sink may look only when it writes
		err = x.offer(t, Numbered("one", 0, 1))
	}
	if err == nil {
		err = x.complete(deadline(t), progress("r1", 1))
	}
	x.end(t)
	check()
	checkFailure(t, s.Secrets, err)
}
