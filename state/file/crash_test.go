package file_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/internal/vfs"
	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/state/file"
	"github.com/leatdata/leat/state/statetest"
)

const (
	dir      = "/srv/state"
	pipeline = "orders"
)

// expected is what a store may hold: the last number that was confirmed, or the one that was being saved. 0 is nothing.
type expected struct{ confirmed, saving int64 }

// content is something that a store keeps of a pipeline: its record or its orders. It holds a number, so that it can be told which one of
// those that were saved it is.
type content struct {
	save func(ctx context.Context, s *file.Store, n int64, prev state.Version) (state.Version, error)
	load func(ctx context.Context, s *file.Store) (n int64, v state.Version, diff string, err error) // diff: how it is not whole
}

func contents() map[string]content {
	return map[string]content{
		"record": {
			save: func(ctx context.Context, s *file.Store, n int64, prev state.Version) (state.Version, error) {
				r := statetest.Sample(pipeline)
				r.Rows = n
				return s.Save(ctx, r, prev)
			},
			load: func(ctx context.Context, s *file.Store) (int64, state.Version, string, error) {
				r, v, err := s.Load(ctx, pipeline)
				if err != nil {
					if errors.Is(err, state.ErrNotFound) {
						err = nil
					}
					return 0, v, "", err
				}
				whole := statetest.Sample(pipeline)
				whole.Rows = r.Rows
				return r.Rows, v, cmp.Diff(whole, r), nil
			},
		},
		"orders": {
			save: func(ctx context.Context, s *file.Store, n int64, prev state.Version) (state.Version, error) {
				return s.SaveOrders(ctx, pipeline, state.Orders{Sinks: []string{"a"}, Last: uint64(n)}, prev)
			},
			load: func(ctx context.Context, s *file.Store) (int64, state.Version, string, error) {
				o, v, err := s.Orders(ctx, pipeline)
				if err != nil || v == 0 {
					return 0, v, "", err
				}
				return int64(o.Last), v, cmp.Diff(state.Orders{Sinks: []string{"a"}, Last: o.Last}, o), nil
			},
		},
	}
}

// work uses the store as an owner does: it opens it, saves contents whose numbers count up, and deletes the pipeline. It says what is
// expected before each step, and ends at the first error.
func work(t *testing.T, fsys file.FS, c content, note func(expected)) error {
	t.Helper()
	s, err := file.Open(fsys, dir)
	if err != nil {
		return err
	}
	var version state.Version
	for n := int64(1); n <= 4; n++ {
		note(expected{n - 1, n})
		if version, err = c.save(t.Context(), s, n, version); err != nil {
			return err
		}
		note(expected{n, n})
		got, v, _, err := c.load(t.Context(), s)
		if err != nil {
			return err
		}
		if v != version || got != n {
			t.Errorf("loaded %d in version %d, saved %d in version %d", got, v, n, version)
		}
		if _, err := s.List(t.Context()); err != nil {
			return err
		}
	}
	note(expected{4, 0})
	if err := s.Delete(t.Context(), pipeline); err != nil {
		return err
	}
	note(expected{0, 0})
	return s.Close()
}

// verify opens what is left, and checks that it is whole: the expected content, usable, and nothing else in the folder.
func verify(t *testing.T, after string, fsys file.FS, c content, want expected) {
	t.Helper()
	s, err := file.Open(fsys, dir)
	if err != nil {
		t.Fatalf("%s: opening: %v", after, err)
	}
	got, version, diff, err := c.load(t.Context(), s)
	if err != nil {
		t.Fatalf("%s: loading: %v", after, err)
	}
	if got != want.confirmed && got != want.saving {
		t.Errorf("%s: got %d, want %d or %d", after, got, want.confirmed, want.saving)
	}
	if diff != "" {
		t.Errorf("%s (-want +got)\n%s", after, diff)
	}
	names, err := fsys.ReadDir(dir)
	if err != nil || strings.Contains(fmt.Sprint(names), ".tmp") {
		t.Errorf("%s: left behind: %v, %v", after, names, err)
	}
	if _, err := c.save(t.Context(), s, 9, version); err != nil {
		t.Errorf("%s: going on: %v", after, err)
	}
}

// eachContent runs a test for the record and for the orders.
func eachContent(t *testing.T, test func(t *testing.T, c content)) {
	t.Helper()
	for name, c := range contents() {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

var errBroken = errors.New("input/output error")

// clause E16: whichever operation of the file system fails, the store holds the old record or the new one, also after a loss of power.
func TestFaultSweep(t *testing.T) { eachContent(t, faultSweep) }

func faultSweep(t *testing.T, c content) {
	t.Helper()
	for i := 0; ; i++ {
		var hit vfs.Op
		mem := vfs.NewMem()
		hooked := vfs.Hook(mem, func(o vfs.Op) error {
			if o.Index != i {
				return nil
			}
			hit = o
			return errBroken
		})
		var want expected
		err := work(t, hooked, c, func(e expected) { want = e })
		if hit.Kind == "" {
			if err != nil {
				t.Fatalf("no fault, but %v", err)
			}
			if i < 40 {
				t.Errorf("only %d operations: the sweep missed something", i)
			}
			return
		}
		if err != nil && !errors.Is(err, errBroken) {
			t.Errorf("fault at %s: %v", hit, err)
		}
		verify(t, "fault at "+hit.String(), mem.CrashClone(func(n int) int { return n }), c, want)
		// With power lost too: what was confirmed is durable whatever failed.
		verify(t, "fault and loss of power at "+hit.String(), mem.CrashClone(nil), c, want)
	}
}

// A failed sync of the folder leaves a name that may not be durable: Load must not vouch for it.
func TestLoadAfterFailedSync(t *testing.T) {
	mem := vfs.NewMem()
	failing := false
	s, err := file.Open(vfs.Hook(mem, func(o vfs.Op) error {
		if failing && o.Kind == "syncdir" {
			return errBroken
		}
		return nil
	}), dir)
	if err != nil {
		t.Fatal(err)
	}
	failing = true
	r := statetest.Sample(pipeline)
	if _, err := s.Save(t.Context(), r, 0); !errors.Is(err, errBroken) {
		t.Fatalf("saving: %v", err)
	}
	if _, _, err := s.Load(t.Context(), pipeline); !errors.Is(err, errBroken) {
		t.Errorf("loading what may be lost: %v", err)
	}
	failing = false
	_, version, err := s.Load(t.Context(), pipeline)
	if err != nil {
		t.Fatal(err)
	}
	left, err := file.Open(mem.CrashClone(nil), dir)
	if err != nil {
		t.Fatal(err)
	}
	statetest.Expect(t, left, r, version)
}

// clause E16: power is lost before each operation, and of what was not synced nothing, a part or all survives.
func TestPowerLoss(t *testing.T) { eachContent(t, powerLoss) }

func powerLoss(t *testing.T, c content) {
	t.Helper()
	type moment struct {
		op   vfs.Op
		mem  *vfs.Mem
		want expected
	}
	var moments []moment
	mem := vfs.NewMem()
	rng := rand.New(rand.NewPCG(1, 2))
	var want expected
	keeps := map[string]func(int) int{
		"nothing": nil,
		"all":     func(n int) int { return n },
		"some":    func(n int) int { return rng.IntN(n + 1) },
		"other":   func(n int) int { return rng.IntN(n + 1) },
	}
	hooked := vfs.Hook(mem, func(o vfs.Op) error {
		for _, keep := range keeps {
			moments = append(moments, moment{o, mem.CrashClone(keep), want})
		}
		return nil
	})
	if err := work(t, hooked, c, func(e expected) { want = e }); err != nil {
		t.Fatal(err)
	}
	for _, m := range moments {
		verify(t, "loss of power at "+m.op.String(), m.mem, c, m.want)
	}
}

// clause E16: the process dies before an operation, the next one reads the state, and then power is lost: what was read stays true,
// since the next owner acts upon it.
func TestWhatIsReadIsDurable(t *testing.T) { eachContent(t, whatIsReadIsDurable) }

func whatIsReadIsDurable(t *testing.T, c content) {
	t.Helper()
	number := func(fsys file.FS) int64 {
		s, err := file.Open(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		n, _, _, err := c.load(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i, dead := 0, true; dead; i++ {
		dead = false
		mem := vfs.NewMem()
		_ = work(t, vfs.Hook(mem, func(o vfs.Op) error {
			if o.Index < i {
				return nil
			}
			dead = true
			return errBroken
		}), c, func(expected) {})
		read := number(mem)
		if left := number(mem.CrashClone(nil)); left != read {
			t.Errorf("died before operation %d: read %d, and %d is left after loss of power", i, read, left)
		}
	}
}

// clauses S14, E16: the contract holds on the file systems of the sweeps as it does on a disk.
func TestContractInMemory(t *testing.T) {
	statetest.Run(t, func(*testing.T) statetest.Open {
		mem := vfs.Hook(vfs.NewMem(), func(vfs.Op) error { return nil })
		return func(t *testing.T) state.Store {
			t.Helper()
			s, err := file.Open(mem, dir)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	})
}
