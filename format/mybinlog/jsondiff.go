package mybinlog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Changes of a document that the server writes instead of the whole of it.
const (
	diffReplace = 0
	diffInsert  = 1
	diffRemove  = 2
)

// jsonNode is a value of a document that is changed.
type jsonNode struct {
	kind   byte
	scalar []byte // of what is neither object nor array
	keys   [][]byte
	values []*jsonNode
}

// AppendPatchedJSON appends the text of a document of MySQL's binary JSON after the changes in diffs, as an update with
// binlog_row_value_options=PARTIAL_JSON has them.
func AppendPatchedJSON(dst, doc, diffs []byte) ([]byte, error) {
	if len(doc) == 0 {
		return nil, errJSON
	}
	root, err := parseJSONNode(doc[0], doc[1:], 0)
	if err != nil {
		return nil, err
	}
	r := reader{b: diffs}
	for len(r.b) > 0 {
		op, path := r.uint(1), r.text()
		var value *jsonNode
		if op != diffRemove {
			v := r.text()
			if len(v) == 0 {
				return nil, errJSON
			}
			if value, err = parseJSONNode(v[0], v[1:], 0); err != nil {
				return nil, err
			}
		}
		if r.bad {
			return nil, errJSON
		}
		if root, err = root.patch(op, path, value); err != nil {
			return nil, err
		}
	}
	return root.append(dst)
}

func parseJSONNode(kind byte, v []byte, depth int) (*jsonNode, error) {
	n := &jsonNode{kind: kind}
	if kind > jsonLargeArray {
		n.scalar = v
		return n, nil
	}
	if depth > maxJSONDepth {
		return nil, errJSON
	}
	c, err := parseContainer(kind, v)
	if err != nil {
		return nil, err
	}
	for i := range c.n {
		if c.object {
			key, err := c.key(i)
			if err != nil {
				return nil, err
			}
			n.keys = append(n.keys, key)
		}
		kind, v, err := c.value(i)
		if err != nil {
			return nil, err
		}
		child, err := parseJSONNode(kind, v, depth+1)
		if err != nil {
			return nil, err
		}
		n.values = append(n.values, child)
	}
	return n, nil
}

func (n *jsonNode) object() bool { return n.kind == jsonSmallObject || n.kind == jsonLargeObject }
func (n *jsonNode) array() bool  { return n.kind == jsonSmallArray || n.kind == jsonLargeArray }

func (n *jsonNode) append(dst []byte) (_ []byte, err error) {
	begin, end := byte('['), byte(']')
	switch {
	case n.object():
		begin, end = '{', '}'
	case !n.array():
		return appendJSONValue(dst, n.kind, n.scalar, 0)
	}
	dst = append(dst, begin)
	for i, v := range n.values {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if n.object() {
			dst = append(appendQuoted(dst, n.keys[i]), ": "...)
		}
		if dst, err = v.append(dst); err != nil {
			return nil, err
		}
	}
	return append(dst, end), nil
}

// patch applies one change, and returns the document.
func (n *jsonNode) patch(op uint64, path []byte, value *jsonNode) (*jsonNode, error) {
	legs, err := parsePath(path)
	if err != nil {
		return nil, err
	}
	bad := fmt.Errorf("a change of a JSON document at %q does not fit the document", path)
	if len(legs) == 0 {
		if op != diffReplace {
			return nil, bad
		}
		return value, nil
	}
	at := n
	for i, leg := range legs {
		where, found := at.find(leg)
		switch last := i == len(legs)-1; {
		case !last && !found, where < 0, last && op != diffInsert && !found:
			return nil, bad
		case !last:
			at = at.values[where]
		case op == diffReplace:
			at.values[where] = value
		case op == diffRemove:
			at.values = slices.Delete(at.values, where, where+1)
			if at.object() {
				at.keys = slices.Delete(at.keys, where, where+1)
			}
		case op != diffInsert, found && leg.key != nil:
			return nil, bad
		default:
			at.values = slices.Insert(at.values, where, value)
			if leg.key != nil {
				at.keys = slices.Insert(at.keys, where, leg.key)
			}
		}
	}
	return n, nil
}

// find returns where an element is, or would be; -1: nowhere.
func (n *jsonNode) find(leg pathLeg) (where int, found bool) {
	switch {
	case leg.key != nil && n.object():
		return slices.BinarySearchFunc(n.keys, leg.key, func(a, b []byte) int { // short keys first, as the server has them
			return cmp.Or(cmp.Compare(len(a), len(b)), bytes.Compare(a, b))
		})
	case leg.key == nil && n.array():
		return min(leg.index, len(n.values)), leg.index < len(n.values)
	}
	return -1, false
}

// pathLeg is one step of a path: to a key, or to an element of an array.
type pathLeg struct {
	key   []byte
	index int
}

// parsePath reads a path such as $.a."b c"[3].
func parsePath(path []byte) (legs []pathLeg, err error) {
	bad := fmt.Errorf("%q is no path of a JSON document", path)
	rest, ok := bytes.CutPrefix(path, []byte("$"))
	if !ok {
		return nil, bad
	}
	for len(rest) > 0 {
		switch {
		case rest[0] == '[':
			end := bytes.IndexByte(rest, ']')
			if end < 0 {
				return nil, bad
			}
			i, err := strconv.ParseUint(string(rest[1:end]), 10, 31)
			if err != nil {
				return nil, bad
			}
			legs, rest = append(legs, pathLeg{index: int(i)}), rest[end+1:]
		case rest[0] == '.' && len(rest) > 1 && rest[1] == '"':
			end := 2
			for end < len(rest) && rest[end] != '"' {
				if rest[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(rest) {
				return nil, bad
			}
			var key string
			if err := json.Unmarshal(rest[1:end+1], &key); err != nil {
				return nil, bad
			}
			legs, rest = append(legs, pathLeg{key: []byte(key)}), rest[end+1:]
		case rest[0] == '.':
			end := 1
			for end < len(rest) && rest[end] != '.' && rest[end] != '[' {
				end++
			}
			legs, rest = append(legs, pathLeg{key: rest[1:end:end]}), rest[end:]
		default:
			return nil, bad
		}
	}
	return legs, nil
}
