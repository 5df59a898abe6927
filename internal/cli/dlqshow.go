package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leatdata/leat/internal/deadletter"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// shownLetters is how many letters are shown where nothing else is asked for.
const shownLetters = 20

// showFlags say what is shown, and how.
type showFlags struct {
	letterFlags
	limit int64
	json  bool
	raw   bool
}

func (s *session) dlqShowCommand() *cobra.Command {
	var f showFlags
	cmd := &cobra.Command{
		Use:   "show PIPELINE|FILE",
		Short: "Show rows that were set aside, and why",
		Long: `Shows rows that were set aside, in the order in which they came: where each stands in the source, who refused it and why, and
the row itself. With --json each is one line of JSON, with everything that is kept.

With --raw the rows alone are written, in the source's own form where they could not be read: such a file can be mended and
copied. Rows that were read are JSON objects.`,
		Example: `  leat dlq show orders
  leat dlq show orders --sink lake --dataset public.orders --json
  leat dlq show sales --sink - --raw > mend.csv`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.raw && f.json {
				return usagef("--raw and --json exclude each other")
			}
			if !cmd.Flags().Changed("limit") && (f.raw || f.json || len(f.ids) > 0) {
				f.limit = 0
			}
			return s.withLetters(cmd.Context(), func(ctx context.Context, letters *deadletter.Store, _ state.Store) error {
				filter, err := s.letterFilter(ctx, letters, args[0], &f.letterFlags)
				if err != nil {
					return err
				}
				return s.showLetters(ctx, letters, filter, f)
			})
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().Int64Var(&f.limit, "limit", shownLetters, "at most so many; 0: all, as with --raw, --json and --id")
	cmd.Flags().BoolVar(&f.json, "json", false, "print each as one line of JSON")
	cmd.Flags().BoolVar(&f.raw, "raw", false, "print the rows alone")
	return cmd
}

func (s *session) showLetters(ctx context.Context, letters *deadletter.Store, filter deadletter.Filter, f showFlags) error {
	all, err := countLetters(ctx, letters, filter)
	if err != nil {
		return err
	}
	if all == 0 && !f.raw && !f.json {
		return s.print("no row is set aside\n")
	}
	filter.Limit = f.limit
	shown := int64(0)
	err = letters.Each(ctx, filter, func(l deadletter.Letter) error {
		shown++
		switch {
		case f.raw:
			return s.print("%s\n", bytes.TrimRight(l.Raw, "\r\n"))
		case f.json:
			var text bytes.Buffer
			e := json.NewEncoder(&text)
			e.SetEscapeHTML(false)
			if err := e.Encode(letterJSON(l)); err != nil {
				return fmt.Errorf("encoding letter %s: %w", l.ID, err)
			}
			return s.print("%s", s.redact.text(text.String()))
		}
		return s.print("%s", s.redact.text(letterText(l, shown == 1)))
	})
	if err == nil && shown < all && !f.raw && !f.json {
		err = s.print("\n%s more: --limit 0 shows all\n", thousands(all-shown))
	}
	return err
}

// letterText shows a letter to a person.
func letterText(l deadletter.Letter, first bool) string {
	var b strings.Builder
	if !first {
		b.WriteString("\n")
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("id", "%s", l.Short())
	where := l.Dataset
	if l.Line > 0 {
		where += fmt.Sprintf(", line %d (byte %d)", l.Line, l.Offset)
	}
	if len(l.Key) > 0 {
		where += ", key " + string(l.Key)
	}
	line("where", "%s", where)
	line("refused", "by %s, %s%s", refusedBy(l), l.Class, codeText(l))
	if l.Column != "" {
		column := fmt.Sprintf("%q", l.Column)
		if l.Value != "" {
			column += fmt.Sprintf(", value %q", l.Value)
		}
		line("column", "%s", column)
	}
	line("why", "%s", l.Message)
	if l.Op != record.Insert {
		line("change", "%s", l.Op)
	}
	if len(l.Before) > 0 {
		line("before", "%s", l.Before)
	}
	if l.Schema != nil {
		line("row", "%s", l.Raw)
	} else if len(l.Raw) > 0 {
		line("text", "%q", bytes.TrimRight(l.Raw, "\r\n"))
	}
	when := l.First.Local().Format(time.DateTime)
	if l.Times > 1 {
		when += fmt.Sprintf(", and %s since, the last at %s", plural(l.Times-1, "time"), l.Time.Local().Format(time.DateTime))
	}
	line("when", "%s", when)
	if l.Asked > 0 {
		line("asked", "it is to be read again (backfill %d)", l.Asked)
	}
	return b.String()
}

func refusedBy(l deadletter.Letter) string {
	who := "the source"
	switch {
	case l.Sink != "" && l.Step > 0:
		who = fmt.Sprintf("transform %d of sink %s", l.Step, l.Sink)
	case l.Sink != "":
		who = "sink " + l.Sink
	case l.Step > 0:
		who = fmt.Sprintf("transform %d", l.Step)
	}
	return who
}

func codeText(l deadletter.Letter) string {
	if l.Code == "" {
		return ""
	}
	return " " + l.Code
}

// shownLetter is everything that is kept of a letter, for programs.
type shownLetter struct {
	ID       string            `json:"id"`
	Pipeline string            `json:"pipeline"`
	Run      string            `json:"run"`
	Sink     string            `json:"sink"` // empty: the source, or a transform for all sinks
	Dataset  string            `json:"dataset"`
	Key      json.RawMessage   `json:"key,omitempty"`
	Line     int64             `json:"line,omitempty"`
	Offset   int64             `json:"offset,omitempty"`
	Position json.RawMessage   `json:"position,omitempty"`
	Op       string            `json:"op"`
	Class    string            `json:"class"`
	Code     string            `json:"code,omitempty"`
	Message  string            `json:"message"`
	Column   string            `json:"column,omitempty"`
	Value    string            `json:"value,omitempty"`
	Step     int               `json:"transform,omitempty"`
	Row      json.RawMessage   `json:"row,omitempty"`
	Before   json.RawMessage   `json:"before,omitempty"`
	Types    map[string]string `json:"types,omitempty"`
	Raw      []byte            `json:"raw,omitempty"` // base64: the source's own form of the row
	Attempt  uint64            `json:"attempt,omitempty"`
	Epoch    uint64            `json:"epoch,omitempty"`
	First    time.Time         `json:"first"`
	Last     time.Time         `json:"last"`
	Times    int64             `json:"times"`
	Asked    uint64            `json:"asked,omitempty"`
}

func letterJSON(l deadletter.Letter) shownLetter {
	out := shownLetter{
		ID: l.ID, Pipeline: l.Pipeline, Run: l.Run, Sink: l.Sink, Dataset: l.Dataset, Key: l.Key, Line: l.Line, Offset: l.Offset,
		Position: l.Position.Data, Op: l.Op.String(), Class: l.Class, Code: l.Code, Message: l.Message, Column: l.Column, Value: l.Value,
		Step: l.Step, Before: l.Before, Attempt: l.Attempt, Epoch: l.Epoch, First: l.First, Last: l.Time, Times: l.Times, Asked: l.Asked,
	}
	if l.Schema == nil {
		out.Raw = l.Raw
		return out
	}
	out.Row, out.Types = l.Raw, map[string]string{}
	for _, f := range l.Schema.Columns.Fields() {
		out.Types[f.Name] = record.FormatType(f.Type)
	}
	return out
}
