package connectortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// refEntry is a message of a log.
type refEntry struct {
	dataset, key string
	row          map[string]string // nil: the key has none any more
}

// logConfig is a correct log of messages, unless fault names what it does wrong.
type logConfig struct {
	log   *[]refEntry
	fault string
}

func (*logConfig) Contract() (connector.SinkContract, error) {
	return connector.SinkContract{
		Modes: []connector.WriteMode{connector.Upsert}, Input: connector.Changelog, Atomicity: connector.PositionInTransaction,
		Durable: true, NeedsKey: true,
	}, nil
}
func (*logConfig) Identity() map[string]string { return nil }
func (c *logConfig) Open(connector.Env) (connector.Sink, error) {
	return &logSink{logConfig: c}, nil
}

type logSink struct {
	*logConfig
	open []refEntry // not committed
}

func (*logSink) Start(context.Context, connector.SinkStart) error               { return nil }
func (*logSink) Flush(context.Context) error                                    { return errors.New("not asked for") }
func (*logSink) Close(context.Context) error                                    { return nil }
func (*logSink) RejectsRows()                                                   {}
func (*logSink) Evolve(context.Context, *record.Schema, *record.Schema) error   { return nil }
func (*logSink) Committed(context.Context) (p record.Progress, _ bool, _ error) { return p, false, nil }

func (s *logSink) Commit(context.Context, record.Progress) error {
	*s.log = append(*s.log, s.open...)
	s.open = nil
	return nil
}

func (s *logSink) Write(_ context.Context, b *record.Batch) error {
	refused := &connector.RowErrors{}
	for i := range b.NumRows() {
		if column := s.message(b, i); column != "" {
			refused.Rows = append(refused.Rows, connector.RowError{Index: i, Reject: record.Reject{
				Dataset: b.Schema.Dataset, Key: b.KeyJSON(i), Column: column, Class: "refused_by_sink", Message: "not sent", Raw: b.RowJSON(i),
			}})
		}
	}
	if len(refused.Rows) > 0 {
		return refused
	}
	return nil
}

// message appends what row i comes to, or returns the column of which nothing is known.
func (s *logSink) message(b *record.Batch, i int) (missing string) {
	r := map[string]string{}
	for c, f := range b.Schema.Columns.Fields() {
		switch {
		case !b.IsUnchanged(c, i) || b.Op(i) == record.Delete || s.fault == "unsent is null":
			r[f.Name] = doc(b.Rows.Column(c), i)
		case b.Old != nil && b.Old.Column(c).IsValid(i) && s.fault != "images complete nothing":
			r[f.Name] = doc(b.Old.Column(c), i)
		default:
			return f.Name
		}
	}
	key := string(b.KeyJSON(i))
	if b.KeyMoved(i) && s.fault != "old keys stay" {
		old := *b
		old.Rows = b.Old
		s.open = append(s.open, refEntry{b.Schema.Dataset, string(old.KeyJSON(i)), nil})
	}
	if b.Op(i) == record.Delete {
		if s.fault != "deletes are ignored" {
			s.open = append(s.open, refEntry{b.Schema.Dataset, key, nil})
		}
		return ""
	}
	s.open = append(s.open, refEntry{b.Schema.Dataset, key, r})
	return ""
}

func logCase(fault string) SinkCase {
	return SinkCase{New: func(testing.TB) Target {
		var log []refEntry
		return Target{
			Config: func() connector.SinkConfig { return &logConfig{log: &log, fault: fault} },
			Read: func(_ testing.TB, s *record.Schema) (rows []string, exists bool) {
				last := map[string]map[string]string{}
				for _, e := range log {
					if e.dataset != s.Dataset {
						continue
					}
					if _, ok := last[e.key]; ok && fault == "the first message of a key counts" {
						continue
					}
					last[e.key] = e.row
				}
				for _, r := range last {
					if r == nil {
						continue
					}
					var parts []string
					for _, name := range s.Names() {
						value := r[name]
						if value == "" {
							value = "null"
						}
						parts = append(parts, fmt.Sprintf("%q:%s", name, value))
					}
					rows = append(rows, "{"+strings.Join(parts, ",")+"}")
				}
				return rows, true
			},
		}
	}}
}

// A correct log passes the whole suite.
func TestMessageLogAcceptsACorrectSink(t *testing.T) { MessageLog(t, logCase("")) }

// Each fault is caught by the sub-test that is meant to, and by the random one but where it does not do that.
func TestMessageLogCatches(t *testing.T) {
	for fault, by := range map[string]string{
		"unsent is null":                    "Completed",
		"images complete nothing":           "Completed",
		"old keys stay":                     "MovedKeys",
		"deletes are ignored":               "Reinserted",
		"the first message of a key counts": "Columns",
	} {
		t.Run(fault, func(t *testing.T) {
			failures := recordFailures(t, func(t testing.TB) { messageLog(t, logCase(fault)) })
			for _, want := range []string{by, "Random"} {
				if !slices.ContainsFunc(failures, func(f string) bool { return strings.HasPrefix(f, want) }) {
					t.Errorf("no failure in %s; the failures are %.2000q", want, failures)
				}
			}
		})
	}
}
