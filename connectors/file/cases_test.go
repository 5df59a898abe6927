package file_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/text/encoding/simplifiedchinese"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/file"
	"github.com/leatdata/leat/record"
)

// member is one member of a gzip file.
func member(t testing.TB, text string) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// frame is one frame of a zstd file.
func frame(t testing.TB, text string) string {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}

// all reads a path with options, and fails the test on an error.
func all(t testing.TB, c *file.SourceConfig) []string {
	t.Helper()
	out, rejects, err := read(t, c)
	if err != nil || len(rejects) > 0 {
		t.Fatal(err, rejects)
	}
	return out
}

// code is the code of an error, and its hint must be there.
func code(t testing.TB, err error) string {
	t.Helper()
	var e *connector.Error
	if !errors.As(err, &e) || connector.HintOf(err) == "" || connector.ClassOf(err) == connector.ClassUnknown || strings.Contains(err.Error(), "\n") {
		t.Errorf("no clear error: %v, hint %q", err, connector.HintOf(err))
		return ""
	}
	return e.Code
}

// case C077: in each file of a pattern, in gzip, and in UTF-16.
func TestByteOrderMarks(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "1.csv", "\xef\xbb\xbf\"id\",name\n1,a\n")
	put(t, dir, "2.csv", "\xef\xbb\xbfid,name\n2,b\n")
	put(t, dir, "3.csv.gz", member(t, "\xef\xbb\xbfid,name\n3,c\n"))
	put(t, dir, "4.csv", "\xff\xfei\x00d\x00,\x00n\x00a\x00m\x00e\x00\n\x004\x00,\x00\xac\x20\n\x00")
	put(t, dir, "5.csv", "\xfe\xff\x00i\x00d\x00,\x00n\x00a\x00m\x00e\x00\n\x005\x00,\xff\xfd\x00\n")
	want := []string{`{"id":1,"name":"a"}`, `{"id":2,"name":"b"}`, `{"id":3,"name":"c"}`, `{"id":4,"name":"€"}`, `{"id":5,"name":"` + "\ufffd" + `"}`}
	if diff := cmp.Diff(want, all(t, file.NewSource(dir+"/*.csv*"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// case C080: encodings; what is not valid in them is named, never replaced.
func TestEncodings(t *testing.T) {
	dir := t.TempDir()
	chinese, err := simplifiedchinese.GBK.NewEncoder().String("id,name\n1,\u4f60\u597d\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ encoding, content, want string }{
		{"windows-1252", "id;name\n1;M\xfcller\x80\n", `{"id":1,"name":"Müller€"}`},
		{"latin1", "id,name\n1,\xe9\n", `{"id":1,"name":"é"}`},
		{"gbk", chinese, `{"id":1,"name":"你好"}`},
		{"utf-16le", "i\x00d\x00\n\x001\x00", `{"id":1}`},
		{"utf-8", "id,name\n1,é\n", `{"id":1,"name":"é"}`},
	} {
		s := file.NewSource(put(t, dir, "x.csv", c.content))
		s.Encoding = c.encoding
		if got := all(t, s); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %q, want %s", c.encoding, got, c.want)
		}
	}
	long := "id,name\n" + strings.Repeat("1,a\n", 40_000)
	s := file.NewSource(put(t, dir, "bad.csv", long+"2,\xff\n3,b\n"))
	s.Encoding = "gbk"
	s.Types = map[string]string{"id": "int64", "name": "text"}
	s.Infer = "none"
	_, _, err = read(t, s)
	want := fmt.Sprintf("bad.csv: line 40002: byte %d is not valid gbk", len(long)+2)
	if err == nil || !strings.HasSuffix(err.Error(), want) || code(t, err) != "file.encoding" {
		t.Errorf("%v; want %s", err, want)
	}
	s.Encoding = "klingon"
	if _, _, err := read(t, s); code(t, err) != "file.config" {
		t.Error(err)
	}
	plain := file.NewSource(put(t, dir, "plain.csv", "id,name\n1,ok\n2,M\xfcller\n"))
	_, rejects, err := read(t, plain)
	if err != nil || len(rejects) != 1 || rejects[0].Line != 3 || rejects[0].Offset != 16 {
		t.Errorf("%v, %v", rejects, err)
	}
}

// case C087: all members are read; a file that breaks off, or is damaged, is an error.
func TestCompressed(t *testing.T) {
	dir := t.TempDir()
	text := "id,name\n" + strings.Repeat("1,some text that is long enough\n", 1000)
	for name, pack := range map[string]func(testing.TB, string) string{"x.csv.gz": member, "x.csv.zst": frame} {
		two := pack(t, text) + pack(t, "2,"+strings.Repeat("more", 20)+"\n")
		if got := all(t, file.NewSource(put(t, dir, name, two))); len(got) != 1001 {
			t.Errorf("%s: %d rows of two members", name, len(got))
		}
		for _, cut := range []int{1, 8, 20, len(two) / 2, len(two) - 6} {
			_, _, err := read(t, file.NewSource(put(t, dir, name, two[:len(two)-cut])))
			if c := code(t, err); c != "file.truncated" && c != "file.damaged" {
				t.Errorf("%s without its last %d bytes: %v", name, cut, err)
			}
		}
		if _, _, err := read(t, file.NewSource(put(t, dir, name, ""))); code(t, err) != "file.truncated" {
			t.Errorf("%s without a byte: %v", name, err)
		}
		broken := []byte(two)
		broken[len(broken)/3] ^= 0x55
		if _, _, err := read(t, file.NewSource(put(t, dir, name, string(broken)))); err == nil {
			t.Errorf("%s with a flipped byte was read", name)
		}
	}
	// what is compressed is seen from the content, not only from the name
	if got := all(t, file.NewSource(put(t, dir, "y.csv", member(t, "id\n1\n")))); len(got) != 1 {
		t.Error(got)
	}
	if got := all(t, file.NewSource(put(t, dir, "y.csv.gz", "id\n1\n"))); len(got) != 1 {
		t.Error(got)
	}
}

// cases C079, C105: ragged=fail stops at the row, ragged=reject sets it aside; many files are told apart.
func TestRagged(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.csv", "x,y\n1,2\n")
	put(t, dir, "b.csv", "x,y\n3,4\n5\n6,7\n")
	c := file.NewSource(dir + "/*.csv")
	c.Ragged = "fail"
	got, _, err := read(t, c)
	if len(got) != 2 || err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "b.csv")+": line 3 (byte 8): 2 fields expected, 1 found") || code(t, err) != "csv.ragged" {
		t.Errorf("%q, %v", got, err)
	}
	c.Ragged = "reject"
	got, rejects, err := read(t, c)
	if err != nil || len(got) != 3 || len(rejects) != 1 || rejects[0].Line != 3 || !strings.HasPrefix(rejects[0].Message, filepath.Join(dir, "b.csv")) {
		t.Errorf("%q, %v, %v", got, rejects, err)
	}
}

// case C082: what the sample says and a later value contradicts; infer=all, infer=none and declared types.
func TestInferenceOptions(t *testing.T) {
	var b strings.Builder
	b.WriteString("id,v,pad\n")
	for i := range 50_000 {
		fmt.Fprintf(&b, "%d,%d,%s\n", i, i, strings.Repeat("x", 400))
	}
	at := b.Len()
	b.WriteString("50000,N/A,x\n")
	path := put(t, t.TempDir(), "big.csv", b.String())
	c := file.NewSource(path)
	got, rejects, err := read(t, c)
	if err != nil || len(got) != 50_000 || len(rejects) != 1 {
		t.Fatalf("%d rows, %v, %v", len(got), rejects, err)
	}
	if r := rejects[0]; r.Line != 50_002 || r.Offset != int64(at+6) || r.Column != "v" || r.Value != "N/A" || !strings.Contains(r.Message, "infer=all") {
		t.Errorf("%+v", r)
	}
	for _, set := range []func(){
		func() { c.Infer = "all" }, func() { c.Infer = "none" }, func() { c.Infer, c.Types = "auto", map[string]string{"v": "text"} },
	} {
		c = file.NewSource(path)
		set()
		got, rejects, err := read(t, c)
		if err != nil || len(got) != 50_001 || len(rejects) > 0 || !strings.Contains(got[50_000], `"v":"N/A"`) {
			t.Errorf("%+v: %d rows, %v, %v", c, len(got), rejects, err)
		}
	}
	c.Types = map[string]string{"vv": "text"}
	if _, _, err := read(t, c); code(t, err) != "file.config" || !strings.Contains(err.Error(), `did you mean "v"`) {
		t.Error(err)
	}
}

// Types hold over all files of a pattern.
func TestTypesOverFiles(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "1.csv", "id,v\n1,1\n")
	put(t, dir, "2.csv", "id,v\n2,x\n")
	if got := all(t, file.NewSource(dir+"/*.csv")); got[0] != `{"id":1,"v":"1"}` {
		t.Error(got)
	}
	put(t, dir, "3.csv", "id,w\n2,x\n")
	if _, _, err := read(t, file.NewSource(dir+"/*.csv")); code(t, err) != "csv.columns" || !strings.Contains(err.Error(), "3.csv") {
		t.Error(err)
	}
	c := file.NewSource(dir + "/*.csv")
	c.Union, c.Columns, c.Key = true, []string{"w", "id"}, []string{"id"}
	if got := all(t, c); !slices.Equal(got, []string{`{"w":null,"id":1}`, `{"w":null,"id":2}`, `{"w":"x","id":2}`}) {
		t.Error(got)
	}
	c.Columns = []string{"ix"}
	if _, _, err := read(t, c); code(t, err) != "file.config" {
		t.Error(err)
	}
}

// case C089: a key behind the sample adds a column, and a resume from any position goes on with it.
func TestLateKey(t *testing.T) {
	in := `{"a":1}` + "\n" + `{"a":2,"pad":"` + strings.Repeat("x", 17<<20) + `"}` + "\n" + `{"a":3,"b":"x"}` + "\n" + `{"a":4}` + "\n" + `{"a":5,"c":[1],"b":"y"}` + "\n"
	path := put(t, t.TempDir(), "late.jsonl", in)
	cfg := file.NewSource(path)
	cfg.Columns = nil
	cfg.Types = map[string]string{"pad": "text"}
	type at struct {
		p    record.Position
		rows int
	}
	from := func(p record.Position) (rows []string, marks []at, versions []uint64) {
		src, err := cfg.Open(connectortest.Env(t))
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		defer src.Close(ctx) //nolint:errcheck // only read
		start := connector.SourceStart{}
		if !p.Zero() {
			start.From = connector.From{Origin: connector.Resume, Attempt: 1, Position: p}
		}
		if err := src.Start(ctx, start); err != nil {
			t.Fatal(err)
		}
		for {
			b, err := src.Read(ctx, connector.Limit{Rows: 1})
			if errors.Is(err, io.EOF) {
				return rows, marks, versions
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range connectortest.Rows(b) {
				rows = append(rows, strings.ReplaceAll(r, strings.Repeat("x", 17<<20), "…"))
			}
			marks, versions = append(marks, at{b.Position, len(rows)}), append(versions, b.Schema.Version)
		}
	}
	all, marks, versions := from(record.Position{})
	want := []string{
		`{"a":1,"pad":null}`, `{"a":2,"pad":"…"}`, `{"a":3,"pad":null,"b":"x"}`, `{"a":4,"pad":null,"b":null}`, `{"a":5,"pad":null,"b":"y","c":[1]}`,
	}
	if diff := cmp.Diff(want, all); diff != "" || !slices.Equal(versions, []uint64{1, 1, 2, 2, 3}) {
		t.Fatalf("versions %v (-want +got):\n%s", versions, diff)
	}
	for i, m := range marks[:len(marks)-1] {
		rows, _, after := from(m.p)
		if !slices.Equal(rows, all[m.rows:]) || !slices.Equal(after, versions[i+1:]) {
			t.Errorf("from %s: %q, versions %v", m.p, rows, after)
		}
	}
}

// clause S4: a file that changed or is gone refuses the position, and is named.
func TestChangedFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := put(t, dir, "a.csv", "id\n1\n2\n"), put(t, dir, "b.csv", "id\n3\n")
	cfg := file.NewSource(dir + "/*.csv")
	ctx := context.Background()
	src, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Start(ctx, connector.SourceStart{}); err != nil {
		t.Fatal(err)
	}
	first, err := src.Read(ctx, connector.Limit{Rows: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Close(ctx); err != nil {
		t.Fatal(err)
	}
	resume := func() error {
		src, err := cfg.Open(connectortest.Env(t))
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close(ctx) //nolint:errcheck // only started
		return src.Start(ctx, connector.SourceStart{From: connector.From{Origin: connector.Resume, Attempt: 1, Position: first.Position}})
	}
	put(t, dir, "c.csv", "id\n9\n") // a new file is of the next run
	if err := resume(); err != nil {
		t.Errorf("a new file: %v", err)
	}
	put(t, dir, "b.csv", "id\n3\n4\n")
	if err := resume(); code(t, err) != "file.changed" || connector.ClassOf(err) != connector.ClassPosition || !strings.Contains(err.Error(), b) {
		t.Errorf("a changed file: %v", err)
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	if err := resume(); code(t, err) != "file.gone" || !strings.Contains(err.Error(), a) {
		t.Errorf("a missing file: %v", err)
	}
}

// A file that is written to while it is read gives no mixture of both states.
func TestWrittenWhileRead(t *testing.T) {
	path := put(t, t.TempDir(), "a.csv", "id,v\n1,x\n2,y\n")
	ctx := context.Background()
	open := func() connector.Source {
		src, err := file.NewSource(path).Open(connectortest.Env(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { src.Close(ctx) }) //nolint:errcheck // only read
		if err := src.Start(ctx, connector.SourceStart{}); err != nil {
			t.Fatal(err)
		}
		return src
	}
	src := open()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("3,z\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := src.Read(ctx, connector.Limit{Rows: 10})
	if err != nil || b.NumRows() != 2 {
		t.Fatalf("what was added belongs to the next run: %v", err)
	}
	if _, err := src.Read(ctx, connector.Limit{Rows: 10}); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	src = open()
	put(t, filepath.Dir(path), "a.csv", "id,v\n1,x\n") // shorter
	for err = nil; err == nil; {
		_, err = src.Read(ctx, connector.Limit{Rows: 10})
	}
	if code(t, err) != "file.changed" {
		t.Error(err)
	}
}

// What is found: files, patterns, folders, and the names of datasets.
func TestDiscover(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "in")
	for _, n := range []string{"a.csv", "sales-1.csv", "sales-2.csv", ".hidden.csv", "_SUCCESS.csv", "x/b.csv", "x/y/c.csv", "x/y/d.jsonl", "x.v2.csv", "q?.txt"} {
		put(t, dir, n, "id\n1\n")
	}
	for _, c := range []struct {
		path, dataset string
		files         int
		format        string
	}{
		{"a.csv", "a", 1, ""},
		{"sales-*.csv", "sales", 2, ""},
		{"*.csv", "in", 5, ""},
		{"**/*.csv", "in", 7, ""},
		{"x/**/c.csv", "c", 1, ""},
		{"x/*/c.csv", "c", 1, ""},
		{"", "in", 4, ""},
		{"x/", "x", 1, ""},
		{"x.v2.csv", `"x.v2"`, 1, ""},
		{"[as]*.csv", "in", 3, ""},
		{"x/y", "y", 1, "csv"},
		{"q?.txt", `q?`, 1, "csv"},
	} {
		cfg := file.NewSource(dir + "/" + c.path)
		cfg.Format = c.format
		src, err := cfg.Open(connectortest.Env(t))
		if err != nil {
			t.Fatal(err)
		}
		d, ok := connector.As[connector.Discoverer](src)
		if !ok {
			t.Fatal("no Discoverer")
		}
		found, err := d.Discover(context.Background())
		if err != nil || len(found) != 1 || found[0].Bytes != int64(5*c.files) {
			t.Errorf("%q: %+v, %v", c.path, found, err)
			continue
		}
		if c.path != "q?.txt" && found[0].Name != c.dataset {
			t.Errorf("%q is dataset %s, want %s", c.path, found[0].Name, c.dataset)
		}
	}
	for path, want := range map[string]string{
		"nothing-*.csv": "file.missing", "none.csv": "file.missing", "x/y/": "file.formats", "[": "file.io", "q?.txt": "file.config",
	} {
		if _, _, err := read(t, file.NewSource(dir+"/"+path)); code(t, err) != want {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, _, err := read(t, file.NewSource(put(t, dir, "empty.csv", ""))); code(t, err) != "file.empty" {
		t.Error(err)
	}
	if got := all(t, file.NewSource(put(t, dir, "empty.jsonl", ""))); len(got) != 0 {
		t.Error(got)
	}
}

// An unreadable file and a path that is no file, each one clear message.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	path := put(t, dir, "a.csv", "id\n1\n")
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(path); err == nil {
		f.Close() //nolint:errcheck // root reads everything
	} else if _, _, err := read(t, file.NewSource(path)); code(t, err) != "file.permission" || strings.Count(err.Error(), path) != 1 {
		t.Error(err)
	}
	if _, _, err := read(t, file.NewSource(filepath.Join(path, "b.csv"))); code(t, err) == "" {
		t.Error(err)
	}
}

// A long list of files rides on few batches, and still every row is covered once.
func TestManyFiles(t *testing.T) {
	dir := t.TempDir()
	const files = 100
	pad := strings.Repeat("p", 20_000)
	for i := range files {
		put(t, dir, fmt.Sprintf("part-%04d-%s.csv", i, strings.Repeat("n", 100)), fmt.Sprintf("id,pad\n%d,%s\n%d,%s\n", 2*i, pad, 2*i+1, pad))
	}
	cfg := file.NewSource(dir + "/*.csv")
	ctx := context.Background()
	var last record.Position
	rows, positions := 0, 0
	for done := false; !done; {
		src, err := cfg.Open(connectortest.Env(t))
		if err != nil {
			t.Fatal(err)
		}
		start := connector.SourceStart{}
		if !last.Zero() {
			start.From = connector.From{Origin: connector.Resume, Attempt: 1, Position: last}
		}
		if err := src.Start(ctx, start); err != nil {
			t.Fatal(err)
		}
		open := 0 // rows that no position covers
		for range 70 {
			b, err := src.Read(ctx, connector.Limit{Rows: 1})
			if done = errors.Is(err, io.EOF); done {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range connectortest.Rows(b) {
				if want := fmt.Sprintf(`{"id":%d,"pad":"%s"}`, rows+open, pad); r != want {
					t.Fatalf("row %.20s, want %.20s", r, want)
				}
				open++
			}
			if !b.Position.Zero() {
				last, positions = b.Position, positions+1
				rows, open = rows+open, 0
			}
		}
		if done && open > 0 {
			t.Errorf("%d rows are behind the last position", open)
		}
		if err := src.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	if rows != 2*files || positions < 2 || positions > 20 {
		t.Errorf("%d rows, %d positions", rows, positions)
	}
}

// A pipe with a name is read once; it can't be resumed.
func TestPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // only read
	name := fmt.Sprintf("/dev/fd/%d", r.Fd())
	if _, err := os.Stat(name); err != nil {
		return // this system has no such names
	}
	if _, err := w.WriteString("id,v\n1,a\n2,b\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := file.NewSource(name)
	cfg.Format, cfg.Dataset = "csv", "d"
	ctx := context.Background()
	open := func() connector.Source {
		src, err := cfg.Open(connectortest.Env(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { src.Close(ctx) }) //nolint:errcheck // only read
		return src
	}
	src := open()
	origin, err := src.(connector.Originator).ResolveOrigin(ctx) //nolint:forcetypeassert // a test
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Start(ctx, connector.SourceStart{From: connector.From{Origin: connector.Initialised, Position: origin}}); err != nil {
		t.Fatal(err)
	}
	b, err := src.Read(ctx, connector.Limit{Rows: 10})
	if err != nil || !slices.Equal(connectortest.Rows(b), []string{`{"id":1,"v":"a"}`, `{"id":2,"v":"b"}`}) {
		t.Errorf("%v, %v", b, err)
	}
	err = open().Start(ctx, connector.SourceStart{From: connector.From{Origin: connector.Resume, Attempt: 1, Position: b.Position}})
	if code(t, err) != "file.stream" {
		t.Error(err)
	}
}
