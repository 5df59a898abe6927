package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// mention is one place where a test names an id.
type mention struct {
	id   string
	file string
	line int
	test string // the function around it; empty when it stands between functions
}

// source names what counts as one test: a function, or else the file.
func (m mention) source() string {
	if m.test == "" {
		return m.file
	}
	return path.Dir(m.file) + "." + m.test
}

var (
	commentKey  = regexp.MustCompile(`\b(?i:clauses?|cases?)\s+`)
	commentItem = regexp.MustCompile(`^(` + idExpr + `)\b(?:\s*[–-]\s*(` + idExpr + `)\b)?`)
	commentSep  = regexp.MustCompile(`^\s*(?:,|&|\band\b)\s*`)
	wholeID     = regexp.MustCompile(`^` + idExpr + `$`)
	stringStart = regexp.MustCompile(`^((?:` + idExpr + `,\s*)*` + idExpr + `):`)
)

// scanTree collects the mentions of all test files: those that end in _test.go, and all files of a
// package whose name ends in "test", which is a test kit.
func scanTree(repo fs.FS) ([]mention, error) {
	var mentions []mention
	err := fs.WalkDir(repo, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if base := entry.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		case !isTestFile(name):
			return nil
		}
		content, err := fs.ReadFile(repo, name)
		if err != nil {
			return err
		}
		found, err := scanFile(name, content)
		mentions = append(mentions, found...)
		return err
	})
	return mentions, err
}

func isTestFile(name string) bool {
	return strings.HasSuffix(name, "_test.go") ||
		strings.HasSuffix(name, ".go") && strings.HasSuffix(path.Dir(name), "test")
}

// scanFile collects the mentions of one Go file, in three forms: a part of a function's name between
// underscores, the start of a string up to a colon, and a comment.
func scanFile(name string, content []byte) ([]mention, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var mentions []mention
	add := func(id string, pos token.Pos) {
		mentions = append(mentions, mention{id: id, file: name, line: files.Position(pos).Line, test: functionAt(file, pos)})
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			for _, id := range idsOfName(node.Name.Name) {
				add(id, node.Name.Pos())
			}
		case *ast.BasicLit:
			for _, id := range idsOfString(node) {
				add(id, node.Pos())
			}
		default:
		}
		return true
	})
	for _, group := range file.Comments {
		for _, comment := range group.List {
			for _, id := range idsOfComment(comment.Text) {
				add(id, comment.Pos())
			}
		}
	}
	return mentions, nil
}

// functionAt returns the name of the function that holds the position, or whose comment does.
func functionAt(file *ast.File, pos token.Pos) string {
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		start := function.Pos()
		if function.Doc != nil {
			start = function.Doc.Pos()
		}
		if start <= pos && pos < function.End() {
			return function.Name.Name
		}
	}
	return ""
}

func idsOfName(name string) []string {
	var ids []string
	for _, prefix := range []string{"Test", "Fuzz", "Benchmark"} {
		name = strings.TrimPrefix(name, prefix)
	}
	for part := range strings.SplitSeq(name, "_") {
		if wholeID.MatchString(part) {
			ids = append(ids, part)
		}
	}
	return ids
}

func idsOfString(literal *ast.BasicLit) []string {
	if literal.Kind != token.STRING {
		return nil
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return nil
	}
	match := stringStart.FindStringSubmatch(text)
	if match == nil {
		return nil
	}
	ids := strings.Split(match[1], ",")
	for i := range ids {
		ids[i] = strings.TrimSpace(ids[i])
	}
	return ids
}

// idsOfComment finds "clause W5", "clauses W1–W4, E8 and S3", "case C002", anywhere in the comment.
func idsOfComment(text string) []string {
	var ids []string
	for {
		key := commentKey.FindStringIndex(text)
		if key == nil {
			return ids
		}
		text = text[key[1]:]
		for {
			item := commentItem.FindStringSubmatch(text)
			if item == nil {
				break
			}
			ids = append(ids, expand(item[1], item[2])...)
			text = text[len(item[0]):]
			separator := commentSep.FindString(text)
			if separator == "" {
				break
			}
			text = text[len(separator):]
		}
	}
}

// expand returns the ids from first to last; last may be empty. A range that makes no sense is
// returned as its two ends and a third id that does not exist, so that the report shows it.
func expand(first, last string) []string {
	if last == "" {
		return []string{first}
	}
	from, errFrom := strconv.Atoi(first[1:])
	to, errTo := strconv.Atoi(last[1:])
	if first[0] != last[0] || errFrom != nil || errTo != nil || from > to {
		return []string{first, last, first + "–" + last}
	}
	var ids []string
	for n := from; n <= to; n++ {
		ids = append(ids, fmt.Sprintf("%c%0*d", first[0], minDigits(first), n))
	}
	return ids
}

func minDigits(id string) int {
	if id[0] == 'C' {
		return 3
	}
	return 1
}
