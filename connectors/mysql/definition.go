package mysql

import "github.com/leatdata/leat/connector"

// Definition describes the connector for a registry.
func Definition() connector.Definition {
	return connector.Definition{
		Name:  "mysql",
		Title: "MySQL and MariaDB",
		Doc: "Reads tables, views and queries of MySQL 8 and newer and MariaDB 10.6 and newer in parallel chunks without locks, in full " +
			"or by a cursor column, or follows every change of tables by the binary log. Writes tables by append, upsert (changes too) " +
			"or replacement, with the position in the same transaction. The source needs SELECT, and to follow REPLICATION SLAVE and " +
			"REPLICATION CLIENT (MariaDB: BINLOG MONITOR).",
		Schemes: schemes(),
		Source:  NewSource,
		Sink:    NewSink,
		Types:   TypeRules(),
	}
}
