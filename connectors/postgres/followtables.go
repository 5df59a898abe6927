package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// followTable is what the catalogue says of a table that is to be followed, or of one of its partitions.
type followTable struct {
	OID       uint32         `json:"oid"`
	Schema    string         `json:"schema"`
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`     // r table, p partitioned table
	Logged    bool           `json:"logged"`   // its changes are in the log
	Parent    bool           `json:"parent"`   // other tables inherit from it, and it is not partitioned
	Owned     bool           `json:"owned"`    // by a role that the role is a member of
	Secured   bool           `json:"secured"`  // the role sees some rows only
	Identity  string         `json:"identity"` // pg_class.relreplident
	Key       []string       `json:"key"`      // columns of the index that is the replica identity
	Primary   []string       `json:"primary"`  // columns of the primary key
	Unique    string         `json:"unique"`   // an index that would do as replica identity
	Columns   []string       `json:"columns"`
	Stored    []string       `json:"stored"`  // columns that are generated
	Virtual   []string       `json:"virtual"` // columns that are computed by every read
	Ancestors []*followTable `json:"ancestors"`
	Leaves    []*followTable `json:"leaves"` // partitions that have rows
}

func (t *followTable) relation() relation { return relation{schema: t.Schema, name: t.Name} }
func (t *followTable) dataset() string    { return record.JoinName(t.Schema, t.Name) }

// followTableSQL is an expression for a followTable, of a row c of pg_class with its namespace n. An index that is checked only at the
// commit is no replica identity.
const followTableSQL = `pg_catalog.jsonb_build_object('oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname, 'kind', c.relkind,
	'logged', c.relpersistence = 'p' AND c.relkind IN ('r', 'p'), 'owned', pg_catalog.pg_has_role(c.relowner, 'USAGE'),
	'parent', c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid),
	'secured', pg_catalog.row_security_active(c.oid), 'identity', c.relreplident,
	'key', (SELECT x.names FROM indexes x WHERE x.indrelid = c.oid AND x.usable
		AND CASE c.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident ELSE false END LIMIT 1),
	'primary', (SELECT x.names FROM indexes x WHERE x.indrelid = c.oid AND x.usable AND x.indisprimary),
	'unique', (SELECT x.relname FROM indexes x WHERE x.indrelid = c.oid AND x.usable ORDER BY x.indnkeyatts, x.indexrelid LIMIT 1),
	'columns', (SELECT pg_catalog.jsonb_agg(a.attname ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
	'stored', (SELECT pg_catalog.jsonb_agg(a.attname ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = 's'),
	'virtual', (SELECT pg_catalog.jsonb_agg(a.attname ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
		WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = 'v'))`

// followTablesSQL reads tables with their partitions and with what they are partitions of.
const followTablesSQL = `WITH chosen AS (
	SELECT o.oid AS root, o.oid, 'self' AS part FROM pg_catalog.unnest($1::oid[]) o(oid)
	UNION ALL SELECT o.oid, a.relid, 'ancestors' FROM pg_catalog.unnest($1::oid[]) o(oid)
		CROSS JOIN LATERAL pg_catalog.pg_partition_ancestors(o.oid) a(relid) WHERE a.relid <> o.oid
	UNION ALL SELECT o.oid, l.relid, 'leaves' FROM pg_catalog.unnest($1::oid[]) o(oid)
		CROSS JOIN LATERAL pg_catalog.pg_partition_tree(o.oid) l WHERE l.isleaf AND l.relid <> o.oid
), indexes AS (
	SELECT i.indrelid, i.indexrelid, i.indisprimary, i.indisreplident, i.indnkeyatts, x.relname,
		i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT k.nullable AS usable, k.names
	FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
	CROSS JOIN LATERAL (SELECT pg_catalog.jsonb_agg(a.attname ORDER BY u.n) AS names, pg_catalog.bool_or(NOT a.attnotnull) AS nullable
		FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY u(num, n)
		JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.num WHERE u.n <= i.indnkeyatts) k
	WHERE i.indrelid IN (SELECT oid FROM chosen) AND (i.indisunique OR i.indisreplident)
)
SELECT h.root::int8, h.part, ` + followTableSQL + `
FROM chosen h JOIN pg_catalog.pg_class c ON c.oid = h.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY n.nspname, c.relname`

// readFollowTables reads the selected tables, in the order of their names.
func readFollowTables(ctx context.Context, pg *pgconn.PgConn, selected []relationInfo) ([]*followTable, error) {
	oids := make([]string, len(selected))
	for i, r := range selected {
		oids[i] = strconv.FormatUint(uint64(r.oid), 10)
	}
	rows, err := ask(ctx, pg, followTablesSQL, "{"+strings.Join(oids, ",")+"}")
	if err != nil {
		return nil, err
	}
	byOID := map[string]*followTable{}
	var out []*followTable
	read := func(part string, f func(root string, t *followTable)) error {
		for _, r := range rows {
			if string(r[1]) != part {
				continue
			}
			t := new(followTable)
			if err := json.Unmarshal(r[2], t); err != nil {
				return fmt.Errorf("reading a table of the catalogue: %w", err)
			}
			f(string(r[0]), t)
		}
		return nil
	}
	if err := read("self", func(root string, t *followTable) {
		byOID[root] = t
		out = append(out, t)
	}); err != nil {
		return nil, err
	}
	if err := read("ancestors", func(root string, t *followTable) {
		byOID[root].Ancestors = append(byOID[root].Ancestors, t)
	}); err != nil {
		return nil, err
	}
	return out, read("leaves", func(root string, t *followTable) {
		byOID[root].Leaves = append(byOID[root].Leaves, t)
	})
}

// unpublishable says why not all changes of a table can be followed; empty: they can.
func (t *followTable) unpublishable() string {
	for _, part := range append([]*followTable{t}, t.Leaves...) {
		if !part.Logged {
			return part.relation().String() + " is unlogged, temporary or foreign: its changes are not in the log"
		}
	}
	return ""
}

// parts are the table itself, unless its rows are in partitions, and its partitions.
func (t *followTable) parts() []*followTable {
	if t.Kind == "p" {
		return t.Leaves
	}
	return []*followTable{t}
}

// identified reports whether rows that are changed or deleted can be told apart in the log. If not, the server refuses the application's
// updates and deletes as soon as the table is published.
func (t *followTable) identified() bool { return t.Identity == "f" || len(t.Key) > 0 }

// identify is the statement that gives the table a replica identity.
func (t *followTable) identify() string {
	alter := "ALTER TABLE " + t.relation().String() + " REPLICA IDENTITY "
	switch {
	case len(t.Primary) > 0:
		return alter + "DEFAULT;"
	case t.Unique != "":
		return alter + "USING INDEX " + ident(t.Unique) + ";"
	}
	return alter + "FULL;"
}

// refused says why the table must not be published, and the statements that change that; empty: it may be.
func (f *followFacts) refused(t *followTable) (why string, fix []string) {
	mixed := t.Identity == "f" && slices.ContainsFunc(t.Leaves, func(l *followTable) bool { return l.Identity != "f" })
	for _, part := range t.parts() {
		switch {
		case !part.identified():
			why = "it has no replica identity: the server would refuse the application's updates and deletes once it is published"
			fix = append(fix, part.identify())
		case mixed && part.Identity != "f": // the server would call what it has of the old row, its key, the whole row
			why = "its replica identity is FULL, and that of some partitions is not"
			fix = append(fix, "ALTER TABLE "+part.relation().String()+" REPLICA IDENTITY FULL;")
		case f.Version < generatedVersion || part.Identity != "f":
		case len(part.Virtual) > 0, len(part.Stored) > 0 && !f.generated():
			why = "its replica identity is FULL, with generated columns that are not published: the server would refuse the " +
				"application's updates and deletes"
			fix = append(fix, f.narrow(part))
		}
	}
	if t.Kind == "p" && !t.identified() {
		if why == "" {
			why = "it has no replica identity, and its next partition would have none: the server would refuse updates and deletes there"
		}
		fix = append([]string{t.identify()}, fix...)
	}
	return why, fix
}

// narrow is the statement for a table whose identity can't be FULL as it is.
func (f *followFacts) narrow(t *followTable) string {
	switch {
	case len(t.Virtual) == 0:
		return fmt.Sprintf("ALTER PUBLICATION %s SET (publish_generated_columns = stored);", ident(f.name))
	case len(t.Primary) > 0 || t.Unique != "":
		return t.identify()
	}
	return "give " + t.relation().String() + " a primary key, then: ALTER TABLE " + t.relation().String() + " REPLICA IDENTITY DEFAULT;"
}

// generated reports whether the publication that there is, or that leat would make, sends generated columns.
func (f *followFacts) generated() bool {
	if f.publication == nil || (f.publication.ours() && f.publication.plain()) {
		return f.Version >= generatedVersion
	}
	return f.publication.Generated == "s"
}

// identities is about the replica identity of the tables.
func (f *followFacts) identities() []connector.Probe {
	p := connector.Probe{Name: "replica identity", Detail: "every table has one"}
	var refused, fixes, full, alters []string
	for _, t := range f.tables {
		if why := t.unpublishable(); why != "" {
			refused, fixes = append(refused, t.dataset()+": "+why), append(fixes, "leave "+t.dataset()+" out: tables=…,!"+t.dataset())
			continue
		}
		why, fix := f.refused(t)
		if why != "" {
			refused, fixes = append(refused, t.dataset()+": "+why), append(fixes, fix...)
			continue
		}
		if t.Identity == "f" && len(t.Primary) == 0 {
			full = append(full, t.dataset())
			alters = append(alters, "ALTER TABLE "+t.relation().String()+" ADD PRIMARY KEY (…);")
		}
	}
	if len(refused) > 0 {
		p.Status, p.Detail = connector.Fail, strings.Join(refused, "; ")+". Or leave them out with tables=…,!NAME"
		p.Fix = strings.Join(fixes, "\n")
	}
	out := []connector.Probe{p}
	if len(full) > 0 {
		out = append(out, connector.Probe{
			Name: "keys", Status: connector.Warn, Fix: strings.Join(alters, "\n"),
			Detail: "without a key, so that a change finds its row by all columns, and equal rows are one as good as the other: " +
				strings.Join(full, ", "),
		})
	}
	return out
}

// leftOut is about columns whose changes are not sent.
func (f *followFacts) leftOut() connector.Probe {
	p := f.publication
	if p == nil || (p.ours() && p.plain()) { // as it will be
		p = &publication{Generated: map[bool]string{true: "s"}[f.generated()]}
	}
	var left []string
	lists := false
	for _, t := range f.tables {
		sent := p.sends(t)
		var missing []string
		for _, c := range t.Columns {
			if !slices.Contains(sent, c) && (f.columns == nil || slices.Contains(f.columns, c)) {
				missing = append(missing, c)
				lists = lists || (!slices.Contains(t.Stored, c) && !slices.Contains(t.Virtual, c))
			}
		}
		if len(missing) > 0 {
			left = append(left, fmt.Sprintf("%s (%s)", t.dataset(), strings.Join(missing, ", ")))
		}
	}
	if len(left) == 0 {
		return connector.Probe{Name: "columns", Detail: "all are sent"}
	}
	out := connector.Probe{Name: "columns", Status: connector.Warn, Detail: "not sent, and so left out of copy and changes: " +
		strings.Join(left, ", ")}
	switch {
	case lists:
		out.Fix = "add them to the publication's list of columns, if they are wanted"
	case f.Version >= generatedVersion && !f.generated():
		out.Fix = fmt.Sprintf("ALTER PUBLICATION %s SET (publish_generated_columns = stored);", ident(f.name))
	default:
		out.Fix = "nothing, if the target computes generated columns itself; PostgreSQL 18 sends those that are stored"
	}
	return out
}

// rowSecurity is about tables of which the role sees some rows only: the copy would have those, and the changes those of all.
func (f *followFacts) rowSecurity() connector.Probe {
	var hidden []string
	for _, t := range f.tables {
		if t.Secured {
			hidden = append(hidden, t.dataset())
		}
	}
	if len(hidden) == 0 {
		return connector.Probe{}
	}
	return connector.Probe{
		Name: "row security", Status: connector.Fail, Fix: fmt.Sprintf("ALTER ROLE %s BYPASSRLS;", ident(f.Role)),
		Detail: fmt.Sprintf("policies hide rows of %s from %s, but not their changes", strings.Join(hidden, ", "), f.Role),
	}
}
