package sqlgen

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
)

// Dialect is how a database writes the values of a parent record into a statement.
type Dialect struct {
	Text  func(s string) string   // a string as a literal
	Bytes func(hex string) string // likewise bytes, by their hexadecimal digits
	// Brackets says that [name] and `name` are names, as in SQLite.
	Brackets bool
}

// Parent is the [connector.ParentText] of SQL: each value is put in as a literal, so that no value can change the statement. Inside of
// strings, quoted names and comments, where a literal would end what it stands in, placeholders are refused.
func (d Dialect) Parent(text string, value func(name string) (any, error)) (string, error) {
	in := scanner{brackets: d.Brackets}
	return connector.ReplaceParents(text, value, func(before string, v any) (string, error) { //nolint:wrapcheck // it names the placeholder
		if err := in.pass(before); err != nil {
			return "", err
		}
		if in.inside != "" {
			return "", fmt.Errorf("it stands inside of %s: write it without quotes, it becomes a value of its own", in.inside)
		}
		in.last = ' '
		return d.literal(v)
	})
}

var number = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// literal is a value in SQL. Blanks around it keep it apart from what it stands beside.
func (d Dialect) literal(v any) (string, error) {
	var s string
	switch v := v.(type) {
	case nil:
		s = "NULL"
	case bool:
		s = strings.ToUpper(strconv.FormatBool(v))
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		s = fmt.Sprint(v)
	case float32:
		return d.float(float64(v), 32)
	case float64:
		return d.float(v, 64)
	case json.Number:
		if s = v.String(); !number.MatchString(s) {
			return "", errors.New("the value is no number")
		}
	case string:
		if strings.ContainsRune(v, 0) {
			return "", errors.New("the value has a zero character")
		}
		s = d.Text(v)
	case []byte:
		s = d.Bytes(hex.EncodeToString(v))
	case time.Time:
		s = d.Text(v.Format(time.RFC3339Nano))
	default:
		return "", fmt.Errorf("a value of type %T can't be written in SQL", v)
	}
	return apart(s), nil
}

// apart keeps a literal from joining what is beside it: a negative number behind a minus would begin a comment.
func apart(s string) string { return " (" + s + ") " }

func (Dialect) float(v float64, bits int) (string, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "", errors.New("the value is no finite number")
	}
	return apart(strconv.FormatFloat(v, 'g', -1, bits)), nil
}

// scanner knows what a place in a statement is inside of. It takes SQL as all dialects have it, and refuses what they read differently.
type scanner struct {
	brackets bool
	inside   string // for people; empty: nothing
	end      string // what ends it
	last     byte   // the character before
}

// pass goes over text.
func (s *scanner) pass(text string) error {
	for i := 0; i < len(text); {
		n, err := s.step(text[i:])
		if err != nil {
			return err
		}
		s.last = text[i+n-1]
		i += n
	}
	return nil
}

// step takes the next character, or what belongs together, and returns its length.
func (s *scanner) step(text string) (int, error) {
	if s.inside != "" {
		switch {
		case strings.HasPrefix(text, `\'`) && s.end == "'":
			return 0, errors.New("a string before it has \\' in it, which databases read differently: write '' for a quote")
		case strings.HasPrefix(text, "/*") && s.end == "*/":
			return 0, errors.New("a comment before it has another one inside, which databases read differently")
		case strings.HasPrefix(text, s.end):
			n := len(s.end)
			s.inside, s.end = "", ""
			return n, nil
		}
		return 1, nil
	}
	switch {
	case strings.HasPrefix(text, "--"):
		s.inside, s.end = "a comment", "\n"
		return 2, nil
	case strings.HasPrefix(text, "/*"):
		s.inside, s.end = "a comment", "*/"
		return 2, nil
	case text[0] == '\'':
		s.inside, s.end = "a string", "'"
	case text[0] == '"':
		s.inside, s.end = "a quoted name", `"`
	case s.brackets && text[0] == '`':
		s.inside, s.end = "a quoted name", "`"
	case s.brackets && text[0] == '[':
		s.inside, s.end = "a quoted name", "]"
	case text[0] == '$' && !word(s.last):
		if tag := dollarTag.FindString(text); tag != "" {
			s.inside, s.end = "a string", tag
			return len(tag), nil
		}
	}
	return 1, nil
}

// dollarTag begins and ends a string between dollars.
var dollarTag = regexp.MustCompile(`^\$(?:[A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*)?\$`)

func word(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// QuoteText is a string as standard SQL has it.
func QuoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
