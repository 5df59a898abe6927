package lane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

// clauses W2, W3, W5, W6, W7
// Lanes that take and acknowledge at random, each at its own pace: the watermark is at every moment the position up to which the
// slowest lane has acknowledged everything, and it is the same after something was given back.
func TestWatermarkOfUnequalLanes(t *testing.T) {
	for seed := range uint64(300) {
		if err := unequalLanes(t.Context(), rand.New(rand.NewPCG(seed, 1))); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// pacedLane is a lane with what its consumer holds, and the acknowledged numbers.
type pacedLane struct {
	consumer lane.Consumer[lane.Item]
	held     []lane.Delivery[lane.Item]
	acked    map[uint64]bool
}

func unequalLanes(ctx context.Context, chance *rand.Rand) error {
	sinks := []string{"a", "b", "c"}[:2+chance.IntN(2)]
	m, err := lane.NewMemory(sinks, lane.Options{})
	if err != nil {
		return err
	}
	lanes := make([]*pacedLane, len(sinks))
	for i, s := range sinks {
		c, err := m.Lane(s)
		if err != nil {
			return err
		}
		lanes[i] = &pacedLane{consumer: c, acked: map[uint64]bool{}}
	}
	positioned := []bool{false} // by number of publication
	for range 40 {
		if chance.IntN(3) == 0 {
			at := record.Position{}
			if chance.IntN(3) > 0 {
				at = record.Position{Shape: 1, Data: json.RawMessage(strconv.Itoa(len(positioned)))}
			}
			positioned = append(positioned, !at.Zero())
			if err := m.Publish(ctx, lane.Batch{Batch: &record.Batch{Position: at}}); err != nil {
				return err
			}
		} else if err := lanes[chance.IntN(len(lanes))].step(ctx, chance); err != nil {
			return err
		}
		at, ok := m.Watermark()
		if want := slowest(lanes, positioned); ok != (want > 0) || (ok && string(at.Position.Data) != strconv.Itoa(want)) {
			return fmt.Errorf("watermark %s, %t; want %d of %v", at.Position, ok, want, positioned)
		}
	}
	return nil
}

// step takes an item, or acknowledges or gives back one that is held.
func (l *pacedLane) step(ctx context.Context, chance *rand.Rand) error {
	if len(l.held) == 0 || chance.IntN(2) == 0 {
		if l.consumer.CaughtUp() {
			return nil
		}
		d, err := l.consumer.Receive(ctx)
		l.held = append(l.held, d)
		return err
	}
	i := chance.IntN(len(l.held))
	d := l.held[i]
	if chance.IntN(4) == 0 {
		back := l.held[i:]
		l.held = l.held[:i]
		if err := d.Nack(); err != nil {
			return err
		}
		for _, b := range back { // those behind it go back, too, but for what was acknowledged
			if err := b.Ack(); !errors.Is(err, lane.ErrRevoked) {
				return fmt.Errorf("item %d went back with %d, and its acknowledgement answers %w", b.Number(), d.Number(), err)
			}
		}
		return nil
	}
	l.held = append(l.held[:i], l.held[i+1:]...)
	l.acked[d.Number()] = true
	return d.Ack()
}

// slowest is the number of the last publication with a position up to which every lane has acknowledged everything; 0: none.
func slowest(lanes []*pacedLane, positioned []bool) int {
	low := len(positioned)
	for _, l := range lanes {
		at := 0
		for n := 1; n < len(positioned) && l.acked[uint64(n)]; n++ {
			if positioned[n] {
				at = n
			}
		}
		low = min(low, at)
	}
	return low
}

// clause W13
// The mark that answers a request goes to the lane that asked, behind what was published there before, and no other lane hears of it.
// Until the request is acknowledged it comes again, so that a crash between the two repeats the answer and never loses it.
func TestMarksGoToThoseThatAsked(t *testing.T) {
	m, err := lane.NewMemory([]string{"a", "b"}, lane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a request that is lost is no reason to wait for ever
	defer cancel()
	ask, err := m.Requests()
	rows := lane.Batch{Batch: batchOf(2, 1)}
	if err := errors.Join(err, m.Ask(lane.Request{Sink: "a", Datasets: []string{"x"}}), m.Publish(ctx, rows, "a")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first time whoever serves it is lost behind the mark
		r, err := ask.Receive(ctx)
		if err != nil || r.Item().Sink != "a" {
			t.Fatal(err, r)
		}
		if err := m.Publish(ctx, lane.SnapshotComplete{Datasets: r.Item().Datasets}, r.Item().Sink); err != nil {
			t.Fatal(err)
		}
		if ask, err = m.Requests(); err != nil {
			t.Fatal(err)
		}
		if ask.CaughtUp() {
			t.Error("a request is gone before it was acknowledged")
		}
	}
	r, err := ask.Receive(ctx)
	if err != nil || r.Ack() != nil {
		t.Fatal(err)
	}
	if ask, err = m.Requests(); err != nil || !ask.CaughtUp() {
		t.Error("a request comes again after it was acknowledged", err)
	}
	a, err := m.Lane("a")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		d, err := a.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, mark := d.Item().(lane.SnapshotComplete); mark != (i > 0) {
			t.Errorf("item %d of the lane that asked: %v", i, d.Item())
		}
	}
	if s, err := m.Stats("b"); err != nil || s.Published.Items != 0 {
		t.Errorf("the other lane got %d items, %v", s.Published.Items, err)
	}
	if b, err := m.Lane("b"); err == nil {
		timed, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		if d, err := b.Receive(timed); err == nil {
			t.Errorf("the other lane got %v", d.Item())
		}
	}
}
