package pgcopy

import (
	"bytes"
	"math"

	"github.com/leatdata/leat/format/internal/literal"
)

const (
	hourSeconds   = 3600
	minuteSeconds = 60
	secondMicros  = 1_000_000
)

// parseDay reads YYYY-MM-DD, with four digits of year or more, as days since 2000; bc counts years before 1 AD.
func parseDay(v []byte, bc bool) (days int64, ok bool) {
	n := len(v) - len("-MM-DD")
	if n < 4 || n > 7 || v[n] != '-' || v[n+3] != '-' {
		return 0, false
	}
	y, okY := parseUint(v[:n])
	month, okM := literal.TwoDigits(v[n+1:])
	day, okD := literal.TwoDigits(v[n+4:])
	if !okY || !okM || !okD || month < 1 || month > 12 || day < 1 || y == 0 {
		return 0, false
	}
	year := int64(y)
	if bc {
		year = 1 - year
	}
	if day > literal.MonthDays(int(year), month) {
		return 0, false
	}
	return daysOf(year, month, day), true
}

// daysOf counts the days from 2000-01-01 in the proleptic Gregorian calendar, by eras of 400 years that begin with March.
func daysOf(year int64, month, day int) int64 {
	const eraDays, eraOffset = 146_097, 730_425 // days from 0000-03-01 to 2000-01-01
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400
	if year < 0 {
		era = (year - 399) / 400
	}
	y := year - 400*era
	return era*eraDays + y*365 + y/4 - y/100 + int64((153*(month-3)+2)/5+day-1) - eraOffset
}

// parseDate reads what date_out makes with DateStyle = ISO, as days since 2000; infinite dates are the largest and the smallest.
func parseDate(v []byte) (int32, bool) {
	switch string(v) {
	case textForever:
		return math.MaxInt32, true
	case textEver:
		return math.MinInt32, true
	}
	day, bc := bytes.CutSuffix(v, []byte(" BC"))
	days, ok := parseDay(day, bc)
	return int32(days), ok && days == int64(int32(days))
}

// parseClock reads hh:mm:ss with up to six more digits, up to 24:00:00, in microseconds; and returns what is behind.
func parseClock(v []byte) (micros int64, rest []byte, ok bool) {
	const size = len("hh:mm:ss")
	if len(v) < size || v[2] != ':' || v[5] != ':' {
		return 0, nil, false
	}
	h, okH := literal.TwoDigits(v)
	m, okM := literal.TwoDigits(v[3:])
	s, okS := literal.TwoDigits(v[6:])
	if !okH || !okM || !okS || h > 24 || m > 59 || s > 59 {
		return 0, nil, false
	}
	f, rest, okF := parseFraction(v[size:])
	micros = int64(h*hourSeconds+m*minuteSeconds+s)*secondMicros + f
	return micros, rest, okF && micros <= dayMicros
}

// parseFraction reads a point and one to six digits, if there is a point, in microseconds.
func parseFraction(v []byte) (micros int64, rest []byte, ok bool) {
	if len(v) == 0 || v[0] != '.' {
		return 0, v, true
	}
	v = v[1:]
	n := 0
	for n < len(v) && v[n]-'0' <= 9 {
		n++
	}
	if n < 1 || n > 6 {
		return 0, nil, false
	}
	f, ok := parseUint(v[:n])
	return int64(f * pow10Table[6-n]), v[n:], ok
}

// parseTimestamp reads what timestamp_out and, zoned, timestamptz_out make with DateStyle = ISO, in microseconds since 2000; infinite
// ones are the largest and the smallest.
func parseTimestamp(v []byte, zoned bool) (int64, bool) {
	switch string(v) {
	case textForever:
		return math.MaxInt64, true
	case textEver:
		return math.MinInt64, true
	}
	v, bc := bytes.CutSuffix(v, []byte(" BC"))
	at := bytes.IndexByte(v, ' ')
	if at < 0 {
		return 0, false
	}
	days, okD := parseDay(v[:at], bc)
	micros, zone, okC := parseClock(v[at+1:])
	offset, okZ := parseZone(zone)
	// The server's own range is narrower: from 4714 BC to the year 294276.
	const limit = math.MaxInt64/dayMicros - 2
	if !okD || !okC || !okZ || (len(zone) > 0) != zoned || days > limit || days < -limit {
		return 0, false
	}
	return days*dayMicros + micros - offset*secondMicros, true
}

// parseZone reads +hh, +hh:mm, +hh:mm:ss, or nothing, as seconds east of Greenwich.
func parseZone(v []byte) (seconds int64, ok bool) {
	if len(v) == 0 {
		return 0, true
	}
	sign := int64(1)
	switch v[0] {
	case '+':
	case '-':
		sign = -1
	default:
		return 0, false
	}
	for _, unit := range [...]int64{hourSeconds, minuteSeconds, 1} {
		v = v[1:]
		if len(v) < 2 {
			return 0, false
		}
		n, ok := literal.TwoDigits(v)
		if !ok || n > 59 {
			return 0, false
		}
		seconds += int64(n) * unit
		if v = v[2:]; len(v) == 0 {
			return sign * seconds, seconds < 16*hourSeconds
		}
		if v[0] != ':' {
			return 0, false
		}
	}
	return 0, false
}

// parseSpan reads the last part of an interval, hh:mm:ss.ffffff with a sign and any number of hours, in microseconds.
func parseSpan(v []byte) (int64, bool) {
	negative := len(v) > 0 && v[0] == '-'
	if negative {
		v = v[1:]
	} else {
		v = trimPlus(v)
	}
	at := bytes.IndexByte(v, ':')
	if at < 2 || len(v)-at < len(":mm:ss") || v[at+3] != ':' {
		return 0, false
	}
	h, okH := parseUint(v[:at])
	m, okM := literal.TwoDigits(v[at+1:])
	s, okS := literal.TwoDigits(v[at+4:])
	f, rest, okF := parseFraction(v[at+6:])
	const most = 1 << 63 / (hourSeconds * secondMicros)
	if !okH || !okM || !okS || !okF || len(rest) > 0 || h > most || m > 59 || s > 59 {
		return 0, false
	}
	x := (h*hourSeconds+uint64(m*minuteSeconds+s))*secondMicros + uint64(f)
	switch {
	case negative && x <= 1<<63:
		return -int64(x), true
	case !negative && x <= math.MaxInt64:
		return int64(x), true
	}
	return 0, false
}

func trimPlus(v []byte) []byte {
	if len(v) > 1 && v[0] == '+' && v[1] != '-' {
		return v[1:]
	}
	return v
}

// cutWord returns v up to a space, and what is behind it.
func cutWord(v []byte) (word, rest []byte) {
	word, rest, _ = bytes.Cut(v, []byte{' '})
	return word, rest
}
