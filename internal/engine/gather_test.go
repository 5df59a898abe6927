package engine

import "testing"

// A sink's wish decides how much is gathered for it, within the bytes that are collected before a commit; a batch that a source makes when
// it is behind is small beside a large wish.
func TestGatherRoom(t *testing.T) {
	for _, c := range []struct {
		wish   int
		commit int64
		want   gatherRoom
	}{
		{0, mostCommit, gatherRoom{8192, 4 << 20, 1024}},
		{100, leastShare, gatherRoom{8192, 4 << 20, 1024}},
		{64 << 10, mostCommit, gatherRoom{64 << 10, 8 << 20, defaultRows + 1}},
		{64 << 10, leastShare, gatherRoom{64 << 10, 4 << 20, defaultRows + 1}},
	} {
		if got := gatherRoomFor(c.wish, c.commit); got != c.want {
			t.Errorf("a wish for %d rows, commits of %d bytes: %+v, want %+v", c.wish, c.commit, got, c.want)
		}
	}
}
