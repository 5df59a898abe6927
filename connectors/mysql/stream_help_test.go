package mysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// streamPatience bounds the wait for changes that must come.
const streamPatience = 15 * time.Second

// follower is a database of a test, and generations of a source that follow it.
type follower struct {
	url     string
	db      *sql.DB
	name    string // of the database
	options map[string]string
	anchor  record.Position // where the stream begins
}

// newFollower makes the tables first, then the place to follow from.
func newFollower(t testing.TB, url string, options map[string]string, statements ...string) *follower {
	t.Helper()
	w := &follower{url: url, db: mysqltest.DB(t, url), name: url[strings.LastIndexByte(url, '/')+1:]}
	w.do(t, statements...)
	w.options = map[string]string{"follow": "true", "heartbeat": "200ms"}
	maps.Copy(w.options, options)
	src := w.open(t, nil)
	var err error
	if w.anchor, err = capability[connector.Anchor](t, src).Anchor(t.Context()); err != nil {
		t.Fatalf("%v (%s)", err, connector.HintOf(err))
	}
	closeSource(t, src)
	return w
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

// do runs statements on one connection, so that what is set for the session holds.
func (w *follower) do(t testing.TB, statements ...string) {
	t.Helper()
	conn, err := w.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer endSession(conn)
	for _, s := range statements {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%.200s: %v", s, err)
		}
	}
}

// endSession ends a session, which is not used again.
func endSession(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // this is what ends it
	_ = conn.Close()
}

// open returns a source that was not started.
func (w *follower) open(t testing.TB, more map[string]string) connector.Source {
	t.Helper()
	options := maps.Clone(w.options)
	maps.Copy(options, more)
	env := connectortest.Env(t)
	env.Pipeline = "test-" + w.name + rand.Text()[:4]
	src, err := sourceConfig(t, w.url, options).Open(env)
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

// start returns a generation at a position; zero: where the stream begins.
func (w *follower) start(t testing.TB, at record.Position, more map[string]string, cuts ...record.Position) *generation {
	t.Helper()
	g, err := w.tryStart(t, at, more, cuts...)
	if err != nil {
		t.Fatalf("%v (%s)", err, connector.HintOf(err))
	}
	return g
}

func (w *follower) tryStart(t testing.TB, at record.Position, more map[string]string, cuts ...record.Position) (*generation, error) {
	t.Helper()
	src := w.open(t, more)
	start := connector.SourceStart{From: connector.From{Origin: connector.Initialised, Position: w.anchor}, Cuts: cuts}
	if !at.Zero() {
		start.From = connector.From{Origin: connector.Resume, Attempt: 1, Position: at}
	}
	if err := src.Start(t.Context(), start); err != nil {
		return nil, err
	}
	return &generation{src: src, want: connector.Limit{Rows: 1000, Bytes: 1 << 20}, strip: w.name + "."}, nil
}

// generation is a source that was started, and what it delivered.
type generation struct {
	src     connector.Source
	want    connector.Limit
	strip   string // the database, left out of lines
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
		for _, line := range changeLines(b) {
			g.lines = append(g.lines, strings.TrimPrefix(line, g.strip))
		}
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

// last is the newest position.
func (g *generation) last() record.Position { return g.marks[len(g.marks)-1].position }

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
		out = append(out, line+beforeText(b, i))
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

// numbered makes one text of each number.
func numbered(format string, from, to int) (out []string) {
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

// followBoth runs a test with each kind of server.
func followBoth(t *testing.T, test func(t *testing.T, f mysqltest.Flavor)) {
	t.Helper()
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) { test(t, f) })
	}
}
