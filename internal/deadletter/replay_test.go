package deadletter_test

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/deadletter"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state/sqlite"
	"github.com/leatdata/leat/transform"
)

// world is a store of letters, a state store and a target.
type world struct {
	t      *testing.T
	dir    string
	store  *deadletter.Store
	target string
	mode   connector.WriteMode
	shared []transform.Step
	own    []transform.Step
}

func newWorld(t *testing.T, script string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, dir: dir, store: open(t, filepath.Join(dir, "dead.db")), target: filepath.Join(dir, "target.sqlite")}
	w.sql(script)
	return w
}

func (w *world) sql(script string) []string {
	w.t.Helper()
	var out []string
	for part := range strings.SplitSeq(script, ";") {
		out = table(w.t, w.target, part)
	}
	return out
}

func (w *world) next(f deadletter.Filter) *deadletter.Replay {
	w.t.Helper()
	f.Pipeline = "p"
	r, err := w.store.NewReplay(w.t.Context(), deadletter.ReplayOf{Filter: f, Into: "s", Sinks: []string{"s"}, Shared: w.shared, Own: w.own})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// run runs a pass; source stands in for it where it is given.
func (w *world) run(r *deadletter.Replay, source connector.SourceConfig) error {
	w.t.Helper()
	if source == nil {
		source = r
	}
	states, err := sqlite.Open(w.t.Context(), filepath.Join(w.dir, "state.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = states.Close() }()
	plan := engine.Plan{
		Name: "p.dlq.s", Source: engine.SourceSpec{Connector: "dead letters", Config: source}, Changed: engine.AdoptChanged,
		Sinks: []engine.SinkSpec{{
			Name: "s", Connector: "sqlite", Config: sqliteTarget(w.t, w.target).Config, Mode: &w.mode,
			BadRows: &engine.BadRows{Action: engine.SetAside},
		}},
		BadRows: engine.BadRows{Action: engine.SetAside},
	}
	_, err = engine.Run(w.t.Context(), plan, engine.Deps{Store: states, Rejects: r.Rejects()})
	return err
}

// rows sets rows of orders aside, as sink s would.
func (w *world) aside(rows ...[]string) {
	w.t.Helper()
	b := connectortest.BatchOf(orders("orders"), rows...)
	for i := range rows {
		keep(w.t, w.store, w.letter(b, i))
	}
}

func orders(name string) *record.Schema {
	return &record.Schema{Dataset: name, Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "total", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	}, nil)}
}

func (*world) letter(b *record.Batch, i int) engine.Rejected {
	r := b.Reject(i)
	r.Class, r.Message, r.Line = "refused_by_sink", "no", int64(i+1)
	return engine.Rejected{Pipeline: "p", Run: "r", Sink: "s", Time: time.Now(), Reject: r}
}

func (w *world) want(rows string, letters int) {
	w.t.Helper()
	if got := strings.Join(w.sql("select id, total from orders order by rowid"), " "); got != rows {
		w.t.Errorf("the target has %q, want %q", got, rows)
	}
	if n, _ := count(w.t, w.store, deadletter.Filter{}); n != letters {
		w.t.Errorf("%d letters are left, want %d", n, letters)
	}
}

// clause E13
// case C101: letters go through the same path as live rows; those that the target takes are gone, the others stay with the new reason,
// in the order in which they came.
func TestReplay(t *testing.T) {
	w := newWorld(t, "create table orders (id int primary key, total int check (total < 100))")
	w.aside([]string{"3", "30"}, []string{"1", "100"}, []string{"2", "20"})
	if err := w.run(w.next(deadletter.Filter{}), nil); err != nil {
		t.Fatal(err)
	}
	w.want("3|30 2|20", 1)
	l := letters(t, w.store, deadletter.Filter{})[0]
	if l.Times != 2 || !strings.Contains(l.Message, "CHECK") || string(l.Key) != `{"id":1}` || l.Line != 2 || l.Run != "r" {
		t.Errorf("the letter that was refused again is %+v", l)
	}
	w.sql("alter table orders rename to o2; create table orders (id int primary key, total int); insert into orders select * from o2; drop table o2")
	if err := w.run(w.next(deadletter.Filter{}), nil); err != nil {
		t.Fatal(err)
	}
	w.want("3|30 2|20 1|100", 0)
	if r := w.next(deadletter.Filter{}); r != nil {
		t.Errorf("%d letters are still there", r.Letters())
	}
}

// unacknowledged is a source whose process dies before it hears of anything.
type unacknowledged struct{ *deadletter.Replay }

func (u unacknowledged) Open(env connector.Env) (connector.Source, error) {
	src, err := u.Replay.Open(env)
	if err != nil {
		return nil, err
	}
	d, _ := connector.As[connector.Discoverer](src)
	p, _ := connector.As[connector.Positions](src)
	return struct {
		connector.Source
		connector.Discoverer
		connector.Positions
	}{src, d, p}, nil
}

// clause E13: a letter that came into the sink before the process died is not written again.
func TestReplayAfterCrash(t *testing.T) {
	w := newWorld(t, "create table orders (id int, total int)")
	w.aside([]string{"1", "10"}, []string{"2", "20"})
	r := w.next(deadletter.Filter{})
	if err := w.run(r, unacknowledged{r}); err != nil {
		t.Fatal(err)
	}
	w.want("1|10 2|20", 2)
	w.aside([]string{"7", "70"})
	if err := w.run(w.next(deadletter.Filter{}), nil); err != nil {
		t.Fatal(err)
	}
	w.want("1|10 2|20 7|70", 0)
}

// Only the chosen letters are taken; the others stay where they are.
func TestReplayChosen(t *testing.T) {
	w := newWorld(t, "create table orders (id int, total int)")
	w.aside([]string{"1", "10"}, []string{"2", "20"}, []string{"3", "30"})
	id := letters(t, w.store, deadletter.Filter{})[1].ID
	if err := w.run(w.next(deadletter.Filter{IDs: []string{id}}), nil); err != nil {
		t.Fatal(err)
	}
	w.want("2|20", 2)
	if err := w.run(w.next(deadletter.Filter{}), nil); err != nil {
		t.Fatal(err)
	}
	w.want("2|20 1|10 3|30", 0)
}

// A row that a transform could not take goes through that transform and those behind it, as they are now.
func TestReplayThroughTransforms(t *testing.T) {
	w := newWorld(t, "create table orders (id int, total int)")
	wrong, err := transform.Set([]transform.Computed{{Column: "total", Expr: "100 % total", Type: "int64"}})
	if err != nil {
		t.Fatal(err)
	}
	double, err := transform.Set([]transform.Computed{{Column: "total", Expr: "total * 2", Type: "int64"}})
	if err != nil {
		t.Fatal(err)
	}
	b := connectortest.BatchOf(orders("orders"), []string{"1", "0"}, []string{"2", "30"})
	out, err := wrong.Apply(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Rejects) != 1 {
		t.Fatalf("%d rows were refused, want 1", len(out.Rejects))
	}
	reject := out.Rejects[0]
	reject.Step, reject.Line = 2, 9
	keep(t, w.store, engine.Rejected{Pipeline: "p", Run: "r", Reject: reject})
	w.shared, w.own = []transform.Step{double, wrong}, []transform.Step{double}
	if err := w.run(w.next(deadletter.Filter{}), nil); err != nil {
		t.Fatal(err)
	}
	w.want("", 1)
	mended, err := transform.Set([]transform.Computed{{Column: "total", Expr: "total + 4", Type: "int64"}})
	if err != nil {
		t.Fatal(err)
	}
	w.shared = []transform.Step{double, mended}
	if err := w.run(w.next(deadletter.Filter{}), nil); err != nil {
		t.Fatal(err)
	}
	w.want("1|8", 0) // not doubled by the transform that it had passed
	keep(t, w.store, engine.Rejected{Pipeline: "p", Run: "r", Reject: reject})
	w.shared = nil
	f := deadletter.Filter{Pipeline: "p"}
	if _, err := w.store.NewReplay(t.Context(), deadletter.ReplayOf{Filter: f, Into: "s"}); connector.HintOf(err) == "" {
		t.Errorf("the transform is gone: got %v", err)
	}
}

// Letters of datasets whose columns changed are taken in passes: no target loses a column.
func TestReplayPasses(t *testing.T) {
	w := newWorld(t, "create table orders (id int, total int, note text)")
	w.aside([]string{"1", "10"})
	wide := orders("orders")
	wide.Columns = arrow.NewSchema(append(wide.Columns.Fields(), arrow.Field{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true}), nil)
	keep(t, w.store, w.letter(connectortest.BatchOf(wide, []string{"2", "20", `"x"`}), 0))
	w.aside([]string{"3", "30"})
	after, passes := int64(0), 0
	for ; passes < 10; passes++ {
		r, err := w.store.NewReplay(t.Context(), deadletter.ReplayOf{
			Filter: deadletter.Filter{Pipeline: "p"}, Into: "s", Sinks: []string{"s"}, Earlier: after,
		})
		if err != nil {
			t.Fatal(err)
		}
		if r == nil {
			break
		}
		if err := w.run(r, nil); err != nil {
			t.Fatal(err)
		}
		after = r.Until()
	}
	w.want("1|10 2|20 3|30", 0)
	if got := w.sql("select note from orders where id = 2"); passes != 3 || got[0] != "x" {
		t.Errorf("%d passes, note %q", passes, got)
	}
}

// Many letters are read and written in pages.
func TestReplayMany(t *testing.T) {
	w := newWorld(t, "create table orders (id int, total int)")
	const n = 2500
	rows := make([][]string, n)
	for i := range rows {
		rows[i] = []string{strconv.Itoa(i), "1"}
	}
	b := connectortest.BatchOf(orders("orders"), rows...)
	all := make([]engine.Rejected, n)
	for i := range all {
		all[i] = w.letter(b, i)
	}
	must(t, w.store.Append(context.WithoutCancel(t.Context()), all), w.store.Flush(t.Context()))
	if err := w.run(w.next(deadletter.Filter{}), nil); err != nil {
		t.Fatal(err)
	}
	if got := w.sql("select count(*), count(distinct id) from orders"); got[0] != "2500|2500" {
		t.Errorf("the target has %s", got)
	}
	if left, _ := count(t, w.store, deadletter.Filter{}); left != 0 {
		t.Errorf("%d letters are left", left)
	}
}
