package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

type sourceConfig struct {
	Table string           `leat:"table,required" doc:"the table to read" example:"public.orders"`
	Mode  string           `leat:"mode" doc:"how." enum:"a|b"`
	Key   connector.Secret `leat:"key" doc:"a credential"`
}

func (*sourceConfig) Contract() (connector.SourceContract, error) {
	return connector.SourceContract{Replay: connector.Deterministic, Bounded: true}, nil
}
func (*sourceConfig) Identity() map[string]string                  { return nil }
func (*sourceConfig) Open(connector.Env) (connector.Source, error) { return nil, nil } //nolint:nilnil // never opened

func sample() connector.Definition {
	return connector.Definition{
		Name: "sample", Title: "Sample", Doc: "Reads samples.", Schemes: []string{"sample"}, Extensions: []string{".s"},
		Source: func() connector.SourceConfig { return &sourceConfig{Mode: "a"} },
		Types: []connector.TypeRule{
			{Native: "text", Kind: record.String, Read: true, Write: true},
			{Native: "a|b", Kind: record.Enum, Read: true, Fidelity: connector.Checked, Note: "no NUL"},
		},
	}
}

const want = mark + `
# Sample

Reads samples.

Name in pipeline files: ` + "`sample`" + `. Selected by ` + "`sample:`, `*.s`" + `.

## As a source

| With the defaults |  |
|---|---|
| reads | all rows, then ends |
| when it is started again at a position | delivers exactly what follows, in the same order |

| Option | Type | Default | What it does |
|---|---|---|---|
| ` + "`table`" + ` | string | required | the table to read. Example: ` + "`public.orders`" + `. |
| ` + "`mode`" + ` | string | ` + "`a`" + ` | how. One of ` + "`a`, `b`" + `. |
| ` + "`key`" + ` | secret |  | a credential. |

## Types

Exact: every value comes out as it went in. Checked: every value within the limits does, and one outside is refused, or
handled as the pipeline says, never changed quietly. Inexact: refused before anything is written, unless the pipeline
declares what to do.

### Reading

| Column | becomes | Fidelity | Note |
|---|---|---|---|
| ` + "`text`" + ` | string | exact |  |
| ` + "`a\\|b`" + ` | enum | checked | no NUL |

### Writing

| Value | is stored as | Fidelity |
|---|---|---|
| string | ` + "`text`" + ` | exact |
`

func TestPage(t *testing.T) {
	if diff := cmp.Diff(want, string(page(sample()))); diff != "" {
		t.Error(diff)
	}
}

// Pages of connectors that are gone are deleted, files of people are not.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"gone.md": mark + "old", "mine.md": "# By hand"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := write(dir, []connector.Definition{sample()}); err != nil {
			t.Fatal(err)
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	if diff := cmp.Diff([]string{"README.md", "mine.md", "sample.md"}, names); diff != "" {
		t.Error(diff)
	}
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil || !strings.Contains(string(text), "| [Sample](sample.md) | yes | `sample:`, `*.s` |") {
		t.Errorf("%s, %v", text, err)
	}
}
