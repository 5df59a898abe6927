package transform

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"

	"github.com/leatdata/leat/record"
)

// program is an expression compiled for one schema. Columns are variables; one whose name is no identifier is $env["a name"].
// Integers and decimals are numbers (decimals as float64, so that two that differ only behind 15 digits compare as equal), and every
// other type is its canonical text, so that ISO dates and timestamps compare as they should.
type program struct {
	code *vm.Program
	cols []int // columns that it reads
	in   *record.Schema
}

func compile(code string, in *record.Schema, opts ...expr.Option) (*program, error) {
	env := make(map[string]any, in.Columns.NumFields())
	for _, f := range in.Columns.Fields() {
		t, err := record.TypeOf(f.Type)
		if err != nil {
			return nil, err
		}
		env[f.Name] = zeroOf(t)
	}
	c, err := expr.Compile(code, append(opts, expr.Env(env), expr.DisableBuiltin("now"))...)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", code, err)
	}
	v := &names{seen: map[string]bool{}}
	node := c.Node()
	ast.Walk(&node, v)
	p := &program{code: c, in: in}
	for i, f := range in.Columns.Fields() {
		if v.seen[f.Name] || v.env {
			p.cols = append(p.cols, i)
		}
	}
	return p, nil
}

// names collects the identifiers of an expression.
type names struct {
	seen map[string]bool
	env  bool // $env is used: any column may be read
}

// Visit implements ast.Visitor.
func (v *names) Visit(n *ast.Node) {
	if id, ok := (*n).(*ast.IdentifierNode); ok {
		v.seen[id.Value] = true
		v.env = v.env || id.Value == "$env"
	}
}

func zeroOf(t record.Type) any {
	switch {
	case t.Kind == record.Bool:
		return false
	case t.Kind >= record.Int8 && t.Kind <= record.Uint32:
		return int64(0)
	case t.Kind >= record.Float32 && t.Kind <= record.Numeric || t.Kind == record.Uint64:
		return float64(0)
	default:
		return ""
	}
}

// valuesOf returns how to read a column as expressions see it; a null is nil. Text shares the column's memory.
func valuesOf(arr arrow.Array) func(i int) any {
	value := scalarsOf(arr)
	return func(i int) any {
		if arr.IsNull(i) {
			return nil
		}
		return value(i)
	}
}

func scalarsOf(arr arrow.Array) func(i int) any {
	switch a := arr.(type) {
	case *array.String:
		return func(i int) any { return a.Value(i) }
	case *array.Boolean:
		return func(i int) any { return a.Value(i) }
	case *array.Int8, *array.Int16, *array.Int32, *array.Int64, *array.Uint8, *array.Uint16, *array.Uint32:
		whole := wholeNumbers(arr)
		return func(i int) any { return whole(i) }
	case *array.Float64:
		return func(i int) any { return a.Value(i) }
	case *array.Decimal128:
		return func(i int) any { return decimal(a, i) }
	case *array.Float32, *array.Decimal256, *array.Uint64:
		return func(i int) any { return number(arr, i) }
	case array.ExtensionArray:
		if t, err := record.TypeOf(a.DataType()); err == nil && t.Kind == record.Numeric {
			return func(i int) any { return number(arr, i) }
		}
	}
	return func(i int) any { return string(record.AppendText(nil, arr, i)) }
}

// wholeNumbers returns how to read a column of whole numbers that an int64 holds; nil: it is another one.
func wholeNumbers(arr arrow.Array) func(i int) int64 {
	switch a := arr.(type) {
	case *array.Int8:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int16:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int64:
		return a.Value
	case *array.Uint8:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Uint16:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Uint32:
		return func(i int) int64 { return int64(a.Value(i)) }
	}
	return nil
}

// number returns the float64 that is nearest to what the value's text says.
func number(arr arrow.Array, i int) float64 {
	f, err := strconv.ParseFloat(string(record.AppendText(nil, arr, i)), 64)
	if err != nil && f == 0 {
		return math.NaN()
	}
	return f
}

// Whole numbers up to this one, and powers of ten up to this exponent, are exact as float64. One division of such numbers is rounded
// once: it gives what reading the digits gives.
const (
	exactWhole = 1 << 53
	exactPower = 22
)

// decimal is number, without text where that gives the same.
func decimal(a *array.Decimal128, i int) float64 {
	scale := a.DataType().(*arrow.Decimal128Type).Scale //nolint:forcetypeassert // by construction
	v := a.Value(i)
	low := int64(v.LowBits())
	if scale < 0 || scale > exactPower || low>>63 != v.HighBits() || low > exactWhole || low < -exactWhole {
		return number(a, i)
	}
	return float64(low) / math.Pow10(int(scale))
}

// bound is a program on the columns of a batch.
type bound struct {
	*program

	vm     vm.VM
	env    map[string]any
	names  []string
	values []func(i int) any
}

func (p *program) bind(rb arrow.RecordBatch) *bound {
	b := &bound{program: p, env: make(map[string]any, len(p.cols))}
	for _, c := range p.cols {
		b.names, b.values = append(b.names, rb.ColumnName(c)), append(b.values, valuesOf(rb.Column(c)))
	}
	return b
}

// run evaluates the expression on row i. hasNull reports whether a column that it reads is null there.
func (b *bound) run(i int) (result any, hasNull bool, err error) {
	for n, value := range b.values {
		v := value(i)
		b.env[b.names[n]] = v
		hasNull = hasNull || v == nil
	}
	result, err = b.vm.Run(b.code, b.env)
	return result, hasNull, err
}

// Filter keeps the rows for which an expression is true. As in SQL, an expression that can't be worked out because of a null is not
// true. In a stream of changes, an update that no longer matches becomes a delete, and deletes always pass.
func Filter(code string) (Step, error) {
	return newPlanned(func(in *record.Schema) (*plan, error) {
		p, err := compile(code, in, expr.AsBool())
		if err != nil {
			return nil, err
		}
		return &plan{out: in, apply: p.filter}, nil
	}), nil
}

func (p *program) filter(b *record.Batch) (*record.Batch, error) {
	c := *b
	keep := make([]bool, b.NumRows())
	var on *bound
	if b.Rows != nil {
		on = p.bind(b.Rows)
	}
	ops := slices.Clone(b.Ops)
	for i := range keep {
		if b.Op(i) == record.Delete {
			keep[i] = true
			continue
		}
		v, hasNull, err := on.run(i)
		match, _ := v.(bool)
		switch {
		case err != nil && !hasNull:
			c.Rejects = append(slices.Clip(c.Rejects), rejectRow(b, i, err))
		case err == nil && match:
			keep[i] = true
		case b.Op(i) == record.Update || b.Op(i) == record.Upsert:
			keep[i], ops[i] = true, record.Delete
		}
	}
	c.Ops = ops
	return c.Keep(func(i int) bool { return keep[i] })
}

func rejectRow(b *record.Batch, i int, err error) record.Reject {
	r := b.Reject(i)
	r.Class, r.Message = "bad_value", err.Error()
	return r
}

// Computed is one column that Set makes.
type Computed struct {
	Column string
	Expr   string // an expression over the other columns
	Type   string // see record.ParseType; empty: bool, int64, float64 or string, as the expression says
}

// Set adds columns, or replaces them where they exist. An expression that reads a null and can't be worked out gives null.
func Set(columns []Computed) (Step, error) {
	types := make([]arrow.DataType, len(columns))
	for i, c := range columns {
		if c.Type == "" {
			continue
		}
		dt, err := record.ParseType(c.Type)
		if err != nil {
			return nil, fmt.Errorf("set: column %q: %w", c.Column, err)
		}
		types[i] = dt
	}
	return newPlanned(func(in *record.Schema) (*plan, error) { return planSet(in, columns, types) }), nil
}

// setter is a compiled Set.
type setter struct {
	out   *record.Schema
	at    []int
	codes []*program
}

func planSet(in *record.Schema, columns []Computed, types []arrow.DataType) (*plan, error) {
	s := &setter{}
	out := *in
	fields := slices.Clone(in.Columns.Fields())
	for i, c := range columns {
		p, err := compile(c.Expr, in)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", c.Column, err)
		}
		dt := types[i]
		if dt == nil {
			if dt, err = resultType(p.code.Node().Type()); err != nil {
				return nil, fmt.Errorf("column %q: expression %q: %w", c.Column, c.Expr, err)
			}
		}
		f := arrow.Field{Name: c.Column, Type: dt, Nullable: true}
		at := slices.IndexFunc(fields, func(o arrow.Field) bool { return o.Name == c.Column })
		if at < 0 {
			at = len(fields)
			fields = append(fields, f)
		}
		fields[at] = f
		s.at, s.codes = append(s.at, at), append(s.codes, p)
	}
	meta := in.Columns.Metadata()
	out.Columns = arrow.NewSchema(fields, &meta)
	s.out = &out
	return &plan{out: &out, apply: s.apply}, nil
}

func resultType(t reflect.Type) (arrow.DataType, error) {
	if t != nil {
		switch t.Kind() { //nolint:exhaustive // the kinds that expressions give
		case reflect.Bool:
			return arrow.FixedWidthTypes.Boolean, nil
		case reflect.Int, reflect.Int64:
			return arrow.PrimitiveTypes.Int64, nil
		case reflect.Float64:
			return arrow.PrimitiveTypes.Float64, nil
		case reflect.String:
			return arrow.BinaryTypes.String, nil
		}
	}
	return nil, errors.New("the type of its result is unknown: say type: int64, or another one")
}

func (s *setter) apply(b *record.Batch) (*record.Batch, error) {
	c := *b
	c.Schema = s.out
	if b.Rows == nil {
		return &c, nil
	}
	bad := map[int]bool{}
	c.Rows = s.columns(b.Rows, func(i int, err error) {
		if !bad[i] {
			bad[i] = true
			c.Rejects = append(slices.Clip(c.Rejects), rejectRow(b, i, err))
		}
	})
	if b.Old != nil {
		c.Old = s.columns(b.Old, func(int, error) {})
	}
	return c.Keep(func(i int) bool { return !bad[i] })
}

func (s *setter) columns(rb arrow.RecordBatch, fail func(i int, err error)) arrow.RecordBatch {
	cols := slices.Grow(slices.Clone(rb.Columns()), len(s.at))[:s.out.Columns.NumFields()]
	for n, at := range s.at {
		bld := array.NewBuilder(memory.DefaultAllocator, s.out.Columns.Field(at).Type)
		bld.Reserve(int(rb.NumRows()))
		on := s.codes[n].bind(rb)
		t, _ := record.TypeOf(bld.Type())
		for i := range int(rb.NumRows()) {
			v, hasNull, err := on.run(i)
			if err == nil && v != nil {
				err = appendResult(bld, v, t.Nested())
			} else {
				bld.AppendNull()
			}
			if err != nil && !hasNull {
				fail(i, fmt.Errorf("column %q: %w", s.out.Columns.Field(at).Name, err))
			}
			if bld.Len() == i {
				bld.AppendNull()
			}
		}
		cols[at] = bld.NewArray()
	}
	return array.NewRecordBatch(s.out.Columns, cols, rb.NumRows())
}

// appendResult appends what an expression gave, or says why the column can't hold it.
func appendResult(b array.Builder, v any, nested bool) error {
	if nested {
		return whole(b, func(b array.Builder) error { return record.ParseText(b, fmt.Sprint(v)) })
	}
	switch v := v.(type) {
	case string:
		return record.ParseText(b, v) //nolint:wrapcheck // the caller names the column
	case int:
		if b, ok := b.(*array.Int64Builder); ok {
			b.Append(int64(v))
			return nil
		}
	case float64:
		if b, ok := b.(*array.Float64Builder); ok && !math.IsNaN(v) {
			b.Append(v)
			return nil
		}
		return record.ParseText(b, string(record.AppendFloat(nil, v, 64))) //nolint:wrapcheck // likewise
	}
	return record.ParseText(b, fmt.Sprint(v)) //nolint:wrapcheck // likewise
}
