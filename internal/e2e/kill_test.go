package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

const (
	killRows = 200_000
	kills    = 25
)

// binDir is where the binary goes; TestMain makes and removes it.
var binDir string

// built is the real binary, built once for all tests; DuckDB is left out, which the tests with it do not need.
var built = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(binDir, "leat")
	cmd := exec.Command("go", "build", "-o", bin, "github.com/leatdata/leat/cmd/leat")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building leat: %w\n%s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "leat-e2e-")
	if err != nil {
		panic(err)
	}
	binDir = dir
	code := m.Run()
	os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	os.Exit(code)
}

func buildLeat(t *testing.T) string {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// source fills a table that shows lost, doubled and altered rows.
func killSource(t *testing.T) string {
	t.Helper()
	url := pgtest.Database(t)
	c := pgtest.Conn(t, url)
	for _, sql := range []string{
		`create table items (id bigint primary key, name text not null, amount numeric(12,2), at timestamptz, note text)`,
		fmt.Sprintf(`insert into items select i, 'item ' || i, i * 1.25, timestamptz '2026-01-01Z' + i * interval '1 second', `+
			`case when i %% 7 = 0 then null else repeat(md5(i::text), 2) end from generate_series(1, %d) i`, killRows),
		`analyze items`,
	} {
		if _, err := c.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return url
}

// target is where the rows go, and how they are read back by another program than leat.
type target struct {
	name  string
	fresh func(t *testing.T) string
	read  func(t *testing.T, url string) (rows, distinct int, digest string)
}

// clauses E1, E5, E8; cases C063 — the real binary is killed at random points 25 times. It goes on each time where it was, and in the
// end the target equals the source: nothing is missing, nothing is doubled (the target has no key that could hide it).
func TestKillNine(t *testing.T) {
	bin := buildLeat(t)
	source := killSource(t)
	_, _, want := readPostgres(t, source, "public.items")
	for _, tg := range []target{
		{
			name: "postgres",
			fresh: func(t *testing.T) string {
				t.Helper()
				return pgtest.Database(t)
			},
			read: func(t *testing.T, url string) (int, int, string) {
				t.Helper()
				return readPostgres(t, url, "public.items")
			},
		},
		{
			name: "sqlite",
			fresh: func(t *testing.T) string {
				t.Helper()
				return "sqlite:" + filepath.Join(t.TempDir(), "target.db")
			},
			read: func(t *testing.T, url string) (int, int, string) {
				t.Helper()
				return readSQLite(t, url[len("sqlite:"):])
			},
		},
	} {
		t.Run(tg.name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			if s, err := strconv.ParseUint(os.Getenv("LEAT_KILL_SEED"), 10, 64); err == nil {
				seed = s
			}
			t.Logf("LEAT_KILL_SEED=%d", seed)
			rnd := rand.New(rand.NewPCG(seed, 1))
			killed, partial := 0, 0
			for killed < kills {
				url, state := tg.fresh(t), t.TempDir()
				for done := false; !done; {
					delay := time.Duration(-1)
					if killed < kills {
						delay = time.Duration(20+rnd.IntN(900)) * time.Millisecond
					}
					if done = runAndKill(t, bin, delay, state, source+"&table=public.items&chunk_bytes=1000000", url); done {
						break
					}
					killed++
					if finished(t, bin, state) { // killed behind the end, before it could say so
						break
					}
					if rows, _, _ := tg.read(t, url); rows > 0 && rows < killRows {
						partial++
					}
				}
				rows, distinct, got := tg.read(t, url)
				if rows != killRows || distinct != killRows || got != want {
					t.Fatalf("the target has %d rows, %d distinct, digest %s; the source has %d, digest %s", rows, distinct, got, killRows, want)
				}
			}
			t.Logf("killed %d times, %d of them with part of the rows committed", killed, partial)
			if partial < 5 {
				t.Errorf("only %d of %d kills hit a run that had committed part of the rows: the test proves too little", partial, killed)
			}
		})
	}
}

// runAndKill copies, and kills the process after the delay (negative: never). It reports whether the copy ended by itself.
func runAndKill(t *testing.T, bin string, delay time.Duration, state, source, target string) bool {
	t.Helper()
	cmd := exec.Command(bin, "copy", source, target, "--state", state, "--mode", "append", "--commit-bytes", "1000000")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var timer <-chan time.Time
	if delay >= 0 {
		timer = time.After(delay)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("leat copy: %v\n%s", err, out.Bytes())
		}
		return true
	case <-timer:
		if err := cmd.Process.Kill(); err != nil {
			t.Logf("killing: %v", err)
		}
		return <-ended == nil // it may have ended just before
	}
}

// finished reports whether the saved state says that the copy was done: the same command would begin anew.
func finished(t *testing.T, bin, state string) bool {
	t.Helper()
	out, err := exec.Command(bin, "state", "list", "--state", state, "--json").Output()
	if err != nil {
		t.Fatalf("leat state list: %v", err)
	}
	var saved []struct {
		Progress record.Progress `json:"progress"`
	}
	if err := json.Unmarshal(out, &saved); err != nil {
		t.Fatalf("leat state list: %v\n%s", err, out)
	}
	return len(saved) == 1 && saved[0].Progress.Done
}

func readPostgres(t *testing.T, url, table string) (rows, distinct int, digest string) {
	t.Helper()
	c := pgtest.Conn(t, url)
	ctx := context.Background()
	var exists bool
	if err := c.QueryRow(ctx, `select to_regclass($1) is not null`, table).Scan(&exists); err != nil {
		t.Fatal(err)
	}
	if !exists {
		return 0, 0, ""
	}
	if err := c.QueryRow(ctx, `select count(*), count(distinct id) from `+table).Scan(&rows, &distinct); err != nil {
		t.Fatal(err)
	}
	r, err := c.Query(ctx, `select id::text, name, amount::text, `+
		`to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), note from `+table+` t order by t.id`)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	var id, name, amount, at string
	var note *string
	if _, err := pgx.ForEachRow(r, []any{&id, &name, &amount, &at, &note}, func() error {
		addRow(h, id, name, amount, at, note)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return rows, distinct, hex.EncodeToString(h.Sum(nil))
}

func addRow(h interface{ Write([]byte) (int, error) }, id, name, amount, at string, note *string) {
	n := "NULL"
	if note != nil {
		n = "'" + *note
	}
	fmt.Fprintf(h, "%s|%s|%s|%s|%s\n", id, name, amount, at, n) //nolint:errcheck // a hash never fails
}

func readSQLite(t *testing.T, path string) (rows, distinct int, digest string) {
	t.Helper()
	c, err := sqlite.OpenConn(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // only read
	tables := 0
	one := func(sql string, dst ...*int) {
		if err := sqlitex.ExecuteTransient(c, sql, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			for i, d := range dst {
				*d = s.ColumnInt(i)
			}
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if one(`select count(*) from sqlite_master where name = 'items'`, &tables); tables == 0 {
		return 0, 0, ""
	}
	one(`select count(*), count(distinct id) from items`, &rows, &distinct)
	h := sha256.New()
	if err := sqlitex.ExecuteTransient(c, `select id, name, printf('%.2f', amount), at, note from items order by id`, &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error {
			var note *string
			if !s.ColumnIsNull(4) {
				n := s.ColumnText(4)
				note = &n
			}
			addRow(h, s.ColumnText(0), s.ColumnText(1), s.ColumnText(2), s.ColumnText(3), note)
			return nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	return rows, distinct, hex.EncodeToString(h.Sum(nil))
}
