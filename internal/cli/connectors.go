package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/leatdata/leat/connector"
)

func (s *session) connectorsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "connectors [NAME]",
		Short: "List the connectors, or the options and types of one",
		Long: `Lists the connectors of this program, what selects each, and whether it can be a source or a sink. With a name: what that
one promises, its options and how it maps types.`,
		Example: `  leat connectors
  leat connectors postgres
  leat connectors --json`,
		Args: argCount(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				if asJSON {
					return s.printJSON(connectorsJSON(s.Registry.All()))
				}
				return s.printConnectors()
			}
			def, err := s.findConnector(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return s.printJSON(connectorsJSON([]connector.Definition{def}))
			}
			return s.printConnector(def)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func (s *session) findConnector(name string) (connector.Definition, error) {
	if def, ok := s.Registry.Lookup(name); ok {
		return def, nil
	}
	var names []string
	for _, def := range s.Registry.All() {
		names = append(names, def.Name)
	}
	err := connector.UnknownName("connector", name, names)
	return connector.Definition{}, &usageError{err: err, hint: "leat connectors lists what there is"}
}

func (s *session) printConnectors() error {
	t := newTable()
	t.AppendHeader(table.Row{"connector", "for", "source", "sink", "URLs", "file names"})
	for _, d := range s.Registry.All() {
		t.AppendRow(table.Row{
			d.Name, d.Title, yes(d.Source != nil), yes(d.Sink != nil), joined(d.Schemes, "", ":"), joined(d.Extensions, "*", ""),
		})
	}
	return s.print("%s\n", t.Render())
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func joined(list []string, before, after string) string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = before + e + after
	}
	return strings.Join(out, " ")
}

func (s *session) printConnector(d connector.Definition) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", d.Name, d.Title)
	if d.Doc != "" {
		b.WriteString(wrapWords(d.Doc, docWidth) + "\n")
	}
	if d.Source != nil {
		b.WriteString("\nAs a source:\n" + optionTable(d.Source()) + "\n")
	}
	if d.Sink != nil {
		b.WriteString("\nAs a sink:\n" + optionTable(d.Sink()) + "\n")
	}
	if len(d.Types) > 0 {
		t := newTable()
		t.AppendHeader(table.Row{"type", "in leat", "read", "written", "fidelity", "note"})
		for _, r := range d.Types {
			t.AppendRow(table.Row{r.Native, r.Kind.String(), yes(r.Read), yes(r.Write), r.Fidelity.String(), r.Note})
		}
		b.WriteString("\nTypes:\n" + t.Render() + "\n")
	}
	return s.print("%s", b.String())
}

func optionTable(cfg any) string {
	t := newTable()
	t.AppendHeader(table.Row{"option", "type", "default", "what it does"})
	for _, o := range connector.Options(cfg) {
		kind := o.Type
		if len(o.Enum) > 0 {
			kind = strings.Join(o.Enum, "|")
		}
		preset := o.Default
		if o.Required {
			preset = "(required)"
		}
		doc := o.Doc
		if o.Example != "" {
			doc += "; as in " + o.Example
		}
		t.AppendRow(table.Row{o.Name, kind, preset, doc})
	}
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 4, WidthMax: 90, WidthMaxEnforcer: wrapWords}})
	return t.Render()
}

// connectorsJSON is the connectors for programs.
func connectorsJSON(defs []connector.Definition) any {
	type option struct {
		Name     string   `json:"name"`
		Type     string   `json:"type"`
		Default  string   `json:"default,omitempty"`
		Required bool     `json:"required"`
		Enum     []string `json:"enum,omitempty"`
		Doc      string   `json:"doc,omitempty"`
		Example  string   `json:"example,omitempty"`
	}
	type rule struct {
		Native   string `json:"native"`
		Kind     string `json:"kind"`
		Read     bool   `json:"read"`
		Write    bool   `json:"write"`
		Fidelity string `json:"fidelity"`
		Note     string `json:"note,omitempty"`
	}
	type definition struct {
		Name       string   `json:"name"`
		Title      string   `json:"title"`
		Doc        string   `json:"doc,omitempty"`
		Schemes    []string `json:"schemes"`
		Extensions []string `json:"extensions"`
		Source     []option `json:"source"` // null: it can't be one
		Sink       []option `json:"sink"`
		Types      []rule   `json:"types"`
	}
	options := func(cfg any) []option {
		out := []option{}
		for _, o := range connector.Options(cfg) {
			out = append(out, option{o.Name, o.Type, o.Default, o.Required, o.Enum, o.Doc, o.Example})
		}
		return out
	}
	out := []definition{}
	for _, d := range defs {
		def := definition{
			Name: d.Name, Title: d.Title, Doc: d.Doc, Types: []rule{},
			Schemes: append([]string{}, d.Schemes...), Extensions: append([]string{}, d.Extensions...),
		}
		if d.Source != nil {
			def.Source = options(d.Source())
		}
		if d.Sink != nil {
			def.Sink = options(d.Sink())
		}
		for _, r := range d.Types {
			def.Types = append(def.Types, rule{r.Native, r.Kind.String(), r.Read, r.Write, r.Fidelity.String(), r.Note})
		}
		out = append(out, def)
	}
	return out
}
