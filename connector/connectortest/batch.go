package connectortest

import (
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// Schema returns the schema that [Batch] builds: the key column id (int64, never null), then a column for each case.
func Schema(dataset string, cases ...Case) *record.Schema {
	fields := []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}}
	for _, c := range cases {
		fields = append(fields, c.Field())
	}
	return &record.Schema{Dataset: dataset, Columns: arrow.NewSchema(fields, nil), Key: []int{0}}
}

// Batch returns a batch of inserts with every value of every case: as many rows as the longest case has values, id counted from 0,
// and shorter columns repeated. It panics where a value is not of its case's type.
func Batch(dataset string, cases ...Case) *record.Batch {
	n := 0
	for _, c := range cases {
		n = max(n, len(c.Values))
	}
	rows := make([][]string, n)
	for i := range rows {
		rows[i] = []string{strconv.Itoa(i)}
		for _, c := range cases {
			rows[i] = append(rows[i], c.Values[i%len(c.Values)])
		}
	}
	return BatchOf(Schema(dataset, cases...), rows...)
}

// BatchOf returns a batch of inserts of the given rows: a JSON document for each column. It panics where a value is not of its
// column's type.
func BatchOf(s *record.Schema, rows ...[]string) *record.Batch {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	for i, row := range rows {
		for c, doc := range row {
			if err := record.ParseJSON(rb.Field(c), []byte(doc)); err != nil {
				panic(fmt.Sprintf("connectortest: row %d, column %q: %v", i, s.Columns.Field(c).Name, err)) // a mistake in the test
			}
		}
	}
	return &record.Batch{Schema: s, Rows: rb.NewRecordBatch()}
}

// Numbered returns a batch of n inserts with ids from, from+1, … and one text column v.
func Numbered(dataset string, from, n int) *record.Batch {
	rows := make([][]string, n)
	for i := range rows {
		rows[i] = []string{strconv.Itoa(from + i), `"value ` + strconv.Itoa(from+i) + `"`}
	}
	return BatchOf(Schema(dataset, Case{Name: "v", Type: arrow.BinaryTypes.String}), rows...)
}

// Sliced returns the same rows as a window on longer arrays, as filters and lanes make them: offsets are not zero.
func Sliced(b *record.Batch) *record.Batch {
	n := b.Rows.NumRows()
	cols := make([]arrow.Array, b.Rows.NumCols())
	for i := range cols {
		c := b.Rows.Column(i)
		joined, err := array.Concatenate([]arrow.Array{c, c, c}, memory.DefaultAllocator)
		if err != nil {
			panic(fmt.Sprintf("connectortest: joining column %d: %v", i, err)) // equal types always join
		}
		cols[i] = array.NewSlice(joined, n, 2*n)
	}
	out := *b
	out.Rows = array.NewRecordBatch(b.Rows.Schema(), cols, n)
	return &out
}

// Rows returns each row as a JSON object of its columns; the name of the operation stands in front where it is no insert.
func Rows(b *record.Batch) []string {
	out := make([]string, b.NumRows())
	for i := range out {
		if op := b.Op(i); op != record.Insert {
			out[i] = op.String() + " "
		}
		out[i] += string(b.RowJSON(i))
	}
	return out
}

// Digest returns a hash of all that a batch holds: equal digests at two times mean that nobody changed it in between.
func Digest(b *record.Batch) uint64 {
	h := fnv.New64a()
	add := func(v any) { fmt.Fprintf(h, "%v\x00", v) } //nolint:errcheck // a hash never fails
	if b.Schema != nil {
		add(b.Schema.Dataset)
		add(b.Schema.Columns.String())
		add(b.Schema.Key)
	}
	add(b.Position)
	add(b.Truncate)
	for i := range b.NumRows() {
		add(b.Op(i))
		add(string(b.RowJSON(i)))
	}
	if b.Old != nil {
		old := record.Batch{Schema: b.Schema, Rows: b.Old}
		for i := range old.NumRows() {
			add(string(old.RowJSON(i)))
		}
	}
	for _, t := range b.Txns {
		add(t)
	}
	for _, r := range b.Rejects {
		add(r.Error())
		add(r.Raw)
	}
	return h.Sum64()
}
