package connectortest

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
)

// MessageLog proves that a sink in mode upsert whose target is a log, of which the last message of a key is the row, and a deletion where
// it has none, ends as the source did (E12, E15):
//
//   - the image before a change completes what was not sent; where it does not, the row is refused by name, and all others are written;
//   - keys that move, in a chain too, by way of another key, or come again behind a delete: nothing is left at a key that was given up;
//   - batches of several datasets in one transaction;
//   - rows have the columns of their own schema, and those that were there before stay as they are;
//   - random transactions over several datasets, compared with a model behind every commit, through restarts of the sink.
//
// Target.Read returns the rows that are left. The keys are integers and texts. Such a log can't complete values, empty a dataset, nor
// tell two rows of one key apart, as a constraint that is checked at the end of a transaction allows: that is not asked of it.
func MessageLog(t *testing.T, c SinkCase) {
	t.Helper()
	messageLog(t, c)
}

func messageLog(t testing.TB, c SinkCase) {
	contract, err := c.New(t).Config().Contract()
	if err != nil {
		t.Fatalf("Contract: %v", err)
	}
	if contract.Input != connector.Changelog {
		t.Fatalf("the contract takes no changes")
	}
	s := &streamSuite{sinkSuite: sinkSuite{SinkCase: c, contract: contract}, messages: true}
	run(t, "Completed", s.completed)
	run(t, "MovedKeys", s.movedKeys)
	run(t, "Reinserted", s.reinserted)
	run(t, "Interleaved", s.interleaved)
	run(t, "Columns", s.columnsOfTheirOwn)
	run(t, "Random", s.random)
}

// completed: what was not sent comes from the image before, or the row is refused by name.
func (s *streamSuite) completed(t testing.TB) {
	target, x := s.follow(t)
	sch := idAB("completed")
	x.write(t, Changes(sch, insert("1", `"a"`, `"b"`), insert("2", `"c"`, "null"), insert("3", `"d"`, `"e"`), insert("5", `"g"`, `"h"`)))
	x.commit(t)
	rows := rowErrors(x.offer(t, Changes(sch,
		update("1", `"A"`, Unsent).from("1", `"a"`, `"b"`), update("2", `"C"`, Unsent), update("30", Unsent, `"E"`).from("3", `"d"`, `"e"`),
		update("4", `"f"`, "null"), remove("5", `"g"`, `"h"`))))
	if len(rows) != 1 || rows[0].Index != 1 {
		t.Errorf("refused are %+v: want row 1, of which a value is missing", rows)
	} else if r := rows[0].Reject; string(r.Key) != `{"id":2}` || r.Column != "b" {
		t.Errorf("the refused row is named %s, column %q: want {\"id\":2}, column b", r.Key, r.Column)
	}
	x.ends(t, target, "values that were not sent", sch,
		row("1", `"A"`, `"b"`), row("2", `"c"`, "null"), row("30", `"d"`, `"E"`), row("4", `"f"`, "null"))
}

// columnsOfTheirOwn: columns come, are renamed, wider and gone, in the rows that follow; a process that was killed is asked again.
func (s *streamSuite) columnsOfTheirOwn(t testing.TB) {
	target, x := s.follow(t)
	was := idAB("columns")
	text, narrow, wide := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64
	id := column("1", "id", wide)
	more := streamSchema("columns", 1, id, column("2", "a", text), column("3", "b", text), column("4", "c", narrow))
	is := streamSchema("columns", 1, id, column("2", "d", text), column("4", "c", wide))
	x.evolve(t, nil, was)
	x.write(t, Changes(was, insert("1", `"a"`, `"b"`), insert("2", `"a"`, `"b"`)))
	x.evolve(t, was, more)
	x.write(t, Changes(more, update("1", `"A"`, "null", "-2147483648"), insert("3", `"x"`, `"y"`, "7")))
	x.commit(t)
	x.end(t)
	x = s.start(t, target, request(connector.Upsert))
	x.evolve(t, nil, was)
	x.evolve(t, was, more)
	x.evolve(t, more, is)
	x.write(t, Changes(is, update("1", `"D"`, "-9223372036854775808"), insert("4", "null", "3000000000")))
	all := streamSchema("columns", 1, id, column("2", "a", text), column("3", "b", text), column("4", "c", wide), column("5", "d", text))
	x.ends(t, target, "columns of their own", all,
		row("1", "null", "null", "-9223372036854775808", `"D"`), row("2", `"a"`, `"b"`, "null", "null"),
		row("3", `"x"`, `"y"`, "7", "null"), row("4", "null", "null", "3000000000", "null"))
}
