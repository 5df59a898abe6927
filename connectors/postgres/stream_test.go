package postgres_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// streamPatience bounds the wait for changes that must come.
const streamPatience = 15 * time.Second

// follower is a database with a slot and a publication of its own, and generations of a source that follow it.
type follower struct {
	db      string
	conn    *pgx.Conn
	slot    string
	options map[string]string
	anchor  record.Position // where the slot's stream begins
}

// newFollower makes the tables first, then the slot.
func newFollower(t testing.TB, options map[string]string, statements ...string) *follower {
	t.Helper()
	w := &follower{db: pgtest.Database(t), slot: "leat_test_" + strings.ToLower(rand.Text()[:10])}
	w.conn = pgtest.Conn(t, w.db)
	must(t, w.conn, statements...)
	w.options = map[string]string{"follow": "true", "slot": w.slot, "publication": w.slot, "host": pgtest.SocketDir(t)}
	maps.Copy(w.options, options)
	t.Cleanup(func() { w.drop(t) })
	w.anchored(t)
	return w
}

// anchored makes the place to follow from.
func (w *follower) anchored(t testing.TB) {
	t.Helper()
	src := w.open(t, nil)
	var err error
	if w.anchor, err = capability[connector.Anchor](t, src).Anchor(t.Context()); err != nil {
		t.Fatalf("%v (%s)", err, connector.HintOf(err))
	}
	closeSource(t, src)
}

// capability is one that the source must have.
func capability[T any](t testing.TB, src connector.Source) T {
	t.Helper()
	c, ok := connector.As[T](src)
	if !ok {
		t.Fatalf("the source is no %T", *new(T))
	}
	return c
}

// drop removes the slot: one that is left keeps log of the whole cluster.
func (w *follower) drop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), streamPatience)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.db)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	for {
		_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, w.slot)
		if err == nil {
			_, err = conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1`, w.slot)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		t.Errorf("dropping the slot: %v", err)
	}
}

// count asks for a number.
func (w *follower) count(t testing.TB, sql string, args ...any) (n int64) {
	t.Helper()
	if err := w.conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// open returns a source that was not started.
func (w *follower) open(t testing.TB, more map[string]string) connector.Source {
	t.Helper()
	options := maps.Clone(w.options)
	maps.Copy(options, more)
	src, err := sourceConfig(t, w.db, options).Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSource(t, src) })
	return src
}

func closeSource(t testing.TB, src connector.Source) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), streamPatience)
	defer cancel()
	if err := src.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// start returns a generation at a position; zero: where the slot's stream begins.
func (w *follower) start(t testing.TB, at record.Position, more map[string]string, cuts ...record.Position) *generation {
	t.Helper()
	src := w.open(t, more)
	start := connector.SourceStart{From: connector.From{Origin: connector.Initialised, Position: w.anchor}, Cuts: cuts}
	if !at.Zero() {
		start.From = connector.From{Origin: connector.Resume, Attempt: 1, Position: at}
	}
	if err := src.Start(t.Context(), start); err != nil {
		t.Fatalf("%v (%s)", err, connector.HintOf(err))
	}
	return &generation{src: src, want: connector.Limit{Rows: 1000, Bytes: 1 << 20}}
}

// generation is a source that was started, and what it delivered.
type generation struct {
	src     connector.Source
	want    connector.Limit
	batches []*record.Batch
	lines   []string // what happened, in order
	marks   []streamMark
}

// streamMark is a position that was delivered, and how many lines it covers.
type streamMark struct {
	position record.Position
	lines    int
}

// next returns the next batch; nil: nothing came within the time.
func (g *generation) next(t testing.TB, within time.Duration) (*record.Batch, error) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		b, err := g.src.Read(t.Context(), g.want)
		if b != nil || err != nil {
			g.take(b)
			return b, err
		}
		poll := time.NewTimer(200 * time.Millisecond)
		select {
		case <-capability[connector.Notifier](t, g.src).Ready():
		case <-poll.C:
		case <-deadline.C:
			return nil, nil
		}
		poll.Stop()
	}
}

func (g *generation) take(b *record.Batch) {
	if b == nil {
		return
	}
	g.batches = append(g.batches, b)
	if b.Schema != nil {
		g.lines = append(g.lines, changeLines(b)...)
	}
	if !b.Position.Zero() {
		g.marks = append(g.marks, streamMark{b.Position, len(g.lines)})
	}
}

// until reads until n lines have come and the last of them is covered by a position.
func (g *generation) until(t testing.TB, n int) []string {
	t.Helper()
	for end := time.Now().Add(streamPatience); len(g.lines) < n || len(g.marks) == 0 || g.marks[len(g.marks)-1].lines < n; {
		b, err := g.next(t, time.Until(end))
		if err != nil {
			t.Fatalf("after %d of %d changes: %v (%s)", len(g.lines), n, err, connector.HintOf(err))
		}
		if b == nil {
			t.Fatalf("only %d of %d changes came:\n%s", len(g.lines), n, strings.Join(g.lines, "\n"))
		}
	}
	return g.lines
}

// quiet fails where more changes come.
func (g *generation) quiet(t testing.TB) {
	t.Helper()
	n := len(g.lines)
	for end := time.Now().Add(300 * time.Millisecond); time.Until(end) > 0; {
		if _, err := g.next(t, time.Until(end)); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.lines) > n {
		t.Errorf("more came than was changed:\n%s", strings.Join(g.lines[n:], "\n"))
	}
}

// fails reads until an error comes.
func (g *generation) fails(t testing.TB) error {
	t.Helper()
	for end := time.Now().Add(streamPatience); time.Now().Before(end); {
		if _, err := g.next(t, time.Second); err != nil {
			return err
		}
	}
	t.Fatal("no error came")
	return nil
}

func (g *generation) acknowledge(t testing.TB) {
	t.Helper()
	if err := g.acknowledged(t, g.marks[len(g.marks)-1].position); err != nil {
		t.Fatal(err)
	}
}

func (g *generation) acknowledged(t testing.TB, p record.Position) error {
	t.Helper()
	return capability[connector.Acknowledger](t, g.src).Acknowledge(t.Context(), p)
}

// changeLines prints a batch: operation, row, ~ for what was not sent, and the row before, without what is unknown of it.
func changeLines(b *record.Batch) []string {
	var out []string
	if b.Truncate {
		out = append(out, b.Schema.Dataset+" truncate")
	}
	for i := range b.NumRows() {
		line := b.Schema.Dataset + " " + b.Op(i).String()
		for c := range int(b.Rows.NumCols()) {
			switch col := b.Rows.Column(c); {
			case b.IsUnchanged(c, i):
				line += " " + b.Rows.ColumnName(c) + "=~"
			case !col.IsNull(i):
				line += " " + b.Rows.ColumnName(c) + "=" + string(record.AppendText(nil, col, i))
			case b.Op(i) != record.Delete:
				line += " " + b.Rows.ColumnName(c) + "=null"
			}
		}
		line += beforeText(b, i)
		out = append(out, line)
	}
	return out
}

func beforeText(b *record.Batch, i int) string {
	var text []string
	for c := 0; b.Old != nil && c < int(b.Old.NumCols()); c++ {
		if col := b.Old.Column(c); !col.IsNull(i) {
			text = append(text, b.Old.ColumnName(c)+"="+string(record.AppendText(nil, col, i)))
		}
	}
	if text == nil {
		return ""
	}
	return " was " + strings.Join(text, " ")
}

// follows fails where the changes differ.
func (g *generation) follows(t testing.TB, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, g.until(t, len(want))); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
}

// Every operation, in the order of the commits, each transaction with its own number.
// clauses S7, S28; cases C029, C033.
func TestStream(t *testing.T) {
	w := newFollower(t, nil, `CREATE TABLE a (id int PRIMARY KEY, n int, doc text)`, `ALTER TABLE a ALTER doc SET STORAGE EXTERNAL`,
		`CREATE TABLE b (k text PRIMARY KEY, v numeric)`, `INSERT INTO a VALUES (1, 1, repeat('x', 20000))`)
	g := w.start(t, record.Position{}, nil)
	var xids []string
	for _, sql := range []string{
		`INSERT INTO a VALUES (2, 2, NULL); INSERT INTO b VALUES ('x', 1.50), ('y', 'NaN')`,
		`UPDATE a SET n = 5 WHERE id = 1`,
		`UPDATE a SET doc = NULL WHERE id = 1`,
		`UPDATE a SET id = 1001 WHERE id = 2`,
		`DELETE FROM b WHERE k = 'x'; DELETE FROM a WHERE id = 1`,
	} {
		var xid uint64
		tx, err := w.conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for one := range strings.SplitSeq(sql, ";") {
			if _, err := tx.Exec(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&xid); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		xids = append(xids, strconv.FormatUint(xid, 10))
	}
	g.want.Rows = 1
	g.follows(t,
		"public.a insert id=2 n=2 doc=null",
		"public.b insert k=x v=1.50",
		"public.b insert k=y v=NaN",
		"public.a update id=1 n=5 doc=~",
		"public.a update id=1 n=5 doc=null",
		"public.a update id=1001 n=2 doc=null was id=2",
		"public.b delete k=x",
		"public.a delete id=1",
	)
	g.quiet(t)
	var got []string
	for _, b := range g.batches {
		for _, txn := range b.Txns {
			if time.Since(txn.Time).Abs() > time.Minute {
				t.Errorf("a commit at %s", txn.Time)
			}
			got = append(got, xidOf(t, txn.Position))
		}
	}
	if diff := cmp.Diff(xids, slices.Compact(got)); diff != "" {
		t.Errorf("transactions (-want +got):\n%s", diff)
	}
	for i, m := range g.marks[1:] {
		if order, ok := capability[connector.Positions](t, g.src).Compare(g.marks[i].position, m.position); !ok || order >= 0 {
			t.Errorf("position %s does not lie behind %s", m.position, g.marks[i].position)
		}
	}
}

// numbered returns lines with a number filled in.
func numbered(format string, from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

// A TRUNCATE comes where it happened, of every table that it emptied.
// case C036.
func TestStreamTruncate(t *testing.T) {
	w := newFollower(t, nil, `CREATE TABLE a (id int PRIMARY KEY)`, `CREATE TABLE b (id int PRIMARY KEY REFERENCES a)`)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `BEGIN`, `INSERT INTO a SELECT generate_series(1, 5)`, `INSERT INTO b VALUES (1)`, `TRUNCATE a CASCADE`,
		`INSERT INTO a VALUES (6), (7)`, `COMMIT`, `TRUNCATE b`)
	want := append(numbered("public.a insert id=%d", 1, 5), "public.b insert id=1", "public.a truncate", "public.a insert id=6",
		"public.a insert id=7", "public.b truncate", "public.b truncate")
	g.until(t, len(want))
	if diff := cmp.Diff(byDataset(want), byDataset(g.lines)); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
	for _, b := range g.batches {
		if b.Truncate && len(b.Txns) == 0 {
			t.Errorf("a truncate of %s does not tell its transaction", b.Schema.Dataset)
		}
	}
}

// xidOf is the transaction of a position.
func xidOf(t testing.TB, p record.Position) string {
	t.Helper()
	var doc struct {
		XID json.Number `json:"xid"`
	}
	if err := json.Unmarshal(p.Data, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.XID.String()
}

// byDataset keeps the order of changes within each dataset: between datasets only whole groups are ordered.
func byDataset(lines []string) map[string][]string {
	out := map[string][]string{}
	for _, l := range lines {
		name, _, _ := strings.Cut(l, " ")
		out[name] = append(out[name], l)
	}
	return out
}

// What is known of the row before, by replica identity; values that were not sent are filled only from whole rows.
// cases C030, C034.
func TestStreamIdentity(t *testing.T) {
	const columns = `(id int PRIMARY KEY, u int NOT NULL UNIQUE, n int, doc text)`
	w := newFollower(t, nil, `CREATE TABLE d `+columns, `CREATE TABLE f `+columns, `CREATE TABLE i `+columns,
		`CREATE TABLE k (n int, doc text)`,
		`ALTER TABLE f REPLICA IDENTITY FULL`, `ALTER TABLE k REPLICA IDENTITY FULL`, `ALTER TABLE i REPLICA IDENTITY USING INDEX i_u_key`,
		`ALTER TABLE d ALTER doc SET STORAGE EXTERNAL`, `ALTER TABLE f ALTER doc SET STORAGE EXTERNAL`,
		`ALTER TABLE i ALTER doc SET STORAGE EXTERNAL`,
		`INSERT INTO d VALUES (1, 10, 1, repeat('x', 3000))`, `INSERT INTO f TABLE d`, `INSERT INTO i TABLE d`,
		`INSERT INTO k VALUES (1, 'a'), (1, 'a')`)
	g := w.start(t, record.Position{}, nil)
	g.want.Rows = 1 // the order of the changes
	must(t, w.conn, `UPDATE d SET n = 2`, `UPDATE f SET n = 2`, `UPDATE i SET n = 2`, `UPDATE i SET u = 11`, `UPDATE i SET id = 3`,
		`DELETE FROM k WHERE ctid = (SELECT min(ctid) FROM k)`, `DELETE FROM i`)
	doc := strings.Repeat("x", 3000)
	g.follows(t,
		"public.d update id=1 u=10 n=2 doc=~",
		"public.f update id=1 u=10 n=2 doc="+doc+" was id=1 u=10 n=1 doc="+doc,
		"public.i update id=1 u=10 n=2 doc=~",
		"public.i update id=1 u=11 n=2 doc=~ was u=10",
		"public.i update id=3 u=11 n=2 doc=~",
		"public.k delete n=1 doc=a",
		"public.i delete u=11",
	)
	keys := map[string][]string{}
	for _, b := range g.batches {
		if b.Schema != nil {
			keys[b.Schema.Dataset] = b.Schema.KeyNames()
		}
	}
	if diff := cmp.Diff(map[string][]string{"public.d": {"id"}, "public.f": {"id"}, "public.i": {"u"}, "public.k": {}}, keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}
