package e2e_test

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// given is a source over batches in memory: the other end of a pair under test.
type given struct{ batches []*record.Batch }

func (*given) Contract() (connector.SourceContract, error) {
	return connector.SourceContract{Replay: connector.Deterministic, Bounded: true}, nil
}
func (*given) Identity() map[string]string { return map[string]string{"source": "given"} }
func (g *given) Open(connector.Env) (connector.Source, error) {
	return &givenSource{batches: g.batches}, nil
}

type givenSource struct {
	batches []*record.Batch
	next    int
}

func (s *givenSource) Discover(context.Context) ([]connector.Dataset, error) {
	out := make([]connector.Dataset, len(s.batches))
	for i, b := range s.batches {
		out[i] = connector.Dataset{Name: b.Schema.Dataset, Schema: b.Schema, Rows: int64(b.NumRows()), Bytes: -1}
	}
	return out, nil
}

func (s *givenSource) Start(_ context.Context, start connector.SourceStart) error {
	if !start.From.Position.Zero() {
		return json.Unmarshal(start.From.Position.Data, &s.next)
	}
	return nil
}

func (s *givenSource) Read(context.Context, connector.Limit) (*record.Batch, error) {
	if s.next == len(s.batches) {
		return nil, io.EOF
	}
	b := *s.batches[s.next]
	s.next++
	data, err := json.Marshal(s.next)
	b.Position = record.Position{Shape: 1, Data: data}
	return &b, err
}

func (*givenSource) Close(context.Context) error { return nil }

// collected is a sink that keeps what it is given, by dataset.
type collected struct {
	mu      sync.Mutex
	batches map[string][]*record.Batch
}

func (*collected) Contract() (connector.SinkContract, error) {
	return connector.SinkContract{Modes: []connector.WriteMode{connector.Append}, Atomicity: connector.Whole}, nil
}

func (*collected) Identity() map[string]string                  { return map[string]string{"sink": "collected"} }
func (c *collected) Open(connector.Env) (connector.Sink, error) { return &collector{c}, nil }

type collector struct{ to *collected }

func (*collector) Start(context.Context, connector.SinkStart) error { return nil }
func (c *collector) Write(_ context.Context, b *record.Batch) error {
	c.to.mu.Lock()
	defer c.to.mu.Unlock()
	if c.to.batches == nil {
		c.to.batches = map[string][]*record.Batch{}
	}
	c.to.batches[b.Schema.Dataset] = append(c.to.batches[b.Schema.Dataset], b)
	return nil
}
func (*collector) Flush(context.Context) error                   { return nil }
func (*collector) Finish(context.Context, record.Progress) error { return nil }
func (*collector) Close(context.Context) error                   { return nil }
