package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// entry is a file of the frozen list.
type entry struct {
	Path  string `json:"path"`
	Size  int64  `json:"size"`  // -1: a pipe or a device, which has no size
	MTime int64  `json:"mtime"` // nanoseconds since 1970
}

func (e entry) stream() bool { return e.Size < 0 }

// list finds the files that the configuration selects, sorted.
func (c *SourceConfig) list() ([]entry, error) {
	if c.std() {
		return []entry{{Path: "-", Size: -1}}, nil
	}
	doing := "listing " + c.Path
	info, err := os.Stat(c.Path)
	var names []string
	switch {
	case err == nil && info.IsDir():
		names, err = c.inFolder()
	case err == nil:
		names = []string{c.Path}
	case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(c.Path, "*?["):
		if names, err = glob(c.Path); err == nil && len(names) == 0 {
			err = fmt.Errorf("no file matches the pattern: %w", fs.ErrNotExist)
		}
	default:
		doing = "opening " + c.Path
	}
	if err != nil {
		return nil, wrap(err, doing)
	}
	out := make([]entry, len(names))
	for i, n := range names {
		if out[i], err = stat(n); err != nil {
			return nil, wrap(err, "opening "+n)
		}
	}
	return out, nil
}

func stat(name string) (entry, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return entry{}, err
	case info.IsDir():
		return entry{}, &fs.PathError{Op: "open", Path: name, Err: errors.New("it is a folder")}
	case !info.Mode().IsRegular():
		return entry{Path: name, Size: -1}, nil
	}
	return entry{Path: name, Size: info.Size(), MTime: info.ModTime().UnixNano()}, nil
}

// inFolder lists the files of a folder: those with a known ending, or all where the format is given. Names that begin with a dot or an
// underscore are left out, as temporary files and markers have them.
func (c *SourceConfig) inFolder() ([]string, error) {
	found, err := os.ReadDir(c.Path)
	if err != nil {
		return nil, err
	}
	var names []string
	formats := map[string]bool{}
	for _, f := range found {
		name := f.Name()
		_, e, _ := named(name)
		known := e.format != "" && (c.Format == "" || e.format == c.Format)
		if f.IsDir() || name[0] == '.' || name[0] == '_' || !known {
			continue
		}
		formats[e.format] = true
		names = append(names, filepath.Join(c.Path, name))
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("the folder has no file with a known ending: %w", fs.ErrNotExist)
	case len(formats) > 1:
		return nil, &connector.Error{
			Class: connector.ClassConfig, Code: "file.formats", Err: errors.New("the folder has files of several formats"),
			Hint: "say which with format=csv, or with a pattern such as " + filepath.Join(c.Path, "*.csv"),
		}
	}
	slices.Sort(names)
	return names, nil
}

// glob is filepath.Glob, sorted, files only, and with ** for folders of any depth.
func glob(pattern string) ([]string, error) {
	pattern = filepath.ToSlash(pattern)
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	root, rest := ".", strings.Split(pattern, "/")
	for len(rest) > 1 && !strings.ContainsAny(rest[0], "*?[") {
		root, rest = path.Join(root, rest[0]), rest[1:]
	}
	if strings.HasPrefix(pattern, "/") {
		root = "/" + root
	}
	var names []string
	err := match(root, rest, func(name string) { names = append(names, name) })
	slices.Sort(names)
	return slices.Compact(names), err
}

// match walks down the folders that a pattern's parts allow.
func match(dir string, parts []string, found func(string)) error {
	entries, err := os.ReadDir(filepath.FromSlash(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if parts[0] == "**" && len(parts) > 1 {
		if err := match(dir, parts[1:], found); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if e.Name()[0] == '.' && parts[0][0] != '.' {
			continue // hidden
		}
		if err := matchEntry(dir, e, parts, found); err != nil {
			return err
		}
	}
	return nil
}

// matchEntry is match for one entry of a folder.
func matchEntry(dir string, e fs.DirEntry, parts []string, found func(string)) error {
	name, deep := path.Join(dir, e.Name()), parts[0] == "**"
	isDir := e.IsDir()
	if e.Type()&fs.ModeSymlink != 0 {
		if info, err := os.Stat(filepath.FromSlash(name)); err == nil {
			isDir = info.IsDir() && !deep // links may go round in circles
		}
	}
	fits, err := path.Match(parts[0], e.Name())
	switch {
	case err != nil:
		return fmt.Errorf("pattern %q: %w", parts[0], err)
	case isDir && deep:
		return match(name, parts, found)
	case isDir && fits && len(parts) > 1:
		return match(name, parts[1:], found)
	case !isDir && (fits || deep) && len(parts) == 1:
		found(filepath.FromSlash(name))
	}
	return nil
}

// datasetOf is the name of the dataset that a file belongs to.
func (c *SourceConfig) datasetOf(name string) string {
	if c.Datasets == "per_file" {
		return datasetName(name)
	}
	switch {
	case c.Dataset != "":
		return c.Dataset
	case c.std():
		return "stdin"
	}
	stem, _, _ := named(c.Path)
	if info, err := os.Stat(c.Path); err == nil && info.IsDir() {
		abs, err := filepath.Abs(c.Path)
		if err != nil {
			abs = c.Path
		}
		return record.JoinName(filepath.Base(abs))
	}
	if !strings.ContainsAny(stem, "*?[") {
		return record.JoinName(stem)
	}
	if stem = strings.Trim(cutWild(stem), "-_. ~"); stem != "" {
		return record.JoinName(stem)
	}
	dir := filepath.ToSlash(filepath.Dir(c.Path))
	for dir != "." && dir != "/" && strings.ContainsAny(path.Base(dir), "*?[") {
		dir = path.Dir(dir)
	}
	if abs, err := filepath.Abs(filepath.FromSlash(dir)); err == nil && filepath.Base(abs) != string(filepath.Separator) {
		return record.JoinName(filepath.Base(abs))
	}
	return "data"
}

// cutWild takes the wildcards out of a name.
func cutWild(s string) string {
	i := strings.IndexAny(s, "*?[")
	if i < 0 {
		return s
	}
	return s[:i]
}
