package pgoutput_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/format/pgoutput"
	"github.com/leatdata/leat/record"
)

// The values of tuples in the tests: text, or these.
const (
	null   = "\x00n"
	unsent = "\x00u"
)

// inBinary is a value in binary form.
func inBinary(v string) string { return "\x00b" + v }

// encodeTuple makes a tuple of values.
func encodeTuple(values ...string) string {
	data := binary.BigEndian.AppendUint16(nil, uint16(len(values)))
	for _, v := range values {
		kind := byte('t')
		if len(v) > 1 && v[0] == 0 {
			kind, v = v[1], v[2:]
		}
		data = append(data, kind)
		if kind == 't' || kind == 'b' {
			data = append(binary.BigEndian.AppendUint32(data, uint32(len(v))), v...)
		}
	}
	return string(data)
}

func tupleOf(t testing.TB, values ...string) pgoutput.Tuple {
	t.Helper()
	c, ok, err := pgoutput.ParseChange([]byte("I\x00\x00\x00\x01N"+encodeTuple(values...)), false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return c.New
}

// docs is a table of a key, a number and a document, as most of the tests use it.
func docs(t testing.TB, key ...int) *pgoutput.Rows {
	t.Helper()
	fields := []arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int32},
		{Name: "n", Type: &arrow.Decimal128Type{Precision: 9, Scale: 2}, Nullable: true},
		{Name: "doc", Type: arrow.BinaryTypes.String, Nullable: true},
	}
	s := &record.Schema{Dataset: "public.docs", Columns: arrow.NewSchema(fields, nil), Key: key}
	rows, err := pgoutput.NewRows(s, []pgoutput.RowColumn{
		{Target: 0, Type: pgcopy.Type{Form: pgcopy.Int4}, Binary: true},
		{Target: 1, Type: pgcopy.Type{Form: pgcopy.Numeric}, Binary: true},
		{Target: 2, Type: pgcopy.Type{Form: pgcopy.Raw}},
	}, pgoutput.Options{CheckUTF8: true})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// changes is what a batch says, one line for each row: what happened, the row, the row before, and the columns that were not sent.
func changes(b *record.Batch) []string {
	if b == nil {
		return nil
	}
	var out []string
	for i := range b.NumRows() {
		line := []string{b.Op(i).String(), string(b.RowJSON(i))}
		if b.Old != nil {
			line = append(line, "before", string((&record.Batch{Rows: b.Old}).RowJSON(i)))
		}
		for c := range b.Schema.Columns.NumFields() {
			if b.IsUnchanged(c, i) {
				line = append(line, "not sent:", b.Schema.Columns.Field(c).Name)
			}
		}
		out = append(out, strings.Join(line, " "))
	}
	for _, r := range b.Rejects {
		out = append(out, fmt.Sprintf("reject %s %s %q %s %q %s", r.Dataset, r.Key, r.Column, r.Class, r.Value, r.Raw))
	}
	return out
}

func check(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func same(t testing.TB, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A batch says of each change what happened; what it does not need, it does not have.
func TestTake(t *testing.T) {
	rows := docs(t, 0)
	if b := rows.Take(); b != nil {
		t.Errorf("a batch of nothing: %v", b)
	}
	check(t, rows.Insert(tupleOf(t, "1", "1.5", "a")), rows.Insert(tupleOf(t, inBinary("\x00\x00\x00\x02"), null, "")))
	if rows.Len() != 2 || rows.Size() < 10 {
		t.Errorf("%d rows of %d bytes", rows.Len(), rows.Size())
	}
	size := rows.Size()
	b := rows.Take()
	same(t, []string{`insert {"id":1,"n":1.50,"doc":"a"}`, `insert {"id":2,"n":null,"doc":""}`}, changes(b))
	if b.Ops != nil || b.Old != nil || b.Unchanged != nil || b.Rejects != nil || b.Changes != 2 || b.Size != size {
		t.Errorf("the batch of inserts: %+v", b)
	}
	if rows.Len() != 0 || rows.Size() != 0 || rows.Take() != nil {
		t.Error("something was left")
	}
	check(t, rows.Insert(tupleOf(t, "3", null, null)), rows.Update(0, pgoutput.Tuple{}, tupleOf(t, "3", "7", "c")), rows.Delete('K', tupleOf(t, "3", null, null)))
	b = rows.Take()
	same(t, []string{`insert {"id":3,"n":null,"doc":null}`, `update {"id":3,"n":7.00,"doc":"c"}`, `delete {"id":3,"n":null,"doc":null}`}, changes(b))
	if b.Old != nil || b.Unchanged != nil {
		t.Errorf("the key never moved: %+v", b)
	}
}

// What was not sent is marked, unless the row before has it; only what the row before has is in Old.
// cases C029, C030, C033.
func TestUnchanged(t *testing.T) {
	rows := docs(t, 0)
	none := pgoutput.Tuple{}
	for i := range 70 { // past the first word of a bitmap
		check(t, rows.Insert(tupleOf(t, strconv.Itoa(i), null, null)))
	}
	check(t,
		rows.Update(0, none, tupleOf(t, "1", "1", unsent)),
		rows.Update(0, none, tupleOf(t, "1", "1", null)),
		rows.Update('K', tupleOf(t, "1", null, null), tupleOf(t, "2", "1", unsent)),
		rows.Update('O', tupleOf(t, "2", "1", "doc"), tupleOf(t, "2", "3", unsent)),
		rows.Update('O', tupleOf(t, "2", "1", ""), tupleOf(t, "2", "3", unsent)),
		rows.Update('K', tupleOf(t, "2", null, null), tupleOf(t, unsent, unsent, unsent)),
		rows.Delete('O', tupleOf(t, "2", "3", "doc")),
		rows.Insert(tupleOf(t, "9", null, null)),
	)
	b := rows.Take()
	got := changes(b)
	none2 := ` before {"id":null,"n":null,"doc":null}`
	want := []string{
		`insert {"id":69,"n":null,"doc":null}` + none2,
		`update {"id":1,"n":1.00,"doc":null}` + none2 + ` not sent: doc`,
		`update {"id":1,"n":1.00,"doc":null}` + none2,
		`update {"id":2,"n":1.00,"doc":null} before {"id":1,"n":null,"doc":null} not sent: doc`,
		`update {"id":2,"n":3.00,"doc":"doc"} before {"id":2,"n":1.00,"doc":"doc"}`,
		`update {"id":2,"n":3.00,"doc":""} before {"id":2,"n":1.00,"doc":""}`,
		`update {"id":2,"n":null,"doc":null} before {"id":2,"n":null,"doc":null} not sent: n not sent: doc`,
		`delete {"id":2,"n":3.00,"doc":"doc"}` + none2,
		`insert {"id":9,"n":null,"doc":null}` + none2,
	}
	same(t, want, got[69:])
	check(t, rows.Update(0, none, tupleOf(t, "1", "1", unsent)))
	for i := range 70 {
		check(t, rows.Insert(tupleOf(t, strconv.Itoa(i), null, null)))
	}
	if b = rows.Take(); !b.IsUnchanged(2, 0) || b.IsUnchanged(2, 70) || len(b.Unchanged[2]) != 2 {
		t.Errorf("marks of %d rows: %v", b.NumRows(), b.Unchanged)
	}
	check(t, rows.Update(0, none, tupleOf(t, "1", "1", "x")))
	if b := rows.Take(); b.Unchanged != nil || b.Old != nil {
		t.Errorf("marks of the batch before: %+v", b)
	}
}

// A row whose key does not come is never taken for a row with a null key.
// case C030.
func TestKeyNotSent(t *testing.T) {
	for name, add := range map[string]func(r *pgoutput.Rows) error{
		"delete": func(r *pgoutput.Rows) error { return r.Delete('K', tupleOf(t, null, null, "x")) },
		"update": func(r *pgoutput.Rows) error {
			return r.Update('K', tupleOf(t, null, null, "x"), tupleOf(t, "1", null, "y"))
		},
		"unchanged": func(r *pgoutput.Rows) error { return r.Update(0, pgoutput.Tuple{}, tupleOf(t, unsent, "2", "y")) },
	} {
		rows := docs(t, 0)
		check(t, rows.Insert(tupleOf(t, "1", null, null)))
		if err := add(rows); !errors.Is(err, pgoutput.ErrKey) || !strings.Contains(err.Error(), `"id"`) {
			t.Errorf("%s: error %v", name, err)
		}
		check(t, rows.Insert(tupleOf(t, "2", null, null)))
		same(t, []string{`insert {"id":1,"n":null,"doc":null}`, `insert {"id":2,"n":null,"doc":null}`}, changes(rows.Take()))
	}
	rows := docs(t, 1) // of a whole row, null is the key's value
	check(t, rows.Delete('O', tupleOf(t, "1", null, "x")), rows.Update('O', tupleOf(t, "1", null, "x"), tupleOf(t, "1", "2", "x")))
	if n := rows.Len(); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// A change whose row the columns can't hold is set aside; of the row before only the key counts.
// cases C001, C105.
func TestRowsSetAside(t *testing.T) {
	none := pgoutput.Tuple{}
	for name, c := range map[string]struct {
		key  []int
		add  func(r *pgoutput.Rows) error
		want []string
	}{
		"insert": {[]int{0}, func(r *pgoutput.Rows) error { return r.Insert(tupleOf(t, "1", "NaN", "x")) }, []string{
			`reject public.docs {"id":1} "n" not_representable "NaN" {"id":1,"n":"NaN","doc":"x"}`,
		}},
		"binary": {[]int{0}, func(r *pgoutput.Rows) error {
			return r.Insert(tupleOf(t, "1", inBinary("\x00\x00\x00\x00\xc0\x00\x00\x00"), "x"))
		}, []string{`reject public.docs {"id":1} "n" not_representable "NaN" {"id":1,"n":"NaN","doc":"x"}`}},
		"not UTF-8": {[]int{0}, func(r *pgoutput.Rows) error { return r.Insert(tupleOf(t, "1", "2", "a\xffb")) }, []string{
			`reject public.docs {"id":1} "doc" not_representable "a\xffb" {"id":1,"n":2,"doc":"a` + "\ufffd" + `b"}`,
		}},
		"update, what was not sent is left out": {[]int{0}, func(r *pgoutput.Rows) error {
			return r.Update('K', tupleOf(t, "1", null, null), tupleOf(t, "2", "0.001", unsent))
		}, []string{`reject public.docs {"id":2} "n" not_representable "0.001" {"id":2,"n":0.001}`}},
		"update that repairs": {[]int{0}, func(r *pgoutput.Rows) error {
			return r.Update('O', tupleOf(t, "1", "NaN", "x"), tupleOf(t, "1", "3", unsent))
		}, []string{`update {"id":1,"n":3.00,"doc":"x"} before {"id":1,"n":null,"doc":"x"}`}},
		"delete of a row that was set aside": {[]int{0}, func(r *pgoutput.Rows) error {
			return r.Delete('O', tupleOf(t, "1", "NaN", "x"))
		}, []string{`delete {"id":1,"n":null,"doc":"x"}`}},
		"the key": {[]int{1, 0}, func(r *pgoutput.Rows) error { return r.Delete('K', tupleOf(t, "1", "NaN", null)) }, []string{
			`reject public.docs {"n":"NaN","id":1} "n" not_representable "NaN" {"id":1,"n":"NaN"}`,
		}},
		"the key before": {[]int{1, 0}, func(r *pgoutput.Rows) error {
			return r.Update('K', tupleOf(t, "1", "NaN", null), tupleOf(t, "1", "3", "x"))
		}, []string{`reject public.docs {"n":3,"id":1} "n" not_representable "NaN" {"id":1,"n":3,"doc":"x"}`}},
		"without a key every column counts": {nil, func(r *pgoutput.Rows) error {
			return r.Delete('O', tupleOf(t, "1", "NaN", "x"))
		}, []string{`reject public.docs  "n" not_representable "NaN" {"id":1,"n":"NaN","doc":"x"}`}},
		"both images fail": {[]int{0}, func(r *pgoutput.Rows) error {
			return r.Update('O', tupleOf(t, "1", "NaN", "x"), tupleOf(t, "1", "-Infinity", "y"))
		}, []string{`reject public.docs {"id":1} "n" not_representable "-Infinity" {"id":1,"n":"-Infinity","doc":"y"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			rows := docs(t, c.key...)
			check(t, c.add(rows))
			b := rows.Take()
			same(t, c.want, changes(b))
			if b.Changes != 1 || b.Size == 0 {
				t.Errorf("%d changes of %d bytes", b.Changes, b.Size)
			}
			// Around other rows, and after the batch, nothing of it is left.
			want := append([]string{`insert {"id":7,"n":1.00,"doc":"a"}`}, `update {"id":8,"n":2.00,"doc":"b"}`)
			check(t, rows.Insert(tupleOf(t, "7", "1", "a")), c.add(rows), rows.Update(0, none, tupleOf(t, "8", "2", "b")))
			var got []string
			for _, line := range changes(rows.Take()) {
				line, _, _ = strings.Cut(line, ` before {"id":null`)
				if !strings.HasPrefix(line, "reject") && !strings.Contains(line, `"id":1,`) {
					got = append(got, line)
				}
			}
			same(t, want, got)
			check(t, rows.Update('O', tupleOf(t, "7", "1", "a"), tupleOf(t, "7", "2", "b")))
			same(t, []string{`update {"id":7,"n":2.00,"doc":"b"} before {"id":7,"n":1.00,"doc":"a"}`}, changes(rows.Take()))
		})
	}
}

// What the stream should never hold is an error that says where, and leaves nothing behind.
func TestRowsRefuse(t *testing.T) {
	none := pgoutput.Tuple{}
	for name, c := range map[string]struct {
		add  func(r *pgoutput.Rows) error
		is   error
		want string
	}{
		"too few columns":  {func(r *pgoutput.Rows) error { return r.Insert(tupleOf(t, "1", "2")) }, pgoutput.ErrColumns, "public.docs"},
		"too many before":  {func(r *pgoutput.Rows) error { return r.Update('O', tupleOf(t, "1"), tupleOf(t, "1", "2", "3")) }, pgoutput.ErrColumns, "public.docs"},
		"binary":           {func(r *pgoutput.Rows) error { return r.Insert(tupleOf(t, "1", "2", inBinary("x"))) }, pgoutput.ErrBinary, `"doc"`},
		"text":             {func(r *pgoutput.Rows) error { return r.Insert(tupleOf(t, "1", "two", "x")) }, nil, `"n": "two" is not how the server prints`},
		"binary of a size": {func(r *pgoutput.Rows) error { return r.Insert(tupleOf(t, inBinary("\x01"), "2", "x")) }, nil, `"id"`},
		"text of the before": {func(r *pgoutput.Rows) error {
			return r.Update('O', tupleOf(t, "1", "two", "x"), tupleOf(t, "1", "2", "x"))
		}, nil, `"n"`},
		"set aside, and malformed": {func(r *pgoutput.Rows) error { return r.Update(0, none, tupleOf(t, "x", "NaN", "x")) }, nil, `"id"`},
		"malformed behind a refusal": {func(r *pgoutput.Rows) error {
			return r.Insert(tupleOf(t, "1", "NaN", inBinary("x")))
		}, pgoutput.ErrBinary, `"doc"`},
	} {
		rows := docs(t, 0)
		check(t, rows.Insert(tupleOf(t, "1", null, null)))
		err := c.add(rows)
		if err == nil || (c.is != nil && !errors.Is(err, c.is)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", name, err)
		}
		check(t, rows.Insert(tupleOf(t, "2", null, null)))
		b := rows.Take()
		if n := b.NumRows(); n != 2 || b.Changes != 2 || len(b.Rejects) > 0 || b.Old != nil {
			t.Errorf("%s: %d rows, %d changes, %v", name, n, b.Changes, b.Rejects)
		}
	}
}

// Columns of the relation go where they are told, in any order, or nowhere; each column of the schema has one source.
func TestColumns(t *testing.T) {
	fields := []arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int32}, {Name: "b", Type: arrow.BinaryTypes.String, Nullable: true}}
	s := &record.Schema{Dataset: "d", Columns: arrow.NewSchema(fields, nil), Key: []int{0}}
	number, text := pgcopy.Type{Form: pgcopy.Int4}, pgcopy.Type{Form: pgcopy.Raw}
	rows, err := pgoutput.NewRows(s, []pgoutput.RowColumn{{Target: 1, Type: text}, {Target: -1}, {Target: 0, Type: number}}, pgoutput.Options{})
	if err != nil {
		t.Fatal(err)
	}
	check(t, rows.Insert(tupleOf(t, "x", inBinary("whatever"), "1")), rows.Update('O', tupleOf(t, "y", unsent, "1"), tupleOf(t, unsent, unsent, "2")))
	same(t, []string{`insert {"a":1,"b":"x"} before {"a":null,"b":null}`, `update {"a":2,"b":"y"} before {"a":1,"b":"y"}`}, changes(rows.Take()))
	for name, columns := range map[string][]pgoutput.RowColumn{
		"nothing for b":      {{Target: 0, Type: number}},
		"two for b":          {{Target: 0, Type: number}, {Target: 1, Type: text}, {Target: 1, Type: text}},
		"a column too far":   {{Target: 0, Type: number}, {Target: 1, Type: text}, {Target: 2, Type: text}},
		"no way from a wire": {{Target: 0, Type: text}, {Target: 1, Type: text}},
		"no wire":            {{Target: 0, Type: number}, {Target: 1}},
	} {
		if _, err := pgoutput.NewRows(s, columns, pgoutput.Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
