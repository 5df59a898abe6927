package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leatdata/leat/connector"
)

var update = flag.Bool("update", false, "write docs/cli.md")

//go:generate go test . -run ^TestDocs$ -update

// docs/cli.md is made of the commands.
func TestDocs(t *testing.T) {
	const file = "../../docs/cli.md"
	want := cliDocs()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/cli.md is old: make generate (-want +got):\n%s", diff)
	}
}

// Every command explains itself and shows an example; so does every flag.
func TestEveryCommandHasHelp(t *testing.T) {
	walk(testRoot(), func(c *cobra.Command) {
		if c.Long == "" || c.Example == "" || c.Short == "" {
			t.Errorf("%s has no description or no example", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", c.CommandPath(), f.Name)
			}
		})
	})
}

// The list of commands that mistypings are compared with is the list of commands.
func TestUnknownCommandKnowsAll(t *testing.T) {
	walk(testRoot(), func(c *cobra.Command) {
		name := c.Name()
		if c.HasParent() && c.Parent().HasParent() || name == "leat" {
			return
		}
		if err := unknownCommand(name + "x"); !strings.Contains(err.Error(), fmt.Sprintf("did you mean %q", name)) {
			t.Errorf("%s: %v", name, err)
		}
	})
}

func testRoot() *cobra.Command {
	s := &session{App: App{Registry: &connector.Registry{}}, redact: &redactor{}}
	return s.root()
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}

func cliDocs() []byte {
	var b bytes.Buffer
	b.WriteString("# Command line\n\nThis page is made of the commands themselves: `make generate` writes it.\n")
	root := testRoot()
	walk(root, func(c *cobra.Command) {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n```\n%s\n```\n\n", c.CommandPath(), strings.TrimSuffix(c.Short, "."), c.UseLine())
		long, codes, hasCodes := strings.Cut(c.Long, exitHelp)
		b.WriteString(strings.TrimSpace(long) + "\n")
		if hasCodes {
			b.WriteString("\n```\n" + exitHelp + "\n```\n" + codes)
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "\nExamples:\n\n```\n%s\n```\n", unindent(c.Example))
		}
		flags := c.LocalFlags()
		if c == root {
			flags = c.PersistentFlags()
		}
		writeFlags(&b, flags)
	})
	return b.Bytes()
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}

func writeFlags(b *bytes.Buffer, flags *pflag.FlagSet) {
	header := "\n| flag | default | what it does |\n|---|---|---|\n"
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		b.WriteString(header)
		header = ""
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		def := f.DefValue
		if def == "[]" || def == "false" {
			def = ""
		}
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, def, strings.ReplaceAll(f.Usage, "|", "\\|"))
	})
}
