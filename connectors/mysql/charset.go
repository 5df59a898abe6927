package mysql

import (
	"bytes"
	"context"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// charset decodes text of one character set. Those that are no form of Unicode are decoded by tables that the server itself makes, so that
// both roads, and the server, agree on every character. A value is never changed once it is made.
type charset struct {
	name  string
	units int             // bytes of a unit of UCS-2, UTF-16 and UTF-32; 0: a table
	small bool            // little-endian units
	one   [256]string     // characters of one byte; empty: none
	lead  [256]int        // how many bytes a character has that begins with this one; 0: one
	more  map[uint32]rune // characters of several bytes, by these
	ascii bool            // bytes below 128 are ASCII
}

// isUTF8 reports whether the bytes of a character set are UTF-8 already.
func isUTF8(name string) bool {
	switch name {
	case "", "utf8", "utf8mb3", "utf8mb4", "ascii", "binary":
		return true
	}
	return false
}

// span is a range of bytes.
type span struct{ from, to byte }

// doubleBytes says which bytes begin a character of two, and which ones end it.
type doubleBytes struct{ lead, trail []span }

// doubles are the character sets with characters of two bytes.
func doubles() map[string]doubleBytes {
	return map[string]doubleBytes{
		"big5":    {lead: []span{{0xa1, 0xf9}}, trail: []span{{0x40, 0x7e}, {0xa1, 0xfe}}},
		"cp932":   {lead: []span{{0x81, 0x9f}, {0xe0, 0xfc}}, trail: []span{{0x40, 0x7e}, {0x80, 0xfc}}},
		"sjis":    {lead: []span{{0x81, 0x9f}, {0xe0, 0xfc}}, trail: []span{{0x40, 0x7e}, {0x80, 0xfc}}},
		"gbk":     {lead: []span{{0x81, 0xfe}}, trail: []span{{0x40, 0x7e}, {0x80, 0xfe}}},
		"gb2312":  {lead: []span{{0xa1, 0xf7}}, trail: []span{{0xa1, 0xfe}}},
		"gb18030": {lead: []span{{0x81, 0xfe}}, trail: []span{{0x40, 0x7e}, {0x80, 0xfe}}},
		"euckr":   {lead: []span{{0x81, 0xfe}}, trail: []span{{0x41, 0x5a}, {0x61, 0x7a}, {0x81, 0xfe}}},
		"ujis":    {lead: []span{{0x8e, 0x8e}, {0xa1, 0xfe}}, trail: []span{{0xa1, 0xfe}}},
		"eucjpms": {lead: []span{{0x8e, 0x8e}, {0xa1, 0xfe}}, trail: []span{{0xa1, 0xfe}}},
	}
}

// In ujis and eucjpms one byte begins a character of three bytes, and one a narrow one of two.
const (
	eucThree    = 0x8f
	eucKana     = 0x8e
	eucKanaLast = 0xdf
)

// loadCharset makes the decoder of a character set; nil: its bytes are UTF-8 already.
func loadCharset(ctx context.Context, q querier, name string) (*charset, error) {
	cs := &charset{name: name}
	switch name {
	case "ucs2", "utf16":
		cs.units = 2
		return cs, nil
	case "utf16le":
		cs.units, cs.small = 2, true
		return cs, nil
	case "utf32":
		cs.units = 4
		return cs, nil
	}
	if isUTF8(name) {
		return nil, nil //nolint:nilnil // there is nothing to decode
	}
	form, double := doubles()[name]
	if err := cs.loadSingle(ctx, q, double); err != nil {
		return nil, fmt.Errorf("the character set %s: %w", name, err)
	}
	if double {
		if err := cs.loadDouble(ctx, q, form); err != nil {
			return nil, fmt.Errorf("the character set %s: %w", name, err)
		}
	}
	return cs, nil
}

// loadSingle asks for the characters of one byte.
func (cs *charset) loadSingle(ctx context.Context, q querier, double bool) error {
	var codes []uint32
	for b := range uint32(256) {
		if !double || b < 0x80 || (cs.name == "cp932" || cs.name == "sjis") && b >= 0xa1 && b <= 0xdf {
			codes = append(codes, b)
		}
	}
	chars, err := cs.ask(ctx, q, codes, 1)
	if err != nil {
		return err
	}
	cs.ascii = true
	for i, b := range codes {
		if chars[i] != utf8.RuneError {
			cs.one[b] = string(chars[i])
		}
		cs.ascii = cs.ascii && (b >= 0x80 || chars[i] == rune(b))
	}
	return nil
}

// loadDouble asks for the characters of two and three bytes.
func (cs *charset) loadDouble(ctx context.Context, q querier, form doubleBytes) error {
	cs.more = map[uint32]rune{}
	var codes []uint32
	eachByte(form.lead, func(lead uint32) {
		cs.lead[lead] = 2
		eachByte(form.trail, func(trail uint32) {
			if euc := cs.name == "ujis" || cs.name == "eucjpms"; !euc || lead != eucKana || trail <= eucKanaLast {
				codes = append(codes, lead<<8|trail)
			}
		})
	})
	if err := cs.addMore(ctx, q, codes, 2); err != nil {
		return err
	}
	codes = codes[:0]
	switch cs.name {
	case "ujis", "eucjpms":
		cs.lead[eucThree] = 3
		eachByte(form.trail, func(a uint32) {
			eachByte(form.trail, func(b uint32) { codes = append(codes, eucThree<<16|a<<8|b) })
		})
		return cs.addMore(ctx, q, codes, 3)
	case "gb18030":
		for n := range uint32(gbBasic) {
			codes = append(codes, gbCode(n))
		}
		return cs.addMore(ctx, q, codes, 4)
	}
	return nil
}

// Characters of four bytes in gb18030 are numbered: the first ones are in no order that could be computed, those of the other planes are.
const (
	gbBasic  = 39420
	gbPlanes = 189000
)

// gbCode is the code of a number, gbNumber the number of a code.
func gbCode(n uint32) uint32 {
	return (0x81+n/12600)<<24 | (0x30+n/1260%10)<<16 | (0x81+n/10%126)<<8 | (0x30 + n%10)
}

func gbNumber(src []byte) uint32 {
	return ((uint32(src[0])-0x81)*10+uint32(src[1])-0x30)*1260 + (uint32(src[2])-0x81)*10 + uint32(src[3]) - 0x30
}

// gb18030Four reads a character of four bytes.
func (cs *charset) gb18030Four(src []byte) (rune, bool) {
	if src[0] < 0x81 || src[2] < 0x81 || src[3] < 0x30 || src[3] > 0x39 {
		return 0, false
	}
	n := gbNumber(src)
	if n < gbPlanes {
		r, ok := cs.more[gbCode(n)]
		return r, ok
	}
	r := rune(n-gbPlanes) + 0x10000
	return r, r <= utf8.MaxRune
}

func (cs *charset) addMore(ctx context.Context, q querier, codes []uint32, width int) error {
	chars, err := cs.ask(ctx, q, codes, width)
	if err != nil {
		return err
	}
	for i, code := range codes {
		if chars[i] != utf8.RuneError {
			cs.more[code] = chars[i]
		}
	}
	return nil
}

// eachByte calls f for every byte of the spans.
func eachByte(spans []span, f func(uint32)) {
	for _, s := range spans {
		for b := uint32(s.from); b <= uint32(s.to); b++ {
			f(b)
		}
	}
}

// askAtOnce is how many characters one question is about.
const askAtOnce = 8192

// ask lets the server say which characters these bytes are; RuneError: none. Each goes with a line's end behind it, which keeps them apart
// whatever they become.
func (cs *charset) ask(ctx context.Context, q querier, codes []uint32, width int) ([]rune, error) {
	out := make([]rune, 0, len(codes))
	for len(codes) > 0 {
		part := codes[:min(len(codes), askAtOnce)]
		codes = codes[len(part):]
		var raw []byte
		for _, code := range part {
			for i := width - 1; i >= 0; i-- {
				raw = append(raw, byte(code>>(8*i)))
			}
			raw = append(raw, '\n')
		}
		rows, err := ask(ctx, q, fmt.Sprintf("SELECT CONVERT(CAST(X'%X' AS CHAR CHARACTER SET %s) USING utf8mb4)", raw, cs.name))
		if err != nil {
			return nil, err
		}
		if text := rows[0][0]; bytes.Count(text, []byte("\n")) == bytes.Count(raw, []byte("\n")) {
			out = append(out, answers(text, part)...)
			continue
		}
		if len(part) == 1 { // these bytes are none of this character set
			out = append(out, utf8.RuneError)
			continue
		}
		for _, half := range [][]uint32{part[:len(part)/2], part[len(part)/2:]} {
			chars, err := cs.ask(ctx, q, half, width)
			if err != nil {
				return nil, err
			}
			out = append(out, chars...)
		}
	}
	return out, nil
}

// answers reads one line for each code; of what is no character the server makes a question mark.
func answers(text []byte, codes []uint32) []rune {
	out := make([]rune, len(codes))
	rest := text
	for i, code := range codes {
		out[i] = utf8.RuneError
		var line []byte
		if code == '\n' && len(rest) > 1 { // the line's end itself
			line, rest = rest[:1], rest[2:]
		} else {
			line, rest, _ = bytes.Cut(rest, []byte("\n"))
		}
		r, size := utf8.DecodeRune(line)
		if size == len(line) && size > 0 && (r != '?' || code == '?') {
			out[i] = r
		}
	}
	return out
}

// decode appends the text as UTF-8; false: it has bytes that are no character.
func (cs *charset) decode(dst, src []byte) ([]byte, bool) {
	switch cs.units {
	case 4:
		return decode32(dst, src)
	case 2:
		return cs.decode16(dst, src)
	}
	for i := 0; i < len(src); {
		b := src[i]
		if cs.ascii && b < utf8.RuneSelf {
			start := i
			for i < len(src) && src[i] < utf8.RuneSelf {
				i++
			}
			dst = append(dst, src[start:i]...)
			continue
		}
		n := cs.lead[b]
		if n == 0 {
			if cs.one[b] == "" {
				return dst, false
			}
			dst = append(dst, cs.one[b]...)
			i++
			continue
		}
		r, size, ok := cs.several(src[i:], n)
		if !ok {
			return dst, false
		}
		dst = utf8.AppendRune(dst, r)
		i += size
	}
	return dst, true
}

// several reads a character of several bytes.
func (cs *charset) several(src []byte, n int) (r rune, size int, ok bool) {
	if cs.name == "gb18030" && len(src) >= 4 && src[1] >= '0' && src[1] <= '9' {
		r, ok := cs.gb18030Four(src)
		return r, 4, ok
	}
	if len(src) < n {
		return 0, 0, false
	}
	code := uint32(0)
	for _, b := range src[:n] {
		code = code<<8 | uint32(b)
	}
	r, ok = cs.more[code]
	return r, n, ok
}

func (cs *charset) decode16(dst, src []byte) ([]byte, bool) {
	if len(src)%2 != 0 {
		return dst, false
	}
	unit := func(i int) rune {
		if cs.small {
			return rune(src[i+1])<<8 | rune(src[i])
		}
		return rune(src[i])<<8 | rune(src[i+1])
	}
	for i := 0; i < len(src); i += 2 {
		r := unit(i)
		if utf16.IsSurrogate(r) {
			if i += 2; i >= len(src) || cs.name == "ucs2" {
				return dst, false
			}
			if r = utf16.DecodeRune(r, unit(i)); r == utf8.RuneError {
				return dst, false
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, true
}

func decode32(dst, src []byte) ([]byte, bool) {
	if len(src)%4 != 0 {
		return dst, false
	}
	for ; len(src) > 0; src = src[4:] {
		r := rune(src[0])<<24 | rune(src[1])<<16 | rune(src[2])<<8 | rune(src[3])
		if !utf8.ValidRune(r) {
			return dst, false
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, true
}
