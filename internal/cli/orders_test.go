package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/state/sqlite"
)

// shell runs commands on one state folder, as a person does.
type shell struct {
	t   *testing.T
	dir string
	app App

	hear io.Writer // gets what is written to standard error, too; nil: nobody
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := syncSession(t)
	s.Now = func() time.Time { return start0 }
	s.Stdin = strings.NewReader("")
	return &shell{t: t, dir: t.TempDir(), app: s.App}
}

func (s *shell) run(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	return s.runIn(s.t.Context(), args...)
}

func (s *shell) runIn(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	app := s.app
	app.Stdout, app.Stderr = &out, &errs
	if s.hear != nil {
		app.Stderr = io.MultiWriter(&errs, s.hear)
	}
	code = app.Run(ctx, append([]string{"--state", s.dir}, args...))
	return code, out.String(), errs.String()
}

// says runs a command that ends with 0 and prints exactly this.
func (s *shell) says(want string, args ...string) {
	s.t.Helper()
	code, out, errs := s.run(args...)
	if code != ExitOK || errs != "" {
		s.t.Errorf("leat %s: ended with %d: %s", strings.Join(args, " "), code, errs)
	}
	if diff := cmp.Diff(want, out); diff != "" {
		s.t.Errorf("leat %s (-want +got)\n%s", strings.Join(args, " "), diff)
	}
}

// refuses runs a command that is a mistake, and says so in these words.
func (s *shell) refuses(words string, args ...string) {
	s.t.Helper()
	if code, out, errs := s.run(args...); code != ExitUsage || !strings.Contains(errs, words) || out != "" {
		s.t.Errorf("leat %s: ended with %d, wrote %q, said %q, want %q", strings.Join(args, " "), code, out, errs, words)
	}
}

// store opens the state folder beside the commands.
func (s *shell) store() state.Store {
	s.t.Helper()
	store, err := sqlite.Open(s.t.Context(), filepath.Join(s.dir, "state.db"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := store.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return store
}

// shop is a pipeline of two sinks that follows a source: replica is fine, lake is down. Stream "" has its lanes in memory.
func shop(stream string) state.Record {
	r := savedRecord(strings.NewReplacer(`"a"`, `"replica"`, `"b"`, `"lake"`).Replace(savedLedger), 12*time.Second)
	r.Stream = stream
	r.Identity = map[string]string{
		"sink lake": "duckdb", "sink lake mode": "upsert", "sink lake.path": "x", "sink replica": "sqlite", "sink replica mode": "upsert",
		"dataset public.lines key": "id", "dataset public.lines columns": "id bigint",
	}
	r.Lanes = map[string]state.Lane{
		"replica": {State: state.LaneLive, Progress: record.Progress{Run: "3-aa", Position: r.Progress.Position, Item: 90}},
		"lake": {
			State: state.LaneDown, Held: 14_000_000, Items: 1234, Oldest: start0.Add(-time.Hour), Error: "writing:\n  no space left",
			Progress: record.Progress{Run: "3-aa", Position: record.Position{Shape: 2, Data: []byte(`{"lsn":"0/0"}`)}},
			Epoch:    &state.Epoch{Number: 12, Decided: true},
		},
	}
	return r
}

// damage changes what is saved behind the back of the store.
func (s *shell) damage(sql string) {
	s.t.Helper()
	conn, err := driver.OpenConn(filepath.Join(s.dir, "state.db"), driver.OpenReadWrite)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(sqlitex.ExecuteScript(conn, sql, nil), conn.Close()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shell) save(r state.Record) {
	s.t.Helper()
	store := s.store()
	_, version, _ := store.Load(s.t.Context(), r.Pipeline)
	if _, err := store.Save(s.t.Context(), r, version); err != nil {
		s.t.Fatal(err)
	}
}

const (
	within = "a process that runs it does so within a second; one that is started later starts paused\n"
	goesOn = "a process that runs it does so within a second, else the next one that is started\n"
)

// clause E10
// case C064: a pipeline, sinks and datasets are paused and go on one by one; typing it again changes nothing.
func TestPause(t *testing.T) {
	s := newShell(t)
	s.save(shop(""))
	s.says("pipeline shop is paused: nothing more is read, and what was read is delivered\n"+within+"leat resume shop ends it\n", "pause", "shop")
	s.says("pipeline shop is paused already\n", "pause", "shop")
	s.says("sink lake is paused: it gets nothing more\n"+
		"  its changes wait in memory: once its lane is full, sink replica waits, too\n"+within+"leat resume shop --sink lake ends it\n",
		"pause", "shop", "--sink", "lake", "--sink", "lake")
	s.says("dataset public.users is paused: its changes are let go, and it is copied once more when it is resumed\n"+
		within+"leat resume shop --dataset public.users ends it\n", "pause", "shop", "--dataset", "public.users")
	want := state.Orders{Paused: true, Sinks: []string{"lake"}, Datasets: []string{"public.users"}}
	if o, _, err := s.store().Orders(t.Context(), "shop"); err != nil || !cmp.Equal(o, want) {
		t.Errorf("ordered: %+v, %v", o, err)
	}

	const left = "still paused: sink lake; dataset public.users (leat resume shop --all ends every pause)\n"
	s.says("pipeline shop goes on\n"+goesOn+left, "resume", "shop")
	s.says("pipeline shop is not paused\n"+left, "resume", "shop")
	s.says("sink lake goes on with what waits for it\n"+goesOn+"still paused: dataset public.users (leat resume shop --all ends every pause)\n",
		"resume", "shop", "--sink", "lake")
	s.says("dataset public.users goes on: it is copied once more, while its changes are followed\n"+goesOn, "resume", "shop", "--all")
	s.says("pipeline shop is not paused\n", "resume", "shop", "--all")
	s.says("sink lake is not paused\n", "resume", "shop", "--sink", "lake")
	if o, _, err := s.store().Orders(t.Context(), "shop"); err != nil || !o.Empty() {
		t.Errorf("ordered: %+v, %v", o, err)
	}
}

// What a paused sink means for the others depends on where the lanes are.
func TestPausedSinkHoldsOthers(t *testing.T) {
	one := shop("")
	delete(one.Lanes, "lake")
	delete(one.Identity, "sink lake mode")
	for name, c := range map[string]struct {
		rec  state.Record
		want string
	}{
		"durable":  {shop("s"), "its changes wait on disk, and nobody else waits"},
		"memory":   {shop(""), "its changes wait in memory: once its lane is full, sink lake waits, too"},
		"one sink": {one, "its changes wait in the source, which keeps its log for them"},
		"not known": {
			state.Record{Pipeline: "shop", Attempt: 1, Identity: shop("").Identity},
			"where its lane is in memory, sink lake waits, too, once that is full; where it is durable, nobody else waits",
		},
	} {
		s := newShell(t)
		s.save(c.rec)
		if _, out, errs := s.run("pause", "shop", "--sink", "replica"); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s%s", name, out, errs)
		}
	}
}

func TestOrdersRefuse(t *testing.T) {
	s := newShell(t)
	s.save(shop(""))
	copied := savedRecord("", time.Hour)
	copied.Pipeline = "copied"
	s.save(copied)
	for _, command := range []string{"pause", "resume", "backfill"} {
		s.refuses(`unknown pipeline "shpo": did you mean "shop"?`, command, "shpo")
		s.refuses(`unknown sink "lkae": did you mean "lake"?`, command, "shop", "--sink", "lkae")
		s.refuses(`unknown dataset "public.order": did you mean "public.orders"?`, command, "shop", "--dataset", "public.order")
		s.refuses(`--sink: the name is empty`, command, "shop", "--sink", "")
		s.refuses(`pipeline copied follows no changes of tables`, command, "copied", "--dataset", "t")
	}
	s.refuses("--all ends every pause", "resume", "shop", "--all", "--sink", "lake")
	s.refuses("a condition belongs to one dataset", "backfill", "shop", "--where", "id > 1")
	s.refuses("a condition belongs to one dataset", "backfill", "shop", "--where", "id > 1", "--dataset", "public.lines", "--dataset", "public.users")
	s.refuses("want one of them", "backfill", "shop", "--list", "--cancel", "1")
	s.refuses("leave --sink, --dataset, --where and --wait out", "backfill", "shop", "--list", "--wait")
	s.refuses("--json is for --list", "backfill", "shop", "--json")
	s.refuses("nobody asked for such a backfill of shop", "backfill", "shop", "--cancel", "1")
	s.refuses("nobody asked for such a backfill of shop", "backfill", "shop", "--cancel", "0")
}

// A file says what the sinks are, and may be paused before its first run.
func TestOrdersOfAFile(t *testing.T) {
	s := newShell(t)
	file := filepath.Join(t.TempDir(), "new.yaml")
	text := "name: new\nsource: {well: {host: h, follow: true}}\nsinks: {lake: {book: out}, replica: {book: b}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.refuses(`nothing is saved about pipeline "new"`, "pause", "new")
	s.refuses(`unknown sink "lkae": did you mean "lake"?`, "pause", file, "--sink", "lkae")
	s.says("sink lake is paused: it gets nothing more\n  its changes wait on disk, and nobody else waits\n"+within+"leat resume new --sink lake ends it\n",
		"pause", file, "--sink", "lake")
	s.says("dataset any is paused: its changes are let go, and it is copied once more when it is resumed\n"+within+
		"leat resume new --dataset any ends it\n", "pause", file, "--dataset", "any")
	if code, out, _ := s.run("status", file); code != ExitCheck || !strings.Contains(out, "paused    sink lake; dataset any\n") {
		t.Errorf("status: %d %s", code, out)
	}
	s.says("sink lake goes on with what waits for it\ndataset any goes on: it is copied once more, while its changes are followed\n"+goesOn,
		"resume", "new", "--all")
	s.refuses("well can't copy only some of the rows", "backfill", file, "--dataset", "any", "--where", "id > 1")
}

// A request is kept once, until it is complete or taken back.
func TestBackfillRequests(t *testing.T) {
	s := newShell(t)
	s.save(shop(""))
	const begins = "a process that runs shop begins within a second, else the next one that is started\n"
	s.says("no backfill of shop is asked for\n", "backfill", "shop", "--list")
	s.says("[]\n", "backfill", "shop", "--list", "--json")
	s.says("backfill 1: dataset public.lines is copied once more into sink lake\n"+begins,
		"backfill", "shop", "--dataset", "public.lines", "--sink", "lake")
	s.says("backfill 2: all datasets are copied once more into all sinks\n"+begins, "backfill", "shop")
	s.says("backfill 3: dataset public.lines where id > 1 is copied once more into all sinks\n"+begins,
		"backfill", "shop", "--dataset", "public.lines", "--where", " id > 1 ")
	s.says("backfill 1 asks for that already: dataset public.lines is copied once more into sink lake\n"+begins,
		"backfill", "shop", "--sink", "lake", "--dataset", "public.lines", "--sink", "lake")
	asked := start0.Local().Format(time.DateTime)
	s.says(`id  datasets      sinks  rows          asked
─── ───────────── ────── ───────────── ────────────────────
 1  public.lines  lake   all           `+asked+`
 2  all           all    all           `+asked+`
 3  public.lines  all    where id > 1  `+asked+`
`, "backfill", "shop", "--list")

	s.says("backfill 2 is cancelled: where its copy has not begun it is not made; one that has begun goes on to its end\n",
		"backfill", "shop", "--cancel", "2")
	s.says("backfill 2 is off the list: it was cancelled: there is nothing to cancel\n", "backfill", "shop", "--cancel", "2")
	s.says("backfill 4: all datasets are copied once more into all sinks\n"+begins, "backfill", "shop")
	if code, _, _ := s.run("pause", "shop", "--dataset", "public.lines"); code != ExitOK {
		t.Errorf("pausing: %d", code)
	}
	s.refuses("dataset public.lines is paused: it is copied once more when it is resumed", "backfill", "shop", "--dataset", "public.lines")
}

// Whoever waits sees how it goes, and how it ends.
func TestBackfillWait(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(o *state.Orders)
		ledger string
		code   int
		want   string
	}{
		"complete": {end: func(o *state.Orders) { o.Backfills = nil }, want: "backfill 1 is complete\n"},
		"refused": {
			end: func(o *state.Orders) { *o = o.Fail(1, "none of its sinks can be filled") }, code: ExitFailed,
			want: "backfill 1 was not run to its end: none of its sinks can be filled\n",
		},
		"failed": {
			ledger: `{"backfill":{"seeded":{},"jobs":[{"dataset":"public.orders","lanes":["lake"],"failed":true}]}}`, code: ExitFailed,
			want: "backfill 1: dataset public.orders failed for sink lake\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			s.save(shop(""))
			store := s.store()
			heard, w := io.Pipe()
			s.hear = w
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { _, _ = io.Copy(io.Discard, heard) }()
				if line, err := bufio.NewReader(heard).ReadString('\n'); err != nil {
					t.Errorf("hearing %q: %v", line, err)
				}
				if c.ledger != "" {
					r, version, _ := store.Load(t.Context(), "shop")
					r.Progress.Ledger = []byte(c.ledger)
					if _, err := store.Save(t.Context(), r, version); err != nil {
						t.Errorf("saving: %v", err)
					}
					return
				}
				if _, err := state.UpdateOrders(t.Context(), store, "shop", func(o *state.Orders) error { c.end(o); return nil }); err != nil {
					t.Errorf("ending it: %v", err)
				}
			}()
			code, out, errs := s.run("backfill", "shop", "--dataset", "public.orders", "--sink", "lake", "--wait")
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			<-ended
			if code != c.code || !strings.Contains(out+errs, c.want) {
				t.Errorf("ended with %d:\n%s%s", code, out, errs)
			}
			if !strings.Contains(errs, "leat: backfill 1: public.orders for lake: 1,234 rows\n") {
				t.Errorf("no progress: %s", errs)
			}
		})
	}
}

func TestBackfillWaitIsInterrupted(t *testing.T) {
	s := newShell(t)
	s.save(shop(""))
	stop := make(chan struct{})
	s.app.Drain = stop
	s.hear = writerFunc(sync.OnceFunc(func() { close(stop) })) // once it waits
	code, _, errs := s.run("backfill", "shop", "--wait")
	if code != ExitInterrupted || !strings.Contains(errs, "backfill 1 stays asked for") {
		t.Errorf("ended with %d: %s", code, errs)
	}
}

// writerFunc is called for each write.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// A process that does nothing is told from one that is slow.
func TestBackfillWatchSilent(t *testing.T) {
	s := testSession(t)
	now := start0
	s.Now = func() time.Time { return now }
	var said bytes.Buffer
	s.stderr = &said
	w := backfillWatch{s: s, b: state.Backfill{ID: 7}, moved: now, begun: map[[2]string]bool{}}
	for i := range 40 {
		now = now.Add(time.Second)
		version := state.Version(1)
		if i >= 20 {
			version = 2
		}
		if err := w.look(state.Record{}, version); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(said.String(), "is a process running the pipeline?"); got != 2 {
		t.Errorf("said %d times:\n%s", got, said.String())
	}
}

// What waits for each sink, from what is saved.
func TestLanes(t *testing.T) {
	s := newShell(t)
	s.save(shop("3-aa"))
	s.says(`sink     lane     state  acknowledged   waiting      bytes    oldest  epoch       last error
──────── ──────── ────── ────────────── ──────────── ──────── ─────── ─────────── ───────────────────────
lake     durable  down   {"lsn":"0/0"}  1,234 items  14.0 MB  1h00m   12 decided  writing: no space left
replica  durable  live   {"lsn":"0/1"}  0 items      0 B
`, "lanes", "shop")
	if code, _, errs := s.run("pause", "shop", "--sink", "replica"); code != ExitOK {
		t.Error(errs)
	}
	code, out, _ := s.run("lanes", "shop", "--json")
	for _, want := range []string{
		`"state": "paused"`, `"waiting_bytes": 14000000`, `"item": 90`, `"kind": "durable"`, `"number": 12,`, `"decided": true`,
		`"oldest": "` + start0.Add(-time.Hour).UTC().Format(time.RFC3339) + `"`,
	} {
		if code != ExitOK || !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	bare := savedRecord("", time.Hour)
	bare.Pipeline = "bare"
	s.save(bare)
	s.says("nothing is saved about the lanes of bare yet\n", "lanes", "bare")
	s.says("[]\n", "lanes", "bare", "--json")
}

// clause E10
// cases C064, C110: what is paused, what waits, what is asked for, and the state of every dataset.
func TestStatusShowsOrders(t *testing.T) {
	s := newShell(t)
	s.save(shop(""))
	for _, args := range [][]string{
		{"pause", "shop"},
		{"pause", "shop", "--sink", "lake"},
		{"pause", "shop", "--dataset", "public.gone"},
		{"backfill", "shop", "--dataset", "public.lines"},
	} {
		if code, _, errs := s.run(args...); code != ExitOK {
			t.Errorf("%q: %s", args, errs)
		}
	}
	code, out, _ := s.run("status", "shop")
	if code != ExitOK { // public.gone did not fail: somebody paused it
		t.Errorf("status ended with %d", code)
	}
	_, shown, _ := s.run("state", "show", "shop")
	for _, want := range []string{
		"paused    the pipeline; sink lake; dataset public.gone\n",
		"public.gone    lake     paused\n",
		"lake     memory  paused  {\"lsn\":\"0/0\"}  1,234 items  14.0 MB  1h00m   12 decided  writing: no space left\n",
		"public.orders  lake     snapshot  1,234 rows\n",
		"\nbackfills asked for\n",
		" 1  public.lines  all    all   ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("status: no %q in\n%s", want, out)
		}
		if !strings.Contains(shown, want) {
			t.Errorf("state show: no %q in\n%s", want, shown)
		}
	}
	for _, want := range []string{"attempt   3\n", "run       3-aa\n", "  sink lake.path: x\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("state show: no %q in\n%s", want, shown)
		}
	}
	_, out, _ = s.run("status", "shop", "--json")
	for _, want := range []string{`"pipeline": true`, `"sinks": [`, `"where"`} {
		if strings.Contains(out, want) == (want == `"where"`) {
			t.Errorf("status --json: %s in\n%s", want, out)
		}
	}
}

// A pipeline that is paused saves nothing: that alone is no failure; that changes wait too long is.
func TestPausedIsNotStale(t *testing.T) {
	const live = `{"backfill":{"seeded":{"a":["t"]}}}`
	for want, lag := range map[string]connector.Lag{
		"": {Bytes: 5, Events: -1, Age: time.Second, Retained: 5},
		"changes have waited for 1h00m, as the pipeline is paused": {Bytes: 5, Events: -1, Age: time.Hour, Retained: 5},
	} {
		st := &pipelineStatus{}
		st.ordered(state.Orders{Paused: true})
		if err := st.fill(savedRecord(live, time.Hour), start0); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			st.judge(time.Minute)
			if !st.OK {
				t.Errorf("not asked: %q", st.Problems)
			}
		}
		st.setLag(lag)
		st.judge(time.Minute)
		if got := strings.Join(st.Problems, "; "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// clause S14: what can't be read can be let go of with what the message says.
func TestResetOfWhatCannotBeRead(t *testing.T) {
	s := newShell(t)
	s.save(shop(""))
	if code, _, errs := s.run("pause", "shop"); code != ExitOK {
		t.Fatal(errs)
	}
	s.says("what was ordered for shop is forgotten\n", "state", "reset", "shop", "--orders", "--yes")
	s.says("nothing was ordered for shop\n", "state", "reset", "shop", "--orders", "--yes")
	if code, _, errs := s.run("backfill", "shop"); code != ExitOK {
		t.Fatal(errs)
	}
	s.damage(`update pipeline_orders set orders = replace(orders, '"format":1', '"format":99')`)
	if code, _, errs := s.run("pause", "shop"); code != ExitFailed || !strings.Contains(errs, "leat state reset shop --orders") {
		t.Errorf("ended with %d: %s", code, errs)
	}
	s.says("what was ordered for shop is forgotten\n", "state", "reset", "shop", "--orders", "--yes")
	if o, _, err := s.store().Orders(t.Context(), "shop"); err != nil || !o.Empty() || o.Last < 1 {
		t.Errorf("%+v, %v", o, err)
	}
	s.damage(`update pipeline set record = replace(record, '"format":2', '"format":99')`)
	if code, _, errs := s.run("state", "reset", "shop"); code != ExitUsage || !strings.Contains(errs, "nobody is there to ask") {
		t.Errorf("ended with %d: %s", code, errs)
	}
	if code, out, _ := s.run("state", "reset", "shop", "--yes"); code != ExitOK || out != "shop begins anew with its next run\n" {
		t.Errorf("ended with %d: %s", code, out)
	}
	s.says("nothing is saved\n", "state", "list")
}

func TestLaneKindOfAFile(t *testing.T) {
	for want, p := range map[string]*config.Pipeline{
		config.LanesMemory:  syncOf(t, syncFlags{}, "well://h/shop", "sqlite:a.db"),
		config.LanesDurable: syncOf(t, syncFlags{}, "well://h/shop", "sqlite:a.db", "book:out"),
	} {
		if got := (target{p: p, file: true}).laneKind(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	p := syncOf(t, syncFlags{lanes: config.LanesMemory}, "well://h/shop", "sqlite:a.db", "book:out")
	if got := (target{p: p, file: true}).laneKind(); got != config.LanesMemory {
		t.Errorf("got %q", got)
	}
}
