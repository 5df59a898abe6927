package main

import (
	"context"
	"database/sql"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	_ "github.com/duckdb/duckdb-go/v2" // registers the driver
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Outputs are compared by DuckDB, which reads both sides with declared types. A relation is what can stand behind FROM in its SQL.

// csvRelation reads a CSV with a header. An empty text in quotes is a text, without quotes it is NULL.
func csvRelation(path string, cols []column) string {
	return "read_csv(" + quoteSQL(path) + ", header=true, auto_detect=false, delim=',', quote='\"', escape='\"', nullstr='', " +
		"allow_quoted_nulls=false, columns={" + duckColumns(cols) + "})"
}

func jsonlRelation(path string, cols []column) string {
	return "read_json(" + quoteSQL(path) + ", format='newline_delimited', columns={" + duckColumns(cols) + "})"
}

func parquetRelation(path string) string { return "read_parquet(" + quoteSQL(path) + ")" }

func duckColumns(cols []column) string {
	return join(cols, func(c column) string { return c.name + ": " + quoteSQL(c.duckdb) })
}

func quoteSQL(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// exceptRows is up to how many rows both sides are compared row by row; more by a digest, which needs no memory.
const exceptRows = 3_000_000

// sameRelations says where two relations differ: in a column's type, in the number of rows, or in any value of any row. Order means
// nothing.
// before are statements that come first, such as ATTACH.
func sameRelations(ctx context.Context, cols []column, want, got string, before ...string) (err error) {
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	for _, s := range append([]string{"set timezone = 'UTC'", "set memory_limit = '4GB'", "set preserve_insertion_order = false"},
		before...) {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%w, in: %s", err, s)
		}
	}
	one := func(s string) (found string, err error) {
		if err := db.QueryRowContext(ctx, s).Scan(&found); err != nil {
			return "", fmt.Errorf("%w, in: %s", err, s)
		}
		return found, nil
	}
	names := join(cols, func(c column) string { return c.name })
	types, err := one("select string_agg(column_name || ' ' || column_type, ', ') from (describe select " + names + " from " + got + ")")
	if err != nil {
		return err
	}
	if declared := join(cols, func(c column) string { return c.name + " " + c.duckdb }); types != declared {
		return fmt.Errorf("types differ: %s; %s", types, declared)
	}
	digest := "select count(*)::varchar || ' rows, ' || coalesce(sum(hash(row(" + names + ")))::varchar, '') from "
	a, err := one(digest + want)
	if err != nil {
		return err
	}
	b, err := one(digest + got)
	if err != nil {
		return err
	}
	if a != b || strings.HasPrefix(a, "0 rows") {
		return fmt.Errorf("values differ: %s; %s", a, b)
	}
	if n, err := strconv.Atoi(strings.Fields(a)[0]); err != nil || n > exceptRows {
		return err
	}
	except := func(a, b string) string {
		return fmt.Sprintf("select (count(*) || ' ' || coalesce(min(r::varchar), '')) from (select (%[1]s) r from (select %[1]s from "+
			"%[2]s except all "+
			"select %[1]s from %[3]s))", names, a, b)
	}
	for _, s := range []string{except(want, got), except(got, want)} {
		if found, err := one(s); err != nil || found != "0 " {
			return errors.Join(err, fmt.Errorf("values differ: %s, in: %s", found, s))
		}
	}
	return nil
}

// exportTable writes a table of Postgres as CSV, and returns it as a relation.
func exportTable(ctx context.Context, dir, server, table string, cols []column) (relation string, err error) {
	f, err := os.Create(filepath.Join(dir, "exported.csv"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	conn, err := connect(ctx, server)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // all was read
	_, err = conn.PgConn().CopyTo(ctx, f, "copy (select "+join(cols, func(c column) string { return c.name })+" from "+table+
		") to stdout (format csv, header, force_quote (name))")
	return csvRelation(f.Name(), cols), err
}

// exportSQLite writes a table of an SQLite file as CSV, and returns it as a relation. NULL has no quotes, and no column has empty texts.
func exportSQLite(dir, file, table string, cols []column) (relation string, err error) {
	conn, err := sqlite.OpenConn(file, sqlite.OpenReadOnly)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	f, err := os.Create(filepath.Join(dir, "exported-sqlite.csv"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := csv.NewWriter(f)
	line := make([]string, len(cols))
	for i, c := range cols {
		line[i] = c.name
	}
	if err := w.Write(line); err != nil {
		return "", err
	}
	err = sqlitex.ExecuteTransient(conn, "select "+strings.Join(line, ", ")+" from "+table,
		&sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			for i := range line {
				line[i] = s.ColumnText(i)
				if s.ColumnType(i) == sqlite.TypeFloat { // text of SQLite has 15 digits
					line[i] = strconv.FormatFloat(s.ColumnFloat(i), 'g', -1, 64)
				}
			}
			return w.Write(line)
		}})
	w.Flush()
	return csvRelation(f.Name(), cols), errors.Join(err, w.Error())
}
