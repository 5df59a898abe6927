package jsonl

import (
	"strconv"
	"unicode/utf8"

	"github.com/leatdata/leat/format/internal/value"
)

// kind is what a JSON value is.
type kind byte

const (
	null    kind = iota + 1
	truth        // true or false
	number       // a literal
	text         // a string without escapes
	escaped      // a string with escapes
	object
	list
)

// span is a value in a line.
type span struct {
	start, end int
	kind       kind
}

// maxDepth bounds how deeply values may nest, as record.CheckJSON does.
const maxDepth = 1_000

// lexer checks the syntax of one line and finds the values in it. Its input is valid UTF-8.
type lexer struct {
	b     []byte
	p     int
	depth int
	fault string // what is wrong, at p

	guess   [][]byte // the keys of the outermost object as they probably come; nil: an unlikely one
	next    int      // the one that is expected
	guessed bool     // the last key was it
}

func (l *lexer) fail(what string) bool {
	if l.fault == "" {
		l.fault = what
	}
	return false
}

func (l *lexer) space() {
	if l.p < len(l.b) && l.b[l.p] <= ' ' {
		l.spaces()
	}
}

func (l *lexer) spaces() {
	for l.p < len(l.b) {
		switch l.b[l.p] {
		case ' ', '\t', '\r', '\n':
			l.p++
		default:
			return
		}
	}
}

// is goes over c, if it is next.
func (l *lexer) is(c byte) bool {
	if l.p < len(l.b) && l.b[l.p] == c {
		l.p++
		return true
	}
	return false
}

// value goes over one value.
func (l *lexer) value() (s span, ok bool) {
	s.start = l.p
	if l.p == len(l.b) {
		return s, l.fail("the line ends where a value should be")
	}
	switch c := l.b[l.p]; {
	case c == '"':
		s.kind, ok = l.string()
	case c == '{':
		s.kind, ok = object, l.object(func(span, span) bool { return true })
	case c == '[':
		s.kind, ok = list, l.list(func(span) bool { return true })
	case c == '-' || (c >= '0' && c <= '9'):
		s.kind, ok = number, l.number()
	case c == 't':
		s.kind, ok = truth, l.word("true")
	case c == 'f':
		s.kind, ok = truth, l.word("false")
	case c == 'n':
		s.kind, ok = null, l.word("null")
	default:
		ok = l.fail("no JSON value begins with " + strconv.QuoteRune(l.char()))
	}
	s.end = l.p
	return s, ok
}

func (l *lexer) char() rune {
	r, _ := utf8.DecodeRune(l.b[l.p:])
	return r
}

func (l *lexer) word(w string) bool {
	if len(l.b)-l.p < len(w) || string(l.b[l.p:l.p+len(w)]) != w {
		return l.fail("want " + w)
	}
	l.p += len(w)
	return true
}

func (l *lexer) digits() bool {
	from := l.p
	for l.p < len(l.b) && l.b[l.p] >= '0' && l.b[l.p] <= '9' {
		l.p++
	}
	return l.p > from
}

func (l *lexer) number() bool {
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
func (l *lexer) string() (k kind, ok bool) {
	k = text
	l.p++
	for {
		l.p += value.Plain(l.b[l.p:])
		if l.p == len(l.b) {
			return k, l.fail("the string is not closed")
		}
		switch c := l.b[l.p]; c {
		case '"':
			l.p++
			return k, true
		case '\\':
			k = escaped
			if !l.escape() {
				return k, false
			}
		default:
			return k, l.fail("a control character must be escaped in a string")
		}
	}
}

func (l *lexer) escape() bool {
	if l.p+1 == len(l.b) {
		return l.fail("the string is not closed")
	}
	switch l.b[l.p+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		l.p += 2
		return true
	case 'u':
	default:
		return l.fail("unknown escape")
	}
	first, ok := unit(l.b[l.p:])
	switch {
	case !ok:
		return l.fail(`want four hex digits behind \u`)
	case first < 0xD800 || first > 0xDFFF:
		l.p += escapeWidth
		return true
	}
	second, ok := unit(l.b[l.p+escapeWidth:])
	if first >= 0xDC00 || !ok || second < 0xDC00 || second > 0xDFFF {
		return l.fail("half of a surrogate pair")
	}
	l.p += 2 * escapeWidth
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

// object goes over an object and calls each for its members; each may end it.
func (l *lexer) object(each func(key, v span) bool) bool {
	if !l.deeper() {
		return false
	}
	defer l.higher()
	l.p++
	l.space()
	if l.is('}') {
		return true
	}
	for {
		l.space()
		key, ok := l.key()
		if !ok {
			return false
		}
		v, ok := l.value()
		if !ok || !each(key, v) {
			return false
		}
		l.space()
		if l.is('}') {
			return true
		}
		if !l.is(',') {
			return l.fail("want , or } in the object")
		}
	}
}

// key goes over a key, the colon and blanks.
func (l *lexer) key() (k span, ok bool) {
	if l.guessed = l.depth == 1 && l.expected(); l.guessed {
		k = span{start: l.p, end: l.p + len(l.guess[l.next-1]), kind: text}
		l.p = k.end + 1
		l.space()
		return k, true
	}
	if l.p == len(l.b) || l.b[l.p] != '"' {
		return k, l.fail("want a key in quotes")
	}
	k.start = l.p
	if k.kind, ok = l.string(); !ok {
		return k, false
	}
	k.end = l.p
	l.space()
	if !l.is(':') {
		return k, l.fail("want : behind the key")
	}
	l.space()
	return k, true
}

// expected reports whether the key that is expected, and a colon, come next; then it expects the one behind it.
func (l *lexer) expected() bool {
	if l.next >= len(l.guess) {
		return false
	}
	key := l.guess[l.next]
	if key == nil || len(l.b)-l.p <= len(key) || l.b[l.p+len(key)] != ':' || string(l.b[l.p:l.p+len(key)]) != string(key) {
		return false
	}
	l.next++
	return true
}

// list goes over an array and calls each for its elements.
func (l *lexer) list(each func(v span) bool) bool {
	if !l.deeper() {
		return false
	}
	defer l.higher()
	l.p++
	l.space()
	if l.is(']') {
		return true
	}
	for {
		l.space()
		v, ok := l.value()
		if !ok || !each(v) {
			return false
		}
		l.space()
		if l.is(']') {
			return true
		}
		if !l.is(',') {
			return l.fail("want , or ] in the array")
		}
	}
}

func (l *lexer) deeper() bool {
	if l.depth++; l.depth > maxDepth+1 {
		return l.fail("the document nests deeper than 1,000 levels")
	}
	return true
}

func (l *lexer) higher() { l.depth-- }

// line goes over the whole line, which must be one object.
func (l *lexer) line(each func(key, v span) bool) bool {
	l.space()
	if l.p == len(l.b) || l.b[l.p] != '{' {
		return l.fail("want one JSON object on each line")
	}
	if !l.object(each) {
		return false
	}
	l.space()
	if l.p < len(l.b) {
		return l.fail("want nothing behind the object")
	}
	return true
}

// unescape appends the text of a checked string, quotes left out.
func unescape(dst, b []byte) []byte {
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

// textOf returns the text of a string or key; scratch is used where it has escapes.
func textOf(b []byte, k kind, scratch *[]byte) []byte {
	if k == text {
		return b[1 : len(b)-1]
	}
	*scratch = unescape((*scratch)[:0], b)
	return *scratch
}
