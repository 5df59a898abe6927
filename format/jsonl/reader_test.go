package jsonl_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/record"
)

// infer looks at the whole of inputs.
func infer(t testing.TB, o jsonl.InferOptions, inputs ...string) *record.Schema {
	t.Helper()
	inf := jsonl.NewInference(o)
	for _, in := range inputs {
		if _, err := inf.Scan(strings.NewReader(in), 0); err != nil {
			t.Fatal(err)
		}
	}
	s, err := inf.Schema(true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func types(s *record.Schema) string {
	var out []string
	for _, f := range s.Columns.Fields() {
		out = append(out, f.Name+":"+record.FormatType(f.Type))
	}
	return strings.Join(out, " ")
}

// drain reads all rows and rejects, and the columns of each batch.
func drain(r format.Reader, want format.Want) (rows, schemas []string, rejects []record.Reject, err error) {
	for {
		b, err := r.Next(want)
		if errors.Is(err, io.EOF) {
			return rows, schemas, rejects, nil
		}
		if err != nil {
			return rows, schemas, rejects, err
		}
		rows = append(rows, connectortest.Rows(b)...)
		rejects = append(rejects, b.Rejects...)
		schemas = append(schemas, fmt.Sprint(b.Schema.Version, " ", types(b.Schema)))
	}
}

// read reads an input whole and byte by byte, and checks that both agree.
func read(t testing.TB, o jsonl.Options, in string) (rows []string, rejects []record.Reject, err error) {
	t.Helper()
	r, err := jsonl.NewReader(strings.NewReader(in), o)
	if err != nil {
		t.Fatal(err)
	}
	rows, _, rejects, err = drain(r, format.Want{})
	for n, src := range []io.Reader{iotest.OneByteReader(strings.NewReader(in)), iotest.DataErrReader(strings.NewReader(in))} {
		r, e := jsonl.NewReader(src, o)
		if e != nil {
			t.Fatal(e)
		}
		got, _, set, e := drain(r, format.Want{Rows: n + 1})
		if !cmp.Equal(got, rows) || !cmp.Equal(set, rejects) || (e == nil) != (err == nil) {
			t.Errorf("read in pieces: %q, %v, %v; whole: %q, %v, %v", got, set, e, rows, rejects, err)
		}
	}
	return rows, rejects, err
}

// cases C024, C089, C090: types, and that nothing is lost.
func TestTypes(t *testing.T) {
	for in, want := range map[string]string{
		`1|-5|null|9223372036854775807`:    "int64",
		`9223372036854775808|1`:            "numeric",
		`9007199254740993|1.5`:             "numeric",
		`1|2.5|1e5|0.30000000000000004`:    "float64",
		`0.12345678901234567890123`:        "numeric",
		`1e400`:                            "numeric",
		`1e200000`:                         "json",
		`true|false`:                       "bool",
		`"1"|"2"`:                          "text",
		`"007"|7`:                          "json",
		`true|1`:                           "json",
		`"x"|{"a":1}`:                      "json",
		`"2024-01-02"|null`:                "date[d]",
		`"2024-01-02"|"x"`:                 "text",
		`"2024-01-02T03:04:05"`:            "timestamp[us]",
		`"2024-01-02T03:04:05.25Z"`:        "timestamptz[us]",
		`"2024-01-02 03:04:05"`:            "text",
		`"2024-01-02T03:04:05+02:00"`:      "text",
		`null`:                             "text",
		`{"a":1,"b":"x"}|{"a":2,"b":null}`: `struct<"a":int64,"b":text>`,
		`{"a":1}|{"a":2,"b":3}`:            "json",
		`{"a":1,"b":2}|{"b":2,"a":1}`:      "json",
		`{"a":1,"a":2}`:                    "json",
		`{}`:                               "json",
		`[1,2]|[]|[null]`:                  "list<int64>",
		`[]|[]`:                            "json",
		`[1,"x"]`:                          "json",
		`[[1],[2.5]]`:                      "list<list<float64>>",
		`[{"a":[true]}]`:                   `list<struct<"a":list<bool>>>`,
		`"\u0032024-01-02"`:                "text",
		`{"id":9007199254740993,"d":0.12345678901234567890123}`: `struct<"id":int64,"d":numeric>`,
	} {
		var in1 strings.Builder
		values := strings.Split(in, "|")
		for _, v := range values {
			fmt.Fprintf(&in1, "{\"v\":%s}\n", v)
		}
		s := infer(t, jsonl.InferOptions{}, in1.String())
		if got := types(s); got != "v:"+want {
			t.Errorf("%s is read as %s, want %s", in, got, want)
			continue
		}
		rows, rejects, err := read(t, jsonl.Options{Schema: s}, in1.String())
		if err != nil || len(rejects) > 0 || len(rows) != len(values) {
			t.Errorf("%s: rows %q, rejects %v, error %v", in, rows, rejects, err)
		}
		if want == "float64" || want == "numeric" || want == "text" {
			continue // 1e5 is printed as 100000
		}
		for i, v := range values {
			if rows[i] != fmt.Sprintf(`{"v":%s}`, v) {
				t.Errorf("%s came out as %s", v, rows[i])
			}
		}
	}
}

// case C024.
func TestLiterals(t *testing.T) {
	in := `{"id":9007199254740993,"big":18446744073709551615,"d":0.12345678901234567890123,"t":"1.0","j":{"x":1.00,"y":[1e2]}}` + "\n"
	s := infer(t, jsonl.InferOptions{Types: map[string]string{"j": "json"}}, in)
	rows, _, err := read(t, jsonl.Options{Schema: s}, in)
	if err != nil || len(rows) != 1 || rows[0]+"\n" != in {
		t.Errorf("%s came out as %q, %v", in, rows, err)
	}
}

// case C089: null in one file, text in the next; quoted never becomes a number.
func TestInferenceOverInputs(t *testing.T) {
	s := infer(t, jsonl.InferOptions{}, "{\"u\":null}\n", "{\"u\":\"x\",\"w\":\"007\"}\n")
	if got := types(s); got != "u:text w:text" {
		t.Error(got)
	}
}

// case C089: a key that comes late adds a column; what came before keeps its schema; sizes do not matter.
func TestLateKey(t *testing.T) {
	in := "{\"a\":1}\n{\"a\":2,\"n\":null}\n{\"a\":3,\"b\":\"x\",\"b\":5,\"c\":{\"k\":[1]}}\n{\"c\":\"y\",\"b\":18446744073709551616,\"a\":4}\n{\"b\":\"5\"}\n"
	s := infer(t, jsonl.InferOptions{}, "{\"a\":1}\n")
	for _, size := range []int{0, 1, 2} {
		r, err := jsonl.NewReader(strings.NewReader(in), jsonl.Options{Schema: s})
		if err != nil {
			t.Fatal(err)
		}
		rows, schemas, rejects, err := drain(r, format.Want{Rows: size})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{`{"a":1}`, `{"a":2}`, `{"a":3,"b":5,"c":{"k":[1]}}`, `{"a":4,"b":18446744073709551616,"c":"y"}`}
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Errorf("size %d (-want +got):\n%s", size, diff)
		}
		if schemas[0] != "1 a:int64" || schemas[len(schemas)-1] != "2 a:int64 b:numeric c:json" {
			t.Errorf("size %d: schemas %q", size, schemas)
		}
		if len(rejects) != 1 || rejects[0].Column != "b" || rejects[0].Line != 5 || rejects[0].Value != `"5"` {
			t.Errorf("size %d: rejects %v", size, rejects)
		}
	}
	r, err := jsonl.NewReader(strings.NewReader(in), jsonl.Options{Schema: s, Fixed: true})
	if err != nil {
		t.Fatal(err)
	}
	rows, _, _, err := drain(r, format.Want{})
	if err != nil || rows[2] != `{"a":3}` || rows[4] != `{"a":null}` {
		t.Errorf("fixed: %q, %v", rows, err)
	}
}

// case C089: 10,000 whole numbers, then an object: the row is set aside, named by line, column and value.
func TestLateContradiction(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, "{\"v\":%d}\n", i)
	}
	b.WriteString("{\"v\":{\"x\":1}}\n{\"v\":7}\n")
	inf := jsonl.NewInference(jsonl.InferOptions{Dataset: "d"})
	whole, err := inf.Scan(strings.NewReader(b.String()), 1000)
	if whole || err != nil {
		t.Fatal(whole, err)
	}
	s, err := inf.Schema(false)
	if err != nil {
		t.Fatal(err)
	}
	rows, rejects, err := read(t, jsonl.Options{Schema: s, Sampled: true}, b.String())
	if err != nil || len(rows) != 10_001 || len(rejects) != 1 {
		t.Fatalf("%d rows, %v, %v", len(rows), rejects, err)
	}
	want := `d, line 10001 (byte 108895), column "v", value "{\"x\":1}": expected int64, found an object; ` +
		`to keep all values of the column say types=v:json, to look at all rows first say infer=all`
	if got := rejects[0].Error(); got != want || string(rejects[0].Raw) != "{\"v\":{\"x\":1}}\n" {
		t.Errorf("reject %s\nwant   %s", got, want)
	}
}

// case C090: equal keys, halves of surrogate pairs, depth, bad bytes.
func TestBadRows(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	in := strings.Join([]string{
		`{"n":2,"n":123}`, `{"s":"\ud800"}`, `{"s":` + deep(10_000) + `}`, "{\"s\":\"x\xffy\"}", `{"n":1`, `{"n":01}`, `{"n":1}}`, `[1]`, `5`, `{"n":1.}`, `{'n':1}`,
		`{"n":1,}`, `{"n" 1}`, "{\"s\":\"a\tb\"}", `{"s":"\x"}`, `{"s":"\u12g4"}`, `{"n":nul}`, `{"n":+1}`, `{"n":NaN}`, `{"s":"open`, `{"n":-}`, `{"n":1e}`,
		`{"s":` + deep(1000) + `}`, `{"s":"\ud83d\ude00\n\/"}`, `  {  "n" : 7 }  `, ``,
	}, "\n")
	s := infer(t, jsonl.InferOptions{Types: map[string]string{"n": "int64", "s": "json"}}, in)
	rows, rejects, err := read(t, jsonl.Options{Schema: s}, in)
	if err != nil || len(rows) != 4 {
		t.Fatalf("rows %q, %v", rows, err)
	}
	if rows[0] != `{"n":123,"s":null}` || !strings.HasPrefix(rows[2], `{"n":null,"s":"\ud83d`) || rows[3] != `{"n":7,"s":null}` {
		t.Errorf("rows %q", rows)
	}
	wants := []string{
		"half of a surrogate pair", "1,000 levels", "0xff is not valid UTF-8", "want , or }", "want , or }", "nothing behind", "one JSON object", "one JSON object",
		"digit behind the point", "key in quotes", "key in quotes", "want :", "control character", "unknown escape", "four hex digits", "want null", "no JSON value begins with '+'",
		"no JSON value begins with 'N'", "not closed", "want a digit", "exponent",
	}
	if len(rejects) != len(wants) {
		t.Fatalf("%d rejects, want %d: %v", len(rejects), len(wants), rejects)
	}
	for i, w := range wants {
		if r := rejects[i]; !strings.Contains(r.Message, w) || r.Line != int64(i+2) || len(r.Raw) == 0 {
			t.Errorf("line %d: %s, want %q", i+2, r.Error(), w)
		}
	}
	rows, rejects, err = read(t, jsonl.Options{Schema: s, RejectDuplicates: true}, "{\"n\":2,\"n\":123}\n{\"n\":1}\n")
	if err != nil || len(rows) != 1 || len(rejects) != 1 || rejects[0].Column != "n" {
		t.Errorf("rows %q, rejects %v, %v", rows, rejects, err)
	}
	r, err := jsonl.NewReader(strings.NewReader("{\"n\":2,\"n\":123}\n{\"n\":1}\n"), jsonl.Options{Schema: s})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(format.Want{}); err != nil || r.Duplicates() != 1 {
		t.Errorf("%d rows with equal keys, %v", r.Duplicates(), err)
	}
}

// case C088: a line of 40 MB passes, one over the limit is an error with its line, and never the end.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 40<<20)
	in := "{\"s\":\"a\"}\n{\"s\":\"" + long + "\"}\n{\"s\":\"c\"}\n"
	s := infer(t, jsonl.InferOptions{Types: map[string]string{"s": "text"}}, "{\"s\":\"a\"}\n")
	r, err := jsonl.NewReader(strings.NewReader(in), jsonl.Options{Schema: s})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Next(format.Want{})
	if err != nil || b.NumRows() != 3 {
		t.Fatal(err)
	}
	r, err = jsonl.NewReader(strings.NewReader(in), jsonl.Options{Schema: s, MaxLine: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	rows, _, _, err := drain(r, format.Want{})
	if len(rows) != 1 || err == nil || !strings.Contains(err.Error(), "line 2 (byte 10)") || !strings.Contains(connector.HintOf(err), "max_line") {
		t.Errorf("rows %q, error %v", rows, err)
	}
}

func TestArrayFile(t *testing.T) {
	_, _, err := read(t, jsonl.Options{}, "\xef\xbb\xbf[\n{\"a\":1}]")
	if err == nil || !strings.Contains(connector.HintOf(err), "jq -c") {
		t.Errorf("error %v", err)
	}
}

// case C087: an input that breaks off is no end.
func TestBreaksOff(t *testing.T) {
	r, err := jsonl.NewReader(io.MultiReader(strings.NewReader("{\"a\":1}\n{\"a\""), iotest.ErrReader(io.ErrUnexpectedEOF)), jsonl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows, _, _, err := drain(r, format.Want{})
	if len(rows) != 1 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("rows %q, error %v", rows, err)
	}
}

// Declared types take what package record reads as the type, and text takes any value.
func TestDeclared(t *testing.T) {
	o := jsonl.InferOptions{Types: map[string]string{
		"d": "decimal(6,2)", "u": "uuid", "t": "text", "f": "float64", "b": "binary", "w": "timestamptz", "i": "int32", "n": "numeric",
	}}
	in := `{"d":1.5,"u":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","t":5,"f":"NaN","b":"AP8=","w":"2024-01-02 03:04:05+02","i":7,"n":1e3}` + "\n" +
		`{"t":{"a": 1},"w":"infinity","f":0.1234567890123456789}` + "\n" + `{"d":"1.5"}` + "\n" + `{"i":1.5}` + "\n"
	s := infer(t, o, in)
	declared := map[string]bool{}
	for n := range o.Types {
		declared[n] = true
	}
	rows, rejects, err := read(t, jsonl.Options{Schema: s, Declared: declared}, in)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"d":1.50,"u":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","t":"5","f":"NaN","b":"AP8=","w":"2024-01-02T01:04:05Z","i":7,"n":1000}`,
		`{"d":null,"u":null,"t":"{\"a\": 1}","f":0.12345678901234568,"b":null,"w":"infinity","i":null,"n":null}`,
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(rejects) != 2 || rejects[0].Column != "d" || rejects[1].Column != "i" {
		t.Errorf("rejects %v", rejects)
	}
	o = jsonl.InferOptions{Documents: true}
	if got := types(infer(t, o, in)); got != "d:json u:json t:json f:json b:json w:json i:json n:json" {
		t.Error(got)
	}
}

// The sample never counts a row that it saw only a part of.
func TestInferenceOfABeginning(t *testing.T) {
	in := "{\"v\":1}\n{\"v\":12.5}\n"
	for limit := int64(1); limit <= int64(len(in)); limit++ {
		inf := jsonl.NewInference(jsonl.InferOptions{Types: map[string]string{"x": "text"}})
		whole, err := inf.Scan(strings.NewReader(in), limit)
		if err != nil || whole != (limit >= int64(len(in))) {
			t.Errorf("limit %d: whole %v, %v", limit, whole, err)
		}
		s, err := inf.Schema(whole)
		if err != nil {
			t.Fatal(err)
		}
		want := "v:int64"
		switch {
		case limit < 8:
			want = "x:text"
		case whole:
			want = "v:float64"
		}
		if got := types(s); got != want {
			t.Errorf("limit %d: %s, want %s", limit, got, want)
		}
	}
}

// clause S7: from every offset exactly the following rows come.
func TestResume(t *testing.T) {
	in := "\xef\xbb\xbf{\"a\":1}\r\n\n  \n{\"a\":2,\n{\"a\":3}\n{\"a\":4,\"b\":1}\n{\"a\":5}"
	r, err := jsonl.NewReader(strings.NewReader(in), jsonl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	offsets, schemas := []format.Offset{r.Offset()}, []*record.Schema{r.Schema()}
	var all []string
	counts := []int{0}
	for {
		b, err := r.Next(format.Want{Rows: 1})
		if err != nil {
			break
		}
		all = append(all, connectortest.Rows(b)...)
		offsets, schemas, counts = append(offsets, r.Offset()), append(schemas, r.Schema()), append(counts, len(all))
	}
	if len(all) != 4 || len(offsets) != 6 {
		t.Fatalf("rows %q, offsets %v", all, offsets)
	}
	for i, at := range offsets {
		for how, src := range map[string]io.Reader{"seek": strings.NewReader(in), "skip": iotest.HalfReader(strings.NewReader(in))} {
			r, err := jsonl.NewReader(src, jsonl.Options{Schema: schemas[i]})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Resume(at); err != nil {
				t.Fatal(err)
			}
			rows, _, _, err := drain(r, format.Want{Rows: 1})
			if err != nil || !cmp.Equal(append([]string{}, rows...), append([]string{}, all[counts[i]:]...)) {
				t.Errorf("%s to %+v: %q, %v; want %q", how, at, rows, err, all[counts[i]:])
			}
		}
	}
}

// case C025: a zero character is part of the text; what a sink does with it is up to its policy.
func TestZeroCharacter(t *testing.T) {
	in := `{"t":"x\u0000y"}` + "\n"
	r, err := jsonl.NewReader(strings.NewReader(in), jsonl.Options{Schema: infer(t, jsonl.InferOptions{}, in)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Next(format.Want{})
	if err != nil || string(record.AppendText(nil, b.Rows.Column(0), 0)) != "x\x00y" || types(b.Schema) != "t:text" {
		t.Errorf("%v, %v", b, err)
	}
}
