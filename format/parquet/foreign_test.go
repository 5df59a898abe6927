package parquet_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/format"
)

var update = flag.Bool("update", false, "rewrite the expected rows")

// Files of other programs: dictionaries, 64-bit offsets, views, half floats, lists of fixed size, durations, zones, INT96, both
// versions of pages, Parquet's INTERVAL, ENUM and JSON.
//
// case C017.
func TestFilesOfOtherPrograms(t *testing.T) {
	files, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := open(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := r.Schema().Columns.String() + "\n" + strings.Join(drain(t, r, format.Want{}), "\n") + "\n"
		golden := strings.TrimSuffix(name, ".parquet") + ".golden"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
