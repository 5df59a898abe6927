package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/state"
)

// wellConfig is a source that can be followed, unless it is a query.
type wellConfig struct {
	Host     string           `leat:"host"`
	Password connector.Secret `leat:"password"`
	Tables   []string         `leat:"tables"`
	Where    string           `leat:"where"`
	Query    string           `leat:"query"`
	Slot     string           `leat:"slot"`
	Follow   bool             `leat:"follow"`
}

func (c *wellConfig) SetURL(raw string) error {
	_, rest, _ := strings.Cut(raw, "://")
	host, query, _ := strings.Cut(rest, "?")
	c.Host = host[strings.LastIndexByte(host, '@')+1:]
	for pair := range strings.SplitSeq(query, "&") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			if err := connector.SetOption(c, name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *wellConfig) Contract() (connector.SourceContract, error) {
	switch {
	case c.Slot != "" && !c.Follow:
		return connector.SourceContract{}, errors.New("slot is for a source that is followed")
	case c.Query != "" && c.Follow:
		return connector.SourceContract{}, &connector.Error{Class: connector.ClassConfig, Err: errors.New("a query can't be followed"), Hint: "name a table"}
	case c.Follow:
		return connector.SourceContract{Input: connector.Changelog, Replay: connector.Deterministic}, nil
	}
	return connector.SourceContract{Bounded: true, Replay: connector.Deterministic}, nil
}

func (c *wellConfig) Identity() map[string]string {
	return map[string]string{"tables": strings.Join(c.Tables, ","), "where": c.Where}
}

func (c *wellConfig) Open(connector.Env) (connector.Source, error) {
	return nil, errors.New("not in this test")
}

// bookConfig is a sink of files, which takes changes as a log only.
type bookConfig struct {
	Path string `leat:"path"`
	Log  bool   `leat:"log"`
	Null string `leat:"null"`
}

func (c *bookConfig) SetURL(raw string) error {
	c.Path = strings.TrimPrefix(raw, "book:")
	return nil
}

func (c *bookConfig) Contract() (connector.SinkContract, error) {
	if strings.HasSuffix(c.Path, ".fixed") && c.Log {
		return connector.SinkContract{}, errors.New("such a file can't be a log")
	}
	input := connector.AppendOnly
	if c.Log {
		input = connector.Changelog
	}
	return connector.SinkContract{Modes: []connector.WriteMode{connector.Append}, Input: input, Durable: true}, nil
}

func (c *bookConfig) Identity() map[string]string { return map[string]string{"path": c.Path} }

func (c *bookConfig) Open(connector.Env) (connector.Sink, error) {
	return nil, errors.New("not in this test")
}

func syncSession(t *testing.T) *session {
	t.Helper()
	s := testSession(t)
	for _, d := range []connector.Definition{
		{Name: "well", Title: "Well", Schemes: []string{"well"}, Source: func() connector.SourceConfig { return &wellConfig{} }},
		{Name: "book", Title: "Book", Schemes: []string{"book"}, Sink: func() connector.SinkConfig { return &bookConfig{} }},
	} {
		if err := s.Registry.Register(d); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func syncOf(t *testing.T, f syncFlags, args ...string) *config.Pipeline {
	t.Helper()
	p, err := syncSession(t).syncPipeline(args, f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// planFor runs a command up to the plan that it would run.
func planFor(t *testing.T, s *session, args ...string) (plan engine.Plan, err error) {
	t.Helper()
	var f syncFlags
	var r runFlags
	cmd := s.syncCommand()
	cmd.ResetFlags()
	f.register(cmd.Flags())
	r.follow.register(cmd.Flags())
	r.register(cmd.Flags())
	if err := cmd.ParseFlags(args); err != nil {
		return plan, err
	}
	p, err := s.syncPipeline(cmd.Flags().Args(), f)
	if err != nil {
		return plan, err
	}
	return r.plan(p)
}

func TestSyncPlan(t *testing.T) {
	s := syncSession(t)
	plan, err := planFor(t, s, "well://app:hush@h/shop", "sqlite:a.db", "book:out", "--tables", "a,b", "--where", "x > 1",
		"--snapshot", "none", "--once", "--resnapshot", "a", "--resnapshot", "b", "--schema", "ignore", "--schema", "x=y.a=fail",
		"--set-aside=3", "--policy", "x=null", "--key", "id", "--sink-opt", "null=NULL", "--restart")
	if err != nil {
		t.Fatal(err)
	}
	well, ok := plan.Source.Config.(*wellConfig)
	if !ok || !well.Follow || well.Where != "x > 1" || !cmp.Equal(well.Tables, []string{"a", "b"}) {
		t.Errorf("source: %+v", well)
	}
	if plan.Snapshot != engine.SnapshotNone || !plan.Once || !cmp.Equal(plan.Resnapshot, []string{"a", "b"}) ||
		plan.Changed != engine.ResetChanged || plan.BadRows != (engine.BadRows{Action: engine.SetAside, Limit: 3}) {
		t.Errorf("plan: %+v", plan)
	}
	table, log := plan.Sinks[0], plan.Sinks[1]
	if table.Name != "sqlite-a" || *table.Mode != connector.Upsert || log.Name != "book-out" || log.Mode != nil {
		t.Errorf("sinks: %+v, %+v", table, log)
	}
	if b, ok := log.Config.(*bookConfig); !ok || !b.Log || b.Null != "NULL" {
		t.Errorf("a file is no log: %+v", log.Config)
	}
	want := map[string]engine.SchemaPolicy{"*": engine.IgnoreSchema, "x=y.a": engine.FailSchema}
	for _, sink := range plan.Sinks {
		if !cmp.Equal(sink.Schema, want) || sink.Policies["x"] != connector.PolicyNull || !cmp.Equal(sink.Key, []string{"id"}) {
			t.Errorf("sink %s: %+v", sink.Name, sink)
		}
	}
	if strings.Contains(plan.Name, "hush") || state.ValidateName(plan.Name) != nil {
		t.Errorf("name %s", plan.Name)
	}
}

func TestSyncLanes(t *testing.T) {
	for _, kind := range []string{"", config.LanesAuto, config.LanesMemory, config.LanesDurable} {
		if p := syncOf(t, syncFlags{lanes: kind}, "well://h/shop", "sqlite:a.db"); p.Lanes != (config.Lanes{Kind: kind}) {
			t.Errorf("--lanes %s: %+v", kind, p.Lanes)
		}
	}
}

// clause S16: the same command goes on with the same pipeline; another selection is another one.
func TestSyncName(t *testing.T) {
	args := []string{"well://app:hush@h/shop", "sqlite:a.db", "book:out"}
	base := syncOf(t, syncFlags{}, args...).Name
	if !strings.HasPrefix(base, "sync-shop-out-and-1-") {
		t.Error(base)
	}
	for name, p := range map[string]*config.Pipeline{
		"another password":       syncOf(t, syncFlags{}, "well://app:other@h/shop", "sqlite:a.db", "book:out"),
		"the order of the sinks": syncOf(t, syncFlags{}, args[0], args[2], args[1]),
		"a policy":               syncOf(t, syncFlags{schema: []string{"fail"}}, args...),
		"other lanes":            syncOf(t, syncFlags{lanes: config.LanesDurable}, args...),
		"what is the default":    syncOf(t, syncFlags{copyFlags: copyFlags{sourceOpt: []string{"follow=true"}}}, args...),
	} {
		if p.Name != base {
			t.Errorf("%s changes the name: %s, not %s", name, p.Name, base)
		}
	}
	seen := map[string]string{base: "nothing"}
	for name, p := range map[string]*config.Pipeline{
		"tables":      syncOf(t, syncFlags{copyFlags: copyFlags{tables: []string{"a"}}}, args...),
		"condition":   syncOf(t, syncFlags{copyFlags: copyFlags{where: "a"}}, args...),
		"one sink":    syncOf(t, syncFlags{}, args[:2]...),
		"other sink":  syncOf(t, syncFlags{}, args[0], "sqlite:b.db", args[2]),
		"other key":   syncOf(t, syncFlags{copyFlags: copyFlags{key: []string{"a"}}}, args...),
		"other place": syncOf(t, syncFlags{}, "well://app@other/shop", args[1], args[2]),
	} {
		if other, ok := seen[p.Name]; ok {
			t.Errorf("%s and %s have the same name %s", name, other, p.Name)
		}
		seen[p.Name] = name
	}
	if p := syncOf(t, syncFlags{copyFlags: copyFlags{name: "mine"}}, args...); p.Name != "mine" {
		t.Error(p.Name)
	}
}

// The name of a lane is part of what sinks keep: it hangs on no order.
func TestLaneNames(t *testing.T) {
	names := func(args ...string) map[string]string {
		out := map[string]string{}
		for i, sink := range syncOf(t, syncFlags{}, append([]string{"well://h/shop"}, args...)...).Sinks {
			out[args[i]] = sink.Name
			if err := state.ValidateName(sink.Name); err != nil {
				t.Error(err)
			}
		}
		return out
	}
	want := map[string]string{"/x/a.db": "sqlite-a", "book:-": "book", "book:/x/a": "book-a"}
	if diff := cmp.Diff(want, names("/x/a.db", "book:-", "book:/x/a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	one, two := names("/x/a.db", "/y/a.db", "/z/b.db"), names("/z/b.db", "/y/a.db", "/x/a.db")
	if diff := cmp.Diff(one, two); diff != "" || one["/x/a.db"] == one["/y/a.db"] || !strings.HasPrefix(one["/x/a.db"], "sqlite-a-") {
		t.Errorf("%v, %s", one, diff)
	}
}

// What can't be followed is refused with what to type instead, as it was typed: no secret that was put in shows.
func TestSyncRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"no log of changes", []string{"a.db", "it's b.db", "book:c"}, []string{
			"source: SQLite can't be followed, it is read to its end", "copy it, as often as you like:",
			`leat copy a.db 'it'\''s b.db'`, "leat copy a.db book:c",
		}},
		{"query", []string{"well://u:${env:SECRET}@h/shop?query=select", "a.db"}, []string{
			"source: a query can't be followed", "name a table", "leat copy 'well://u:***@h/shop?query=select' a.db",
		}},
		{"wrong option", []string{"well://h/shop?slto=x", "a.db"}, []string{`unknown option "slto": did you mean "slot"?`}},
		{"sink twice", []string{"well://h/shop", "a.db", "a.db"}, []string{"a.db is named twice"}},
		{"no log of that format", []string{"well://h/shop", "book:x.fixed"}, []string{`sink "book-x": such a file can't be a log`}},
		{"flags", []string{
			"well://h/shop", "a.db", "b.db", "--schema", "t=drop", "--sink-opt", "nonsense=1", "--mode", "merge", "--policy", "x",
		}, []string{
			`--schema t=drop: unknown schema policy "drop": want evolve, ignore, set_aside or fail`,
			`--sink-opt nonsense=1: none of the sinks has the option "nonsense"`, `unknown mode "merge"`, "want COLUMN=POLICY",
		}},
		{"snapshot", []string{"well://h/shop", "a.db", "--snapshot", "all"}, []string{`--snapshot: unknown snapshot "all": want first, none or only`}},
		{"restart and adopt", []string{"well://h/shop", "a.db", "--restart", "--adopt"}, []string{"want one of them"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := syncSession(t)
			_, err := planFor(t, s, c.args...)
			if err == nil {
				t.Fatal("accepted")
			}
			text := s.redact.text(errorText(err))
			for _, w := range c.want {
				if !strings.Contains(text, w) {
					t.Errorf("lacks %q:\n%s", w, text)
				}
			}
			if strings.Contains(text, "hidden-") {
				t.Errorf("shows a secret:\n%s", text)
			}
		})
	}
	if _, err := planFor(t, syncSession(t), "well://h/shop?slot=mine", "a.db"); err != nil {
		t.Errorf("an option that needs follow: %v", err)
	}
}

// A pipeline file whose source is followed works as sync does; one whose source is not takes none of its flags.
func TestFollowFlags(t *testing.T) {
	s := syncSession(t)
	p, err := config.Parse([]byte("name: n\nsource: {well: {host: h, follow: true}}\nonce: true\nsinks: {a: a.db, b: {book: x, schema: fail}}\n"),
		"p.yaml", s.Registry, s.Lookup)
	if err != nil {
		t.Fatal(err)
	}
	if err := followDefaults(p); err != nil {
		t.Fatal(err)
	}
	f := runFlags{follow: followFlags{snapshot: "only", resnapshot: []string{"t"}}}
	plan, err := f.plan(p)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Snapshot != engine.SnapshotOnly || !plan.Once || !cmp.Equal(plan.Resnapshot, []string{"t"}) || *plan.Sinks[0].Mode != connector.Upsert ||
		!cmp.Equal(plan.Sinks[1].Schema, map[string]engine.SchemaPolicy{"*": engine.FailSchema}) || !ends(p) {
		t.Errorf("got %+v", plan)
	}
	for flag, f := range map[string]followFlags{
		"--once": {once: true}, "--snapshot": {snapshot: "none"}, "--resnapshot": {resnapshot: []string{"a"}},
	} {
		r := runFlags{follow: f}
		if _, err := r.plan(pipelineOf(t, "a.db", "b.db", copyFlags{})); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// The names in files are those of the engine.
func TestFollowNames(t *testing.T) {
	for _, name := range []string{config.SnapshotFirst, config.SnapshotNone, config.SnapshotOnly} {
		if v, err := engine.ParseSnapshot(name); err != nil || v.String() != name {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	for _, name := range []string{config.SchemaEvolve, config.SchemaIgnore, config.SchemaSetAside, config.SchemaFail} {
		if v, err := engine.ParseSchemaPolicy(name); err != nil || v.String() != name {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}

// check takes the arguments and flags of copy and of sync.
func TestChecked(t *testing.T) {
	s := syncSession(t)
	well := "well://h/shop"
	p, err := s.checked([]string{well, "a.db", "b.db"}, checkFlags{sync: true, follow: followFlags{snapshot: "none"}})
	if err != nil || len(p.Sinks) != 2 || p.Snapshot != config.SnapshotNone || !follows(p) {
		t.Errorf("got %+v, %v", p, err)
	}
	if p, err := s.checked([]string{well, "a.db"}, checkFlags{}); err != nil || follows(p) {
		t.Errorf("got %+v, %v", p, err)
	}
	for name, c := range map[string]struct {
		args []string
		f    checkFlags
	}{
		"sync of a file":  {[]string{"p.yaml"}, checkFlags{sync: true}},
		"limit of a sync": {[]string{well, "a.db"}, checkFlags{sync: true, syncFlags: syncFlags{copyFlags: copyFlags{limit: 1}}}},
		"several sinks":   {[]string{well, "a.db", "b.db"}, checkFlags{}},
		"schema":          {[]string{well, "a.db"}, checkFlags{syncFlags: syncFlags{schema: []string{"fail"}}}},
		"lanes":           {[]string{well, "a.db"}, checkFlags{syncFlags: syncFlags{lanes: config.LanesMemory}}},
		"unknown lanes":   {[]string{well, "a.db"}, checkFlags{sync: true, syncFlags: syncFlags{lanes: "disk"}}},
		"once":            {[]string{well, "a.db"}, checkFlags{follow: followFlags{once: true}}},
	} {
		if _, err := s.checked(c.args, c.f); exitCode(err) != ExitUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every probe is told, those that have to be fixed last, each with its fix.
func TestCheckGroupsByStatus(t *testing.T) {
	r := engine.Report{
		Probes: []engine.ProbeReport{
			{Where: "source", Probe: connector.Probe{Name: "log", Status: connector.Fail, Detail: "is replica", Fix: "set it"}},
			{Where: "source", Probe: connector.Probe{Name: "version", Detail: "18"}},
			{Where: "a", Probe: connector.Probe{Name: "disk", Status: connector.Warn, Detail: "is small", Fix: "buy one"}},
			{Where: "a", Probe: connector.Probe{Name: "table", Status: connector.Fail, Detail: "is missing", Fix: "make it"}},
		},
		Problems: []engine.Problem{{Sink: "a", Message: "no", Hint: "yes"}},
	}
	s := syncSession(t)
	var out strings.Builder
	s.Stdout = &out
	if err := s.printCheck(&config.Pipeline{Name: "p"}, r); err != nil {
		t.Fatal(err)
	}
	want := `pipeline p
guarantee: none ()

pass  source: version: 18
warn  a: disk: is small
      fix: buy one
fail  source: log: is replica
      fix: set it
fail  a: table: is missing
      fix: make it

problem: sink "a": no
  fix: yes

not ok: a run would not start: 3 things to fix
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A pipeline that is dropped by its source alone is the only one that is known of it.
func TestOnlyPipeline(t *testing.T) {
	s := syncSession(t)
	s.home = t.TempDir()
	err := s.withStore(t.Context(), func(ctx context.Context, store state.Store) error {
		find := func() string {
			name, err := onlyPipeline(ctx, store, "sync-shop-")
			if err != nil {
				return err.Error()
			}
			return name
		}
		got := []string{find()}
		for _, name := range []string{"sync-shop-b-1", "sync-shopping-x-1", "sync-shop-a-2"} {
			if _, err := store.Save(ctx, state.Record{Pipeline: name, Attempt: 1}, 0); err != nil {
				return err
			}
			got = append(got, find())
		}
		want := []string{
			"no pipeline of that source is known", "sync-shop-b-1", "sync-shop-b-1",
			"several pipelines of that source are known: sync-shop-a-2, sync-shop-b-1",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestShellWord(t *testing.T) {
	words := map[string]string{
		"": "''", "a.db": "a.db", "postgres://app@db/shop?a=b": "'postgres://app@db/shop?a=b'", "it's": `'it'\''s'`, "a b": "'a b'",
	}
	for _, in := range slices.Sorted(maps.Keys(words)) {
		if got := shellWord(in); got != words[in] {
			t.Errorf("%q: got %s, want %s", in, got, words[in])
		}
	}
}
