package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
)

const nastyPassword = `p@s/s:w#d%^?&`

// case C103.
func TestRedact(t *testing.T) {
	r := &redactor{}
	r.add(nastyPassword, "ab", "")
	for _, c := range []struct{ in, want string }{
		{"plain text, user@host:5432/db", "plain text, user@host:5432/db"},
		{"dial " + nastyPassword + "!", "dial ***!"},
		{`as JSON "p@s/s:w#d%^?\u0026"`, `as JSON "***"`},
		{"encoded p%40s%2Fs%3Aw%23d%25%5E%3F%26", "encoded ***"},
		{"postgres://app:secret@db/shop", "postgres://app:***@db/shop"},
		{"postgres://app:a@b/c@db/shop?x=1 and more", "postgres://app:***@db/shop?x=1 and more"},
		{`parse "postgres://app:s3cret@db": no`, `parse "postgres://app:***@db": no`},
		{"host=db password=hush user=app", "host=db password=*** user=app"},
		{"host=db password='it is' user=app", "host=db password=*** user=app"},
		{"?sslpassword=x&a=b", "?sslpassword=***&a=b"},
		{"ab is too short to hide", "ab is too short to hide"},
		{"http://host:8080/path", "http://host:8080/path"},
	} {
		if got := r.text(c.in); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.in, got, c.want)
		}
	}
}

func TestRedactURL(t *testing.T) {
	r := &redactor{}
	r.addURL("postgres://app:top%20secret@db/shop?sslpassword=other")
	if got := r.text("top secret, top%20secret, top+secret, other"); got != "***, ***, ***, ***" {
		t.Error(got)
	}
}

type secretive struct {
	inner
	Password connector.Secret `leat:"password"`
	Path     string           `leat:"path"`
	hidden   string
}

type inner struct {
	Token connector.Secret `leat:"token"`
}

func TestRedactConfig(t *testing.T) {
	r := &redactor{}
	r.addConfig(&secretive{Password: "hushhush", inner: inner{Token: "tick-tock"}, Path: "/p", hidden: "x"})
	if got := r.text("hushhush tick-tock /p"); got != "*** *** /p" {
		t.Error(got)
	}
	if got := optionText(&secretive{Path: "/p", Password: "hushhush"}, "path"); got != "/p" {
		t.Error(got)
	}
}

func TestRedactingWriter(t *testing.T) {
	var out bytes.Buffer
	r := &redactor{}
	w := r.writer(&out)
	r.add("late-secret") // known only after the writer was made
	n, err := w.Write([]byte("a late-secret b\n"))
	if err != nil || n != len("a late-secret b\n") || out.String() != "a *** b\n" {
		t.Errorf("got %d, %v, %q", n, err, out.String())
	}
	if strings.Contains(out.String(), "late-secret") {
		t.Error("shown")
	}
}
