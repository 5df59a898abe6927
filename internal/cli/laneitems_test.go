package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/jetstream"
	"github.com/leatdata/leat/record"
)

// What waits in durable lanes can be looked at while no process runs the pipeline.
func TestLaneItems(t *testing.T) {
	s := newShell(t)
	rec := shop("3-aa")
	s.save(rec)
	s.refuses("no run has kept its lanes here", "lanes", "shop", "--items", "5")

	spec := lane.Spec{Pipeline: "shop", Run: "3-aa", Sinks: []string{"lake", "replica"}}
	d, err := jetstream.Open(t.Context(), jetstream.Config{Dir: filepath.Join(s.dir, "lanes")}, spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{`{"lsn":"0/1"}`, `{"lsn":"0/2"}`, `{"lsn":"0/3"}`} {
		b := connectortest.Batch("public.orders", connectortest.Cases()...)
		b.Position = record.Position{Shape: 2, Data: []byte(at)}
		if err := d.Publish(t.Context(), lane.Batch{Batch: b, Ledger: "{}"}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := d.Lane("replica")
	if err != nil {
		t.Fatal(err)
	}
	x, err := c.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Ack(); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := s.run("lanes", "shop", "--items", "5"); code != ExitFailed || !strings.Contains(errs, "opening the lanes in") {
		t.Errorf("while a process has them: %d, %s", code, errs)
	}
	if err := d.Release(); err != nil {
		t.Fatal(err)
	}

	_, out, errs := s.run("lanes", "shop", "--items", "5")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 5 {
		t.Fatalf("%s%s", out, errs)
	}
	for i, want := range []string{" lake  ", " lake, replica  ", " lake, replica  "} {
		line := lines[i+2]
		if !strings.Contains(line, want) || !strings.Contains(line, "public.orders") || !strings.Contains(line, `{"lsn":"0/`) {
			t.Errorf("item %d: %s", i+1, line)
		}
	}
	_, out, _ = s.run("lanes", "shop", "--items", "1", "--sink", "replica")
	if !strings.Contains(out, `{"lsn":"0/2"}`) || strings.Contains(out, `{"lsn":"0/1"}`) || strings.Contains(out, `{"lsn":"0/3"}`) {
		t.Errorf("of one sink: %s", out)
	}
	_, out, _ = s.run("lanes", "shop", "--items", "1", "--json")
	for _, want := range []string{`"number": 1`, `"dataset": "public.orders"`, `"lake"`, `"lsn": "0/1"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	s.refuses("want no negative number", "lanes", "shop", "--items", "-1")
	s.refuses(`unknown sink "lkae": did you mean "lake"?`, "lanes", "shop", "--sink", "lkae")
	rec.Stream = ""
	s.save(rec)
	s.refuses("nobody sees into them from outside", "lanes", "shop", "--items", "1")
}
