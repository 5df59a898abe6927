package vfs_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/internal/vfs"
)

func write(t *testing.T, fsys vfs.FS, name, data string, sync bool) {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	if sync {
		check(t, f.Sync())
	}
	check(t, f.Close())
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree is the content of folder /d; nil where there is no such folder.
func tree(m *vfs.Mem) map[string]string {
	names, err := m.ReadDir("/d")
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for _, n := range names {
		data, err := m.ReadFile("/d/" + n)
		out[n] = string(data)
		if err != nil {
			out[n] = err.Error()
		}
	}
	return out
}

func all(n int) int { return n }

// clause E16: what was not synced, file or name, is gone after loss of power; what was is not.
func TestCrashClone(t *testing.T) {
	m := vfs.NewMem()
	check(t, m.MkdirAll("/d"))
	if got := tree(m.CrashClone(nil)); got != nil {
		t.Errorf("a folder whose parent was not synced: %v", got)
	}
	check(t, m.SyncDir("/"))
	write(t, m, "/d/a", "old", true)
	if diff := cmp.Diff(map[string]string{}, tree(m.CrashClone(nil))); diff != "" {
		t.Errorf("a name that was not synced (-want +got)\n%s", diff)
	}
	check(t, m.SyncDir("/d"))
	write(t, m, "/d/b", "new", false)
	check(t, m.Rename("/d/b", "/d/a"))
	for name, c := range map[string]struct {
		keep func(int) int
		want map[string]string
	}{
		"nothing kept":    {nil, map[string]string{"a": "old"}},
		"everything kept": {all, map[string]string{"a": "new"}},
		"half kept":       {func(n int) int { return n / 2 }, map[string]string{"a": "old", "b": "n"}},
	} {
		if diff := cmp.Diff(c.want, tree(m.CrashClone(c.keep))); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	check(t, m.SyncDir("/d"))
	if diff := cmp.Diff(map[string]string{"a": ""}, tree(m.CrashClone(nil))); diff != "" {
		t.Errorf("a name that was synced before its data (-want +got)\n%s", diff)
	}
	check(t, m.Remove("/d/a"))
	if diff := cmp.Diff(map[string]string{"a": ""}, tree(m.CrashClone(nil))); diff != "" {
		t.Errorf("a removal that was not synced (-want +got)\n%s", diff)
	}
	clone := m.CrashClone(nil)
	write(t, clone, "/d/c", "apart", true)
	if diff := cmp.Diff(map[string]string{}, tree(m)); diff != "" {
		t.Errorf("a clone is not apart (-want +got)\n%s", diff)
	}
}

func TestErrors(t *testing.T) {
	m := vfs.NewMem()
	check(t, m.MkdirAll("/d"))
	write(t, m, "/d/a", "x", false)
	_, created := m.Create("/d/a")
	_, nowhere := m.Create("/e/a")
	_, read := m.ReadFile("/d/b")
	for name, c := range map[string]struct{ got, want error }{
		"create twice":         {created, fs.ErrExist},
		"create without dir":   {nowhere, fs.ErrNotExist},
		"read":                 {read, fs.ErrNotExist},
		"remove":               {m.Remove("/d/b"), fs.ErrNotExist},
		"rename":               {m.Rename("/d/b", "/d/a"), fs.ErrNotExist},
		"rename across":        {m.Rename("/d/a", "/a"), fs.ErrInvalid},
		"sync":                 {m.SyncDir("/e"), fs.ErrNotExist},
		"folder over a file":   {m.MkdirAll("/d/a/b"), fs.ErrExist},
		"rename onto the same": {m.Rename("/d/a", "/d/a"), nil},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

func TestHook(t *testing.T) {
	m := vfs.NewMem()
	check(t, m.MkdirAll("/d"))
	broken := errors.New("broken")
	var seen []string
	h := vfs.Hook(m, func(o vfs.Op) error {
		seen = append(seen, o.String())
		if o.Kind == "write" {
			return broken
		}
		return nil
	})
	f, err := h.Create("/d/a")
	check(t, err)
	if _, err := f.Write([]byte("data")); !errors.Is(err, broken) {
		t.Errorf("write: %v", err)
	}
	check(t, f.Sync())
	check(t, f.Close())
	if diff := cmp.Diff(map[string]string{"a": "da"}, tree(m)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"0: create /d/a", "1: write /d/a", "2: sync /d/a", "3: close /d/a"}, seen); diff != "" || h.Ops() != 4 {
		t.Errorf("%d operations (-want +got)\n%s", h.Ops(), diff)
	}
}
