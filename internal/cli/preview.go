package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// previewFlags say what of a source is shown.
type previewFlags struct {
	rows    int64
	dataset string
	width   int
	json    bool
	opts    []string
}

func (s *session) previewCommand() *cobra.Command {
	var f previewFlags
	cmd := &cobra.Command{
		Use:   "preview SRC",
		Short: "Show the first rows of a source",
		Long: `Shows the first rows of a source as a table, with the type of every column. Nothing is written or saved.

` + strings.ReplaceAll(endpointHelp, "SRC and DST are URLs or file names", "SRC is a URL or a file name"),
		Example: `  leat preview sales.csv
  leat preview 'postgres://app@db/shop?table=orders' -n 3
  leat preview lake.duckdb --dataset sales --json | jq .total`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, cfg, err := s.source(args[0], f.opts)
			if err != nil {
				return err
			}
			if f.rows < 1 {
				return usagef("-n %d: want at least 1 row", f.rows)
			}
			return s.look(cmd.Context(), cfg, func(ctx context.Context, l *looker, found []connector.Dataset) error {
				return s.preview(ctx, l, found, f)
			})
		},
	}
	fs := cmd.Flags()
	fs.Int64VarP(&f.rows, "rows", "n", 10, "how many rows")
	fs.StringVar(&f.dataset, "dataset", "", "which dataset, where the source has several (default: the first)")
	fs.IntVar(&f.width, "width", 40, "longest text of a value, in characters; 0: whole")
	fs.BoolVar(&f.json, "json", false, "print a JSON object for each row")
	fs.StringArrayVar(&f.opts, "source-opt", nil, "NAME=VALUE: an option of the source")
	return cmd
}

func (s *session) preview(ctx context.Context, l *looker, found []connector.Dataset, f previewFlags) error {
	names := make([]string, len(found))
	for i, d := range found {
		names[i] = d.Name
	}
	switch {
	case len(found) == 0:
	case f.dataset == "":
		f.dataset = names[0]
	case !slices.Contains(names, f.dataset):
		return &usageError{err: connector.UnknownName("dataset", f.dataset, names), hint: "leat discover lists them"}
	}
	if f.json {
		return l.read(ctx, f.dataset, f.rows, s.printRows)
	}
	var schema *record.Schema
	if i := slices.Index(names, f.dataset); i >= 0 {
		schema = found[i].Schema
	}
	t := newTable()
	shown := int64(0)
	var rejected []record.Reject
	err := l.read(ctx, f.dataset, f.rows, func(b *record.Batch) error {
		if shown == 0 {
			schema = b.Schema
		}
		for i := range b.NumRows() {
			t.AppendRow(rowCells(b, i, f.width))
		}
		shown += int64(b.NumRows())
		rejected = append(rejected, b.Rejects...)
		return nil
	})
	if err != nil {
		return err
	}
	if schema == nil {
		return s.print("no rows\n")
	}
	t.AppendHeader(headerCells(schema))
	if err := s.print("%s\n%s\n", schema.Dataset, t.Render()); err != nil {
		return err
	}
	for _, r := range rejected {
		s.say(fmt.Sprintf("leat: can't be read: %s\n", r.Error()))
	}
	if n := len(names) - 1; n > 0 && !s.quiet {
		s.say(fmt.Sprintf("and %s: leat discover lists them, --dataset NAME shows another one\n", plural(int64(n), "more dataset")))
	}
	return nil
}

func headerCells(schema *record.Schema) table.Row {
	row := make(table.Row, schema.Columns.NumFields())
	for c, f := range schema.Columns.Fields() {
		name := f.Name
		if t, err := record.TypeOf(f.Type); err == nil {
			name += "\n" + t.String()
		}
		row[c] = name
	}
	return row
}

func rowCells(b *record.Batch, i, width int) table.Row {
	row := make(table.Row, b.Rows.NumCols())
	for c := range row {
		col := b.Rows.Column(c)
		if col.IsNull(i) {
			row[c] = "NULL"
			continue
		}
		row[c] = shorten(oneLine(string(record.AppendText(nil, col, i))), width)
	}
	return row
}

// oneLine shows control characters instead of letting them move the cursor.
func oneLine(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r < ' ':
			return r + '␀'
		case r == 0x7f:
			return '␡'
		}
		return r
	}, s)
}

func shorten(s string, width int) string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return s
	}
	runes := []rune(s)
	return string(runes[:width-1]) + "…"
}

// printRows prints a batch as JSON lines.
func (s *session) printRows(b *record.Batch) error {
	var out []byte
	for i := range b.NumRows() {
		out = append(append(out, b.RowJSON(i)...), '\n')
	}
	if _, err := s.Stdout.Write(out); err != nil {
		return fmt.Errorf("writing to standard output: %w", err)
	}
	return nil
}
