package sqlite

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/record"
)

// value is one stored value with its storage class: what positions are made of. It reads back to exactly the same value.
type value struct { //nolint:recvcheck // only decoding changes a value
	class sqlite.ColumnType
	n     int64
	f     float64
	b     string // the bytes of text and blobs
}

// valueOf copies the value of a column of the current row.
func valueOf(c *cells, col int) value {
	v := value{class: c.class(col)}
	switch v.class {
	case sqlite.TypeInteger:
		v.n = c.int(col)
	case sqlite.TypeFloat:
		v.f = c.float(col)
	case sqlite.TypeText:
		v.b = string(c.text(col))
	case sqlite.TypeBlob:
		v.b = string(c.blob(col))
	case sqlite.TypeNull:
	}
	return v
}

func (v value) bind(st *sqlite.Stmt, i int) {
	switch v.class {
	case sqlite.TypeInteger:
		st.BindInt64(i, v.n)
	case sqlite.TypeFloat:
		st.BindFloat(i, v.f)
	case sqlite.TypeText:
		st.BindText(i, v.b)
	case sqlite.TypeBlob:
		st.BindBytes(i, []byte(v.b))
	default:
		st.BindNull(i)
	}
}

func (v value) null() bool { return v.class == sqlite.TypeNull || v.class == 0 }

// text is the value for people.
func (v value) text() string {
	switch v.class {
	case sqlite.TypeInteger:
		return strconv.FormatInt(v.n, 10)
	case sqlite.TypeFloat:
		return string(record.AppendFloat(nil, v.f, 64))
	case sqlite.TypeText:
		return strings.ToValidUTF8(v.b, "\ufffd")
	case sqlite.TypeBlob:
		return fmt.Sprintf("x'%x'", v.b)
	default:
		return "NULL"
	}
}

// remedy is the name of the type that takes the value whatever it is.
func (v value) remedy() string {
	if v.class == sqlite.TypeBlob || (v.class == sqlite.TypeText && !utf8.ValidString(v.b)) {
		return "binary"
	}
	return "text"
}

// tagged is the JSON form of what JSON has no literal for.
type tagged struct {
	Real *string `json:"real,omitempty"`
	Blob *string `json:"blob,omitempty"` // base64
	Text *string `json:"text,omitempty"` // base64 of text that is no UTF-8
}

// MarshalJSON writes integers as numbers, text as strings, NULL as null; a real is {"real":"0.5"}, a blob {"blob":"AP8="}, and text
// that is no valid UTF-8 {"text":"/w=="}.
func (v value) MarshalJSON() ([]byte, error) {
	encode := func(s string) *string { e := base64.StdEncoding.EncodeToString([]byte(s)); return &e }
	switch v.class {
	case sqlite.TypeInteger:
		return strconv.AppendInt(nil, v.n, 10), nil
	case sqlite.TypeFloat:
		s := strconv.FormatFloat(v.f, 'g', -1, 64)
		return json.Marshal(tagged{Real: &s})
	case sqlite.TypeText:
		if !utf8.ValidString(v.b) {
			return json.Marshal(tagged{Text: encode(v.b)})
		}
		return record.AppendJSONString(nil, v.b), nil
	case sqlite.TypeBlob:
		return json.Marshal(tagged{Blob: encode(v.b)})
	default:
		return []byte("null"), nil
	}
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *value) UnmarshalJSON(doc []byte) error {
	doc = bytes.TrimSpace(doc)
	switch {
	case len(doc) == 0:
		return errors.New("no value")
	case doc[0] == 'n':
		*v = value{class: sqlite.TypeNull}
		return nil
	case doc[0] == '"':
		v.class = sqlite.TypeText
		return json.Unmarshal(doc, &v.b)
	case doc[0] == '{':
		return v.untag(doc)
	}
	n, err := strconv.ParseInt(string(doc), 10, 64)
	if err != nil {
		return fmt.Errorf("value %s of a position: %w", doc, err)
	}
	*v = value{class: sqlite.TypeInteger, n: n}
	return nil
}

func (v *value) untag(doc []byte) error {
	var t tagged
	if err := json.Unmarshal(doc, &t); err != nil {
		return fmt.Errorf("value %s of a position: %w", doc, err)
	}
	decode := func(class sqlite.ColumnType, s string) error {
		b, err := base64.StdEncoding.DecodeString(s)
		*v = value{class: class, b: string(b)}
		return err
	}
	switch {
	case t.Real != nil:
		f, err := strconv.ParseFloat(*t.Real, 64)
		*v = value{class: sqlite.TypeFloat, f: f}
		return err
	case t.Blob != nil:
		return decode(sqlite.TypeBlob, *t.Blob)
	case t.Text != nil:
		return decode(sqlite.TypeText, *t.Text)
	}
	return fmt.Errorf("value %s of a position is of no known kind", doc)
}

// rank orders storage classes as SQLite does: NULL, numbers, text, blobs.
func (v value) rank() int {
	switch v.class {
	case sqlite.TypeInteger, sqlite.TypeFloat:
		return 1
	case sqlite.TypeText:
		return 2
	case sqlite.TypeBlob:
		return 3
	default:
		return 0
	}
}

// compareValues orders two values as SQLite orders them under one of its built-in collations. Any other collation is unknown
// outside the program that defines it: then text is ordered by its bytes.
func compareValues(a, b value, collation string) int {
	if r := a.rank() - b.rank(); r != 0 {
		return sign(r)
	}
	switch a.rank() {
	case 1:
		return compareNumbers(a, b)
	case 2:
		return strings.Compare(fold(a.b, collation), fold(b.b, collation))
	case 3:
		return strings.Compare(a.b, b.b)
	default:
		return 0
	}
}

// fold maps text so that the order of bytes is the order of the collation. NOCASE knows ASCII only.
func fold(s, collation string) string {
	switch strings.ToUpper(collation) {
	case "NOCASE":
		b := []byte(s)
		for i, c := range b {
			if c >= 'A' && c <= 'Z' {
				b[i] = c + 'a' - 'A'
			}
		}
		return string(b)
	case "RTRIM":
		return strings.TrimRight(s, " ")
	default:
		return s
	}
}

// compareNumbers compares exactly: integers beyond 2^53 are not rounded.
func compareNumbers(a, b value) int {
	if a.class == sqlite.TypeInteger && b.class == sqlite.TypeInteger {
		switch {
		case a.n < b.n:
			return -1
		case a.n > b.n:
			return 1
		}
		return 0
	}
	return a.big().Cmp(b.big())
}

func (v value) big() *big.Float {
	if v.class == sqlite.TypeInteger {
		return new(big.Float).SetInt64(v.n)
	}
	if math.IsNaN(v.f) { // SQLite stores NaN as NULL
		return new(big.Float).SetInf(true)
	}
	return new(big.Float).SetFloat64(v.f)
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}
