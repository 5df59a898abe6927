package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
)

// mark is the first line of every generated page.
const mark = "<!-- Made by dev/docs from the code: change the connector, then run make generate. -->\n"

// index lists the connectors.
func index(defs []connector.Definition) []byte {
	var b bytes.Buffer
	b.WriteString(mark + "\n# Connectors\n\n")
	rows := [][]string{{"Connector", "Reads", "Writes", "Selected by"}}
	for _, d := range defs {
		rows = append(rows, []string{
			fmt.Sprintf("[%s](%s.md)", d.Title, d.Name), yes(d.Source != nil), yes(d.Sink != nil), selectedBy(d),
		})
	}
	table(&b, rows)
	return b.Bytes()
}

// page describes one connector.
func page(d connector.Definition) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n# %s\n\n", mark, d.Title)
	if doc := strings.TrimSpace(d.Doc); doc != "" {
		fmt.Fprintf(&b, "%s\n\n", doc)
	}
	fmt.Fprintf(&b, "Name in pipeline files: `%s`.", d.Name)
	if s := selectedBy(d); s != "" {
		fmt.Fprintf(&b, " Selected by %s.", s)
	}
	b.WriteString("\n")
	if d.Source != nil {
		cfg := d.Source()
		b.WriteString("\n## As a source\n\n")
		if c, err := filled(d.Source()).Contract(); err == nil {
			sourcePromises(&b, c)
		}
		options(&b, connector.Options(cfg))
	}
	if d.Sink != nil {
		cfg := d.Sink()
		b.WriteString("\n## As a sink\n\n")
		if c, err := filled(d.Sink()).Contract(); err == nil {
			sinkPromises(&b, c)
		}
		options(&b, connector.Options(cfg))
	}
	types(&b, d.Types)
	return b.Bytes()
}

// filled sets the required options to their examples, so that the configuration can be asked for its contract.
func filled[C any](cfg C) C {
	for _, o := range connector.Options(cfg) {
		if o.Required && o.Example != "" {
			if err := connector.SetOption(cfg, o.Name, o.Example); err != nil {
				return cfg // then it has no contract, and the page no promises
			}
		}
	}
	return cfg
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func selectedBy(d connector.Definition) string {
	var parts []string
	for _, s := range d.Schemes {
		parts = append(parts, "`"+s+":`")
	}
	for _, e := range d.Extensions {
		parts = append(parts, "`*"+e+"`")
	}
	return strings.Join(parts, ", ")
}

func sourcePromises(b *bytes.Buffer, c connector.SourceContract) {
	reads := "changes as they come, without an end"
	if c.Bounded {
		reads = "all rows, then ends"
	}
	if c.Incremental {
		reads += "; the next run goes on where this one ended"
	}
	rows := [][]string{{"With the defaults", ""}, {"reads", reads}, {"when it is started again at a position", replay(c.Replay)}}
	table(b, rows)
	b.WriteString("\n")
}

func replay(r connector.Replay) string {
	switch r {
	case connector.NoReplay:
		return "it can't: the run begins anew"
	case connector.Replayable:
		return "delivers the same rows again, perhaps more than needed"
	case connector.Deterministic:
		return "delivers exactly what follows, in the same order"
	}
	return r.String()
}

func sinkPromises(b *bytes.Buffer, c connector.SinkContract) {
	modes := make([]string, len(c.Modes))
	for i, m := range c.Modes {
		modes[i] = "`" + m.String() + "`"
	}
	rows := [][]string{
		{"With the defaults", ""},
		{"write modes, the first is the default", strings.Join(modes, ", ")},
		{"rows and progress", atomicity(c.Atomicity)},
	}
	if c.Durable {
		rows = append(rows, []string{"what was flushed", "survives loss of power"})
	}
	table(b, rows)
	b.WriteString("\n")
}

func atomicity(a connector.Atomicity) string {
	switch a {
	case connector.NoAtomicity:
		return "apart: after a crash rows may come twice"
	case connector.KeyedWrites:
		return "apart: writing a row again gives the same outcome"
	case connector.PositionInTransaction:
		return "in one transaction: each row is applied once"
	case connector.TwoPhaseCommit:
		return "prepared and committed together: each row is applied once"
	case connector.Whole:
		return "nothing shows before the run is finished; after a crash it begins anew"
	}
	return a.String()
}

func options(b *bytes.Buffer, opts []connector.Option) {
	if len(opts) == 0 {
		b.WriteString("No options.\n")
		return
	}
	rows := [][]string{{"Option", "Type", "Default", "What it does"}}
	for _, o := range opts {
		value := ""
		switch {
		case o.Required:
			value = "required"
		case o.Default != "":
			value = "`" + o.Default + "`"
		}
		doc := o.Doc
		if doc != "" && !strings.ContainsRune(".:;!?", rune(doc[len(doc)-1])) {
			doc += "."
		}
		if len(o.Enum) > 0 {
			doc += fmt.Sprintf(" One of `%s`.", strings.Join(o.Enum, "`, `"))
		}
		if o.Example != "" {
			doc += fmt.Sprintf(" Example: `%s`.", o.Example)
		}
		rows = append(rows, []string{"`" + o.Name + "`", o.Type, value, strings.TrimSpace(doc)})
	}
	table(b, rows)
}

// types writes the mapping table: one for reading, one for writing.
func types(b *bytes.Buffer, rules []connector.TypeRule) {
	if len(rules) == 0 {
		return
	}
	b.WriteString("\n## Types\n\n" +
		"Exact: every value comes out as it went in. Checked: every value within the limits does, and one outside is refused, or\n" +
		"handled as the pipeline says, never changed quietly. Inexact: refused before anything is written, unless the pipeline\n" +
		"declares what to do.\n")
	part := func(title, left, right string, in func(connector.TypeRule) bool, cells func(connector.TypeRule) (string, string)) {
		rows := [][]string{{left, right, "Fidelity", "Note"}}
		for _, r := range rules {
			if in(r) {
				from, to := cells(r)
				rows = append(rows, []string{from, to, r.Fidelity.String(), r.Note})
			}
		}
		if len(rows) > 1 {
			fmt.Fprintf(b, "\n### %s\n\n", title)
			table(b, rows)
		}
	}
	part("Reading", "Column", "becomes", func(r connector.TypeRule) bool { return r.Read },
		func(r connector.TypeRule) (string, string) { return code(r.Native), r.Kind.String() })
	part("Writing", "Value", "is stored as", func(r connector.TypeRule) bool { return r.Write },
		func(r connector.TypeRule) (string, string) { return r.Kind.String(), code(r.Native) })
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// table writes a Markdown table; the first row is its head. Columns that are empty below their heads are left out.
func table(b *bytes.Buffer, rows [][]string) {
	keep := make([]int, 0, len(rows[0]))
	for c := range rows[0] {
		if slices.ContainsFunc(rows[1:], func(r []string) bool { return r[c] != "" }) {
			keep = append(keep, c)
		}
	}
	for i, r := range rows {
		b.WriteString("|")
		for _, c := range keep {
			fmt.Fprintf(b, " %s |", cell(r[c]))
		}
		b.WriteString("\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(keep)) + "|\n")
		}
	}
}

// cell escapes what Markdown would read as its own, outside of code.
func cell(s string) string {
	parts := strings.Split(strings.ReplaceAll(s, "\n", " "), "`")
	for i := range parts {
		if i%2 == 0 {
			parts[i] = strings.NewReplacer("*", `\*`, "<", "&lt;").Replace(parts[i])
		}
	}
	return strings.ReplaceAll(strings.Join(parts, "`"), "|", `\|`)
}
