package discard

import (
	"context"
	"fmt"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

const scheme = "discard"

// Definition describes the connector: discard:, a sink only.
func Definition() connector.Definition {
	return connector.Definition{
		Name:  "discard",
		Title: "Discard",
		Doc: "Takes every row and keeps none: to measure how fast a source is read, or to try a pipeline out. It takes inserts, updates " +
			"and deletes, with keys and without, in every mode, and has no options. A loss of power loses nothing of what is not kept, " +
			"and rows that come again after a crash leave the same behind as the first time; so a pipeline with it reaches " +
			"effectively-once at most.",
		Schemes: []string{scheme},
		Sink:    func() connector.SinkConfig { return NewSink() },
	}
}

// SinkConfig is the configuration of the sink. It has no options.
type SinkConfig struct{}

// NewSink returns the configuration.
func NewSink() *SinkConfig { return &SinkConfig{} }

var (
	_ connector.SinkConfig = (*SinkConfig)(nil)
	_ connector.URLSetter  = (*SinkConfig)(nil)
)

// SetURL takes discard: and nothing else.
func (*SinkConfig) SetURL(raw string) error {
	_, rest, _ := strings.Cut(raw, ":")
	place, query, hasOptions := strings.Cut(rest, "?")
	if strings.Trim(place, "/") == "" && (!hasOptions || query == "") {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "discard.url", Doing: fmt.Sprintf("reading %q", raw),
		Err:  fmt.Errorf("nothing is kept, so there is no place and no option to name, and %q was named", rest),
		Hint: "write it as discard:",
	}
}

// Contract says that nothing that was taken can be lost, and that taking it again changes nothing.
func (*SinkConfig) Contract() (connector.SinkContract, error) {
	return connector.SinkContract{
		Modes: []connector.WriteMode{connector.Upsert, connector.Append, connector.Replace}, Input: connector.Changelog,
		Atomicity: connector.KeyedWrites, Durable: true, Keyless: true,
	}, nil
}

// Identity is empty: all sinks that keep nothing are the same.
func (*SinkConfig) Identity() map[string]string { return map[string]string{} }

// Open builds the sink.
func (*SinkConfig) Open(connector.Env) (connector.Sink, error) { return sink{}, nil }

// sink keeps nothing, not even whether it was started.
type sink struct{}

var (
	_ connector.Evolver     = sink{}
	_ connector.Finisher    = sink{}
	_ connector.RowRejecter = sink{}
	_ connector.Checker     = sink{}
)

// Start implements connector.Sink.
func (sink) Start(ctx context.Context, _ connector.SinkStart) error { return ctx.Err() }

// Write implements connector.Sink: the batch is let go.
func (sink) Write(ctx context.Context, _ *record.Batch) error { return ctx.Err() }

// Flush implements connector.Sink.
func (sink) Flush(ctx context.Context) error { return ctx.Err() }

// Close implements connector.Sink.
func (sink) Close(context.Context) error { return nil }

// Finish implements connector.Finisher.
func (sink) Finish(ctx context.Context, _ record.Progress) error { return ctx.Err() }

// Evolve implements connector.Evolver: any schema will do.
func (sink) Evolve(ctx context.Context, _, _ *record.Schema) error { return ctx.Err() }

// RejectsRows implements connector.RowRejecter: none is refused.
func (sink) RejectsRows() {}

// Check implements connector.Checker.
func (sink) Check(ctx context.Context) ([]connector.Probe, error) {
	return []connector.Probe{{Name: "discard", Status: connector.Pass, Detail: "every row is taken, and none is kept"}}, ctx.Err()
}
