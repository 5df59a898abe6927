package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
)

func TestMessages(t *testing.T) {
	inner := &connector.Error{Class: connector.ClassPermanent, Code: "pg.auth", Doing: "connecting", Err: errors.New("no"), Hint: "type this"}
	plan := &connector.Error{Class: connector.ClassConfig, Doing: "planning", Err: &engine.PlanError{Problems: []engine.Problem{
		{Code: "a", Sink: "x", Message: "one", Hint: "do one"}, {Code: "b", Dataset: "d", Column: "c", Message: "two"},
	}}}
	for _, c := range []struct {
		name string
		err  error
		text string
		code int
	}{
		{"plain", errors.New("broken"), "leat: broken\n", ExitFailed},
		{"hint", fmt.Errorf("sink: %w", inner), "leat: sink: connecting: no\n      type this\n", ExitFailed},
		{"lines", errors.New("first\nsecond"), "leat: first\n      second\n", ExitFailed},
		{"plan", plan, "leat: sink \"x\": one\n      do one\nleat: d, column \"c\": two\n", ExitUsage},
		{
			"file",
			config.Problems{{File: "p.yaml", Line: 3, Column: 1, Message: "bad"}, {File: "p.yaml", Line: 4, Column: 2, Message: "worse"}},
			"p.yaml:3:1: bad\np.yaml:4:2: worse\n", ExitUsage,
		},
		{"usage", &usageError{err: errors.New("no such flag"), hint: "look"}, "leat: no such flag\n      look\n", ExitUsage},
		{"class", &connector.Error{Class: connector.ClassConfig, Err: errors.New("wrong")}, "leat: wrong\n", ExitUsage},
		{"cancelled", fmt.Errorf("reading: %w", context.Canceled), "leat: reading: context canceled\n", ExitInterrupted},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := errorText(c.err); got != c.text {
				t.Errorf("got\n%swant\n%s", got, c.text)
			}
			if got := exitCode(c.err); got != c.code {
				t.Errorf("got exit code %d, want %d", got, c.code)
			}
		})
	}
	if exitCode(nil) != ExitOK || exitCode(fmt.Errorf("x: %w", outcomeError{ExitSetAside})) != ExitSetAside {
		t.Error("wrong exit codes of outcomes")
	}
}

// case C105: a row that could not be carried is told with its line, its column, its value and what was expected.
func TestRowMessage(t *testing.T) {
	row := record.Reject{
		Dataset: "orders", Line: 12345, Offset: 678901, Key: []byte(`{"id":7}`), Column: "total", Value: "12,5", Message: "no decimal(12,2)",
	}
	want := `leat: orders, line 12345 (byte 678901), key {"id":7}, column "total", value "12,5": no decimal(12,2)` + "\n"
	if got := errorText(&connector.RowErrors{Rows: []connector.RowError{{Reject: row}}}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSummaryText(t *testing.T) {
	sum := engine.Summary{
		Pipeline: "p", Run: "r", Reached: connector.ExactlyOnce, Done: true, Resumed: true, Took: 2e9, SetAside: 3,
		Datasets: []engine.DatasetStatus{{Name: "orders", Rows: 1_000_000, Bytes: 114e6}, {Name: "lines", Rows: 5, Bytes: 80}},
		Sinks: []engine.SinkStatus{
			{Name: "a", Rows: 1_000_002, Skipped: 3, Altered: 1, Retries: 2}, {Name: "b", Rows: 5, Failed: map[string]string{"lines": "no"}},
		},
	}
	s := newSummary(sum, nil, "/rejects/p.jsonl")
	s.PeakMemory = 62e6
	want := `orders     1,000,000 rows     114 MB
lines              5 rows       80 B
copied 1,000,005 rows (114 MB) in 2.0s, 500k rows/s, peak memory 62.0 MB
sink a: 1,000,002 rows written, 3 rows it had already, 1 value changed by a declared policy, started again 2 times
sink b: 5 rows written, 1 dataset failed
went on where the last run ended
set aside: 3 rows: leat dlq show p
guarantee: exactly-once
`
	if diff := cmp.Diff(want, s.text()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	failed := newSummary(sum, errors.New("postgres://app:hush@db is gone"), "")
	if failed.State != "failed" || len(failed.Errors) != 1 {
		t.Errorf("got %+v", failed)
	}
	if text := failed.json(&redactor{}); !cmp.Equal(failed.Errors[0].Message, "postgres://app:***@db is gone") || text[0] != '{' {
		t.Error(text)
	}
	sum.Done = false
	if s := newSummary(sum, nil, ""); s.State != "interrupted" {
		t.Error(s.State)
	}
}
