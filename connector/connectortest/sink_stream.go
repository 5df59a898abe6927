package connectortest

import (
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Unsent is the document of a column whose value the source did not send, in [Change.Row].
const Unsent = "unsent"

// Change is one change of a stream: a JSON document for each column of the schema.
type Change struct {
	Op  record.Op
	Row []string // the image after it (Delete: before it); "null" where unknown, Unsent where the source did not send the value
	Old []string // the image before it, "null" where unknown; nil: none
}

// Changes returns a batch of changes, as a source sends it. It panics where a value is not of its column's type.
func Changes(s *record.Schema, changes ...Change) *record.Batch {
	rows, olds := make([][]string, len(changes)), make([][]string, len(changes))
	b := &record.Batch{Ops: make([]record.Op, len(changes)), Changes: len(changes)}
	hasOld := false
	for i, c := range changes {
		b.Ops[i] = c.Op
		rows[i] = slices.Clone(c.Row)
		for col, doc := range c.Row {
			if doc == Unsent {
				rows[i][col] = "null"
				b.Unchanged = setBit(b.Unchanged, col, i, len(changes))
			}
		}
		olds[i] = c.Old
		if c.Old == nil {
			olds[i] = slices.Repeat([]string{"null"}, s.Columns.NumFields())
		}
		hasOld = hasOld || c.Old != nil
	}
	b.Schema, b.Rows = s, BatchOf(nullable(s), rows...).Rows
	if hasOld {
		b.Old = BatchOf(nullable(s), olds...).Rows
	}
	return b
}

func setBit(bits map[int][]uint64, col, row, rows int) map[int][]uint64 {
	const word = 64
	if bits == nil {
		bits = map[int][]uint64{}
	}
	if bits[col] == nil {
		bits[col] = make([]uint64, (rows+word-1)/word)
	}
	bits[col][row/word] |= 1 << (row % word)
	return bits
}

// nullable returns the schema with columns that may all be null: images know only a part of them.
func nullable(s *record.Schema) *record.Schema {
	fields := s.Columns.Fields()
	for i := range fields {
		fields[i].Nullable = true
	}
	return &record.Schema{Dataset: s.Dataset, Columns: arrow.NewSchema(fields, nil), Key: s.Key, Version: s.Version}
}

// ChangeStream proves that a sink in mode upsert, which takes changes, ends as the source did (E12, E15):
//
//   - three states of a value: sent, null, and not sent, which the target keeps, also across keys that move, one by one or in a chain;
//   - full images before a change (PostgreSQL: REPLICA IDENTITY FULL) complete what was not sent;
//   - keys that move, swap, or come again behind a delete, within one batch; a truncate in front of rows;
//   - an update of a row that the target lacks is written where every value is known, and refused by name otherwise;
//   - columns that are added (with the value of older rows), renamed, widened and dropped in front of the first row that needs it, also
//     when it is asked for again, and rows of an older schema than the target's;
//   - datasets without a key, if the contract says so (Keyless): equal rows one by one;
//   - random transactions over several datasets, compared with a model behind every commit, through restarts of the sink.
//
// The keys that it uses are integers and texts. A sink that keeps one dataset only has nothing to prove here.
func ChangeStream(t *testing.T, c SinkCase) {
	t.Helper()
	changeStream(t, c)
}

func changeStream(t testing.TB, c SinkCase) {
	contract, err := c.New(t).Config().Contract()
	if err != nil {
		t.Fatalf("Contract: %v", err)
	}
	if contract.Input != connector.Changelog || !slices.Contains(contract.Modes, connector.Upsert) {
		t.Fatalf("the contract has no mode upsert that takes changes")
	}
	s := &streamSuite{sinkSuite: sinkSuite{SinkCase: c, contract: contract}}
	run(t, "Unsent", s.unsent)
	run(t, "FullImages", s.fullImages)
	run(t, "MovedKeys", s.movedKeys)
	run(t, "SwappedKeys", s.swappedKeys)
	run(t, "Reinserted", s.reinserted)
	run(t, "Truncate", s.truncate)
	run(t, "MissingRow", s.missingRow)
	run(t, "Interleaved", s.interleaved)
	run(t, "Keyless", s.keyless)
	run(t, "Added", s.added)
	run(t, "Renamed", s.renamed)
	run(t, "Retyped", s.retyped)
	run(t, "Dropped", s.dropped)
	run(t, "OlderSchema", s.olderSchema)
	run(t, "Random", s.random)
}

// streamSuite is one run of the suite.
type streamSuite struct {
	sinkSuite

	messages bool // of MessageLog
}

// follow starts a sink of a new target, as the engine does for a source that is followed.
func (s *streamSuite) follow(t testing.TB) (Target, *session) {
	t.Helper()
	target := s.New(t)
	return target, s.start(t, target, request(connector.Upsert))
}

// follows is follow, and how a stream tells of a value that did not change: not at all, but where the target can't know it.
func (s *streamSuite) follows(t testing.TB) (Target, *session, func(doc string) string) {
	t.Helper()
	target, x := s.follow(t)
	return target, x, func(doc string) string {
		if s.messages {
			return doc
		}
		return Unsent
	}
}

// column is a nullable column with a stable id.
func column(id, name string, dt arrow.DataType) arrow.Field {
	return record.WithID(arrow.Field{Name: name, Type: dt, Nullable: true}, id)
}

// streamSchema is a schema whose first keys columns are its key.
func streamSchema(dataset string, keys int, fields ...arrow.Field) *record.Schema {
	s := &record.Schema{Dataset: dataset}
	for i := range keys {
		fields[i].Nullable = false
		s.Key = append(s.Key, i)
	}
	s.Columns = arrow.NewSchema(fields, nil)
	return s
}

// idAB is a schema of a key and two texts.
func idAB(dataset string) *record.Schema {
	text := arrow.BinaryTypes.String
	return streamSchema(dataset, 1, column("1", "id", arrow.PrimitiveTypes.Int64), column("2", "a", text), column("3", "b", text))
}

func row(docs ...string) []string { return docs }

func insert(docs ...string) Change { return Change{Op: record.Insert, Row: docs} }

func update(docs ...string) Change { return Change{Op: record.Update, Row: docs} }

func remove(docs ...string) Change { return Change{Op: record.Delete, Row: docs} }

// from adds the image before a change.
func (c Change) from(docs ...string) Change {
	c.Old = docs
	return c
}

// commit makes durable what was written.
func (x *session) commit(t testing.TB) {
	t.Helper()
	if err := x.settle(deadline(t), progress("r1", 1)); err != nil {
		x.end(t)
		t.Fatalf("making rows durable: %v", err)
	}
}

// ends commits, and compares what the target has with rows of the schema.
func (x *session) ends(t testing.TB, target Target, what string, s *record.Schema, rows ...[]string) {
	t.Helper()
	x.commit(t)
	if x.suite.OneOwner {
		x.end(t)
	}
	holds(t, target, what, s, BatchOf(nullable(s), rows...))
}

// unsent: a value, null, and what was not sent are three states (case C029).
func (s *streamSuite) unsent(t testing.TB) {
	target, x := s.follow(t)
	sch := idAB("unsent")
	big := `"` + strings.Repeat("large ", 4_000) + `"`
	x.write(t, Changes(sch, insert("1", `"a"`, big), insert("2", `"a"`, big), insert("3", `"a"`, `"x"`)))
	x.commit(t)
	x.write(t, Changes(sch, update("1", `"A"`, Unsent), update("2", `"A"`, Unsent), update("2", Unsent, "null"),
		update("3", Unsent, Unsent)))
	x.write(t, Changes(sch, insert("4", `"n"`, big), update("4", "null", Unsent), update("1", "null", Unsent)))
	x.ends(t, target, "values that were not sent", sch,
		row("1", "null", big), row("2", `"A"`, "null"), row("3", `"a"`, `"x"`), row("4", "null", big))
}

// fullImages: the image before completes what was not sent; where the key did not move it is no other row (case C030).
func (s *streamSuite) fullImages(t testing.TB) {
	target, x := s.follow(t)
	sch := idAB("full")
	x.write(t, Changes(sch, insert("1", `"a"`, `"b"`), insert("2", `"c"`, "null"), insert("3", `"d"`, `"e"`), insert("4", `"f"`, `"g"`)))
	x.commit(t)
	x.write(t, Changes(sch,
		update("1", `"A"`, Unsent).from("1", `"a"`, `"b"`), update("2", `"C"`, "null").from("2", `"c"`, "null"),
		remove("3", `"d"`, `"e"`), update("5", Unsent, `"h"`).from("4", `"f"`, `"g"`),
		update("9", `"Z"`, Unsent).from("9", `"y"`, `"z"`), // the target lacks it, and all of it is known
	))
	x.ends(t, target, "full images", sch, row("1", `"A"`, `"b"`), row("2", `"C"`, "null"), row("5", `"f"`, `"h"`), row("9", `"Z"`, `"z"`))
}

// movedKeys: a key that moves takes the values along that were not sent, also in a chain (case C033).
func (s *streamSuite) movedKeys(t testing.TB) {
	target, x, same := s.follows(t)
	sch := idAB("moved")
	text := arrow.BinaryTypes.String
	pair := streamSchema("pair", 2, column("1", "k", arrow.PrimitiveTypes.Int64), column("2", "l", text), column("3", "v", text))
	x.write(t, Changes(sch, insert("1", `"a"`, `"b"`), insert("2", `"c"`, `"d"`), insert("3", `"e"`, `"f"`), insert("4", `"g"`, `"h"`)))
	x.write(t, Changes(pair, insert("1", `"x"`, `"v"`), insert("1", `"y"`, `"w"`)))
	x.commit(t)
	x.write(t, Changes(sch,
		update("1001", `"a"`, `"B"`).from("1", "null", "null"),
		update("20", same(`"c"`), `"D"`).from("2", "null", "null"), // a chain
		update("21", same(`"c"`), same(`"D"`)).from("20", "null", "null"),
		update("22", `"C"`, same(`"D"`)).from("21", "null", "null"),
		update("30", same(`"e"`), same(`"f"`)).from("3", "null", "null"), // and back
		update("3", same(`"e"`), same(`"f"`)).from("30", "null", "null"),
		update("40", same(`"g"`), `"H"`).from("4", "null", "null"),
		insert("4", `"new"`, "null"), update("4", same(`"new"`), `"row"`), // another one comes
	))
	x.write(t, Changes(pair, update("1", `"z"`, same(`"w"`)).from("1", `"y"`, "null"),
		update("2", `"x"`, same(`"v"`)).from("1", `"x"`, "null")))
	x.commit(t)
	x.write(t, Changes(sch, update("23", same(`"C"`), same(`"D"`)).from("22", "null", "null"), remove("23", "null", "null"),
		update("50", same(`"g"`), same(`"H"`)).from("40", "null", "null")))
	x.ends(t, target, "moved keys", sch, row("1001", `"a"`, `"B"`), row("3", `"e"`, `"f"`), row("4", `"new"`, `"row"`),
		row("50", `"g"`, `"H"`))
	holds(t, target, "moved keys of two columns", pair, BatchOf(pair, row("1", `"z"`, `"w"`), row("2", `"x"`, `"v"`)))
}

// swappedKeys: by way of a third key, and, with full images, in one statement under a deferred constraint, where for a moment two rows
// have one key (clause E12).
func (s *streamSuite) swappedKeys(t testing.TB) {
	target, x := s.follow(t)
	sch := idAB("swapped")
	x.write(t, Changes(sch, insert("1", `"one"`, `"x"`), insert("2", `"two"`, `"y"`), insert("3", `"three"`, `"z"`)))
	x.commit(t)
	x.write(t, Changes(sch,
		update("99", Unsent, `"X"`).from("1", "null", "null"), update("1", Unsent, Unsent).from("2", "null", "null"),
		update("2", Unsent, Unsent).from("99", "null", "null")))
	x.commit(t)
	x.write(t, Changes(sch, // 1: two, y; 2: one, X; 3: three, z
		update("2", `"two"`, `"y"`).from("1", `"two"`, `"y"`), update("3", `"one"`, Unsent).from("2", `"one"`, `"X"`),
		update("1", Unsent, `"z"`).from("3", `"three"`, `"z"`)))
	x.ends(t, target, "swapped keys", sch, row("1", `"three"`, `"z"`), row("2", `"two"`, `"y"`), row("3", `"one"`, `"X"`))
}

// reinserted: what comes again behind a delete is a new row.
func (s *streamSuite) reinserted(t testing.TB) {
	target, x, same := s.follows(t)
	sch := idAB("again")
	x.write(t, Changes(sch, insert("1", `"a"`, `"b"`), insert("2", `"c"`, `"d"`)))
	x.commit(t)
	x.write(t, Changes(sch,
		remove("1", "null", "null"), insert("1", `"A"`, "null"), update("1", same(`"A"`), `"B"`),
		update("3", same(`"c"`), same(`"d"`)).from("2", "null", "null"), insert("2", "null", "null"), remove("2", "null", "null"),
		insert("4", `"x"`, "null"), remove("4", "null", "null"), insert("4", `"y"`, "null"), remove("5", "null", "null")))
	x.ends(t, target, "deleted and inserted again", sch, row("1", `"A"`, `"B"`), row("3", `"c"`, `"d"`), row("4", `"y"`, "null"))
}

// truncate: rows before it are gone, rows behind it are there, in one transaction and alone (case C036).
func (s *streamSuite) truncate(t testing.TB) {
	target, x := s.follow(t)
	sch := idAB("emptied")
	x.write(t, Changes(sch, insert("1", `"a"`, "null"), insert("2", `"b"`, "null"), insert("3", `"c"`, "null")))
	x.commit(t)
	x.write(t, Changes(sch, insert("4", `"d"`, "null"), update("1", `"A"`, Unsent)))
	behind := Changes(sch, insert("2", `"new"`, "null"), insert("6", `"f"`, "null"), update("6", Unsent, `"g"`))
	behind.Truncate = true
	x.write(t, behind)
	x.write(t, Changes(sch, update("2", Unsent, `"h"`)))
	x.ends(t, target, "rows behind a truncate", sch, row("2", `"new"`, `"h"`), row("6", `"f"`, `"g"`))

	if s.OneOwner {
		x = s.start(t, target, request(connector.Upsert))
	}
	x.write(t, &record.Batch{Schema: sch, Truncate: true})
	x.ends(t, target, "a truncate alone", sch)
}

// missingRow: an update writes what is known of a row that the target lacks; where a value is known to nobody, the row is refused.
func (s *streamSuite) missingRow(t testing.TB) {
	target, x := s.follow(t)
	sch := idAB("missing")
	x.write(t, Changes(sch, insert("1", `"a"`, `"b"`)))
	x.commit(t)
	b := Changes(sch, update("2", `"c"`, "null"), update("3", `"d"`, Unsent), update("1", `"A"`, Unsent),
		update("5", Unsent, `"e"`).from("4", "null", "null"))
	rows := rowErrors(x.offer(t, b))
	if len(rows) != 2 || rows[0].Index != 1 || rows[1].Index != 3 {
		t.Errorf("refused are %+v: want rows 1 and 3, of which a value is missing", rows)
	}
	for i, want := range []record.Reject{{Key: []byte(`{"id":3}`), Column: "b"}, {Key: []byte(`{"id":5}`), Column: "a"}} {
		if i >= len(rows) {
			continue
		}
		if got := rows[i].Reject; string(got.Key) != string(want.Key) || got.Column != want.Column {
			t.Errorf("a refused row is named %s, column %q: want %s, column %q", got.Key, got.Column, want.Key, want.Column)
		}
	}
	x.ends(t, target, "updates of missing rows", sch, row("1", `"A"`, `"b"`), row("2", `"c"`, "null"))
}

// interleaved: batches of several datasets in one transaction.
func (s *streamSuite) interleaved(t testing.TB) {
	target, x, same := s.follows(t)
	one, two := idAB("one"), idAB("two")
	x.write(t, Changes(one, insert("1", `"a"`, `"b"`)), Changes(two, insert("1", `"c"`, `"d"`)),
		Changes(one, update("1", `"A"`, same(`"b"`))),
		Changes(two, update("2", same(`"c"`), same(`"d"`)).from("1", "null", "null")),
		Changes(one, remove("1", "null", "null"), insert("7", `"e"`, "null")),
		Changes(two, update("2", same(`"c"`), "null")))
	x.ends(t, target, "datasets in turn", one, row("7", `"e"`, "null"))
	holds(t, target, "datasets in turn", two, BatchOf(two, row("2", `"c"`, "null")))
}

// keyless: rows are found by their full image, equal ones one by one (case C034).
func (s *streamSuite) keyless(t testing.TB) {
	if !s.contract.Keyless {
		return
	}
	target, x := s.follow(t)
	text := arrow.BinaryTypes.String
	sch := streamSchema("keyless", 0, column("1", "n", arrow.PrimitiveTypes.Int64), column("2", "a", text))
	x.write(t, Changes(sch, insert("1", `"a"`), insert("1", `"a"`), insert("1", `"a"`), insert("null", "null"), insert("null", "null"),
		insert("2", "null")))
	x.commit(t)
	x.write(t, Changes(sch, remove("1", `"a"`), update("null", `"x"`).from("null", "null"), update("1", Unsent).from("1", `"a"`),
		insert("5", `"e"`), insert("5", `"e"`), update("6", `"e"`).from("5", `"e"`), remove("5", `"e"`),
		update("1", `"b"`).from("1", `"a"`)))
	x.commit(t)
	x.write(t, Changes(sch, update("1", `"a"`).from("1", `"b"`), remove("1", `"a"`), remove("2", "null"), insert("2", "null")))
	b := Changes(sch, remove("7", `"none"`), insert("8", `"h"`))
	rows := rowErrors(x.offer(t, b))
	if len(rows) != 1 || rows[0].Index != 0 || !strings.Contains(rows[0].Reject.Error()+string(rows[0].Reject.Raw), "none") {
		t.Errorf("a delete of a row that is not there returned %+v: want an error that names the image", rows)
	}
	x.ends(t, target, "rows without a key", sch, row("1", `"a"`), row("null", "null"), row("null", `"x"`), row("2", "null"),
		row("6", `"e"`), row("8", `"h"`))
}

// evolve changes the target's schema, as the engine does; it is asked for twice, as in a replay.
func (x *session) evolve(t testing.TB, from, to *record.Schema) {
	t.Helper()
	ev, ok := connector.As[connector.Evolver](x.snk)
	if !ok {
		x.end(t)
		t.Fatalf("the sink takes changes and can't change its columns")
	}
	for range 2 {
		if err := ev.Evolve(deadline(t), from, to); err != nil {
			x.end(t)
			t.Fatalf("Evolve: %v", err)
		}
	}
}

// added: older rows get the value that they have at the source, and nothing is asked for twice (case C037).
func (s *streamSuite) added(t testing.TB) {
	target, x := s.follow(t)
	was := idAB("added")
	fields := append(was.Columns.Fields(), record.WithMissing(column("4", "c", arrow.PrimitiveTypes.Int64), "7"),
		record.WithMissing(column("5", "d", arrow.BinaryTypes.String), `it's "d"`), column("6", "e", arrow.BinaryTypes.String))
	is := streamSchema("added", 1, fields...)
	x.evolve(t, nil, was)
	x.write(t, Changes(was, insert("1", `"a"`, "null"), insert("2", `"b"`, "null")))
	x.commit(t)
	x.evolve(t, was, is)
	x.write(t, Changes(is, insert("3", `"c"`, "null", "null", "null", "null"), update("2", Unsent, `"B"`, "8", Unsent, Unsent)))
	x.ends(t, target, "columns more", is, row("1", `"a"`, "null", "7", `"it's \"d\""`, "null"),
		row("2", `"b"`, `"B"`, "8", `"it's \"d\""`, "null"), row("3", `"c"`, "null", "null", "null", "null"))

	x.end(t)
	x = s.start(t, target, request(connector.Upsert)) // killed behind the commit, and asked again
	x.evolve(t, nil, was)
	x.evolve(t, was, is)
	x.write(t, Changes(is, update("1", Unsent, Unsent, "9", Unsent, `"e"`)))
	x.ends(t, target, "columns more, asked for again", is, row("1", `"a"`, "null", "9", `"it's \"d\""`, `"e"`),
		row("2", `"b"`, `"B"`, "8", `"it's \"d\""`, "null"), row("3", `"c"`, "null", "null", "null", "null"))
}

// renamed: the column keeps its values, under the new name (case C038).
func (s *streamSuite) renamed(t testing.TB) {
	target, x := s.follow(t)
	was := idAB("renamed")
	text := arrow.BinaryTypes.String
	is := streamSchema("renamed", 1, column("1", "id", arrow.PrimitiveTypes.Int64), column("2", "c", text), column("3", "b", text))
	x.evolve(t, nil, was)
	x.write(t, Changes(was, insert("1", `"a"`, `"b"`)))
	x.commit(t)
	x.evolve(t, was, is)
	x.write(t, Changes(is, update("1", Unsent, `"B"`), insert("2", `"c"`, "null")))
	x.ends(t, target, "a renamed column", is, row("1", `"a"`, `"B"`), row("2", `"c"`, "null"))
}

// retyped: a wider type holds what the narrower one did not, and old values stay (case C038).
func (s *streamSuite) retyped(t testing.TB) {
	target, x := s.follow(t)
	id := column("1", "id", arrow.PrimitiveTypes.Int64)
	was := streamSchema("retyped", 1, id, column("2", "n", arrow.PrimitiveTypes.Int32))
	is := streamSchema("retyped", 1, id, column("2", "n", arrow.PrimitiveTypes.Int64))
	x.evolve(t, nil, was)
	x.write(t, Changes(was, insert("1", "5"), insert("2", "-2147483648")))
	x.commit(t)
	x.evolve(t, was, is)
	x.write(t, Changes(is, insert("3", "3000000000"), update("1", "-9223372036854775808")))
	x.ends(t, target, "a wider column", is, row("1", "-9223372036854775808"), row("2", "-2147483648"), row("3", "3000000000"))
}

// dropped: rows go on without the column; one that comes with its name later has nothing of its values (case C038).
func (s *streamSuite) dropped(t testing.TB) {
	target, x := s.follow(t)
	was := idAB("dropped")
	fields := was.Columns.Fields()
	fields[2].Nullable = false
	was.Columns = arrow.NewSchema(fields, nil)
	is := streamSchema("dropped", 1, fields[:2]...)
	again := streamSchema("dropped", 1, fields[0], fields[1], column("4", "b", arrow.PrimitiveTypes.Int64))
	x.evolve(t, nil, was)
	x.write(t, Changes(was, insert("1", `"a"`, `"b"`)))
	x.commit(t)
	x.evolve(t, was, is)
	x.write(t, Changes(is, insert("2", `"c"`), update("1", `"A"`)))
	x.commit(t)
	x.evolve(t, is, again)
	x.write(t, Changes(again, insert("3", `"d"`, "7")))
	x.ends(t, target, "a dropped column, and another one of its name", again, row("1", `"A"`, "null"), row("2", `"c"`, "null"),
		row("3", `"d"`, "7"))
}

// olderSchema: what a batch's schema lacks is null in new rows and stays in those that are there.
func (s *streamSuite) olderSchema(t testing.TB) {
	target, x := s.follow(t)
	is := idAB("older")
	was := streamSchema("older", 1, is.Columns.Fields()[:2]...)
	x.evolve(t, nil, is)
	x.write(t, Changes(is, insert("1", `"a"`, `"b"`), insert("2", `"c"`, `"d"`), insert("3", `"e"`, `"f"`), insert("4", `"g"`, `"h"`)))
	x.commit(t)
	x.write(t, Changes(was, update("1", `"A"`), insert("5", `"i"`), update("20", Unsent).from("2", "null"),
		update("30", `"E"`).from("3", "null"), remove("4", "null"), insert("4", `"new"`)))
	x.ends(t, target, "rows of an older schema", is, row("1", `"A"`, `"b"`), row("5", `"i"`, "null"), row("20", `"c"`, `"d"`),
		row("30", `"E"`, `"f"`), row("4", `"new"`, "null"))
}
