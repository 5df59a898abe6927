//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// mainSchema is DuckDB's default schema.
const mainSchema = "main"

// ownPrefix is what all tables that leat keeps for itself start with.
const ownPrefix = "_leat_"

// remark is what the sink writes into a table's comment: a persisted format.
type remark struct {
	Key []string `json:"key,omitempty"`
	For []string `json:"for,omitempty"` // of a replacement that is being written: schema and name of what it will replace
}

const remarkPrefix = "leat:"

// typePrefix starts the comment of a column that is kept as text and stands for another type: what follows is its name, see
// record.FormatType. The source reads it as that type again.
const typePrefix = "leat:type="

func (r remark) String() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("duckdb: remark: %v", err)) // strings always marshal
	}
	return remarkPrefix + string(b)
}

func parseRemark(comment string) remark {
	var r remark
	if s, ok := strings.CutPrefix(comment, remarkPrefix); ok {
		_ = json.Unmarshal([]byte(s), &r) // a comment that somebody edited says nothing
	}
	return r
}

// relation is what is read: a table, a view or a query.
type relation struct {
	dataset string
	table   table
	query   string // instead of a table
	stored  bool   // a table: rows have ids in the order in which they are stored
	rows    int64  // -1: unknown
	remark  remark
	schema  *record.Schema
	casts   []string // one for each column of the schema
}

// relations finds what the configuration selects, in the order of the datasets' names.
func (d *db) relations(ctx context.Context, c *SourceConfig) ([]*relation, error) {
	if c.Query != "" {
		name := c.Dataset
		if name == "" {
			name = "query"
		}
		r := &relation{dataset: name, query: strings.TrimRight(strings.TrimSpace(c.Query), ";"), rows: -1}
		return []*relation{r}, d.describe(ctx, c, r)
	}
	found, err := d.rows(ctx, `SELECT schema_name, table_name, 't', estimated_size::VARCHAR, coalesce(comment, '') FROM
		duckdb_tables() WHERE NOT internal AND NOT temporary
		UNION ALL SELECT schema_name, view_name, 'v', '-1', '' FROM duckdb_views() WHERE NOT internal AND NOT temporary`)
	if err != nil {
		return nil, wrap(err, "listing the tables", "", "")
	}
	byName := map[string]*relation{}
	var names []string
	for _, f := range found {
		r := &relation{table: table{f[0], f[1]}, stored: f[2] == "t", dataset: datasetName(f[0], f[1]), remark: parseRemark(f[4])}
		if strings.HasPrefix(r.table.name, ownPrefix) {
			continue
		}
		if r.rows, err = strconv.ParseInt(f[3], 10, 64); err != nil {
			r.rows = -1
		}
		byName[r.dataset] = r
		names = append(names, r.dataset)
	}
	patterns := c.Tables
	if c.Table != "" {
		patterns = []string{c.Table}
	}
	chosen, err := sqlgen.Select(names, patterns)
	if err != nil {
		return nil, &connector.Error{
			Class: connector.ClassConfig, Code: "duckdb.missing", Doing: "duckdb: selecting tables in " + c.Path, Err: err,
			Hint: "leat discover shows the tables",
		}
	}
	out := make([]*relation, len(chosen))
	for i, n := range chosen {
		out[i] = byName[n]
		if err := d.describe(ctx, c, out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func datasetName(schema, name string) string {
	if schema == mainSchema {
		return record.JoinName(name)
	}
	return record.JoinName(schema, name)
}

func (r *relation) from() string {
	if r.query != "" {
		return "(" + r.query + ")"
	}
	return r.table.sql()
}

// describe works out the schema, and the cast of each column.
func (d *db) describe(ctx context.Context, c *SourceConfig, r *relation) error {
	cols, err := d.rows(ctx, `SELECT column_name, column_type, "null" FROM (DESCRIBE SELECT * FROM `+r.from()+`)`)
	if err != nil {
		return wrap(err, "reading the columns", r.dataset, "")
	}
	if len(c.Columns) > 0 {
		if cols, err = pickColumns(cols, c.Columns, r.dataset); err != nil {
			return err
		}
	}
	noted, err := d.notedTypes(ctx, r)
	if err != nil {
		return err
	}
	fields := make([]arrow.Field, len(cols))
	for i, col := range cols {
		f, transfer, err := fieldOf(col[0], col[1], col[2] != "NO")
		if err != nil {
			return wrap(err, "reading the type of column "+col[0], r.dataset, "")
		}
		if dt, ok := noted[col[0]]; ok && col[1] == "VARCHAR" {
			f.Type = dt
		}
		fields[i] = f
		r.casts = append(r.casts, "CAST("+sqlgen.Ident(col[0])+" AS "+transfer+")")
	}
	r.schema = &record.Schema{Dataset: r.dataset, Columns: arrow.NewSchema(fields, nil), Version: 1}
	key := r.remark.Key
	if r.stored {
		declared, err := d.rows(ctx, `SELECT array_to_string(constraint_column_names, chr(31)) FROM duckdb_constraints()
			WHERE constraint_type = 'PRIMARY KEY' AND schema_name = $1 AND table_name = $2`, r.table.schema, r.table.name)
		if err != nil {
			return wrap(err, "reading the primary key", r.dataset, "")
		}
		if len(declared) > 0 {
			key = strings.Split(declared[0][0], "\x1f")
		}
	}
	if keyed, err := r.schema.WithKey(key...); err == nil { // part of the key may not be selected
		r.schema = keyed
	}
	return r.schema.Validate()
}

// notedTypes reads the types that stand in the comments of a table's columns.
func (d *db) notedTypes(ctx context.Context, r *relation) (map[string]arrow.DataType, error) {
	if !r.stored {
		return nil, nil
	}
	rows, err := d.rows(ctx, `SELECT column_name, comment FROM duckdb_columns() WHERE schema_name = $1 AND table_name = $2
		AND starts_with(comment, '`+typePrefix+`')`, r.table.schema, r.table.name)
	if err != nil {
		return nil, wrap(err, "reading the comments of the columns", r.dataset, "")
	}
	out := map[string]arrow.DataType{}
	for _, c := range rows {
		if dt, err := record.ParseType(strings.TrimPrefix(c[1], typePrefix)); err == nil { // an edited comment says nothing
			out[c[0]] = dt
		}
	}
	return out, nil
}

func pickColumns(cols [][]string, names []string, dataset string) ([][]string, error) {
	var out [][]string
	var missing []string
	for _, n := range names {
		at := slices.IndexFunc(cols, func(c []string) bool { return c[0] == n })
		if at < 0 {
			missing = append(missing, n)
			continue
		}
		out = append(out, cols[at])
	}
	if missing != nil {
		return nil, columnsMissing(dataset, missing)
	}
	return out, nil
}
