package orderfeed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/records"
	"github.com/leatdata/leat/record"
)

// SinkConfig is the configuration of a ledger.
type SinkConfig struct {
	URL   string           `leat:"url,required" doc:"the ledger" example:"https://books.example/ledger"`
	Token connector.Secret `leat:"token" doc:"sent as a bearer token"`
}

// NewSink returns the configuration with its defaults.
func NewSink() *SinkConfig { return &SinkConfig{} }

// Contract implements connector.SinkConfig.
func (c *SinkConfig) Contract() (connector.SinkContract, error) {
	return connector.SinkContract{
		Modes: []connector.WriteMode{connector.Append}, Atomicity: connector.PositionInTransaction, Durable: true,
	}, checkURL(c.URL)
}

// Identity implements connector.SinkConfig.
func (c *SinkConfig) Identity() map[string]string { return map[string]string{"url": c.URL} }

// Open implements connector.SinkConfig.
func (c *SinkConfig) Open(env connector.Env) (connector.Sink, error) {
	return records.ToRecords(&ledger{client: client{env: env, url: c.URL, token: c.Token}}), nil
}

// ledger is one generation of the sink. A transaction is the body of one request.
type ledger struct {
	client

	lane  string
	fence url.Values
	rows  bytes.Buffer
}

var _ records.Transactor = (*ledger)(nil)

// head is the first line of a batch, and the answer to the question how far the sender got.
type head struct {
	Progress json.RawMessage `json:"progress,omitempty"`
}

// Start implements records.Sink. Asking how far the lane got tells the ledger of the new owner, too.
func (l *ledger) Start(ctx context.Context, s connector.SinkStart) error {
	l.lane = "/" + url.PathEscape(s.Pipeline+" "+s.Lane)
	l.fence = url.Values{"fence": {strconv.FormatUint(s.Fence, 10)}}
	_, _, err := l.Committed(ctx)
	return err
}

// Begin implements records.Transactor.
func (l *ledger) Begin(context.Context) error {
	l.rows.Reset()
	return nil
}

// Put implements records.Sink.
func (l *ledger) Put(_ context.Context, r records.Record) error {
	b := record.AppendJSONString(append(l.rows.AvailableBuffer(), `{"dataset":`...), r.Schema().Dataset)
	b = r.AppendObject(append(b, `,"row":`...))
	l.rows.Write(append(b, "}\n"...))
	return nil
}

// Commit implements records.Transactor. Without an answer nobody knows whether the ledger has the batch: the next generation asks.
func (l *ledger) Commit(ctx context.Context, p record.Progress) error {
	body, err := p.Append([]byte(`{"progress":`))
	if err != nil {
		return err //nolint:wrapcheck // speaks for itself
	}
	body = append(append(body, "}\n"...), l.rows.Bytes()...)
	_, _, err = l.call(ctx, request{
		op: "put", doing: "putting rows into", method: http.MethodPut, place: l.lane, query: l.fence, body: body,
	})
	if e, ok := errors.AsType[*connector.Error](err); ok && e.Class == connector.ClassTransient {
		e.Class = connector.ClassOutcome
	}
	l.rows.Reset()
	return err
}

// Abort implements records.Transactor.
func (l *ledger) Abort(context.Context) error {
	l.rows.Reset()
	return nil
}

// Committed implements records.Transactor.
func (l *ledger) Committed(ctx context.Context) (p record.Progress, ok bool, err error) {
	answer, _, err := l.call(ctx, request{
		op: "progress", doing: "asking how far it is:", method: http.MethodGet, place: l.lane, query: l.fence,
	})
	if err != nil {
		return p, false, err
	}
	var h head
	if err := json.Unmarshal(answer, &h); err != nil {
		return p, false, fmt.Errorf("the answer of the ledger: %w", err)
	}
	if len(h.Progress) == 0 {
		return p, false, nil
	}
	if err := json.Unmarshal(h.Progress, &p); err != nil {
		return p, false, fmt.Errorf("the progress in the ledger: %w", err)
	}
	return p, true, nil
}

// Flush implements records.Sink: rows are durable with Commit.
func (*ledger) Flush(context.Context) error { return nil }

// Close implements records.Sink.
func (l *ledger) Close(context.Context) error {
	l.http.CloseIdleConnections()
	return nil
}
