package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// newTable makes a table in the style of all tables: aligned columns, a line under the header, nothing else.
func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.Options{SeparateColumns: true, SeparateHeader: true}
	style.Box.MiddleVertical = " "
	style.Box.MiddleSeparator = " "
	style.Format.Header = text.FormatDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", " "
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	return t
}

// printJSON writes a value as indented JSON, redacted.
func (s *session) printJSON(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding JSON: %w", err)
	}
	return s.print("%s\n", s.redact.text(string(text)))
}

// docWidth is how wide text for people is.
const docWidth = 100

// wrapWords breaks text between words.
func wrapWords(s string, width int) string {
	lines := strings.Split(text.WrapSoft(s, width), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}
