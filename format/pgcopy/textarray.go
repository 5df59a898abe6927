package pgcopy

import (
	"bytes"
)

// arrayText is what is known of an array while its text form is read.
type arrayText struct {
	rest  []byte
	depth int
	rank  int          // 0: no element was seen yet
	count [maxDims]int // items so far at each depth
	size  [maxDims]int // of each dimension; -1: not known yet
}

// appendText decodes one array as array_out prints it: bounds where one of them is not 1, then nested braces.
func (a *arrayColumn) appendText(v []byte) error {
	t := arrayText{rest: v}
	for i := range t.size {
		t.size[i] = -1
	}
	at := len(a.dims)
	bounds, ok := a.boundsText(&t)
	if !ok || len(t.rest) < 2 || t.rest[0] != '{' {
		return textError(v, "arrays")
	}
	if string(t.rest) == "{}" && bounds == 0 {
		a.end()
		return nil
	}
	for more := true; more; {
		var err error
		if more, err = a.itemText(&t); err != nil {
			return err
		}
	}
	if len(t.rest) > 0 || (bounds > 0 && bounds != t.rank) {
		return textError(v, "arrays")
	}
	for i := range t.rank {
		if bounds == 0 {
			a.dims = append(a.dims, int32(t.size[i]))
			a.lower = append(a.lower, 1)
		} else if int(a.dims[at+i]) != t.size[i] {
			return errShape
		}
	}
	a.end()
	return nil
}

// boundsText reads [0:1][-1:3]= and returns the number of dimensions; 0: there are no bounds.
func (a *arrayColumn) boundsText(t *arrayText) (n int, ok bool) {
	for ; len(t.rest) > 0 && t.rest[0] == '['; n++ {
		colon, end := bytes.IndexByte(t.rest, ':'), bytes.IndexByte(t.rest, ']')
		if colon < 0 || end < colon || n == maxDims {
			return 0, false
		}
		lower, okL := parseInt(t.rest[1:colon])
		upper, okU := parseInt(t.rest[colon+1 : end])
		size := upper - lower + 1
		if !okL || !okU || lower != int64(int32(lower)) || upper != int64(int32(upper)) || size < 1 || size != int64(int32(size)) {
			return 0, false
		}
		a.dims = append(a.dims, int32(size))
		a.lower = append(a.lower, int32(lower))
		t.rest = t.rest[end+1:]
	}
	if n == 0 {
		return 0, true
	}
	if len(t.rest) == 0 || t.rest[0] != '=' {
		return 0, false
	}
	t.rest = t.rest[1:]
	return n, true
}

// itemText reads opening braces, an element, and what follows it up to where the next item begins. It returns false at the array's end.
func (a *arrayColumn) itemText(t *arrayText) (more bool, err error) {
	for len(t.rest) > 0 && t.rest[0] == '{' {
		if t.depth == maxDims || t.depth == t.rank && t.rank > 0 {
			return false, errShape
		}
		t.count[t.depth] = 0
		t.depth++
		t.rest = t.rest[1:]
	}
	if t.rank == 0 {
		t.rank = t.depth
	}
	if t.depth != t.rank {
		return false, errShape
	}
	if err := a.elementText(t); err != nil {
		return false, err
	}
	t.count[t.depth-1]++
	for len(t.rest) > 0 && t.rest[0] == '}' {
		t.depth--
		switch n := t.count[t.depth]; {
		case t.size[t.depth] < 0:
			t.size[t.depth] = n
		case t.size[t.depth] != n:
			return false, errShape
		}
		t.rest = t.rest[1:]
		if t.depth == 0 {
			return false, nil
		}
		t.count[t.depth-1]++
	}
	if len(t.rest) < 2 || t.rest[0] != a.delim {
		return false, errShape
	}
	t.rest = t.rest[1:]
	return true, nil
}

// elementText reads one element: bare, NULL, or in quotes with backslashes before quotes and backslashes.
func (a *arrayColumn) elementText(t *arrayText) error {
	if len(t.rest) > 0 && t.rest[0] == '"' {
		v, ok := a.quoted(t)
		if !ok {
			return errShape
		}
		return a.elem.appendText(v)
	}
	n := 0
	for n < len(t.rest) && t.rest[n] != a.delim && t.rest[n] != '}' {
		if t.rest[n] == '"' || t.rest[n] == '\\' || t.rest[n] == '{' {
			return errShape
		}
		n++
	}
	v := t.rest[:n]
	t.rest = t.rest[n:]
	switch {
	case n == 0:
		return errShape
	case string(v) == "NULL":
		a.elem.appendNull()
		return nil
	}
	return a.elem.appendText(v)
}

func (a *arrayColumn) quoted(t *arrayText) (v []byte, ok bool) {
	in := t.rest[1:]
	plain, rest, closed := bytes.Cut(in, []byte{'"'})
	if !closed {
		return nil, false
	}
	if bytes.IndexByte(plain, '\\') < 0 {
		t.rest = rest
		return plain, true
	}
	a.unquoted = a.unquoted[:0]
	for i := 0; i < len(in); i++ {
		switch in[i] {
		case '"':
			t.rest = in[i+1:]
			return a.unquoted, true
		case '\\':
			if i++; i == len(in) {
				return nil, false
			}
		}
		a.unquoted = append(a.unquoted, in[i])
	}
	return nil, false
}
