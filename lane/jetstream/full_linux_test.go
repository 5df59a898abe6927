package jetstream_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
)

// A disk that is full under the server inside: an error that says so and what to do, soon; once there is room, the lanes are opened again and
// have everything that they said was stored.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=12m"); err != nil {
		t.Skipf("no file system of a small size can be made here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a"}}
	d := openInside(t, dir, spec)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		b := numbered(1, 20_000)
		b.Position = position(i + 1)
		err = d.Publish(t.Context(), b)
	}
	e, ok := errors.AsType[*connector.Error](err)
	if !ok || connector.ClassOf(err) != connector.ClassTransient || connector.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	t.Log(e)
	said, ok := d.Stored()
	if !ok {
		t.Error("nothing was stored")
	}
	if err := d.Release(); err != nil {
		t.Logf("releasing: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	d = openInside(t, dir, spec)
	now, _ := d.Stored()
	last, _ := strconv.Atoi(said.Position.String())
	if n, _ := strconv.Atoi(now.Position.String()); n < last {
		t.Errorf("said %d, and has %d", last, n)
	}
	c, err := d.Lane("a")
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= last; i++ {
		x, err := c.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if p := batchIn(x); p.Position.String() != strconv.Itoa(i) || p.NumRows() != 20_000 {
			t.Errorf("received %s, want %d", p.Position, i)
		}
		if err := x.Ack(); err != nil {
			t.Fatal(err)
		}
	}
}
