package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/leatdata/leat/internal/pgtest"
)

// memoryPromise is what anything that streams stays below, in bytes.
const memoryPromise = 256 << 20

// case C068: rows of 400 kB each, more of them than fit into memory, go through the real binary within the promise: every buffer is
// bounded by bytes. (Rows here: 600 MB of JSON.)
func TestWideRows(t *testing.T) {
	bin := buildLeat(t)
	url := pgtest.Database(t)
	c := pgtest.Conn(t, url)
	for _, sql := range []string{
		`create table wide (id int primary key, a jsonb, b jsonb, c jsonb, d jsonb, e jsonb, f jsonb, g jsonb, h jsonb)`,
		`insert into wide select i, d, d, d, d, d, d, d, d from generate_series(1, 1500) i, ` +
			`lateral (select jsonb_build_object('k', repeat(md5(i::text), 1600)) d) x`,
		`analyze wide`,
	} {
		if _, err := c.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "wide.jsonl")
	cmd := exec.Command(bin, "copy", url+"&table=wide", out, "--state", t.TempDir())
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, log.Bytes())
	}
	info, err := os.Stat(out)
	if err != nil || info.Size() < 600_000_000 {
		t.Fatalf("%d bytes were written (%v)", info.Size(), err)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatal("the system does not say how much memory was used")
	}
	if peak := usage.Maxrss << 10; peak > memoryPromise {
		t.Errorf("peak memory %d MB, want at most %d MB", peak>>20, memoryPromise>>20)
	} else {
		t.Logf("peak memory %d MB", peak>>20)
	}
}
