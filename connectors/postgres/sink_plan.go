package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// plan is how batches of one schema go into one table. It is made again when the schema or the table changes.
type plan struct {
	schema *record.Schema
	table  *table
	shape  string

	fits    []fitting // of the columns that are sent
	send    []int     // their places in the schema
	sent    *arrow.Schema
	enc     *pgcopy.Encoder
	direct  bool          // every column takes its wire form as it is
	arrays  bool          // every column's values can travel in arrays
	missing []int         // columns of the schema that the table lacks
	extras  []tableColumn // columns of the target that the schema lacks, and that it does not compute
	all     []int         // 0, 1 … len(send)-1
	key     []int         // the key's places in send, in key order
	keySent *arrow.Schema
	keyEnc  *pgcopy.Encoder

	ordered  bool                  // a key's bytes are in the order in which its index has them
	bytewise bool                  // equal keys have equal ids, see keyedRows.AppendID
	same     []func(string) string // by key column: makes equal texts of values that the server takes for equal; nil: bytes are compared
	sql      map[string]string     // statements that were built before
}

// newPlan joins a schema with the table that it goes to, and reports everything that does not fit at once.
func newPlan(schema *record.Schema, t *table) (*plan, error) {
	p, err := joinPlan(schema, t)
	if err != nil {
		return nil, err
	}
	return p, p.complain()
}

// joinPlan leaves out the columns that the table lacks.
func joinPlan(schema *record.Schema, t *table) (*plan, error) {
	shape, err := t.shape()
	if err != nil {
		return nil, err
	}
	p := &plan{schema: schema, table: t, shape: shape, direct: true, arrays: true, bytewise: true, sql: map[string]string{}}
	wires := make([]pgcopy.Column, 0, len(t.Columns))
	fields := make([]arrow.Field, 0, len(t.Columns))
	for i, f := range schema.Columns.Fields() {
		c, ok := t.column(f.Name)
		if !ok {
			p.missing = append(p.missing, i)
			continue
		}
		fit, err := fit(f, c)
		if err != nil {
			return nil, err
		}
		if c.Generated != "" {
			continue
		}
		p.all = append(p.all, len(p.send))
		p.send, p.fits = append(p.send, i), append(p.fits, fit)
		p.direct = p.direct && fit.direct
		p.arrays = p.arrays && fit.wire.Form != pgcopy.Array
		wires, fields = append(wires, pgcopy.Column{Name: f.Name, Type: fit.wire}), append(fields, f)
	}
	for _, c := range t.Columns {
		if c.Generated == "" && schema.Column(c.Name) < 0 {
			p.extras = append(p.extras, c)
		}
	}
	p.sent = arrow.NewSchema(fields, nil)
	if p.enc, err = pgcopy.NewEncoder(p.sent, wires); err != nil {
		return nil, fmt.Errorf("table %s: %w", t.at, err)
	}
	return p, p.planKey(wires)
}

// complain reports columns that only one side has.
func (p *plan) complain() error {
	t, missing := p.table, p.missing
	if len(missing) > 0 {
		adds := make([]string, len(missing))
		names := make([]string, len(missing))
		for n, i := range missing {
			f := p.schema.Columns.Field(i)
			rt, err := record.TypeOf(f.Type)
			if err != nil {
				return fmt.Errorf("column %q: %w", f.Name, err)
			}
			names[n] = fmt.Sprintf("%q", f.Name)
			adds[n] = "ADD COLUMN " + newColumn{name: f.Name, typ: chooseType(f, rt, trustedTypes(f, rt), t.at)}.String()
		}
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.columns", Doing: "writing to " + t.at.String(), Dataset: p.schema.Dataset,
			Err:  fmt.Errorf("the table has no column %s", strings.Join(names, ", ")),
			Hint: fmt.Sprintf("ALTER TABLE %s %s; or leave the columns out (--columns)", t.at, strings.Join(adds, ", ")),
		}
	}
	var needed []string
	for _, c := range t.Columns {
		if demanding(c) && p.schema.Column(c.Name) < 0 {
			needed = append(needed, c.Name)
		}
	}
	if len(needed) > 0 {
		drops := make([]string, len(needed))
		for i, n := range needed {
			drops[i] = "ALTER COLUMN " + ident(n) + " DROP NOT NULL"
		}
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.required", Doing: "writing to " + t.at.String(), Dataset: p.schema.Dataset,
			Err:  fmt.Errorf("the table demands a value for %s, which the dataset does not have", idents(needed)),
			Hint: fmt.Sprintf("ALTER TABLE %s %s; or give them a default", t.at, strings.Join(drops, ", ")),
		}
	}
	if len(p.send) == 0 && p.schema.Columns.NumFields() > 0 {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.columns", Doing: "writing to " + t.at.String(), Dataset: p.schema.Dataset,
			Err: errors.New("the target computes every column"), Hint: "write to a table with ordinary columns",
		}
	}
	return nil
}

// trustedTypes lets a hint name the type that a column comes from without asking the target for it.
func trustedTypes(f arrow.Field, t record.Type) knownTypes {
	return knownTypes{record.NativeOf(f).Type: true, t.Name: true}
}

// planKey prepares reading keys as bytes.
func (p *plan) planKey(wires []pgcopy.Column) error {
	fields := make([]arrow.Field, 0, len(p.schema.Key))
	keyWires := make([]pgcopy.Column, 0, len(p.schema.Key))
	for _, k := range p.schema.Key {
		at := slices.Index(p.send, k)
		if at < 0 {
			p.key = nil // the target computes a part of the key: it can't be found by it
			return nil
		}
		p.key = append(p.key, at)
		f := p.schema.Columns.Field(k)
		c, _ := p.table.column(f.Name)
		t, err := record.TypeOf(f.Type)
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		same, ok := sameKey(t, c)
		p.bytewise = p.bytewise && ok
		p.same = append(p.same, same)
		fields, keyWires = append(fields, f), append(keyWires, wires[at])
	}
	if !slices.ContainsFunc(p.same, func(f func(string) string) bool { return f != nil }) {
		p.same = nil
	}
	p.ordered = p.same == nil && !slices.ContainsFunc(p.key, func(at int) bool {
		return !p.fits[at].direct || !orderedForm(p.fits[at].wire.Form)
	})
	p.keySent = arrow.NewSchema(fields, nil)
	var err error
	if p.keyEnc, err = pgcopy.NewEncoder(p.keySent, keyWires); err != nil {
		return fmt.Errorf("the key of %s: %w", p.table.at, err)
	}
	return nil
}

// orderedForm reports whether values of a form have one length, and bytes in the order of the values, but for negative ones.
func orderedForm(f pgcopy.Form) bool {
	ordered := []pgcopy.Form{
		pgcopy.Bool, pgcopy.Int2, pgcopy.Int4, pgcopy.Int8, pgcopy.UUID, pgcopy.Date, pgcopy.Time, pgcopy.Timestamp,
	}
	return slices.Contains(ordered, f)
}

// sameKey returns how two values of a key's column are compared as the server does: by their bytes (nil), or by what the function
// makes of their text. False: only the server can.
func sameKey(t record.Type, c tableColumn) (same func(string) string, ok bool) {
	switch t.Kind {
	case record.Bool, record.Decimal, record.UUID, record.Binary, record.Date, record.Time, record.Timestamp, record.Duration,
		record.Bits, record.Network:
		return nil, true
	case record.Float32, record.Float64:
		return plainFloat, c.Base.Name == "float4" || c.Base.Name == "float8"
	case record.Numeric:
		return plainNumber, c.Base.Name == "numeric"
	case record.String, record.Enum:
		switch {
		case !c.Bytewise:
		case c.Base.Name == "bpchar":
			return func(s string) string { return strings.TrimRight(s, " ") }, true
		case c.Base.Name == "text" || c.Base.Name == "varchar" || c.Base.Name == "uuid" || c.Base.Kind == "e":
			return nil, true
		}
		return nil, false
	default:
		return nil, isInteger(t.Kind)
	}
}

// plainNumber leaves out what does not count in a number: zeros at the end of a fraction, the sign of zero.
func plainNumber(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return plainFloat(s)
}

func plainFloat(s string) string {
	if s == "-0" {
		return "0"
	}
	return s
}

// mergeable reports why rows can't be written by key, or nil.
func (p *plan) mergeable() error {
	names := p.schema.KeyNames()
	doing := "writing by key to " + p.table.at.String()
	if len(names) == 0 {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.key", Doing: doing, Dataset: p.schema.Dataset,
			Err: errors.New("the dataset has no key"), Hint: "name its key columns with --key, or use --mode append",
		}
	}
	if p.keyEnc == nil {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.key", Doing: doing, Dataset: p.schema.Dataset,
			Err: errors.New("the target computes a column of the key"), Hint: "use another key (--key)",
		}
	}
	key, ok := p.table.arbiter(names)
	if ok && key.Flaw == "" {
		return nil
	}
	err := fmt.Errorf("no unique index on exactly (%s)", idents(names))
	if ok {
		err = fmt.Errorf("its unique index %q %s", key.Name, key.Flaw)
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "postgres.unique", Doing: doing, Dataset: p.schema.Dataset, Err: err,
		Hint: p.table.keyFix(key, names),
	}
}

// keyFix is the statement that makes upserts by these columns possible; flawed is the index in the way, if there is one.
func (t *table) keyFix(flawed tableKey, names []string) string {
	switch {
	case flawed.Deferrable:
		return fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s, ADD UNIQUE (%s)", t.at, ident(flawed.Name), idents(names))
	case slices.ContainsFunc(t.Keys, func(k tableKey) bool { return k.Primary }):
		return fmt.Sprintf("CREATE UNIQUE INDEX ON %s (%s)", t.at, idents(names))
	}
	return fmt.Sprintf("ALTER TABLE %s ADD PRIMARY KEY (%s)", t.at, idents(names))
}

// pick returns the columns that are sent, in the order of the encoder.
func (p *plan) pick(rb arrow.RecordBatch) arrow.RecordBatch {
	cols := make([]arrow.Array, len(p.send))
	for i, c := range p.send {
		cols[i] = rb.Column(c)
	}
	return array.NewRecordBatch(p.sent, cols, rb.NumRows())
}

// pickKey returns the key columns.
func (p *plan) pickKey(rb arrow.RecordBatch) arrow.RecordBatch {
	cols := make([]arrow.Array, len(p.schema.Key))
	for i, c := range p.schema.Key {
		cols[i] = rb.Column(c)
	}
	return array.NewRecordBatch(p.keySent, cols, rb.NumRows())
}

// names returns the names of the columns that are sent.
func (p *plan) names() []string {
	names := make([]string, len(p.send))
	for i, c := range p.send {
		names[i] = p.schema.Columns.Field(c).Name
	}
	return names
}
