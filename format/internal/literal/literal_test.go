package literal_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/format/internal/literal"
	"github.com/leatdata/leat/record"
)

// case C081: look-alikes are no numbers.
func TestLookAlikesAreNoNumbers(t *testing.T) {
	for _, s := range []string{
		"", "-", "+49", "00501", "-01", "-0", "1e5", "1E5", "NaN", "12345678901234567890", "9223372036854775808", "-9223372036854775809",
		"1_000", "0x1F", "1,5", " 1", "1 ", "١",
	} {
		if v, ok := literal.Int([]byte(s)); ok {
			t.Errorf("Int(%q) = %d, want none", s, v)
		}
	}
	for _, s := range []string{
		"", "-", ".", "1.", ".5", "-.5", "+1.5", "00.5", "1e5", "NaN", "Infinity", "1.2.3", "0.12345678901234567", "0.00000001", "0.1000000000000000055511151231257827",
		"9007199254740993", "1_0.5", "0x1p3", "1000000000000000000000", "0.000000000000000000000000000001", "12345678901234567890.5", "1.234567890123456789e3",
	} {
		if v, ok := literal.Float([]byte(s)); ok {
			t.Errorf("Float(%q) = %v, want none", s, v)
		}
	}
}

func TestIntLimits(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 9, 10, math.MaxInt64, math.MinInt64, 1e18, -1e18} {
		got, ok := literal.Int(strconv.AppendInt(nil, v, 10))
		if !ok || got != v {
			t.Errorf("Int(%d) = %d, %v", v, got, ok)
		}
	}
}

// case C081: whatever is accepted is printed back as the same decimal value.
func TestFloatPrintsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,19})?`).Draw(t, "s")
		if rapid.Bool().Draw(t, "a float's own form") {
			s = string(record.AppendFloat(nil, rapid.Float64().Draw(t, "f"), 64))
			if f, ok := literal.JSONFloat([]byte(s)); !ok || string(record.AppendFloat(nil, f, 64)) != s {
				t.Fatalf("JSONFloat(%q) = %v, %v", s, f, ok)
			}
		}
		f, ok := literal.Float([]byte(s))
		if !ok {
			f, err := strconv.ParseFloat(s, 64)
			if back := string(record.AppendFloat(nil, f, 64)); err != nil || (back == s && !strings.Contains(s, "e")) {
				t.Fatalf("Float(%q) takes nothing; it prints back as %s, %v", s, back, err)
			}
			return
		}
		if want, err := strconv.ParseFloat(s, 64); err != nil || want != f {
			t.Fatalf("Float(%q) = %v, strconv %v", s, f, want)
		}
		trim := func(s string) string {
			c, err := record.CanonicalNumeric(s)
			if err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			for c != "" && (c[len(c)-1] == '0' || c[len(c)-1] == '.') {
				point := c[len(c)-1] == '.'
				c = c[:len(c)-1]
				if point {
					break
				}
			}
			return c
		}
		withPoint := func(s string) string {
			for _, c := range s {
				if c == '.' {
					return s
				}
			}
			return s + ".0"
		}
		if back := string(record.AppendFloat(nil, f, 64)); trim(withPoint(back)) != trim(withPoint(s)) {
			t.Fatalf("%q prints back as %q", s, back)
		}
	})
}

func TestDates(t *testing.T) {
	for d := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC); d.Year() < 10000; d = d.AddDate(0, 0, 17) {
		s := d.Format(time.DateOnly)
		got, ok := literal.Date([]byte(s))
		if !ok || int64(got) != d.Unix()/86400-boolInt(d.Unix()%86400 < 0) {
			t.Fatalf("Date(%q) = %d, %v", s, got, ok)
		}
		if back := string(record.AppendDate(nil, int64(got))); back != s {
			t.Fatalf("Date(%q) prints back as %q", s, back)
		}
	}
	for _, s := range []string{"2024-1-2", "2024-02-30", "2023-02-29", "1900-02-29", "0000-01-01", "2024-13-01", "2024-00-01", "2024-01-00", "20240102", "2024/01/02", "x024-01-02"} {
		if v, ok := literal.Date([]byte(s)); ok {
			t.Errorf("Date(%q) = %d, want none", s, v)
		}
	}
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func TestTimestampsAgreeWithRecord(t *testing.T) {
	for s, canonical := range map[string]bool{
		"2024-01-02T03:04:05": true, "2024-01-02 03:04:05": false, "2024-01-02T03:04:05Z": true, "2024-01-02T03:04:05.5": true,
		"2024-01-02T03:04:05.50": false, "2024-01-02T03:04:05.123456Z": true, "2024-01-02 03:04:05.000001+02": false,
		"2024-01-02T03:04:05+05:30": false, "2024-01-02T03:04:05-0930": false, "0001-01-01T00:00:00": true, "9999-12-31T23:59:59.999999": true,
		"2024-01-02T03:04:00": true,
	} {
		v, zoned, ok := literal.Timestamp([]byte(s))
		want, wantZoned, err := record.ParseTimestamp(s, arrow.Microsecond)
		if !ok || err != nil || v != want || zoned != wantZoned {
			t.Errorf("Timestamp(%q) = %d, %v, %v; record says %d, %v, %v", s, v, zoned, ok, want, wantZoned, err)
		}
		if got := literal.IsCanonicalTimestamp([]byte(s)); got != canonical {
			t.Errorf("IsCanonicalTimestamp(%q) = %v", s, got)
		}
		if back := string(record.AppendTimestamp(nil, v, arrow.Microsecond, zoned)); (back == s) != canonical {
			t.Errorf("%q prints back as %q", s, back)
		}
	}
	for _, s := range []string{
		"2024-01-02", "2024-01-02T03:04", "2024-01-02T24:00:00", "2024-01-02T03:60:00", "2024-01-02T03:04:60", "2024-01-02T03:04:05.", "2024-01-02T03:04:05.1234567",
		"2024-01-02T03:04:05z", "2024-01-02T03:04:05+2", "2024-01-02T03:04:05+24", "2024-01-02T03:04:05+02:60", "2024-01-02T03:04:05 Z", "2024-01-02t03:04:05", "infinity",
	} {
		if v, _, ok := literal.Timestamp([]byte(s)); ok {
			t.Errorf("Timestamp(%q) = %d, want none", s, v)
		}
	}
}

// case C024: a JSON number is a float only where the float is the same number.
func TestJSONFloats(t *testing.T) {
	for s, want := range map[string]bool{
		"1e5": true, "1E+5": true, "1.10": true, "-0": true, "-0.0": true, "0.30000000000000004": true, "1e-8": true, "1.5e300": true, "5e-324": true,
		"100000000000000000000000": true, "9007199254740993": false, "18446744073709551615": false, "0.12345678901234567890123": false, "1e400": false,
		"0.1000000000000000055511151231257827": false, "1e-400": false, "3e-324": false, "9007199254740992": true, "0e5": true, "1.7976931348623157e308": true,
	} {
		if _, ok := literal.JSONFloat([]byte(s)); ok != want {
			t.Errorf("JSONFloat(%q) is %v", s, ok)
		}
	}
}
