package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// discover proves clause S24: what Discover says is what Read delivers; its patches select it; and it takes nothing away.
func (s *sourceSuite) discover(t testing.TB) {
	ctx := deadline(t)
	g := s.open(t)
	d, ok := connector.As[connector.Discoverer](g.src)
	if !ok {
		g.end(t)
		return
	}
	found, err := d.Discover(ctx)
	if err != nil {
		g.end(t)
		t.Fatalf("Discover: %v", err)
	}
	if err := g.src.Start(ctx, s.request(record.Position{})); err != nil {
		g.end(t)
		t.Fatalf("Start after Discover: %v", err)
	}
	h := g.drain(t, ctx, rowLimit(1_000), s.total())
	g.end(t)
	s.sameRows(t, "after Discover", h)
	schemas := map[string]*record.Schema{}
	for _, b := range h.batches {
		if schemas[b.Schema.Dataset] == nil {
			schemas[b.Schema.Dataset] = b.Schema
		}
	}
	for _, ds := range found {
		s.checkDataset(t, ds, schemas[ds.Name])
		delete(schemas, ds.Name)
		if s.contract.Bounded && s.Datasets == nil && s.contract.Replay != connector.NoReplay {
			s.checkPatch(t, ds)
		}
	}
	for name := range schemas {
		t.Errorf("Read delivered dataset %s, which Discover does not list", name)
	}
}

func (s *sourceSuite) checkDataset(t testing.TB, ds connector.Dataset, got *record.Schema) {
	t.Helper()
	secrets(s.Secrets).check(t, "a patch", fmt.Sprint(ds.Patch))
	switch {
	case ds.Schema == nil || ds.Schema.Dataset != ds.Name:
		t.Errorf("dataset %s: Discover gives the schema %v", ds.Name, ds.Schema)
	case got == nil:
		if s.Datasets == nil {
			t.Errorf("Discover lists %s, and Read delivered no batch of it", ds.Name)
		}
	case !ds.Schema.Columns.Equal(got.Columns) || !cmp.Equal(append([]int{}, ds.Schema.Key...), append([]int{}, got.Key...)):
		t.Errorf("dataset %s: Discover says %s with key %v, Read delivers %s with key %v", ds.Name, ds.Schema.Columns,
			ds.Schema.Key, got.Columns, got.Key)
	}
}

// checkPatch: the options that a descriptor hands out select exactly its dataset.
func (s *sourceSuite) checkPatch(t testing.TB, ds connector.Dataset) {
	t.Helper()
	cfg := s.New(t)
	if err := connector.SetOptions(cfg, ds.Patch); err != nil {
		t.Errorf("dataset %s: the patch %v is refused: %v", ds.Name, ds.Patch, err)
		return
	}
	ctx := deadline(t)
	g := s.openConfig(t, cfg)
	defer g.end(t)
	if err := g.src.Start(ctx, connector.SourceStart{}); err != nil {
		t.Errorf("dataset %s: Start with the patch %v: %v", ds.Name, ds.Patch, err)
		return
	}
	h := g.drain(t, ctx, rowLimit(1_000), len(s.Want[ds.Name]))
	if diff := cmp.Diff(s.sorted(map[string][]string{ds.Name: s.Want[ds.Name]}), s.sorted(h.byDataset())); diff != "" {
		t.Errorf("dataset %s: the patch %v selects something else (-want +got):\n%s", ds.Name, ds.Patch, diff)
	}
}

// check proves clause S23: probes have names, and a fix where something is wrong; nothing is consumed.
func (s *sourceSuite) check(t testing.TB) {
	ctx := deadline(t)
	g := s.open(t)
	if n, ok := connector.As[connector.Named](g.src); ok {
		for d := range s.Want {
			secrets(s.Secrets).check(t, "a URI", n.URI(d))
		}
	}
	c, ok := connector.As[connector.Checker](g.src)
	if !ok {
		g.end(t)
		return
	}
	checkProbes(t, s.Secrets, func() ([]connector.Probe, error) { return c.Check(ctx) })
	g.end(t)
	s.sameRows(t, "after Check", s.all(t, 1_000))
}

func checkProbes(t testing.TB, hidden secrets, check func() ([]connector.Probe, error)) {
	t.Helper()
	probes, err := check()
	hidden.err(t, err)
	if err != nil {
		t.Errorf("Check: %v", err)
	}
	for _, p := range probes {
		hidden.check(t, "a probe", p.Name+p.Detail+p.Fix)
		if p.Name == "" || (p.Status != connector.Pass && p.Fix == "") {
			t.Errorf("probe %+v: want a name, and a fix where it does not pass", p)
		}
	}
}

// splits proves clause S25: stable ids, each of one split, and together the whole: nothing is missing, nothing is in two of them.
func (s *sourceSuite) splits(t testing.TB) {
	ctx := deadline(t)
	g := s.open(t)
	defer g.end(t)
	sp, ok := connector.As[connector.Splitter](g.src)
	if !ok {
		return
	}
	splits, err := sp.Splits(ctx, 4)
	if err != nil {
		t.Fatalf("Splits: %v", err)
	}
	if again, err := sp.Splits(ctx, 4); err != nil || !cmp.Equal(splits, again) {
		t.Errorf("Splits answers differently when it is asked again: %v, then %v (%v)", splits, again, err)
	}
	seen := map[string]bool{}
	var parts []*generation
	defer func() {
		for _, part := range parts {
			part.end(t)
		}
	}()
	for _, split := range splits {
		if split.ID == "" || seen[split.ID] {
			t.Errorf("split %+v: want an id of its own", split)
		}
		seen[split.ID] = true
		part := s.open(t)
		parts = append(parts, part)
		req := s.request(record.Position{})
		req.Splits = []connector.Split{split}
		if err := part.src.Start(ctx, req); err != nil {
			t.Fatalf("Start of split %s: %v", split.ID, err)
		}
	}
	s.sameMultiset(t, "the splits together", s.union(t, ctx, parts))
}

// union reads all parts in turn, as what has no end says of no part when it has had all of it: until each has ended, or all rows have
// come and nothing more does.
func (s *sourceSuite) union(t testing.TB, ctx context.Context, parts []*generation) []string {
	t.Helper()
	h := new(history)
	left, quiet := slices.Clone(parts), 0
	for len(left) > 0 && (quiet < quietRounds || len(h.rows) < s.total()) {
		quiet++
		left = slices.DeleteFunc(left, func(g *generation) bool {
			b, err := g.read(t, ctx, connector.Limit{Rows: 1_000, Bytes: 16 << 20})
			switch {
			case errors.Is(err, io.EOF) && s.contract.Bounded:
				return true
			case err != nil:
				t.Fatalf("Read of a split: %v", err)
			case b == nil:
				g.idle(t, ctx)
			default:
				quiet = 0
				h.add(b)
			}
			return false
		})
	}
	return h.rows
}

// quietRounds is how often every part has nothing before that counts as all.
const quietRounds = 20

func (s *sourceSuite) sameMultiset(t testing.TB, what string, got []string) {
	t.Helper()
	var want []string
	for d, rows := range s.Want {
		for _, r := range rows {
			want = append(want, d+"\t"+r)
		}
	}
	slices.Sort(want)
	got = slices.Sorted(slices.Values(got))
	if !slices.Equal(want, got) {
		t.Errorf("%s are not the whole (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

// chunks: a dataset's chunks cover every row once, are planned on behind any chunk, and their batches have no position.
func (s *sourceSuite) chunks(t testing.TB) {
	ctx := deadline(t)
	g := s.start(t, ctx, record.Position{})
	defer g.end(t)
	sn, ok := connector.As[connector.Snapshotter](g.src)
	if !ok {
		return
	}
	var all []string
	for dataset := range s.Want {
		plan := planChunks(t, ctx, sn, dataset, nil)
		for i, c := range plan {
			all = append(all, readChunk(t, ctx, sn, c)...)
			if i == 0 || i == len(plan)/2 {
				rest := planChunks(t, ctx, sn, dataset, c.To)
				var a, b []string
				for _, x := range plan[i+1:] {
					a = append(a, readChunk(t, ctx, sn, x)...)
				}
				for _, x := range rest {
					b = append(b, readChunk(t, ctx, sn, x)...)
				}
				if !slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))) {
					t.Errorf("dataset %s: chunks planned behind %s differ from those planned at first", dataset, c.To)
				}
			}
		}
	}
	s.sameMultiset(t, "the chunks together", all)
}

func planChunks(t testing.TB, ctx context.Context, sn connector.Snapshotter, dataset string, after json.RawMessage) []record.Chunk {
	t.Helper()
	var plan []record.Chunk
	for c, err := range sn.PlanChunks(ctx, dataset, after, 64) {
		if err != nil {
			t.Fatalf("PlanChunks of %s: %v", dataset, err)
		}
		plan = append(plan, c)
		if len(plan) > 10_000 {
			t.Fatalf("PlanChunks of %s does not end", dataset)
		}
	}
	for i := 1; i < len(plan); i++ {
		if string(plan[i].From) != string(plan[i-1].To) {
			t.Errorf("dataset %s: chunk %d ends at %s, the next begins at %s", dataset, i-1, plan[i-1].To, plan[i].From)
		}
	}
	return plan
}

func readChunk(t testing.TB, ctx context.Context, sn connector.Snapshotter, c record.Chunk) []string {
	t.Helper()
	var rows []string
	err := sn.ReadChunk(ctx, c, func(b *record.Batch) error {
		if !b.Position.Zero() {
			t.Errorf("a batch of a chunk has the position %s", b.Position)
		}
		for _, r := range Rows(b) {
			rows = append(rows, b.Schema.Dataset+"\t"+strings.TrimSpace(r))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("ReadChunk of %s: %v", c.Dataset, err)
	}
	return rows
}
