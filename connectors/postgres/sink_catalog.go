package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// table is what the catalogue says about a table that rows go to.
type table struct {
	Kind    string        `json:"kind"` // pg_class.relkind
	Owner   bool          `json:"owner"`
	Comment string        `json:"comment"`
	Columns []tableColumn `json:"columns"`
	Keys    []tableKey    `json:"keys"`

	// The catalogue's rows about its columns, dropped ones too: how many, and which transactions wrote them.
	Attributes int      `json:"attributes"`
	Writers    []string `json:"writers"`

	at relation
}

// tableColumn is a column of a target table.
type tableColumn struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"` // as the server writes it, such as character varying(20) or a domain's name
	Base      baseType `json:"base"` // through domains
	NotNull   bool     `json:"notnull"`
	Default   bool     `json:"default"`
	Identity  string   `json:"identity"`  // a: always, d: by default
	Generated string   `json:"generated"` // s: stored, v: virtual
	Bytewise  bool     `json:"bytewise"`  // equal text is equal bytes: the collation is deterministic
}

// baseType is a type behind its domains.
type baseType struct {
	Name   string    `json:"name"`   // pg_type.typname
	Schema string    `json:"schema"` // pg_catalog for the built-in ones
	Native string    `json:"native"` // with its modifier
	Plain  string    `json:"plain"`  // without: what a cast may name and never cut off
	OID    uint32    `json:"oid"`
	Mod    int32     `json:"mod"`  // modifier; -1: none
	Kind   string    `json:"kind"` // pg_type.typtype: b, e, r, m, c
	Labels []string  `json:"labels"`
	Elem   *baseType `json:"elem"` // arrays
}

// tableKey is a unique index that ON CONFLICT can use, or could but for what Flaw says.
type tableKey struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	Primary bool     `json:"primary"`
	Flaw    string   `json:"flaw"`

	Deferrable bool `json:"deferrable"`
}

// column returns the column of exactly this name.
func (t *table) column(name string) (tableColumn, bool) {
	i := slices.IndexFunc(t.Columns, func(c tableColumn) bool { return c.Name == name })
	if i < 0 {
		return tableColumn{}, false
	}
	return t.Columns[i], true
}

// arbiter returns the unique index on exactly these columns that ON CONFLICT uses; one with a flaw where there is none without, or
// where it would be in the way of the others, as a deferrable one is.
func (t *table) arbiter(columns []string) (tableKey, bool) {
	want := slices.Sorted(slices.Values(columns))
	var found tableKey
	ok := false
	for _, k := range t.Keys {
		if !slices.Equal(slices.Sorted(slices.Values(k.Columns)), want) {
			continue
		}
		if !ok || k.Deferrable || found.Flaw != "" && !found.Deferrable {
			found, ok = k, true
		}
	}
	return found, ok
}

// typeJSON is the SQL that describes the type with the given OID and modifier as a baseType; alias names its row of pg_type.
func typeJSON(alias, oid, mod, elem string) string {
	return fmt.Sprintf(`(SELECT json_build_object('name', %[1]s.typname, 'schema', %[1]sn.nspname, 'native', format_type(%[1]s.oid, %[3]s),
	'plain', format_type(%[1]s.oid, -1),
	'oid', %[1]s.oid::int8, 'mod', %[3]s, 'kind', %[1]s.typtype,
	'labels', (SELECT json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = %[1]s.oid),
	'elem', %[4]s)
	FROM pg_type %[1]s JOIN pg_namespace %[1]sn ON %[1]sn.oid = %[1]s.typnamespace WHERE %[1]s.oid = %[2]s)`, alias, oid, mod, elem)
}

// typeSQL describes the type that SQL calls typ, through domains, as a baseType.
func typeSQL(typ string) string {
	elem := fmt.Sprintf("CASE WHEN y.typcategory = 'A' AND y.typelem <> 0 THEN %s END", typeJSON("el", "y.typelem", "-1", "NULL"))
	return fmt.Sprintf(`WITH RECURSIVE d(oid, depth) AS (SELECT to_regtype(%s)::oid, 0
	UNION ALL SELECT t.typbasetype, d.depth + 1 FROM d JOIN pg_type t ON t.oid = d.oid WHERE t.typtype = 'd')
SELECT %s FROM (SELECT oid FROM d ORDER BY depth DESC LIMIT 1) b`, literal(typ), typeJSON("y", "b.oid", "-1", elem))
}

// tableSQL describes a table as JSON: a table value, or no row where there is none.
func tableSQL(r relation) string {
	elem := fmt.Sprintf("CASE WHEN y.typcategory = 'A' AND y.typelem <> 0 THEN %s END",
		typeJSON("el", "y.typelem", "b.mod", "NULL"))
	return fmt.Sprintf(`SELECT json_build_object(
'kind', c.relkind,
'owner', pg_has_role(c.relowner, 'USAGE'),
'comment', coalesce(obj_description(c.oid, 'pg_class'), ''),
'attributes', (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0),
'writers', (SELECT json_agg(DISTINCT a.xmin::text) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0),
'columns', (SELECT json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
	'notnull', a.attnotnull OR b.nn, 'default', a.atthasdef OR b.def, 'identity', a.attidentity, 'generated', a.attgenerated,
	'bytewise', coalesce((SELECT l.collisdeterministic FROM pg_collation l WHERE l.oid = a.attcollation), true),
	'base', %[1]s) ORDER BY a.attnum)
	FROM pg_attribute a, LATERAL (
		WITH RECURSIVE d(oid, mod, nn, def, depth) AS (
			SELECT a.atttypid, a.atttypmod, false, false, 0
			UNION ALL
			SELECT t.typbasetype, t.typtypmod, d.nn OR t.typnotnull, d.def OR t.typdefault IS NOT NULL, d.depth + 1
			FROM d JOIN pg_type t ON t.oid = d.oid WHERE t.typtype = 'd')
		SELECT oid, mod, nn, def FROM d ORDER BY depth DESC LIMIT 1) b
	WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
'keys', (SELECT json_agg(json_build_object('name', ic.relname, 'primary', i.indisprimary, 'deferrable', NOT i.indimmediate,
	'columns', (SELECT json_agg(a.attname ORDER BY k.n) FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(num, n)
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.num WHERE k.n <= i.indnkeyatts),
	'flaw', CASE WHEN NOT i.indisvalid THEN 'is not valid' WHEN i.indpred IS NOT NULL THEN 'covers only a part of the rows'
		WHEN NOT i.indimmediate THEN 'is deferrable, which ON CONFLICT can''t use' ELSE '' END) ORDER BY i.indisprimary DESC, ic.relname)
	FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid
	WHERE i.indrelid = c.oid AND i.indisunique AND i.indexprs IS NULL))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %[2]s AND c.relname = %[3]s`, typeJSON("y", "b.oid", "b.mod", elem), literal(r.schema), literal(r.name))
}

// describe reads the catalogue; nil: there is no such relation.
func (s *session) describe(ctx context.Context, r relation) (*table, error) {
	t := &table{at: r}
	ok, err := s.query(ctx, "catalogue", tableSQL(r), t)
	if err != nil || !ok {
		return nil, err
	}
	return t, nil
}

// changedMark is in the error that sameSQL fails with.
const changedMark = "_leat_changed"

// sameSQL fails where the table's columns are no longer what they were when it was described: any change of a column writes its row of
// the catalogue anew. [tableChanged] knows the error.
func (t *table) sameSQL() string {
	return fmt.Sprintf(`SELECT CASE WHEN count(*) = %[1]d AND count(*) FILTER (WHERE xmin = ANY ('{%[2]s}'::xid[])) = %[1]d THEN 0
ELSE (%[3]s || count(*))::int END FROM pg_attribute WHERE attrelid = to_regclass(%[4]s) AND attnum > 0`,
		t.Attributes, strings.Join(t.Writers, ","), literal(changedMark), literal(t.at.String()))
}

// tableChanged reports whether a table was altered or dropped since the plan for it was made: what sameSQL, or the lock in front of
// it, fails with.
func tableChanged(err error) bool {
	e, ok := serverError(err)
	return ok && e.Code == "22P02" && strings.Contains(e.Message, changedMark)
}

// shape tells whether two descriptions of a table mean the same for those who write to it.
func (t *table) shape() (string, error) {
	doc, err := json.Marshal([]any{t.Columns, t.Keys})
	if err != nil {
		return "", fmt.Errorf("describing %s: %w", t.at, err)
	}
	return string(doc), nil
}
