package duckdb

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
)

// Changes, and rows of several datasets in turn, are gathered up to these bounds before they are applied.
const (
	gatherRows  = 131_072
	gatherBytes = 32 << 20
	rowGroup    = 122_880 // rows, DuckDB's own
)

// schemes are the URL schemes of the connector.
func schemes() []string { return []string{"duckdb"} }

// Definition returns the connector, for a registry.
func Definition() connector.Definition {
	return connector.Definition{
		Name:  "duckdb",
		Title: "DuckDB",
		Doc: "Reads and writes DuckDB database files, with nothing to install. A source reads tables, views or a query; a sink appends, " +
			"upserts and deletes by key, or replaces, with rows and position in one transaction. A file has one writing process at a time.",
		Schemes:    schemes(),
		Extensions: []string{".duckdb", ".ddb"},
		Source:     func() connector.SourceConfig { return &SourceConfig{} },
		Sink:       func() connector.SinkConfig { return &SinkConfig{} },
		Types:      typeRules(),
	}
}

// Database is what source and sink have in common.
type Database struct {
	Path        string `leat:"path,required" doc:"the database file" example:"lake.duckdb"`
	MemoryLimit string `leat:"memory_limit" doc:"how much memory DuckDB may use; empty: 128 MB" example:"1GB"`
	Threads     int    `leat:"threads" doc:"how many threads DuckDB may use; 0: all cores"`
}

// SourceConfig is the configuration of a source.
type SourceConfig struct {
	Database
	Table   string   `leat:"table" doc:"one table or view; schema.table where it is not in main" example:"orders"`
	Tables  []string `leat:"tables" doc:"patterns of tables, * and ?, a leading ! takes away; empty: all tables" example:"*,!tmp_*"`
	Query   string   `leat:"query" doc:"a SELECT instead of tables; the dataset is named by the option dataset"`
	Dataset string   `leat:"dataset" doc:"the dataset's name for a query; empty: query"`
	Columns []string `leat:"columns" doc:"only these columns, in this order"`
	Where   string   `leat:"where" doc:"only rows for which this SQL condition holds" example:"amount > 0"`
}

// SinkConfig is the configuration of a sink.
type SinkConfig struct {
	Database
	Table  string `leat:"table" doc:"the table to write, where the pipeline has one dataset; empty: the dataset's name"`
	Schema string `leat:"schema" doc:"the schema to write to; empty: the dataset's, where public and main are both main"`
}

var (
	_ connector.SourceConfig = (*SourceConfig)(nil)
	_ connector.SinkConfig   = (*SinkConfig)(nil)
	_ connector.URLSetter    = (*SourceConfig)(nil)
	_ connector.URLSetter    = (*SinkConfig)(nil)
)

// SetURL implements connector.URLSetter.
func (c *SourceConfig) SetURL(raw string) error { return setURL(c, &c.Database, raw) }

// SetURL implements connector.URLSetter.
func (c *SinkConfig) SetURL(raw string) error { return setURL(c, &c.Database, raw) }

func setURL(cfg any, db *Database, raw string) error {
	path, options, err := sqlgen.FileURL(raw, schemes())
	if err != nil {
		return configError(err, "write it as duckdb:FILE?table=NAME")
	}
	if err := connector.SetOptions(cfg, options); err != nil {
		return configError(err, "leat connectors duckdb lists the options")
	}
	db.Path = path
	return nil
}

func configError(err error, hint string) error {
	return &connector.Error{Class: connector.ClassConfig, Code: "duckdb.config", Doing: "configuring duckdb", Err: err, Hint: hint}
}

func (d *Database) validate() error {
	if d.Path == "" {
		return configError(errors.New("no file is named"), "write it as duckdb:FILE")
	}
	return nil
}

// Contract implements connector.SourceConfig.
func (c *SourceConfig) Contract() (connector.SourceContract, error) {
	contract := connector.SourceContract{Replay: connector.Deterministic, Bounded: true}
	if err := c.validate(); err != nil {
		return contract, err
	}
	chosen := 0
	for _, set := range []bool{c.Table != "", len(c.Tables) > 0, c.Query != ""} {
		if set {
			chosen++
		}
	}
	if chosen > 1 {
		return contract, configError(errors.New("more than one of table, tables and query"), "name one of them")
	}
	return contract, nil
}

// Identity implements connector.SourceConfig.
func (c *SourceConfig) Identity() map[string]string {
	return map[string]string{
		"path": c.Path, "table": c.Table, "tables": strings.Join(c.Tables, ","), "query": c.Query,
		"columns": strings.Join(c.Columns, ","), "where": c.Where,
	}
}

// Contract implements connector.SinkConfig.
func (c *SinkConfig) Contract() (connector.SinkContract, error) {
	return connector.SinkContract{
		Modes: []connector.WriteMode{connector.Append, connector.Upsert, connector.Replace}, Input: connector.Changelog,
		Atomicity: connector.PositionInTransaction, Durable: true, NeedsKey: true, Keyless: true,
		// A commit of one row looks through the keys of the whole table, as one of ten thousand does.
		// What a commit leaves of a row group is written once more by the next checkpoint, and with it the row groups beside it.
		Every: time.Second, Bytes: gatherBytes, RowGroup: rowGroup,
	}, c.validate()
}

// Identity implements connector.SinkConfig.
func (c *SinkConfig) Identity() map[string]string {
	return map[string]string{"path": c.Path, "table": c.Table, "schema": c.Schema}
}

func wrap(err error, doing, dataset, hint string) error {
	if err == nil {
		return nil
	}
	if _, known := errors.AsType[*connector.Error](err); known {
		return err
	}
	e := &connector.Error{
		Class: connector.ClassPermanent, Code: "duckdb.error", Doing: "duckdb: " + doing, Dataset: dataset,
		Err: err, Hint: hint,
	}
	msg := err.Error()
	switch {
	case strings.Contains(msg, "Could not set lock"):
		e.Class, e.Code = connector.ClassTransient, "duckdb.locked"
		e.Hint = "another process has the file open: end it, or let it finish"
	case strings.Contains(msg, "No space left"):
		e.Code, e.Hint = "duckdb.full", "make room on the disk and run the same command again: it goes on where it was"
	case strings.Contains(msg, "No such file") || strings.Contains(msg, "does not exist"):
		e.Code = "duckdb.missing"
	case strings.Contains(msg, "Constraint Error"):
		e.Code, e.Hint = "duckdb.constraint", "the table refuses a row: mend it, or drop the constraint"
	}
	return e
}

func columnsMissing(dataset string, missing []string) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "duckdb.columns", Doing: "duckdb: selecting columns", Dataset: dataset,
		Err: fmt.Errorf("there is no column %q", missing), Hint: "leat discover shows the columns",
	}
}
