package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/state/sqlite"
	"github.com/leatdata/leat/state/statetest"
)

const pipeline = "orders"

// childEnv makes the test binary an owner that saves for ever in the file that it names.
const childEnv = "LEAT_STATE_TEST_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		saveForEver(path)
		return
	}
	os.Exit(m.Run())
}

// saveForEver goes on from where the last owner ended and prints the rows of each record once it and the orders behind it are saved.
func saveForEver(path string) {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, v, err := s.Load(ctx, pipeline)
	if errors.Is(err, state.ErrNotFound) {
		r, err = statetest.Sample(pipeline), nil
		r.Rows = 0
	}
	_, ordered, errOrders := s.Orders(ctx, pipeline)
	for err = errors.Join(err, errOrders); err == nil; fmt.Println(r.Rows) {
		r.Rows++
		if v, err = s.Save(ctx, r, v); err == nil {
			ordered, err = s.SaveOrders(ctx, pipeline, state.Orders{Last: uint64(r.Rows)}, ordered)
		}
	}
	fmt.Println(err)
}

func openAt(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// clauses S14, E16: the contract of a store; what was saved is there for the next process.
func TestContract(t *testing.T) {
	statetest.Run(t, func(t *testing.T) statetest.Open {
		t.Helper()
		path := filepath.Join(t.TempDir(), "made", "state.db")
		return func(t *testing.T) state.Store {
			t.Helper()
			s, err := sqlite.Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	})
}

// clause E8: an owner is killed at any moment; the next one finds the last record that was confirmed, or the one being saved.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	confirmed := int64(0)
	for range 8 {
		ctx, kill := context.WithTimeout(t.Context(), time.Duration(30+rand.IntN(120))*time.Millisecond)
		child := exec.CommandContext(ctx, os.Args[0]) // killed with SIGKILL
		child.Env = append(os.Environ(), childEnv+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, err := fmt.Sscan(lines.Text(), &confirmed); err != nil {
				t.Errorf("the owner says %q", lines.Text())
			}
		}
		_ = child.Wait()
		kill()
		s := openAt(t, path)
		r, _, err := s.Load(t.Context(), pipeline)
		if errors.Is(err, state.ErrNotFound) && confirmed == 0 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		o, _, err := s.Orders(t.Context(), pipeline)
		if err != nil || (o.Last != uint64(r.Rows) && o.Last != uint64(r.Rows-1)) || o.Last < uint64(confirmed) {
			t.Errorf("orders %d behind rows %d, error %v, and %d were confirmed", o.Last, r.Rows, err, confirmed)
		}
		if r.Rows != confirmed && r.Rows != confirmed+1 {
			t.Errorf("rows %d, but %d were confirmed", r.Rows, confirmed)
		}
		want := statetest.Sample(pipeline)
		want.Rows, confirmed = r.Rows, r.Rows
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	if confirmed == 0 {
		t.Error("nothing was ever saved: the test shows nothing")
	}
}

// clause E16: whatever part of the log was not yet on the disk when power was lost, one of the saved records is left, and a shorter
// log never gives a later one.
func TestTornLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openAt(t, path)
	r := statetest.Sample(pipeline)
	var v state.Version
	var err error
	for r.Rows = 1; r.Rows <= 3; r.Rows++ {
		if v, err = s.Save(t.Context(), r, v); err != nil {
			t.Fatal(err)
		}
	}
	data, errData := os.ReadFile(path)
	log, errLog := os.ReadFile(path + "-wal")
	if errData != nil || errLog != nil || len(log) < 3*4096 {
		t.Fatalf("%d bytes of log, errors %v, %v", len(log), errData, errLog)
	}
	last := int64(0)
	for cut := 0; cut <= len(log); cut += 412 { // a frame has 4096+24 bytes
		torn := filepath.Join(t.TempDir(), "state.db")
		if err := errors.Join(os.WriteFile(torn, data, 0o600), os.WriteFile(torn+"-wal", log[:cut], 0o600)); err != nil {
			t.Fatal(err)
		}
		got, _, err := openAt(t, torn).Load(t.Context(), pipeline)
		if err != nil && (!errors.Is(err, state.ErrNotFound) || last > 0) {
			t.Errorf("%d of %d bytes of log: %v", cut, len(log), err)
		}
		if got.Rows < last {
			t.Errorf("%d of %d bytes of log: rows %d after %d", cut, len(log), got.Rows, last)
		}
		last = got.Rows
	}
	if last < 2 {
		t.Errorf("rows %d with nearly all of the log", last)
	}
}

// clause E16: the settings that make a commit durable are on.
func TestSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "state.db")
	openAt(t, path)
	for name, want := range map[string]os.FileMode{filepath.Dir(path): os.ModeDir | 0o700, path: 0o600} {
		info, err := os.Stat(name)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, error %v, want %v", name, info.Mode(), err, want)
		}
	}
	conn, err := driver.OpenConn(path, driver.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "user_version": "2", "application_id": "1818583412"} {
		got, err := sqlitex.ResultText(conn.Prep("pragma " + pragma))
		if err != nil || got != want {
			t.Errorf("%s is %q, error %v, want %q", pragma, got, err, want)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	foreign, newer, text := filepath.Join(dir, "foreign.db"), filepath.Join(dir, "newer.db"), filepath.Join(dir, "text.db")
	for path, script := range map[string]string{
		foreign: "create table pipeline (name text)",
		newer:   "create table pipeline (name text); pragma application_id = 1818583412; pragma user_version = 3",
	} {
		conn, err := driver.OpenConn(path, driver.OpenReadWrite, driver.OpenCreate)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(sqlitex.ExecuteScript(conn, script, nil), conn.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{foreign, newer, text, dir, filepath.Join(text, "state.db")} {
		before, _ := os.ReadFile(path)
		_, err := sqlite.Open(t.Context(), path)
		if err == nil || !strings.Contains(err.Error(), path) || connector.HintOf(err) == "" {
			t.Errorf("%s: %v", path, err)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s: it was changed", path)
		}
	}
}

// clause S14: a file from before there were orders is taken on, with all that it holds.
func TestOlderLayout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	conn, err := driver.OpenConn(path, driver.OpenReadWrite, driver.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	record, err := os.ReadFile("../testdata/format1.json")
	if err != nil {
		t.Fatal(err)
	}
	script := "create table pipeline (name text primary key, version integer not null, record text not null) strict, without rowid;" +
		"pragma application_id = 1818583412; pragma user_version = 1;" +
		"insert into pipeline values ('orders', 77, '" + strings.ReplaceAll(string(record), "'", "''") + "')"
	if err := errors.Join(sqlitex.ExecuteScript(conn, script, nil), conn.Close()); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, path)
	statetest.Expect(t, s, statetest.SampleOfFormat1("orders"), 77)
	v, err := s.SaveOrders(t.Context(), "orders", statetest.SampleOrders(), 0)
	if err != nil {
		t.Fatal(err)
	}
	statetest.ExpectOrders(t, openAt(t, path), "orders", statetest.SampleOrders(), v)
	if v, err = s.Save(t.Context(), statetest.Sample("orders"), 77); err != nil || v != 78 {
		t.Errorf("version %d, %v", v, err)
	}
}

// clause S14: a record that this program can't read is refused, and the others are listed.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openAt(t, path)
	for _, name := range []string{pipeline, "zebra"} {
		if _, err := s.Save(t.Context(), statetest.Sample(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := driver.OpenConn(path, driver.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	change := `update pipeline set record = replace(record, '"format":2', '"format":3') where name = 'orders'`
	if err := errors.Join(sqlitex.ExecuteScript(conn, change, nil), conn.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Load(t.Context(), pipeline); connector.ClassOf(err) != connector.ClassPosition {
		t.Errorf("loading: %v", err)
	}
	list, err := s.List(t.Context())
	if connector.ClassOf(err) != connector.ClassPosition || len(list) != 1 || list[0].Pipeline != "zebra" {
		t.Errorf("listing: %d records, %v", len(list), err)
	}
}

// Saving again and again takes no more room: a pipeline is followed for years.
func TestStaysSmall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, v := statetest.Sample(pipeline), state.Version(0)
	for range 500 {
		if v, err = s.Save(t.Context(), r, v); err != nil {
			t.Fatal(err)
		}
	}
	size := int64(0)
	files, err := os.ReadDir(dir)
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			size += info.Size()
		}
	}
	if err != nil || size > 800<<10 {
		t.Errorf("after 500 saves the folder has %d bytes in %d files, error %v", size, len(files), err)
	}
}
