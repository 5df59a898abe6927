package state_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/state/statetest"
)

var update = flag.Bool("update", false, "write testdata that does not exist yet")

// clause S14: the forms are fixed for ever: what each format wrote must be read, and the same record must give the same bytes as long
// as the format is the one that is written.
func TestFormats(t *testing.T) {
	for format, want := range map[int]state.Record{1: statetest.SampleOfFormat1("orders"), 2: statetest.Sample("orders")} {
		name := fmt.Sprintf("testdata/format%d.json", format)
		t.Run(name, func(t *testing.T) {
			encoded, err := state.Encode(want)
			if err != nil {
				t.Fatal(err)
			}
			saved := golden(t, name, encoded)
			got, err := state.Decode(saved, "orders")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("reading (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(string(saved), string(encoded)); state.Format == format && diff != "" {
				t.Errorf("writing (-want +got)\n%s", diff)
			}
			expectDocumented(t, saved)
		})
	}
	if _, err := os.Stat(fmt.Sprintf("testdata/format%d.json", state.Format)); err != nil {
		t.Errorf("the format that is written has no sample: %v", err)
	}
}

// clause S14: likewise the forms of orders.
func TestOrdersFormats(t *testing.T) {
	want := statetest.SampleOrders()
	encoded, err := state.EncodeOrders(want, "orders")
	if err != nil {
		t.Fatal(err)
	}
	saved := golden(t, fmt.Sprintf("testdata/orders%d.json", state.OrdersFormat), encoded)
	got, err := state.DecodeOrders(saved, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reading (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(string(saved), string(encoded)); diff != "" {
		t.Errorf("writing (-want +got)\n%s", diff)
	}
	expectDocumented(t, saved)
}

// golden returns a file of testdata that is never changed; with -update it is written where it does not exist yet.
func golden(t *testing.T, name string, encoded []byte) []byte {
	t.Helper()
	saved, err := os.ReadFile(name)
	if os.IsNotExist(err) && *update {
		saved, err = encoded, os.WriteFile(name, encoded, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func expectDocumented(t *testing.T, saved []byte) {
	t.Helper()
	documented, err := os.ReadFile("../docs/formats/state.md")
	if err != nil || !strings.Contains(string(documented), string(saved)) {
		t.Errorf("docs/formats/state.md does not show the file: %v", err)
	}
}

// clause S14: what is saved comes back as it was, byte for byte where it is opaque, and has one form only.
func TestRoundTrip(t *testing.T) {
	raw := rapid.SampledFrom([]string{``, `1`, `"x"`, `{"a": 1, "b": [1.10, 1e400]}`, `"\u2028 \ud83d\ude00 <&>"`, `[ ]`, `18446744073709551615`})
	position := func(t *rapid.T, label string) record.Position {
		p := record.Position{}
		if data := raw.Draw(t, label); data != "" {
			p = record.Position{Shape: rapid.Uint32().Draw(t, "shape"), Data: json.RawMessage(data)}
		}
		return p
	}
	progress := func(t *rapid.T) record.Progress {
		p := record.Progress{
			Run: rapid.StringN(1, 20, -1).Draw(t, "run"), Position: position(t, "position"), Done: rapid.Bool().Draw(t, "done"),
			Epoch: rapid.Uint64().Draw(t, "counted"), Item: rapid.Uint64().Draw(t, "item"),
		}
		if l := raw.Draw(t, "ledger"); l != "" {
			p.Ledger = json.RawMessage(l)
		}
		return p
	}
	at := func(t *rapid.T, label string) time.Time {
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, label), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC()
	}
	lanes := rapid.MapOfN(rapid.StringN(1, 10, -1), rapid.Custom(func(t *rapid.T) state.Lane {
		l := state.Lane{
			State: rapid.String().Draw(t, "state"), Held: rapid.Int64().Draw(t, "held"), Items: rapid.Int64().Draw(t, "items"),
			Oldest: at(t, "oldest"), Error: rapid.String().Draw(t, "error"),
		}
		if rapid.Bool().Draw(t, "acknowledged") {
			l.Progress = progress(t)
		}
		if rapid.Bool().Draw(t, "two phases") {
			l.Epoch = &state.Epoch{Number: rapid.Uint64Min(1).Draw(t, "number"), Decided: rapid.Bool().Draw(t, "decided"), Progress: progress(t)}
			if staged := raw.Draw(t, "staged"); staged != "" {
				l.Epoch.Staged = json.RawMessage(staged)
			}
		}
		return l
	}), 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		want := state.Record{
			Pipeline: rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,30}`).Draw(t, "pipeline"),
			Identity: rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "identity"),
			Attempt:  rapid.Uint64Min(1).Draw(t, "attempt"),
			Origin:   position(t, "origin"),
			Stream:   rapid.String().Draw(t, "stream"),
			Rows:     rapid.Int64().Draw(t, "rows"),
			Rejected: rapid.Int64().Draw(t, "rejected"),
			Updated:  at(t, "updated"),
		}
		if rapid.Bool().Draw(t, "started") {
			want.Progress = progress(t)
		}
		if rapid.Bool().Draw(t, "known") {
			want.Lanes = lanes.Draw(t, "lanes")
		}
		data, err := state.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := state.Decode(data, want.Pipeline)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-want +got)\n%s", data, diff)
		}
		again, err := state.Encode(got)
		if err != nil || string(again) != string(data) {
			t.Fatalf("encoded twice: %s and %s, %v", data, again, err)
		}
	})
}

// clause S14: a format, a field or a value that this program does not know is refused, with a way out.
func TestDecodeRefuses(t *testing.T) {
	good, err := state.Encode(statetest.Sample("orders"))
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string][2]string{
		"newer format":        {`"format":2`, `"format":3`},
		"older format":        {`"format":2`, `"format":1`},
		"no format":           {`"format":2,`, ``},
		"format 0":            {`"format":2`, `"format":0`},
		"unknown field":       {`"attempt":`, `"shards":{},"attempt":`},
		"unknown in lane":     {`"held":`, `"holds":1,"held":`},
		"unknown in epoch":    {`"decided":`, `"voted":1,"decided":`},
		"epoch 0":             {`"number":13`, `"number":0`},
		"no run in a lane":    {`"epoch":{"number":13,"decided":true,"progress":{"run":"01JB2Z"`, `"epoch":{"number":13,"decided":true,"progress":{"run":""`},
		"unknown in progress": {`"run":`, `"fence":1,"run":`},
		"unknown in position": {`"shape":3`, `"shape":3,"text":"x"`},
		"another pipeline":    {`"pipeline":"orders"`, `"pipeline":"lines"`},
		"bad name":            {`"pipeline":"orders"`, `"pipeline":"../orders"`},
		"attempt 0":           {`"attempt":7`, `"attempt":0`},
		"wrong type":          {`"rows":`, `"rows":"x","rows":`},
		"large shape":         {`"shape":3`, `"shape":4294967296`},
		"no run":              {`"run":"01JB2Z"`, `"run":""`},
		"end missing":         {`Z"}`, `Z"`},
		"more follows":        {`Z"}`, `Z"}{}`},
	} {
		bad := strings.Replace(string(good), edit[0], edit[1], 1)
		if bad == string(good) {
			t.Fatalf("%s: %q is not in %s", name, edit[0], good)
		}
		_, err := state.Decode([]byte(bad), "orders")
		if connector.ClassOf(err) != connector.ClassPosition || connector.HintOf(err) == "" {
			t.Errorf("%s: class %v, hint %q: %v", name, connector.ClassOf(err), connector.HintOf(err), err)
		}
	}
	if _, err := state.Decode(good, "orders"); err != nil {
		t.Error(err)
	}
}

// clause S14: the same of orders.
func TestDecodeOrdersRefuses(t *testing.T) {
	good, err := state.EncodeOrders(statetest.SampleOrders(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string][2]string{
		"newer format":       {`"format":1`, `"format":2`},
		"no format":          {`"format":1,`, ``},
		"unknown field":      {`"paused":`, `"drained":true,"paused":`},
		"unknown in request": {`"asked":`, `"speed":1,"asked":`},
		"another pipeline":   {`"pipeline":"orders"`, `"pipeline":"lines"`},
		"id 0":               {`"id":3`, `"id":0`},
		"unsorted":           {`["lake","replica"]`, `["replica","lake"]`},
		"more follows":       {`"last":18446744073709551615}`, `"last":18446744073709551615}1`},
	} {
		bad := strings.Replace(string(good), edit[0], edit[1], 1)
		if bad == string(good) {
			t.Fatalf("%s: %q is not in %s", name, edit[0], good)
		}
		_, err := state.DecodeOrders([]byte(bad), "orders")
		if connector.ClassOf(err) != connector.ClassPosition || connector.HintOf(err) == "" {
			t.Errorf("%s: class %v, hint %q: %v", name, connector.ClassOf(err), connector.HintOf(err), err)
		}
	}
	if _, err := state.DecodeOrders(good, "orders"); err != nil {
		t.Error(err)
	}
}

// What can't be done is taken off the list, and whoever waits for it hears why.
func TestOrdersFail(t *testing.T) {
	var o state.Orders
	for o.Last < 20 {
		o.Last++
		o.Backfills = append(o.Backfills, state.Backfill{ID: o.Last})
	}
	before := o.Clone()
	for id := uint64(1); id <= 18; id++ {
		o = o.Fail(id, "why")
	}
	o = o.Fail(3, "again")
	if len(o.Backfills) != 2 || o.Backfills[0].ID != 19 || len(o.Failed) != 16 || o.Failed[0].ID != 3 || o.Failed[15].Why != "why" {
		t.Errorf("%+v", o)
	}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if len(before.Backfills) != 20 || before.Backfills[0].ID != 1 {
		t.Error("a copy was changed")
	}
}

// clause S16: the hash tells identities apart, whatever their texts are made of, and does not depend on the order of a map.
func TestIdentityHash(t *testing.T) {
	seen := map[string]map[string]string{}
	for _, id := range []map[string]string{
		{},
		{"a": ""},
		{"": "a"},
		{"a": "b"},
		{"ab": ""},
		{"a": "b", "c": "d"},
		{"a": "b1:c1:d"},
		{"a": "bc", "d": ""},
		{"a": "b", "cd": ""},
		{"a": "\xff"},
		{"a": "\ufffd"},
	} {
		h := state.IdentityHash(id)
		if other, taken := seen[h]; taken {
			t.Errorf("%q and %q have the same hash", other, id)
		}
		seen[h] = id
	}
	// Part of the persisted format: it must never change.
	const want = "3272da27a6469970"
	if got := state.IdentityHash(map[string]string{"source": "postgres", "tables": "orders"}); !strings.HasPrefix(got, want) {
		t.Errorf("the hash is %s, and was %s…", got, want)
	}
	if state.IdentityHash(nil) != state.IdentityHash(map[string]string{}) {
		t.Error("no identity and an empty one differ")
	}
}

// clause S16: a person reads what changed.
func TestExplainIdentity(t *testing.T) {
	long := strings.Repeat("é", 100)
	got := state.ExplainIdentity(
		map[string]string{"source.query": "select 1", "sink.mode": "append", "key": "id", "same": "x", "text": long + "a"},
		map[string]string{"source.query": "select 2", "sink.mode": "append", "transform": "drop\nname", "same": "x", "text": long + "b"},
	)
	want := []string{
		`key is gone; it was "id"`,
		`source.query was "select 1" and is now "select 2"`,
		`text was "` + strings.Repeat("é", 60) + `"… (201 bytes, HASH) and is now "` + strings.Repeat("é", 60) + `"… (201 bytes, HASH)`,
		`transform is new: "drop\nname"`,
	}
	for i, line := range got {
		var words []string
		for w := range strings.SplitSeq(line, " ") {
			if strings.HasSuffix(w, ")") && len(w) == 9 {
				w = "HASH)"
			}
			words = append(words, w)
		}
		if masked := strings.Join(words, " "); i >= len(want) || masked != want[i] {
			t.Errorf("line %d: %s", i, line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	if hashes := got[2]; strings.Count(hashes, hashes[strings.Index(hashes, ", ")+2:strings.Index(hashes, ")")]) != 1 {
		t.Errorf("two long values look the same: %s", hashes)
	}
	if same := state.ExplainIdentity(map[string]string{"a": "b"}, map[string]string{"a": "b"}); same != nil {
		t.Errorf("nothing changed, but %q", same)
	}
}

// clause S2: attempts are never reused, not even after a reset.
func TestResetKeepsTheAttempt(t *testing.T) {
	r := statetest.Sample("orders")
	got := r.Reset()
	want := state.Record{Pipeline: r.Pipeline, Identity: r.Identity, Attempt: r.Attempt, Updated: r.Updated}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
