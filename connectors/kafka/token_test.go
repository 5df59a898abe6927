package kafka

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Tokens of OAuth: given, in a file that changes, and by client credentials, which are asked for anew shortly before they end.
func TestTokens(t *testing.T) {
	asked, lasts := 0, "3600"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		user, password, _ := r.BasicAuth()
		if user != "id" || password != "s3cret" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "kafka" {
			http.Error(w, `{"error":"invalid_client"}`, http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"access_token":"given","expires_in":` + lasts + `}`))
	}))
	defer server.Close()
	c := &Connection{User: "id", Password: "s3cret", TokenURL: server.URL, TokenScope: "kafka", Timeout: 5 * time.Second}
	keep := &tokens{c: c}
	for range 3 {
		if token, err := keep.get(t.Context()); token != "given" || err != nil {
			t.Fatal(token, err)
		}
	}
	if asked != 1 {
		t.Errorf("the token was asked for %d times, want once", asked)
	}
	lasts = "10"
	short := &tokens{c: c}
	for range 2 {
		if _, err := short.get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 3 {
		t.Errorf("a token that ends soon was kept: asked %d times, want 3", asked)
	}
	wrong := *c
	wrong.Password = "s3cret2"
	if _, err := (&tokens{c: &wrong}).get(t.Context()); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("wrong credentials gave %v", err)
	}

	file := filepath.Join(t.TempDir(), "token")
	kept := &tokens{c: &Connection{TokenFile: file}}
	for _, want := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if token, err := kept.get(t.Context()); token != want || err != nil {
			t.Errorf("the file's token is %q (%v), want %q", token, err, want)
		}
	}
	if token, err := (&tokens{c: &Connection{Token: "fixed"}}).get(t.Context()); token != "fixed" || err != nil {
		t.Error(token, err)
	}
}
