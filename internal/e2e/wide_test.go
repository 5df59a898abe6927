package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	peak := watchPeak(cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, log.Bytes())
	}
	info, err := os.Stat(out)
	if err != nil || info.Size() < 600_000_000 {
		t.Fatalf("%d bytes were written (%v)", info.Size(), err)
	}
	most := <-peak
	if most == 0 {
		t.Fatal("the system does not say how much memory was used")
	}
	if t.Logf("peak memory %d MB", most>>20); most > memoryPromise {
		t.Errorf("peak memory %d MB, want at most %d MB", most>>20, memoryPromise>>20)
	}
}

// watchPeak looks until the process ends how much memory it had resident at most, in bytes. What the system says of a process that has
// ended counts the one that started it, too.
func watchPeak(pid int) <-chan int64 {
	result := make(chan int64, 1)
	go func() {
		most := int64(0)
		for {
			n, ok := residentPeak(pid)
			if !ok {
				result <- most
				return
			}
			most = max(most, n)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return result
}

// residentPeak is the most memory that a living process had resident, in bytes.
func residentPeak(pid int) (int64, bool) {
	doc, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.SplitSeq(string(doc), "\n") {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false // it has ended, and nobody has waited for it yet
}
