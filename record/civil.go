package record

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// Text forms of infinite dates and timestamps.
const (
	infinity    = "infinity"
	negInfinity = "-infinity"
)

const (
	microsPerSecond = 1_000_000
	secondsPerDay   = 86_400
)

// civil returns the proleptic Gregorian date of a day number (0 is 1970-01-01). Source: the days-from-civil algorithm on 400-year
// eras, exact for every int64 that a date can hold.
func civil(days int64) (year int64, month, day int) {
	z := days + 719468
	era := floorDiv(z, 146097)
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = int(doy-(153*mp+2)/5) + 1
	month = int(mp) + 3
	if month > 12 {
		month -= 12
	}
	year = yoe + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}

// dayNumber is the inverse of civil.
func dayNumber(year int64, month, day int) int64 {
	if month <= 2 {
		year--
	}
	era := floorDiv(year, 400)
	yoe := year - era*400
	mp := int64(month+9) % 12
	doy := (153*mp+2)/5 + int64(day) - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146097 + doe - 719468
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// AppendDate appends a day number as ISO 8601: four digits of year, a sign and more digits outside 0000 to 9999 (year 0 is 1 BC).
func AppendDate(dst []byte, days int64) []byte {
	y, m, d := civil(days)
	switch {
	case y < 0:
		dst = append(dst, '-')
		y = -y
	case y > 9999:
		dst = append(dst, '+')
	}
	dst = appendPadded(dst, y, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, int64(m), 2)
	dst = append(dst, '-')
	return appendPadded(dst, int64(d), 2)
}

func appendPadded(dst []byte, v int64, width int) []byte {
	var buf [20]byte
	s := strconv.AppendInt(buf[:0], v, 10)
	for range width - len(s) {
		dst = append(dst, '0')
	}
	return append(dst, s...)
}

// unitsPerSecond returns how many of the unit make a second, and its digits after the point.
func unitsPerSecond(u arrow.TimeUnit) (per int64, digits int) {
	switch u {
	case arrow.Second:
		return 1, 0
	case arrow.Millisecond:
		return 1_000, 3
	case arrow.Microsecond:
		return microsPerSecond, 6
	default:
		return 1_000_000_000, 9
	}
}

// appendClock appends hh:mm:ss and, where it is not zero, the fraction without trailing zeros.
func appendClock(dst []byte, v int64, u arrow.TimeUnit) []byte {
	per, digits := unitsPerSecond(u)
	sec, frac := v/per, v%per
	dst = appendPadded(dst, sec/3600, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, sec/60%60, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, sec%60, 2)
	return appendFraction(dst, frac, digits)
}

func appendFraction(dst []byte, frac int64, digits int) []byte {
	if frac == 0 {
		return dst
	}
	dst = append(dst, '.')
	dst = appendPadded(dst, frac, digits)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// AppendTimestamp appends date, T, time of day, and Z for an instant.
func AppendTimestamp(dst []byte, v int64, u arrow.TimeUnit, zoned bool) []byte {
	per, _ := unitsPerSecond(u)
	days := floorDiv(v, per*secondsPerDay)
	dst = AppendDate(dst, days)
	dst = append(dst, 'T')
	dst = appendClock(dst, v-days*per*secondsPerDay, u)
	if zoned {
		dst = append(dst, 'Z')
	}
	return dst
}

// ParseDate reads what AppendDate writes, and the same with a trailing " BC", where the year is counted from 1 and has no sign. The
// result is a day number.
func ParseDate(s string) (int64, error) {
	body, bc := strings.CutSuffix(s, " BC")
	neg := strings.HasPrefix(body, "-")
	signed := neg || strings.HasPrefix(body, "+")
	if signed {
		body = body[1:]
	}
	ymd, ok := cutDate(body)
	y, m, d := ymd[0], int(ymd[1]), int(ymd[2])
	if !ok || (bc && (signed || y == 0)) {
		return 0, fmt.Errorf("%q is no date: want YYYY-MM-DD", s)
	}
	if neg {
		y = -y
	}
	if bc {
		y = 1 - y
	}
	days := dayNumber(y, m, d)
	if _, gotM, gotD := civil(days); gotM != m || gotD != d {
		return 0, fmt.Errorf("%q is no date: the month has no such day", s)
	}
	return days, nil
}

// cutDate reads year, month and day, each of a number of digits that is right.
func cutDate(s string) (ymd [3]int64, ok bool) {
	parts := strings.Split(s, "-")
	if len(parts) != 3 || len(parts[0]) < 4 || len(parts[1]) != 2 || len(parts[2]) != 2 || (len(parts[0]) > 4 && parts[0][0] == '0') {
		return ymd, false
	}
	for i, p := range parts {
		n, err := parseDigits(p)
		if err != nil {
			return ymd, false
		}
		ymd[i] = n
	}
	return ymd, ymd[0] <= 6_000_000 && ymd[1] >= 1 && ymd[1] <= 12 && ymd[2] >= 1
}

func parseDigits(s string) (int64, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%q is no number", s)
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", s)
	}
	return v, nil
}

// ParseTimestamp reads a date, T or a space, a time of day, and optionally Z or an offset such as +02, +05:30 or -00:00:15. It
// reports whether there was one. More digits than the unit holds are an error, never cut off.
func ParseTimestamp(s string, u arrow.TimeUnit) (v int64, zoned bool, err error) {
	body, bc := strings.CutSuffix(s, " BC")
	at := strings.IndexAny(body, "T ")
	if at < 0 {
		return 0, false, fmt.Errorf("%q is no timestamp: want YYYY-MM-DDThh:mm:ss", s)
	}
	date := body[:at]
	if bc {
		date += " BC"
	}
	days, err := ParseDate(date)
	if err != nil {
		return 0, false, err
	}
	clock, zone := cutZone(body[at+1:])
	offset, err := parseZone(zone)
	if err != nil {
		return 0, false, fmt.Errorf("%q is no timestamp: %w", s, err)
	}
	tod, err := ParseTime(clock, u)
	if err != nil {
		return 0, false, err
	}
	per, _ := unitsPerSecond(u)
	if days < 0 { // count back from midnight: the start of the earliest day is out of range, a time on it is not
		days, tod = days+1, tod-secondsPerDay*per
	}
	v, ok := addChecked(days, secondsPerDay*per, tod-offset*per)
	if !ok {
		return 0, false, fmt.Errorf("timestamp %q is out of the range of 64-bit %s since 1970", s, u)
	}
	return v, zone != "", nil
}

// addChecked returns a*b+c, and whether it fits.
func addChecked(a, b, c int64) (int64, bool) {
	p := a * b
	if a != 0 && p/a != b {
		return 0, false
	}
	s := p + c
	if (c > 0 && s < p) || (c < 0 && s > p) {
		return 0, false
	}
	return s, true
}

// cutZone splits the zone, if there is one, off a time of day.
func cutZone(s string) (clock, zone string) {
	at := strings.LastIndexAny(s, "Z+-")
	if at < 0 {
		return s, ""
	}
	return s[:at], s[at:]
}

// parseZone returns the offset of Z, +02, +0530, +05:30 or -00:00:15 in seconds east; no zone is 0.
func parseZone(s string) (int64, error) {
	if s == "" || s == "Z" {
		return 0, nil
	}
	parts := strings.Split(s[1:], ":")
	if len(parts) == 1 && len(parts[0]) == 4 {
		parts = []string{parts[0][:2], parts[0][2:]}
	}
	offset, scale := int64(0), int64(3600)
	for _, p := range parts {
		n, err := parseDigits(p)
		if err != nil || len(p) != 2 || scale == 0 {
			return 0, fmt.Errorf("zone %q", s)
		}
		offset += n * scale
		scale /= 60
	}
	if s[0] == '-' {
		offset = -offset
	}
	return offset, nil
}

// ParseTime reads hh:mm:ss with an optional fraction; 24:00:00 is allowed. The result counts the unit since midnight.
func ParseTime(s string, u arrow.TimeUnit) (int64, error) {
	whole, frac, pointed := strings.Cut(s, ".")
	parts := strings.Split(whole, ":")
	if len(parts) != 3 || (pointed && frac == "") || len(parts[0]) != 2 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return 0, fmt.Errorf("%q is no time of day: want hh:mm:ss", s)
	}
	h, errH := parseDigits(parts[0])
	m, errM := parseDigits(parts[1])
	sec, errS := parseDigits(parts[2])
	if errH != nil || errM != nil || errS != nil || m > 59 || sec > 59 || h > 24 || (h == 24 && m+sec > 0) {
		return 0, fmt.Errorf("%q is no time of day: want hh:mm:ss", s)
	}
	per, digits := unitsPerSecond(u)
	f, err := parseFraction(frac, digits)
	if err != nil || (h == 24 && f > 0) {
		return 0, fmt.Errorf("%q does not fit a time in %s", s, u)
	}
	return (h*3600+m*60+sec)*per + f, nil
}

func parseFraction(frac string, digits int) (int64, error) {
	trimmed := strings.TrimRight(frac, "0")
	if trimmed == "" {
		return 0, nil
	}
	if len(trimmed) > digits {
		return 0, fmt.Errorf("%d digits after the point, only %d fit", len(trimmed), digits)
	}
	f, err := parseDigits(trimmed)
	return f * pow10(digits-len(trimmed)), err
}

func pow10(n int) int64 {
	p := int64(1)
	for range n {
		p *= 10
	}
	return p
}

// AppendInterval appends the ISO 8601 form of a duration: P1Y2M-3DT4H5M6.7S. Months, days and time keep their own signs, and
// years and hours only group what belongs together anyway (12 months, 3600 seconds).
func AppendInterval(dst []byte, v IntervalValue) []byte {
	dst = append(dst, 'P')
	part := func(n int64, unit byte) {
		if n != 0 {
			dst = strconv.AppendInt(dst, n, 10)
			dst = append(dst, unit)
		}
	}
	part(int64(v.Months/12), 'Y')
	part(int64(v.Months%12), 'M')
	part(int64(v.Days), 'D')
	if v.Micros == 0 {
		if v.Months == 0 && v.Days == 0 {
			return append(dst, "T0S"...)
		}
		return dst
	}
	dst = append(dst, 'T')
	part(v.Micros/(3600*microsPerSecond), 'H')
	part(v.Micros/(60*microsPerSecond)%60, 'M')
	if rest := v.Micros % (60 * microsPerSecond); rest != 0 {
		if rest < 0 {
			dst = append(dst, '-')
			rest = -rest
		}
		dst = strconv.AppendInt(dst, rest/microsPerSecond, 10)
		dst = appendFraction(dst, rest%microsPerSecond, 6)
		dst = append(dst, 'S')
	}
	return dst
}

// ParseInterval reads what AppendInterval writes (and weeks, W).
func ParseInterval(s string) (IntervalValue, error) {
	bad := fmt.Errorf("%q is no interval: want ISO 8601 such as P1Y2M3DT4H5M6.7S", s)
	rest, ok := strings.CutPrefix(s, "P")
	if !ok || rest == "" || strings.HasSuffix(rest, "T") {
		return IntervalValue{}, bad
	}
	var months, days, micros int64
	clock := false
	for rest != "" {
		if rest[0] == 'T' && !clock {
			clock, rest = true, rest[1:]
			continue
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return r >= 'A' && r <= 'Z' })
		if end < 1 {
			return IntervalValue{}, bad
		}
		num, unit := rest[:end], rest[end]
		rest = rest[end+1:]
		target, factor := intervalPart(unit, clock, &months, &days, &micros)
		if target == nil {
			return IntervalValue{}, bad
		}
		n, err := parseIntervalNumber(num, factor, clock && unit == 'S')
		if err != nil {
			return IntervalValue{}, bad
		}
		sum, fits := addChecked(*target, 1, n)
		if !fits {
			return IntervalValue{}, bad
		}
		*target = sum
	}
	if months != int64(int32(months)) || days != int64(int32(days)) {
		return IntervalValue{}, fmt.Errorf("interval %q has more months or days than 32 bits hold", s)
	}
	return IntervalValue{Months: int32(months), Days: int32(days), Micros: micros}, nil
}

func intervalPart(unit byte, clock bool, months, days, micros *int64) (target *int64, factor int64) {
	switch {
	case !clock && unit == 'Y':
		return months, 12
	case !clock && unit == 'M':
		return months, 1
	case !clock && unit == 'W':
		return days, 7
	case !clock && unit == 'D':
		return days, 1
	case clock && unit == 'H':
		return micros, 3600 * microsPerSecond
	case clock && unit == 'M':
		return micros, 60 * microsPerSecond
	case clock && unit == 'S':
		return micros, microsPerSecond
	}
	return nil, 0
}

func parseIntervalNumber(s string, factor int64, fraction bool) (int64, error) {
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	whole, frac, hasFrac := strings.Cut(s, ".")
	if hasFrac && !fraction {
		return 0, strconv.ErrSyntax
	}
	n, err := parseDigits(whole)
	if err != nil {
		return 0, err
	}
	f, err := parseFraction(frac, 6)
	if err != nil {
		return 0, err
	}
	if neg {
		n, f = -n, -f
	}
	v, ok := addChecked(n, factor, f)
	if !ok {
		return 0, strconv.ErrRange
	}
	return v, nil
}

// isInfinite reports which infinity a date or timestamp with infinities stands for: 1, -1 or 0.
func isInfinite(v, lowest, highest int64) int {
	switch v {
	case highest:
		return 1
	case lowest:
		return -1
	}
	return 0
}

// InfiniteDate reports which infinity a day number of InfiniteDateType stands for: 1, -1, or 0 for neither.
func InfiniteDate(days int32) int { return isInfinite(int64(days), math.MinInt32, math.MaxInt32) }

// InfiniteTimestamp reports which infinity a value of InfiniteTimestampType stands for: 1, -1, or 0 for neither.
func InfiniteTimestamp(v int64) int { return isInfinite(v, math.MinInt64, math.MaxInt64) }
