package csv_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/csv"
	"github.com/leatdata/leat/record"
)

// cases C081, C082: a type only where every value keeps its meaning.
func TestInference(t *testing.T) {
	column := func(values ...string) string { return "x,n\n" + strings.Join(values, ",0\n") + ",0\n" }
	for _, c := range []struct{ in, want string }{
		{column("1", "-5", "9223372036854775807"), "int64"},
		{column("1", "", "3"), "int64"},
		{column("\"1\"", "\"2\""), "int64"},
		{column("00501"), "text"},
		{column("1", "02"), "text"},
		{column("1e5"), "text"},
		{column("NaN"), "text"},
		{column("+49"), "text"},
		{column("12345678901234567890"), "text"},
		{column("1_000"), "text"},
		{column("0x1F"), "text"},
		{column("2024-1-2"), "text"},
		{column("1.5", "2"), "float64"},
		{column("1.50", "0.1"), "float64"},
		{column("1.5", "1234567890123456"), "float64"},
		{column("1.5", "9007199254740993"), "text"},
		{column("0.30000000000000004"), "float64"},
		{column("0.1234567890123456789"), "text"},
		{column("1790", "1e6", "0.0000001"), "text"},
		{column("1790", "1000000", "0.0000001"), "float64"},
		{column("true", "false", ""), "bool"},
		{column("true", "yes"), "text"},
		{column("TRUE"), "text"},
		{column("t"), "text"},
		{column("2024-02-29", "1999-12-31"), "date[d]"},
		{column("2024-02-30"), "text"},
		{column("2024-01-02", "2024-01-02T00:00:00"), "text"},
		{column("2024-01-02T03:04:05", "2024-01-02 03:04:05.25"), "timestamp[us]"},
		{column("2024-01-02T03:04:05Z", "2024-01-02 03:04:05+05:30"), "timestamptz[us]"},
		{column("2024-01-02T03:04:05Z", "2024-01-02 03:04:05"), "text"},
		{column("2024-01-02T03:04:05.1234567"), "text"},
		{column("", ""), "text"},
		{column("1", "\"\""), "text"},
		{column("1", "N/A"), "text"},
	} {
		if got := types(infer(t, csv.InferOptions{}, c.in)); got != "x:"+c.want+" n:int64" {
			t.Errorf("%q is read as %s, want %s", c.in, got, c.want)
		}
	}
}

// Types hold for all inputs together, and declared ones are taken as they are.
func TestInferenceOverInputs(t *testing.T) {
	o := csv.InferOptions{Types: map[string]string{"p": "decimal(12,2)", "z": "text"}}
	got := types(infer(t, o, "id,v,p,z\n1,1,1.5,1\n", "z,p,v,id\n1,2.25,x,2\n"))
	if want := "id:int64 v:text p:decimal(12,2) z:text"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	o.AllText = true
	if got, want := types(infer(t, o, "id,p\n1,2\n")), "id:text p:decimal(12,2)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	o = csv.InferOptions{Options: csv.Options{Union: true}}
	if got, want := types(infer(t, o, "a,b\n1,x\n", "b,c\n2,3\n")), "a:int64 b:text c:int64"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The sample never counts a row that it saw only a part of.
func TestInferenceOfABeginning(t *testing.T) {
	in := "id,v\n1,12345\n2,6.25\n"
	for limit := int64(6); limit <= int64(len(in)); limit++ {
		inf, err := csv.NewInference(csv.InferOptions{})
		if err != nil {
			t.Fatal(err)
		}
		whole, err := inf.Scan(strings.NewReader(in), limit)
		if err != nil || whole != (limit >= int64(len(in))) {
			t.Errorf("limit %d: whole %v, %v", limit, whole, err)
		}
		s, err := inf.Schema()
		if err != nil {
			t.Fatal(err)
		}
		want := "id:int64 v:int64"
		switch {
		case limit < int64(len("id,v\n1,12345\n")):
			want = "id:text v:text"
		case whole:
			want = "id:int64 v:float64"
		}
		if got := types(s); got != want {
			t.Errorf("limit %d: %s, want %s", limit, got, want)
		}
	}
	inf, err := csv.NewInference(csv.InferOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inf.Scan(strings.NewReader(`"never closed`+strings.Repeat("x", 1000)), 100); err == nil || !strings.Contains(err.Error(), "100 bytes") {
		t.Errorf("a header that does not end: %v", err)
	}
}

// cases C082, C105: a value that contradicts the type is set aside with line, column, value, type and what to type; nothing changes.
func TestLateContradiction(t *testing.T) {
	var b strings.Builder
	b.WriteString("id,amount\n")
	for i := 1; i <= 50_000; i++ {
		fmt.Fprintf(&b, "%d,%d\n", i, i*2)
	}
	at := b.Len() + len("50001,")
	b.WriteString("50001,N/A\n50002,7\n")
	inf, err := csv.NewInference(csv.InferOptions{Options: csv.Options{Dataset: "d"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inf.Scan(strings.NewReader(b.String()), 1000); err != nil {
		t.Fatal(err)
	}
	s, err := inf.Schema()
	if err != nil {
		t.Fatal(err)
	}
	rows, rejects, err := read(t, csv.Options{Schema: s, Sampled: true}, b.String())
	if err != nil || len(rows) != 50_001 || len(rejects) != 1 || rows[50_000] != `{"id":50002,"amount":7}` {
		t.Fatalf("%d rows, %d rejects, %v", len(rows), len(rejects), err)
	}
	want := record.Reject{
		Dataset: "d", Line: 50_002, Offset: int64(at), Column: "amount", Value: "N/A", Class: "bad_value", Raw: []byte("50001,N/A\n"),
		Message: "expected int64, as in all rows that were looked at before; to read the column as text say types=amount:text, to look at all rows first say infer=all",
	}
	if got := rejects[0]; got.Error() != want.Error() || string(got.Raw) != string(want.Raw) || got.Class != want.Class {
		t.Errorf("reject %+v\nwant   %+v", got, want)
	}
}

// Declared types take what package record reads as the type.
func TestDeclaredTypes(t *testing.T) {
	o := csv.InferOptions{Types: map[string]string{
		"i": "int64", "d": "decimal(6,2)", "u": "uuid", "n": "numeric", "j": "json", "b": "binary", "w": "date", "s": "int16", "f": "float64", "k": "bool",
	}}
	in := "i,d,u,n,j,b,w,s,f,k\n007,1.5,6BA7B810-9dad-11d1-80b4-00c04fd430c8,1e3,\"{\"\"a\"\": 1}\",\\x00ff,infinity,-3,1e300,t\n" +
		",,,,,,,,,\n1.5,1,,,,,,,,\n8,1.234,,,,,,,,\n"
	s := infer(t, o, in)
	declared := map[string]bool{}
	for n := range o.Types {
		declared[n] = true
	}
	rows, rejects, err := read(t, csv.Options{Schema: s, Declared: declared}, in)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"i":7,"d":1.50,"u":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","n":1000,"j":{"a": 1},"b":"AP8=","w":"infinity","s":-3,"f":1e+300,"k":true}`
	if len(rows) != 2 || rows[0] != want {
		t.Errorf("rows %q\nwant %s", rows, want)
	}
	if len(rejects) != 2 || rejects[0].Column != "i" || rejects[1].Column != "d" || !strings.Contains(rejects[1].Message, "decimal(6,2)") {
		t.Errorf("rejects %+v", rejects)
	}
}

func TestDetect(t *testing.T) {
	for in, want := range map[string]string{
		"a,b\n1,2\n":                 ",",
		"a;b\n1,5;2\n3;4\n":          ";",
		"a\tb\n1\t2\n":               "\t",
		"a|b\n1|2\n":                 "|",
		"a;b,c\n1;2,3\n":             "",
		"a\n1\n":                     "",
		"a,b\n1\n":                   "",
		"\"a,b\";c\n\"1,2\";3\n":     ";",
		"\xef\xbb\xbfa;b\r\n1;2\r\n": ";",
		"":                           "",
	} {
		got, ok := csv.Detect([]byte(in), true, csv.Dialect{})
		if got != want || ok != (want != "") {
			t.Errorf("Detect(%q) = %q, %v, want %q", in, got, ok, want)
		}
	}
	if got, _ := csv.Detect([]byte("a;b\n1;2\n3"), false, csv.Dialect{}); got != ";" {
		t.Errorf("a beginning that ends in a row: %q", got)
	}
}

func TestRefusedDialects(t *testing.T) {
	for _, d := range []csv.Dialect{{Delimiter: "\n"}, {Delimiter: "\""}, {Quote: "ab"}, {Quote: "é"}, {Escape: "xy"}, {Comment: "\r"}} {
		if _, err := csv.NewReader(strings.NewReader("a\n"), csv.Options{Dialect: d}); err == nil {
			t.Errorf("%+v was taken", d)
		}
	}
}

// clause S6: the wanted size is kept.
func TestWantedSize(t *testing.T) {
	r, err := csv.NewReader(strings.NewReader("a,b\n1,2\n3,4\n5,6\n7,8\n"), csv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Next(format.Want{Rows: 3})
	if err != nil || b.NumRows() != 3 || b.Size != 12 {
		t.Errorf("%v, %+v", err, b)
	}
	b, err = r.Next(format.Want{Rows: 3, Bytes: 1})
	if err != nil || b.NumRows() != 1 {
		t.Errorf("%v, %+v", err, b)
	}
	_ = connectortest.Rows(b)
}
