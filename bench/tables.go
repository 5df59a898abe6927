package main

import (
	"fmt"
	"strings"
)

// column is a column of the tables that jobs move: its type in Postgres and in DuckDB, and an expression for row i of its number, in
// Postgres.
type column struct{ name, postgres, duckdb, value string }

// wide is the table that is copied: ten columns of the usual types.
func wide() []column {
	return []column{
		{"id", "bigint", "BIGINT", "i"},
		{"qty", "int", "INTEGER", "i % 1000"},
		{"price", "float8", "DOUBLE", "i * 0.37"},
		{"amt", "numeric(12,2)", "DECIMAL(12,2)", "i * 0.31"},
		{"name", "text", "VARCHAR", "'customer name number ' || i"},
		{"code", "text", "VARCHAR", "'C' || i % 5000"},
		{"ok", "boolean", "BOOLEAN", "i % 3 = 0"},
		{"ts", "timestamptz", "TIMESTAMP WITH TIME ZONE", "timestamptz '2026-01-01Z' + i * interval '1 second'"},
		{"doc", "jsonb", "JSON", "jsonb_build_object('n', i, 't', 'text ' || i % 100)"},
		{"uid", "uuid", "UUID", "md5(i::text)::uuid"},
	}
}

// narrow is the table whose changes are followed.
func narrow() []column {
	return []column{
		{"id", "bigint", "BIGINT", "i"},
		{"qty", "int", "INTEGER", "i % 1000"},
		{"price", "float8", "DOUBLE", "i * 1.01"},
		{"amt", "numeric(12,2)", "DECIMAL(12,2)", "i * 0.31"},
		{"name", "text", "VARCHAR", "'customer name number ' || i"},
		{"ts", "timestamptz", "TIMESTAMP WITH TIME ZONE", "timestamptz '2026-01-01Z' + i * interval '1 second'"},
	}
}

// fromCSV is what a CSV of the jobs has, as DuckDB's types say it, and the types in Postgres of a table that takes it.
func fromCSV() []column {
	return []column{
		{"id", "bigint", "BIGINT", ""},
		{"qty", "bigint", "BIGINT", ""},
		{"price", "float8", "DOUBLE", ""},
		{"amount", "float8", "DOUBLE", ""},
		{"name", "text", "VARCHAR", ""},
		{"active", "boolean", "BOOLEAN", ""},
		{"created", "timestamp", "TIMESTAMP", ""},
		{"note", "text", "VARCHAR", ""},
	}
}

// join puts together what is said of each column.
func join(cols []column, of func(column) string) string {
	said := make([]string, len(cols))
	for i, c := range cols {
		said[i] = of(c)
	}
	return strings.Join(said, ", ")
}

// definition is what stands between the parentheses of Postgres' CREATE TABLE.
func definition(cols []column) string {
	return join(cols, func(c column) string { return c.name + " " + c.postgres })
}

// values selects rows with numbers in a range, both ends included, in Postgres: numbers, or expressions of SQL. Rows are made one by one:
// no number of them needs memory.
func values(cols []column, from, to any) string {
	return fmt.Sprintf("select %s from (select generate_series((%v)::bigint, (%v)::bigint) i) s",
		join(cols, func(c column) string { return "(" + c.value + ")::" + c.postgres + " as " + c.name }), from, to)
}
