package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every relative link of the pages that people read first leads somewhere.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, page := range []string{"../../README.md", "../../examples/README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", page, m[1], err)
			}
		}
	}
}

// The commands of the README are commands, with flags that exist.
func TestReadmeCommands(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?:bin/)?leat (copy|sync|run|check|preview|discover|connectors|status|state|drop|schema|version)\b([^\n|]*)`)
	flag := regexp.MustCompile(`--([a-z-]+)`)
	seen := 0
	for _, m := range command.FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(m[0], "`") {
			seen++
		}
		for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
			if help := leatIn(t, t.TempDir(), nil, m[1], "--help"); !strings.Contains(help, "--"+f[1]) {
				t.Errorf("leat %s has no flag --%s", m[1], f[1])
			}
		}
	}
	if seen < 10 {
		t.Errorf("found only %d commands", seen)
	}
}
