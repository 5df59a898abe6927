package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/record"
)

// publication is what the server says of a publication.
type publication struct {
	OID       uint32              `json:"oid"`
	Name      string              `json:"name"`
	Owner     string              `json:"owner"`
	May       bool                `json:"may"`     // the role may alter it
	Mine      bool                `json:"mine"`    // the role itself owns it
	Comment   string              `json:"comment"` // of leat, where leat made it
	Age       int64               `json:"age"`     // in transactions, of its newest part
	AllTables bool                `json:"all"`
	Schemas   []string            `json:"schemas"` // that it has as a whole
	Insert    bool                `json:"insert"`
	Update    bool                `json:"update"`
	Delete    bool                `json:"delete"`
	Truncate  bool                `json:"truncate"`
	ViaRoot   bool                `json:"root"`
	Generated string              `json:"generated"` // PostgreSQL 18: s, stored generated columns are published
	Members   []publicationMember `json:"members"`   // tables that were added by name
	Published []uint32            `json:"published"` // relations under whose names changes come

	pipeline string
}

// publicationMember is a table of a publication.
type publicationMember struct {
	OID     uint32   `json:"oid"`
	Schema  string   `json:"schema"`
	Table   string   `json:"table"`
	Columns []string `json:"columns"` // nil: all
	Filter  string   `json:"filter"`
}

// publicationSQL reads a publication. Before PostgreSQL 15 there were no lists of columns, conditions and schemas.
const publicationSQL = `SELECT pg_catalog.jsonb_build_object('oid', p.oid::int8, 'name', p.pubname,
	'owner', pg_catalog.pg_get_userbyid(p.pubowner),
	'may', pg_catalog.pg_has_role(p.pubowner, 'USAGE'), 'mine', pg_catalog.pg_get_userbyid(p.pubowner) = current_user,
	'comment', pg_catalog.obj_description(p.oid, 'pg_publication'),
	'age', LEAST(pg_catalog.age(p.xmin),
		(SELECT pg_catalog.min(pg_catalog.age(r.xmin)) FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid)),
	'all', p.puballtables, 'insert', p.pubinsert, 'update', p.pubupdate, 'delete', p.pubdelete, 'truncate', p.pubtruncate,
	'root', p.pubviaroot, 'generated', pg_catalog.to_jsonb(p) -> 'pubgencols',
	'schemas', %[1]s,
	'members', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
			'oid', c.oid::int8, 'schema', n.nspname, 'table', c.relname, %[2]s))
		FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE r.prpubid = p.oid),
	'published', (SELECT pg_catalog.jsonb_agg(c.oid::int8) FROM pg_catalog.pg_publication_tables t
		JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
		JOIN pg_catalog.pg_class c ON c.relname = t.tablename AND c.relnamespace = n.oid WHERE t.pubname = p.pubname))
FROM pg_catalog.pg_publication p WHERE p.pubname = $1`

// publicationParts are the parts of publicationSQL that depend on the version.
func publicationParts(version string) (schemas, member string) {
	if releaseOf(version) < columnsVersion {
		return "NULL", "'columns', NULL"
	}
	return `(SELECT pg_catalog.jsonb_agg(n.nspname) FROM pg_catalog.pg_publication_namespace s
			JOIN pg_catalog.pg_namespace n ON n.oid = s.pnnspid WHERE s.pnpubid = p.oid)`,
		`'filter', pg_catalog.pg_get_expr(r.prqual, r.prrelid), 'columns', (SELECT pg_catalog.jsonb_agg(a.attname ORDER BY a.attnum)
			FROM pg_catalog.pg_attribute a WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs::int2[]))`
}

// releaseOf is the major version of a server, as in server_version_num, from the text of its server_version.
func releaseOf(version string) int64 {
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(version)
	}
	return toInt([]byte(version[:end])) * 10_000
}

// readPublication returns what the server says of a publication; nil: there is none.
func readPublication(ctx context.Context, pg *pgconn.PgConn, name, pipeline string) (*publication, error) {
	schemas, member := publicationParts(pg.ParameterStatus("server_version"))
	rows, err := ask(ctx, pg, fmt.Sprintf(publicationSQL, schemas, member), name)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	p := &publication{pipeline: pipeline}
	if err := json.Unmarshal(rows[0][0], p); err != nil {
		return nil, fmt.Errorf("reading the publication: %w", err)
	}
	return p, nil
}

// publicationComment is what a publication that leat made says of itself.
func publicationComment(pipeline string) string {
	return fmt.Sprintf("made by leat for the pipeline %q", pipeline)
}

// ours reports whether leat made the publication for this pipeline, and may alter and drop it. One that the role owns and that has the
// name that leat would give it counts as well.
func (p *publication) ours() bool {
	byName := p.Mine && p.Name == shortName(ownPrefix+p.pipeline)
	return p.May && (p.Comment == publicationComment(p.pipeline) || byName)
}

// plain reports whether the publication is a list of whole tables, as leat makes them. Any other is used as it is.
func (p *publication) plain() bool {
	return !p.AllTables && len(p.Schemas) == 0 &&
		!slices.ContainsFunc(p.Members, func(m publicationMember) bool { return m.Columns != nil || m.Filter != "" })
}

// member returns what the publication says of a table that was added to it by name.
func (p *publication) member(oid uint32) (publicationMember, bool) {
	i := slices.IndexFunc(p.Members, func(m publicationMember) bool { return m.OID == oid })
	if i < 0 {
		return publicationMember{}, false
	}
	return p.Members[i], true
}

// publishes reports whether changes of a relation come under its own name.
func (p *publication) publishes(oid uint32) bool { return slices.Contains(p.Published, oid) }

// sends returns which columns of a table the publication sends; the server leaves out generated ones unless it is told otherwise.
func (p *publication) sends(t *followTable) []string {
	m, _ := p.member(t.OID)
	if m.Columns != nil {
		return m.Columns
	}
	return slices.DeleteFunc(slices.Clone(t.Columns), func(c string) bool {
		return slices.Contains(t.Virtual, c) || (slices.Contains(t.Stored, c) && p.Generated != "s")
	})
}

// publicationOptions are what leat's publications are made with: partitions under the name of their root, as the snapshot has them, and
// generated columns where the server can.
func publicationOptions(version int) string {
	if version >= generatedVersion {
		return "publish_via_partition_root = true, publish_generated_columns = stored"
	}
	return "publish_via_partition_root = true"
}

const publishAll = "publish = 'insert, update, delete, truncate'"

// createPublication is the statement that makes the publication.
func (f *followFacts) createPublication() string {
	return fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (%s);", ident(f.name), tableList(f.tables), publicationOptions(f.Version))
}

func tableList(tables []*followTable) string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.from()
	}
	return strings.Join(names, ", ")
}

// from is the table in a statement: what inherits from it is another table in the stream.
func (t *followTable) from() string {
	if t.Parent {
		return "ONLY " + t.relation().String()
	}
	return t.relation().String()
}

// alterPublication are the statements that make the publication what the source needs: add and options. leat's own one also loses tables
// that are no longer followed; tables that others added to theirs stay.
func (f *followFacts) alterPublication() []string {
	p := f.publication
	var out, options []string
	alter := "ALTER PUBLICATION " + ident(p.Name)
	if !p.Insert || !p.Update || !p.Delete || !p.Truncate {
		options = append(options, publishAll)
	}
	partitioned := slices.ContainsFunc(f.tables, func(t *followTable) bool { return t.Kind == "p" })
	own := p.ours() && p.plain()
	if !p.ViaRoot && (partitioned || own) {
		options = append(options, "publish_via_partition_root = true")
	}
	if own && f.Version >= generatedVersion && p.Generated != "s" {
		options = append(options, "publish_generated_columns = stored")
	}
	if len(options) > 0 {
		out = append(out, fmt.Sprintf("%s SET (%s);", alter, strings.Join(options, ", ")))
	}
	if missing := f.unpublished(); len(missing) > 0 {
		out = append(out, fmt.Sprintf("%s ADD TABLE %s;", alter, tableList(missing)))
	}
	if !own {
		return out
	}
	var gone []string
	for _, m := range p.Members {
		if !slices.ContainsFunc(f.tables, func(t *followTable) bool { return t.OID == m.OID }) {
			gone = append(gone, relation{schema: m.Schema, name: m.Table}.String())
		}
	}
	if len(gone) > 0 {
		out = append(out, fmt.Sprintf("%s DROP TABLE %s;", alter, strings.Join(gone, ", ")))
	}
	return out
}

// has reports whether the publication has a table: by name, by its schema, or because it has all.
func (p *publication) has(t *followTable) bool {
	_, member := p.member(t.OID)
	return member || p.AllTables || slices.Contains(p.Schemas, t.Schema)
}

// unpublished are the tables that have to be added to the publication. A partitioned table that it has and does not publish lacks an
// option only.
func (f *followFacts) unpublished() []*followTable {
	return slices.DeleteFunc(slices.Clone(f.tables), func(t *followTable) bool {
		return f.publication.publishes(t.OID) || f.publication.has(t) || t.unpublishable() != "" || f.root(t) != ""
	})
}

// root names the partitioned table under whose name the changes of a selected partition come; empty: they come under its own.
func (f *followFacts) root(t *followTable) string {
	p := f.publication
	if p == nil || !p.ViaRoot || p.publishes(t.OID) {
		return ""
	}
	for _, a := range t.Ancestors {
		if p.publishes(a.OID) {
			return record.JoinName(a.Schema, a.Name)
		}
	}
	return ""
}

// publish makes the publication or makes leat's own one fit, and returns it. made reports that there was none before, also where it is
// not known whether it was made.
func (s *Source) publish(ctx context.Context, pg *pgconn.PgConn, f *followFacts) (p *publication, made bool, err error) {
	var sql []string
	switch {
	case f.publication == nil:
		made = true
		sql = []string{
			f.createPublication(),
			fmt.Sprintf("COMMENT ON PUBLICATION %s IS %s;", ident(f.name), literal(publicationComment(s.env.Pipeline))),
		}
	case f.publication.ours() && f.publication.plain():
		sql = f.alterPublication()
	}
	if len(sql) == 0 {
		return f.publication, false, nil
	}
	s.env.Roundtrip("publication")
	begin := fmt.Sprintf("BEGIN READ WRITE; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = %d;", s.patience().Milliseconds())
	if err := command(ctx, pg, begin+strings.Join(sql, "")+"COMMIT"); err != nil {
		_, server := serverError(err)
		return nil, made && !server, err
	}
	s.env.Log.InfoContext(ctx, "the publication was made to fit", slog.String("sql", strings.Join(sql, " ")))
	if p, err = readPublication(ctx, pg, f.name, s.env.Pipeline); err != nil {
		return nil, made, err
	}
	if p == nil {
		return nil, made, fmt.Errorf("the publication %q was dropped at this moment", f.name)
	}
	p.Age = 0 // the slot has to be younger
	return p, made, nil
}
