package main

import (
	"os"
	"strings"
	"testing"
)

// A tool is installed when it is first asked for, and anew only in another version.
func TestToolInstalledOnce(t *testing.T) {
	e := jobEnv{cache: t.TempDir()}
	count := e.cache + "/count"
	one := tool{"one", "1", "echo x >> " + count + " && touch DIR/program"}
	other := one
	other.version = "2"
	for _, x := range []struct {
		tool  tool
		times int
	}{{one, 1}, {one, 1}, {other, 2}, {other, 2}, {one, 3}} {
		cs := x.tool.with(e, contender{name: "one"})
		if cs[0].skip != "" || cs[0].version != x.tool.version {
			t.Fatalf("%+v", cs[0])
		}
		said, err := os.ReadFile(count)
		if err != nil || strings.Count(string(said), "x") != x.times {
			t.Fatalf("%s was installed %q times, not %d: %v", x.tool.version, said, x.times, err)
		}
		if _, err := os.Stat(x.tool.path(e, "program")); err != nil {
			t.Fatal(err)
		}
	}
}

// A tool that can't be installed says why in its contenders' places, and is tried again.
func TestToolNotInstalled(t *testing.T) {
	e := jobEnv{cache: t.TempDir()}
	broken := tool{"broken", "1", "echo looking; echo 'ERROR: no such package'; echo 'try again'; exit 3"}
	for range 2 {
		for _, c := range broken.with(e, contender{name: "a"}, contender{name: "b"}) {
			if want := "installing broken 1: exit status 3: ERROR: no such package"; c.skip != want {
				t.Fatalf("%s: %q, not %q", c.name, c.skip, want)
			}
		}
	}
}
