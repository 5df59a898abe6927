package jetstream_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/jetstream"
	"github.com/leatdata/leat/record"
)

func position(n int) record.Position {
	return record.Position{Shape: 1, Data: json.RawMessage(strconv.Itoa(n))}
}

func positioned(n int) lane.Batch {
	return lane.Batch{Batch: &record.Batch{Position: position(n), Changes: 1}}
}

func numbered(from, rows int) lane.Batch {
	return lane.Batch{Batch: connectortest.Numbered("t", from, rows)}
}

// batchIn returns the batch of a delivery, an empty one where there is none.
func batchIn(x lane.Delivery[lane.Item]) lane.Batch {
	b, ok := x.Item().(lane.Batch)
	if !ok {
		return lane.Batch{Batch: &record.Batch{}}
	}
	return b
}

func openInside(t testing.TB, dir string, spec lane.Spec) lane.Durable {
	t.Helper()
	d, err := jetstream.Open(t.Context(), jetstream.Config{Dir: dir}, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Release() })
	return d
}

// clause W12: all types, in whole batches and windows, from memory and from the disk: the digest at publication equals the digest at each
// delivery.
func TestDigests(t *testing.T) {
	dir := t.TempDir()
	spec := lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a", "b"}}
	d := openInside(t, dir, spec)
	var want []uint64
	for i := range 6 {
		b := connectortest.Batch("t", connectortest.Cases()...)
		if i%2 == 1 {
			b = connectortest.Sliced(b)
		}
		b.Old, b.Changes = b.Rows, i
		b.Position = position(i)
		want = append(want, connectortest.Digest(b))
		if err := d.Publish(t.Context(), lane.Batch{Batch: b, Ledger: "{}"}); err != nil {
			t.Fatal(err)
		}
	}
	compare := func(sink string, from int) {
		t.Helper()
		c, err := d.Lane(sink)
		if err != nil {
			t.Fatal(err)
		}
		for i := from; i < len(want); i++ {
			x, err := c.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			b := batchIn(x)
			if connectortest.Digest(b.Batch) != want[i] || b.Ledger != "{}" || b.Changes != i || x.Number() != uint64(i+1) {
				t.Errorf("%s: item %d has changed", sink, i)
			}
			if sink == "a" && i < 3 {
				if err := x.Ack(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	compare("a", 0)
	if err := d.Release(); err != nil {
		t.Fatal(err)
	}
	d = openInside(t, dir, spec)
	compare("a", 3)
	compare("b", 0)
}

// One process at a time: who comes second hears who has them open, and what to do. Then there is List, and Remove.
func TestLocked(t *testing.T) {
	c := jetstream.Config{Dir: t.TempDir()}
	spec := lane.Spec{Pipeline: "Orders.v2", Run: "r", Sinks: []string{"a", "b"}}
	d := openInside(t, c.Dir, spec)
	list := func(f func(*lane.Inspection) error) error { return jetstream.List(t.Context(), c, spec.Pipeline, f) }
	_, err := jetstream.Open(t.Context(), c, spec)
	for doing, err := range map[string]error{
		"opening": err, "listing": list(nil), "removing": jetstream.Remove(t.Context(), c, spec.Pipeline),
	} {
		e, ok := errors.AsType[*connector.Error](err)
		if !ok || e.Code != "lanes.locked" || e.Hint == "" || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
			t.Errorf("%s: %v", doing, err)
		}
	}
	b := numbered(1, 10)
	b.Position = position(10)
	if err := errors.Join(d.Publish(t.Context(), numbered(1, 5), "b"), d.Publish(t.Context(), b)); err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(t.Context(), lane.SnapshotComplete{Datasets: []string{"t"}}, "b"); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(); err != nil {
		t.Fatal(err)
	}
	err = list(func(i *lane.Inspection) error {
		if len(i.Lanes) != 2 || i.Lanes[0].Items != 1 || i.Lanes[0].Rows != 10 || i.Lanes[1].Items != 3 || i.Lanes[1].Oldest.IsZero() {
			t.Errorf("%+v", i.Lanes)
		}
		var numbers []uint64
		for p, err := range i.Items(t.Context()) {
			if err != nil {
				return err
			}
			numbers = append(numbers, p.Number)
			if p.Number == 2 && (p.Rows != 10 || p.Dataset != "t" || p.Ops["insert"] != 10 || p.Position.String() != "10" || p.Bytes == 0) {
				t.Errorf("%+v", p)
			}
			if p.Complete != (p.Number == 3) || (p.Number != 2) != (len(p.To) == 1) {
				t.Errorf("%+v", p)
			}
		}
		if len(numbers) != 3 || i.Stored.Position.String() != "10" {
			t.Errorf("items %v, stored %s", numbers, i.Stored.Position)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := jetstream.Remove(t.Context(), c, spec.Pipeline); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(c.Dir, "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// What is no configuration is refused before anything is done.
func TestConfig(t *testing.T) {
	for name, c := range map[string]jetstream.Config{
		"nothing": {}, "both": {Dir: t.TempDir(), URL: "nats://localhost"}, "no URL": {URL: "nats://%zz"},
	} {
		if _, err := jetstream.Open(t.Context(), c, lane.Spec{Pipeline: "p", Run: "r"}); connector.ClassOf(err) != connector.ClassConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := jetstream.Config{Dir: t.TempDir()}
	if _, err := jetstream.Open(t.Context(), c, lane.Spec{Pipeline: "../p", Run: "r"}); connector.ClassOf(err) != connector.ClassConfig {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "p"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Open(t.Context(), c, lane.Spec{Pipeline: "p", Run: "r"}); err == nil {
		t.Error("a file is no folder")
	}
}
