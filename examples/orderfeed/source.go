package orderfeed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/records"
	"github.com/leatdata/leat/record"
)

// SourceConfig is the configuration of a feed.
type SourceConfig struct {
	URL    string           `leat:"url,required" doc:"the feed" example:"https://shop.example/feed"`
	Token  connector.Secret `leat:"token" doc:"sent as a bearer token"`
	Page   int              `leat:"page" doc:"lines to ask for at once"`
	Follow bool             `leat:"follow" doc:"go on with what is added"`
}

// NewSource returns the configuration with its defaults.
func NewSource() *SourceConfig { return &SourceConfig{Page: 500} }

// Contract implements connector.SourceConfig.
func (c *SourceConfig) Contract() (connector.SourceContract, error) {
	return connector.SourceContract{
		Replay: connector.Deterministic, Bounded: !c.Follow, Incremental: !c.Follow, CancelSafe: true,
	}, checkURL(c.URL)
}

// Identity implements connector.SourceConfig.
func (c *SourceConfig) Identity() map[string]string { return map[string]string{"url": c.URL} }

// Open implements connector.SourceConfig.
func (c *SourceConfig) Open(env connector.Env) (connector.Source, error) {
	return records.FromRecords(&feed{
		client: client{env: env, url: c.URL, token: c.Token}, page: c.Page, follow: c.Follow, schema: schema(),
	}), nil
}

// Columns of an order, by index.
const (
	colNumber = iota
	colCustomer
	colTotal
	colPlaced
	colNote
)

func schema() *record.Schema {
	return &record.Schema{
		Dataset: "orders", Key: []int{colNumber},
		Columns: arrow.NewSchema([]arrow.Field{
			colNumber:   {Name: "number", Type: arrow.PrimitiveTypes.Int64},
			colCustomer: {Name: "customer", Type: arrow.BinaryTypes.String},
			colTotal:    {Name: "total", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}},
			colPlaced:   {Name: "placed", Type: record.InstantType()},
			colNote:     {Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
		}, nil),
	}
}

// line is one line of the feed.
type line struct {
	Number   int64       `json:"number"`
	Customer string      `json:"customer"`
	Total    json.Number `json:"total"` // a number of any size, digit by digit
	Placed   time.Time   `json:"placed"`
	Note     *string     `json:"note"`
}

// feed is one generation of the source.
type feed struct {
	client

	page   int
	follow bool
	schema *record.Schema
	at     place
	lines  []byte // of the newest page, that were not polled
}

var (
	_ records.Source         = (*feed)(nil)
	_ connector.Discoverer   = (*feed)(nil)
	_ connector.Positions    = (*feed)(nil)
	_ connector.Acknowledger = (*feed)(nil)
	_ connector.Tip          = (*feed)(nil)
)

// Discover implements connector.Discoverer.
func (f *feed) Discover(context.Context) ([]connector.Dataset, error) {
	return []connector.Dataset{{Name: f.schema.Dataset, Schema: f.schema, Rows: -1, Bytes: -1}}, nil
}

// place is what a position says: the number of the newest line that it covers.
type place struct {
	Number int64 `json:"number"`
}

func form() records.Form { return records.Form{System: "order-feed", Shape: 1} }

// Seek implements records.Source. It asks for the first page, so that lines which are gone are an error of the start.
func (f *feed) Seek(ctx context.Context, at record.Position) error {
	if !at.Zero() {
		if err := form().Decode(at, &f.at); err != nil {
			return err //nolint:wrapcheck // speaks for itself
		}
	}
	return f.next(ctx)
}

// next gets the next page.
func (f *feed) next(ctx context.Context) error {
	query := url.Values{"after": {strconv.FormatInt(f.at.Number, 10)}, "limit": {strconv.Itoa(f.page)}}
	page, _, err := f.call(ctx, request{op: "page", doing: "reading the feed", method: http.MethodGet, query: query})
	f.lines = page
	return err
}

// Poll implements records.Source.
func (f *feed) Poll(ctx context.Context, row *records.Row) (bool, error) {
	if len(f.lines) == 0 {
		if err := f.next(ctx); err != nil {
			return false, err
		}
	}
	if len(f.lines) == 0 {
		if f.follow {
			return false, nil
		}
		return false, io.EOF
	}
	raw, rest, _ := bytes.Cut(f.lines, []byte("\n"))
	f.lines = rest
	row.Begin(f.schema, record.Insert)
	row.Raw(raw, f.at.Number+1, 0)
	f.at.Number++ // lines are numbered without gaps, also one that can't be read
	var l line
	if err := json.Unmarshal(raw, &l); err != nil {
		row.Reject("bad_syntax", err.Error())
		return true, nil
	}
	row.Int(colNumber, l.Number)
	row.Text(colCustomer, l.Customer)
	row.Text(colTotal, l.Total.String())
	row.Time(colPlaced, l.Placed)
	if l.Note != nil {
		row.Text(colNote, *l.Note)
	}
	return true, nil
}

// Checkpoint implements records.Source.
func (f *feed) Checkpoint(context.Context) (record.Position, error) { return form().Encode(f.at) }

// Acknowledge implements connector.Acknowledger.
func (f *feed) Acknowledge(ctx context.Context, at record.Position) error {
	var p place
	if err := form().Decode(at, &p); err != nil {
		return err //nolint:wrapcheck // speaks for itself
	}
	query := url.Values{"upto": {strconv.FormatInt(p.Number, 10)}}
	_, _, err := f.call(ctx, request{op: "release", doing: "releasing lines of", method: http.MethodDelete, query: query})
	return err
}

// Tip implements connector.Tip.
func (f *feed) Tip(ctx context.Context) (record.Position, error) {
	query := url.Values{"after": {strconv.FormatInt(f.at.Number, 10)}, "limit": {"0"}}
	_, header, err := f.call(ctx, request{op: "tip", doing: "asking for the end of", method: http.MethodGet, query: query})
	if err != nil {
		return record.Position{}, err
	}
	end, err := strconv.ParseInt(header.Get("Feed-End"), 10, 64)
	if err != nil {
		return record.Position{}, fmt.Errorf("the feed's header Feed-End: %w", err)
	}
	return form().Encode(place{end})
}

// Compare implements connector.Positions.
func (*feed) Compare(a, b record.Position) (int, bool) {
	var p, q place
	if form().Decode(a, &p) != nil || form().Decode(b, &q) != nil {
		return 0, false
	}
	return int(min(max(p.Number-q.Number, -1), 1)), true
}

// Migrate implements connector.Positions: there is one shape so far.
func (*feed) Migrate(at record.Position) (record.Position, error) {
	return at, form().Decode(at, new(place))
}

// Close implements records.Source.
func (f *feed) Close(context.Context) error {
	f.http.CloseIdleConnections()
	return nil
}
