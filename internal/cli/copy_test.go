package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connectors/sqlite"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/state"
)

func testSession(t *testing.T) *session {
	t.Helper()
	reg := &connector.Registry{}
	if err := reg.Register(sqlite.Definition()); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) { return "hidden-" + name, strings.HasPrefix(name, "SECRET") }
	return &session{
		App: App{
			Registry: reg, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Now: time.Now, Lookup: config.Lookup{Env: env},
		},
		redact: &redactor{}, stderr: &bytes.Buffer{}, logFormat: "text",
	}
}

func pipelineOf(t *testing.T, src, dst string, f copyFlags) *config.Pipeline {
	t.Helper()
	p, err := testSession(t).copyPipeline(src, dst, f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// clause S16: the name of a copy, and with it what is saved, depends on what is copied, and on nothing else.
func TestCopyName(t *testing.T) {
	base := pipelineOf(t, "a.db", "b.db", copyFlags{}).Name
	if err := state.ValidateName(base); err != nil || !strings.HasPrefix(base, "copy-a-b-") {
		t.Errorf("got %s, %v", base, err)
	}
	for name, f := range map[string]copyFlags{
		"batch size": {batchRows: 5},
		"bad rows":   {setAside: "3"},
		"policies":   {policies: []string{"x=null"}},
		"guarantee":  {guarantee: "at-least-once"},
		"time-outs":  {sourceOpt: []string{"busy_timeout=3s"}},
	} {
		if got := pipelineOf(t, "a.db", "b.db", f).Name; got != base {
			t.Errorf("%s changes the name: %s, not %s", name, got, base)
		}
	}
	seen := map[string]string{base: "nothing"}
	for name, f := range map[string]copyFlags{
		"mode": {mode: "upsert"}, "key": {key: []string{"id"}}, "columns": {columns: []string{"a"}}, "where": {where: "a > 1"},
		"limit": {limit: 3}, "tables": {tables: []string{"a*"}}, "option": {sourceOpt: []string{"cursor=at", "table=x"}},
	} {
		got := pipelineOf(t, "a.db", "b.db", f).Name
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s have the same name %s", name, other, got)
		}
		seen[got] = name
	}
	for _, other := range []string{"c.db", "dir/b.db"} {
		if got := pipelineOf(t, "a.db", other, copyFlags{}).Name; seen[got] != "" {
			t.Errorf("target %s has the name of %s", other, seen[got])
		}
	}
	if got := pipelineOf(t, "a.db", "b.db", copyFlags{name: "mine"}).Name; got != "mine" {
		t.Errorf("got %s", got)
	}
}

// A relative file name means another file in another folder.
func TestCopyNameDependsOnTheFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	first := pipelineOf(t, "a.db", "/tmp/b.db", copyFlags{}).Name
	t.Chdir(t.TempDir())
	if second := pipelineOf(t, "a.db", "/tmp/b.db", copyFlags{}).Name; first == second {
		t.Error("the same name in two folders")
	}
}

func TestEndpoints(t *testing.T) {
	def := connector.Definition{Name: "pg", Schemes: []string{"pg"}}
	for _, c := range []struct{ raw, place, label string }{
		{"pg://app:secret@db/shop?table=orders&password=x", "pg://app@db/shop?table=orders&password=***", "shop"},
		{"pg://app:other@db/shop?table=orders&password=y", "pg://app@db/shop?table=orders&password=***", "shop"},
		{"pg://db", "pg://db", "pg"},
		{"pg:/data/orders.v2.csv", "pg:/data/orders.v2.csv", "orders"},
		{"pg:-", "pg:-", "pg"},
		{"/data/ünï.csv", "/data/ünï.csv", "n"},
		{"/data/*.csv", "/data/*.csv", "pg"},
	} {
		e := endpoint{raw: c.raw, def: def}
		if got := e.place(); got != c.place {
			t.Errorf("%s: place %s, want %s", c.raw, got, c.place)
		}
		if got := e.label(); got != c.label {
			t.Errorf("%s: label %s, want %s", c.raw, got, c.label)
		}
	}
}

// Secrets in arguments are put in, and known to the redactor.
func TestSecretsInArguments(t *testing.T) {
	s := testSession(t)
	if _, err := s.locate("source", "sqlite:${env:SECRET}.db", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.locate("source", "sqlite://u:${env:SECRET_2}@h/x.db", nil); err != nil {
		t.Fatal(err)
	}
	if got := s.redact.text("it is hidden-SECRET_2"); got != "it is ***" {
		t.Error(got)
	}
}

func TestPlan(t *testing.T) {
	mode := connector.Upsert
	f := runFlags{adopt: true, commitBytes: "1MB"}
	got, err := f.plan(&config.Pipeline{
		Name: "n", Guarantee: connector.AtLeastOnce, Limit: 7, BatchRows: 9,
		Source: config.Source{Connector: "c"}, Transforms: config.Transforms{Text: "t"},
		BadRows: &config.BadRows{SetAside: true, Limit: 4},
		Sinks: []config.Sink{
			{Name: "a", Mode: &mode, Key: []string{"id"}, BadRows: &config.BadRows{}},
			{Name: "b", Keys: map[string][]string{"d": {"id"}}, Policies: map[string]connector.Policy{"x": connector.PolicyNull}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Plan{
		Name: "n", Guarantee: connector.AtLeastOnce, Limit: 7, Batch: connector.Limit{Rows: 9, Bytes: 4 << 20},
		Source: engine.SourceSpec{Connector: "c", Text: "t"}, BadRows: engine.BadRows{Action: engine.SetAside, Limit: 4},
		Sinks: []engine.SinkSpec{
			{Name: "a", Mode: &mode, Key: []string{"id"}, BadRows: &engine.BadRows{Action: engine.Stop}},
			{Name: "b", Keys: map[string][]string{"d": {"id"}}, Policies: map[string]connector.Policy{"x": connector.PolicyNull}},
		},
		Commit: engine.Commit{Bytes: 1e6}, Changed: engine.AdoptChanged,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStateDir(t *testing.T) {
	s := testSession(t)
	env := map[string]string{}
	s.Lookup.Env = func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	t.Setenv("HOME", "/home/x")
	for _, c := range []struct{ name, value, want string }{
		{"", "", "/home/x/.local/state/leat"},
		{"XDG_STATE_HOME", "relative is invalid", "/home/x/.local/state/leat"},
		{"XDG_STATE_HOME", "/xdg", "/xdg/leat"},
		{"LEAT_STATE", "own", "own"},
	} {
		env[c.name] = c.value
		got, err := s.stateDir()
		if err != nil || got != filepath.FromSlash(c.want) {
			t.Errorf("%s=%s: got %s, %v", c.name, c.value, got, err)
		}
	}
	s.home = "flag"
	if got, _ := s.stateDir(); got != "flag" {
		t.Errorf("got %s", got)
	}
}
