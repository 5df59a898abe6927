package parquet

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/arrowipc"
	"github.com/leatdata/leat/format/internal/arrowtype"
	"github.com/leatdata/leat/record"
)

// schemaKey is the key of the file's metadata that holds the exact schema: base64 of an Arrow IPC stream without batches.
const schemaKey = "leat:schema"

// arrowSchemaKey is the key under which Arrow's writers keep a schema in the same form.
const arrowSchemaKey = "ARROW:schema"

// Defaults of Options.
const (
	defaultGroupBytes = 64 << 20
	defaultGroupRows  = 1 << 20
	stepBytes         = 4 << 20   // what is handed to the library at once
	pageBytes         = 512 << 10 // each column has a few pages in memory
	fastest           = 1         // zstd's level; the next ones cost half as much again and save nothing of plain values
)

// Options are a writer's choices. The zero value is zstd and row groups of 64 MiB.
type Options struct {
	Compression string // empty (zstd), none, snappy, gzip, lz4
	GroupBytes  int64  // bytes of memory after which a row group ends; 0: 64 MiB. Peak memory is a small multiple of it
	GroupRows   int64  // rows after which it ends; 0: 1,048,576
}

// Writer writes batches of one schema. It implements format.Writer.
type Writer struct {
	schema *record.Schema
	stored *arrow.Schema
	opts   Options
	codec  compress.Compression
	out    io.Writer
	file   columns // nil before the first batch: it decides which columns get a dictionary
	bytes  int64   // of memory, in the open row group
	rows   int64   // in the open row group
	closed bool
}

var _ format.Writer = (*Writer)(nil)

// NewWriter begins a file with the schema. A column that Parquet can't keep exactly is an error that names it, see [Mapping]. Nothing is
// written before the first Write or Close.
func NewWriter(w io.Writer, s *record.Schema, o Options) (*Writer, error) {
	if err := record.Register(); err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	out := &Writer{schema: s, opts: o, out: w}
	if out.opts.GroupBytes <= 0 {
		out.opts.GroupBytes = defaultGroupBytes
	}
	if out.opts.GroupRows <= 0 {
		out.opts.GroupRows = defaultGroupRows
	}
	codecs := map[string]compress.Compression{
		"": compress.Codecs.Zstd, "zstd": compress.Codecs.Zstd, "none": compress.Codecs.Uncompressed, "snappy": compress.Codecs.Snappy,
		"gzip": compress.Codecs.Gzip, "lz4": compress.Codecs.Lz4Raw,
	}
	codec, ok := codecs[o.Compression]
	if !ok {
		return nil, connector.UnknownName("compression", o.Compression, []string{"zstd", "none", "snappy", "gzip", "lz4"})
	}
	out.codec = codec
	fields := s.Columns.Fields()
	if len(fields) == 0 {
		return nil, fmt.Errorf("writing Parquet: dataset %s has no columns", s.Dataset)
	}
	for i, f := range fields {
		st := stored(f.Type)
		if st.lost != "" {
			return nil, &connector.Error{
				Class: connector.ClassConfig, Code: "parquet.type", Doing: "writing Parquet", Dataset: s.Dataset, Column: f.Name,
				Err: fmt.Errorf("%s: %s", f.Type, st.lost), Hint: "write the column as text, or leave it out",
			}
		}
		fields[i].Type = st.arrow
	}
	out.stored = arrow.NewSchema(fields, nil)
	return out, nil
}

// begin opens the file; dictionary says for each column whether its values repeat.
func (w *Writer) begin(dictionary []bool) error {
	var err error
	if props := w.properties(dictionary); slices.ContainsFunc(w.stored.Fields(), func(f arrow.Field) bool { return nested(f.Type) }) {
		w.file, err = newNestedColumns(w.stored, w.out, props)
	} else {
		w.file, err = newFlatColumns(w.stored, w.out, props)
	}
	if err != nil {
		return fmt.Errorf("writing Parquet: %w", err)
	}
	return w.keepTypes()
}

// properties are the library's settings; dictionary says for each column whether its values repeat.
func (w *Writer) properties(dictionary []bool) *parquet.WriterProperties {
	opts := []parquet.WriterProperty{
		parquet.WithVersion(parquet.V2_LATEST), parquet.WithCompression(w.codec), parquet.WithStats(true),
		parquet.WithDictionaryDefault(true), parquet.WithStoreDecimalAsInteger(true), parquet.WithCreatedBy("leat"),
		parquet.WithMaxRowGroupLength(w.opts.GroupRows), parquet.WithDataPageSize(pageBytes),
	}
	if w.codec == compress.Codecs.Zstd {
		opts = append(opts, parquet.WithCompressionLevel(fastest))
	}
	for i, f := range w.stored.Fields() {
		if !nested(f.Type) && !dictionary[i] {
			opts = append(opts, parquet.WithDictionaryPath(parquet.ColumnPath{f.Name}, false))
		}
		for _, path := range floats(parquet.ColumnPath{f.Name}, f.Type) {
			opts = append(opts, parquet.WithStatsPath(path, false))
		}
	}
	return parquet.NewWriterProperties(opts...)
}

// keepTypes writes the exact types into the file's metadata.
func (w *Writer) keepTypes() error {
	var exact bytes.Buffer
	iw, err := arrowipc.NewWriter(&exact, w.schema, arrowipc.Options{})
	if err != nil {
		return fmt.Errorf("keeping the exact types: %w", err)
	}
	if err := iw.Close(); err != nil {
		return fmt.Errorf("keeping the exact types: %w", err)
	}
	if err := w.file.AppendKeyValueMetadata(schemaKey, base64.StdEncoding.EncodeToString(exact.Bytes())); err != nil {
		return fmt.Errorf("keeping the exact types: %w", err)
	}
	return nil
}

// floats returns the columns of floating-point numbers that filters may look at. They get no statistics: those leave NaN out, and
// readers that count NaN as the largest value skip row groups that have one.
func floats(path parquet.ColumnPath, dt arrow.DataType) []parquet.ColumnPath {
	switch dt := dt.(type) {
	case *arrow.Float32Type, *arrow.Float64Type:
		return []parquet.ColumnPath{path}
	case *arrow.StructType:
		var out []parquet.ColumnPath
		for _, f := range dt.Fields() {
			out = append(out, floats(append(slices.Clone(path), f.Name), f.Type)...)
		}
		return out
	}
	return nil
}

// nested reports whether a type has more than one leaf, or a leaf with a path of its own.
func nested(dt arrow.DataType) bool {
	switch dt.ID() {
	case arrow.LIST, arrow.STRUCT, arrow.MAP:
		return true
	default:
		return false
	}
}

// Write appends the rows of a batch, see format.Writer.
func (w *Writer) Write(b *record.Batch) error {
	n := int64(b.NumRows())
	if n == 0 {
		return nil
	}
	if !b.Rows.Schema().Equal(w.schema.Columns) {
		return fmt.Errorf("writing Parquet: rows of %s into a file of %s", b.Rows.Schema(), w.schema.Columns)
	}
	if w.file == nil {
		if err := w.begin(repeating(b.Rows)); err != nil {
			return err
		}
	}
	step := max(1, n*stepBytes/max(1, b.Bytes()))
	for from := int64(0); from < n; {
		to := min(n, from+step, from+w.opts.GroupRows-w.rows)
		if err := w.writeRows(b.Rows.NewSlice(from, to)); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// writeRows converts a few rows and ends the row group where it is full.
func (w *Writer) writeRows(rows arrow.RecordBatch) error {
	var bytes atomic.Int64
	err := w.file.write(int(rows.NumCols()), func(i int) (arrow.Array, error) {
		c, err := arrowtype.Convert(rows.Column(i), w.stored.Field(i).Type)
		if err != nil {
			return nil, &connector.Error{
				Class: connector.ClassPermanent, Code: "parquet.value", Doing: "writing Parquet", Dataset: w.schema.Dataset,
				Column: rows.ColumnName(i), Err: err,
				Hint: "leat check shows what the file can hold; write the column as text to keep all values",
			}
		}
		bytes.Add(size(c))
		return c, nil
	})
	if err != nil {
		return fmt.Errorf("writing Parquet: %w", err)
	}
	w.bytes += bytes.Load()
	w.rows += rows.NumRows()
	if w.bytes < w.opts.GroupBytes && w.rows < w.opts.GroupRows {
		return nil
	}
	w.bytes, w.rows = 0, 0
	if err := w.file.endGroup(); err != nil {
		return fmt.Errorf("writing Parquet: ending a row group: %w", err)
	}
	return nil
}

// Close writes the footer, see format.Writer.
func (w *Writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	if w.file == nil {
		if err := w.begin(make([]bool, w.stored.NumFields())); err != nil {
			return err
		}
	}
	if err := w.file.close(); err != nil {
		return fmt.Errorf("writing Parquet: ending the file: %w", err)
	}
	return nil
}
