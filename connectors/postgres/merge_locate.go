package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// rowKey is one row's key: the form of record.Chunk.Keys, and of a bound where no part is NULL.
type rowKey struct {
	Key []*string `json:"key"`
	Of  string    `json:"of,omitempty"`
}

// keyIDs names the columns of a key, so that values of one key are never taken for those of another; empty: they have no ids.
func keyIDs(key []sourceColumn) string {
	ids := make([]string, len(key))
	for i, k := range key {
		if k.id == "" {
			return ""
		}
		ids[i] = k.id
	}
	return strings.Join(ids, ",")
}

func schemaKeyIDs(s *record.Schema) string {
	key := make([]sourceColumn, len(s.Key))
	for i, c := range s.Key {
		key[i].id = record.IDOf(s.Columns.Field(c))
	}
	return keyIDs(key)
}

// KeyOf implements connector.Merger. Keys that the server takes for equal although they print differently have one form where that can be
// told without it: numbers, and intervals. Of citext and of texts under a collation that is not deterministic it can't.
func (*Source) KeyOf(s *record.Schema, rows arrow.RecordBatch, i int) json.RawMessage {
	k := rowKey{Key: make([]*string, len(s.Key)), Of: schemaKeyIDs(s)}
	for n, c := range s.Key {
		if text, ok := keyText(rows.Column(c), i); ok {
			k.Key[n] = &text
		}
	}
	doc, err := json.Marshal(k)
	if err != nil {
		panic(fmt.Sprintf("postgres: encoding a key: %v", err)) // strings always marshal
	}
	return doc
}

// keyText is a text that the server reads as a value equal to value i; false: it is NULL.
func keyText(arr arrow.Array, i int) (string, bool) {
	if arr.IsNull(i) {
		return "", false
	}
	t, err := record.TypeOf(arr.DataType())
	if err != nil {
		return pgText(arr, i), true // not of the vocabulary: no batch has it
	}
	switch t.Kind { //nolint:exhaustive // the text form of all others is one for equal values
	case record.Array:
		return arrayLiteral(record.ArrayOf(arr.(array.ExtensionArray), i)), true //nolint:forcetypeassert // by construction
	case record.Numeric:
		text := pgText(arr, i)
		if strings.Contains(text, ".") {
			text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
		}
		return text, true
	case record.Float32, record.Float64:
		if text := pgText(arr, i); text != "-0" {
			return text, true
		}
		return "0", true
	case record.Interval:
		st := arr.(array.ExtensionArray).Storage().(*array.FixedSizeBinary) //nolint:forcetypeassert // by construction
		return string(record.AppendInterval(nil, justified(record.IntervalOf(st.Value(i))))), true
	}
	return pgText(arr, i), true
}

// justified is an interval that the server takes for equal: it compares months as 30 days, and days as 24 hours.
func justified(v record.IntervalValue) record.IntervalValue {
	const day = 24 * 60 * 60 * 1_000_000
	days, rest := int64(v.Months)*30+int64(v.Days)+v.Micros/day, v.Micros%day
	if rest < 0 {
		days, rest = days-1, rest+day
	}
	if days > math.MaxInt32 || days < math.MinInt32 {
		return v
	}
	return record.IntervalValue{Days: int32(days), Micros: rest}
}

// arrayLiteral is an array as the server reads it.
func arrayLiteral(v record.ArrayValue) string {
	var b strings.Builder
	if len(v.Dims) > 0 && !v.DefaultBounds() {
		for i, n := range v.Dims {
			fmt.Fprintf(&b, "[%d:%d]", v.Lower[i], v.Lower[i]+n-1)
		}
		b.WriteByte('=')
	}
	at := v.From
	var write func(dims []int32)
	write = func(dims []int32) {
		b.WriteByte('{')
		for i := range dims[0] {
			if i > 0 {
				b.WriteByte(',')
			}
			if len(dims) > 1 {
				write(dims[1:])
				continue
			}
			if text, ok := keyText(v.Values, at); ok {
				writeElement(&b, text)
			} else {
				b.WriteString("NULL")
			}
			at++
		}
		b.WriteByte('}')
	}
	if len(v.Dims) == 0 {
		return "{}"
	}
	write(v.Dims)
	return b.String()
}

// keyColumn is how one column of a key is compared.
type keyColumn struct {
	at      int    // the column
	cast    string // its type, as SQL writes it
	collate string // the collation; empty: none, or the database's
	local   bool   // values are ordered here as the server orders them
	padded  bool   // blanks at the end don't count
}

// keyColumns finds out how the key of a schema is compared: one of the table as it is, or as it was.
func (s *Source) keyColumns(ctx context.Context, schema *record.Schema) ([]keyColumn, error) {
	t, err := s.find(ctx, schema.Dataset)
	switch {
	case connector.ClassOf(err) == connector.ClassConfig:
		t = &sourceTable{} // it was dropped, and the stream is not there yet: no chunk will be read by this order
	case err != nil:
		return nil, err
	}
	out := make([]keyColumn, len(schema.Key))
	for i, at := range schema.Key {
		f := schema.Columns.Field(at)
		native := record.NativeOf(f).Type
		out[i] = keyColumn{at: at, cast: native, local: valueOrder(f.Type)}
		known := slices.IndexFunc(t.cols, func(c sourceColumn) bool {
			if id := record.IDOf(f); id != "" && c.id != "" {
				return c.id == id && c.sql == native
			}
			return c.name == f.Name && c.sql == native
		})
		if known < 0 {
			continue
		}
		c := t.cols[known]
		out[i].cast, out[i].collate = c.cast, c.collation
		if text, padded := textOrder(c); text {
			out[i].local, out[i].padded = true, padded
		}
	}
	return out, nil
}

// valueOrder reports whether the values of a type are ordered here as by the server, whatever its settings.
func valueOrder(dt arrow.DataType) bool {
	t, err := record.TypeOf(dt)
	if err != nil {
		return false
	}
	switch t.Kind { //nolint:exhaustive // the server orders all others
	case record.Bool, record.Int16, record.Int32, record.Int64, record.Binary, record.UUID, record.Date, record.Time, record.Timestamp:
		return true
	}
	return false
}

// textOrder reports whether a column's text is ordered by its bytes.
func textOrder(c sourceColumn) (bytewise, padded bool) {
	if c.asText || !c.bytewise || c.operators != "" {
		return false, false
	}
	switch c.send {
	case "textsend", "varcharsend", "namesend":
		return true, false
	case "bpcharsend":
		return true, true
	}
	return false, false
}

// Locate implements connector.Merger. Keys whose order does not depend on the server's libraries are compared here, all others by the
// server, in one query. Keys with a NULL lie behind every bound.
func (s *Source) Locate(
	ctx context.Context, schema *record.Schema, rows arrow.RecordBatch, bounds []json.RawMessage,
) ([]int, error) {
	if len(bounds) == 0 || rows.NumRows() == 0 {
		return make([]int, rows.NumRows()), nil
	}
	key, err := s.keyColumns(ctx, schema)
	if err != nil {
		return nil, err
	}
	ends := make([]bound, len(bounds))
	for i, raw := range bounds {
		if ends[i], err = decodeBound(raw); err != nil {
			return nil, err
		}
		if err := fitsKey(schema, ends[i]); err != nil {
			return nil, err
		}
	}
	if !slices.ContainsFunc(key, func(k keyColumn) bool { return !k.local }) {
		return locateHere(schema, key, rows, ends)
	}
	at, err := s.locateThere(ctx, key, rows, ends)
	if err != nil {
		return nil, s.cfg.wrap("looking for the chunks of keys of "+schema.Dataset, err)
	}
	return at, nil
}

// fitsKey checks that a bound is one of the schema's key.
func fitsKey(schema *record.Schema, b bound) error {
	of := schemaKeyIDs(schema)
	if len(b.Key) == len(schema.Key) && (b.Of == of || b.Of == "" || of == "") {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassTransient, Code: "postgres.key_changed", Doing: "looking for the chunks of keys", Dataset: schema.Dataset,
		Err:  errors.New("the key of the table is another one than its snapshot was begun with"),
		Hint: "take the snapshot of the table again",
	}
}

// locateHere looks for each key among the bounds.
func locateHere(schema *record.Schema, key []keyColumn, rows arrow.RecordBatch, ends []bound) ([]int, error) {
	bounds := make([]arrow.Array, len(key))
	for i, k := range key {
		f := schema.Columns.Field(k.at)
		b := array.NewBuilder(memory.DefaultAllocator, f.Type)
		for _, e := range ends {
			if err := record.ParseText(b, e.Key[i]); err != nil {
				return nil, fmt.Errorf("the end of a chunk of %s, column %q: %w", schema.Dataset, f.Name, err)
			}
		}
		bounds[i] = b.NewArray()
	}
	out := make([]int, rows.NumRows())
	for i := range out {
		if slices.ContainsFunc(key, func(k keyColumn) bool { return rows.Column(k.at).IsNull(i) }) {
			out[i] = len(ends)
			continue
		}
		out[i] = sort.Search(len(ends), func(j int) bool { // the first bound that the key is not behind
			for n, k := range key {
				if c := compareValues(rows.Column(k.at), i, bounds[n], j, k.padded); c != 0 {
					return c < 0
				}
			}
			return true
		})
	}
	return out, nil
}

// compareValues orders two values of the same type, one of those of valueOrder or text by its bytes.
func compareValues(a arrow.Array, i int, b arrow.Array, j int, padded bool) int {
	if ext, ok := a.(array.ExtensionArray); ok {
		a = ext.Storage()
	}
	if ext, ok := b.(array.ExtensionArray); ok {
		b = ext.Storage()
	}
	switch a := a.(type) {
	case *array.Boolean:
		return cmp.Compare(truth(a.Value(i)), truth(b.(*array.Boolean).Value(j))) //nolint:forcetypeassert // as a
	case *array.Int16:
		return cmp.Compare(a.Value(i), b.(*array.Int16).Value(j)) //nolint:forcetypeassert // as a
	case *array.Int32:
		return cmp.Compare(a.Value(i), b.(*array.Int32).Value(j)) //nolint:forcetypeassert // as a
	case *array.Int64:
		return cmp.Compare(a.Value(i), b.(*array.Int64).Value(j)) //nolint:forcetypeassert // as a
	case *array.Date32:
		return cmp.Compare(a.Value(i), b.(*array.Date32).Value(j)) //nolint:forcetypeassert // as a
	case *array.Time64:
		return cmp.Compare(a.Value(i), b.(*array.Time64).Value(j)) //nolint:forcetypeassert // as a
	case *array.Timestamp:
		return cmp.Compare(a.Value(i), b.(*array.Timestamp).Value(j)) //nolint:forcetypeassert // as a
	case *array.Binary:
		return bytes.Compare(a.Value(i), b.(*array.Binary).Value(j)) //nolint:forcetypeassert // as a
	case *array.FixedSizeBinary:
		return bytes.Compare(a.Value(i), b.(*array.FixedSizeBinary).Value(j)) //nolint:forcetypeassert // as a
	case *array.String:
		x, y := a.Value(i), b.(*array.String).Value(j) //nolint:forcetypeassert // as a
		if padded {
			x, y = strings.TrimRight(x, " "), strings.TrimRight(y, " ")
		}
		return strings.Compare(x, y)
	}
	panic(fmt.Sprintf("postgres: %s has no order here", a.DataType())) // broken invariant: see valueOrder
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// locateThere sorts keys and bounds together, by the order that the server has for the table's own key, and counts the bounds in front of
// each key. Of equals the key comes first: a bound belongs to the chunk that it ends.
func (s *Source) locateThere(ctx context.Context, key []keyColumn, rows arrow.RecordBatch, ends []bound) ([]int, error) {
	args, sql := locateQuery(key, rows, ends)
	var found [][][]byte
	err := s.borrow(ctx, func(pg *pgconn.PgConn) (err error) {
		s.env.Roundtrip("locate")
		found, err = ask(ctx, pg, sql, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if int64(len(found)) != rows.NumRows() {
		return nil, fmt.Errorf("the server located %d keys of %d", len(found), rows.NumRows())
	}
	out := make([]int, len(found))
	for i, r := range found {
		out[i] = int(toInt(r[0]))
	}
	return out, nil
}

func locateQuery(key []keyColumn, rows arrow.RecordBatch, ends []bound) (args []string, sql string) {
	names, nulls := make([]string, len(key)), make([]string, len(key))
	values, lists := make([]string, len(key)), [2][]string{}
	for n, k := range key {
		names[n] = fmt.Sprintf("v%d", n)
		nulls[n] = names[n] + " IS NULL"
		values[n] = fmt.Sprintf("%s::%s", names[n], k.cast)
		if k.collate != "" {
			values[n] += " COLLATE " + k.collate
		}
		values[n] += " AS " + names[n]
		args = append(args, textArray(int(rows.NumRows()), func(i int) (string, bool) { return keyText(rows.Column(k.at), i) }))
		lists[0] = append(lists[0], fmt.Sprintf("pg_catalog.unnest($%d::text[])", n+1))
		lists[1] = append(lists[1], fmt.Sprintf("pg_catalog.unnest($%d::text[])", len(key)+n+1))
	}
	for n := range key {
		args = append(args, textArray(len(ends), func(i int) (string, bool) { return ends[i].Key[n], true }))
	}
	list := func(side int, bound string) string {
		return fmt.Sprintf("SELECT n, %s AS bound, (%s) AS hole, %s FROM ROWS FROM (%s) WITH ORDINALITY AS k(%s, n)", bound,
			strings.Join(nulls, " OR "), strings.Join(values, ", "), strings.Join(lists[side], ", "), strings.Join(names, ", "))
	}
	sql = fmt.Sprintf(`SELECT behind FROM (
	SELECT n, bound, pg_catalog.count(*) FILTER (WHERE bound) OVER (ORDER BY hole, %s, bound ROWS UNBOUNDED PRECEDING) AS behind
	FROM (%s UNION ALL %s) u) x WHERE NOT bound ORDER BY n`, strings.Join(names, ", "), list(0, "false"), list(1, "true"))
	return args, sql
}

// textArray is an array of texts as the server reads it; false: NULL.
func textArray(n int, value func(i int) (string, bool)) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		text, ok := value(i)
		if !ok {
			b.WriteString("NULL")
			continue
		}
		writeElement(&b, text)
	}
	b.WriteByte('}')
	return b.String()
}

// writeElement writes an element of an array, quoted.
func writeElement(b *strings.Builder, text string) {
	b.WriteByte('"')
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	b.WriteByte('"')
}
