package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// Check implements connector.Checker. Of a source that is followed it says all that server and role lack for it, with the statement or
// the setting for each.
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
	probes, facts, err := s.probes(ctx, pg)
	if err != nil {
		s.pool.discard(ctx, conn)
		return nil, s.cfg.wrap("checking PostgreSQL", err)
	}
	if err := command(ctx, pg, "COMMIT"); err != nil {
		return nil, s.cfg.wrap("checking PostgreSQL", err)
	}
	if facts != nil {
		probes = append(probes, s.direct(ctx, facts)...)
	}
	if !slices.ContainsFunc(probes, failed) {
		probes = append(probes, s.selection(ctx))
	}
	return probes, nil
}

func failed(p connector.Probe) bool { return p.Status == connector.Fail }

// probes looks at everything that one transaction can see. facts are nil where the source is not followed.
func (s *Source) probes(ctx context.Context, pg *pgconn.PgConn) (probes []connector.Probe, facts *followFacts, err error) {
	rows, err := ask(ctx, pg, `SELECT current_setting('server_version_num'), current_setting('server_version'), current_user,
		current_setting('server_encoding'), current_setting('statement_timeout'), pg_catalog.current_database()`)
	if err != nil {
		return nil, nil, err
	}
	server := rows[0]
	version := connector.Probe{Name: "server version", Detail: "PostgreSQL " + string(server[1])}
	switch n := toInt(server[0]); {
	case n < oldestVersion:
		version.Status, version.Fix = connector.Fail, oldestVersionFix
	case n < tidRangeVersion:
		version.Status = connector.Warn
		version.Fix = "PostgreSQL 14 or newer reads tables without a key much faster; or give them a primary key"
	}
	encoding := connector.Probe{Name: "encoding", Detail: string(server[3])}
	if encoding.Detail == "SQL_ASCII" {
		encoding.Status = connector.Warn
		encoding.Detail += ": the server does not check text; a row with text that is not UTF-8 is set aside"
		encoding.Fix = "re-encode the database as UTF8"
	}
	probes = []connector.Probe{version, encoding}
	if s.cfg.Query != "" {
		return probes, nil, nil
	}
	if err := command(ctx, pg, catalogPath); err != nil {
		return nil, nil, err
	}
	selected, privileges, err := s.privileges(ctx, pg, string(server[2]))
	if err != nil || !s.cfg.Follow {
		return append(probes, privileges...), nil, err
	}
	if facts, err = s.readFollowFacts(ctx, pg, selected); err != nil {
		return nil, nil, err
	}
	return slices.Concat(probes, privileges, facts.probes()), facts, nil
}

// privileges lists everything that the role may not read but should, all at once, and returns what is selected.
func (s *Source) privileges(ctx context.Context, pg *pgconn.PgConn, role string) ([]relationInfo, []connector.Probe, error) {
	selected, hidden, err := s.everything(ctx, pg)
	if _, ok := errors.AsType[*connector.Error](err); ok {
		return nil, []connector.Probe{{Name: "selection", Status: connector.Fail, Detail: err.Error(), Fix: fixOf(err)}}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var probes []connector.Probe
	schemas, unasked := map[string]bool{}, map[string]bool{}
	selected = slices.DeleteFunc(selected, func(r relationInfo) bool {
		leave := hidden[r.oid] && !s.cfg.asksFor(r.rel)
		if leave {
			unasked[r.rel.schema] = true
		} else if hidden[r.oid] {
			schemas[r.rel.schema] = true
		}
		return leave
	})
	if len(schemas) > 0 {
		probes = append(probes, hiddenSchemas(connector.Fail, "may not use the schemas", role, schemas))
	}
	if len(unasked) > 0 {
		probes = append(probes, hiddenSchemas(connector.Warn, "may not use these schemas, whose tables are left out", role, unasked))
	}
	readable, err := s.readable(ctx, pg, role, selected)
	return selected, append(probes, readable), err
}

// everything selects from all relations, also from those that the role can't see.
func (s *Source) everything(ctx context.Context, pg *pgconn.PgConn) (selected []relationInfo, hidden map[uint32]bool, err error) {
	all, err := readRelations(ctx, pg)
	if err != nil {
		return nil, nil, err
	}
	others, err := readRelationsThat(ctx, pg, "false")
	if err != nil {
		return nil, nil, err
	}
	hidden = make(map[uint32]bool, len(others))
	for _, r := range others {
		hidden[r.oid] = true
	}
	selected, err = s.cfg.selectRelations(append(all, others...))
	return selected, hidden, err
}

// asksFor reports whether the configuration names the table's schema, and so means it to be read.
func (c *SourceConfig) asksFor(r relation) bool {
	if c.Table != "" {
		return true
	}
	return slices.ContainsFunc(c.patterns(), func(p string) bool { return !strings.HasPrefix(p, "!") && c.place(p).schema == r.schema })
}

func hiddenSchemas(status connector.ProbeStatus, what, role string, schemas map[string]bool) connector.Probe {
	names := slices.Sorted(maps.Keys(schemas))
	return connector.Probe{
		Name: "schemas", Status: status, Detail: fmt.Sprintf("%s %s: %s", role, what, strings.Join(names, ", ")),
		Fix: fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", idents(names), ident(role)),
	}
}

// readable says which of the selected tables the role may not read.
func (s *Source) readable(ctx context.Context, pg *pgconn.PgConn, role string, selected []relationInfo) (connector.Probe, error) {
	oids := make([]string, len(selected))
	for i, r := range selected {
		oids[i] = strconv.FormatUint(uint64(r.oid), 10)
	}
	columns, err := readColumns(ctx, pg, oids)
	if err != nil {
		return connector.Probe{}, err
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
		p.Fix = strings.Join(grants, "\n")
	}
	return p, nil
}

// selection resolves the configuration as a run would, and says how each dataset is read.
func (s *Source) selection(ctx context.Context) connector.Probe {
	tables, err := s.resolved(ctx)
	if err != nil {
		return connector.Probe{Name: "selection", Status: connector.Fail, Detail: err.Error(), Fix: fixOf(err)}
	}
	var keyless []string
	for _, t := range tables {
		if t.mode != byKey && s.cfg.Cursor == "" && !s.cfg.Follow {
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
