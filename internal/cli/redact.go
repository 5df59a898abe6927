package cli

import (
	"encoding/json"
	"io"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/leatdata/leat/connector"
)

// secretNames are names of options and parameters whose values are never shown.
const secretNames = `(password|passwd|pwd|sslpassword|secret|token|api_?key|access_?key)`

// hidden stands where a secret stood.
const hidden = "***"

// redactor takes secrets out of everything that is shown: those that it was told, and whatever looks like a password in a URL or a
// connection string. It may be used concurrently.
type redactor struct {
	mu      sync.Mutex
	secrets []string // longest first
}

// minSecret is the length from which a known secret is searched for: shorter ones would spoil every message.
const minSecret = 3

// add makes secrets known, in every form in which they may show.
func (r *redactor) add(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		quoted, _ := json.Marshal(s) //nolint:errchkjson // a string always encodes
		user := url.UserPassword("", s).String()[1:]
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), user, strings.Trim(string(quoted), `"`)} {
			if len(form) >= minSecret && form != hidden && !slices.Contains(r.secrets, form) {
				r.secrets = append(r.secrets, form)
			}
		}
	}
	slices.SortStableFunc(r.secrets, func(a, b string) int { return len(b) - len(a) })
}

// addURL makes the passwords of a URL known.
func (r *redactor) addURL(raw string) {
	u, err := url.Parse(raw)
	if err != nil {
		return
	}
	if p, ok := u.User.Password(); ok {
		r.add(p)
	}
	for name, values := range u.Query() {
		if secretName.MatchString(name) {
			r.add(values...)
		}
	}
}

// addConfig makes known what stands in the secret options of a connector's configuration.
func (r *redactor) addConfig(cfg any) {
	walkOptions(reflect.ValueOf(cfg), func(_ string, v reflect.Value) {
		if s, ok := reflect.TypeAssert[connector.Secret](v); ok {
			r.add(s.Reveal())
		}
	})
}

// walkOptions visits the option fields of a configuration.
func walkOptions(v reflect.Value, visit func(name string, v reflect.Value)) {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			walkOptions(v.Field(i), visit)
			continue
		}
		if tag, ok := f.Tag.Lookup("leat"); ok && f.IsExported() {
			name, _, _ := strings.Cut(tag, ",")
			visit(name, v.Field(i))
		}
	}
}

var (
	// urlPassword runs to the last @ of a word, since a password may hold one.
	urlPassword = regexp.MustCompile(`(://[^\s:/?#@"'<>]*:)[^\s"'<>]*@`)
	secretName  = regexp.MustCompile(`(?i)^` + secretNames + `$`)
	pair        = regexp.MustCompile(`(?i)\b` + secretNames + `=('[^']*'|"[^"]*"|[^\s&"',;]+)`)
)

// text returns s without secrets.
func (r *redactor) text(s string) string {
	r.mu.Lock()
	secrets := r.secrets
	r.mu.Unlock()
	for _, secret := range secrets {
		s = strings.ReplaceAll(s, secret, hidden)
	}
	s = urlPassword.ReplaceAllString(s, "${1}"+hidden+"@")
	return pair.ReplaceAllString(s, "${1}="+hidden)
}

// writer returns a writer that redacts. Each Write must hold whole lines, as those of slog do.
func (r *redactor) writer(w io.Writer) io.Writer { return &redactingWriter{r: r, w: w} }

type redactingWriter struct {
	r *redactor
	w io.Writer
}

func (w *redactingWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.w, w.r.text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
