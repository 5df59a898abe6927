package jsontext

import (
	"strconv"
	"unicode/utf8"

	"github.com/leatdata/leat/format/internal/value"
)

// Kind is what a JSON value is.
type Kind byte

// The kinds. The zero value is none.
const (
	Null    Kind = iota + 1
	Truth        // true or false
	Number       // a literal
	Text         // a string without escapes
	Escaped      // a string with escapes
	Object
	List
)

// String names a kind for people.
func (k Kind) String() string {
	names := [...]string{"nothing", "null", "a boolean", "a number", "a string", "a string", "an object", "an array"}
	if int(k) < len(names) {
		return names[k]
	}
	return strconv.Itoa(int(k))
}

// Span is a value in a text.
type Span struct {
	Start, End int
	Kind       Kind
}

// maxDepth bounds how deeply values may nest, as record.CheckJSON does.
const maxDepth = 1_000

// Lexer checks the syntax of a text and finds the values in it. Its input is valid UTF-8.
type Lexer struct {
	B     []byte
	P     int    // where it stands
	Fault string // what is wrong, at P

	Guess   [][]byte // the keys of the outermost object as they probably come; nil: an unlikely one
	Next    int      // the one that is expected
	Guessed bool     // the last key was it

	depth int
}

func (l *Lexer) fail(what string) bool {
	if l.Fault == "" {
		l.Fault = what
	}
	return false
}

// Space goes over blanks.
func (l *Lexer) Space() {
	if l.P < len(l.B) && l.B[l.P] <= ' ' {
		l.spaces()
	}
}

func (l *Lexer) spaces() {
	for l.P < len(l.B) {
		switch l.B[l.P] {
		case ' ', '\t', '\r', '\n':
			l.P++
		default:
			return
		}
	}
}

// is goes over c, if it is next.
func (l *Lexer) is(c byte) bool {
	if l.P < len(l.B) && l.B[l.P] == c {
		l.P++
		return true
	}
	return false
}

// Value goes over one value.
func (l *Lexer) Value() (s Span, ok bool) {
	s.Start = l.P
	if l.P == len(l.B) {
		return s, l.fail("the line ends where a value should be")
	}
	switch c := l.B[l.P]; {
	case c == '"':
		s.Kind, ok = l.string()
	case c == '{':
		s.Kind, ok = Object, l.Object(func(Span, Span) bool { return true })
	case c == '[':
		s.Kind, ok = List, l.List(func(Span) bool { return true })
	case c == '-' || (c >= '0' && c <= '9'):
		s.Kind, ok = Number, l.number()
	case c == 't':
		s.Kind, ok = Truth, l.word("true")
	case c == 'f':
		s.Kind, ok = Truth, l.word("false")
	case c == 'n':
		s.Kind, ok = Null, l.word("null")
	default:
		ok = l.fail("no JSON value begins with " + strconv.QuoteRune(l.char()))
	}
	s.End = l.P
	return s, ok
}

func (l *Lexer) char() rune {
	r, _ := utf8.DecodeRune(l.B[l.P:])
	return r
}

func (l *Lexer) word(w string) bool {
	if len(l.B)-l.P < len(w) || string(l.B[l.P:l.P+len(w)]) != w {
		return l.fail("want " + w)
	}
	l.P += len(w)
	return true
}

func (l *Lexer) digits() bool {
	from := l.P
	for l.P < len(l.B) && l.B[l.P] >= '0' && l.B[l.P] <= '9' {
		l.P++
	}
	return l.P > from
}

func (l *Lexer) number() bool {
	l.is('-')
	if !l.is('0') && !l.digits() {
		return l.fail("want a digit")
	}
	if l.is('.') && !l.digits() {
		return l.fail("want a digit behind the point")
	}
	if l.is('e') || l.is('E') {
		if !l.is('+') {
			l.is('-')
		}
		if !l.digits() {
			return l.fail("want a digit in the exponent")
		}
	}
	return true
}

// string goes over a string.
func (l *Lexer) string() (k Kind, ok bool) {
	k = Text
	l.P++
	for {
		l.P += value.Plain(l.B[l.P:])
		if l.P == len(l.B) {
			return k, l.fail("the string is not closed")
		}
		switch c := l.B[l.P]; c {
		case '"':
			l.P++
			return k, true
		case '\\':
			k = Escaped
			if !l.escape() {
				return k, false
			}
		default:
			return k, l.fail("a control character must be escaped in a string")
		}
	}
}

func (l *Lexer) escape() bool {
	if l.P+1 == len(l.B) {
		return l.fail("the string is not closed")
	}
	switch l.B[l.P+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		l.P += 2
		return true
	case 'u':
	default:
		return l.fail("unknown escape")
	}
	first, ok := unit(l.B[l.P:])
	switch {
	case !ok:
		return l.fail(`want four hex digits behind \u`)
	case first < 0xD800 || first > 0xDFFF:
		l.P += escapeWidth
		return true
	}
	second, ok := unit(l.B[l.P+escapeWidth:])
	if first >= 0xDC00 || !ok || second < 0xDC00 || second > 0xDFFF {
		return l.fail("half of a surrogate pair")
	}
	l.P += 2 * escapeWidth
	return true
}

const escapeWidth = len(`\u0000`)

// unit reads \uXXXX.
func unit(b []byte) (r rune, ok bool) {
	if len(b) < escapeWidth || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:escapeWidth] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// Object goes over an object and calls each for its members; each may end it.
func (l *Lexer) Object(each func(key, v Span) bool) bool {
	if !l.deeper() {
		return false
	}
	defer l.higher()
	l.P++
	l.Space()
	if l.is('}') {
		return true
	}
	for {
		l.Space()
		key, ok := l.key()
		if !ok {
			return false
		}
		v, ok := l.Value()
		if !ok || !each(key, v) {
			return false
		}
		l.Space()
		if l.is('}') {
			return true
		}
		if !l.is(',') {
			return l.fail("want , or } in the object")
		}
	}
}

// key goes over a key, the colon and blanks.
func (l *Lexer) key() (k Span, ok bool) {
	if l.Guessed = l.depth == 1 && l.expected(); l.Guessed {
		k = Span{Start: l.P, End: l.P + len(l.Guess[l.Next-1]), Kind: Text}
		l.P = k.End + 1
		l.Space()
		return k, true
	}
	if l.P == len(l.B) || l.B[l.P] != '"' {
		return k, l.fail("want a key in quotes")
	}
	k.Start = l.P
	if k.Kind, ok = l.string(); !ok {
		return k, false
	}
	k.End = l.P
	l.Space()
	if !l.is(':') {
		return k, l.fail("want : behind the key")
	}
	l.Space()
	return k, true
}

// expected reports whether the key that is expected, and a colon, come next; then it expects the one behind it.
func (l *Lexer) expected() bool {
	if l.Next >= len(l.Guess) {
		return false
	}
	key := l.Guess[l.Next]
	if key == nil || len(l.B)-l.P <= len(key) || l.B[l.P+len(key)] != ':' || string(l.B[l.P:l.P+len(key)]) != string(key) {
		return false
	}
	l.Next++
	return true
}

// List goes over an array and calls each for its elements.
func (l *Lexer) List(each func(v Span) bool) bool {
	if !l.deeper() {
		return false
	}
	defer l.higher()
	l.P++
	l.Space()
	if l.is(']') {
		return true
	}
	for {
		l.Space()
		v, ok := l.Value()
		if !ok || !each(v) {
			return false
		}
		l.Space()
		if l.is(']') {
			return true
		}
		if !l.is(',') {
			return l.fail("want , or ] in the array")
		}
	}
}

func (l *Lexer) deeper() bool {
	if l.depth++; l.depth > maxDepth+1 {
		return l.fail("the document nests deeper than 1,000 levels")
	}
	return true
}

func (l *Lexer) higher() { l.depth-- }

// Line goes over the whole line, which must be one object.
func (l *Lexer) Line(each func(key, v Span) bool) bool {
	l.Space()
	if l.P == len(l.B) || l.B[l.P] != '{' {
		return l.fail("want one JSON object on each line")
	}
	if !l.Object(each) {
		return false
	}
	l.Space()
	if l.P < len(l.B) {
		return l.fail("want nothing behind the object")
	}
	return true
}

// Unescape appends the text of a checked string, quotes left out.
func Unescape(dst, b []byte) []byte {
	b = b[1 : len(b)-1]
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			dst = append(dst, b[i])
			i++
			continue
		}
		if b[i+1] == 'u' {
			r, _ := unit(b[i:])
			i += escapeWidth
			if r >= 0xD800 && r <= 0xDFFF {
				low, _ := unit(b[i:])
				i += escapeWidth
				r = (r-0xD800)<<10 + (low - 0xDC00) + 0x10000
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		switch c := b[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		default:
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}

// TextOf returns the text of a string or key; scratch is used where it has escapes.
func TextOf(b []byte, k Kind, scratch *[]byte) []byte {
	if k == Text {
		return b[1 : len(b)-1]
	}
	*scratch = Unescape((*scratch)[:0], b)
	return *scratch
}

// Document goes over a whole text, which must be one value.
func (l *Lexer) Document() (s Span, ok bool) {
	l.Space()
	if s, ok = l.Value(); !ok {
		return s, false
	}
	l.Space()
	if l.P < len(l.B) {
		return s, l.fail("want nothing behind the value")
	}
	return s, true
}
