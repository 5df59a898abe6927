package jetstream_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/jetstream"
	"github.com/leatdata/leat/record"
)

func position(n int) record.Position {
	return record.Position{Shape: 1, Data: json.RawMessage(strconv.Itoa(n))}
}

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	open := func(sinks ...string) lane.Durable {
		t.Helper()
		d, err := jetstream.Open(t.Context(), jetstream.Config{Dir: dir}, lane.Spec{Pipeline: "p", Run: "r1", Sinks: sinks})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open("a", "b")
	for i := range 10 {
		b := connectortest.Batch("t", connectortest.Cases()...)
		if i%3 == 2 {
			b.Position = position(i)
		}
		if err := d.Publish(t.Context(), lane.Batch{Batch: b, Ledger: "{}"}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := d.Lane("a")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		x, err := c.Receive(t.Context())
		if err != nil || x.Number() != uint64(i+1) {
			t.Fatal(err)
		}
		if err := x.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Release(); err != nil {
		t.Fatal(err)
	}
	d = open("a", "b")
	m, ok := d.Stored()
	ha, _ := d.Holds("a")
	hb, _ := d.Holds("b")
	t.Logf("stored %s %v, a %+v, b %+v", m.Position, ok, ha, hb)
	c, err = d.Lane("a")
	if err != nil {
		t.Fatal(err)
	}
	for i := 5; i < 9; i++ {
		x, err := c.Receive(t.Context())
		if err != nil || x.Number() != uint64(i+1) {
			t.Fatal(err)
		}
		if err := x.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	if !c.CaughtUp() {
		t.Error("not caught up")
	}
	if err := d.Release(); err != nil {
		t.Fatal(err)
	}
}
