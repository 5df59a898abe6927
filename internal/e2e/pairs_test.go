package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/all"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state/sqlite"
)

// system is one end of a pair: where it is, and how all of its datasets are read.
type system struct {
	name  string
	fresh func(t *testing.T) string // a new, empty place
	all   func(place string) string // the URL that reads every dataset there
	typed bool                      // it keeps its own types; otherwise they are declared when it is read
}

func systems() []system {
	dir := func(format string) system {
		return system{
			name: format,
			fresh: func(t *testing.T) string {
				t.Helper()
				return "file:" + t.TempDir() + "/out/?format=" + format
			},
			all:   func(place string) string { return place + "&datasets=per_file" },
			typed: format == "parquet" || format == "arrow",
		}
	}
	return []system{
		dir("csv"), dir("jsonl"), dir("parquet"), dir("arrow"),
		{
			name: "sqlite", typed: true,
			fresh: func(t *testing.T) string { t.Helper(); return "sqlite:" + filepath.Join(t.TempDir(), "pair.db") },
			all:   func(place string) string { return place + "?tables=*" },
		},
		{
			name: "duckdb", typed: true,
			fresh: func(t *testing.T) string { t.Helper(); return "duckdb:" + filepath.Join(t.TempDir(), "pair.duckdb") },
			all:   func(place string) string { return place + "?tables=*" },
		},
		{
			name: "postgres", typed: true,
			fresh: func(t *testing.T) string { t.Helper(); return pgtest.Database(t) },
			all:   func(place string) string { return place + "&tables=public.*" },
		},
	}
}

// Every type of the vocabulary, with its edge values, from every system to every other one: a value arrives as it was, or its column
// is refused before anything is read, or its row is set aside naming the column. Nothing in between.
//
// cases C001, C002, C003, C004, C006, C010, C012, C016, C017, C021, C024, C026, C092
func TestEveryPair(t *testing.T) {
	loaded := map[string]string{}
	facts := map[string]table{}
	for _, s := range systems() {
		place := s.fresh(t)
		t.Run("load "+s.name, func(t *testing.T) {
			want := table{}
			var batches []*record.Batch
			for _, c := range connectortest.Cases() {
				b := connectortest.Batch(c.Name, c)
				batches = append(batches, b)
				want[c.Name] = cells(b)
			}
			got, lost := pass(t, engine.SourceSpec{Connector: "given", Config: &given{batches: batches}}, sinkAt(t, place), s, want)
			loaded[s.name], facts[s.name] = place, got
			t.Logf("%d of %d types stored, refused or set aside: %s", len(got), len(want), strings.Join(lost, "; "))
		})
	}
	for _, from := range systems() {
		for _, to := range systems() {
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				if loaded[from.name] == "" {
					t.Fatal("the source was not loaded")
				}
				src := sourceAt(t, from, loaded[from.name], facts[from.name])
				pass(t, src, sinkAt(t, to.fresh(t)), to, facts[from.name])
			})
		}
	}
}

// table is what a system holds: by dataset, by id, the canonical text of the value column; null is "\x00".
type table map[string]map[string]string

const null = "\x00"

func cells(b *record.Batch) map[string]string {
	out := map[string]string{}
	for i := range b.NumRows() {
		v := null
		if col := b.Rows.Column(1); !col.IsNull(i) {
			v = string(record.AppendText(nil, col, i))
		}
		out[string(record.AppendText(nil, b.Rows.Column(0), i))] = v
	}
	return out
}

// rejects keeps set-aside rows.
type rejects struct{ rows []engine.Rejected }

func (r *rejects) Append(_ context.Context, rows []engine.Rejected) error {
	r.rows = append(r.rows, rows...)
	return nil
}
func (*rejects) Flush(context.Context) error                                  { return nil }
func (*rejects) Forget(context.Context, string, string, string, uint64) error { return nil }
func (*rejects) Close() error                                                 { return nil }

type place struct {
	connector string
	cfg       connector.SinkConfig
	url       string
}

func sinkAt(t *testing.T, url string) place {
	t.Helper()
	reg, err := all.All()
	if err != nil {
		t.Fatal(err)
	}
	def, err := reg.Resolve(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg := def.Sink()
	setURL(t, cfg, url)
	return place{connector: def.Name, cfg: cfg, url: url}
}

func setURL(t *testing.T, cfg any, url string) {
	t.Helper()
	u, ok := cfg.(connector.URLSetter)
	if !ok {
		t.Fatalf("%T takes no URL", cfg)
	}
	if err := u.SetURL(url); err != nil {
		t.Fatal(err)
	}
}

// sourceAt reads every dataset of a place; a format without types of its own is told them.
func sourceAt(t *testing.T, s system, at string, holds table) engine.SourceSpec {
	t.Helper()
	reg, err := all.All()
	if err != nil {
		t.Fatal(err)
	}
	def, err := reg.Resolve(at)
	if err != nil {
		t.Fatal(err)
	}
	cfg := def.Source()
	setURL(t, cfg, s.all(at))
	if !s.typed {
		types := map[string]any{"id": "int64"}
		for _, c := range connectortest.Cases() {
			if _, ok := holds[c.Name]; ok || holds == nil {
				types[c.Name] = typeName(t, c)
			}
		}
		if err := connector.SetOption(cfg, "types", types); err != nil {
			t.Fatal(err)
		}
	}
	return engine.SourceSpec{Connector: def.Name, Config: cfg}
}

// typeName is what a user declares for a column of a file: text where the type has no name.
func typeName(t *testing.T, c connectortest.Case) string {
	t.Helper()
	typ, err := record.TypeOf(c.Type)
	if err != nil {
		t.Fatal(err)
	}
	switch name := typ.Kind.String(); {
	case typ.Kind == record.Decimal:
		return fmt.Sprintf("decimal(%d,%d)", typ.Precision, typ.Scale)
	case typ.Kind == record.Timestamp && typ.Zoned && typ.Unit.String() == "us":
		return "timestamptz"
	case typ.Kind == record.Timestamp && typ.Unit.String() == "us", typ.Kind == record.Duration && typ.Unit.String() == "us":
		return name
	case slices.Contains([]record.Kind{record.Timestamp, record.Duration, record.Time, record.Enum, record.Bits, record.Network, record.Foreign}, typ.Kind):
		return "text"
	case typ.Nested():
		return "json"
	default:
		return name
	}
}

// pass copies what src holds into a place, reads the place back, and holds it against what was there. It returns what the place holds
// now, and what was refused or set aside.
func pass(t *testing.T, src engine.SourceSpec, to place, s system, want table) (holds table, lost []string) {
	t.Helper()
	ctx := context.Background()
	plan := engine.Plan{
		Name: "pair", Source: src, Sinks: []engine.SinkSpec{{Name: "to", Connector: to.connector, Config: to.cfg}},
		BadRows: engine.BadRows{Action: engine.SetAside},
	}
	refused := map[string]bool{}
	report, err := engine.Check(ctx, plan, deps(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		if p.Dataset == "" || p.Column == "" {
			t.Fatalf("a problem that names no column: %+v", p)
		}
		refused[bare(p.Dataset)] = true
		lost = append(lost, p.Dataset+" refused")
	}
	if len(refused) > 0 {
		plan.Source.Transforms = append(plan.Source.Transforms, without(refused))
	}
	aside := &rejects{}
	if _, err := engine.Run(ctx, plan, deps(t, aside)); err != nil {
		t.Fatal(err)
	}
	got := readBack(t, s, to.url, want)
	missing := map[string]map[string]bool{}
	for _, r := range aside.rows {
		if r.Column == "" || r.Message == "" || len(r.Raw) == 0 {
			t.Errorf("a row was set aside without column, message and row: %+v", r)
		}
		lost = append(lost, r.Dataset+" set aside")
	}
	holds = table{}
	for _, dataset := range slices.Sorted(maps.Keys(want)) {
		if refused[dataset] {
			continue
		}
		holds[dataset] = map[string]string{}
		missing[dataset] = map[string]bool{}
		for id, v := range want[dataset] {
			g, ok := got[dataset][id]
			switch {
			case !ok:
				missing[dataset][id] = true
			case g != v:
				t.Errorf("%s, id %s: %q became %q", dataset, id, show(v), show(g))
			default:
				holds[dataset][id] = v
			}
		}
		if n := len(got[dataset]) + len(missing[dataset]); n != len(want[dataset]) {
			t.Errorf("%s: %d rows went in, %d came out and %d were lost", dataset, len(want[dataset]), len(got[dataset]), len(missing[dataset]))
		}
		set := 0
		for _, r := range aside.rows {
			if bare(r.Dataset) == dataset {
				set++
			}
		}
		if set != len(missing[dataset]) {
			t.Errorf("%s: %d rows are missing and %d were set aside", dataset, len(missing[dataset]), set)
		}
	}
	return holds, slices.Compact(lost)
}

func show(v string) string {
	if len(v) > 200 {
		return v[:200] + "…"
	}
	return v
}

// bare is a dataset's name without its schema.
func bare(dataset string) string {
	parts := record.SplitName(dataset)
	return parts[len(parts)-1]
}

// without drops datasets.
type without map[string]bool

func (w without) Schema(in *record.Schema) (*record.Schema, error) {
	if w[bare(in.Dataset)] {
		return nil, nil //nolint:nilnil // a dataset is dropped that way
	}
	return in, nil
}

func (w without) Apply(b *record.Batch) (*record.Batch, error) {
	if w[bare(b.Schema.Dataset)] {
		return nil, nil //nolint:nilnil // a batch is dropped that way
	}
	return b, nil
}

func readBack(t *testing.T, s system, url string, want table) table {
	t.Helper()
	sink := &collected{}
	plan := engine.Plan{Name: "back", Source: sourceAt(t, s, url, want), Sinks: []engine.SinkSpec{{Name: "memory", Connector: "collected", Config: sink}}}
	if _, err := engine.Run(context.Background(), plan, deps(t, nil)); err != nil {
		t.Fatalf("reading back: %v", err)
	}
	got := table{}
	for dataset, batches := range sink.batches {
		got[bare(dataset)] = map[string]string{}
		for _, b := range batches {
			for id, v := range cells(b) {
				if _, twice := got[bare(dataset)][id]; twice {
					t.Errorf("%s: id %s came twice", dataset, id)
				}
				got[bare(dataset)][id] = v
			}
		}
	}
	return got
}

func deps(t *testing.T, r engine.RejectStore) engine.Deps {
	t.Helper()
	store, err := sqlite.Open(context.Background(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return engine.Deps{Store: store, Rejects: r, Log: slog.New(slog.DiscardHandler)}
}
