package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Map implements connector.Mapper. Where the table exists, its own types decide; otherwise those that it would be made with.
func (s *Sink) Map(ctx context.Context, schema *record.Schema) ([]connector.Mapping, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	at, err := s.own(schema.Dataset)
	if err != nil {
		return nil, err
	}
	t, err := s.db.describe(ctx, at)
	if err != nil {
		return nil, s.cfg.wrap("reading the catalogue", err)
	}
	if err := longColumns(schema); err != nil {
		return nil, err
	}
	if t == nil {
		return s.mapNew(ctx, schema, at)
	}
	p, err := joinPlan(schema, t)
	if err != nil {
		return nil, err
	}
	if !s.follows(schema) {
		if err := p.complain(); err != nil {
			return nil, err
		}
	}
	design, err := s.db.design(ctx, schema, at)
	if err != nil {
		return nil, s.cfg.wrap("reading the catalogue", err)
	}
	out := make([]connector.Mapping, schema.Columns.NumFields())
	for i, f := range schema.Columns.Fields() {
		c, ok := t.column(f.Name)
		if !ok {
			if out[i], err = mapColumn(f, design.columns[i].typ); err != nil {
				return nil, err
			}
			continue
		}
		fitting, err := fit(f, c)
		if err != nil {
			return nil, err
		}
		out[i] = fitting.Mapping
		if wider, ok := widen(c, design.columns[i].typ, fitting); ok && s.follows(schema) && fitting.Fidelity != connector.Exact {
			if out[i], err = mapColumn(f, wider); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// follows reports whether the table will be brought to the schema before the first row: the columns of a source of changes have ids,
// and what came before that row may have changed them.
func (s *Sink) follows(schema *record.Schema) bool {
	return s.cfg.Create != createNever &&
		slices.ContainsFunc(schema.Columns.Fields(), func(f arrow.Field) bool { return record.IDOf(f) != "" })
}

// mapColumn describes a column that is to be made with the given type.
func mapColumn(f arrow.Field, typ string) (connector.Mapping, error) {
	t, err := record.TypeOf(f.Type)
	if err != nil {
		return connector.Mapping{}, fmt.Errorf("column %q: %w", f.Name, err)
	}
	fitting := fitting{Mapping: connector.Mapping{Column: f.Name, Native: typ}}
	fitting.judge(judgeNew(t, record.NativeOf(f), typ))
	return fitting.Mapping, nil
}

// longColumns refuses names that the server would cut.
func longColumns(schema *record.Schema) error {
	for _, name := range schema.Names() {
		if len(name) > maxIdentifier {
			return &connector.Error{
				Class: connector.ClassConfig, Code: "postgres.name", Doing: "mapping columns", Dataset: schema.Dataset, Column: name,
				Err:  fmt.Errorf("the name has %d bytes, the server keeps %d", len(name), maxIdentifier),
				Hint: "rename the column",
			}
		}
	}
	return nil
}

// mapNew describes the columns of a table that is to be made. A column of a new table is described as the catalogue will.
func (s *Sink) mapNew(ctx context.Context, schema *record.Schema, at relation) ([]connector.Mapping, error) {
	design, err := s.db.design(ctx, schema, at)
	if err != nil {
		return nil, s.cfg.wrap("reading the catalogue", err)
	}
	if s.cfg.Create == createNever {
		return nil, &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.missing", Doing: "writing to " + at.String(), Dataset: schema.Dataset,
			Err:  fmt.Errorf("the table does not exist, and create is %s", createNever),
			Hint: strings.Join(design.statements(), "; "),
		}
	}
	out := make([]connector.Mapping, len(design.columns))
	for i, c := range design.columns {
		f := schema.Columns.Field(i)
		if out[i], err = mapColumn(f, c.typ); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// judgeNew compares a type with the one that was chosen for it.
func judgeNew(t record.Type, from record.Native, typ string) verdict {
	if from.System == systemName && typ == from.Type {
		return verdict{}
	}
	switch {
	case typ == "text":
		return judgeText(t, baseType{Name: "text", Mod: -1}, from)
	case typ == "json", t.Kind == record.Enum:
		return verdict{}
	case t.Kind == record.Array || t.Kind == record.List:
		return judgeNew(*t.Elem, record.Native{}, strings.TrimSuffix(typ, "[]"))
	case t.Kind == record.Time:
		return judge(t, baseType{Name: "time", Mod: -1}, from)
	case t.Kind == record.Timestamp:
		return judge(t, baseType{Name: map[bool]string{false: "timestamp", true: "timestamptz"}[t.Zoned], Mod: -1}, from)
	case t.Kind == record.Date:
		return judge(t, baseType{Name: "date", Mod: -1}, from)
	case t.Kind == record.Duration || t.Kind == record.Interval:
		return judge(t, baseType{Name: "interval", Mod: -1}, from)
	}
	return verdict{}
}

// Check implements connector.Checker.
func (s *Sink) Check(ctx context.Context) ([]connector.Probe, error) {
	if err := s.connect(ctx); err != nil {
		return []connector.Probe{{Name: "connect", Status: connector.Fail, Detail: err.Error(), Fix: connector.HintOf(err)}}, nil
	}
	var facts struct {
		User, Database, Version string
		Number                  int
		ReadOnly                bool `json:"readonly"`
		Create, Schema, Leat    bool
		InSchema                bool `json:"inschema"`
		Table, Insert, Progress bool
	}
	at := place(s.cfg.Table, s.cfg.schema(), s.cfg.Table)
	sql := fmt.Sprintf(`SELECT json_build_object('user', current_user, 'database', current_database(),
'version', current_setting('server_version'),
'number', current_setting('server_version_num')::int, 'readonly', current_setting('transaction_read_only')::bool,
'create', has_database_privilege(current_database(), 'CREATE'),
'schema', to_regnamespace(%[1]s) IS NOT NULL, 'inschema', coalesce(has_schema_privilege(to_regnamespace(%[1]s)::oid, 'CREATE'), false),
'leat', coalesce(has_schema_privilege(to_regnamespace('_leat')::oid, 'CREATE'), false),
'progress', to_regclass('_leat.progress') IS NOT NULL AND has_table_privilege('_leat.progress', 'INSERT, UPDATE'),
'table', to_regclass(%[2]s) IS NOT NULL, 'insert', coalesce(has_table_privilege(to_regclass(%[2]s)::oid, 'INSERT'), false))`,
		literal(ident(at.schema)), literal(at.String()))
	if _, err := s.db.query(ctx, "check", sql, &facts); err != nil {
		return nil, s.cfg.wrap("checking", err)
	}
	const oldest = 130000
	probes := []connector.Probe{
		{Name: "connect", Detail: fmt.Sprintf("PostgreSQL %s, database %s, user %s", facts.Version, facts.Database, facts.User)},
		check("version", facts.Number >= oldest, "PostgreSQL 13 or newer", "upgrade the server"),
		check("writable", !facts.ReadOnly, "the server takes writes",
			"connect to the primary, or: ALTER ROLE "+ident(facts.User)+" RESET default_transaction_read_only"),
		check("progress table", facts.Progress || facts.Leat || facts.Create, "_leat.progress can be kept",
			strings.ReplaceAll(progressGrant, "<the sink's user>", ident(facts.User))),
	}
	switch {
	case facts.Table && s.cfg.Table != "":
		probes = append(probes, check("insert into "+at.String(), facts.Insert, "rows can be written",
			fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s", at, ident(facts.User))))
	case facts.Schema:
		probes = append(probes, check("create in schema "+ident(at.schema), facts.InSchema, "tables can be made",
			fmt.Sprintf("GRANT USAGE, CREATE ON SCHEMA %s TO %s", ident(at.schema), ident(facts.User))))
	default:
		probes = append(probes, check("create schema "+ident(at.schema), facts.Create, "the schema can be made",
			fmt.Sprintf("CREATE SCHEMA %s AUTHORIZATION %s", ident(at.schema), ident(facts.User))))
	}
	more, err := s.checkConstraints(ctx, at, facts.User, facts.Number)
	return append(probes, more...), err
}

// constraintFacts are what stands in the way of changes that come batch by batch.
type constraintFacts struct {
	Keys     []string `json:"keys"`     // foreign keys that are checked at once
	Deferred []string `json:"deferred"` // those that are checked at the commit
	Triggers []string `json:"triggers"`
	Replica  bool     `json:"replica"` // the role may write without constraints
}

// constraintsSQL looks at the foreign keys from and to tables, and at their triggers: of one table, or of all in a schema.
func (c *SinkConfig) constraintsSQL(at relation, replica string) string {
	which := "n.nspname = " + literal(at.schema)
	if c.Table != "" {
		which += " AND c.relname = " + literal(at.name)
	}
	const foreignKeys = `SELECT json_agg(DISTINCT k.conname) FROM pg_constraint k, w
	WHERE k.contype = 'f' AND w.oid IN (k.conrelid, k.confrelid) AND k.conparentid = 0 AND %s k.condeferrable
	AND EXISTS (SELECT FROM pg_trigger g WHERE g.tgconstraint = k.oid AND g.tgenabled <> 'D')`
	return fmt.Sprintf(`WITH w AS (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p') AND %s)
SELECT json_build_object('keys', (%s), 'deferred', (%s),
'triggers', (SELECT json_agg(DISTINCT g.tgname) FROM pg_trigger g, w WHERE g.tgrelid = w.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D'),
'replica', %s)`,
		which, fmt.Sprintf(foreignKeys, "NOT"), fmt.Sprintf(foreignKeys, ""), replica)
}

// checkConstraints says what foreign keys and triggers mean for changes, and whether the option constraints can be had.
func (s *Sink) checkConstraints(ctx context.Context, at relation, user string, version int) ([]connector.Probe, error) {
	replica := "(SELECT rolsuper FROM pg_roles WHERE rolname = current_user)"
	const parameterPrivileges = 150000
	if version >= parameterPrivileges {
		replica = "has_parameter_privilege('session_replication_role', 'SET')"
	}
	var facts constraintFacts
	if _, err := s.db.query(ctx, "check", s.cfg.constraintsSQL(at, replica), &facts); err != nil {
		return nil, s.cfg.wrap("checking", err)
	}
	if s.cfg.Constraints == constraintsOff {
		fix := "GRANT SET ON PARAMETER session_replication_role TO " + ident(user)
		if version < parameterPrivileges {
			fix = "ALTER ROLE " + ident(user) + " SUPERUSER; or leave the option constraints out"
		}
		return []connector.Probe{check("write without constraints", facts.Replica, "the role may write as a replica does", fix)}, nil
	}
	var probes []connector.Probe
	if len(facts.Keys) > 0 {
		probes = append(probes, connector.Probe{
			Name: "foreign keys", Status: connector.Warn,
			Detail: "checked at once, although the changes of a stream come table by table: " + someOf(facts.Keys),
			Fix:    "ALTER TABLE … ALTER CONSTRAINT … DEFERRABLE, so that they are checked at the commit; or constraints=off",
		})
	} else if len(facts.Deferred) > 0 {
		probes = append(probes, connector.Probe{Name: "foreign keys", Detail: "checked at the commit: " + someOf(facts.Deferred)})
	}
	if len(facts.Triggers) > 0 {
		probes = append(probes, connector.Probe{
			Name:   "triggers",
			Detail: "fire for what is written, once for each row of a batch, not for each change of the source: " + someOf(facts.Triggers),
		})
	}
	return probes, nil
}

// someOf lists names, and counts what would be too many.
func someOf(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

func check(name string, ok bool, detail, fix string) connector.Probe {
	if ok {
		return connector.Probe{Name: name, Detail: detail}
	}
	return connector.Probe{Name: name, Status: connector.Fail, Detail: "not so: " + detail, Fix: fix}
}
