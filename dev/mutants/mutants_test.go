package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every break of the lists finds its code exactly once, and names clauses that there are: a list can't rot.
func TestListsApply(t *testing.T) {
	root := filepath.Join("..", "..")
	all, err := readLists(root)
	if err != nil {
		t.Fatal(err)
	}
	catalogue, err := os.ReadFile(filepath.Join(root, "docs", "clauses.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		src, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Errorf("%s: %v", m.where, err)
			continue
		}
		if _, err := m.apply(src); err != nil {
			t.Errorf("%s: %s: %v", m.where, m.title(), err)
		}
		for _, id := range m.ids {
			if !bytes.Contains(catalogue, []byte("| "+id+" |")) {
				t.Errorf("%s: there is no clause %s", m.where, id)
			}
		}
		if _, err := regexp.Compile(m.pattern); err != nil {
			t.Errorf("%s: %v", m.where, err)
		}
		if dir, err := os.Stat(filepath.Join(root, m.pkg)); err != nil || !dir.IsDir() {
			t.Errorf("%s: %s is no package: %v", m.where, m.pkg, err)
		}
	}
}

// Every outcome, on a small module: what is noticed, what is not, and every mistake of a list.
func TestOutcomes(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles")
	}
	t.Setenv("GOFLAGS", "") // this module's tags are of no use to the small one
	root := t.TempDir()
	files := map[string]string{
		"go.mod": "module small\n\ngo 1.25\n",
		"sum/sum.go": `package sum

func Sum(list []int) int {
	n := 0
	for _, v := range list {
		n += v
	}
	return n
}

func Spare() int { return 1 }
`,
		"sum/sum_test.go": `package sum

import (
	"os"
	"testing"
)

func TestSum(t *testing.T) {
	t.Run("three", func(t *testing.T) {
		if n := Sum([]int{1, 2, 3}); n != 6 {
			t.Error(n)
		}
	})
}

func TestBroken(t *testing.T) { t.Error("always") }

func TestSkipped(t *testing.T) { t.Skip("no server") }

func TestEnv(t *testing.T) {
	if os.Getenv("SUM") != "yes" || Spare() != 1 {
		t.Error(os.Getenv("SUM"))
	}
}
`,
		"dev/mutants/lists/a.txt": `# every outcome
break W1: the sum is a difference
in sum/sum.go
test ./sum TestSum
quick
-		n += v
+		n -= v

break W1, W2: it never ends
in sum/sum.go
test ./sum TestSum
timeout 200ms
-	n := 0
-	for _, v := range list {
+	n := 0
+	for n == 0 {
+	}
+	for _, v := range list {

break E1: nobody looks
in sum/sum.go
test ./sum TestSum
-func Spare() int { return 1 }
+func Spare() int { return 2 }

break E1: two places, and the environment counts
in sum/sum.go
test ./sum TestEnv
env SUM=yes
-func Spare() int { return 1 }
+func Spare() int { return 2 }
@@
-	n := 0
+	n := 1

break E2: it is not there
in sum/sum.go
test ./sum TestSum
-	n := 7
+	n := 8

break E3: it does not compile
in sum/sum.go
test ./sum TestSum
-	n := 0
+	n := "0"

break E4: the tests fail anyway
in sum/sum.go
test ./sum TestBroken
-	n := 0
+	n := 1

break E5: there is no such test
in sum/sum.go
test ./sum TestNone
-	n := 0
+	n := 1

break E6: nobody can look
in sum/sum.go
test ./sum TestSkipped
-	n := 0
+	n := 1
`,
	}
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{root}, &out, &errs); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for i, want := range []string{
		`^caught    W1   the sum is a difference: by \./sum\.TestSum/three in `,
		`^caught    W1   it never ends: by \./sum\.panic: test timed out after 200ms`,
		`^UNNOTICED E1   nobody looks \(a\.txt:\d+\): TestSum of \./sum passed`,
		`^caught    E1   two places, and the environment counts: by \./sum\.TestEnv in `,
		`^ERROR     E2   it is not there \(a\.txt:\d+\): sum/sum\.go has the lines that begin with "n := 7" 0 times`,
		`^ERROR     E3   it does not compile .*the broken code does not compile`,
		`^ERROR     E4   the tests fail anyway .*: the tests fail without the break: TestBroken`,
		`^ERROR     E5   there is no such test .*: no test of \./sum is called TestNone`,
		`^ERROR     E6   nobody can look .*: the tests are all skipped`,
		`^9 breaks: 3 caught, 1 unnoticed, 5 errors`,
	} {
		line := nthHead(out.String(), i)
		if !regexp.MustCompile(want).MatchString(line) {
			t.Errorf("line %d is %q, want %s", i+1, line, want)
		}
	}
	if t.Failed() {
		t.Log(out.String(), errs.String())
	}
	out.Reset()
	if code := run(t.Context(), []string{"-quick", root}, &out, &errs); code != 0 || !strings.Contains(out.String(), "1 breaks: 1 caught") {
		t.Errorf("exit code %d, %s", code, out.String())
	}
	if src, err := os.ReadFile(filepath.Join(root, "sum", "sum.go")); err != nil || string(src) != files["sum/sum.go"] {
		t.Errorf("a file of the repository was changed: %s, %v", src, err)
	}
}

// nthHead is the n-th line that begins an outcome: messages of the compiler may have several.
func nthHead(out string, n int) string {
	for line := range strings.Lines(out) {
		if regexp.MustCompile(`^(caught|UNNOTICED|ERROR|\d+ breaks)`).MatchString(line) {
			if n == 0 {
				return line
			}
			n--
		}
	}
	return ""
}

// A mistake in a list is named with its place.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"in x.go\n":                                                    "a.txt:1: a list begins with",
		"break W1: a\nin x.go\nfoo bar\n":                              `a.txt:3: unknown word "foo"`,
		"break W1: a\ntest ./x T\n-a\n+b\n":                            "a.txt:1: which file is broken?",
		"break W1: a\nin x.go\n-a\n+b\n":                               "a.txt:1: which tests notice it?",
		"break W1: a\nin x.go\ntest ./x\n-a\n+b\n":                     "a.txt:1: which tests notice it?",
		"\nbreak W1: a\nin x.go\ntest ./x T\n":                         "a.txt:2: what is broken?",
		"break W1: a\nin x.go\ntest ./x T\n+b\n":                       "a.txt:1: each place needs code that is there",
		"break W1: a\nin x.go\ntest ./x T\ntimeout soon\n-a\n+b\n":     `a.txt:4: time: invalid duration "soon"`,
		"break W1: a\nin x.go\ntest ./x T\n-a\n+b\nbreak nothing: b\n": `a.txt:6: unknown word "break"`,
	} {
		if _, err := parse("a.txt", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Lines that stay are in both: they make a place unique.
func TestContext(t *testing.T) {
	list, err := parse("a.txt", "break W1: a\nin x.go\ntest ./x T\n one\n-two\n+2\n")
	if err != nil {
		t.Fatal(err)
	}
	got, err := list[0].apply([]byte("two\none\ntwo\n"))
	if err != nil || string(got) != "two\none\n2\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, src := range []string{"two\n", "one\ntwo\none\ntwo\n", "one\ntwo", "done\ntwo\n"} {
		if got, err := list[0].apply([]byte(src)); err == nil {
			t.Errorf("%q became %q", src, got)
		}
	}
}
