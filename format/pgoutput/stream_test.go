package pgoutput_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/format/pgoutput"
	"github.com/leatdata/leat/record"
)

// Values that nobody thought of are the same from the stream and from a COPY too.
// cases C001, C002, C012, C016.
func TestRandomValues(t *testing.T) {
	list := []column{
		{"float4", form(pgcopy.Float4), arrow.PrimitiveTypes.Float32, false, nil},
		{"float8", form(pgcopy.Float8), arrow.PrimitiveTypes.Float64, false, nil},
		{"numeric", form(pgcopy.Numeric), record.NumericType(), false, nil},
		{"numeric(38,9)", form(pgcopy.Numeric), &arrow.Decimal128Type{Precision: 38, Scale: 9}, false, nil},
		{"numeric(76,50)", form(pgcopy.Numeric), &arrow.Decimal256Type{Precision: 76, Scale: 50}, false, nil},
		{"date", form(pgcopy.Date), record.InfiniteDateType(), false, nil},
		{"timestamptz", form(pgcopy.Timestamp), record.InfiniteTimestampType(true), false, nil},
		{"interval", form(pgcopy.Interval), record.IntervalType(), false, nil},
		{"text[]", pgcopy.ArrayOf(form(pgcopy.Raw), 25), record.ArrayType(arrow.BinaryTypes.String, 1), false, nil},
		{"inet", form(pgcopy.Network), record.NetworkType("inet"), false, nil},
		{"uuid", form(pgcopy.UUID), record.UUIDType(), false, nil},
	}
	create, _ := wideRows(list)
	w := newWorld(t, create)
	w.exec(`INSERT INTO wide SELECT i, (random() - 0.5) * 10 ^ (random() * 70 - 35), (random() - 0.5) * 10 ^ (random() * 600 - 300),
		(random() - 0.5)::numeric * 10::numeric ^ (random() * 80 - 40)::int, (random() - 0.5)::numeric * 10::numeric ^ (random() * 25)::int,
		(random() - 0.5)::numeric * 10::numeric ^ (random() * 20)::int * random()::numeric, '4713-01-01 BC'::date + (random() * 2e6)::int,
		'4713-06-01 BC'::timestamptz + random() * 290000 * interval '365 days' + random() * interval '1 year',
		make_interval(months => ((random() - 0.5) * 30)::int, days => ((random() - 0.5) * 30)::int, secs => (random() - 0.5) * 10 ^ (random() * 12)),
		ARRAY(SELECT CASE WHEN random() < 0.1 THEN NULL ELSE
			(SELECT string_agg(substr(E'ab{}"\\,; NULLü\n', 1 + (random() * 14)::int, 1), '') FROM generate_series(1, (random() * 6)::int + j * 0) k) END
			FROM generate_series(1, (random() * 5)::int + i * 0) j),
		CASE WHEN random() < 0.5 THEN '0.0.0.0'::inet + (random() * 4294967295)::bigint
			ELSE set_masklen('::'::inet + (random() * 9e18)::bigint, (random() * 128)::int) END,
		gen_random_uuid()
		FROM generate_series(1, 3000) i`)
	for _, inBinary := range []bool{false, true} {
		tab := wideTable(w, list, inBinary)
		rows, err := pgoutput.NewRows(tab.schema, tab.columns, pgoutput.Options{})
		check(t, err)
		w.follow("wide", rows, 1, w.peek(1, "binary", strconv.FormatBool(inBinary)))
		sameBits(t, "UTC", list, w.copyOut(tab.schema, tab.types, tab.query), rows.Take())
	}
}

// Rows that a column can't hold are set aside alike, whichever way they come.
// cases C001, C012, C105.
func TestSetAsideAlike(t *testing.T) {
	list := []column{
		{"numeric(12,2)", form(pgcopy.Numeric), &arrow.Decimal128Type{Precision: 12, Scale: 2}, false, []string{"1.5", "NaN", "2"}},
		{"numeric", form(pgcopy.Numeric), &arrow.Decimal128Type{Precision: 12, Scale: 2}, false, []string{"1", "1", "3.005", "1e30", "-Infinity", "-1e-3"}},
		{"timestamp", form(pgcopy.Timestamp), record.InfiniteTimestampType(false), false, []string{"2026-01-01", "294276-12-31 23:59:59.999999", "infinity"}},
		{"timestamptz", form(pgcopy.Timestamp), record.InfiniteTimestampType(true), false, []string{"294247-01-10 04:00:54.775807+00", "2026-01-01 00:00:00+02"}},
		{"timestamp", form(pgcopy.Timestamp), &arrow.TimestampType{Unit: arrow.Microsecond}, false, []string{"2026-01-01 00:00:00", "infinity"}},
		{"date", form(pgcopy.Date), arrow.FixedWidthTypes.Date32, false, []string{"2026-01-01", "-infinity", "5874897-12-31"}},
		{
			"numeric[]", pgcopy.ArrayOf(form(pgcopy.Numeric), 1700), record.ArrayType(&arrow.Decimal128Type{Precision: 5, Scale: 1}, 1), false,
			[]string{"{1.5,NULL}", "{{4.5},{NaN}}", "[0:0]={1.005}"},
		},
		{"interval", form(pgcopy.Interval), record.IntervalType(), false, []string{"1 day"}},
		{"text", form(pgcopy.Raw), arrow.BinaryTypes.String, false, nil},
	}
	create, _ := wideRows(list)
	w := newWorld(t, create)
	refused := 11
	if w.version >= 17 {
		list[7].values, refused = append(list[7].values, "infinity", "-infinity"), 13
	}
	for c, n := 0, 0; c < len(list); c++ {
		for _, v := range list[c].values {
			n++
			w.exec(fmt.Sprintf("INSERT INTO wide (n, c%d, c8) VALUES (%d, '%s', 'x')", c, n, v))
		}
	}
	tab := wideTable(w, list, true)
	want := w.copyOut(tab.schema, tab.types, tab.query)
	if len(want.Rejects) != refused {
		t.Fatalf("%d rows are set aside, not %d: %v", len(want.Rejects), refused, want.Rejects)
	}
	for _, inBinary := range []bool{false, true} {
		rows, err := pgoutput.NewRows(tab.schema, tab.columns, pgoutput.Options{})
		check(t, err)
		w.follow("wide", rows, 1, w.peek(1, "binary", strconv.FormatBool(inBinary)))
		got := rows.Take()
		if diff := cmp.Diff(want.Rejects, got.Rejects); diff != "" {
			t.Errorf("binary %t: rejects (-COPY +stream):\n%s", inBinary, diff)
		}
		sameBits(t, "UTC", list, want, got)
	}
}

// In text form only what is read is understood: other settings of the session are errors, not other values.
func TestOtherSettings(t *testing.T) {
	list := []column{
		{"bytea", form(pgcopy.Raw), arrow.BinaryTypes.Binary, false, []string{`\x00ff`}},
		{"date", form(pgcopy.Date), record.InfiniteDateType(), false, []string{"2026-02-03"}},
		{"timestamptz", form(pgcopy.Timestamp), record.InfiniteTimestampType(true), false, []string{"2026-02-03 01:02:03"}},
		{"interval", form(pgcopy.Interval), record.IntervalType(), false, []string{"1 year -2 days 03:04:05"}},
	}
	create, insert := wideRows(list)
	w := newWorld(t, create)
	w.exec(insert)
	tab := wideTable(w, list, false)
	for _, set := range []string{
		"bytea_output = escape", "DateStyle = 'Postgres, DMY'", "DateStyle = 'SQL, MDY'", "DateStyle = 'German'", "IntervalStyle = iso_8601",
		"IntervalStyle = sql_standard", "IntervalStyle = postgres_verbose",
	} {
		w.exec(settings, "SET "+set)
		rows, err := pgoutput.NewRows(tab.schema, tab.columns, pgoutput.Options{})
		check(t, err)
		for _, m := range w.peek(1) {
			if _, ok, _ := pgoutput.ParseChange(m, false); ok && err == nil {
				err = feed(rows, m)
			}
		}
		if err == nil || !strings.Contains(err.Error(), "is not how the server prints") || rows.Len() > 1 {
			t.Errorf("%s: error %v, %d rows", set, err, rows.Len())
		}
	}
}

// identities has the same table under each replica identity: a key, a second unique column, a number and a document out of line.
func identities(t *testing.T) *world {
	t.Helper()
	var ddl []string
	for _, name := range []string{"def", "whole", "idx"} {
		ddl = append(ddl, "CREATE TABLE "+name+" (id int PRIMARY KEY, code text NOT NULL, n int, doc text)", "CREATE UNIQUE INDEX "+name+"_code ON "+name+" (code)",
			"ALTER TABLE "+name+" ALTER doc SET STORAGE EXTERNAL")
	}
	w := newWorld(t, append(ddl, "ALTER TABLE whole REPLICA IDENTITY FULL", "ALTER TABLE idx REPLICA IDENTITY USING INDEX idx_code")...)
	for _, name := range []string{"def", "whole", "idx"} {
		w.exec(strings.ReplaceAll(`INSERT INTO tab VALUES (1, 'a', 1, repeat('x', 20000)); UPDATE tab SET n = 2; UPDATE tab SET doc = NULL;
			UPDATE tab SET doc = repeat('y', 20000); UPDATE tab SET id = 7; UPDATE tab SET code = 'b', n = NULL; DELETE FROM tab`, "tab", name))
	}
	return w
}

// Under each replica identity, a document that did not change is known or marked, never null; the row before is what the server knows.
// cases C029, C030, C033.
func TestIdentities(t *testing.T) {
	w := identities(t)
	x, y := strings.Repeat("x", 20000), strings.Repeat("y", 20000)
	none := `{"id":null,"code":null,"n":null,"doc":null}`
	for name, c := range map[string]struct {
		key  int
		want []string
	}{
		"def": {0, []string{
			`insert {"id":1,"code":"a","n":1,"doc":"X"} before ` + none,
			`update {"id":1,"code":"a","n":2,"doc":null} before ` + none + ` not sent: doc`,
			`update {"id":1,"code":"a","n":2,"doc":null} before ` + none,
			`update {"id":1,"code":"a","n":2,"doc":"Y"} before ` + none,
			`update {"id":7,"code":"a","n":2,"doc":null} before {"id":1,"code":null,"n":null,"doc":null} not sent: doc`,
			`update {"id":7,"code":"b","n":null,"doc":null} before ` + none + ` not sent: doc`,
			`delete {"id":7,"code":null,"n":null,"doc":null} before ` + none,
		}},
		"whole": {0, []string{
			`insert {"id":1,"code":"a","n":1,"doc":"X"} before ` + none,
			`update {"id":1,"code":"a","n":2,"doc":"X"} before {"id":1,"code":"a","n":1,"doc":"X"}`,
			`update {"id":1,"code":"a","n":2,"doc":null} before {"id":1,"code":"a","n":2,"doc":"X"}`,
			`update {"id":1,"code":"a","n":2,"doc":"Y"} before {"id":1,"code":"a","n":2,"doc":null}`,
			`update {"id":7,"code":"a","n":2,"doc":"Y"} before {"id":1,"code":"a","n":2,"doc":"Y"}`,
			`update {"id":7,"code":"b","n":null,"doc":"Y"} before {"id":7,"code":"a","n":2,"doc":"Y"}`,
			`delete {"id":7,"code":"b","n":null,"doc":"Y"} before ` + none,
		}},
		"idx": {1, []string{
			`insert {"id":1,"code":"a","n":1,"doc":"X"} before ` + none,
			`update {"id":1,"code":"a","n":2,"doc":null} before ` + none + ` not sent: doc`,
			`update {"id":1,"code":"a","n":2,"doc":null} before ` + none,
			`update {"id":1,"code":"a","n":2,"doc":"Y"} before ` + none,
			`update {"id":7,"code":"a","n":2,"doc":null} before ` + none + ` not sent: doc`,
			`update {"id":7,"code":"b","n":null,"doc":null} before {"id":null,"code":"a","n":null,"doc":null} not sent: doc`,
			`delete {"id":null,"code":"b","n":null,"doc":null} before ` + none,
		}},
	} {
		for _, inBinary := range []bool{false, true} {
			rows := identityRows(t, name, c.key)
			w.follow(name, rows, 1, w.peek(1, "binary", strconv.FormatBool(inBinary)))
			var got []string
			for _, line := range changes(rows.Take()) {
				got = append(got, strings.NewReplacer(x, "X", y, "Y").Replace(line))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s, binary %t (-want +got):\n%s", name, inBinary, diff)
			}
		}
	}
	// The primary key is not what the index has: the first change that would need it is refused.
	rows := identityRows(t, "idx", 0)
	var err error
	for _, m := range w.peek(1) {
		if c, ok, _ := pgoutput.ParseChange(m, false); ok && err == nil && c.OldKind == 'K' && c.Old.Len() == 4 {
			if kind, _ := c.Old.Value(0); kind == 'n' {
				err = feed(rows, m)
			}
		}
	}
	if !errors.Is(err, pgoutput.ErrKey) {
		t.Errorf("a key outside of the replica identity: %v", err)
	}
}

func identityRows(t *testing.T, table string, key int) *pgoutput.Rows {
	t.Helper()
	fields := []arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int32},
		{Name: "code", Type: arrow.BinaryTypes.String},
		{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "doc", Type: arrow.BinaryTypes.String, Nullable: true},
	}
	var cols []pgoutput.RowColumn
	for i, f := range []pgcopy.Form{pgcopy.Int4, pgcopy.Raw, pgcopy.Int4, pgcopy.Raw} {
		cols = append(cols, pgoutput.RowColumn{Target: i, Type: form(f), Binary: true})
	}
	s := &record.Schema{Dataset: "public." + table, Columns: arrow.NewSchema(fields, nil), Key: []int{key}}
	rows, err := pgoutput.NewRows(s, cols, pgoutput.Options{})
	check(t, err)
	return rows
}

// A key that is itself out of line comes with the row before, and is never lost.
// cases C029, C030.
func TestLargeKey(t *testing.T) {
	w := newWorld(t, "CREATE TABLE big (k text PRIMARY KEY, n int)", "ALTER TABLE big ALTER k SET STORAGE EXTERNAL")
	w.exec("INSERT INTO big SELECT string_agg(md5(i::text), '' ORDER BY i), 1 FROM generate_series(1, 75) i", "UPDATE big SET n = 2")
	s := &record.Schema{Dataset: "public.big", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "k", Type: arrow.BinaryTypes.String}, {Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	}, nil)}
	rows, err := pgoutput.NewRows(s, []pgoutput.RowColumn{{Target: 0, Type: form(pgcopy.Raw)}, {Target: 1, Type: form(pgcopy.Int4)}}, pgoutput.Options{})
	check(t, err)
	messages := w.follow("big", rows, 1, w.peek(1))
	update := slices.IndexFunc(messages, func(m pgoutput.Message) bool { _, ok := m.(pgoutput.Update); return ok })
	if u, _ := messages[update].(pgoutput.Update); u.OldKind != 'K' {
		t.Fatalf("the server sent %q: this case is not what the test is about", u.OldKind)
	}
	b := rows.Take()
	if b.NumRows() != 2 || string(b.KeyJSON(0)) != string(b.KeyJSON(1)) || len(b.KeyJSON(0)) < 2400 || b.Unchanged != nil {
		t.Errorf("%.300s", changes(b))
	}
}

// A binary value of a type that is read only as text is refused, not taken for text.
// case C027.
func TestBinaryOfText(t *testing.T) {
	w := newWorld(t, "CREATE TABLE r (n int PRIMARY KEY, v int4range)")
	w.exec("INSERT INTO r VALUES (1, '[1,5]')")
	s := &record.Schema{Dataset: "public.r", Columns: arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int32}, {Name: "v", Type: foreign("int4range"), Nullable: true},
	}, nil)}
	rows, err := pgoutput.NewRows(s, []pgoutput.RowColumn{{Target: 0, Type: form(pgcopy.Int4), Binary: true}, {Target: 1, Type: form(pgcopy.Raw)}}, pgoutput.Options{})
	check(t, err)
	for _, m := range w.peek(1, "binary", "true") {
		if _, ok, _ := pgoutput.ParseChange(m, false); ok {
			err = feed(rows, m)
		}
	}
	if !errors.Is(err, pgoutput.ErrBinary) {
		t.Errorf("error %v", err)
	}
}

// kinds counts the messages of each type.
func kinds(messages []pgoutput.Message) map[string]int {
	n := map[string]int{}
	for _, m := range messages {
		n[strings.TrimPrefix(fmt.Sprintf("%T", m), "pgoutput.")]++
	}
	return n
}

// Every other message of a server is what was done there.
// case C036.
func TestMessages(t *testing.T) {
	w := newWorld(t, types[3], "CREATE TABLE a (id int PRIMARY KEY, v mood)", "CREATE TABLE b (id serial PRIMARY KEY, a int REFERENCES a)",
		"CREATE TABLE c (x numeric(10,2), y text); ALTER TABLE c REPLICA IDENTITY FULL")
	origin := "leat_" + w.slot
	w.exec("SELECT pg_replication_origin_create('"+origin+"')", "SELECT pg_replication_origin_session_setup('"+origin+"')")
	t.Cleanup(func() {
		if _, err := w.conn.Exec(context.WithoutCancel(t.Context()), "SELECT pg_replication_origin_drop('"+origin+"')"); err != nil {
			t.Errorf("dropping the origin: %v", err)
		}
	})
	w.exec(`BEGIN; SELECT pg_replication_origin_xact_setup('1/2345', '2026-01-01 00:00:00+00');
		INSERT INTO a VALUES (1, '1'); SELECT pg_logical_emit_message(true, 'in', 'it'); COMMIT`,
		"SELECT pg_replication_origin_session_reset()", "SELECT pg_logical_emit_message(false, 'out', '')",
		"TRUNCATE a, b RESTART IDENTITY CASCADE", "INSERT INTO c VALUES (1, 'x')")
	messages := w.follow("", identityRows(t, "none", 0), 1, w.peek(1, "messages", "true"))
	relations := map[string]pgoutput.Relation{}
	var began pgoutput.Begin
	for _, m := range messages {
		switch m := m.(type) {
		case pgoutput.Relation:
			relations[m.Name] = m
		case pgoutput.Begin:
			began = m
		case pgoutput.Commit:
			if m.LSN != began.FinalLSN || m.EndLSN <= m.LSN || !m.Time.Equal(began.Time) || began.XID == 0 {
				t.Errorf("%+v ends as %+v", began, m)
			}
		case pgoutput.Origin:
			if m.Name != origin || m.LSN != 0x100002345 || began.Time.UTC().String() != "2026-01-01 00:00:00 +0000 UTC" {
				t.Errorf("%+v of %+v", m, began)
			}
		case pgoutput.Type:
			if m.Namespace != "public" || m.Name != "mood" || m.ID == 0 {
				t.Errorf("%+v", m)
			}
		case pgoutput.LogicalMessage:
			if m.Transactional != (m.Prefix == "in") || (string(m.Content) == "it") != m.Transactional || m.LSN == 0 {
				t.Errorf("%+v", m)
			}
		case pgoutput.Truncate:
			if !m.Cascade || !m.RestartIdentity || len(m.Relations) != 2 || !slices.Contains(m.Relations, relations["a"].ID) {
				t.Errorf("%+v", m)
			}
		default:
		}
	}
	got := kinds(messages)
	if got["Origin"] != 1 || got["Type"] < 1 || got["LogicalMessage"] != 2 || got["Truncate"] != 1 || got["Begin"] != 3 || got["Commit"] != 3 {
		t.Errorf("%v", got)
	}
	c := relations["c"]
	want := []pgoutput.Column{{Name: "x", Type: 1700, Mod: 10<<16 + 2 + 4, Key: true}, {Name: "y", Type: 25, Mod: -1, Key: true}}
	if c.Namespace != "public" || c.Identity != 'f' || cmp.Diff(want, c.Columns) != "" {
		t.Errorf("%+v", c)
	}
	if a := relations["a"]; a.Identity != 'd' || !a.Columns[0].Key || a.Columns[1].Key {
		t.Errorf("%+v", a)
	}
}

// A transaction that is too large for the server's memory comes in blocks, with what was taken back.
func TestStreaming(t *testing.T) {
	w := newWorld(t, types[3], "CREATE TABLE s (id int PRIMARY KEY, v text, m mood)", "SET logical_decoding_work_mem = '64kB'")
	fill := "INSERT INTO s SELECT i, repeat('x', 100), '1' FROM generate_series(%d, %d) i;"
	w.exec("BEGIN; "+fmt.Sprintf(fill, 1, 2000)+" SAVEPOINT p; "+fmt.Sprintf(fill, 2001, 4000)+" ROLLBACK TO p; SELECT pg_logical_emit_message(true, 'in', 'it'); "+
		fmt.Sprintf(fill, 4001, 6000)+" UPDATE s SET v = 'y' WHERE id < 10; DELETE FROM s WHERE id = 1; COMMIT",
		"BEGIN; "+fmt.Sprintf(fill, 10001, 12000)+" ROLLBACK", "BEGIN; TRUNCATE s; "+fmt.Sprintf(fill, 1, 2000)+" COMMIT")
	versions := map[int]string{2: "on", 3: "on"}
	if w.version >= 16 {
		versions[4] = "parallel"
	}
	for version, streaming := range versions {
		messages := w.peek(version, "streaming", streaming, "messages", "true")
		inStream, block := false, uint32(0)
		last := map[uint32]map[string]int{} // of each transaction, the kinds of its messages
		for _, data := range messages {
			m, err := pgoutput.Parse(data, inStream, version)
			check(t, err)
			xid := block
			switch m := m.(type) {
			case pgoutput.StreamStart:
				inStream, block, xid = true, m.XID, m.XID
				if m.First != (last[m.XID] == nil) {
					t.Errorf("version %d: %+v", version, m)
				}
			case pgoutput.StreamStop:
				inStream = false
			case pgoutput.StreamCommit:
				xid = m.XID
				if m.EndLSN <= m.LSN || m.Time.IsZero() {
					t.Errorf("version %d: %+v", version, m)
				}
			case pgoutput.StreamAbort:
				xid = m.XID
				if (m.LSN > 0) != (version == 4) || (m.Time.Year() > 2000) != (version == 4) {
					t.Errorf("version %d: %+v", version, m)
				}
			case pgoutput.Insert:
				if m.XID == 0 || m.New.Len() != 3 {
					t.Errorf("version %d: %+v", version, m)
				}
			case pgoutput.Update:
				if m.XID == 0 {
					t.Errorf("version %d: %+v", version, m)
				}
			case pgoutput.Delete:
				if m.XID == 0 {
					t.Errorf("version %d: %+v", version, m)
				}
			case pgoutput.Relation:
				if m.XID == 0 || m.Name != "s" || len(m.Columns) != 3 {
					t.Errorf("version %d: %+v", version, m)
				}
			case pgoutput.Type:
				if m.XID == 0 || m.Name != "mood" {
					t.Errorf("version %d: %+v", version, m)
				}
			case pgoutput.LogicalMessage:
				if m.XID != block || m.Prefix != "in" {
					t.Errorf("version %d: %+v", version, m)
				}
			case pgoutput.Truncate:
				if m.XID != block || len(m.Relations) != 1 {
					t.Errorf("version %d: %+v", version, m)
				}
			default:
				t.Errorf("version %d: %+v", version, m)
			}
			if last[xid] == nil {
				last[xid] = map[string]int{}
			}
			last[xid][strings.TrimPrefix(fmt.Sprintf("%T", m), "pgoutput.")]++
		}
		var commits, aborts, truncates, rows int
		for _, n := range last {
			commits, aborts, truncates, rows = commits+n["StreamCommit"], aborts+n["StreamAbort"], truncates+n["Truncate"], rows+n["Insert"]
		}
		if commits != 2 || aborts < 1 || truncates != 1 || rows < 6000 {
			t.Errorf("version %d: %v", version, last)
		}
	}
}

// Prepared transactions come at their PREPARE, as a whole or in blocks.
func TestTwoPhase(t *testing.T) {
	w := newWorld(t, "CREATE TABLE s (id int PRIMARY KEY, v text)", "SET logical_decoding_work_mem = '64kB'")
	gid := w.slot
	w.exec("BEGIN; INSERT INTO s VALUES (1, 'x'); PREPARE TRANSACTION '"+gid+"_c'", "COMMIT PREPARED '"+gid+"_c'",
		"BEGIN; INSERT INTO s VALUES (2, 'x'); PREPARE TRANSACTION '"+gid+"_r'", "ROLLBACK PREPARED '"+gid+"_r'",
		"BEGIN; INSERT INTO s SELECT i, repeat('x', 100) FROM generate_series(10, 3000) i; PREPARE TRANSACTION '"+gid+"_s'", "COMMIT PREPARED '"+gid+"_s'")
	messages := w.follow("", identityRows(t, "none", 0), 3, w.peek(3, "two_phase", "true", "streaming", "on"))
	var began, ended []string
	for _, m := range messages {
		switch m := m.(type) {
		case pgoutput.BeginPrepare:
			began = append(began, m.GID)
			if m.XID == 0 || m.EndLSN <= m.LSN || m.Time.Year() < 2020 {
				t.Errorf("%+v", m)
			}
		case pgoutput.Prepare:
			ended = append(ended, "prepare "+strings.TrimPrefix(m.GID, gid))
		case pgoutput.StreamPrepare:
			ended = append(ended, "stream prepare "+strings.TrimPrefix(m.GID, gid))
		case pgoutput.CommitPrepared:
			ended = append(ended, "commit "+strings.TrimPrefix(m.GID, gid))
			if m.XID == 0 || m.EndLSN <= m.LSN || m.Time.Year() < 2020 {
				t.Errorf("%+v", m)
			}
		case pgoutput.RollbackPrepared:
			ended = append(ended, "rollback "+strings.TrimPrefix(m.GID, gid))
			if m.XID == 0 || m.EndLSN <= m.PrepareEndLSN || m.Time.Before(m.PrepareTime) || m.PrepareTime.Year() < 2020 {
				t.Errorf("%+v", m)
			}
		default:
		}
	}
	want := []string{"prepare _c", "commit _c", "prepare _r", "rollback _r", "stream prepare _s", "commit _s"}
	if diff := cmp.Diff(want, ended); diff != "" || !slices.Equal(began, []string{gid + "_c", gid + "_r"}) {
		t.Errorf("began %q (-want +got):\n%s", began, diff)
	}
}
