package mysql

import (
	"encoding/json"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/mybinlog"
	"github.com/leatdata/leat/record"
)

const testUUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

// The quick way to make a position gives the bytes of the plain one.
func TestPositionCode(t *testing.T) {
	g := mybinlog.GTID{N: 7}
	g.Source.UUID, _ = mybinlog.ParseUUID(testUUID)
	for _, p := range []streamPosition{
		{Flavor: "mysql", GTIDs: testUUID + ":1-7", GTID: testUUID + ":7", place: place{"binlog.000001", 155}, Server: "a \"b\" é"},
		{Flavor: "mysql", ByPlace: true, place: place{"binlog.000001", 155}, Server: testUUID},
		{Flavor: "mysql", GTIDs: testUUID + ":1-7", Server: "x"},
	} {
		c := newPositionCode(mybinlog.MySQL, p.Server)
		c.byPlace = p.ByPlace
		gtid := g
		if p.GTID == "" {
			gtid = mybinlog.GTID{}
		}
		if got, want := c.encode([]byte(p.GTIDs), gtid, p.place, false), p.encode(); !got.Equal(want) {
			t.Errorf("%s, want %s", got, want)
		}
		c.tables = []byte(`{"db.t":{"columns":[{"name":"id","type":"int"}]}}`)
		back, err := decodeStream(c.encode([]byte(p.GTIDs), gtid, p.place, true))
		if err != nil || back.Tables == nil || len((*back.Tables)["db.t"].Columns) != 1 || back.place != p.place {
			t.Errorf("%+v, %v", back, err)
		}
	}
}

// Positions of one server are ordered by their places, those of several by what they include.
func TestPositionOrder(t *testing.T) {
	at := func(server, file string, pos uint64, gtids string) record.Position {
		return streamPosition{Flavor: "mysql", Server: server, place: place{file, pos}, GTIDs: gtids}.encode()
	}
	set := func(n string) string { return testUUID + ":" + n }
	for _, c := range []struct {
		a, b  record.Position
		order int
		ok    bool
	}{
		{at("s", "b.000001", 5, ""), at("s", "b.000001", 4, ""), 1, true},
		{at("s", "b.999999", 5, ""), at("s", "b.1000000", 4, ""), -1, true},
		{at("s", "b.000001", 5, set("1-3")), at("s", "b.000001", 5, set("1-3")), 0, true},
		{at("s", "b.000001", 5, set("1-3")), at("r", "b.000009", 4, set("1-4")), -1, true},
		{at("s", "b.000009", 5, set("1-3")), at("r", "b.000001", 4, set("1-3")), 0, true},
		{at("s", "b.000009", 5, set("1-3:5")), at("r", "b.000001", 4, set("1-4")), 0, false},
		{at("s", "b.000009", 5, ""), at("r", "b.000001", 4, ""), 0, false},
	} {
		for _, turned := range []bool{false, true} {
			a, b, want := c.a, c.b, c.order
			if turned {
				a, b, want = b, a, -want
			}
			if order, ok := compareStream(a, b); ok != c.ok || order != want {
				t.Errorf("%s against %s: %d, %v", a, b, order, ok)
			}
		}
	}
}

// Positions of other readings, of newer versions, and damaged ones are refused.
// clauses S4, S14.
func TestPositionRefused(t *testing.T) {
	for _, p := range []record.Position{
		{Shape: 1, Data: json.RawMessage(`{"chunks":[]}`)},
		{Shape: 3, Data: json.RawMessage(`{"flavor":"mysql","server":"s","gtids":""}`)},
		{Shape: 2, Data: json.RawMessage(`{"flavor":"mysql","gtids":"x","server":"s"}`)},
		{Shape: 2, Data: json.RawMessage(`{"flavor":"mysql","by_place":true,"server":"s"}`)},
		{Shape: 2, Data: json.RawMessage(`{"flavor":"mysql"}`)},
	} {
		if _, err := migrateFollowed(p); connector.ClassOf(err) != connector.ClassPosition {
			t.Errorf("%s is taken: %v", p, err)
		}
	}
}
