package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Check implements connector.Checker: can the files be read, and what was found in them. Standard input is left alone.
func (s *source) Check(ctx context.Context) ([]connector.Probe, error) {
	if s.cfg.std() {
		return []connector.Probe{{
			Name: "input", Status: connector.Warn, Detail: "standard input can't be read again: a run that fails can't be resumed",
			Fix: "write the input to a file and read that",
		}}, nil
	}
	list, err := s.cfg.list()
	if err != nil {
		return []connector.Probe{failed("files", err)}, nil
	}
	total := int64(0)
	for _, e := range list {
		if e.stream() {
			return []connector.Probe{{Name: "files", Detail: e.Path + " is a pipe or a device; it is not looked at"}}, nil
		}
		f, err := os.Open(e.Path)
		if err != nil {
			return []connector.Probe{failed("files", wrap(err, "opening "+e.Path))}, nil
		}
		f.Close() //nolint:errcheck // it was only opened
		total += e.Size
	}
	probes := []connector.Probe{{Name: "files", Detail: counted(len(list), total)}}
	look := &source{cfg: s.cfg, env: s.env}
	defer look.Close(ctx) //nolint:errcheck // nothing stays open
	if err := look.ensure(ctx); err != nil {
		return append(probes, failed("columns", err)), nil
	}
	for _, d := range look.sets {
		probes = append(probes, connector.Probe{Name: "columns of " + d.name, Detail: describe(d)})
	}
	return probes, nil
}

func counted(files int, bytes int64) string {
	if files == 1 {
		return fmt.Sprintf("1 file, %d bytes", bytes)
	}
	return fmt.Sprintf("%d files, %d bytes", files, bytes)
}

// describe lists columns and types.
func describe(d *dataset) string {
	parts := make([]string, 0, d.schema.Columns.NumFields())
	for _, f := range d.schema.Columns.Fields() {
		parts = append(parts, f.Name+" "+record.FormatType(f.Type))
	}
	out := strings.Join(parts, ", ")
	if !d.whole {
		out += " (found in the beginning of the data; infer=all looks at all of it)"
	}
	return out
}

func failed(name string, err error) connector.Probe {
	fix := connector.HintOf(err)
	if fix == "" {
		fix = "check the path and its rights"
	}
	return connector.Probe{Name: name, Status: connector.Fail, Detail: err.Error(), Fix: fix}
}

// Check implements connector.Checker: does the folder exist, and may files be made in it.
func (s *sink) Check(context.Context) ([]connector.Probe, error) {
	if s.cfg.std() {
		return []connector.Probe{{
			Name: "output", Detail: "standard output is written as rows come; what was written before a failure stays",
		}}, nil
	}
	return checkFolder(s.dir(), s.cfg.folder()), nil
}

// checkFolder looks whether files may be made in a folder; made: it is made if it does not exist.
func checkFolder(dir string, made bool) []connector.Probe {
	info, err := os.Stat(dir)
	for made && os.IsNotExist(err) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir) // it will be made
		info, err = os.Stat(dir)
	}
	switch {
	case err != nil:
		return []connector.Probe{failed("folder", missingFolder(dir, err))}
	case !info.IsDir():
		return []connector.Probe{{Name: "folder", Status: connector.Fail, Detail: dir + " is no folder", Fix: "choose another path"}}
	case !writable(dir, info):
		return []connector.Probe{{
			Name: "folder", Status: connector.Fail, Detail: "no right to make files in " + dir, Fix: "chmod u+w " + dir,
		}}
	}
	return []connector.Probe{{Name: "folder", Detail: dir + " can be written"}}
}
