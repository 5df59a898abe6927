package orderfeed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/leatdata/leat/connector"
)

// client calls one of the two services.
type client struct {
	env   connector.Env
	http  http.Client
	url   string
	token connector.Secret
}

const maxAnswer = 64 << 20

// request is one call of a service.
type request struct {
	op     string // for metrics
	doing  string // for people, in an error
	method string
	place  string // behind the service's URL
	query  url.Values
	body   []byte
}

// call makes one request.
func (c *client) call(ctx context.Context, r request) ([]byte, http.Header, error) {
	doing := r.doing
	req, err := http.NewRequestWithContext(ctx, r.method, c.url+r.place+"?"+r.query.Encode(), bytes.NewReader(r.body))
	if err != nil {
		return nil, nil, c.fail(doing, connector.ClassConfig, err, "write url as http://HOST:PORT/PATH")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token.Reveal())
	}
	c.env.Roundtrip(r.op)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, c.fail(doing, connector.ClassTransient, withoutURL(err), "is the service there? curl "+c.url)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, nil, c.fail(doing, connector.ClassTransient, err, "is the service there? curl "+c.url)
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return answer, resp.Header, nil
	}
	err = fmt.Errorf("the service answered %s: %.200s", resp.Status, strings.TrimSpace(string(answer)))
	switch resp.StatusCode {
	case http.StatusGone:
		return nil, nil, c.fail(doing, connector.ClassPosition, err, "copy everything again with --restart: lines in between are lost")
	case http.StatusConflict:
		return nil, nil, c.fail(doing, connector.ClassFenced, err, "another process runs this pipeline: stop one of them")
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, nil, c.fail(doing, connector.ClassPermanent, err, "set token")
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return nil, nil, c.fail(doing, connector.ClassTransient, err, "wait, and try again")
	}
	return nil, nil, c.fail(doing, connector.ClassPermanent, err, "is this the right url?")
}

// withoutURL leaves the URL out of an error of net/http: it is said already.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func (c *client) fail(doing string, class connector.Class, err error, hint string) error {
	return &connector.Error{Class: class, Code: "orderfeed.http", Doing: doing + " " + c.url, Err: err, Hint: hint}
}

// checkURL says what is wrong with a URL.
func checkURL(raw string) error {
	u, err := url.Parse(raw)
	if err == nil && (u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil) {
		err = fmt.Errorf("%s is no address of an HTTP service without a password", u.Redacted())
	}
	if err != nil {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "orderfeed.url", Doing: "configuring orderfeed", Err: withoutURL(err),
			Hint: "write url as http://HOST:PORT/PATH, and a password as token",
		}
	}
	return nil
}
