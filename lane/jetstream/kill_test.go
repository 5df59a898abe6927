package jetstream_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/jetstream"
	"github.com/leatdata/leat/record"
)

// The test binary runs itself as a process that publishes to three lanes and delivers them, and is killed. What sinks have and what the
// source released is in files, which a kill leaves as they are.
//
//   - exact and slow commit rows and progress in one write, and say at the next start what they have;
//   - blind keeps no progress: what it gets twice is in its file twice.
const (
	childEnv  = "LEAT_LANES_CHILD" // folder of the files
	childURL  = "LEAT_LANES_URL"   // of an external server; empty: inside
	childSeed = "LEAT_LANES_SEED"
)

var killSpec = lane.Spec{
	Pipeline: "kill", Run: "r", Sinks: []string{"exact", "slow", "blind"}, Options: lane.Options{Items: 8, Bytes: 1 << 20},
}

func killConfig(dir, url string) jetstream.Config {
	if url != "" {
		return jetstream.Config{URL: connector.Secret(url)}
	}
	return jetstream.Config{Dir: filepath.Join(dir, "lanes")}
}

// worker is the process that is killed.
type worker struct {
	dir  string
	d    lane.Durable
	r    *rand.Rand
	fail chan error
}

func child() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seed, _ := strconv.ParseUint(os.Getenv(childSeed), 10, 64)
	w := &worker{dir: os.Getenv(childEnv), r: rand.New(rand.NewPCG(seed, 2)), fail: make(chan error, 10)}
	var err error
	if w.d, err = jetstream.Open(ctx, killConfig(w.dir, os.Getenv(childURL)), killSpec); err != nil {
		return report(err)
	}
	after := 0
	if m, ok := w.d.Stored(); ok {
		after, _ = strconv.Atoi(m.Position.String())
	}
	if released := lastLine(w.path("released")); len(released) > 0 {
		if n, _ := strconv.Atoi(released[0]); n > after {
			return report(fmt.Errorf("the source released everything up to %d, and the lanes have %d", n, after))
		}
	}
	var work sync.WaitGroup
	work.Go(func() { w.told(w.publish(ctx, after)) })
	work.Go(func() { w.told(w.release(ctx)) })
	for _, s := range killSpec.Sinks {
		work.Go(func() { w.told(w.deliver(ctx, s)) })
	}
	for range len(killSpec.Sinks) + 1 { // all but the one that releases
		if err := <-w.fail; err != nil {
			return report(err)
		}
	}
	cancel()
	work.Wait()
	return report(w.d.Release())
}

func (w *worker) told(err error) { w.fail <- err }

func report(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

func (w *worker) path(name string) string { return filepath.Join(w.dir, name) }

// publish sends changes without end, until there is a file "finish" and everything was sent again that a sink has got before it was cut
// off: the beginning of a replay unit whose end was not stored.
func (w *worker) publish(ctx context.Context, n int) error {
	sent := 0
	if last := lastLine(w.path("blind")); len(last) == 4 {
		sent, _ = strconv.Atoi(last[2])
	}
	for {
		_, err := os.Stat(w.path("finish"))
		if err == nil && n >= sent {
			if err := os.WriteFile(w.path("end"), []byte(strconv.Itoa(n)), 0o600); err != nil {
				return err
			}
			return w.d.Close()
		}
		for items := 1 + w.r.IntN(12); items > 0; items-- {
			rows := 1 + w.r.IntN(5)
			if w.r.IntN(50) == 0 {
				rows = 20_000 // several parts
			}
			b := connectortest.Numbered("t", n+1, rows)
			b.Changes = rows
			n += rows
			if items == 1 {
				b.Position = position(n)
			}
			if err := w.d.Publish(ctx, lane.Batch{Batch: b}); err != nil {
				return err
			}
		}
	}
}

// release is the source that lets go of what is stored.
func (w *worker) release(ctx context.Context) error {
	f, err := os.OpenFile(w.path("released"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // a test
	for {
		select {
		case <-w.d.Moved():
		case <-ctx.Done():
			return nil
		}
		if m, ok := w.d.Stored(); ok {
			if _, err := fmt.Fprintln(f, m.Position.String()); err != nil {
				return err
			}
		}
	}
}

// deliver takes a lane to its end. A line of its file is: number of the item, first change, last change, position.
func (w *worker) deliver(ctx context.Context, sink string) error {
	if last := lastLine(w.path(sink)); sink != "blind" && len(last) == 4 {
		item, _ := strconv.ParseUint(last[0], 10, 64)
		if ok, err := w.d.Covered(sink, item); err != nil || !ok {
			return fmt.Errorf("sink %s has item %d: %v, %w", sink, item, ok, err)
		}
	}
	f, err := os.OpenFile(w.path(sink), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // a test
	c, err := w.d.Lane(sink)
	if err != nil {
		return err
	}
	var lines strings.Builder
	var held []lane.Delivery[lane.Item]
	for {
		x, err := c.Receive(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("sink %s: %w", sink, err)
		}
		b, _ := x.Item().(lane.Batch)
		first, last, err := span(b.Batch)
		if err != nil {
			return err
		}
		fmt.Fprintln(&lines, x.Number(), first, last, b.Position)
		held = append(held, x)
		if b.Position.Zero() && sink != "blind" {
			continue
		}
		if _, err := f.WriteString(lines.String()); err != nil {
			return err
		}
		lines.Reset()
		if sink == "slow" {
			time.Sleep(5 * time.Millisecond)
		}
		for _, x := range held {
			if err := x.Ack(); err != nil {
				return err
			}
		}
		held = nil
		if s, err := w.d.Stats(sink); err != nil || s.Published.Changes != s.Acked.Changes+s.InFlight.Changes+s.Queued.Changes {
			return fmt.Errorf("sink %s: %+v, %w", sink, s, err)
		}
	}
}

// span checks that the rows are consecutive, and returns the first and the last.
func span(b *record.Batch) (first, last int, err error) {
	for i := range b.NumRows() {
		var row struct {
			ID int `json:"id"`
		}
		if i > 0 && i < b.NumRows()-1 && b.NumRows() > 100 && i%1000 > 0 {
			continue
		}
		if err := json.Unmarshal(b.RowJSON(i), &row); err != nil {
			return 0, 0, err
		}
		if i == 0 {
			first = row.ID
		}
		if last = row.ID; last != first+i {
			return 0, 0, fmt.Errorf("row %d of %s has %d", i, b.RowJSON(0), last)
		}
	}
	return first, last, nil
}

// lastLine returns the words of the last line that is complete.
func lastLine(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 2 {
		return nil
	}
	return strings.Fields(lines[len(lines)-2])
}

// runChild runs the process until it ends, or kills it after a while.
func runChild(t *testing.T, dir, url string, seed int, killAfter time.Duration) (killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir, childURL+"="+url, childSeed+"="+strconv.Itoa(seed))
	var out strings.Builder
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if killAfter > 0 {
		timer := time.AfterFunc(killAfter, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err := cmd.Wait()
	if out.Len() > 0 {
		t.Fatalf("seed %d: %s", seed, out.String())
	}
	return err != nil
}

// clauses W1, W2, W3, W5, W6, W12, W14, W16, E16: SIGKILL at any instruction, many times: each sink that says what it has gets every change
// exactly once and in order; one that does not gets everything in order, with repetitions; nothing that the source released is missing.
func TestKill(t *testing.T) {
	killAndCheck(t, "", 20, func(int) {})
}

func killAndCheck(t *testing.T, url string, kills int, before func(try int)) {
	t.Helper()
	dir := t.TempDir()
	for i := range kills {
		before(i)
		wait := 20*time.Millisecond + time.Duration(rand.N(700))*time.Millisecond
		if !runChild(t, dir, url, i, wait) {
			t.Fatal("it ended by itself")
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "finish"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before(kills)
	if runChild(t, dir, url, kills, time.Minute) {
		t.Fatal("it does not come to an end")
	}
	b, err := os.ReadFile(filepath.Join(dir, "end"))
	if err != nil {
		t.Fatal(err)
	}
	end, _ := strconv.Atoi(string(b))
	for _, s := range killSpec.Sinks {
		checkFile(t, filepath.Join(dir, s), end, s == "blind")
	}
	t.Logf("%d changes in spite of %d kills", end, kills)
	if end < 1000 {
		t.Error("too few to mean anything")
	}
	checkEmpty(t, killConfig(dir, url))
}

// checkFile reads what a sink has.
func checkFile(t *testing.T, path string, end int, repeats bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test
	next, number, again := 1, uint64(0), 0
	for s := bufio.NewScanner(f); s.Scan(); {
		var n uint64
		var first, last int
		if _, err := fmt.Sscan(s.Text(), &n, &first, &last); err != nil {
			t.Fatalf("%s: %q: %v", path, s.Text(), err)
		}
		if first > next || (first < next && !repeats) {
			t.Fatalf("%s: change %d follows %d", path, first, next-1)
		}
		if first < next {
			again++
		}
		if n <= number && !repeats {
			t.Fatalf("%s: item %d follows %d", path, n, number)
		}
		next, number = last+1, n
	}
	if next != end+1 {
		t.Errorf("%s: ends at %d of %d", path, next-1, end)
	}
	t.Logf("%s: %d items again", filepath.Base(path), again)
}

// checkEmpty looks at what is left when everything was delivered.
func checkEmpty(t *testing.T, c jetstream.Config) {
	t.Helper()
	err := jetstream.List(t.Context(), c, killSpec.Pipeline, func(i *lane.Inspection) error {
		for _, l := range i.Lanes {
			if l.Items != 0 {
				t.Errorf("%+v", l)
			}
		}
		n := 0
		for _, err := range i.Items(t.Context()) {
			if err != nil {
				return err
			}
			n++
		}
		if n > 2000 { // of the last packs
			t.Errorf("%d items are left, though everything is delivered", n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := jetstream.Remove(t.Context(), c, killSpec.Pipeline); err != nil {
		t.Error(err)
	}
	err = jetstream.List(t.Context(), c, killSpec.Pipeline, func(*lane.Inspection) error { return nil })
	if e, ok := errors.AsType[*connector.Error](err); !ok || e.Code != "lanes.none" {
		t.Errorf("removed, but: %v", err)
	}
	if c.Dir != "" {
		if _, err := os.Stat(filepath.Join(c.Dir, killSpec.Pipeline)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder is still there: %v", err)
		}
	}
}
