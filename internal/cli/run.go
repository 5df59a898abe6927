package cli

import (
	"github.com/spf13/cobra"
)

const pipelineExample = `  # orders.yaml
  name: orders-to-lake
  source:
    postgres:
      url: postgres://app:${env:PGPASSWORD}@db/shop
      tables: [public.orders]
  transforms:
    - drop: [card_number]
    - filter: total > 0
  sinks:
    lake: {duckdb: lake.duckdb, mode: upsert}
    files: orders.parquet
  bad_rows: {action: set_aside, limit: 100}`

func (s *session) runCommand() *cobra.Command {
	var r runFlags
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a pipeline that a file declares",
		Long: `Runs the pipeline of a YAML file to its end: one source, transforms, one or more sinks. Every mistake in the file is
named at once, with its line, its column and the nearest right name. ${env:NAME}, ${env:NAME:-default} and
${file:PATH} put values in; leat schema prints a JSON Schema for editors.

Interrupted or crashed, the same command goes on where it was. Once it is done, the same command copies anew, or
what is new since then where the source is read by a cursor. A source with follow: true is copied and then followed until
it is stopped, as leat sync does.`,
		Example: "  leat run orders.yaml\n  leat run shop.yaml --once\n\n" + pipelineExample,
		Args:    argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := s.load(args[0])
			if err != nil {
				return err
			}
			return s.execute(cmd.Context(), p, &r)
		},
	}
	r.register(cmd.Flags())
	r.follow.register(cmd.Flags())
	return cmd
}
