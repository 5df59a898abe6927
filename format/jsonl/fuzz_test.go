package jsonl_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/record"
)

// FuzzReader compares with the standard library: a line is taken exactly if it is an object there (and no half of a surrogate pair, and
// not too deep), a column of documents keeps it byte for byte, and an inferred schema takes every row that it was inferred from.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		`{"v":1}`, `{"v":"\u00e9\ud83d\ude00"}`, `{"v":[1,{"a":null}]}`, `{"v":1e5,"w":-0.0}`, ` { "v" : true } `, `{"v":"\ud800"}`, `{"\u0076":1,"v":2}`, `{"v":{"a":1}}` + "\n" + `{"v":{"a":2}}`,
		`{"v":"2024-01-02"}` + "\n\n" + `{"w":"2024-01-02T03:04:05Z"}`, "{\"v\":\"\xff\"}", `{}`, `{"":0}`, `{"v":1.10}`, `{"v":9007199254740993}`,
	} {
		f.Add(s)
	}
	half := regexp.MustCompile(`\\u[dD][89a-fA-F]`)
	f.Fuzz(func(t *testing.T, in string) {
		for line := range strings.SplitSeq(in, "\n") {
			var members map[string]json.RawMessage
			err := json.Unmarshal([]byte(line), &members)
			good := err == nil && members != nil && utf8.ValidString(line) && !strings.Contains(strings.ReplaceAll(line, " ", ""), strings.Repeat("[", 900))
			if half.MatchString(line) || len(bytes.TrimSpace([]byte(line))) == 0 {
				continue
			}
			r, e := jsonl.NewReader(strings.NewReader(strings.TrimPrefix(line, "\xef\xbb\xbf")), jsonl.Options{Schema: infer(t, jsonl.InferOptions{Documents: true}, `{"v":1}`)})
			if e != nil {
				t.Fatal(e)
			}
			b, e := r.Next(format.Want{})
			if e != nil {
				continue // an array
			}
			if good != (b.NumRows() == 1) {
				t.Fatalf("%q: %d rows, the standard library says %v; %v", line, b.NumRows(), err, b.Rejects)
			}
			if want, ok := members["v"]; good && ok && string(want) != "null" {
				if got := record.AppendText(nil, b.Rows.Column(0), 0); string(got) != string(want) {
					t.Errorf("%q: v is %s, the standard library says %s", line, got, want)
				}
			}
		}
		inf := jsonl.NewInference(jsonl.InferOptions{})
		if _, err := inf.Scan(strings.NewReader(in), 0); err != nil {
			return
		}
		s, err := inf.Schema(true)
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate() != nil {
			return
		}
		_, rejects, _ := read(t, jsonl.Options{Schema: s}, in)
		for _, j := range rejects {
			if j.Class == "bad_value" {
				t.Errorf("%q was read as %s, and then %s", in, types(s), j.Error())
			}
		}
	})
}
