package connector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
)

// level is an option that reads its own text.
type level int

func (l *level) UnmarshalText(b []byte) error {
	if string(b) != "high" {
		return errors.New("want high")
	}
	*l = 9
	return nil
}

type common struct {
	Host string `leat:"host,required" doc:"the host" example:"db.example.com"`
}

type config struct {
	common

	Password connector.Secret  `leat:"password" doc:"the password"`
	Mode     string            `leat:"mode" enum:"fast|safe"`
	TLS      bool              `leat:"tls"`
	Port     int               `leat:"port"`
	Rows     int64             `leat:"rows"`
	Ratio    float64           `leat:"ratio"`
	Wait     time.Duration     `leat:"wait"`
	Tables   []string          `leat:"tables"`
	Types    map[string]string `leat:"types"`
	Level    level             `leat:"level"`
	Internal string            // no option
}

// clause S31: the options of a struct, with the defaults that its constructor left.
func TestOptions(t *testing.T) {
	c := &config{Password: "hunter2", Port: 5432, Wait: 30 * time.Second, Tables: []string{"a", "b"}}
	type option struct{ Name, Type, Default string }
	var got []option
	for _, o := range connector.Options(c) {
		got = append(got, option{o.Name, o.Type, o.Default})
		if o.Required != (o.Name == "host") {
			t.Errorf("%s: required %v", o.Name, o.Required)
		}
	}
	want := []option{
		{"host", "string", ""},
		{"password", "secret", "***"},
		{"mode", "string", ""},
		{"tls", "bool", ""},
		{"port", "int", "5432"},
		{"rows", "int", ""},
		{"ratio", "float", ""},
		{"wait", "duration", "30s"},
		{"tables", "list", "a,b"},
		{"types", "map", ""},
		{"level", "string", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	host, mode := connector.Options(c)[0], connector.Options(c)[2]
	if host.Doc != "the host" || host.Example != "db.example.com" || cmp.Diff([]string{"fast", "safe"}, mode.Enum) != "" {
		t.Errorf("%+v, %+v", host, mode)
	}
}

// clause S31: values come as text of a URL or as what a YAML document has.
func TestSetOption(t *testing.T) {
	for _, c := range []struct {
		name  string
		value any
		want  config
	}{
		{"host", "h", config{common: common{Host: "h"}}},
		{"host", 7, config{common: common{Host: "7"}}},
		{"password", "hunter2", config{Password: "hunter2"}},
		{"mode", "safe", config{Mode: "safe"}},
		{"tls", "true", config{TLS: true}},
		{"tls", true, config{TLS: true}},
		{"port", uint64(5432), config{Port: 5432}},
		{"rows", "-9223372036854775808", config{Rows: -1 << 63}},
		{"ratio", 0.5, config{Ratio: 0.5}},
		{"wait", "1m30s", config{Wait: 90 * time.Second}},
		{"tables", "a,b", config{Tables: []string{"a", "b"}}},
		{"tables", "", config{}},
		{"tables", []any{"a,b", 2}, config{Tables: []string{"a,b", "2"}}},
		{"tables", []string{"a"}, config{Tables: []string{"a"}}},
		{"types", "a:int64,b:decimal(12,2),c:list<array<text>>", config{Types: map[string]string{"a": "int64", "b": "decimal(12,2)", "c": "list<array<text>>"}}},
		{"types", map[string]any{"a": "int64"}, config{Types: map[string]string{"a": "int64"}}},
		{"types", map[string]string{"a": "b:c"}, config{Types: map[string]string{"a": "b:c"}}},
		{"level", "high", config{Level: 9}},
	} {
		var got config
		if err := connector.SetOption(&got, c.name, c.value); err != nil {
			t.Errorf("%s = %v: %v", c.name, c.value, err)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(config{}), cmp.Comparer(func(a, b connector.Secret) bool { return a == b })); diff != "" {
			t.Errorf("%s = %v (-want +got)\n%s", c.name, c.value, diff)
		}
	}
}

// clause S31: what is wrong is named, with the nearest right name.
func TestSetOptionErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		value any
		want  string
	}{
		{"hots", "h", `unknown option "hots": did you mean "host"?`},
		{"zzzzzzzz", "h", `unknown option "zzzzzzzz": known are host, level`},
		{"Internal", "x", `unknown option "Internal"`},
		{"host", []any{"a"}, `option "host": want one string`},
		{"host", nil, `option "host": it has no value`},
		{"mode", "slow", `option "mode": "slow" is none of fast, safe`},
		{"tls", "maybe", `"maybe" is no boolean: want true or false`},
		{"port", "5e3", `"5e3" is no whole number`},
		{"port", "99999999999999999999", `is no whole number`},
		{"ratio", "half", `"half" is no number`},
		{"wait", "30", `"30" is no duration: want a number with a unit, such as 30s or 5m`},
		{"tables", map[string]any{"a": 1}, `option "tables": want a list, not a map`},
		{"tables", 7, `option "tables": want a list or comma-separated text, not 7`},
		{"tables", []any{"a", []any{"b"}}, `option "tables": element 2: want one text`},
		{"tables", []any{nil}, `element 1: want one text`},
		{"types", []any{"a"}, `option "types": want a map, not a list`},
		{"types", "a", `"a": want name:value pairs with commas between`},
		{"types", map[string]any{"a": nil, "b": nil}, `entry "a": want one text`},
		{"level", "low", `option "level": want high`},
	} {
		got := config{Tables: []string{"before"}}
		err := connector.SetOption(&got, c.name, c.value)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %v: error %v, want %s", c.name, c.value, err, c.want)
		}
		if diff := cmp.Diff([]string{"before"}, got.Tables); diff != "" {
			t.Errorf("%s = %v changed something in spite of %v", c.name, c.value, err)
		}
	}
	if err := connector.SetOption(&config{}, "password", []any{"hunter2"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret is in an error: %v", err)
	}
}

// clause S31: everything that is wrong is reported at once, in order.
func TestSetOptionsReportsAll(t *testing.T) {
	var c config
	err := connector.SetOptions(&c, map[string]string{"port": "x", "hots": "h", "mode": "fast", "tls": "y"})
	want := `unknown option "hots": did you mean "host"?` + "\n" + `option "port": "x" is no whole number` + "\n" +
		`option "tls": "y" is no boolean: want true or false`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want\n%s", err, want)
	}
	if c.Mode != "fast" {
		t.Error("what is right was not set")
	}
}

func TestUnknownName(t *testing.T) {
	known := []string{"postgres", "sqlite", "csv"}
	for name, want := range map[string]string{
		"postgress": `unknown connector "postgress": did you mean "postgres"?`,
		"psotgres":  `did you mean "postgres"?`,
		"CSV":       `known are csv, postgres, sqlite`,
		"kafka":     `known are csv, postgres, sqlite`,
	} {
		if err := connector.UnknownName("connector", name, known); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
