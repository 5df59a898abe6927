package config_test

import (
	"strings"
	"testing"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
)

// case C103.
func TestCheckURL(t *testing.T) {
	for _, good := range []string{
		"in.csv", "csv:a@b.csv", "sqlite:app.db?x=a@b", "/tmp/a:b@c", "pg://host/db", "pg://user@host/db", "pg://u:secret@host/db",
		"pg://u:p%40s%2Fs@host:5432/db?table=a@b", "pg://host:5432/a@b", "pg://host/a@b", "pg://u:@host/db", "pg://u:p@[::1]:5432/db",
		"pg://u:p@host/db?opt=a#b",
	} {
		if err := config.CheckURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, password := range []string{"p@s/s:w#d%^?&", "a/b", "a?b", "a#b", "a@b", "100%", "a b\x7f"} {
		err := config.CheckURL("pg://user:" + password + "@host/db?table=x")
		if err == nil {
			t.Errorf("password %q passes", password)
			continue
		}
		if connector.HintOf(err) == "" || strings.Contains(err.Error(), password) {
			t.Errorf("password %q: %v", password, err)
		}
	}
}
