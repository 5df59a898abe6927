package mybinlog_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/leatdata/leat/format/mybinlog"
)

const (
	uuidA = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	uuidB = "3e11fa47-71ca-11e1-9e33-c80aa9429563"
)

// Sets are read and printed in the servers' forms.
func TestGTIDSetText(t *testing.T) {
	for _, c := range []struct {
		flavor   mybinlog.Flavor
		in, want string
	}{
		{mybinlog.MySQL, "", ""},
		{mybinlog.MySQL, uuidA + ":1-5", uuidA + ":1-5"},
		{mybinlog.MySQL, "3E11FA47-71CA-11E1-9E33-C80AA9429562:7:1-5:6,\n" + uuidB + ":3", uuidA + ":1-7," + uuidB + ":3"},
		{mybinlog.MySQL, uuidA + ":1-3:11:47-49:tag:1-2:9:z:4", uuidA + ":1-3:11:47-49:tag:1-2:9:z:4"},
		{mybinlog.MySQL, uuidB + ":tag:5," + uuidA + ":2", uuidA + ":2," + uuidB + ":tag:5"},
		{mybinlog.MariaDB, "1-2-3,0-1-55", "0-1-55,1-2-3"},
	} {
		s, err := mybinlog.ParseGTIDSet(c.flavor, c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		if got := s.String(); got != c.want {
			t.Errorf("%q is printed as %q, want %q", c.in, got, c.want)
		}
	}
	for _, bad := range []string{"x", uuidA, uuidA + ":", uuidA + ":0", uuidA + ":a-b", uuidA[1:] + ":1"} {
		if s, err := mybinlog.ParseGTIDSet(mybinlog.MySQL, bad); err == nil {
			t.Errorf("%q is taken for %q", bad, s)
		}
	}
	for _, bad := range []string{"0-1", "0-1-x", "5000000000-1-1"} {
		if s, err := mybinlog.ParseGTIDSet(mybinlog.MariaDB, bad); err == nil {
			t.Errorf("%q is taken for %q", bad, s)
		}
	}
}

// Sets have what was added, whatever the order, and order each other as plain sets do.
func TestGTIDSetModel(t *testing.T) {
	sources := make([]mybinlog.Source, 3)
	for i := range sources {
		sources[i].UUID[0] = byte(i / 2)
		sources[i].Tag = map[int]string{1: "t"}[i]
	}
	draw := func(t *rapid.T, name string) (*mybinlog.GTIDSet, map[mybinlog.GTID]bool) {
		set, model := mybinlog.NewGTIDSet(mybinlog.MySQL), map[mybinlog.GTID]bool{}
		for i := range rapid.IntRange(0, 30).Draw(t, name) {
			g := mybinlog.GTID{
				Source: sources[rapid.IntRange(0, 2).Draw(t, fmt.Sprintf("%s%d", name, i))],
				N:      uint64(rapid.IntRange(1, 12).Draw(t, fmt.Sprintf("%sn%d", name, i))),
			}
			set.Add(g)
			model[g] = true
		}
		return set, model
	}
	rapid.Check(t, func(t *rapid.T) {
		a, modelA := draw(t, "a")
		b, modelB := draw(t, "b")
		covers := true
		for g := range modelB {
			covers = covers && modelA[g]
		}
		if a.Covers(b) != covers {
			t.Fatalf("%s covers %s: %v", a, b, !covers)
		}
		for _, src := range sources {
			for n := uint64(1); n <= 12; n++ {
				g := mybinlog.GTID{Source: src, N: n}
				if a.Has(g) != modelA[g] {
					t.Fatalf("%s has %s: %v", a, g, !modelA[g])
				}
			}
		}
		left := a.Minus(b, 1000)
		for _, g := range left {
			if !modelA[g] || modelB[g] {
				t.Fatalf("%s without %s has %s", a, b, g)
			}
			delete(modelA, g)
		}
		for g := range modelA {
			if !modelB[g] {
				t.Fatalf("%s without %s lacks %s", a, b, g)
			}
		}
		again, err := mybinlog.ParseGTIDSet(mybinlog.MySQL, a.String())
		if err != nil || !again.Equal(a) {
			t.Fatalf("%s is read as %s: %v", a, again, err)
		}
		both := a.Clone()
		both.Union(b)
		if !both.Covers(a) || !both.Covers(b) {
			t.Fatalf("%s is not all of %s and %s", both, a, b)
		}
	})
}
