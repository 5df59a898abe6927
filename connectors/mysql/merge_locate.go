package mysql

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// KeyOf implements connector.Merger: an array of the values, as bounds have them.
func (*Source) KeyOf(schema *record.Schema, rows arrow.RecordBatch, i int) json.RawMessage {
	b := []byte{'['}
	for n, at := range schema.Key {
		if n > 0 {
			b = append(b, ',')
		}
		arr := rows.Column(at)
		if arr.IsNull(i) {
			b = append(b, "null"...)
			continue
		}
		c := keyColumnOf(schema.Columns.Field(at))
		b = record.AppendJSONString(b, keyText(&c, arr, i))
	}
	return append(b, ']')
}

// keyColumnOf is a column of a key as its field tells: by the type that the server calls it.
func keyColumnOf(f arrow.Field) sourceColumn {
	native := record.NativeOf(f).Type
	c := declaredColumn(f.Name, native)
	if _, set, ok := strings.Cut(native, " CHARACTER SET "); ok {
		c.charset, c.collation, _ = strings.Cut(set, " COLLATE ")
	}
	c.plain()
	return c
}

// Locate implements connector.Merger. Keys whose order does not depend on a collation are compared here, all others by the server.
func (s *Source) Locate(
	ctx context.Context, schema *record.Schema, rows arrow.RecordBatch, bounds []json.RawMessage,
) ([]int, error) {
	out := make([]int, rows.NumRows())
	if len(bounds) == 0 || len(out) == 0 {
		return out, nil
	}
	key := make([]sourceColumn, len(schema.Key))
	local := true
	for n, at := range schema.Key {
		key[n] = keyColumnOf(schema.Columns.Field(at))
		local = local && ordersHere(&key[n], schema.Columns.Field(at).Type)
	}
	ends := make([]bound, len(bounds))
	var err error
	for i, raw := range bounds {
		if ends[i], err = decodeBound(raw); err != nil {
			return nil, err
		}
		if len(ends[i].Key) != len(key) {
			return nil, &connector.Error{
				Class: connector.ClassTransient, Code: "mysql.key_changed", Doing: "looking for the chunks of keys",
				Dataset: schema.Dataset, Err: errors.New("the key of the table is another one than its snapshot was begun with"),
				Hint: "take the snapshot of the table again",
			}
		}
	}
	keys := make([][]string, len(out)) // nil: a part of it is NULL; such belong to the first chunk, see between
	for i := range out {
		keys[i] = keyTexts(key, schema, rows, i)
	}
	if local {
		return locateHere(key, keys, ends)
	}
	if err := s.locateThere(ctx, key, keys, ends, out); err != nil {
		return nil, s.cfg.wrap("looking for the chunks of keys of "+schema.Dataset, err)
	}
	return out, nil
}

func keyTexts(key []sourceColumn, schema *record.Schema, rows arrow.RecordBatch, i int) []string {
	out := make([]string, len(key))
	for n, at := range schema.Key {
		arr := rows.Column(at)
		if arr.IsNull(i) {
			return nil
		}
		out[n] = keyText(&key[n], arr, i)
	}
	return out
}

// ordersHere reports whether the values of a column are ordered here as by the server.
func ordersHere(c *sourceColumn, dt arrow.DataType) bool {
	switch c.form { //nolint:exhaustive // the server orders all others
	case formInt, formYear:
		return true
	case formBytes, formFixed:
		return dt.ID() == arrow.BINARY
	}
	return false
}

// locateHere looks for each key among the bounds.
func locateHere(key []sourceColumn, keys [][]string, ends []bound) ([]int, error) {
	out := make([]int, len(keys))
	for i, k := range keys {
		if k == nil {
			continue
		}
		out[i] = sort.Search(len(ends), func(j int) bool { // the first bound that the key is not behind
			for n := range key {
				if c := compareKeyTexts(&key[n], k[n], ends[j].Key[n]); c != 0 {
					return c < 0
				}
			}
			return true
		})
	}
	return out, nil
}

// compareKeyTexts orders two values of a column of those of ordersHere: whole numbers, or bytes as hexadecimal digits.
func compareKeyTexts(c *sourceColumn, a, b string) int {
	if c.form != formInt && c.form != formYear {
		return bytes.Compare([]byte(a), []byte(b))
	}
	x, negA := strings.CutPrefix(a, "-")
	y, negB := strings.CutPrefix(b, "-")
	if negA != negB {
		if negA {
			return -1
		}
		return 1
	}
	order := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
	if negA {
		return -order
	}
	return order
}

// locateAtOnce is how many keys one question is about.
const locateAtOnce = 500

// locateThere lets the server count, for each key, the bounds that it lies behind: by the order that the chunks are cut in.
func (s *Source) locateThere(ctx context.Context, key []sourceColumn, keys [][]string, ends []bound, out []int) error {
	t := &sourceTable{key: key}
	for start := 0; start < len(keys); start += locateAtOnce {
		part := keys[start:min(start+locateAtOnce, len(keys))]
		var exprs []string
		var at []int
		for i, k := range part {
			if k == nil {
				continue
			}
			sql, err := behindSQL(t, k, ends)
			if err != nil {
				return err
			}
			exprs, at = append(exprs, sql), append(at, start+i)
		}
		if len(exprs) == 0 {
			continue
		}
		s.env.Roundtrip("locate")
		db, _, err := s.server(ctx)
		if err != nil {
			return err
		}
		rows, err := ask(ctx, db, "SELECT "+strings.Join(exprs, ", "))
		if err != nil {
			return err
		}
		if len(rows) != 1 || len(rows[0]) != len(at) {
			return fmt.Errorf("the server located keys, and not the %d that were asked for", len(at))
		}
		for i, v := range rows[0] {
			out[at[i]] = int(toInt(v))
		}
	}
	return nil
}

// behindSQL counts the bounds that a key lies behind. They are ascending, so that it is enough to look for the first one that it does not.
func behindSQL(t *sourceTable, key []string, ends []bound) (string, error) {
	mine, err := t.constants(key)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("CASE")
	for j, e := range ends {
		theirs, err := t.constants(e.Key)
		if err != nil {
			return "", err
		}
		last := len(mine) - 1
		not := fmt.Sprintf("%s <= %s", mine[last], theirs[last])
		for n := last - 1; n >= 0; n-- {
			not = fmt.Sprintf("(%[1]s < %[2]s OR (%[1]s = %[2]s AND %[3]s))", mine[n], theirs[n], not)
		}
		fmt.Fprintf(&b, " WHEN %s THEN %d", not, j)
	}
	fmt.Fprintf(&b, " ELSE %d END", len(ends))
	return b.String(), nil
}

// constants are the values of a key as SQL that is compared as the columns are: beside a column a text becomes a date, alone it does not.
func (t *sourceTable) constants(values []string) ([]string, error) {
	out, err := t.keyLiterals(values)
	if err != nil {
		return nil, err
	}
	for i := range out {
		as := ""
		switch c := &t.key[i]; c.form { //nolint:exhaustive // all others are what they are
		case formDate:
			as = "DATE"
		case formDateTime, formTimestamp:
			as = "DATETIME(6)"
		case formTime:
			as = "TIME(6)"
		case formUUID, formInet:
			as = c.data
		}
		if as != "" {
			out[i] = "CAST(" + out[i] + " AS " + as + ")"
		}
	}
	return out, nil
}
