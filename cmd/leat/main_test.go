package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leatdata/leat/internal/pgtest"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"leat": func() { os.Exit(run()) }})
}

// clause S31
// cases C103, C104, C105
func TestScripts(t *testing.T) {
	testscript.Run(t, params("testdata/*.txt"))
}

// case C103
func TestPostgresScripts(t *testing.T) {
	url := pgtest.Database(t)
	p := params("testdata/postgres/*.txt")
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		env.Setenv("PG", url)
		return setup(env)
	}
	testscript.Run(t, p)
}

func params(pattern string) testscript.Params {
	files, _ := filepath.Glob(pattern) // a bad pattern finds nothing, which Run refuses
	return testscript.Params{
		Files:               files,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("LEAT_STATE", filepath.Join(env.WorkDir, "state"))
			env.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits},
	}
}

// exits CODE ARGS...: leat ends with exactly this exit code. Its output is checked with stdout and stderr.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE ARGS...")
	}
	err := ts.Exec("leat", args[1:]...)
	code := "0"
	if err != nil {
		code = "?"
		if i := indexExit(err.Error()); i != "" {
			code = i
		}
	}
	if code != args[0] {
		ts.Fatalf("leat %q ended with %s, want %s (%v)", args[1:], code, args[0], err)
	}
}

// indexExit takes the code out of `exit status 3`.
func indexExit(text string) string {
	const prefix = "exit status "
	if len(text) > len(prefix) && text[:len(prefix)] == prefix {
		return text[len(prefix):]
	}
	return ""
}
