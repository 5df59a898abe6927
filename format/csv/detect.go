package csv

import (
	"bytes"
)

// detectRows is how many rows Detect looks at.
const detectRows = 200

// Detect finds the delimiter among comma, semicolon, tab and bar by the beginning of an input. It is found only when it is the only
// one that cuts all rows into the same number of fields, two or more; whole says that sample is the whole input. The rest of the
// dialect is taken as it is.
func Detect(sample []byte, whole bool, d Dialect) (delimiter string, ok bool) {
	for _, c := range []string{",", ";", "\t", "|"} {
		d.Delimiter = c
		if !cutsEvenly(sample, whole, d) {
			continue
		}
		if delimiter != "" {
			return "", false
		}
		delimiter = c
	}
	return delimiter, delimiter != ""
}

func cutsEvenly(sample []byte, whole bool, d Dialect) bool {
	checked, err := d.check()
	if err != nil {
		return false
	}
	s := newScanner(bytes.NewReader(sample), checked)
	s.SkipBOM()
	fields := 0
	for range detectRows {
		ok, err := s.next()
		if !ok || (s.open && !whole) {
			return fields >= 2 && (err == nil || !whole)
		}
		if s.problem != "" || (fields > 0 && len(s.fields) != fields) {
			return false
		}
		fields = len(s.fields)
		s.consume()
	}
	return fields >= 2
}
