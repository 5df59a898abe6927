package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const output = `goos: linux
pkg: github.com/leatdata/leat/format/csv
cpu: some
BenchmarkRead-2   	      20	  51230000 ns/op	 180.12 MB/s	        512.3 ns/row	    100000 rows/op	16000000 B/op	    1000 allocs/op
BenchmarkOther-2  	      20	  51230000 ns/op	16000000 B/op	    1000 allocs/op
PASS
pkg: github.com/leatdata/leat/lane
BenchmarkHandOff/batches-of-2-2 	      20	    900 ns/op	 1000 rows/op	 0 B/op	 0 allocs/op
`

func TestParseOutput(t *testing.T) {
	got, err := parseOutput(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]cost{"format/csv.BenchmarkRead": {0.01, 160}, "lane.BenchmarkHandOff/batches-of-2": {0, 0}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(cost{})); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"", strings.ReplaceAll(output, "1000 rows/op", "0 rows/op"), strings.ReplaceAll(output, "51230000", "x")} {
		if got, err := parseOutput(strings.NewReader(bad)); err == nil {
			t.Errorf("%v from %q", got, bad)
		}
	}
}

// What is wrong on purpose is noticed: one more allocation for each row, 6 % more of many, more bytes, a benchmark that is gone, one
// that is new. Noise is not.
func TestCompare(t *testing.T) {
	before := map[string]cost{"steady": {0.01, 160}, "many": {50, 4000}}
	for name, tc := range map[string]struct {
		now  map[string]cost
		want []verdict
		ok   bool
	}{
		"the same":               {before, nil, true},
		"noise":                  {map[string]cost{"steady": {0.0119, 161}, "many": {52, 4150}}, nil, true},
		"one for each row":       {map[string]cost{"steady": {1.01, 160}, "many": {50, 4000}}, []verdict{more}, false},
		"one for each 300 rows":  {map[string]cost{"steady": {0.0134, 160}, "many": {50, 4000}}, []verdict{more}, false},
		"a few of many":          {map[string]cost{"steady": {0.01, 160}, "many": {53, 4000}}, []verdict{more}, false},
		"larger ones":            {map[string]cost{"steady": {0.01, 171}, "many": {50, 4000}}, []verdict{more}, false},
		"missing":                {map[string]cost{"many": {50, 4000}}, []verdict{missing}, false},
		"new":                    {map[string]cost{"steady": {0.01, 160}, "many": {50, 4000}, "a": {}}, []verdict{unrecorded}, false},
		"less":                   {map[string]cost{"steady": {0.01, 160}, "many": {0, 40}}, []verdict{less}, true},
		"less bytes, more often": {map[string]cost{"steady": {0.01, 160}, "many": {60, 40}}, []verdict{more}, false},
	} {
		var got []verdict
		all := compare(before, tc.now)
		for _, d := range all {
			got = append(got, d.verdict)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		var said strings.Builder
		if report(&said, all) != tc.ok || len(all) > 0 != strings.Contains(said.String(), "make allocs-record") {
			t.Errorf("%s: %s", name, &said)
		}
		for _, d := range all {
			if !strings.Contains(said.String(), d.name) {
				t.Errorf("%s: the report does not name %s", name, d.name)
			}
		}
	}
}

func TestRecord(t *testing.T) {
	want := map[string]cost{"format/csv.BenchmarkRead": {0.0125, 160.5}, "lane.BenchmarkHandOff/b": {3, 0}}
	got, err := parseRecord(format(want))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(cost{})); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"a 1", "a 1 x", "a x 1", "a 1 2\na 1 2"} {
		if got, err := parseRecord(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestPackages(t *testing.T) {
	report, other := &fstest.MapFile{Data: []byte(`b.ReportMetric(8192, "rows/op")`)}, &fstest.MapFile{Data: []byte("benchtest.PerRow(b, 8192)")}
	got, err := packagesIn(fstest.MapFS{
		"lane/a_test.go": report, "lane/b_test.go": report, "lane/c.go": report, "record/a_test.go": {}, "format/csv/bench_test.go": other,
		"dev/allocs/allocs_test.go": report, ".cache/a_test.go": report, "lane/testdata/a_test.go": report,
	})
	if want := []string{"./format/csv", "./lane"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := packagesIn(fstest.MapFS{}); err == nil {
		t.Error("nothing was found, and nobody says so")
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"PATH=/bin", "LEAT_TEST_POSTGRES=x", "CI=true", "CIRCUS=1"})
	if want := []string{"PATH=/bin", "CIRCUS=1", "GOGC=off", "GOMEMLIMIT=768MiB"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// The record is one that can be read, as it would be written again.
func TestRecordedFile(t *testing.T) {
	text, err := os.ReadFile("recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parseRecord(string(text))
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	_, body, _ := strings.Cut(string(text), "\n\n")
	if _, again, _ := strings.Cut(format(all), "\n\n"); body != again {
		t.Error("recorded.txt was not written by make allocs-record")
	}
}
