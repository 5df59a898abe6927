package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
)

func TestPipeline(t *testing.T) {
	p, err := config.Parse([]byte(`
name: orders.daily
guarantee: at-least-once
source:
  fake:
    path: in.csv
    password: 007
    rows: 12
    header: true
    wait: 90s
    style: fancy
    columns: [a, 1.10, 007]
    types: {a: text, b: 1.50}
transforms:
  - drop: [secret]
  - datasets: public.*
    rename: {a: b}
  - hash: {columns: [email], key: "hunter2"}
sinks:
  first: out.fake
  second:
    drain: {url: "drain-url?x=1", rows: 3}
    mode: append
    key: {orders: [id, line], lines: id}
    policies: {total: text, orders.when: "null"}
    bad_rows: {action: set_aside, limit: 5}
    transforms:
      - select: [id]
bad_rows: {action: set_aside, limit: 9, per_dataset: 4}
dead_letters: {fake: {path: dead, password: x}, mode: append}
limit: 100
batch_rows: 500
`), "p.yaml", registry(t), lookup())
	if err != nil {
		t.Fatal(err)
	}
	src := fakeOf(t, p.Source.Config)
	want := fakeConfig{
		Path: "in.csv", Password: "007", Rows: 12, Header: true, Wait: 90 * time.Second, Style: "fancy",
		Columns: []string{"a", "1.10", "007"}, Types: map[string]string{"a": "text", "b": "1.50"},
	}
	if diff := cmp.Diff(want, src, cmp.AllowUnexported(fakeConfig{})); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if p.Name != "orders.daily" || p.Guarantee != connector.AtLeastOnce || p.Limit != 100 || p.BatchRows != 500 {
		t.Errorf("got %+v", p)
	}
	if len(p.Transforms.Steps) != 3 || len(p.Sinks) != 2 {
		t.Fatalf("got %d transforms, %d sinks", len(p.Transforms.Steps), len(p.Sinks))
	}
	if d := p.DeadLetters; d == nil || d.Connector != "fake" || *d.Mode != connector.Append || fakeOf(t, d.Config).Path != "dead" {
		t.Errorf("dead letters go to %+v", d)
	}
	wantText := `[{"kind":"drop","args":["secret"]},{"kind":"rename","args":{"a":"b"},"datasets":["public.*"]},` +
		`{"kind":"hash","args":{"columns":["email"],"key":"***"}}]`
	if p.Transforms.Text != wantText {
		t.Errorf("text of the transforms:\n%s\nwant:\n%s", p.Transforms.Text, wantText)
	}
	second := p.Sinks[1]
	if second.Name != "second" || second.Connector != "drain" || *second.Mode != connector.Append {
		t.Errorf("got %+v", second)
	}
	if cfg := fakeOf(t, second.Config); cfg.Path != "drain-url" || cfg.query != "x=1" || cfg.Rows != 3 {
		t.Errorf("second sink: %+v", cfg)
	}
	for _, d := range []string{
		cmp.Diff(map[string][]string{"orders": {"id", "line"}, "lines": {"id"}}, second.Keys),
		cmp.Diff(map[string]connector.Policy{"total": connector.PolicyText, "orders.when": connector.PolicyNull}, second.Policies),
		cmp.Diff(&config.BadRows{SetAside: true, Limit: 5}, second.BadRows),
		cmp.Diff(&config.BadRows{SetAside: true, Limit: 9, PerDataset: 4}, p.BadRows),
	} {
		if d != "" {
			t.Error(d)
		}
	}
}

// A source that is followed.
func TestFollowing(t *testing.T) {
	p, err := config.Parse([]byte(`
name: n
source: {fake: {path: a, follow: true}}
snapshot: only
once: true
sinks:
  a: b.fake
  b: {fake: b, schema: ignore}
  c: {fake: b, mode: upsert, schema: {public.orders: set_aside, "*": fail}}
`), "p.yaml", registry(t), lookup())
	if err != nil {
		t.Fatal(err)
	}
	if p.Snapshot != config.SnapshotOnly || !p.Once {
		t.Errorf("got %+v", p)
	}
	want := []map[string]string{
		nil, {"*": config.SchemaIgnore}, {"public.orders": config.SchemaSetAside, "*": config.SchemaFail},
	}
	for i, s := range p.Sinks {
		if diff := cmp.Diff(want[i], s.Schema); diff != "" {
			t.Errorf("sink %s (-want +got):\n%s", s.Name, diff)
		}
	}
}

// Where what was read waits.
func TestLanes(t *testing.T) {
	const head = "name: n\nsource: {fake: {path: a, follow: true}}\nsinks: {a: b.fake, b: c.fake}\n"
	for text, want := range map[string]config.Lanes{
		"":                                   {},
		"lanes: memory\n":                    {Kind: config.LanesMemory},
		"lanes: {kind: auto, quota: 10GB}\n": {Kind: config.LanesAuto, Quota: 10e9},
		"lanes: {kind: durable, folder: /srv/lanes, quota: 1GiB, age: 7d, over: detach}\n": {
			Kind: config.LanesDurable, Folder: "/srv/lanes", Quota: 1 << 30, Age: 7 * 24 * time.Hour, Over: config.OverDetach,
		},
		"lanes: {url: 'nats://a:${env:PW}@one:4222', creds: a.creds, replicas: 3}\n": {
			URL: "nats://a:p%40s%2Fs%3Aw%23d%25%5E%3F%26@one:4222", Creds: "a.creds", Replicas: 3,
		},
		"lanes: {url: ['tls://one', 'tls://a:b,c@two']}\n": {URL: "tls://one,tls://a:b%2Cc@two"},
	} {
		p, err := config.Parse([]byte(head+text), "p.yaml", registry(t), lookup())
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, p.Lanes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestSizesAndAges(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1000000": 1e6, "64MB": 64e6, "16MiB": 16 << 20, "2 g": 2e9, "5k": 5000, "7B": 7, "1TB": 1e12, "1TiB": 1 << 40,
	} {
		if got, err := config.ParseSize(text); err != nil || got != want {
			t.Errorf("%s: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "MB", "1.5GB", "-1", "1XB", "99999999999G"} {
		if n, err := config.ParseSize(text); err == nil {
			t.Errorf("%s: got %d", text, n)
		}
	}
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "36h": 36 * time.Hour, "7d": 7 * day, "1w2d3h": 9*day + 3*time.Hour, "2w": 14 * day, "1.5h": 90 * time.Minute,
	} {
		if got, err := config.ParseAge(text); err != nil || got != want {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "0d", "-1h", "d", "7", "1d1w", "1d-1h", "99999999w", "1.5d", "7 days"} {
		if got, err := config.ParseAge(text); err == nil {
			t.Errorf("%q: got %s", text, got)
		}
	}
}

// clause S31
// case C104.
func TestProblems(t *testing.T) {
	const head = "name: n\nsource: a.fake\n"
	for _, c := range []struct {
		name, yaml string
		want       []string
	}{
		{"empty", "", []string{"1:1: the file is empty"}},
		{"two documents", "a: 1\n---\nb: 2\n", []string{"1:1: want one YAML document, found 2"}},
		{"broken", "name: n\nsource: [a\n", []string{"2:9: broken YAML: sequence end token ']' not found"}},
		{"no map", "- a\n", []string{"1:1: pipeline: want a map, not a list"}},
		{"unknown key, missing keys", "nam: n\nsource: a.fake\n", []string{
			`1:1: pipeline: unknown key "nam": did you mean "name"?`, `1:1: pipeline: "name" is missing`, `1:1: pipeline: "sinks" is missing`,
		}},
		{"duplicate key", "name: n\nsource: a.fake\nname: m\nsinks: {a: b.fake}\n", []string{
			`3:1: key "name" stands here for the second time (first in line 1)`,
		}},
		{"duplicate sink", head + "sinks:\n  a: b.fake\n  a: c.fake\n", []string{`5:3: key "a" stands here for the second time (first in line 4)`}},
		{"lanes", "name: n\nsource: {fake: {path: a, follow: true}}\nsinks: {a: b.fake}\n" +
			"lanes: {knd: auto, quota: 5XB, age: 7, over: drop, url: 'http://a:secret@b'}\n", []string{
			`4:9: lanes: unknown key "knd": did you mean "kind"?`,
			`4:27: "5XB" is no size: want a number of bytes, such as 1000000, 64MB or 16MiB`,
			`4:37: "7" is no age: want a positive duration, such as 90m, 36h or 7d`,
			`4:46: unknown way to treat a lane over its bounds "drop": known are detach, hold`,
			`4:57: lanes: url: want the URL of a NATS server, such as nats://HOST:4222, with one of the schemes nats, tls, ws, wss`,
		}},
		{"lanes that contradict themselves", "name: n\nsource: {fake: {path: a, follow: true}}\nsinks: {a: b.fake}\n" +
			"lanes: {kind: memory, quota: 5GB}\n", []string{`4:23: lanes: "quota" is for durable lanes, and kind is memory`}},
		{"lanes of no server", "name: n\nsource: {fake: {path: a, follow: true}}\nsinks: {a: b.fake}\n" +
			"lanes: {creds: a, replicas: 3}\n", []string{
			`4:16: lanes: creds is for the servers of url, which is missing`, `4:29: lanes: replicas is for the servers of url, which is missing`,
		}},
		{"too many replicas", "name: n\nsource: {fake: {path: a, follow: true}}\nsinks: {a: b.fake}\n" +
			"lanes: {url: nats://h, replicas: 30}\n", []string{`4:34: want at most 5 replicas, not 30`}},
		{"lanes in two places", "name: n\nsource: {fake: {path: a, follow: true}}\nsinks: {a: b.fake}\n" +
			"lanes: {url: nats://h, folder: x, over: detach}\n", []string{
			`4:32: lanes: folder is for lanes that this process keeps itself, url for those of servers: want one of them`,
			`4:41: lanes: over: detach has no effect without a quota or an age`,
		}},
		{"lanes of a copy", head + "lanes: durable\nsinks: {a: b.fake}\n", []string{
			`3:8: lanes: source fake copies what is there and follows no changes; set its option follow: true`,
		}},
		{"sink key at the top", head + "mode: upsert\nsinks: {a: b.fake}\n", []string{
			`3:1: pipeline: "mode" does not belong here: it belongs to a sink, beside its connector`,
		}},
		{"top key in a sink", head + "sinks:\n  a:\n    fake: b.fake\n    guarantee: exactly-once\n", []string{
			`6:5: sink a: "guarantee" does not belong here: it belongs to the top of the file`,
		}},
		{"sink key among options", head + "sinks:\n  a:\n    fake:\n      path: b\n      mode: append\n", []string{
			`7:7: fake: "mode" does not belong here: it belongs to a sink, beside its connector`,
		}},
		{"option beside the connector", head + "sinks:\n  a:\n    fake: b.fake\n    rows: 3\n", []string{
			`6:5: sink a: "rows" is an option of fake: it belongs below "fake"`,
		}},
		{"option misspelt", "name: n\nsource:\n  fake:\n    path: a\n    colums: [x]\nsinks: {a: b.fake}\n", []string{
			`5:5: fake: unknown option "colums": did you mean "columns"?`,
		}},
		{"option missing", "name: n\nsource:\n  fake:\n    rows: 1\nsinks: {a: b.fake}\n", []string{`4:5: fake: option "path" is missing`}},
		{"options of wrong types", head + `sinks:
  a:
    fake:
      path:
      rows: many
      header: perhaps
      wait: 5
      style: gaudy
      columns: {a: b}
      types: [a]
`, []string{
			`6:7: fake: option "path" has no value`,
			`7:13: fake: option "rows": "many" is no whole number`,
			`8:15: fake: option "header": "perhaps" is no boolean: want true or false`,
			`9:13: fake: option "wait": "5" is no duration: want a number with a unit, such as 30s or 5m`,
			`10:14: fake: option "style": "gaudy" is none of plain, fancy`,
			`11:17: fake: option "columns": want a list, not a map`,
			`12:14: fake: option "types": want a map, not a list`,
		}},
		{"nested option", head + "sinks:\n  a:\n    fake: {path: b, columns: [[x]]}\n", []string{`5:30: fake: option "columns": want one level only`}},
		{"connector misspelt", "name: n\nsource: {fak: a}\nsinks: {a: b.fake}\n", []string{`2:10: source: unknown connector "fak": did you mean "fake"?`}},
		{"url beside", "name: n\nsource: {url: a}\nsinks: {a: b.fake}\n", []string{
			"2:10: source: write the URL behind the connector's name, as in `postgres: URL`",
		}},
		{"two connectors", "name: n\nsource: {fake: a, well: b}\nsinks: {a: b.fake}\n", []string{
			`2:19: source: both "fake" and "well" are named: want one connector`,
		}},
		{"no connector", head + "sinks:\n  a:\n    mode: append\n", []string{"5:5: sink a: no connector is named; known are drain, fake, house, well"}},
		{"wrong side", "name: n\nsource: {drain: {path: x}}\nsinks: {a: {well: {path: x}}}\n", []string{
			`2:10: source: connector "drain" can't be a source`, `3:13: sink a: connector "well" can't be a sink`,
		}},
		{"unknown ending", "name: n\nsource: a.xls\nsinks: {a: b.fake}\n", []string{
			`2:9: source: finding a connector: "a.xls" has no scheme and no known file ending (put the format in front, as in csv:FILE, ` +
				`sqlite:FILE or duckdb:FILE; leat connectors lists what there is)`,
		}},
		{"bad URL", "name: n\nsource: 'fake:'\nsinks: {a: b.fake}\n", []string{`2:9: fake: no path (put a path behind fake:)`}},
		{"contract refuses", "name: n\nsource: {fake: no}\nsinks: {a: b.fake}\n", []string{`2:10: source fake: path no is no path`}},
		{"no sinks", head + "sinks: {}\n", []string{"3:8: sinks: want a map of names to sinks, at least one"}},
		{"sinks as a list", head + "sinks: [b.fake]\n", []string{"3:8: sinks: want a map of names to sinks, at least one"}},
		{"names", "name: a b\nsource: a.fake\nsinks: {-x: b.fake}\n", []string{
			`1:7: name "a b" has ' ' at byte 1: only letters, digits, dots, hyphens and underscores are allowed`,
			`3:9: name "-x" must begin with a letter or a digit`,
		}},
		{"values", head + `guarantee: exactly
limit: -1
batch_rows: 1.5
bad_rows: ignore
sinks:
  a:
    fake: b.fake
    mode: merge
    policies: {x: drop}
    bad_rows: {limit: 3}
    key:
`, []string{
			`3:12: unknown guarantee "exactly": want at-least-once, effectively-once or exactly-once`,
			`4:8: want a whole number that is not negative, not -1`,
			`5:13: want a whole number that is not negative, not 1.5`,
			`6:11: "ignore": want stop or set_aside`,
			`10:11: unknown mode "merge": want append, upsert or replace`,
			`11:19: unknown policy "drop": want fail, text, null, clamp or strip`,
			`12:16: bad_rows: "action" is missing`,
			`13:5: sink a: "key" has no value`,
		}},
		{"dead letters", head + `sinks: {a: b.fake}
bad_rows: {action: set_aside, per_dataset: many, limits: 3}
dead_letters: {drian: x}
`, []string{
			`4:44: want a whole number that is not negative, not many`,
			`4:50: bad_rows: unknown key "limits": did you mean "limit"?`,
			`5:16: dead_letters: unknown connector "drian": did you mean "drain"?`,
		}},
		{"dead letters twice", head + "sinks: {a: {fake: x, dead_letters: y.fake}}\ndead_letters: {fake: x, mode: merge}\n", []string{
			`3:22: sink a: "dead_letters" does not belong here: it belongs to the top of the file`,
			`4:31: unknown mode "merge": want append, upsert or replace`,
		}},
		{"follows nothing", head + `snapshot: first
once: true
sinks:
  a: {drain: x, schema: ignore}
  b: {fake: x, schema:}
`, []string{
			`3:11: snapshot: source fake copies what is there and follows no changes; set its option follow: true`,
			`4:7: once: source fake copies what is there and follows no changes; set its option follow: true`,
			`6:25: schema: source fake copies what is there and follows no changes; set its option follow: true`,
			`7:16: sink b: "schema" has no value`,
		}},
		{"source that can't follow", "name: n\nsource: {well: a, fake: b}\nsinks: {a: b.fake}\nonce: true\n", []string{
			`2:19: source: both "well" and "fake" are named: want one connector`,
			`4:7: once: source well copies what is there and follows no changes; set its option follow: true`,
		}},
		{"following", `name: n
source: {fake: {path: a, follow: true}}
snapshot: everything
once: yes
sinks:
  a: {fake: b, mode: upsert, deletes: soft}
  b: {fake: b, schema: {orders: evolv, "*": ignore, lines: [x]}}
  c: {house: b, schema: main}
  d: {fake: b, mode: upsert, deletes: keep}
`, []string{
			`3:11: unknown snapshot "everything": want first, none or only`,
			`4:7: "yes": want true or false`,
			`6:39: deletes: source fake sends deletes itself: leave this out`,
			`7:33: unknown schema policy "evolv": want evolve, ignore, set_aside or fail`,
			`7:60: want text, not a list`,
			`8:25: unknown schema policy "main": want evolve, ignore, set_aside or fail (the option schema of house belongs below "house")`,
		}},
		{"transforms", head + `sinks: {a: b.fake}
transforms:
  - drp: [x]
  - drop: [x]
    select: [y]
  - filter: [x]
  - datasets: [a]
  - x
`, []string{
			`5:5: transforms: unknown transform "drp": did you mean "drop"?`,
			`7:5: transforms: both "drop" and "select": want one transform for each item of the list`,
			`8:5: transforms: filter: `,
			`9:5: transforms: no transform is named; known are select, drop, rename, cast, set, filter, hash, mask, key, route`,
			"10:5: transforms: want a map of one transform, such as `- drop: [password]`",
		}},
		{"transforms as a map", head + "transforms: {drop: [x]}\nsinks: {a: b.fake}\n", []string{"3:14: transforms: want a list, not a map"}},
		{"references", "name: ${env:NOPE}\nsource: ${file:nope}\nsinks: {a: '${x}', b: '${env:NAME'}\n", []string{
			"1:7: environment variable NOPE is not set", "2:9: reading a value: no such file",
			"3:12: ${x}: want ${env:NAME} or ${file:PATH}; $${ is a plain ${", "3:23: ${ without a closing }",
		}},
		{"anchors", head + "sinks: {a: *b}\n", []string{`3:12: no anchor "b" stands above`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse([]byte(c.yaml), "p.yaml", registry(t), lookup())
			if _, ok := errors.AsType[config.Problems](err); !ok {
				t.Fatalf("got %v, want problems", err)
			}
			got := strings.Split(err.Error(), "\n")
			var missing []string
			for _, w := range c.want {
				if !hasPrefix(got, "p.yaml:"+w) {
					missing = append(missing, w)
				}
			}
			if len(missing) > 0 {
				t.Errorf("missing:\n%s\ngot:\n%s", strings.Join(missing, "\n"), err)
			}
			if len(got) != len(c.want) {
				t.Errorf("want %d problems, got %d:\n%s", len(c.want), len(got), err)
			}
		})
	}
}

func hasPrefix(lines []string, prefix string) bool {
	for _, l := range lines {
		if strings.HasPrefix(l, prefix) {
			return true
		}
	}
	return false
}

func TestReferences(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"},
		{"a-${env:NAME}-b", "a-orders-b"},
		{"${env:NAME}${env:NAME}", "ordersorders"},
		{"${env:NOPE:-fallback}", "fallback"},
		{"${env:EMPTY:-fallback}", ""},
		{"${file:/run/secrets/pw}", "from file"},
		{"$${env:NAME}", "${env:NAME}"},
		{"cost $5 ${env:NAME} $$", "cost $5 orders $$"},
		{"${env:YAML}", "x}\nname: other"},
		{"${env:PW}", "p@s/s:w#d%^?&"},
		{"pg://u:${env:PW}@host/db?password=${env:PW}", "pg://u:p%40s%2Fs%3Aw%23d%25%5E%3F%26@host/db?password=p%40s%2Fs%3Aw%23d%25%5E%3F%26"},
		{"pg://host/${env:NAME}", "pg://host/orders"},
		{"pg://${env:NAME}:5432/x@y", "pg://orders:5432/x@y"},
	} {
		got, err := lookup().Expand(c.in)
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// A value that is put in never changes the form of the file.
func TestReferencesAreNoYAML(t *testing.T) {
	p, err := config.Parse([]byte("name: n\nsource: {fake: {path: '${env:YAML}', password: '${env:PW}'}}\nsinks: {a: b.fake}\n"),
		"p.yaml", registry(t), lookup())
	if err != nil {
		t.Fatal(err)
	}
	src := fakeOf(t, p.Source.Config)
	if p.Name != "n" || src.Path != "x}\nname: other" || src.Password.Reveal() != "p@s/s:w#d%^?&" {
		t.Errorf("got %q, %q", p.Name, src.Path)
	}
}

// case C103.
func TestProblemsHideWhatWasPutIn(t *testing.T) {
	for _, name := range []string{"PW", "QUOTED"} {
		value, _ := lookup().Env(name)
		_, err := config.Parse([]byte(`
name: "${env:`+name+`}"
source: {fake: {path: x, rows: "${env:`+name+`}", style: "x${env:`+name+`}"}}
sinks: {a: "${env:`+name+`}", b: {fake: x, mode: "${env:`+name+`}"}}
`), "p.yaml", registry(t), lookup())
		if err == nil {
			t.Fatal("no problem")
		}
		for _, part := range []string{value, strings.Trim(strconv.Quote(value), `"`)} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("shows %q:\n%s", part, err)
			}
		}
		if n := strings.Count(err.Error(), "${env:"+name+"}"); n < 4 {
			t.Errorf("names the reference %d times:\n%s", n, err)
		}
	}
}

func TestAnchorsAndMerges(t *testing.T) {
	p, err := config.Parse([]byte(`
name: n
source: {fake: &options {path: "$${x}", rows: 5}}
sinks:
  a: {fake: *options}
  b:
    fake:
      <<: *options
      rows: 6
`), "p.yaml", registry(t), lookup())
	if err != nil {
		t.Fatal(err)
	}
	a, b := fakeOf(t, p.Sinks[0].Config), fakeOf(t, p.Sinks[1].Config)
	if a.Path != "${x}" || a.Rows != 5 || b.Path != "${x}" || b.Rows != 6 {
		t.Errorf("got %+v and %+v", a, b)
	}
}

func TestAliasesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 12 {
		b.WriteString(strings.NewReplacer("N", string(rune('a'+i+1)), "M", string(rune('a'+i))).Replace(
			"N0: &N0 [*M0, *M0, *M0, *M0, *M0, *M0, *M0, *M0, *M0, *M0]\n"))
	}
	_, err := config.Parse([]byte(b.String()), "p.yaml", registry(t), lookup())
	if err == nil || !strings.Contains(err.Error(), "aliases multiply this file") {
		t.Errorf("got %.300v", err)
	}
}

func TestLoad(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"), registry(t), lookup())
	if !errors.Is(err, os.ErrNotExist) || connector.HintOf(err) == "" || connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: n\nsource: a.fake\nsinks: {a: {fake: {path: x, columns: [a, b]}, mode: append}}\n"))
	f.Add([]byte("name: n\nsource: &a {fake: {<<: *a, ? [b] : !!str 5}}\nsinks: {a: ${env:NAME}}\ntransforms: [{filter: 'a > 1'}]\n"))
	f.Add([]byte("a: |\n  x\n---\n"))
	reg := registry(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := config.Parse(data, "p.yaml", reg, lookup())
		if (p == nil) == (err == nil) {
			t.Fatalf("pipeline %v and error %v", p, err)
		}
		var ps config.Problems
		if err != nil && !errors.As(err, &ps) {
			t.Fatalf("not problems: %v", err)
		}
		for _, problem := range ps {
			if problem.Line < 1 || problem.Column < 1 || problem.Message == "" {
				t.Fatalf("a problem without a place: %+v", problem)
			}
		}
	})
}
