package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// shadowPrefix begins the names of tables that are to replace another one.
const shadowPrefix = "_leat_new_"

// shadowNote is kept as the comment of a shadow: whose it is. A persisted format, see docs/formats/postgres-progress.md.
type shadowNote struct {
	Pipeline string `json:"pipeline"`
	Lane     string `json:"lane"`
	Run      string `json:"run"`
	Schema   string `json:"schema"`
	Table    string `json:"table"`
}

// shadow is a table with the rows that will replace those of another table.
type shadow struct {
	at   relation
	note shadowNote
}

// newShadow names a shadow that is to be made. The fence is part of the name, so that it never waits for one that a late owner is
// about to make.
func (s *Sink) newShadow(at relation) shadow {
	of := []string{s.start.Pipeline, s.start.Lane, s.start.Run, strconv.FormatUint(s.start.Fence, 10), at.schema, at.name}
	return shadow{
		at:   relation{schema: at.schema, name: helperName(shadowPrefix, of...)},
		note: shadowNote{Pipeline: s.start.Pipeline, Lane: s.start.Lane, Run: s.start.Run, Schema: at.schema, Table: at.name},
	}
}

// shadows lists the lane's shadows, of any run.
func (s *Sink) shadows(ctx context.Context) ([]shadow, error) {
	var found []struct{ Schema, Name, Note string }
	sql := fmt.Sprintf(`SELECT json_agg(json_build_object('schema', n.nspname, 'name', c.relname, 'note', d.description)
	ORDER BY n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_description d ON d.objoid = c.oid AND d.classoid = 'pg_class'::regclass AND d.objsubid = 0
WHERE c.relkind = 'r' AND starts_with(c.relname, %s)`, literal(shadowPrefix))
	if _, err := s.db.query(ctx, "shadows", sql, &found); err != nil {
		return nil, fmt.Errorf("looking for unfinished replacements: %w", err)
	}
	var out []shadow
	for _, f := range found {
		sh := shadow{at: relation{schema: f.Schema, name: f.Name}}
		if json.Unmarshal([]byte(f.Note), &sh.note) != nil {
			continue // not ours
		}
		if sh.note.Pipeline == s.start.Pipeline && sh.note.Lane == s.start.Lane {
			out = append(out, sh)
		}
	}
	return out, nil
}

var errShadowGone = errors.New("the rows that an interrupted run had already written for the replacement are gone")

// adoptShadows drops what other runs of the lane left and makes sure that what this run wrote before is still there.
func (s *Sink) adoptShadows(ctx context.Context) error {
	all, err := s.shadows(ctx)
	if err != nil {
		return s.cfg.wrap("starting a replacement", err)
	}
	mine := 0
	for _, sh := range all {
		if sh.note.Run == s.start.Run {
			mine++
			continue
		}
		if err := s.db.exec(ctx, "drop", "DROP TABLE IF EXISTS "+sh.at.String()); err != nil {
			return s.cfg.wrap("dropping the unfinished replacement "+sh.at.String(), err)
		}
	}
	p, ok, err := s.committed(ctx)
	if err != nil {
		return s.cfg.wrap("reading "+progressTable, err)
	}
	if ok && p.Run == s.start.Run && !p.Done && !p.Position.Zero() && mine == 0 {
		return &connector.Error{
			Class: connector.ClassPosition, Code: "postgres.shadow", Doing: "resuming a replacement", Err: errShadowGone,
			Hint: "begin again: leat state reset",
		}
	}
	return nil
}

// ensureShadow makes the shadow exist: like the table that it will replace, indexes, defaults and constraints included.
func (s *Sink) ensureShadow(ctx context.Context, d *dataset, schema *record.Schema, old *table) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.kept = true
	sh := s.newShadow(d.place)
	all, err := s.shadows(ctx)
	if err != nil {
		return err
	}
	for _, made := range all {
		if made.note == sh.note {
			d.target = made.at
			return nil
		}
	}
	d.target = sh.at
	if old == nil {
		if err := s.create(ctx, schema, sh.at); err != nil {
			return err
		}
	} else if err := s.db.exec(ctx, "create", fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL)", sh.at, d.place)); err != nil {
		return err
	}
	note, err := json.Marshal(sh.note)
	if err != nil {
		return fmt.Errorf("writing the shadow's note: %w", err)
	}
	err = s.db.exec(ctx, "create", fmt.Sprintf("COMMENT ON TABLE %s IS %s", sh.at, literal(string(note))))
	return err
}

// Finish implements connector.Finisher: in mode Replace all shadows take the places of their tables, in one transaction with the
// progress. In the other modes it is a commit.
func (s *Sink) Finish(ctx context.Context, p record.Progress) error {
	if s.start.Mode != connector.Replace {
		return s.Commit(ctx, p)
	}
	if err := s.usable("finishing"); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return s.poison(ctx, err)
	}
	all, err := s.shadows(ctx)
	if err != nil {
		return s.poison(ctx, s.cfg.wrap("finishing", err))
	}
	for _, sh := range all {
		if sh.note.Run != s.start.Run {
			continue
		}
		if err := s.swap(ctx, sh); err != nil {
			return s.poison(ctx, s.cfg.wrap(fmt.Sprintf("replacing %s.%s", sh.note.Schema, sh.note.Table), err))
		}
	}
	clear(s.datasets) // what comes after is written to new shadows
	clear(s.places)
	save, err := s.lane.saveSQL(p, nil)
	if err != nil {
		return s.poison(ctx, err)
	}
	return s.commit(ctx, save)
}

// swap puts the shadow's rows in the place of the table's. Where nothing else in the database refers to the table, the shadow
// itself takes its name. Where something does (a view, a foreign key, a trigger, a policy, a publication, a sequence), the table
// stays and gets the shadow's rows.
func (s *Sink) swap(ctx context.Context, sh shadow) error {
	at := relation{schema: sh.note.Schema, name: sh.note.Table}
	old, err := s.db.describe(ctx, at)
	if err != nil {
		return err
	}
	if old == nil {
		script := []string{
			fmt.Sprintf("ALTER TABLE %s RENAME TO %s", sh.at, ident(at.name)),
			fmt.Sprintf("COMMENT ON TABLE %s IS NULL", at),
		}
		for _, k := range mustKeys(ctx, s, sh.at) {
			index := relation{schema: at.schema, name: k}
			script = append(script, fmt.Sprintf("ALTER INDEX %s RENAME TO %s", index, ident(shortName(at.name+"_pkey"))))
		}
		err := s.db.exec(ctx, "swap", strings.Join(script, ";\n"))
		return err
	}
	var free bool
	if _, err := s.db.query(ctx, "swap", freeSQL(at), &free); err != nil {
		return err
	}
	if free {
		return s.rename(ctx, sh, at, old)
	}
	return s.refill(ctx, sh, at, old)
}

// mustKeys returns the name of the shadow's primary key index, if it has one.
func mustKeys(ctx context.Context, s *Sink, at relation) []string {
	t, err := s.db.describe(ctx, at)
	if err != nil || t == nil {
		return nil // the next statement of the transaction reports it
	}
	var names []string
	for _, k := range t.Keys {
		if k.Primary {
			names = append(names, k.Name)
		}
	}
	return names
}

// freeSQL asks whether nothing but the table's own parts refers to it, and whether a table that is made like it loses nothing.
func freeSQL(at relation) string {
	return fmt.Sprintf(`SELECT to_json(c.relkind = 'r' AND c.relpersistence = 'p' AND c.reloptions IS NULL AND c.reltablespace = 0
AND c.relreplident = 'd' AND NOT c.relrowsecurity AND NOT c.relispartition AND NOT c.relhassubclass
AND c.relowner = (SELECT oid FROM pg_roles WHERE rolname = current_user)
AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid OR inhparent = c.oid)
AND NOT EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND (conrelid = c.oid OR confrelid = c.oid))
AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND NOT attisdropped AND (attidentity <> '' OR attacl IS NOT NULL))
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
	AND d.classid NOT IN ('pg_constraint'::regclass, 'pg_attrdef'::regclass, 'pg_type'::regclass, 'pg_statistic_ext'::regclass)
	AND NOT (d.classid = 'pg_class'::regclass AND EXISTS (SELECT FROM pg_class i WHERE i.oid = d.objid AND i.relkind IN ('i', 't'))))
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.refclassid = 'pg_type'::regclass AND d.deptype = 'n'
	AND d.refobjid IN (SELECT oid FROM pg_type WHERE typrelid = c.oid UNION SELECT typarray FROM pg_type WHERE typrelid = c.oid)))
FROM pg_class c WHERE c.oid = %s::regclass`, literal(at.String()))
}

// rename drops the old table and gives its name, the names of its indexes, its comment and its grants to the shadow.
func (s *Sink) rename(ctx context.Context, sh shadow, at relation, old *table) error {
	if err := s.db.exec(ctx, "swap", fmt.Sprintf("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE", at)); err != nil {
		return err
	}
	var after []string
	sql := fmt.Sprintf(`WITH i AS (
	SELECT x.indrelid, c.relname, x.indisunique, x.indisprimary, regexp_replace(pg_get_indexdef(x.indexrelid), '^.*? USING ', '') AS def
	FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE x.indrelid IN (%[1]s::regclass, %[2]s::regclass)),
n AS (SELECT *, row_number() OVER (PARTITION BY indrelid, indisunique, indisprimary, def ORDER BY relname) AS n FROM i)
SELECT json_agg(stmt) FROM (
	SELECT format('ALTER INDEX %%I.%%I RENAME TO %%I', %[3]s, b.relname, a.relname) AS stmt
	FROM n a JOIN n b USING (indisunique, indisprimary, def, n)
	WHERE a.indrelid = %[1]s::regclass AND b.indrelid = %[2]s::regclass
	UNION ALL
	SELECT format('GRANT %%s ON %%I.%%I TO %%s%%s', g.privilege_type, %[3]s, %[4]s,
		CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
		CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
	FROM pg_class c, aclexplode(c.relacl) g WHERE c.oid = %[1]s::regclass AND g.grantee <> c.relowner) q`,
		literal(at.String()), literal(sh.at.String()), literal(at.schema), literal(at.name))
	if _, err := s.db.query(ctx, "swap", sql, &after); err != nil {
		return err
	}
	comment := "NULL"
	if old.Comment != "" {
		comment = literal(old.Comment)
	}
	script := append([]string{
		"DROP TABLE " + at.String(),
		fmt.Sprintf("ALTER TABLE %s RENAME TO %s", sh.at, ident(at.name)),
		fmt.Sprintf("COMMENT ON TABLE %s IS %s", at, comment),
	}, after...)
	err := s.db.exec(ctx, "swap", strings.Join(script, ";\n"))
	return err
}

var errReferenced = errors.New("other tables refer to it by foreign keys, and it has no primary key to replace its rows by")

// refill keeps the table and replaces its rows. Readers wait for the commit, unless foreign keys refer to the table: then only rows
// that are no longer there are deleted, and the others are updated in place.
func (s *Sink) refill(ctx context.Context, sh shadow, at relation, old *table) error {
	var names, sets, key []string
	overriding := ""
	for _, k := range old.Keys {
		if k.Primary && k.Flaw == "" {
			key = k.Columns
		}
	}
	isKey := map[string]bool{}
	for _, k := range key {
		isKey[k] = true
	}
	for _, c := range old.Columns {
		if c.Generated != "" {
			continue
		}
		names = append(names, c.Name)
		if c.Identity == "a" {
			overriding = " OVERRIDING SYSTEM VALUE"
		} else if !isKey[c.Name] {
			sets = append(sets, ident(c.Name)+" = EXCLUDED."+ident(c.Name))
		}
	}
	var referenced bool
	refs := fmt.Sprintf("SELECT to_json(EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND confrelid = %s::regclass))",
		literal(at.String()))
	if _, err := s.db.query(ctx, "swap", refs, &referenced); err != nil {
		return err
	}
	insert := fmt.Sprintf("INSERT INTO %s (%s)%s SELECT %s FROM %s", at, idents(names), overriding, idents(names), sh.at)
	script := []string{"TRUNCATE " + at.String(), insert}
	if referenced {
		if len(key) == 0 {
			return &connector.Error{
				Class: connector.ClassConfig, Code: "postgres.referenced", Doing: "replacing " + at.String(), Err: errReferenced,
				Hint: "give the table a primary key, or use --mode upsert",
			}
		}
		same := make([]string, len(key))
		for i, k := range key {
			same[i] = fmt.Sprintf("n.%[1]s = t.%[1]s", ident(k))
		}
		action := "NOTHING"
		if len(sets) > 0 {
			action = "UPDATE SET " + strings.Join(sets, ", ")
		}
		script = []string{
			fmt.Sprintf("LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE", at),
			fmt.Sprintf("DELETE FROM %s t WHERE NOT EXISTS (SELECT FROM %s n WHERE %s)", at, sh.at, strings.Join(same, " AND ")),
			fmt.Sprintf("%s ON CONFLICT (%s) DO %s", insert, idents(key), action),
		}
	}
	err := s.db.exec(ctx, "swap", strings.Join(append(script, "DROP TABLE "+sh.at.String()), ";\n"))
	return err
}
