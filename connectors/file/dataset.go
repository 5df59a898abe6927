package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/arrowipc"
	"github.com/leatdata/leat/format/csv"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/record"
)

// dataset is what is known of the files that make one dataset.
type dataset struct {
	name   string
	files  []int // in the frozen list
	format string

	schema   *record.Schema // what Read delivers; nil: nothing is known before the first row (an empty file)
	base     int            // columns of schema that were found by looking; behind them are late ones
	full     *record.Schema // all columns of the files: without the choice of columns
	expected []string       // CSV: the columns that each file must have
	dialect  csv.Dialect
	whole    bool // all of the data was looked at
	rows     int64
}

// datasets groups the frozen list.
func (c *SourceConfig) datasets(list []entry) ([]*dataset, error) {
	var out []*dataset
	for i, e := range list {
		name := c.datasetOf(e.Path)
		at := slices.IndexFunc(out, func(d *dataset) bool { return d.name == name })
		if at < 0 {
			at = len(out)
			out = append(out, &dataset{name: name, format: c.format(e.Path), rows: -1})
		}
		d := out[at]
		d.files = append(d.files, i)
		switch f := c.format(e.Path); {
		case f == "":
			return nil, configError(fmt.Errorf("the name %q does not say what it is", e.Path), "say format=csv, jsonl, parquet or arrow")
		case f != d.format:
			return nil, configError(fmt.Errorf("%s and %s are of different formats, and one dataset", list[d.files[0]].Path, e.Path),
				"read them with a pattern each, or say datasets=per_file")
		}
	}
	if len(c.Only) == 0 {
		return out, nil
	}
	for _, n := range c.Only {
		if !slices.ContainsFunc(out, func(d *dataset) bool { return d.name == n }) {
			known := make([]string, len(out))
			for i, d := range out {
				known[i] = d.name
			}
			return nil, configError(connector.UnknownName("dataset", n, known), "")
		}
	}
	return slices.DeleteFunc(out, func(d *dataset) bool { return !slices.Contains(c.Only, d.name) }), nil
}

// How much of a dataset's text is looked at to find its types: sampleSize bytes, or wholeSize if the dataset has no more than that on disk.
const (
	wholeSize  = 16 << 20
	sampleSize = 4 << 20
)

// minShare is the least that is looked at of each file of many.
const minShare = 1 << 20

// headerShare is enough to find the columns of a file.
const headerShare = 1 << 20

// inference is what csv and jsonl have in common.
type inference interface {
	Scan(r io.Reader, limit int64) (whole bool, err error)
}

// prepare finds the columns of a dataset and their types.
func (s *source) prepare(ctx context.Context, d *dataset) error {
	var err error
	switch d.format {
	case formatCSV:
		err = s.prepareCSV(ctx, d)
	case formatJSONL:
		err = s.prepareJSONL(ctx, d)
	default:
		err = s.preparePacked(d)
	}
	if err != nil {
		return err
	}
	return s.choose(d)
}

func (s *source) prepareCSV(ctx context.Context, d *dataset) error {
	c := s.cfg
	d.dialect = c.dialect()
	if err := s.findDelimiter(d); err != nil {
		return err
	}
	o := csv.InferOptions{Types: c.Types, AllText: c.Infer == "none"}
	o.Dialect, o.Dataset, o.NoHeader, o.Null, o.Union = d.dialect, d.name, !c.Header, c.Null, c.Union
	if len(c.Names) > 0 {
		o.Names = c.Names
	}
	inf, err := csv.NewInference(o)
	if err != nil {
		return err
	}
	if d.whole, err = s.look(ctx, d, inf); err != nil {
		return err
	}
	if d.full, err = inf.Schema(); err != nil {
		return configError(err, "")
	}
	if d.full == nil {
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "file.empty", Doing: "reading " + s.files[d.files[0]].Path,
			Err:  errors.New("there is no row, and so there are no columns"),
			Hint: "a CSV file needs a header; without one say header=false and names=A,B,C",
		}
	}
	d.expected = inf.Columns()
	return nil
}

// findDelimiter decides the delimiter: as was said, as the file's name says, or as the first file with content shows.
func (s *source) findDelimiter(d *dataset) error {
	if d.dialect.Delimiter != "" {
		return nil
	}
	for _, i := range d.files {
		_, e, _ := named(s.files[i].Path)
		if e.delimiter != "" {
			d.dialect.Delimiter = e.delimiter
			return nil
		}
		o, err := s.open(i)
		if err != nil {
			return err
		}
		head := make([]byte, detectSize)
		n, err := io.ReadFull(o.text, head)
		s.release(o)
		whole := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !whole {
			return wrap(err, "reading "+s.files[i].Path)
		}
		if n > 0 {
			d.dialect.Delimiter, _ = csv.Detect(head[:n], whole, d.dialect)
			return nil
		}
	}
	return nil
}

const detectSize = 64 << 10

func (s *source) prepareJSONL(ctx context.Context, d *dataset) error {
	c := s.cfg
	inf := jsonl.NewInference(jsonl.InferOptions{Dataset: d.name, MaxLine: c.maxLine(), Types: c.Types, Documents: c.Infer == "none"})
	var err error
	if d.whole, err = s.look(ctx, d, inf); err != nil {
		return err
	}
	if d.full, err = inf.Schema(d.whole); err != nil {
		return configError(err, "")
	}
	if d.whole || c.Datasets == "per_file" {
		return nil
	}
	fields := slices.Clone(d.full.Columns.Fields())
	for _, n := range slices.Sorted(maps.Keys(c.Types)) { // declared columns that come later are known already
		if d.full.Column(n) >= 0 {
			continue
		}
		dt, err := record.ParseType(c.Types[n])
		if err != nil {
			return configError(err, "")
		}
		fields = append(fields, arrow.Field{Name: n, Type: dt, Nullable: true})
	}
	d.full.Columns = arrow.NewSchema(fields, nil)
	return nil
}

// look shows the files to an inference, as many bytes of each as the options say, and reports whether it saw all.
func (s *source) look(ctx context.Context, d *dataset, inf inference) (bool, error) {
	left, small := int64(sampleSize), s.small(d)
	switch {
	case s.cfg.Infer == "all":
		left = 0
	case small:
		left = wholeSize
	}
	whole := true
	for n, i := range d.files {
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("looking at the files: %w", err)
		}
		limit := left
		switch {
		case s.cfg.Infer == "all":
		case left <= 0 && s.cfg.Union && d.format == formatCSV:
			limit = headerShare
		case left <= 0:
			return false, nil
		case s.cfg.Infer == "none" && d.format == formatCSV:
			limit = headerShare
		case !small:
			limit = max(minShare, left/int64(len(d.files)-n))
		}
		o, err := s.open(i)
		if err != nil {
			return false, err
		}
		count := &counter{r: o.text}
		saw, err := inf.Scan(count, limit)
		s.release(o)
		if err != nil {
			return false, wrap(err, "reading "+s.files[i].Path)
		}
		whole = whole && saw
		if s.cfg.Infer != "all" {
			left -= count.n
		}
	}
	return whole, nil
}

// small reports whether a dataset has at most wholeSize bytes on disk. What is piped in has no size.
func (s *source) small(d *dataset) bool {
	return s.stored(d) <= wholeSize && !slices.ContainsFunc(d.files, func(i int) bool { return s.files[i].Size < 0 })
}

// stored is how many bytes the files of a dataset have on disk.
func (s *source) stored(d *dataset) (n int64) {
	for _, i := range d.files {
		n += max(s.files[i].Size, 0)
	}
	return n
}

// preparePacked reads the schema of files that have one.
func (s *source) preparePacked(d *dataset) error {
	d.whole, d.rows = true, 0
	for _, i := range d.files {
		r, o, err := s.packed(d, i)
		if err != nil {
			return err
		}
		if p, ok := r.(*parquet.Reader); ok && d.rows >= 0 {
			d.rows += p.Rows()
		} else {
			d.rows = -1
		}
		found := r.Schema()
		r.Close() //nolint:errcheck // it was only read
		s.release(o)
		if d.full == nil {
			own := *found
			own.Dataset = d.name
			d.full = &own
		}
		if d.rows < 0 {
			return nil // the others are compared when they are read
		}
	}
	return nil
}

// packed opens a file with a schema of its own.
func (s *source) packed(d *dataset, i int) (format.Reader, *opened, error) {
	e := s.files[i]
	o, err := s.open(i)
	if err != nil {
		return nil, nil, err
	}
	var r format.Reader
	switch {
	case d.format == formatArrow:
		r, err = arrowipc.NewReader(o.text, d.name)
	case o.at == nil:
		err = &connector.Error{
			Class: connector.ClassConfig, Code: "file.config",
			Err:  errors.New("a Parquet file can be read only from a disk and not compressed as a whole"),
			Hint: "decompress it first: Parquet compresses its own pages",
		}
	default:
		r, err = parquet.NewReader(o.at, e.Size, d.name)
	}
	if err != nil {
		s.release(o)
		return nil, nil, wrap(err, "reading "+e.Path)
	}
	return r, o, nil
}

// choose applies the options columns and key to the columns that were found.
func (s *source) choose(d *dataset) error {
	c := s.cfg
	d.schema = d.full
	if len(c.Columns) > 0 {
		fields := make([]arrow.Field, len(c.Columns))
		for i, n := range c.Columns {
			at := d.full.Column(n)
			if at < 0 {
				return configError(fmt.Errorf("dataset %s: %w", d.name, connector.UnknownName("column", n, d.full.Names())), "")
			}
			fields[i] = d.full.Columns.Field(at)
		}
		chosen := *d.full
		chosen.Columns, chosen.Key = arrow.NewSchema(fields, nil), nil
		d.schema = &chosen
	}
	if len(c.Key) > 0 {
		keyed, err := d.schema.WithKey(c.Key...)
		if err != nil {
			return configError(err, "")
		}
		d.schema = keyed
	}
	d.base = d.schema.Columns.NumFields()
	return nil
}

// unknownTypes refuses declared types of columns that no dataset has.
func (s *source) unknownTypes() error {
	var known []string
	text := false
	for _, d := range s.sets {
		known = append(known, d.full.Names()...)
		text = text || d.format == formatCSV || (d.format == formatJSONL && d.whole)
	}
	for n := range s.cfg.Types {
		if text && !slices.Contains(known, n) {
			return configError(fmt.Errorf("types: %w", connector.UnknownName("column", n, known)), "")
		}
	}
	return nil
}

// reader opens file i of a dataset for reading from its beginning.
func (s *source) reader(d *dataset, i int) (format.Reader, *opened, error) {
	if d.format != formatCSV && d.format != formatJSONL {
		return s.packed(d, i)
	}
	o, err := s.open(i)
	if err != nil {
		return nil, nil, err
	}
	var r format.Reader
	if d.format == formatCSV {
		r, err = s.csvReader(d, o.text)
	} else {
		r, err = jsonl.NewReader(o.text, jsonl.Options{
			Dataset: d.name, MaxLine: s.cfg.maxLine(), Schema: d.schema, Declared: declared(s.cfg.Types), Fixed: len(s.cfg.Columns) > 0,
			RejectDuplicates: s.cfg.DuplicateKeys == "reject", Sampled: !d.whole,
		})
	}
	if err != nil {
		s.release(o)
		return nil, nil, wrap(err, "reading "+s.files[i].Path)
	}
	return r, o, nil
}

func (s *source) csvReader(d *dataset, text io.Reader) (format.Reader, error) {
	o := csv.Options{
		Dialect: d.dialect, Dataset: d.name, NoHeader: !s.cfg.Header, Null: s.cfg.Null, SetAside: s.cfg.Ragged != "fail", Schema: d.schema,
		Declared: declared(s.cfg.Types), Union: s.cfg.Union, Sampled: !d.whole,
	}
	if len(s.cfg.Names) > 0 {
		o.Names = s.cfg.Names
	}
	if !s.cfg.Union {
		o.Expected = d.expected
	}
	return csv.NewReader(text, o)
}

func declared(types map[string]string) map[string]bool {
	out := make(map[string]bool, len(types))
	for n := range types {
		out[n] = true
	}
	return out
}

// replay is standard input, or a pipe: what was looked at is kept and read again.
type replay struct {
	r    io.Reader
	kept bytes.Buffer
	at   int
	keep bool
}

// Read implements io.Reader.
func (p *replay) Read(b []byte) (int, error) {
	if rest := p.kept.Bytes()[p.at:]; len(rest) > 0 {
		n := copy(b, rest)
		p.at += n
		if !p.keep && p.at == p.kept.Len() {
			p.kept, p.at = bytes.Buffer{}, 0
		}
		return n, nil
	}
	n, err := p.r.Read(b)
	if p.keep {
		p.kept.Write(b[:n])
		p.at = p.kept.Len()
	}
	return n, err
}
