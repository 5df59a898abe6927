package pgoutput_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/format/pgoutput"
)

// Fields of messages as bytes.
const (
	lsn1   = "\x00\x00\x00\x01\x02\x03\x04\x05"
	lsn2   = "\x00\x00\x00\x01\x02\x03\x04\x06"
	moment = "\x00\x02\xea\x47\x0a\xe8\x60\x01" // 2026-01-01 and a microsecond
	later  = "\x00\x02\xea\x47\x0a\xe8\x60\x02"
	xid    = "\x00\x00\x02\xf1"
	subXID = "\x00\x00\x02\xf2"
	table  = "\x00\x00\x40\x01"
	other  = "\x00\x00\x40\x02"
	row    = "\x00\x04nut\x00\x00\x00\x03abcb\x00\x00\x00\x00"
)

var momentTime = time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC)

type message struct {
	name     string
	data     string
	inStream bool
	version  int // since which
	want     pgoutput.Message
}

func messages(t testing.TB) []message {
	t.Helper()
	tuple := func() pgoutput.Tuple {
		c, ok, err := pgoutput.ParseChange([]byte("I"+table+"N"+row), false)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return c.New
	}()
	at, after := momentTime, momentTime.Add(time.Microsecond)
	const one, two = 0x102030405, 0x102030406
	return []message{
		{"begin", "B" + lsn1 + moment + xid, false, 1, pgoutput.Begin{FinalLSN: one, Time: at, XID: 753}},
		{"commit", "C\x00" + lsn1 + lsn2 + moment, false, 1, pgoutput.Commit{LSN: one, EndLSN: two, Time: at}},
		{"origin", "O" + lsn1 + "upstream\x00", false, 1, pgoutput.Origin{LSN: one, Name: "upstream"}},
		{"origin in a stream", "O" + lsn1 + "upstream\x00", true, 2, pgoutput.Origin{LSN: one, Name: "upstream"}},
		{
			"relation", "R" + table + "public\x00t\x00d\x00\x02\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff\x00v\x00\x00\x00\x06\xa4\x00\x0c\x00\x06", false, 1,
			pgoutput.Relation{ID: 0x4001, Namespace: "public", Name: "t", Identity: 'd', Columns: []pgoutput.Column{
				{Name: "id", Type: 23, Mod: -1, Key: true}, {Name: "v", Type: 1700, Mod: 786438},
			}},
		},
		{
			"relation in a stream", "R" + xid + table + "\x00pg_x\x00f\x00\x00", true, 2,
			pgoutput.Relation{XID: 753, ID: 0x4001, Namespace: "pg_catalog", Name: "pg_x", Identity: 'f'},
		},
		{"type", "Y" + table + "public\x00mood\x00", false, 1, pgoutput.Type{ID: 0x4001, Namespace: "public", Name: "mood"}},
		{"type in a stream", "Y" + xid + table + "public\x00mood\x00", true, 2, pgoutput.Type{XID: 753, ID: 0x4001, Namespace: "public", Name: "mood"}},
		{"insert", "I" + table + "N" + row, false, 1, pgoutput.Insert{Relation: 0x4001, New: tuple}},
		{"insert in a stream", "I" + xid + table + "N" + row, true, 2, pgoutput.Insert{XID: 753, Relation: 0x4001, New: tuple}},
		{"update", "U" + table + "N" + row, false, 1, pgoutput.Update{Relation: 0x4001, New: tuple}},
		{"update of a key", "U" + table + "K" + row + "N" + row, false, 1, pgoutput.Update{Relation: 0x4001, OldKind: 'K', Old: tuple, New: tuple}},
		{
			"full update in a stream", "U" + xid + table + "O" + row + "N" + row, true, 2,
			pgoutput.Update{XID: 753, Relation: 0x4001, OldKind: 'O', Old: tuple, New: tuple},
		},
		{"delete", "D" + table + "K" + row, false, 1, pgoutput.Delete{Relation: 0x4001, OldKind: 'K', Old: tuple}},
		{"full delete in a stream", "D" + xid + table + "O" + row, true, 2, pgoutput.Delete{XID: 753, Relation: 0x4001, OldKind: 'O', Old: tuple}},
		{"truncate", "T\x00\x00\x00\x02\x03" + table + other, false, 1, pgoutput.Truncate{Relations: []uint32{0x4001, 0x4002}, Cascade: true, RestartIdentity: true}},
		{"truncate in a stream", "T" + xid + "\x00\x00\x00\x01\x02" + table, true, 2, pgoutput.Truncate{XID: 753, Relations: []uint32{0x4001}, RestartIdentity: true}},
		{"message", "M\x00" + lsn1 + "p\x00\x00\x00\x00\x02ab", false, 1, pgoutput.LogicalMessage{LSN: one, Prefix: "p", Content: []byte("ab")}},
		{
			"message in a stream", "M" + xid + "\x01" + lsn1 + "p\x00\x00\x00\x00\x00", true, 2,
			pgoutput.LogicalMessage{XID: 753, Transactional: true, LSN: one, Prefix: "p", Content: []byte{}},
		},
		{"stream start", "S" + xid + "\x01", false, 2, pgoutput.StreamStart{XID: 753, First: true}},
		{"stream stop", "E", true, 2, pgoutput.StreamStop{}},
		{"stream commit", "c" + xid + "\x00" + lsn1 + lsn2 + moment, false, 2, pgoutput.StreamCommit{XID: 753, LSN: one, EndLSN: two, Time: at}},
		{"stream abort", "A" + xid + subXID, false, 2, pgoutput.StreamAbort{XID: 753, SubXID: 754}},
		{"stream abort with a position", "A" + xid + subXID + lsn1 + moment, false, 4, pgoutput.StreamAbort{XID: 753, SubXID: 754, LSN: one, Time: at}},
		{"begin prepare", "b" + lsn1 + lsn2 + moment + xid + "gid\x00", false, 3, pgoutput.BeginPrepare{LSN: one, EndLSN: two, Time: at, XID: 753, GID: "gid"}},
		{"prepare", "P\x00" + lsn1 + lsn2 + moment + xid + "gid\x00", false, 3, pgoutput.Prepare{LSN: one, EndLSN: two, Time: at, XID: 753, GID: "gid"}},
		{"commit prepared", "K\x00" + lsn1 + lsn2 + moment + xid + "gid\x00", false, 3, pgoutput.CommitPrepared{LSN: one, EndLSN: two, Time: at, XID: 753, GID: "gid"}},
		{
			"rollback prepared", "r\x00" + lsn1 + lsn2 + moment + later + xid + "gid\x00", false, 3,
			pgoutput.RollbackPrepared{PrepareEndLSN: one, EndLSN: two, PrepareTime: at, Time: after, XID: 753, GID: "gid"},
		},
		{"stream prepare", "p\x00" + lsn1 + lsn2 + moment + xid + "gid\x00", false, 3, pgoutput.StreamPrepare{LSN: one, EndLSN: two, Time: at, XID: 753, GID: "gid"}},
	}
}

// Every message is read; cut short or with more behind, it is an error; and so it is in a stream of a version that lacks it.
func TestParse(t *testing.T) {
	for _, m := range messages(t) {
		t.Run(m.name, func(t *testing.T) {
			for version := 1; version <= 4; version++ {
				got, err := pgoutput.Parse([]byte(m.data), m.inStream, version)
				if version < m.version {
					if err == nil && !m.inStream { // a stream of version 1 has no blocks to be in
						t.Errorf("version %d: no error", version)
					}
					continue
				}
				if err != nil {
					t.Fatalf("version %d: %v", version, err)
				}
				if diff := cmp.Diff(m.want, got, cmp.AllowUnexported(pgoutput.Tuple{})); diff != "" {
					t.Errorf("version %d (-want +got):\n%s", version, diff)
				}
			}
			for n := range len(m.data) {
				if m.name == "stream abort with a position" && n == len("A"+xid+subXID) {
					continue // a whole message of other streams
				}
				if got, err := pgoutput.Parse([]byte(m.data[:n]), m.inStream, 4); err == nil {
					t.Errorf("the first %d of %d bytes: %+v", n, len(m.data), got)
				}
			}
			if got, err := pgoutput.Parse([]byte(m.data+"\x00"), m.inStream, 4); err == nil {
				t.Errorf("with one byte more: %+v", got)
			}
		})
	}
}

// What is not of the protocol is refused, and says where.
func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"nothing":              {"", "empty"},
		"unknown":              {"Z", `message 'Z' of 1 bytes`},
		"commit flags":         {"C\x01" + lsn1 + lsn2 + moment, "flags"},
		"column flags":         {"R" + table + "s\x00t\x00d\x00\x01\x02id\x00\x00\x00\x00\x17\xff\xff\xff\xff", "flags"},
		"truncate flags":       {"T\x00\x00\x00\x00\x04", "flags"},
		"message flags":        {"M\x02" + lsn1 + "p\x00\x00\x00\x00\x00", "flags"},
		"tables that are more": {"T\x7f\xff\xff\xff\x00" + table, "too early"},
		"columns below zero":   {"R" + table + "s\x00t\x00d\xff\xff", "below zero"},
		"values below zero":    {"I" + table + "N\xff\xff", "below zero"},
		"a kind of value":      {"I" + table + "N\x00\x01x", `kind 'x'`},
		"a value too long":     {"I" + table + "N\x00\x01t\xff\xff\xff\xff", "too early"},
		"no new tuple":         {"U" + table + "K" + row + "O" + row, "no new tuple"},
		"no old tuple":         {"D" + table + "N" + row, "no old tuple"},
		"old of an insert":     {"I" + table + "K" + row + "N" + row, "no new tuple"},
	} {
		if m, err := pgoutput.Parse([]byte(c.data), false, 4); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, error %v, want one with %q", name, m, err, c.want)
		}
	}
}

// ParseChange says which messages are none of its own.
func TestParseChange(t *testing.T) {
	for _, m := range messages(t) {
		_, ok, err := pgoutput.ParseChange([]byte(m.data), m.inStream)
		if want := strings.Contains("IUD", m.data[:1]); err != nil || ok != want {
			t.Errorf("%s: %t, %v", m.name, ok, err)
		}
	}
}

// Values of a tuple come in order, and are parts of the message.
func TestTuple(t *testing.T) {
	data := []byte("I" + table + "N" + row)
	c, _, err := pgoutput.ParseChange(data, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range c.New.Len() {
		kind, v := c.New.Value(i)
		got = append(got, string(kind)+string(v))
	}
	if want := []string{"n", "u", "tabc", "b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, v := c.New.Value(2); &v[0] != &data[len(data)-8] {
		t.Error("the value was copied")
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, _, err := pgoutput.ParseChange(data, false); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
