package literal

const (
	dateWidth     = len("2006-01-02")
	clockWidth    = len("15:04:05")
	microDigits   = 6
	micros        = 1_000_000
	secondsPerDay = 86_400
)

// Date reads YYYY-MM-DD of the years 0001 to 9999 as days since 1970-01-01.
func Date(b []byte) (days int32, ok bool) {
	if len(b) != dateWidth || b[4] != '-' || b[7] != '-' {
		return 0, false
	}
	year, okY := TwoDigits(b[0:2])
	low, okL := TwoDigits(b[2:4])
	month, okM := TwoDigits(b[5:7])
	day, okD := TwoDigits(b[8:10])
	year = year*100 + low
	if !okY || !okL || !okM || !okD || year == 0 || month < 1 || month > 12 || day < 1 || day > MonthDays(year, month) {
		return 0, false
	}
	return dayNumber(year, month, day), true
}

// TwoDigits reads the two digits that b begins with; b must have that many bytes.
func TwoDigits(b []byte) (v int, ok bool) {
	hi, lo := b[0]-'0', b[1]-'0'
	return int(hi)*10 + int(lo), hi <= 9 && lo <= 9
}

// MonthDays is how many days a month has in the proleptic Gregorian calendar; year 0 is 1 BC.
func MonthDays(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// dayNumber counts days since 1970-01-01 in the Gregorian calendar; year is positive. Source: days-from-civil on 400-year eras.
func dayNumber(year, month, day int) int32 {
	if month <= 2 {
		year--
	}
	era := year / 400
	yoe := year - era*400
	mp := (month + 9) % 12
	doy := (153*mp+2)/5 + day - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return int32(era*146097 + doe - 719468)
}

// Timestamp reads YYYY-MM-DD, T or a space, hh:mm:ss, optionally a fraction of at most 6 digits, and optionally a zone: Z, +hh,
// +hhmm or +hh:mm. The result is in microseconds since 1970, in UTC where zoned.
func Timestamp(b []byte) (v int64, zoned, ok bool) {
	if len(b) < dateWidth+1+clockWidth || (b[dateWidth] != 'T' && b[dateWidth] != ' ') {
		return 0, false, false
	}
	days, ok := Date(b[:dateWidth])
	if !ok {
		return 0, false, false
	}
	seconds, ok := clock(b[dateWidth+1 : dateWidth+1+clockWidth])
	if !ok {
		return 0, false, false
	}
	rest := b[dateWidth+1+clockWidth:]
	fraction, n, ok := micro(rest)
	if !ok {
		return 0, false, false
	}
	offset, zoned, ok := zone(rest[n:])
	v = (int64(days)*secondsPerDay+int64(seconds-offset))*micros + fraction
	return v, zoned, ok
}

func clock(b []byte) (seconds int, ok bool) {
	if b[2] != ':' || b[5] != ':' {
		return 0, false
	}
	h, okH := TwoDigits(b[0:2])
	m, okM := TwoDigits(b[3:5])
	s, okS := TwoDigits(b[6:8])
	return h*3600 + m*60 + s, okH && okM && okS && h < 24 && m < 60 && s < 60
}

// micro reads a fraction with its point; n is how many bytes it takes: 0 where there is none.
func micro(b []byte) (v int64, n int, ok bool) {
	if len(b) == 0 || b[0] != '.' {
		return 0, 0, true
	}
	n = 1
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		v = v*10 + int64(b[n]-'0')
		if n++; n > microDigits+1 {
			return 0, 0, false
		}
	}
	for range microDigits + 1 - n {
		v *= 10
	}
	return v, n, n > 1
}

// zone reads an offset in seconds east of UTC; nothing is no zone.
func zone(b []byte) (offset int, zoned, ok bool) {
	switch {
	case len(b) == 0:
		return 0, false, true
	case len(b) == 1 && b[0] == 'Z':
		return 0, true, true
	case len(b) < 3 || (b[0] != '+' && b[0] != '-'):
		return 0, false, false
	}
	h, ok := TwoDigits(b[1:3])
	m := 0
	switch {
	case len(b) == 5:
		m, zoned = TwoDigits(b[3:5])
		ok = ok && zoned
	case len(b) == 6 && b[3] == ':':
		m, zoned = TwoDigits(b[4:6])
		ok = ok && zoned
	case len(b) != 3:
		ok = false
	}
	offset = h*3600 + m*60
	if b[0] == '-' {
		offset = -offset
	}
	return offset, true, ok && h < 24 && m < 60
}

// IsCanonicalTimestamp reports whether a timestamp that Timestamp accepted is printed again as exactly these bytes: with T, Z or no
// zone, and a fraction without trailing zeros.
func IsCanonicalTimestamp(b []byte) bool {
	end := len(b)
	if b[end-1] == 'Z' {
		end--
	}
	fraction := end > dateWidth+1+clockWidth
	for _, c := range b[dateWidth+1 : end] {
		if c != '.' && c != ':' && (c < '0' || c > '9') {
			return false
		}
	}
	return b[dateWidth] == 'T' && (!fraction || b[end-1] != '0')
}
