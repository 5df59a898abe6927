package file

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/encoding/htmlindex"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/format/csv"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/record"
)

// Definition returns the connector, for a registry.
func Definition() connector.Definition {
	return connector.Definition{
		Name:  "file",
		Title: "Files",
		Doc: "Reads and writes CSV, JSON Lines, Parquet and Arrow IPC files, one or many, compressed or not, and standard input and " +
			"output (csv:-, jsonl:-). Types are found in the data without losing a value, or declared. Files appear as a whole when the " +
			"run ends; a source goes on at the exact row. With log=true a folder keeps every change, each once and in order, as JSON " +
			"Lines, Parquet or Debezium's events (docs/formats/change-log.md).",
		Schemes:    slices.Sorted(maps.Keys(schemes())),
		Extensions: extensions(),
		Source:     func() connector.SourceConfig { return NewSource("") },
		Sink:       func() connector.SinkConfig { return NewSink("") },
		Types:      typeRules(),
	}
}

// Place is what source and sink have in common.
type Place struct {
	Path        string `leat:"path,required" doc:"a file, a pattern, or a folder/; -: standard input or output" example:"data/*.csv"`
	Format      string `leat:"format" doc:"what the files are; empty: as named; debezium: a log" enum:"|csv|jsonl|parquet|arrow|debezium"`
	Compression string `leat:"compression" doc:"auto: as the content or the name says" enum:"auto|none|gzip|zstd"`
	Delimiter   string `leat:"delimiter" doc:"CSV: such as ; or tab, semicolon, pipe, space; empty: the only one that fits, or a comma"`
	Quote       string `leat:"quote" doc:"CSV: what quotes fields; none: nothing does" example:"'"`
	Header      bool   `leat:"header" doc:"CSV: the first row has the column names"`

	scheme bool // the format is the URL's scheme: a name without ending is a file, not a folder
}

// SourceConfig is the configuration of a source. Make it with [NewSource].
type SourceConfig struct {
	Place
	Escape        string            `leat:"escape" doc:"CSV: what escapes a quote inside quotes; empty: only another quote does"`
	Comment       string            `leat:"comment" doc:"CSV: lines that begin with it are skipped; empty: none" example:"#"`
	Names         []string          `leat:"names" doc:"CSV: the columns of files without header; empty: col_1, col_2 …"`
	Encoding      string            `leat:"encoding" doc:"of the text; a byte order mark wins" example:"windows-1252"`
	Null          []string          `leat:"null" doc:"CSV: text without quotes that is NULL; not given: the empty text" example:"NULL,\\N"`
	Ragged        string            `leat:"ragged" doc:"CSV: with too few or too many fields: a bad row, or the end" enum:"reject|fail"`
	Union         bool              `leat:"union" doc:"CSV: files may lack columns that others have; they are NULL there"`
	Types         map[string]string `leat:"types" doc:"declared column types" example:"id:int64,price:decimal(12,2)"`
	Infer         string            `leat:"infer" doc:"where types are found: 16 MiB (4 of more), all, nothing" enum:"auto|all|none"`
	Dataset       string            `leat:"dataset" doc:"the dataset's name; empty: as the file or folder is called"`
	Datasets      string            `leat:"datasets" doc:"all files are one dataset, or each name its own" enum:"one|per_file"`
	Only          []string          `leat:"only" doc:"with per_file: read only these datasets"`
	Columns       []string          `leat:"columns" doc:"read only these columns, in this order"`
	Key           []string          `leat:"key" doc:"the columns that identify a row" example:"id"`
	MaxLine       int64             `leat:"max_line" doc:"longest row of CSV and JSON Lines, in bytes"`
	DuplicateKeys string            `leat:"duplicate_keys" doc:"JSON Lines: the last counts, or the row is set aside" enum:"last|reject"`

	Stdin io.Reader // what - reads; nil: standard input
}

// SinkConfig is the configuration of a sink. Make it with [NewSink].
type SinkConfig struct {
	Place
	Null       string        `leat:"null" doc:"CSV: what stands for NULL, without quotes; text that is equal to it is quoted"`
	Log        bool          `leat:"log" doc:"keep every change, in a folder; the format is jsonl, parquet or debezium"`
	Every      time.Duration `leat:"every" doc:"log: how long changes are collected before their files appear"`
	FileBytes  int64         `leat:"file_bytes" doc:"log: a file ends when it has this many bytes"`
	MetaPrefix string        `leat:"meta_prefix" doc:"log, Parquet: the beginning of the names of the columns that the log adds"`

	Stdout io.Writer // what - writes; nil: standard output

	fs logFS // nil: the machine's
}

// NewSource returns a configuration with the defaults.
func NewSource(path string) *SourceConfig {
	return &SourceConfig{
		Place:  Place{Path: path, Compression: compressAuto, Header: true},
		Ragged: "reject", Infer: "auto", Datasets: "one", MaxLine: csv.DefaultMaxRow, DuplicateKeys: "last",
	}
}

// NewSink returns a configuration with the defaults.
func NewSink(path string) *SinkConfig {
	return &SinkConfig{
		Place: Place{Path: path, Compression: compressAuto, Header: true},
		Every: defaultLogEvery, FileBytes: defaultLogBytes, MetaPrefix: changelog.DefaultPrefix,
	}
}

// Defaults of a log.
const (
	defaultLogEvery = 10 * time.Second
	defaultLogBytes = 128 << 20
)

var (
	_ connector.SourceConfig = (*SourceConfig)(nil)
	_ connector.SinkConfig   = (*SinkConfig)(nil)
	_ connector.URLSetter    = (*SourceConfig)(nil)
	_ connector.URLSetter    = (*SinkConfig)(nil)
)

func configError(err error, hint string) error {
	if hint == "" {
		hint = "leat connectors file lists the options"
	}
	return &connector.Error{Class: connector.ClassConfig, Code: "file.config", Doing: "configuring file", Err: err, Hint: hint}
}

// std reports whether the path is standard input or output.
func (p *Place) std() bool { return p.Path == "-" }

// folder reports whether the path of a sink is a folder that gets a file for each dataset.
func (p *Place) folder() bool {
	if p.std() || p.Path == "" {
		return false
	}
	_, e, _ := named(p.Path)
	slash := strings.HasSuffix(p.Path, "/") || strings.HasSuffix(p.Path, `\`)
	return slash || p.Path == "." || p.Path == ".." || (e.format == "" && p.Format != "" && !p.scheme)
}

// format is what files of the place are: by option, scheme or name; empty: their own names say.
func (p *Place) format(name string) string {
	if p.Format != "" {
		return p.Format
	}
	_, e, _ := named(name)
	return e.format
}

// delimiter reads the names of delimiters that are hard to type.
func delimiter(s string) string {
	switch strings.ToLower(s) {
	case "tab", `\t`:
		return "\t"
	case "comma":
		return ","
	case "semicolon":
		return ";"
	case "pipe":
		return "|"
	case "space":
		return " "
	}
	return s
}

func (p *Place) validate() error {
	if p.Path == "" {
		return configError(errors.New("no file is named"), "write it as csv:FILE, or FILE.csv")
	}
	if p.std() && p.Format == "" {
		return configError(errors.New("standard input and output have no name that says what they are"), "write it as csv:- or jsonl:-")
	}
	if p.Format == formatDebezium {
		return configError(errors.New("debezium is a format of logs of changes"), "say log=true: file:FOLDER/?log=true&format=debezium")
	}
	if !slices.Contains([]string{"", formatCSV, formatJSONL, formatParquet, formatArrow}, p.Format) {
		return configError(connector.UnknownName("format", p.Format, []string{formatCSV, formatJSONL, formatParquet, formatArrow}), "")
	}
	return nil
}

// Contract implements connector.SourceConfig.
func (c *SourceConfig) Contract() (connector.SourceContract, error) {
	contract := connector.SourceContract{Replay: connector.Deterministic, Bounded: true}
	if c.std() {
		contract.Replay = connector.NoReplay
	}
	return contract, c.validate()
}

func (c *SourceConfig) validate() error {
	if err := c.Place.validate(); err != nil {
		return err
	}
	if c.Encoding != "" {
		if _, err := htmlindex.Get(c.Encoding); err != nil {
			return configError(fmt.Errorf("encoding %q is not known", c.Encoding),
				"common ones are utf-8, utf-16le, windows-1252, iso-8859-15, gbk, shift_jis")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		if _, err := record.ParseType(c.Types[name]); err != nil {
			return configError(fmt.Errorf("type of column %q: %w", name, err), "write it as types=NAME:int64")
		}
	}
	switch {
	case len(c.Names) > 0 && c.Header:
		return configError(errors.New("names are for files without header"), "say header=false, or use columns to choose columns")
	case c.std() && c.Infer == "all":
		return configError(errors.New("standard input can't be looked at as a whole before it is read"),
			"declare types, or say infer=auto")
	case c.std() && c.Format == formatParquet:
		return configError(errors.New("standard input can't be Parquet, whose index stands at the end"), "write it to a file first")
	case len(c.Only) > 0 && c.Datasets != "per_file":
		return configError(errors.New("only chooses among datasets=per_file"), "say datasets=per_file")
	case c.Dataset != "" && c.Datasets == "per_file":
		return configError(errors.New("with datasets=per_file the files name the datasets"), "leave dataset out")
	}
	if c.format(c.Path) == formatCSV {
		return c.dialect().Check()
	}
	return nil
}

func (c *SourceConfig) dialect() csv.Dialect {
	return csv.Dialect{
		Delimiter: delimiter(c.Delimiter), Quote: c.Quote, Escape: c.Escape, Comment: c.Comment, MaxRow: c.MaxLine,
	}
}

// Identity implements connector.SourceConfig.
func (c *SourceConfig) Identity() map[string]string {
	id := c.Place.identity()
	maps.Copy(id, map[string]string{
		"escape": c.Escape, "comment": c.Comment, "names": strings.Join(c.Names, ","), "encoding": c.Encoding, "ragged": c.Ragged,
		"union": strconv.FormatBool(c.Union), "infer": c.Infer, "dataset": c.Dataset, "datasets": c.Datasets,
		"only":    strings.Join(c.Only, ","),
		"columns": strings.Join(c.Columns, ","), "key": strings.Join(c.Key, ","), "duplicate_keys": c.DuplicateKeys,
	})
	if c.Null != nil {
		id["null"] = strings.Join(c.Null, ",")
	}
	for n, t := range c.Types {
		id["type of "+n] = t
	}
	return id
}

func (p *Place) identity() map[string]string {
	return map[string]string{
		"path": p.Path, "format": p.Format, "compression": p.Compression, "delimiter": p.Delimiter, "quote": p.Quote,
		"header": strconv.FormatBool(p.Header),
	}
}

// Open implements connector.SourceConfig.
func (c *SourceConfig) Open(env connector.Env) (connector.Source, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	cfg := *c
	err := connector.ResolveParent(&cfg, env.Parent, map[string]connector.ParentText{"path": connector.ParentPath})
	if err != nil {
		return nil, err
	}
	s := &source{cfg: &cfg, env: env}
	if c.std() {
		return s, nil
	}
	return &Source{source: s}, nil
}

// Contract implements connector.SinkConfig.
func (c *SinkConfig) Contract() (connector.SinkContract, error) {
	if c.Log {
		return c.logContract(), c.validateLog()
	}
	contract := connector.SinkContract{
		Modes: []connector.WriteMode{connector.Replace}, Input: connector.AppendOnly, Atomicity: connector.Whole, Durable: true,
	}
	switch {
	case c.std():
		contract.Modes, contract.Atomicity, contract.Durable = []connector.WriteMode{connector.Append}, connector.NoAtomicity, false
	case c.folder():
		contract.Modes = append(contract.Modes, connector.Append)
	}
	if !c.std() {
		contract.ForChanges = "say log=true, and a folder keeps every change: " + c.logInstead()
	}
	return contract, c.validate()
}

func (c *SinkConfig) validate() error {
	if err := c.Place.validate(); err != nil {
		return err
	}
	if c.format(c.Path) == "" {
		return configError(fmt.Errorf("the name %q does not say which format to write", c.Path), "say format=csv, jsonl, parquet or arrow")
	}
	return nil
}

// Identity implements connector.SinkConfig.
func (c *SinkConfig) Identity() map[string]string {
	if c.Log {
		return map[string]string{"path": c.Path, "format": c.logKind(), "log": "true"}
	}
	id := c.Place.identity()
	id["null"] = c.Null
	return id
}

// Open implements connector.SinkConfig.
func (c *SinkConfig) Open(env connector.Env) (connector.Sink, error) {
	if c.Log {
		if err := c.validateLog(); err != nil {
			return nil, err
		}
		return newLog(c, env), nil
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return newSink(c, env), nil
}

// maxLine is the limit of JSON Lines.
func (c *SourceConfig) maxLine() int64 {
	if c.MaxLine <= 0 {
		return jsonl.DefaultMaxLine
	}
	return c.MaxLine
}
