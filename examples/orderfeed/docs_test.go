package orderfeed_test

import (
	"os"
	"strings"
	"testing"
)

// What docs/spi.md shows of the example is what is compiled.
func TestDocs(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	code := read("source.go") + read("sink.go")
	_, doc, _ := strings.Cut(read("../../docs/spi.md"), "\n### A worked example\n")
	doc, _, _ = strings.Cut(doc, "\n## ")
	blocks := strings.Split(doc, "```go\n")[1:]
	if len(blocks) < 5 {
		t.Fatalf("%d pieces of code", len(blocks))
	}
	for _, b := range blocks {
		piece, _, _ := strings.Cut(b, "```")
		if !strings.Contains(code, piece) {
			t.Errorf("docs/spi.md shows what is not in the example:\n%s", piece)
		}
	}
}
