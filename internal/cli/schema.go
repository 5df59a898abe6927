package cli

import (
	"github.com/spf13/cobra"

	"github.com/leatdata/leat/config"
)

func (s *session) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of pipeline files",
		Long: `Prints the JSON Schema of pipeline files, with the connectors of this program and their options, so that an editor
completes them and marks mistakes.`,
		Example: `  leat schema > leat.schema.json

  # first line of a pipeline file, for editors with a YAML language server
  # yaml-language-server: $schema=leat.schema.json`,
		Args: argCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			text, err := config.JSONSchema(s.Registry)
			if err != nil {
				return err
			}
			return s.print("%s\n", text)
		},
	}
}
