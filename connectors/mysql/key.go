package mysql

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// bound is one end of a chunk: a persisted format.
type bound struct {
	Key []string `json:"key"` // the key's values, see keyText
}

func decodeBound(raw json.RawMessage) (bound, error) {
	var b bound
	if raw == nil {
		return b, nil
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return b, fmt.Errorf("the end %s of a chunk: %w", raw, err)
	}
	return b, nil
}

func (b bound) encode() json.RawMessage {
	doc, err := json.Marshal(b)
	if err != nil {
		panic(fmt.Sprintf("mysql: encoding a bound: %v", err)) // strings always marshal
	}
	return doc
}

// keyZero reads every date of a key, also those that no calendar has: a chunk may end there.
func keyZero(c sourceColumn) (zero string, dt arrow.DataType) {
	if c.dated() {
		return zeroText, arrow.BinaryTypes.String
	}
	return c.zero, c.arrow
}

// keyText is the value i of a key's column in the form of bounds and of record.Chunk.Keys: numbers in digits, bytes in hexadecimal digits,
// dates as the server prints them in UTC, labels of a set with commas between, all else in its canonical text.
func keyText(c *sourceColumn, arr arrow.Array, i int) string {
	switch c.form { //nolint:exhaustive // the canonical text of all others will do
	case formBytes, formFixed, formGeometry:
		if b, ok := arr.(*array.Binary); ok {
			return hex.EncodeToString(b.Value(i))
		}
	case formTime:
		if d, ok := arr.(*array.Duration); ok {
			return clockText(int64(d.Value(i)))
		}
	case formDate, formDateTime, formTimestamp:
		text := string(record.AppendText(nil, arr, i))
		text = strings.TrimSuffix(strings.Replace(text, "T", " ", 1), "Z")
		return trimFraction(text)
	case formSet:
		if l, ok := arr.(*array.List); ok {
			from, to := l.ValueOffsets(i)
			labels := make([]string, 0, to-from)
			for at := from; at < to; at++ {
				labels = append(labels, l.ListValues().(*array.String).Value(int(at))) //nolint:forcetypeassert // by construction
			}
			return strings.Join(labels, ",")
		}
	}
	return string(record.AppendText(nil, arr, i))
}

// trimFraction leaves out what is zero at the end of a fraction.
func trimFraction(text string) string {
	if !strings.Contains(text, ".") {
		return text
	}
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// clockText is a time as the server reads it.
func clockText(micros int64) string {
	sign := ""
	if micros < 0 {
		sign, micros = "-", -micros
	}
	s := micros / 1e6
	return trimFraction(fmt.Sprintf("%s%02d:%02d:%02d.%06d", sign, s/3600, s/60%60, s%60, micros%1e6))
}

// keyLiteral is a value of a key's column as SQL that the server compares with the column by the column's own order.
func keyLiteral(c *sourceColumn, text string) (string, error) {
	bad := func() (string, error) { return "", fmt.Errorf("column %q: %q is no value of %s", c.name, text, c.sql) }
	switch c.form { //nolint:exhaustive // the server reads the text of all others as the column's type
	case formInt, formYear, formDecimal:
		if !isNumber(text) {
			return bad()
		}
		return text, nil
	case formFloat, formDouble:
		width := 64
		if c.form == formFloat {
			width = 32
		}
		v, err := strconv.ParseFloat(text, width)
		if err != nil {
			return bad()
		}
		return strconv.FormatFloat(v, 'e', -1, 64), nil
	case formBits:
		n, ok := new(big.Int).SetString(text, 2)
		if !ok {
			return bad()
		}
		return n.String(), nil
	case formBool:
		if text == "true" {
			return "1", nil
		}
		return "0", nil
	case formBytes, formFixed, formGeometry:
		if _, err := hex.DecodeString(text); err != nil {
			return bad()
		}
		return "X'" + text + "'", nil
	case formEnum:
		return enumLiteral(c, text)
	case formSet:
		mask, err := setMaskOf(c, text)
		return strconv.FormatUint(mask, 10), err
	case formText, formJSON:
		return textLiteral(c, text), nil
	}
	return literal(text), nil // dates, times, UUIDs and addresses: the server reads them as the column's type
}

// textLiteral is a text in the character set and the collation of its column.
func textLiteral(c *sourceColumn, text string) string {
	s := fmt.Sprintf("_utf8mb4 X'%X'", text)
	if c.charset != "" && c.charset != "utf8mb4" {
		s = fmt.Sprintf("CONVERT(%s USING %s)", s, c.charset)
	}
	if c.collation != "" {
		s += " COLLATE " + c.collation
	}
	return s
}

// enumLiteral is the number of a label: the server orders by it.
func enumLiteral(c *sourceColumn, label string) (string, error) {
	if label == "" && !slices.Contains(c.labels, "") {
		return "0", nil
	}
	at := slices.Index(c.labels, label)
	if at < 0 {
		return "", fmt.Errorf("column %q has no label %q any more", c.name, label)
	}
	return strconv.Itoa(at + 1), nil
}

// setMaskOf is the number of a set: the server orders by it.
func setMaskOf(c *sourceColumn, labels string) (uint64, error) {
	mask := uint64(0)
	for label := range strings.SplitSeq(labels, ",") {
		at := slices.Index(c.labels, label)
		switch {
		case at >= 0:
			mask |= 1 << at
		case labels != "":
			return 0, fmt.Errorf("column %q has no label %q any more", c.name, label)
		}
	}
	return mask, nil
}

func isNumber(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && digits != "." && strings.Trim(digits, "0123456789.") == "" && strings.Count(digits, ".") <= 1
}

// keyList is the columns of the key.
func (t *sourceTable) keyList() string {
	names := make([]string, len(t.key))
	for i, k := range t.key {
		names[i] = ident(k.name)
	}
	return strings.Join(names, ", ")
}

// keyLiterals are the values of a bound as SQL.
func (t *sourceTable) keyLiterals(values []string) ([]string, error) {
	if len(values) != len(t.key) || len(values) == 0 {
		return nil, &connector.Error{
			Class: connector.ClassTransient, Code: "mysql.key_changed", Doing: "reading from MySQL", Dataset: t.dataset,
			Err:  fmt.Errorf("a key has %d values, the key of the table has %d columns", len(values), len(t.key)),
			Hint: "take the snapshot of the table again",
		}
	}
	out := make([]string, len(values))
	var errs []error
	for i, v := range values {
		var err error
		out[i], err = keyLiteral(&t.key[i], v)
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// compare is a comparison of the key with values: > or <=. It is written out so that the server finds the range in the index, which it does
// not for rows of several columns.
func (t *sourceTable) compare(operator string, values []string) (string, error) {
	lits, err := t.keyLiterals(values)
	if err != nil {
		return "", err
	}
	return compareSQL(t.key, operator, lits), nil
}

// compareSQL compares columns with literals, first by the first one: > or <=.
func compareSQL(cols []sourceColumn, operator string, lits []string) string {
	last := len(cols) - 1
	strict := operator[:1]
	sql := ident(cols[last].name) + " " + operator + " " + lits[last]
	for i := last - 1; i >= 0; i-- {
		name := ident(cols[i].name)
		sql = fmt.Sprintf("(%s %s %s OR (%s = %s AND %s))", name, strict, lits[i], name, lits[i], sql)
	}
	return "(" + sql + ")"
}

// nullSQL is the condition that some part of the key is NULL.
func (t *sourceTable) nullSQL() string {
	some := make([]string, len(t.key))
	for i, k := range t.key {
		some[i] = ident(k.name) + " IS NULL"
	}
	return "(" + strings.Join(some, " OR ") + ")"
}

// between is the range of a chunk: behind from, up to and including to. NULLs belong to the first chunk, whatever the server's order.
func (t *sourceTable) between(rawFrom, rawTo json.RawMessage) ([]string, error) {
	from, errF := decodeBound(rawFrom)
	to, errT := decodeBound(rawTo)
	if err := errors.Join(errF, errT); err != nil {
		return nil, err
	}
	var where []string
	for _, b := range []struct {
		operator string
		key      []string
	}{{">", from.Key}, {"<=", to.Key}} {
		if b.key == nil {
			continue
		}
		sql, err := t.compare(b.operator, b.key)
		if err != nil {
			return nil, err
		}
		where = append(where, sql)
	}
	if !t.nulls || len(where) == 0 {
		return where, nil
	}
	where = append(where, "NOT "+t.nullSQL())
	if from.Key == nil {
		where = []string{"((" + strings.Join(where, " AND ") + ") OR " + t.nullSQL() + ")"}
	}
	return where, nil
}

// keysIn is the condition for exactly the rows with these keys. Each is an array of values, as keyText makes them, or null.
func (t *sourceTable) keysIn(keys []json.RawMessage) (string, error) {
	some := make([]string, len(keys))
	for i, raw := range keys {
		var values []*string
		if err := json.Unmarshal(raw, &values); err != nil {
			return "", fmt.Errorf("the key %s: %w", raw, err)
		}
		if len(values) != len(t.key) {
			return "", fmt.Errorf("the key %s has %d values, the key of %s has %d columns", raw, len(values), t.dataset, len(t.key))
		}
		same := make([]string, len(values))
		for j, v := range values {
			if v == nil {
				same[j] = ident(t.key[j].name) + " IS NULL"
				continue
			}
			lit, err := keyLiteral(&t.key[j], *v)
			if err != nil {
				return "", err
			}
			same[j] = ident(t.key[j].name) + " = " + lit
		}
		some[i] = "(" + strings.Join(same, " AND ") + ")"
	}
	return "(" + strings.Join(some, " OR ") + ")", nil
}
