package csv

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/leatdata/leat/connector"
)

// Dialect is how fields and rows are told apart. The zero value is a comma, double quotes, no comments.
type Dialect struct {
	Delimiter string // one character or more; empty: a comma
	Quote     string // one ASCII character; empty: a double quote; "none": fields are never quoted
	Escape    string // one ASCII character that takes away the meaning of a quote inside quotes; empty: only a doubled quote does
	Comment   string // lines that begin with it are skipped; empty: none
	MaxRow    int64  // longest row in bytes; 0: 256 MiB
}

// DefaultMaxRow is the longest row where nothing is said.
const DefaultMaxRow = 256 << 20

// NoQuote is the Quote of a dialect whose fields are never quoted.
const NoQuote = "none"

// Check refuses what can't be told apart.
func (d Dialect) Check() error {
	_, err := d.check()
	return err
}

// dialect is a checked one.
type dialect struct {
	delimiter, comment string
	quote, escape      byte // 0: none
	maxRow             int64
}

// check fills in what is not said.
func (d Dialect) check() (dialect, error) {
	out := dialect{delimiter: d.Delimiter, comment: d.Comment, quote: '"', maxRow: d.MaxRow}
	if out.delimiter == "" {
		out.delimiter = ","
	}
	if out.maxRow <= 0 {
		out.maxRow = DefaultMaxRow
	}
	switch {
	case d.Quote == NoQuote:
		out.quote = 0
	case len(d.Quote) == 1 && d.Quote[0] < utf8.RuneSelf:
		out.quote = d.Quote[0]
	case d.Quote != "":
		return out, refused("quote %q: want one ASCII character, or none", d.Quote)
	}
	if len(d.Escape) > 1 || (d.Escape != "" && d.Escape[0] >= utf8.RuneSelf) {
		return out, refused("escape %q: want one ASCII character", d.Escape)
	}
	if d.Escape != "" && d.Escape[0] != out.quote {
		out.escape = d.Escape[0]
	}
	switch {
	case !utf8.ValidString(out.delimiter) || strings.ContainsAny(out.delimiter, "\r\n"):
		return out, refused("delimiter %q: want characters other than line ends", out.delimiter)
	case out.quote != 0 && strings.IndexByte(out.delimiter, out.quote) >= 0:
		return out, refused("delimiter %q has the quote %q in it", out.delimiter, string(out.quote))
	case strings.ContainsAny(out.comment, "\r\n"):
		return out, refused("comment %q: want characters other than line ends", out.comment)
	}
	return out, nil
}

func refused(text string, args ...any) error {
	err := errors.New(text)
	if len(args) > 0 {
		err = fmt.Errorf(text, args...)
	}
	return &connector.Error{Class: connector.ClassConfig, Code: "csv.dialect", Doing: "reading the options of a CSV file", Err: err}
}
