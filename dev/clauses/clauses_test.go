package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// Each file of testdata is a small repository, file by file after a line "-- name --", and at the end
// the output that is expected for it. Its first line gives the options.
func TestReports(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts, error %v", len(scripts), err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txt"), func(t *testing.T) {
			content, err := os.ReadFile(script)
			if err != nil {
				t.Fatal(err)
			}
			head, want, _ := strings.Cut(string(content), "-- output --\n")
			firstLine, files, _ := strings.Cut(head, "\n")

			var got strings.Builder
			words := strings.Fields(firstLine)
			complete, err := check(repository(files), &got, options{
				quiet:   slices.Contains(words, "-quiet"),
				verbose: slices.Contains(words, "-v"),
				strict:  slices.Contains(words, "-strict"),
			})
			if err != nil {
				fmt.Fprintf(&got, "error: %v\n", err)
			}
			fmt.Fprintf(&got, "complete: %t\n", complete)

			if *update {
				if err := os.WriteFile(script, []byte(head+"-- output --\n"+got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func repository(text string) fstest.MapFS {
	repo := fstest.MapFS{}
	var name string
	for line := range strings.Lines(text) {
		if head, ok := strings.CutPrefix(line, "-- "); ok {
			name = strings.TrimSuffix(head, " --\n")
			repo[name] = &fstest.MapFile{}
			continue
		}
		if name != "" {
			repo[name].Data = append(repo[name].Data, line...)
		}
	}
	return repo
}

func TestIDsOfComment(t *testing.T) {
	for comment, want := range map[string][]string{
		"// clause W5":                            {"W5"},
		"// Clauses W5, W6 and E1.":               {"W5", "W6", "E1"},
		"// clauses W9–W11, S1":                   {"W9", "W10", "W11", "S1"},
		"// clauses W1-W2":                        {"W1", "W2"},
		"// case C009–C011: in both orders":       {"C009", "C010", "C011"},
		"/* first clause W1;\n then case C042 */": {"W1", "C042"},
		"// clause W55X, case C12":                nil,
		"// in case of doubt, this clause is W5":  nil,
		"// clauses W3–S4":                        {"W3", "S4", "W3–S4"},
		"// clauses W4–W2":                        {"W4", "W2", "W4–W2"},
	} {
		if diff := cmp.Diff(want, idsOfComment(comment)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", comment, diff)
		}
	}
}
