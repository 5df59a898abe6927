package sqlgen_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leatdata/leat/connector/sqlgen"
)

func dialect(brackets bool) sqlgen.Dialect {
	return sqlgen.Dialect{Text: sqlgen.QuoteText, Bytes: func(hex string) string { return "x'" + hex + "'" }, Brackets: brackets}
}

// clause S20
// Each value is a literal of its own, whatever it holds.
func TestParentLiterals(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		want  string // empty: refused
	}{
		"text":     {"it's", "'it''s'"},
		"attack":   {"'; DROP TABLE t; --", "'''; DROP TABLE t; --'"},
		"another":  {"${parent.w}", "'${parent.w}'"},
		"negative": {int64(-5), "-5"}, "unsigned": {uint64(math.MaxUint64), "18446744073709551615"},
		"float": {0.1, "0.1"}, "large": {1e300, "1e+300"}, "single": {float32(0.1), "0.1"}, "NaN": {math.NaN(), ""}, "infinite": {math.Inf(-1), ""},
		"number": {json.Number("12345678901234567890.5"), "12345678901234567890.5"}, "no number": {json.Number("1); DROP TABLE t"), ""},
		"null": {nil, "NULL"}, "true": {true, "TRUE"}, "bytes": {[]byte{0, 255}, "x'00ff'"}, "zero": {"a\x00", ""},
		"time": {time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), "'2026-01-02T03:04:05.000006Z'"},
		"list": {[]any{1}, ""}, "map": {map[string]any{}, ""},
	} {
		got, err := dialect(false).Parent("a = -${parent.v} AND b", func(string) (any, error) { return c.value, nil })
		switch {
		case c.want == "" && (err == nil || !strings.HasPrefix(err.Error(), "${parent.v}: ") || strings.Contains(err.Error(), "DROP")):
			t.Errorf("%s: %q, %v", name, got, err)
		case c.want != "" && (err != nil || got != "a = - ("+c.want+")  AND b"):
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := dialect(false).Parent("${parent.v}", func(string) (any, error) { return nil, errors.New("none") }); err == nil {
		t.Error("a value that is not there")
	}
}

// clause S20
// A placeholder inside of something that a literal would end is refused; behind it, it is not.
func TestParentPlaces(t *testing.T) {
	const p = "${parent.v}"
	for text, ok := range map[string]bool{
		"SELECT " + p: true, "a=" + p + " AND b=" + p: true, p: true,
		"'" + p + "'": false, "'a' || " + p: true, "'it''s ' || " + p: true, "'it''s " + p + "'": false, "x LIKE '%" + p + "%'": false,
		`"` + p + `"`: false, `"a" = ` + p: true, `"a""b` + p + `"`: false,
		"-- " + p: false, "-- it's\n" + p: true, "--" + p: false, "- -" + p: true,
		"/* " + p + " */": false, "/* it's */ " + p: true, "/* a /* b */ " + p: false, "/*" + p + "*/": false,
		"$$" + p + "$$": false, "$$it's$$ || " + p: true, "$a$ $b$ '" + p + "$a$": false, "$a$ $b$ ' $a$ " + p: true, "a$$ = " + p: true, "$1 = " + p: true,
		`'a\' || ` + p: false, `E'it\'s ` + p + `'`: false, `E'it\'s' || ` + p: false, `'\\' || ` + p: false, `'a\b' || ` + p: true,
		p + " '" + p + "'": false, p + "'": true,
	} {
		got, err := dialect(false).Parent(text, func(string) (any, error) { return 1, nil })
		if (err == nil) != ok {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for text, ok := range map[string][2]bool{ // with brackets as names, and without
		"a[" + p + "]": {false, true}, "[it's] = " + p: {true, false}, "`" + p + "`": {false, true}, "`it's` = " + p: {true, false},
	} {
		for i, brackets := range []bool{true, false} {
			if _, err := dialect(brackets).Parent(text, func(string) (any, error) { return 1, nil }); (err == nil) != ok[i] {
				t.Errorf("%s, brackets %t: %v", text, brackets, err)
			}
		}
	}
}
