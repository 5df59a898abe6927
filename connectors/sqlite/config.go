package sqlite

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
)

// system is the provenance of columns that were read here.
const system = "sqlite"

const (
	defaultBusyTimeout = 10 * time.Second
	defaultScan        = 200_000
)

// Values of options.
const (
	nullsInclude = "include"
	nullsSkip    = "skip"
	nullsFail    = "fail"
	mixedWiden   = "widen"
	mixedReject  = "reject"
	snapshotPage = "page"
	snapshotRun  = "run"
)

func schemes() []string { return []string{"sqlite", "sqlite3"} }

// Definition describes the connector: sqlite: URLs and files that end in .db, .sqlite or .sqlite3.
func Definition() connector.Definition {
	return connector.Definition{
		Name:  "sqlite",
		Title: "SQLite",
		Doc: "Reads and writes SQLite files, without any other program. Reading never changes a value: each is checked against its " +
			"column's type, as SQLite itself does not. Writing is exact, and keeps rows and position in one transaction. " +
			"The file and its folder must be readable, and writable for a sink. NaN can't be stored; everything else can.",
		Schemes:    schemes(),
		Extensions: []string{".db", ".sqlite", ".sqlite3"},
		Source:     func() connector.SourceConfig { return NewSource() },
		Sink:       func() connector.SinkConfig { return NewSink() },
		Types:      Rules(),
	}
}

// SourceConfig is the configuration of a source over one file. Use NewSource, which sets the defaults.
type SourceConfig struct {
	Path   string   `leat:"path,required" doc:"the database file" example:"app.db"`
	Table  string   `leat:"table" doc:"the table or view to read" example:"orders"`
	Tables []string `leat:"tables" doc:"tables by pattern: * any text, ? a character, ! not; default: all" example:"o*,!*_old"`
	Query  string   `leat:"query" doc:"a SELECT to read instead of tables" example:"SELECT * FROM orders WHERE total > 10"`
	Name   string   `leat:"name" doc:"the dataset's name; of a query, default: query" example:"big_orders"`
	Where  string   `leat:"where" doc:"a condition for every table, in SQL" example:"deleted_at IS NULL"`
	// A view or query with a key can be resumed in its middle.
	Columns []string `leat:"columns" doc:"the columns to read, in this order; default: all" example:"id,name"`
	Key     []string `leat:"key" doc:"columns that identify a row, where the table does not say" example:"id"`

	Cursor string `leat:"cursor" doc:"a column that grows with every change: a run reads what is new" example:"updated_at"`
	Nulls  string `leat:"nulls" doc:"rows without cursor: read (each once), leave out, or fail" enum:"include|skip|fail"`

	Types map[string]string `leat:"types" doc:"column:type, table.column:type or *:type; text takes all values" example:"zip:text"`
	Mixed string            `leat:"mixed" doc:"other values than declared: widen the column, or reject rows" enum:"widen|reject"`
	Scan  int64             `leat:"scan" doc:"how many rows of each table are looked at to find exact types"`

	Snapshot    string        `leat:"snapshot" doc:"a transaction for each page, or one for the run" enum:"page|run"`
	BusyTimeout time.Duration `leat:"busy_timeout" doc:"how long to wait for another program's lock"`
}

// NewSource returns a configuration with the defaults.
func NewSource() *SourceConfig {
	return &SourceConfig{
		Nulls: nullsInclude, Mixed: mixedWiden, Scan: defaultScan, Snapshot: snapshotPage, BusyTimeout: defaultBusyTimeout,
	}
}

var (
	_ connector.SourceConfig = (*SourceConfig)(nil)
	_ connector.URLSetter    = (*SourceConfig)(nil)
)

// SetURL takes a file name or a URL, such as app.db?tables=order* or sqlite:app.db?table=orders.
func (c *SourceConfig) SetURL(raw string) error {
	return setURL(c, &c.Path, raw)
}

func setURL(cfg any, path *string, raw string) error {
	p, options, err := sqlgen.FileURL(raw, schemes())
	if err == nil {
		*path = p
		err = connector.SetOptions(cfg, options)
	}
	if err != nil {
		return configError("sqlite.url", fmt.Sprintf("reading %q", raw), err)
	}
	return nil
}

// Contract says that reading is deterministic, in the order of the row id or of the primary key.
func (c *SourceConfig) Contract() (connector.SourceContract, error) {
	var errs []error
	say := func(bad bool, what string) {
		if bad {
			errs = append(errs, errors.New(what))
		}
	}
	tables := compact(c.Tables)
	say(c.Path == "", "path is missing: name the database file")
	say(c.Table != "" && len(tables) > 0, "table and tables exclude each other")
	say(c.Query != "" && (c.Table != "" || len(tables) > 0), "query excludes table and tables")
	say(c.Query != "" && c.Where != "", "query excludes where: write the condition into the query")
	say(c.Name != "" && c.Table == "" && c.Query == "", "name needs table or query: several tables keep their own names")
	say(c.Scan < 0, "scan is negative")
	for _, col := range slices.Sorted(mapKeys(c.Types)) {
		if _, err := forced(c.Types[col]); err != nil {
			errs = append(errs, fmt.Errorf("types, column %q: %w", col, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return connector.SourceContract{}, configError("sqlite.config", "reading the configuration of an SQLite source", oneLine(errs))
	}
	return connector.SourceContract{Replay: connector.Deterministic, Bounded: true, Incremental: c.Cursor != ""}, nil
}

// oneLine joins errors with semicolons.
func oneLine(errs []error) error {
	parts := make([]string, len(errs))
	for i, e := range errs {
		parts[i] = e.Error()
	}
	return errors.New(strings.Join(parts, "; "))
}

func mapKeys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// compact leaves out empty names: an option that was set to nothing.
func compact(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return strings.TrimSpace(s) == "" })
}

// Identity is the selection: what positions count.
func (c *SourceConfig) Identity() map[string]string {
	id := map[string]string{}
	for k, v := range map[string]string{
		"table": c.Table, "tables": strings.Join(compact(c.Tables), ","), "query": c.Query, "name": c.Name, "where": c.Where,
		"columns": strings.Join(compact(c.Columns), ","), "key": strings.Join(compact(c.Key), ","), "cursor": c.Cursor,
	} {
		if v != "" {
			id[k] = v
		}
	}
	return id
}

// Open builds the source; the file is first looked at by Discover or Start.
func (c *SourceConfig) Open(env connector.Env) (connector.Source, error) {
	if _, err := c.Contract(); err != nil {
		return nil, err
	}
	cfg := *c
	sql := sqlgen.Dialect{Text: sqlgen.QuoteText, Bytes: func(hex string) string { return "x'" + hex + "'" }, Brackets: true}
	err := connector.ResolveParent(&cfg, env.Parent, map[string]connector.ParentText{
		"path": connector.ParentPath, "query": sql.Parent, "where": sql.Parent,
	})
	if err != nil {
		return nil, err
	}
	return &source{cfg: cfg, env: env}, nil
}
