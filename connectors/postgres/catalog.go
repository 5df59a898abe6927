package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// typesSQL reads types and all that they are made of: domains down to their base, arrays down to their elements.
const typesSQL = `
WITH RECURSIVE t AS (
	SELECT y.* FROM pg_catalog.pg_type y WHERE y.oid = ANY ($1::oid[])
	UNION
	SELECT y.* FROM t JOIN pg_catalog.pg_type y ON y.oid IN (t.typbasetype, CASE WHEN t.typcategory = 'A' THEN t.typelem END)
)
SELECT t.oid, n.nspname, t.typname, pg_catalog.format_type(t.oid, -1), t.typtype, t.typbasetype, t.typtypmod,
	CASE WHEN t.typtype = 'b' AND s.proname = 'array_send' THEN t.typelem ELSE 0 END,
	CASE WHEN sn.nspname = 'pg_catalog' THEN s.proname ELSE sn.nspname || '.' || s.proname END,
	pg_catalog.quote_ident(o_n.nspname) || '.' || pg_catalog.quote_ident(o.proname),
	(SELECT x_n.nspname FROM pg_catalog.pg_opclass x JOIN pg_catalog.pg_am m ON m.oid = x.opcmethod AND m.amname = 'btree'
		JOIN pg_catalog.pg_amop p ON p.amopfamily = x.opcfamily AND p.amopstrategy = 5
			AND p.amoplefttype = x.opcintype AND p.amoprighttype = x.opcintype
		JOIN pg_catalog.pg_operator g ON g.oid = p.amopopr JOIN pg_catalog.pg_namespace x_n ON x_n.oid = g.oprnamespace
		WHERE x.opcintype = t.oid AND x.opcdefault AND x_n.nspname <> 'pg_catalog'),
	(SELECT pg_catalog.json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid)
FROM t
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_proc s ON s.oid = t.typsend
LEFT JOIN pg_catalog.pg_namespace sn ON sn.oid = s.pronamespace
JOIN pg_catalog.pg_proc o ON o.oid = t.typoutput
JOIN pg_catalog.pg_namespace o_n ON o_n.oid = o.pronamespace`

// readTypes reads the types of the columns. The session's search_path must be pg_catalog, so that names come out qualified.
func readTypes(ctx context.Context, conn *pgconn.PgConn, cols []sourceColumn) (serverTypes, error) {
	oids := make([]string, len(cols))
	for i, c := range cols {
		oids[i] = strconv.FormatUint(uint64(c.typ), 10)
	}
	slices.Sort(oids)
	rows, err := ask(ctx, conn, typesSQL, "{"+strings.Join(slices.Compact(oids), ",")+"}")
	if err != nil {
		return nil, err
	}
	types := make(serverTypes, len(rows))
	for _, r := range rows {
		t := &serverType{
			oid: toOID(r[0]), schema: string(r[1]), name: string(r[2]), sql: string(r[3]), kind: r[4][0], base: toOID(r[5]),
			baseMod: int32(toInt(r[6])), elem: toOID(r[7]), send: string(r[8]), output: string(r[9]), operators: string(r[10]),
		}
		if r[11] != nil {
			if err := json.Unmarshal(r[11], &t.labels); err != nil {
				return nil, fmt.Errorf("labels of %s: %w", t.sql, err)
			}
		}
		types[t.oid] = t
	}
	return types, nil
}

// relationInfo is what the catalogue says of a table or view that may be read.
type relationInfo struct {
	oid       uint32
	rel       relation
	kind      byte // r table, p partitioned table, v view, m materialised view, f foreign table
	parents   []uint32
	inherited bool // other tables inherit its columns and rows, and it is not partitioned
	partition bool // of a partitioned table
	logged    bool // its changes go through the log
	rows      int64
	bytes     int64
	pages     int64
}

// relationsSQL lists tables and views outside of the server's own schemas: of those that the role may use, or of the others. It opens no
// table, and so waits for no lock.
const relationsSQL = `
SELECT c.oid, n.nspname, c.relname, c.relkind,
	(SELECT pg_catalog.json_agg(i.inhparent::int8) FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid),
	c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid), c.relispartition, c.relpersistence = 'p'
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
	AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') = $1::bool
ORDER BY n.nspname, c.relname`

const blockSize = 8192

func readRelations(ctx context.Context, conn *pgconn.PgConn) ([]relationInfo, error) {
	return readRelationsThat(ctx, conn, "true")
}

// readRelationsThat returns the relations of schemas that the role may use, or of those that it may not.
func readRelationsThat(ctx context.Context, conn *pgconn.PgConn, usable string) ([]relationInfo, error) {
	rows, err := ask(ctx, conn, relationsSQL, usable)
	if err != nil {
		return nil, err
	}
	out := make([]relationInfo, len(rows))
	for i, r := range rows {
		out[i] = relationInfo{
			oid: toOID(r[0]), rel: relation{schema: string(r[1]), name: string(r[2])}, kind: r[3][0], inherited: isTrue(r[5]),
			partition: isTrue(r[6]), logged: isTrue(r[7]), rows: -1, bytes: -1,
		}
		if r[4] != nil {
			if err := json.Unmarshal(r[4], &out[i].parents); err != nil {
				return nil, fmt.Errorf("parents of %s: %w", out[i].rel, err)
			}
		}
	}
	return out, nil
}

// sizesSQL estimates as the server's planner does: the rows per block of the last ANALYZE, times the blocks there are now. A
// partitioned table is the sum of its partitions.
const sizesSQL = `
SELECT r.oid, pg_catalog.sum(CASE WHEN l.relpages > 0 AND l.reltuples >= 0
		THEN l.reltuples::float8 / l.relpages * (pg_catalog.pg_relation_size(l.oid) / pg_catalog.current_setting('block_size')::int8)
		WHEN pg_catalog.pg_relation_size(l.oid) = 0 THEN 0 END)::int8,
	pg_catalog.sum(pg_catalog.pg_table_size(l.oid))::int8,
	pg_catalog.sum(pg_catalog.pg_relation_size(l.oid) / pg_catalog.current_setting('block_size')::int8)::int8
FROM pg_catalog.pg_class r CROSS JOIN LATERAL (
	SELECT r.oid WHERE r.relkind <> 'p'
	UNION ALL SELECT p.relid FROM pg_catalog.pg_partition_tree(r.oid) p WHERE r.relkind = 'p' AND p.isleaf
) leaf JOIN pg_catalog.pg_class l ON l.oid = leaf.oid AND l.relkind IN ('r', 'm')
WHERE r.oid = ANY ($1::oid[]) GROUP BY r.oid`

// readSizes fills the estimates of relations in.
func readSizes(ctx context.Context, conn *pgconn.PgConn, relations []relationInfo, oids []string) error {
	rows, err := ask(ctx, conn, sizesSQL, "{"+strings.Join(oids, ",")+"}")
	if err != nil {
		return err
	}
	for _, r := range rows {
		i := slices.IndexFunc(relations, func(x relationInfo) bool { return x.oid == toOID(r[0]) })
		if r[1] != nil {
			relations[i].rows = toInt(r[1])
		}
		relations[i].bytes, relations[i].pages = toInt(r[2]), toInt(r[3])
	}
	return nil
}

// columnsSQL reads the columns of relations. A text is ordered by its bytes where its collation says so; the database's own collation
// has a provider only since version 15.
const columnsSQL = `
SELECT a.attrelid, a.attname, a.atttypid, a.atttypmod, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,
	a.attgenerated <> '' OR a.attidentity = 'a', pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
	a.attnum, a.attgenerated,
	CASE WHEN o.collprovider <> 'd' THEN pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(o.collname) END,
	CASE o.collprovider WHEN 'b' THEN true WHEN 'c' THEN o.collcollate IN ('C', 'POSIX')
		WHEN 'd' THEN coalesce(d.doc->>'datlocprovider', 'c') = 'b'
			OR (coalesce(d.doc->>'datlocprovider', 'c') = 'c' AND d.doc->>'datcollate' IN ('C', 'POSIX')) END,
	CASE WHEN a.atthasmissing THEN pg_catalog.array_to_string(a.attmissingval, '')
		WHEN r.relkind = 'p' THEN (SELECT pg_catalog.array_to_string(l.attmissingval, '') FROM pg_catalog.pg_partition_tree(r.oid) p
			JOIN pg_catalog.pg_attribute l ON l.attrelid = p.relid AND l.attname = a.attname WHERE l.atthasmissing LIMIT 1) END
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class r ON r.oid = a.attrelid
LEFT JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = o.collnamespace
CROSS JOIN (SELECT pg_catalog.to_jsonb(d) AS doc FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) d
WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum`

// catalogColumn is a column and whether the role may read it.
type catalogColumn struct {
	sourceColumn
	readable bool
}

func readColumns(ctx context.Context, conn *pgconn.PgConn, oids []string) (map[uint32][]catalogColumn, error) {
	rows, err := ask(ctx, conn, columnsSQL, "{"+strings.Join(oids, ",")+"}")
	if err != nil {
		return nil, err
	}
	out := map[uint32][]catalogColumn{}
	for _, r := range rows {
		c := sourceColumn{
			name: string(r[1]), typ: toOID(r[2]), mod: int32(toInt(r[3])), sql: string(r[4]), notNull: isTrue(r[5]), always: isTrue(r[6]),
			num: int(toInt(r[8])), collation: string(r[10]), missing: r[12],
			bytewise: isTrue(r[11]) && conn.ParameterStatus("server_encoding") == "UTF8",
		}
		if len(r[9]) > 0 {
			c.generated = r[9][0]
		}
		rel := toOID(r[0])
		out[rel] = append(out[rel], catalogColumn{sourceColumn: c, readable: isTrue(r[7])})
	}
	return out, nil
}

// keysSQL reads the columns of primary keys, and of unique indexes that are as good: valid, whole, immediate, over columns that
// are never NULL.
const keysSQL = `
SELECT i.indrelid, (SELECT pg_catalog.json_agg(a.attname ORDER BY k.n)
	FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY k(num, n)
	JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num WHERE k.n <= i.indnkeyatts)
FROM pg_catalog.pg_index i
WHERE i.indrelid = ANY ($1::oid[]) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
	AND NOT EXISTS (SELECT FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY k(num, n)
		JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
		WHERE k.n <= i.indnkeyatts AND NOT a.attnotnull)
	AND EXISTS (SELECT FROM pg_catalog.pg_am m JOIN pg_catalog.pg_class c ON c.relam = m.oid
		WHERE c.oid = i.indexrelid AND m.amname = 'btree')
ORDER BY i.indrelid, i.indisprimary DESC, i.indimmediate DESC, i.indnkeyatts, i.indexrelid`

// readKeys returns the best key of each relation.
func readKeys(ctx context.Context, conn *pgconn.PgConn, oids []string) (map[uint32][]string, error) {
	rows, err := ask(ctx, conn, keysSQL, "{"+strings.Join(oids, ",")+"}")
	if err != nil {
		return nil, err
	}
	out := map[uint32][]string{}
	for _, r := range rows {
		rel := toOID(r[0])
		if out[rel] != nil {
			continue
		}
		var names []string
		if err := json.Unmarshal(r[1], &names); err != nil {
			return nil, fmt.Errorf("reading a key: %w", err)
		}
		out[rel] = names
	}
	return out, nil
}

func toInt(b []byte) int64 {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func toOID(b []byte) uint32 {
	n, err := strconv.ParseUint(string(b), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

func isTrue(b []byte) bool { return string(b) == "t" }
