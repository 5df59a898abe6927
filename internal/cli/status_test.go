package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// ledger is what is saved of two sinks: one has everything but a new table, the other is being filled.
const savedLedger = `{"backfill":{"seeded":{"a":["public.lines","public.orders"],"b":["public.lines"]},"jobs":[
	{"dataset":"public.orders","lanes":["b"],"segments":[{"to":[1],"done":true},{}],"rows":1234},
	{"dataset":"public.users","lanes":["a","b"]},
	{"dataset":"public.gone","lanes":["b"],"failed":true}]}}`

func savedRecord(ledger string, ago time.Duration) state.Record {
	return state.Record{
		Pipeline: "shop", Attempt: 3, Rows: 5000, Rejected: 2, Updated: start0.Add(-ago),
		Progress: record.Progress{Run: "3-aa", Position: record.Position{Shape: 2, Data: []byte(`{"lsn":"0/1"}`)}, Ledger: []byte(ledger)},
	}
}

// case C106: the phase of every dataset for every sink, from what is saved.
func TestStatusText(t *testing.T) {
	st := &pipelineStatus{Pipeline: "shop", Problems: []string{}}
	if err := st.fill(savedRecord(savedLedger, 12*time.Second), start0); err != nil {
		t.Fatal(err)
	}
	st.setLag(connector.Lag{Bytes: 1_200_000, Events: -1, Age: 3200 * time.Millisecond, Retained: 14_000_000})
	st.judge(time.Minute)
	s := testSession(t)
	var out strings.Builder
	s.Stdout = &out
	if err := s.printStatus(st); err != nil {
		t.Fatal(err)
	}
	want := `pipeline  shop
stands    following
run       3-aa
position  {"lsn":"0/1"}
saved     ` + start0.Add(-12*time.Second).Local().Format(time.DateTime) + `, 12s ago
rows      5,000
set aside 2
lag       behind by 3.2s, 1.20 MB; the source keeps 14.0 MB of its log

dataset        sink  phase     copied
────────────── ───── ───────── ───────────
public.gone    b     failed
public.lines   a     live
public.lines   b     live
public.orders  a     live
public.orders  b     snapshot  1,234 rows
public.users   a     waiting
public.users   b     waiting

not ok: 1 dataset failed
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusJudges(t *testing.T) {
	unknown := connector.Lag{Bytes: -1, Events: -1, Age: -1, Retained: -1}
	lag := func(bytes int64, age time.Duration) connector.Lag {
		return connector.Lag{Bytes: bytes, Events: -1, Age: age, Retained: 5}
	}
	done := savedRecord("", time.Hour)
	done.Progress.Done = true
	const live = `{"backfill":{"seeded":{"a":["t"]}}}`
	for _, c := range []struct {
		name string
		rec  state.Record
		lag  connector.Lag
		want string
	}{
		{"just saved", savedRecord(live, time.Second), unknown, ""},
		{"silent, and nobody was asked", savedRecord(live, time.Hour), unknown, "nothing was saved for 1h00m"},
		{"silent, and nothing waits", savedRecord(live, time.Hour), lag(100, 0), ""},
		{"silent, and the source has more", savedRecord(live, time.Hour), lag(100, -1), "nothing was saved for 1h00m, and the source has more"},
		{"silent, and the source has no more", savedRecord(live, time.Hour), lag(0, -1), ""},
		{"running, and behind a little", savedRecord(live, time.Second), lag(100, time.Second), ""},
		{"running, and far behind", savedRecord(live, time.Second), lag(100, 2*time.Minute), "changes have waited for 2m00s"},
		{"copied and done", done, unknown, ""},
		{"to begin anew", done.Reset(), unknown, ""},
		{"a dataset that failed in a copy", savedRecord(`{"failed":{"a":["t","u"]}}`, time.Second), unknown, "2 datasets failed"},
		{"a dataset that is copied once more", savedRecord(
			`{"backfill":{"seeded":{"a":["t"]},"jobs":[{"dataset":"t","lanes":["a"],"failed":true}]}}`, time.Second), unknown, "1 dataset failed"},
	} {
		st := &pipelineStatus{}
		if err := st.fill(c.rec, start0); err != nil {
			t.Fatal(err)
		}
		st.setLag(c.lag)
		st.judge(time.Minute)
		if got := strings.Join(st.Problems, "; "); got != c.want || st.OK != (c.want == "") {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	if err := (&pipelineStatus{}).fill(savedRecord(`{"backfill":5}`, 0), start0); err == nil {
		t.Error("a ledger that can't be read")
	}
}
