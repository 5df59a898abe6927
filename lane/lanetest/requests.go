package lanetest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/lane"
)

// Requests draws what is asked, served, lost and asked again: each request is served in full after it was asked, or still waits; equal
// ones coalesce, so that no more wait than there are sinks.
//
// It proves clause W13.
func Requests(t *testing.T, k Kit) {
	t.Helper()
	k.run(t, func(t *rapid.T) {
		m, finish := k.Open(t, lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a", "b"}})
		defer finish()
		type served struct {
			real  lane.Delivery[lane.Request]
			valid bool
		}
		var waiting []lane.Request // in order
		var inHand []*served
		c, err := m.Requests()
		must(t, err == nil, "%v", err)
		takeBack := func(from int) { // requests from this one on go back, in order, before those that wait
			var back []lane.Request
			for _, s := range inHand[from:] {
				if s.valid {
					back, s.valid = append(back, s.real.Item()), false
				}
			}
			waiting = append(back, waiting...)
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				r := lane.Request{Sink: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "sink")}
				r.Datasets = rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 1, 3).Draw(t, "datasets")
				must(t, m.Ask(r) == nil, "asking")
				i := slices.IndexFunc(waiting, func(w lane.Request) bool { return w.Sink == r.Sink })
				if i < 0 {
					i, waiting = len(waiting), append(waiting, lane.Request{Sink: r.Sink})
				}
				all := slices.Sorted(slices.Values(slices.Concat(waiting[i].Datasets, r.Datasets)))
				waiting[i].Datasets = slices.Compact(all)
			},
			"serve": func(t *rapid.T) {
				if len(waiting) == 0 {
					t.Skip("nothing waits")
				}
				d, err := c.Receive(t.Context())
				must(t, err == nil, "receiving: %v", err)
				must(t, cmp.Equal(d.Item(), waiting[0]), "received %v, want %v", d.Item(), waiting[0])
				waiting = waiting[1:]
				inHand = append(inHand, &served{d, true})
			},
			"done": func(t *rapid.T) {
				if len(inHand) == 0 {
					t.Skip("nothing in hand")
				}
				s := rapid.SampledFrom(inHand).Draw(t, "request")
				err := s.real.Ack()
				must(t, !s.valid || err == nil, "acknowledging: %v", err)
				s.valid = false
			},
			"give back": func(t *rapid.T) {
				if len(inHand) == 0 {
					t.Skip("nothing in hand")
				}
				i := rapid.IntRange(0, len(inHand)-1).Draw(t, "request")
				if inHand[i].valid {
					takeBack(i)
				}
				must(t, inHand[i].real.Nack() == nil, "giving back")
			},
			"lose the server": func(t *rapid.T) {
				takeBack(0)
				inHand = nil
				c, err = m.Requests()
				must(t, err == nil, "%v", err)
			},
			"": func(t *rapid.T) {
				must(t, c.CaughtUp() == (len(waiting) == 0), "caught up: %v, but %v wait", c.CaughtUp(), waiting)
				busy := len(waiting) > 0 || slices.ContainsFunc(inHand, func(s *served) bool { return s.valid })
				must(t, m.Idle() != busy, "idle: %v", m.Idle())
			},
		})
	})
}
