package mysql

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// tableInfo is what the catalogue says of a table or view.
type tableInfo struct {
	rel     relation
	view    bool
	engine  string
	rows    int64 // estimates; -1: unknown
	bytes   int64
	columns []sourceColumn // all, in the table's order; how they are read is not decided yet, see carry
	key     []string       // the best key: the primary one, or a unique one whose columns are never NULL; nil: none
	index   string         // of the key
}

// snapshots reports whether reads of the table see one state of it. Other engines have no transactions.
func (t *tableInfo) snapshots() bool {
	switch strings.ToLower(t.engine) {
	case "innodb", "rocksdb", "tokudb":
		return true
	}
	return false
}

// ownDatabases are the server's own databases.
func ownDatabases() []string {
	return []string{"mysql", "information_schema", "performance_schema", "sys"}
}

const tablesSQL = `SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS, DATA_LENGTH FROM information_schema.TABLES
WHERE TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') AND TABLE_TYPE IN (%s)%s
ORDER BY TABLE_SCHEMA, TABLE_NAME`

// readTables lists the tables and views that the user may see, in one database or (empty) in all but the server's own. Columns and keys
// are read by describe.
func readTables(ctx context.Context, q querier, database string) ([]tableInfo, error) {
	where, args := "", []any(nil)
	if database != "" {
		where, args = " AND TABLE_SCHEMA = ?", []any{database}
	}
	kinds := "'BASE TABLE', 'VIEW', 'SYSTEM VERSIONED'"
	rows, err := ask(ctx, q, fmt.Sprintf(tablesSQL, kinds, where), args...)
	if err != nil {
		return nil, err
	}
	out := make([]tableInfo, 0, len(rows))
	for _, r := range rows {
		t := tableInfo{
			rel: relation{database: string(r[0]), name: string(r[1])}, view: string(r[2]) == "VIEW", engine: string(r[3]),
			rows: toInt(r[4]), bytes: toInt(r[5]),
		}
		out = append(out, t)
	}
	return out, nil
}

// describe fills columns and key of one table in. A table that does not exist has no columns.
func describe(ctx context.Context, q querier, srv server, t *tableInfo) error {
	var err error
	if t.columns, err = readColumns(ctx, q, srv, t.rel); err != nil {
		return err
	}
	t.key, t.index, err = readKey(ctx, q, t.rel)
	return err
}

const columnsSQL = `SELECT COLUMN_NAME, ORDINAL_POSITION, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION,
NUMERIC_SCALE, DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME, EXTRA FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION`

// readColumns reads all columns of one table, also those that SELECT * leaves out.
func readColumns(ctx context.Context, q querier, srv server, rel relation) ([]sourceColumn, error) {
	rows, err := ask(ctx, q, columnsSQL, rel.database, rel.name)
	if err != nil {
		return nil, err
	}
	var checked []string
	if srv.mariadb {
		if checked, err = readChecked(ctx, q, rel); err != nil {
			return nil, err
		}
	}
	out := make([]sourceColumn, 0, len(rows))
	for _, r := range rows {
		c := sourceColumn{
			name: string(r[0]), num: int(toInt(r[1])), data: strings.ToLower(string(r[2])), sql: string(r[3]),
			notNull: string(r[4]) == "NO", charset: string(r[9]), collation: string(r[10]),
		}
		c.declare(r[5], r[6], r[7], r[8])
		switch extra := strings.ToUpper(string(r[11])); {
		case strings.Contains(extra, "VIRTUAL GENERATED"):
			c.generated = 'v'
		case strings.Contains(extra, "STORED GENERATED"), strings.Contains(extra, "PERSISTENT"):
			c.generated = 's'
		}
		c.checked = slices.Contains(checked, c.name)
		out = append(out, c)
	}
	return out, nil
}

// declare reads the parameters of the type; numbers are those of the catalogue.
func (c *sourceColumn) declare(length, precision, scale, fraction []byte) {
	lower := strings.ToLower(c.sql)
	c.unsigned = strings.Contains(afterParens(lower), "unsigned")
	switch c.data {
	case "decimal", "numeric":
		c.precision, c.scale = int(max(toInt(precision), 0)), int(max(toInt(scale), 0))
	case "bit":
		c.length = int(max(toInt(precision), 1))
	case "time", "datetime", "timestamp":
		c.scale = int(max(toInt(fraction), 0))
	case "enum", "set":
		c.labels = parseLabels(c.sql)
	case "char", "varchar":
		c.length = int(max(toInt(length), 0))
	case "binary", "varbinary":
		c.length, c.charset, c.collation = int(max(toInt(length), 0)), "", ""
	}
}

// afterParens is what stands behind the parameters of a type.
func afterParens(sql string) string {
	if at := strings.LastIndexByte(sql, ')'); at >= 0 {
		return sql[at+1:]
	}
	return sql
}

// parseLabels reads the labels out of enum('a','b') or set('a','b'). A quote is doubled in there; a backslash escapes.
func parseLabels(sql string) []string {
	var labels []string
	at := strings.IndexByte(sql, '(') + 1
	for at > 0 && at < len(sql) && sql[at] == '\'' {
		var label strings.Builder
		for at++; at < len(sql); at++ {
			switch {
			case sql[at] == '\'' && at+1 < len(sql) && sql[at+1] == '\'':
				at++
				label.WriteByte('\'')
				continue
			case sql[at] == '\\' && at+1 < len(sql):
				at++
				label.WriteByte(unescape(sql[at]))
				continue
			case sql[at] != '\'':
				label.WriteByte(sql[at])
				continue
			}
			break
		}
		labels = append(labels, label.String())
		at++
		if at >= len(sql) || sql[at] != ',' {
			break
		}
		at++
	}
	return labels
}

// unescape is what a backslash and a letter stand for.
func unescape(b byte) byte {
	switch b {
	case '0':
		return 0
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'Z':
		return 0x1a
	}
	return b
}

// jsonCheck is the constraint that MariaDB makes of the type json.
var jsonCheck = regexp.MustCompile("(?i)^json_valid\\(`((?:[^`]|``)+)`\\)$")

// readChecked returns the columns whose text the server checks to be JSON.
func readChecked(ctx context.Context, q querier, rel relation) ([]string, error) {
	rows, err := ask(ctx, q, `SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = ? AND TABLE_NAME = ?`,
		rel.database, rel.name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range rows {
		if m := jsonCheck.FindSubmatch(r[0]); m != nil {
			out = append(out, strings.ReplaceAll(string(m[1]), "``", "`"))
		}
	}
	return out, nil
}

const keysSQL = `SELECT INDEX_NAME, COLUMN_NAME, NULLABLE, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? AND NON_UNIQUE = 0
ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX`

// readKey returns the columns and the name of the best key: the primary one, or else the shortest unique one over whole columns that are
// never NULL.
func readKey(ctx context.Context, q querier, rel relation) (columns []string, name string, err error) {
	rows, err := ask(ctx, q, keysSQL, rel.database, rel.name)
	if err != nil {
		return nil, "", err
	}
	type index struct {
		name    string
		columns []string
		good    bool
	}
	var all []index
	for _, r := range rows {
		if n := len(all); n == 0 || all[n-1].name != string(r[0]) {
			all = append(all, index{name: string(r[0]), good: true})
		}
		x := &all[len(all)-1]
		x.columns = append(x.columns, string(r[1]))
		x.good = x.good && r[1] != nil && (x.name == "PRIMARY" || (string(r[2]) != "YES" && r[3] == nil))
	}
	for _, x := range all {
		switch {
		case x.name == "PRIMARY":
			return x.columns, x.name, nil
		case x.good && (columns == nil || len(x.columns) < len(columns)):
			columns, name = x.columns, x.name
		}
	}
	return columns, name, nil
}
