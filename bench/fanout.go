package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// fanoutRounds are enough for a difference of a few percent to show.
const fanoutRounds = 7

const fanoutNote = "What one more sink costs the others: it takes every row and keeps none."

// fanoutCopy copies a file into one sink, and into the same one and a second one that costs nothing itself.
func fanoutCopy(format string) job {
	return job{
		name: "fanout-" + format, title: "Fan-out of a copy: CSV → " + format, note: fanoutNote, rows: 2_000_000, least: fanoutRounds,
		prepare: prepareCSV,
		contenders: func(e jobEnv) []contender {
			variant := func(name, id string, more ...string) contender {
				out := e.dir + "/" + id + "." + format
				p := pipeline{e, id, append([]string{"source: " + e.csv, "sinks:", "  kept: " + out}, more...)}
				relation := parquetRelation(out)
				if format == "jsonl" {
					relation = jsonlRelation(out, fromCSV())
				}
				return contender{
					name: name, reset: p.write(), command: p.run() + " --restart", output: out,
					verify: func(ctx context.Context, _ string) error {
						return sameRelations(ctx, fromCSV(), csvRelation(e.csv, fromCSV()), relation)
					},
				}
			}
			return []contender{variant("leat, one sink", "one"), variant("leat, the same and discard", "two", "  nothing: {discard: }")}
		},
	}
}

// pipeline is a pipeline file of leat's.
type pipeline struct {
	e     jobEnv
	id    string // its name is bench-id
	lines []string
}

func (p pipeline) file() string  { return filepath.Join(p.e.dir, p.id+".yaml") }
func (p pipeline) state() string { return filepath.Join(p.e.dir, p.id+".state") }

// write is a shell command that writes the file.
func (p pipeline) write() string {
	return "printf '%s\\n' " + quote("name: bench-"+p.id+"\n"+strings.Join(p.lines, "\n")) + " > " + p.file()
}

// save writes the file.
func (p pipeline) save() error {
	return os.WriteFile(p.file(), []byte("name: bench-"+p.id+"\n"+strings.Join(p.lines, "\n")+"\n"), 0o600)
}

func (p pipeline) run() string {
	return p.e.leat + " run " + p.file() + " --quiet --state " + p.state()
}
