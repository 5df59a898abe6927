package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// tokens hands out the token of OAuth: the configured one, what stands in a file now, or what a server gives for the client's
// credentials (RFC 6749, 4.4), which is kept until shortly before it ends.
type tokens struct {
	c *Connection

	mu    sync.Mutex
	token string
	until time.Time
}

const (
	tokenMargin   = 30 * time.Second // a token is not used any more so long before its end
	maxTokenReply = 1 << 20
)

func (t *tokens) get(ctx context.Context) (string, error) {
	switch {
	case t.c.TokenFile != "":
		text, err := os.ReadFile(t.c.TokenFile)
		if err != nil {
			return "", fmt.Errorf("token_file: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	case t.c.TokenURL == "":
		return t.c.Token.Reveal(), nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Until(t.until) > tokenMargin {
		return t.token, nil
	}
	token, lasts, err := t.ask(ctx)
	if err != nil {
		return "", fmt.Errorf("asking for a token at token_url: %w", err)
	}
	t.token, t.until = token, time.Now().Add(lasts)
	return token, nil
}

func (t *tokens) ask(ctx context.Context) (token string, lasts time.Duration, err error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if t.c.TokenScope != "" {
		form.Set("scope", t.c.TokenScope)
	}
	if t.c.TokenAudience != "" {
		form.Set("audience", t.c.TokenAudience)
	}
	ctx, cancel := context.WithTimeout(ctx, t.c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.c.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, errors.New("it is no URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(url.QueryEscape(t.c.User), url.QueryEscape(t.c.Password.Reveal()))
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()} //nolint:forcetypeassert // it is one
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return "", 0, fmt.Errorf("calling it: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenReply))
	if err != nil {
		return "", 0, fmt.Errorf("reading its answer: %w", err)
	}
	var answer struct {
		Token   string  `json:"access_token"`
		Expires float64 `json:"expires_in"`
		Error   string  `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Token == "" {
		return "", 0, fmt.Errorf("it answered %s and no token %s", resp.Status, answer.Error)
	}
	return answer.Token, time.Duration(answer.Expires * float64(time.Second)), nil
}
