package postgres_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/record"
)

// parityType is a type and values at its edges.
type parityType struct {
	sql    string
	text   bool // the stream can't have it in the binary form
	values []string
}

func parityTypes() []parityType {
	long := strings.Repeat("long ", 3000)
	return []parityType{
		{"bool", false, []string{"t", "f"}},
		{"int2", false, []string{"-32768", "32767"}},
		{"int4", false, []string{"-2147483648", "2147483647"}},
		{"int8", false, []string{"-9223372036854775808", "9223372036854775807"}},
		{"float4", false, []string{"0.1", "NaN", "-Infinity", "1e-45", "3.4028235e38", "-0"}},
		{"float8", false, []string{"0.1", "NaN", "Infinity", "5e-324", "1.7976931348623157e308", "-0", "1e21", "1e-7"}},
		{"numeric", false, []string{"NaN", "Infinity", "-Infinity", "0.0", "98765432109876543210987654321098765432109.5", "1e-40", "10000", "-0.0001"}},
		{"numeric(12,2)", false, []string{"1.5", "-9999999999.99", "0"}},
		{"numeric(50,10)", false, []string{"1234567890123456789012345678901234567890.0123456789", "-1"}},
		{"numeric(3,-2)", false, []string{"12300", "-100"}},
		{"numeric(100,10)", false, []string{"1", "-1e80"}},
		{"price", false, []string{"1.5", "-9999.99"}},
		{"prices", false, []string{"{1.5,NULL}", "{}"}},
		{"price[]", false, []string{"{1.5,NULL}", "{{1},{2}}"}},
		{"mood", false, []string{"0", "it's", "two words"}},
		{"mood[]", false, []string{`{"it's",NULL,0}`}},
		{"text", false, []string{"", "a\tb\nc\\N", `it's "quoted"`, "\u00e9\U0001F600", long}},
		{"varchar(20)", false, []string{" a ", ""}},
		{"char(5)", false, []string{"ab", "", "é"}},
		{"name", false, []string{"ab"}},
		{`"char"`, true, []string{"x", ""}},
		{"bytea", false, []string{`\x00ff5c`, "", `\x` + strings.Repeat("00ab", 6000)}},
		{"uuid", false, []string{"01234567-89ab-cdef-0123-456789abcdef", "ffffffff-ffff-ffff-ffff-ffffffffffff"}},
		{"json", false, []string{`{ "a":1,"a":2}`, `"x\u0000y"`, "null", "1e400"}},
		{"jsonb", false, []string{`{"b":1,"a":1.0}`, "null", "[]", `"` + long + `"`}},
		{"date", false, []string{"-infinity", "infinity", "0044-03-15 BC", "15000-06-01", "0001-01-01", "4713-01-01 BC", "5874897-12-31"}},
		{"time", false, []string{"24:00:00", "00:00:00", "01:02:03.000001"}},
		{"time(3)", false, []string{"24:00:00", "01:02:03.5"}},
		{"timetz", true, []string{"01:02:03.5+05:45", "24:00:00-15:59"}},
		{"timestamp", false, []string{"infinity", "-infinity", "0044-03-15 01:02:03 BC", "1969-12-31 23:59:59.999999", "12345-06-07 08:09:10"}},
		{"timestamptz", false, []string{"2026-01-01 00:00:00.123456+02", "infinity", "0001-01-01 00:00:00+00 BC", "9999-12-31 23:59:59.999999+00"}},
		{"timestamptz(0)", false, []string{"2026-01-01 00:00:00.9+02"}},
		{"interval", false, []string{"1 mon -1 day 00:00:00.000001", "-13 mons", "0", "100 years 25:51:51.5", "-00:00:01"}},
		{"bit(3)", false, []string{"101", "000"}},
		{"varbit", false, []string{"", "1", "111111111"}},
		{"inet", false, []string{"10.1.2.3/8", "10.1.2.3", "::1", "2001:db8::/32"}},
		{"cidr", false, []string{"10.0.0.0/8", "10.1.2.3", "::/0"}},
		{"macaddr", false, []string{"08:00:2b:01:02:03"}},
		{"macaddr8", false, []string{"08:00:2b:01:02:03:04:05"}},
		{"int4range", true, []string{"[1,5]", "empty", "(,)"}},
		{"int4range[]", true, []string{`{"[1,5]",NULL}`}},
		{"tstzrange", true, []string{"[2026-01-01 00:00+02,infinity)"}},
		{"int4multirange", true, []string{"{[1,2],[5,7]}", "{}"}},
		{"pair", true, []string{`(1,"a,b")`, "(,)"}},
		{"citext", false, []string{"MiXed", ""}},
		{"citext[]", false, []string{"{MiXed,NULL}"}},
		{"hstore", true, []string{`a=>1,b=>NULL`, ""}},
		{"ltree", true, []string{"a.b"}},
		{"xml", true, []string{"<a>1</a>"}},
		{"tsvector", true, []string{"b:1A a", ""}},
		{"money", true, []string{"-12.34"}},
		{"pg_lsn", true, []string{"16/B374D848"}},
		{"oid", true, []string{"4294967295"}},
		{"xid8", true, []string{"18446744073709551615"}},
		{"point", true, []string{"(0.1,2)", "(NaN,Infinity)"}},
		{"text[]", false, []string{`{"a,b","c\"d",""}`, `[0:1]={x,NULL}`, `{"NULL","{}"," x "}`}},
		{"int4[]", false, []string{"{{1,2},{3,4}}", "{}", "[-1:0][5:5]={{1},{NULL}}"}},
		{"bytea[]", false, []string{`{"\\x00",NULL}`}},
		{"timestamptz[]", false, []string{`{"2026-01-01 00:00+02",infinity,NULL}`}},
		{"numeric[]", false, []string{"{1.50,NaN,NULL}"}},
		{"numeric(6,2)[]", false, []string{"{1.5,NULL}"}},
		{"bool[]", false, []string{"{t,f,NULL}"}},
		{"float8[]", false, []string{"{0.1,-0,NaN}"}},
		{"json[]", false, []string{`{"{\"a\": [1]}",NULL}`}},
		{"uuid[]", false, []string{"{01234567-89ab-cdef-0123-456789abcdef}"}},
		{"inet[]", false, []string{"{10.1.2.3/8,::1}"}},
		{"interval[]", false, []string{`{"1 mon -1 day",00:00:01}`}},
		{"box[]", true, []string{"{(1,1),(0,0);(2,2),(1,1)}"}},
		{"int2vector", true, []string{"1 2"}},
	}
}

// parityTable makes a table of the types and fills it: a row for each value, and one without any.
func parityTable(name string, types []parityType) []string {
	columns, rows := []string{"id int PRIMARY KEY", "n int"}, 0
	for i, c := range types {
		columns = append(columns, fmt.Sprintf("v%02d %s", i, c.sql))
		rows = max(rows, len(c.values))
	}
	out := []string{fmt.Sprintf("CREATE TABLE %s (%s)", name, strings.Join(columns, ", "))}
	values := []string{}
	for r := range rows {
		row := []string{strconv.Itoa(r + 1), "0"}
		for _, c := range types {
			row = append(row, fmt.Sprintf("'%s'::%s", strings.ReplaceAll(c.values[r%len(c.values)], "'", "''"), c.sql))
		}
		values = append(values, "("+strings.Join(row, ", ")+")")
	}
	out = append(out, fmt.Sprintf("INSERT INTO %s VALUES %s", name, strings.Join(values, ", ")), fmt.Sprintf("INSERT INTO %s (id) VALUES (0)", name))
	return out
}

// parityRows are rows with all their values, by key: what chunks have, or what the stream has made of them. A value that the stream did
// not send is the one that the row had before.
type parityRows struct {
	rows    map[string]map[string]string
	schemas map[*record.Schema]bool
	rejects []string
	unsent  int // values
	before  int // images of rows before a change
}

func newParityRows() *parityRows {
	return &parityRows{rows: map[string]map[string]string{}, schemas: map[*record.Schema]bool{}}
}

// begin takes all of a batch but its rows.
func (p *parityRows) begin(b *record.Batch) {
	p.schemas[b.Schema] = true
	for _, r := range b.Rejects {
		p.rejects = append(p.rejects, fmt.Sprintf("%s %s %s %s", r.Key, r.Column, r.Value, r.Raw))
	}
}

// take takes a row of a batch. It reports false for the end of a row that was set aside: that is sent, since an older value of it may have
// been carried.
func (p *parityRows) take(t *testing.T, b *record.Batch, i int) bool {
	t.Helper()
	key := string(record.AppendText(nil, b.Rows.Column(0), i))
	row, before := parityRow(b.Rows, i), p.rows[key]
	if b.Op(i) == record.Delete && before == nil {
		return false
	}
	for c := range int(b.Rows.NumCols()) {
		if b.IsUnchanged(c, i) {
			row[b.Rows.ColumnName(c)] = before[b.Rows.ColumnName(c)]
			p.unsent++
		}
	}
	p.rows[key] = row
	switch {
	case b.Op(i) == record.Delete:
		p.image(t, "deleted", before, row)
		delete(p.rows, key)
	case b.Old != nil && !b.Old.Column(0).IsNull(i):
		p.image(t, "updated", before, parityRow(b.Old, i))
	}
	return true
}

// image compares what the stream says of a row before a change with what it was.
func (p *parityRows) image(t *testing.T, what string, was, image map[string]string) {
	t.Helper()
	p.before++
	if diff := cmp.Diff(was, image); diff != "" {
		t.Errorf("the image of a row that was %s (-was +image):\n%s", what, diff)
	}
}

func parityRow(rows arrow.RecordBatch, i int) map[string]string {
	row := map[string]string{}
	for c, col := range rows.Columns() {
		row[rows.ColumnName(c)] = "NULL"
		if !col.IsNull(i) {
			row[rows.ColumnName(c)] = col.DataType().Name() + " " + string(record.AppendText(nil, col, i))
		}
	}
	return row
}

// parity is a database with tables of all types that were filled, changed and emptied in steps, and what chunks had after each.
type parity struct {
	*follower
	tables map[string][]parityType
	steps  []map[string]*parityRows
}

func newParity(t *testing.T) *parity {
	t.Helper()
	create := []string{
		`CREATE EXTENSION citext`, `CREATE EXTENSION hstore`, `CREATE EXTENSION ltree`,
		`CREATE TYPE mood AS ENUM ('1', 'it''s', '0', 'two words')`, `CREATE DOMAIN price AS numeric(6,2)`, `CREATE DOMAIN prices AS price[]`,
		`CREATE TYPE pair AS (a int, b text)`, `CREATE TABLE aside (id int PRIMARY KEY, n int, d numeric(12,2), t timestamptz)`,
	}
	for _, set := range []string{
		"intervalstyle = sql_standard", "datestyle = ''German, DMY''", "timezone = ''Asia/Kathmandu''", "bytea_output = escape",
		"xmlbinary = hex", "extra_float_digits = 0",
	} {
		create = append(create, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET `+set+`', current_database()); END $$`)
	}
	fill := []string{`INSERT INTO aside VALUES (1, 0, 1, 'now'), (2, 0, 'NaN', '2026-01-01Z'), (3, 0, 3, '294276-12-31Z')`}
	p := &parity{tables: map[string][]parityType{"aside": nil}}
	for _, c := range parityTypes() {
		name := "exact"
		if c.text {
			name = "texts"
		}
		p.tables[name] = append(p.tables[name], c)
	}
	var rotate []string
	for name, types := range p.tables {
		if types == nil {
			continue
		}
		sql := parityTable(name, types)
		create, fill = append(create, sql[0]), append(fill, sql[1:]...)
		columns := make([]string, len(types))
		for i, c := range types {
			columns[i] = fmt.Sprintf("v%02d", i)
			if slices.Contains([]string{"text", "bytea", "jsonb"}, c.sql) {
				create = append(create, fmt.Sprintf("ALTER TABLE %s ALTER %s SET STORAGE EXTERNAL", name, columns[i]))
			}
		}
		rotate = append(rotate, fmt.Sprintf(`UPDATE %[1]s t SET (n, %[2]s) =
			(SELECT 2, %[2]s FROM %[1]s o WHERE o.id = (t.id + 1) %% (SELECT count(*) FROM %[1]s))`, name, strings.Join(columns, ", ")))
	}
	p.follower = newFollower(t, nil, create...)
	p.step(t, fill...)
	p.step(t, p.each(`UPDATE %s SET n = 1`)...)
	p.step(t, append(rotate, `UPDATE aside SET n = 2`)...)
	p.step(t, append(p.each(`ALTER TABLE %s REPLICA IDENTITY FULL`), p.each(`UPDATE %s SET n = 3`)...)...)
	p.step(t, p.each(`DELETE FROM %s`)...)
	return p
}

func (p *parity) each(format string) (out []string) {
	for name := range p.tables {
		out = append(out, fmt.Sprintf(format, name))
	}
	return out
}

// step changes the tables and reads them.
func (p *parity) step(t *testing.T, statements ...string) {
	t.Helper()
	must(t, p.conn, statements...)
	chunks, src := map[string]*parityRows{}, p.open(t, nil)
	for name := range p.tables {
		chunks[name] = newParityRows()
		for _, b := range snapshotOf(t, src, "public."+name) {
			chunks[name].begin(b)
			for i := range b.NumRows() {
				chunks[name].take(t, b, i)
			}
		}
	}
	p.steps = append(p.steps, chunks)
}

// changes is how many changes of a table the stream has of each step: each changes every row that can be carried.
func (p *parity) changes(name string) (out []int, total int) {
	for i, s := range p.steps {
		n := len(s[name].rows)
		if i == len(p.steps)-1 {
			n = out[i-1]
		}
		out, total = append(out, n), total+n
	}
	return out, total
}

// A row is the same, value by value and column by column, whether a chunk has it or the stream: when it is inserted, updated with and
// without its large values being sent, as the image before an update and a delete; in the text form and in the binary one, whatever the
// settings of the database say about texts. Both set the same rows aside.
// cases C001, C002, C026, C027, C029, C030, C031.
func TestParity(t *testing.T) {
	p := newParity(t)
	for mode, options := range map[string]map[string]string{
		"binary": {"binary": "on", "tables": "exact,aside"}, "text": {"binary": "off"}, "auto": nil, "auto, all binary": {"tables": "exact"},
	} {
		t.Run(mode, func(t *testing.T) {
			g, total := p.start(t, record.Position{}, options), 0
			var names []string
			for name := range p.tables {
				if only := options["tables"]; only == "" || strings.Contains(only, name) {
					_, n := p.changes(name)
					names, total = append(names, name), total+n
				}
			}
			g.until(t, total)
			for _, name := range names {
				p.compare(t, g, name)
			}
		})
	}
}

// compare follows the changes of a table step by step.
func (p *parity) compare(t *testing.T, g *generation, name string) {
	t.Helper()
	want, _ := p.changes(name)
	step, seen, got := 0, 0, newParityRows()
	for _, b := range g.batches {
		if b.Schema == nil || b.Schema.Dataset != "public."+name {
			continue
		}
		got.begin(b)
		for i := range b.NumRows() {
			if !got.take(t, b, i) {
				continue
			}
			if seen++; seen < want[step] {
				continue
			}
			if diff := cmp.Diff(p.steps[step][name].rows, got.rows); diff != "" {
				t.Errorf("%s after step %d (-chunk +stream):\n%s", name, step, diff)
			}
			step, seen = step+1, 0
		}
	}
	var rejects []string
	for _, s := range p.steps {
		rejects = append(rejects, s[name].rejects...)
	}
	if diff := cmp.Diff(rejects, got.rejects); diff != "" {
		t.Errorf("%s: rows that were set aside (-chunks +stream):\n%s", name, diff)
	}
	full := want[len(want)-2] + want[len(want)-1]
	if got.before != full || (name == "exact" && got.unsent == 0) {
		t.Errorf("%s: %d images before a change, want %d; %d values that were not sent", name, got.before, full, got.unsent)
	}
	for _, b := range snapshotOf(t, g.src, "public."+name) {
		if len(got.schemas) != 1 || !got.schemas[b.Schema] {
			t.Errorf("%s: the stream has %d schemas, and not the one of the chunk", name, len(got.schemas))
		}
		for s := range got.schemas {
			if !slices.Equal(s.Key, b.Schema.Key) || !s.Columns.Equal(b.Schema.Columns) {
				t.Errorf("%s: the stream has the columns %s, the chunk %s", name, s.Columns, b.Schema.Columns)
			}
		}
	}
}
