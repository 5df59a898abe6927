package postgres

import "github.com/leatdata/leat/connector"

// Definition describes the connector for a registry.
func Definition() connector.Definition {
	return connector.Definition{
		Name:  "postgres",
		Title: "PostgreSQL",
		Doc: "Reads tables, views and queries of PostgreSQL 13 and newer in parallel chunks, in full or by a cursor column, or follows " +
			"every change of tables. Writes tables by append, upsert (changes too) or replacement, with the position in the same " +
			"transaction. The source needs CONNECT, USAGE and SELECT, and REPLICATION to follow.",
		Schemes: schemes(),
		Source:  NewSource,
		Sink:    NewSink,
		Types:   TypeRules(),
	}
}
