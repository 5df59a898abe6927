package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

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
	if err := badColumns(schema); err != nil {
		return nil, err
	}
	t, err := s.db.describe(ctx, at)
	if err != nil {
		return nil, s.cfg.wrap("reading the catalogue", err)
	}
	design, err := s.db.design(ctx, schema, at, s.cfg.Instants)
	if err != nil {
		return nil, s.cfg.wrap("reading the catalogue", err)
	}
	if t == nil {
		return s.mapNew(schema, design)
	}
	if err := t.transactional(schema.Dataset); err != nil {
		return nil, err
	}
	p, err := joinPlan(schema, t, nil, s.ways())
	if err != nil {
		return nil, err
	}
	if !s.follows(schema) {
		if err := p.complain(); err != nil {
			return nil, err
		}
	}
	out := make([]connector.Mapping, schema.Columns.NumFields())
	for i, f := range schema.Columns.Fields() {
		c, ok := t.column(f.Name)
		if !ok {
			c = design.columns[i]
		}
		fitting, err := fit(f, c, s.ways())
		if err != nil {
			return nil, err
		}
		if wider, can := widerType(c, design.columns[i]); ok && can && s.follows(schema) && fitting.Fidelity != connector.Exact {
			if fitting, err = fit(f, wider, s.ways()); err != nil {
				return nil, err
			}
		}
		out[i] = fitting.Mapping
	}
	return out, nil
}

// follows reports whether the table will be brought to the schema before the first row: the columns of a source of changes have ids,
// and what came before that row may have changed them.
func (s *Sink) follows(schema *record.Schema) bool {
	return s.cfg.Create != createNever &&
		slices.ContainsFunc(schema.Columns.Fields(), func(f arrow.Field) bool { return record.IDOf(f) != "" })
}

// mapNew describes the columns of a table that is to be made.
func (s *Sink) mapNew(schema *record.Schema, design newTable) ([]connector.Mapping, error) {
	if s.cfg.Create == createNever {
		return nil, &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.missing", Doing: "writing to " + design.at.String(), Dataset: schema.Dataset,
			Err: fmt.Errorf("the table does not exist, and create is %s", createNever), Hint: design.statement(),
		}
	}
	out := make([]connector.Mapping, len(design.columns))
	for i, c := range design.columns {
		fitting, err := fit(schema.Columns.Field(i), c, s.ways())
		if err != nil {
			return nil, err
		}
		out[i] = fitting.Mapping
	}
	return out, nil
}

// badColumns refuses names that the server does not take, or takes for the same.
func badColumns(schema *record.Schema) error {
	seen := map[string]string{}
	for _, name := range schema.Names() {
		e := &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.name", Doing: "mapping columns", Dataset: schema.Dataset, Column: name,
			Hint: "rename the column",
		}
		lower := strings.ToLower(name)
		switch other, twice := seen[lower]; {
		case twice:
			e.Err = fmt.Errorf("to the server it is the same as column %q", other)
			return e
		case utf8.RuneCountInString(name) > maxIdentifier:
			e.Err = fmt.Errorf("the name has %d characters, the server takes %d", utf8.RuneCountInString(name), maxIdentifier)
			return e
		case strings.HasSuffix(name, " ") || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r == 0 || r > 0xffff }):
			e.Err = errors.New("the server takes no name that is empty, ends in a blank, or has characters beyond U+FFFF")
			return e
		}
		seen[lower] = name
	}
	return nil
}

// Check implements connector.Checker.
func (s *Sink) Check(ctx context.Context) ([]connector.Probe, error) {
	if err := s.connect(ctx); err != nil {
		return []connector.Probe{{Name: "connect", Status: connector.Fail, Detail: err.Error(), Fix: connector.HintOf(err)}}, nil
	}
	results, err := s.db.run(ctx, "check", "SELECT CURRENT_USER(), @@read_only, @@innodb_flush_log_at_trx_commit, @@sync_binlog, @@log_bin",
		"SHOW GRANTS")
	if err != nil {
		return nil, s.cfg.wrap("checking", err)
	}
	r := results[0][0]
	user, home := string(r[0]), s.cfg.home()
	probes := []connector.Probe{
		{Name: "connect", Detail: fmt.Sprintf("%s, database %s, user %s", s.db.server, home, user)},
		s.db.versionProbe(),
		sinkProbe("writable", !isTrue(r[1]) || canWrite(results[1]), "the server takes writes",
			"connect to the primary, or: SET GLOBAL read_only = OFF"),
		sinkProbe("privileges", granted(results[1], home), "rows can be written and tables made in "+home,
			writeGrant(home, quoteUser(user))),
	}
	durable := string(r[2]) == "1" && (string(r[3]) == "1" || !isTrue(r[4]))
	if !durable {
		probes = append(probes, connector.Probe{
			Name: "durability", Status: connector.Warn,
			Detail: fmt.Sprintf("a commit may be lost with the power: innodb_flush_log_at_trx_commit = %s, sync_binlog = %s", r[2], r[3]),
			Fix:    "SET GLOBAL innodb_flush_log_at_trx_commit = 1; SET GLOBAL sync_binlog = 1",
		})
	}
	probes = append(probes, s.packetProbe(), s.loadProbe())
	return append(probes, s.foreignProbes(ctx)...), nil
}

func (s *session) versionProbe() connector.Probe {
	const oldestMariaDB, oldestMySQL = 100_600, 80_019
	ok := s.server.number >= oldestMySQL
	if s.server.mariadb {
		ok = s.server.number >= oldestMariaDB
	}
	return sinkProbe("version", ok, "MySQL 8.0.19 or newer, or MariaDB 10.6 or newer", "upgrade the server")
}

// packetProbe says how large a row may be.
func (s *Sink) packetProbe() connector.Probe {
	const small = 16 << 20
	p := connector.Probe{Name: "largest row", Detail: fmt.Sprintf("max_allowed_packet is %d bytes", s.db.packet)}
	if s.db.packet < small {
		p.Status, p.Fix = connector.Warn, "SET GLOBAL max_allowed_packet = 67108864, and in the server's option file"
	}
	return p
}

// loadProbe says by which way many rows go.
func (s *Sink) loadProbe() connector.Probe {
	if s.db.load {
		return connector.Probe{Name: "bulk load", Detail: "LOAD DATA LOCAL is allowed"}
	}
	return connector.Probe{Name: "bulk load", Detail: "by INSERT; SET GLOBAL local_infile = ON allows LOAD DATA LOCAL, which may be faster"}
}

// foreignProbes say what foreign keys and triggers mean for changes.
func (s *Sink) foreignProbes(ctx context.Context) []connector.Probe {
	if s.cfg.Constraints == constraintsOff {
		return nil
	}
	home := literal(s.cfg.home())
	results, err := s.db.run(ctx, "check",
		"SELECT CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = "+home+" ORDER BY 1",
		"SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = "+home+" ORDER BY 1")
	if err != nil {
		return []connector.Probe{{Name: "foreign keys", Status: connector.Warn, Detail: err.Error()}}
	}
	var probes []connector.Probe
	if keys := firstColumn(results[0]); len(keys) > 0 {
		probes = append(probes, connector.Probe{
			Name: "foreign keys", Status: connector.Warn,
			Detail: "checked at once, although the changes of a stream come table by table: " + someOf(keys),
			Fix:    "constraints=off",
		})
	}
	if triggers := firstColumn(results[1]); len(triggers) > 0 {
		probes = append(probes, connector.Probe{
			Name:   "triggers",
			Detail: "fire for what is written, once for each row of a batch, not for each change of the source: " + someOf(triggers),
		})
	}
	return probes
}

func firstColumn(r result) []string {
	out := make([]string, len(r))
	for i, row := range r {
		out[i] = string(row[0])
	}
	return out
}

// someOf lists names, and counts what would be too many.
func someOf(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// granted reports whether the grants, as SHOW GRANTS lists them, have all that a sink needs in a database. Roles and patterns may have
// more than this can tell; then the first write says so.
func granted(grants result, database string) bool {
	have := map[string]bool{}
	for _, g := range firstColumn(grants) {
		rest, ok := strings.CutPrefix(g, "GRANT ")
		list, on, ok2 := strings.Cut(rest, " ON ")
		if !ok || !ok2 {
			continue
		}
		on = strings.NewReplacer("`", "", `\`, "").Replace(on)
		if !strings.HasPrefix(on, "*.*") && !strings.HasPrefix(strings.ToLower(on), strings.ToLower(database)+".*") {
			continue
		}
		for p := range strings.SplitSeq(list, ",") {
			have[strings.TrimSpace(p)] = true
		}
	}
	if have["ALL PRIVILEGES"] {
		return true
	}
	for _, p := range []string{"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "CREATE TEMPORARY TABLES"} {
		if !have[p] {
			return false
		}
	}
	return true
}

// canWrite reports whether a user writes to a server that is read-only for others.
func canWrite(grants result) bool {
	return slices.ContainsFunc(firstColumn(grants), func(g string) bool {
		return strings.Contains(g, " ON *.*") && (strings.Contains(g, "ALL PRIVILEGES") || strings.Contains(g, "SUPER") ||
			strings.Contains(g, "READ_ONLY ADMIN") || strings.Contains(g, "CONNECTION_ADMIN"))
	})
}

// quoteUser quotes a name such as app@%.
func quoteUser(user string) string {
	at := strings.LastIndexByte(user, '@')
	if at < 0 {
		return literal(user)
	}
	return literal(user[:at]) + "@" + literal(user[at+1:])
}

func sinkProbe(name string, ok bool, detail, fix string) connector.Probe {
	if ok {
		return connector.Probe{Name: name, Detail: detail}
	}
	return connector.Probe{Name: name, Status: connector.Fail, Detail: "not so: " + detail, Fix: fix}
}
