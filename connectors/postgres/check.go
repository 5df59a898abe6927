package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
)

// Versions of the server, as server_version_num has them.
const (
	oldestVersion    = 130000 // pg_current_snapshot
	tidRangeVersion  = 140000 // ranges of blocks without a scan of the whole table each
	oldestVersionFix = "PostgreSQL 13 or newer"
)

// Check implements connector.Checker.
func (s *Source) Check(ctx context.Context) ([]connector.Probe, error) {
	conn, err := s.pool.take(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { s.pool.put(ctx, conn) }()
	pg := conn.PgConn()
	s.env.Roundtrip("check")
	if err := s.begin(ctx, pg, ""); err != nil {
		return nil, s.cfg.wrap("checking PostgreSQL", err)
	}
	probes, err := s.probes(ctx, pg)
	if err != nil {
		s.pool.discard(ctx, conn)
		return nil, s.cfg.wrap("checking PostgreSQL", err)
	}
	if err := command(ctx, pg, "COMMIT"); err != nil {
		return nil, s.cfg.wrap("checking PostgreSQL", err)
	}
	if !slices.ContainsFunc(probes, func(p connector.Probe) bool { return p.Status == connector.Fail }) {
		probes = append(probes, s.selection(ctx))
	}
	return probes, nil
}

func (s *Source) probes(ctx context.Context, pg *pgconn.PgConn) ([]connector.Probe, error) {
	rows, err := ask(ctx, pg, `SELECT current_setting('server_version_num'), current_setting('server_version'), current_user,
		current_setting('server_encoding'), current_setting('statement_timeout'), pg_catalog.current_database()`)
	if err != nil {
		return nil, err
	}
	facts := rows[0]
	version := connector.Probe{Name: "server version", Detail: "PostgreSQL " + string(facts[1])}
	switch n := toInt(facts[0]); {
	case n < oldestVersion:
		version.Status, version.Fix = connector.Fail, oldestVersionFix
	case n < tidRangeVersion:
		version.Status = connector.Warn
		version.Fix = "PostgreSQL 14 or newer reads tables without a key much faster; or give them a primary key"
	}
	encoding := connector.Probe{Name: "encoding", Detail: string(facts[3])}
	if encoding.Detail == "SQL_ASCII" {
		encoding.Status = connector.Warn
		encoding.Detail += ": the server does not check text; a row with text that is not UTF-8 is set aside"
		encoding.Fix = "re-encode the database as UTF8"
	}
	privileges, err := s.privileges(ctx, pg, string(facts[2]))
	if err != nil {
		return nil, err
	}
	return append([]connector.Probe{version, encoding}, privileges...), nil
}

// privileges lists everything that the role may not read but should, all at once.
func (s *Source) privileges(ctx context.Context, pg *pgconn.PgConn, role string) ([]connector.Probe, error) {
	if s.cfg.Query != "" {
		return nil, nil
	}
	if err := command(ctx, pg, catalogPath); err != nil {
		return nil, err
	}
	all, err := readRelations(ctx, pg)
	if err != nil {
		return nil, err
	}
	if s.cfg.Table != "" {
		if p, ok, err := s.hiddenSchema(ctx, pg, role); err != nil || ok {
			return []connector.Probe{p}, err
		}
	}
	selected, err := s.cfg.selectRelations(all)
	if err != nil {
		return []connector.Probe{{Name: "selection", Status: connector.Fail, Detail: err.Error(), Fix: connector.HintOf(err)}}, nil
	}
	oids := make([]string, len(selected))
	for i, r := range selected {
		oids[i] = strconv.FormatUint(uint64(r.oid), 10)
	}
	columns, err := readColumns(ctx, pg, oids)
	if err != nil {
		return nil, err
	}
	var denied, grants []string
	for _, r := range selected {
		var missing []string
		for _, c := range columns[r.oid] {
			if !c.readable && (len(s.cfg.Columns) == 0 || slices.Contains(s.cfg.Columns, c.name)) {
				missing = append(missing, c.name)
			}
		}
		switch {
		case len(missing) == 0:
		case len(missing) == len(columns[r.oid]):
			denied = append(denied, r.rel.dataset())
			grants = append(grants, fmt.Sprintf("GRANT SELECT ON %s TO %s;", r.rel, ident(role)))
		default:
			denied = append(denied, fmt.Sprintf("%s (%s)", r.rel.dataset(), strings.Join(missing, ", ")))
			grants = append(grants, fmt.Sprintf("GRANT SELECT (%s) ON %s TO %s;", idents(missing), r.rel, ident(role)))
		}
	}
	p := connector.Probe{Name: "privileges", Detail: fmt.Sprintf("%s may read all %d selected tables", role, len(selected))}
	if len(denied) > 0 {
		p.Status, p.Detail = connector.Fail, fmt.Sprintf("%s may not read %s", role, strings.Join(denied, ", "))
		p.Fix = strings.Join(grants, " ")
	}
	return []connector.Probe{p}, nil
}

// hiddenSchema reports a schema that the role may not look into.
func (s *Source) hiddenSchema(ctx context.Context, pg *pgconn.PgConn, role string) (connector.Probe, bool, error) {
	schema := s.cfg.place(s.cfg.Table).schema
	rows, err := ask(ctx, pg, `SELECT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
		FROM pg_catalog.pg_namespace n WHERE n.nspname = $1`, schema)
	if err != nil || len(rows) == 0 || isTrue(rows[0][0]) {
		return connector.Probe{}, false, err
	}
	return connector.Probe{
		Name: "privileges", Status: connector.Fail, Detail: fmt.Sprintf("%s may not use the schema %s", role, schema),
		Fix: fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", ident(schema), ident(role)),
	}, true, nil
}

// selection resolves the configuration as a run would, and says how each dataset is read.
func (s *Source) selection(ctx context.Context) connector.Probe {
	tables, err := s.resolved(ctx)
	if err != nil {
		return connector.Probe{Name: "selection", Status: connector.Fail, Detail: err.Error(), Fix: fixOf(err)}
	}
	var keyless []string
	for _, t := range tables {
		if t.mode != byKey && s.cfg.Cursor == "" {
			keyless = append(keyless, t.dataset)
		}
	}
	p := connector.Probe{Name: "selection", Detail: fmt.Sprintf("%d datasets", len(tables))}
	if len(keyless) > 0 {
		p.Status = connector.Warn
		p.Detail += "; without a key, and so read again from their beginning after a crash: " + strings.Join(keyless, ", ")
		p.Fix = "give them a primary key, or name one of a view or query with key=COLUMNS"
	}
	return p
}

func fixOf(err error) string {
	if h := connector.HintOf(err); h != "" {
		return h
	}
	return "correct the configuration of the source"
}
