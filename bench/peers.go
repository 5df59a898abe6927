package main

import "strings"

// peersOf returns the other tools that do a job; those that can't run here say why.
func peersOf(name string, e jobEnv) []contender {
	switch {
	case name == "csv-jsonl":
		return peersCSVJSONL(e)
	case name == "csv-parquet":
		return peersCSVParquet(e)
	case name == "csv-duckdb":
		return peersCSVDuckDB(e)
	case name == "parquet-postgres":
		return peersParquetPostgres(e)
	case strings.HasPrefix(name, "pg-pg"):
		return peersPostgresCopy(e)
	case name == "pg-parquet":
		return peersPostgresParquet(e)
	case name == "stream-discard":
		return peersDiscard(e)
	case strings.HasPrefix(name, "stream-postgres"):
		return peersStreamPostgres(e)
	}
	return nil
}
