package csv_test

import (
	"bytes"
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
	"github.com/leatdata/leat/format/csv"
	"github.com/leatdata/leat/record"
)

// cases C077, C078, C083, C084.
func TestRows(t *testing.T) {
	for name, c := range map[string]struct {
		o    csv.Options
		in   string
		want []string
	}{
		"byte order mark":             {in: "\xef\xbb\xbfid,name\n1,a\n", want: []string{`{"id":"1","name":"a"}`}},
		"mark before a quoted header": {in: "\xef\xbb\xbf\"id\",name\n1,a\n", want: []string{`{"id":"1","name":"a"}`}},
		"quoted line ends":            {in: "id,v\r\n1,\"a\r\n\r\n\"\r\n2,\"b\n\"\r\n", want: []string{`{"id":"1","v":"a\r\n\r\n"}`, `{"id":"2","v":"b\n"}`}},
		"line end in the header":      {in: "\"x\ny\",z\n1,2", want: []string{`{"x\ny":"1","z":"2"}`}},
		"line ends mixed":             {in: "a,b\n1,2\r\n3,4\r5,6", want: []string{`{"a":"1","b":"2"}`, `{"a":"3","b":"4"}`, `{"a":"5","b":"6"}`}},
		"blank lines":                 {in: "a,b\n\n1,2\r\n\r\n\n3,4\n\n", want: []string{`{"a":"1","b":"2"}`, `{"a":"3","b":"4"}`}},
		"one column, blank is NULL":   {in: "a\n1\n\n\"\"\n", want: []string{`{"a":"1"}`, `{"a":null}`, `{"a":""}`}},
		"empty and NULL":              {in: "a,b,c\n1,,\n2,\"\",\n", want: []string{`{"a":"1","b":null,"c":null}`, `{"a":"2","b":"","c":null}`}},
		"null token":                  {o: csv.Options{Null: []string{"NULL"}}, in: "a,b,c\n3,NULL,\"NULL\"\n4,,x\n", want: []string{`{"a":"3","b":null,"c":"NULL"}`, `{"a":"4","b":"","c":"x"}`}},
		"null tokens":                 {o: csv.Options{Null: []string{"", `\N`}}, in: "a,b,c\n4,\\N,\"\\N\"\n5,,\n", want: []string{`{"a":"4","b":null,"c":"\\N"}`, `{"a":"5","b":null,"c":null}`}},
		"names made unique":           {in: "a,A,,a,col_3\n1,2,3,4,5\n", want: []string{`{"a":"1","A_2":"2","col_3_2":"3","a_3":"4","col_3":"5"}`}},
		"no header":                   {o: csv.Options{NoHeader: true}, in: "1,2\n3,4\n", want: []string{`{"col_1":"1","col_2":"2"}`, `{"col_1":"3","col_2":"4"}`}},
		"no header, names":            {o: csv.Options{NoHeader: true, Names: []string{"x", "y"}}, in: "\xef\xbb\xbf1,2\n", want: []string{`{"x":"1","y":"2"}`}},
		"semicolon":                   {o: csv.Options{Dialect: csv.Dialect{Delimiter: ";"}}, in: "a;b\n1,5;\"x;y\"\n", want: []string{`{"a":"1,5","b":"x;y"}`}},
		"long delimiter":              {o: csv.Options{Dialect: csv.Dialect{Delimiter: "||"}}, in: "a||b\n1|2||\"x||y\"\n3||4|", want: []string{`{"a":"1|2","b":"x||y"}`, `{"a":"3","b":"4|"}`}},
		"delimiter of two bytes":      {o: csv.Options{Dialect: csv.Dialect{Delimiter: "§"}}, in: "a§b\nÂ§é\n", want: []string{`{"a":"Â","b":"é"}`}},
		"other quote":                 {o: csv.Options{Dialect: csv.Dialect{Quote: "'"}}, in: "a,b\n'it''s','\"'\n", want: []string{`{"a":"it's","b":"\""}`}},
		"no quotes":                   {o: csv.Options{Dialect: csv.Dialect{Quote: "none"}}, in: "a,b\n\"x,5\"\n", want: []string{`{"a":"\"x","b":"5\""}`}},
		"escapes":                     {o: csv.Options{Dialect: csv.Dialect{Escape: `\`}}, in: `a,b` + "\n" + `"x\"y","\\ \n ""z"` + "\n", want: []string{`{"a":"x\"y","b":"\\ \\n \"z"}`}},
		"comments":                    {o: csv.Options{Dialect: csv.Dialect{Comment: "#"}}, in: "# one, two\na,b\n#\"\n1,#2\n# end", want: []string{`{"a":"1","b":"#2"}`}},
		"quote inside an open field":  {in: "a,b\n5\" pipe,x\"\"y\n", want: []string{`{"a":"5\" pipe","b":"x\"\"y"}`}},
		"doubled quotes":              {in: "a,b\n\"x\"\"y\"\"\",\"\"\"\"\n", want: []string{`{"a":"x\"y\"","b":"\""}`}},
		"last field empty":            {in: "a,b\n1,", want: []string{`{"a":"1","b":null}`}},
		"only a header":               {in: "a,b\n"},
		"nothing":                     {in: ""},
		"only a mark":                 {in: "\xef\xbb\xbf"},
		"NUL":                         {in: "a,b\nx\x00y,\n", want: []string{`{"a":"x\u0000y","b":null}`}},
	} {
		t.Run(name, func(t *testing.T) {
			rows, rejects, err := read(t, c.o, c.in)
			if err != nil || len(rejects) > 0 {
				t.Fatalf("error %v, rejects %v", err, rejects)
			}
			if diff := cmp.Diff(c.want, rows); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// case C079: the default names the line, the byte and both counts; what stands before it is delivered.
func TestRaggedFails(t *testing.T) {
	in := ragged()
	rows, _, err := read(t, csv.Options{}, in)
	at := strings.Index(in, "49,short")
	want := fmt.Sprintf("line 50 (byte %d): 3 fields expected, 2 found", at)
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if connector.HintOf(err) == "" || len(rows) != 48 {
		t.Errorf("hint %q, %d rows", connector.HintOf(err), len(rows))
	}
}

// ragged has a header, 100 rows, a short one on line 50 and a long one on line 60.
func ragged() string {
	var b strings.Builder
	b.WriteString("a,b,c\n")
	for i := 1; i <= 100; i++ {
		switch i + 1 {
		case 50:
			b.WriteString("49,short\n")
		case 60:
			b.WriteString("59,x,y,long\n")
		default:
			fmt.Fprintf(&b, "%d,x,y\n", i)
		}
	}
	return b.String()
}

// case C079: exactly the bad rows are set aside, with their bytes.
func TestRaggedSetAside(t *testing.T) {
	rows, rejects, err := read(t, csv.Options{Dataset: "d", SetAside: true}, ragged())
	if err != nil || len(rows) != 98 || len(rejects) != 2 {
		t.Fatalf("%d rows, %v, error %v", len(rows), rejects, err)
	}
	if r := rejects[0]; r.Line != 50 || string(r.Raw) != "49,short\n" || r.Message != "3 fields expected, 2 found" || r.Dataset != "d" {
		t.Errorf("first reject %+v", r)
	}
	if r := rejects[1]; r.Line != 60 || string(r.Raw) != "59,x,y,long\n" {
		t.Errorf("second reject %+v", r)
	}
}

// Text behind a closing quote is no value: the row is set aside, and the next one is read.
func TestTextBehindQuote(t *testing.T) {
	rows, rejects, err := read(t, csv.Options{}, "a,b\n\"x\"y,1\n2,\"z\" \n3,4\n")
	if err != nil || len(rows) != 1 || len(rejects) != 2 || rejects[0].Line != 2 || rejects[0].Offset != 7 || rejects[1].Line != 3 {
		t.Errorf("rows %q, rejects %+v, error %v", rows, rejects, err)
	}
}

func TestUnclosedQuote(t *testing.T) {
	rows, _, err := read(t, csv.Options{}, "a,b\n1,2\n3,\"x\n4,5\n")
	var e *connector.Error
	if len(rows) != 1 || !errors.As(err, &e) || e.Code != "csv.unclosed_quote" || !strings.HasPrefix(err.Error(), "line 3 (byte 10):") {
		t.Errorf("rows %q, error %v", rows, err)
	}
}

// case C080: a bad byte is named by line and byte, the row is set aside, the others are read.
func TestBadByte(t *testing.T) {
	var b strings.Builder
	b.WriteString("id,name\n")
	at := 0
	for i := 1; i <= 50_000; i++ {
		if i == 40_000 {
			at = b.Len() + len("40000,M")
			b.WriteString("40000,M\xfcller\n")
			continue
		}
		fmt.Fprintf(&b, "%d,Müller€\n", i)
	}
	rows, rejects, err := read(t, csv.Options{}, b.String())
	if err != nil || len(rows) != 49_999 || len(rejects) != 1 {
		t.Fatalf("%d rows, %d rejects, error %v", len(rows), len(rejects), err)
	}
	r := rejects[0]
	if r.Line != 40_001 || r.Offset != int64(at) || r.Column != "name" || string(r.Raw) != "40000,M\xfcller\n" || !strings.Contains(r.Message, "encoding=") {
		t.Errorf("reject %+v, want byte %d", r, at)
	}
	for _, row := range rows {
		if strings.Contains(row, "\ufffd") {
			t.Fatalf("a replacement character: %s", row)
		}
	}
	if _, _, err := read(t, csv.Options{}, "a,\xff\n1,2\n"); err == nil || !strings.Contains(err.Error(), "line 1 (byte 2)") {
		t.Errorf("bad byte in the header: %v", err)
	}
}

// case C078: 5 MB, quoted line ends everywhere, read in pieces of 64 kB: the same rows.
func TestPieces(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("id,text,n\r\n")
	for i := 0; b.Len() < 5<<20; i++ {
		fmt.Fprintf(&b, "%d,\"line %d\r\n\"\"quoted\"\",\n\",%d\r\n", i, i, i*7)
	}
	o := csv.Options{}
	want := digest(t, o, bytes.NewReader(b.Bytes()))
	if got := digest(t, o, pieces{bytes.NewReader(b.Bytes()), 64 << 10}); got != want {
		t.Errorf("pieces of 64 kB give %s, the whole %s", got, want)
	}
	if got := digest(t, o, pieces{bytes.NewReader(b.Bytes()), 4093}); got != want {
		t.Errorf("pieces of 4093 bytes give %s, the whole %s", got, want)
	}
}

type pieces struct {
	r io.Reader
	n int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.n)]) }

func digest(t *testing.T, o csv.Options, src io.Reader) string {
	t.Helper()
	r, err := csv.NewReader(src, o)
	if err != nil {
		t.Fatal(err)
	}
	n, sum := 0, uint64(0)
	for {
		b, err := r.Next(format.Want{Rows: 1000})
		if errors.Is(err, io.EOF) {
			return fmt.Sprintf("%d rows, %x", n, sum)
		}
		if err != nil {
			t.Fatal(err)
		}
		n += b.NumRows()
		for _, row := range connectortest.Rows(b) {
			for _, c := range []byte(row) {
				sum = sum*31 + uint64(c)
			}
		}
	}
}

// A huge field passes; a row beyond the limit is an error that names its line.
func TestHugeField(t *testing.T) {
	huge := strings.Repeat("x", 40<<20)
	r, err := csv.NewReader(pieces{strings.NewReader("a,b\n1,\"" + huge + "\"\n2,y\n"), 64 << 10}, csv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Next(format.Want{})
	if err != nil || b.NumRows() != 2 {
		t.Fatalf("%v", err)
	}
	r, err = csv.NewReader(strings.NewReader("a,b\n1,2\n2,\""+huge+"\"\n"), csv.Options{Dialect: csv.Dialect{MaxRow: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	rows, _, err := drain(r, format.Want{})
	if len(rows) != 1 || err == nil || !strings.Contains(err.Error(), "line 3 (byte 8)") || !strings.Contains(connector.HintOf(err), "max_line") {
		t.Errorf("rows %q, error %v", rows, err)
	}
}

// case C087: an input that breaks off gives its complete rows and then the error, never a short success.
func TestBreaksOff(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("a,b\n1,2\n3,"), iotest.ErrReader(io.ErrUnexpectedEOF))
	r, err := csv.NewReader(broken, csv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows, _, err := drain(r, format.Want{})
	if len(rows) != 1 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("rows %q, error %v", rows, err)
	}
}

// clause S7: from every offset, by a seek and by skipping, exactly the following rows come.
func TestResume(t *testing.T) {
	in := "\xef\xbb\xbfid,v\r\n1,a\r\n\r\n2,\"b\n\nc\"\n3,x,y\n4,d\n5,\"\"\n\n6,e"
	o := csv.Options{SetAside: true}
	type at struct {
		offset format.Offset
		rows   int
		set    int
	}
	var marks []at
	r, err := csv.NewReader(strings.NewReader(in), o)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	var rejects []record.Reject
	marks = append(marks, at{r.Offset(), 0, 0})
	for {
		b, err := r.Next(format.Want{Rows: 1})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, connectortest.Rows(b)...)
		rejects = append(rejects, b.Rejects...)
		marks = append(marks, at{r.Offset(), len(all), len(rejects)})
	}
	if len(all) != 5 || len(rejects) != 1 || rejects[0].Line != 7 {
		t.Fatalf("rows %q, rejects %+v", all, rejects)
	}
	for _, m := range marks {
		for how, src := range map[string]io.Reader{"seek": strings.NewReader(in), "skip": iotest.HalfReader(strings.NewReader(in))} {
			r, err := csv.NewReader(src, o)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Resume(m.offset); err != nil {
				t.Fatalf("%s to %+v: %v", how, m.offset, err)
			}
			if diff := cmp.Diff(m.offset, r.Offset()); diff != "" && how == "seek" {
				t.Errorf("%s: offset (-want +got):\n%s", how, diff)
			}
			rows, set, err := drain(r, format.Want{Rows: 2})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append([]string{}, all[m.rows:]...), append([]string{}, rows...)); diff != "" {
				t.Errorf("%s to %+v (-want +got):\n%s", how, m.offset, diff)
			}
			if diff := cmp.Diff(append([]record.Reject{}, rejects[m.set:]...), append([]record.Reject{}, set...)); diff != "" {
				t.Errorf("%s to %+v, rejects (-want +got):\n%s", how, m.offset, diff)
			}
		}
	}
}

// Columns of a file are matched by name: their order may differ, their names may not.
func TestColumnsOfOtherFiles(t *testing.T) {
	schema := infer(t, csv.InferOptions{}, "a,b,c\n1,x,2024-01-02\n")
	o := csv.Options{Schema: schema, Expected: schema.Names()}
	rows, _, err := read(t, o, "c,a,b\n2024-03-04,7,y\n")
	if err != nil || len(rows) != 1 || rows[0] != `{"a":7,"b":"y","c":"2024-03-04"}` {
		t.Errorf("rows %q, error %v", rows, err)
	}
	_, _, err = read(t, o, "a,b,d\n1,2,3\n")
	if err == nil || !strings.Contains(err.Error(), `["c"] missing`) || !strings.Contains(err.Error(), `["d"] unexpected`) {
		t.Errorf("error %v", err)
	}
	o.Union = true
	rows, _, err = read(t, o, "b,a\nx,1\n")
	if err != nil || len(rows) != 1 || rows[0] != `{"a":1,"b":"x","c":null}` {
		t.Errorf("rows %q, error %v", rows, err)
	}
}
