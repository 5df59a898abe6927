package cli

import (
	"context"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

func (s *session) discoverCommand() *cobra.Command {
	var asJSON, columns bool
	var opts []string
	cmd := &cobra.Command{
		Use:   "discover SRC",
		Short: "List the datasets of a source",
		Long: `Lists what a source has: its tables, files or topics, with their keys, their columns and how large they are, as far as
the source knows without reading everything. Nothing is written or saved.`,
		Example: `  leat discover 'postgres://app@db/shop'
  leat discover lake.duckdb --columns
  leat discover 'data/*.parquet' --json`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, cfg, err := s.source(args[0], opts)
			if err != nil {
				return err
			}
			return s.look(cmd.Context(), cfg, func(_ context.Context, _ *looker, found []connector.Dataset) error {
				switch {
				case asJSON:
					return s.printJSON(discoverJSON(found))
				case columns:
					return s.printColumns(found)
				}
				return s.printDatasets(found)
			})
		},
	}
	cmd.Flags().BoolVar(&columns, "columns", false, "list the columns too, with their types")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON")
	cmd.Flags().StringArrayVar(&opts, "source-opt", nil, "NAME=VALUE: an option of the source")
	return cmd
}

func (s *session) printDatasets(found []connector.Dataset) error {
	if len(found) == 0 {
		return s.print("no datasets\n")
	}
	t := newTable()
	t.AppendHeader(table.Row{"dataset", "columns", "key", "rows", "size"})
	for _, d := range found {
		size := "unknown"
		if d.Bytes >= 0 {
			size = bytesText(d.Bytes)
		}
		t.AppendRow(table.Row{d.Name, d.Schema.Columns.NumFields(), strings.Join(d.Schema.KeyNames(), ", "), estimate(d.Rows), size})
	}
	return s.print("%s\n", t.Render())
}

func (s *session) printColumns(found []connector.Dataset) error {
	for i, d := range found {
		if i > 0 {
			if err := s.print("\n"); err != nil {
				return err
			}
		}
		t := newTable()
		t.AppendHeader(table.Row{"column", "type", "in the source", "null", "key"})
		for c, f := range d.Schema.Columns.Fields() {
			null, key := "no", ""
			if f.Nullable {
				null = "yes"
			}
			for _, k := range d.Schema.Key {
				if k == c {
					key = "key"
				}
			}
			t.AppendRow(table.Row{f.Name, typeText(d.Schema, c), record.NativeOf(f).Type, null, key})
		}
		if err := s.print("%s (%s rows)\n%s\n", d.Name, estimate(d.Rows), t.Render()); err != nil {
			return err
		}
	}
	return nil
}

func typeText(schema *record.Schema, c int) string {
	t, err := record.TypeOf(schema.Columns.Field(c).Type)
	if err != nil {
		return schema.Columns.Field(c).Type.String()
	}
	return t.String()
}

// discoverJSON is the datasets for programs. An estimate that is not known is null.
func discoverJSON(found []connector.Dataset) any {
	type column struct {
		Name     string `json:"name"`
		Type     string `json:"type"`
		Native   string `json:"native,omitempty"`
		Nullable bool   `json:"nullable"`
	}
	type dataset struct {
		Name    string            `json:"name"`
		Key     []string          `json:"key"`
		Rows    *int64            `json:"rows"`
		Bytes   *int64            `json:"bytes"`
		Options map[string]string `json:"options,omitempty"`
		Columns []column          `json:"columns"`
	}
	out := []dataset{}
	for _, d := range found {
		ds := dataset{
			Name: d.Name, Key: append([]string{}, d.Schema.KeyNames()...), Rows: known(d.Rows), Bytes: known(d.Bytes), Options: d.Patch,
			Columns: []column{},
		}
		for c, f := range d.Schema.Columns.Fields() {
			ds.Columns = append(ds.Columns, column{f.Name, typeText(d.Schema, c), record.NativeOf(f).Type, f.Nullable})
		}
		out = append(out, ds)
	}
	return out
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
