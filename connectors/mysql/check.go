package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector"
)

// Oldest versions of the servers, see server.number.
const (
	oldestMySQL   = 80000
	oldestMariaDB = 100600
)

// shortRetention is how long a log should be kept at the least, so that a pipeline may stand still over a weekend.
const shortRetention = 3 * 24 * 60 * 60

// Check implements connector.Checker. Of a source that is followed it says all that server and user lack for it, with the statement for
// each.
func (s *Source) Check(ctx context.Context) ([]connector.Probe, error) {
	db, srv, err := s.server(ctx)
	if err != nil {
		return nil, err
	}
	s.env.Roundtrip("check")
	c := &checking{s: s, q: db, srv: srv}
	probes, err := c.all(ctx)
	if err != nil {
		return nil, s.cfg.wrap("checking MySQL", err)
	}
	if !slices.ContainsFunc(probes, func(p connector.Probe) bool { return p.Status == connector.Fail }) {
		probes = append(probes, s.selection(ctx))
	}
	return probes, nil
}

// selection looks up what would be read, with its columns and types.
func (s *Source) selection(ctx context.Context) connector.Probe {
	tables, err := s.resolved(ctx)
	if err != nil {
		return connector.Probe{Name: "selection", Status: connector.Fail, Detail: err.Error(), Fix: connector.HintOf(err)}
	}
	return connector.Probe{Name: "selection", Detail: fmt.Sprintf("%d datasets", len(tables))}
}

// checking is one look at a server.
type checking struct {
	s    *Source
	q    querier
	srv  server
	user string // as GRANT writes it
	vars map[string]string
}

func (c *checking) all(ctx context.Context) ([]connector.Probe, error) {
	rows, err := ask(ctx, c.q, "SELECT CURRENT_USER()")
	if err != nil {
		return nil, err
	}
	name, host, _ := cutLast(string(rows[0][0]), "@")
	c.user = literal(name) + "@" + literal(host)
	if err := c.variables(ctx); err != nil {
		return nil, err
	}
	zones, err := c.zones(ctx)
	if err != nil {
		return nil, err
	}
	probes := []connector.Probe{c.version(), c.encryption(ctx), zones}
	if c.s.cfg.Query != "" {
		return probes, nil
	}
	tables, err := c.tables(ctx)
	if err != nil {
		return nil, err
	}
	probes = append(probes, tables...)
	if !c.s.cfg.Follow {
		return probes, nil
	}
	grants, err := c.grants(ctx)
	if err != nil {
		return nil, err
	}
	probes = append(probes, grants...)
	probes = append(probes, c.log()...)
	probes = append(probes, c.retention(), c.gtid())
	return append(probes, c.identity(ctx)), nil
}

// cutLast cuts around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if at := strings.LastIndex(s, sep); at >= 0 {
		return s[:at], s[at+len(sep):], true
	}
	return s, "", false
}

// variables reads the settings that are looked at.
func (c *checking) variables(ctx context.Context) error {
	rows, err := ask(ctx, c.q, `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'binlog_row_image',
		'binlog_row_metadata', 'binlog_row_value_options', 'binlog_expire_logs_seconds', 'expire_logs_days', 'gtid_mode',
		'enforce_gtid_consistency', 'gtid_strict_mode', 'server_id', 'server_uuid', 'time_zone', 'system_time_zone',
		'log_slave_updates', 'log_replica_updates', 'read_only', 'max_binlog_total_size')`)
	if err != nil {
		return err
	}
	c.vars = make(map[string]string, len(rows))
	for _, r := range rows {
		c.vars[strings.ToLower(string(r[0]))] = string(r[1])
	}
	return nil
}

func (c *checking) version() connector.Probe {
	p := connector.Probe{Name: "server version", Detail: c.srv.String()}
	switch {
	case c.srv.mariadb && c.srv.number < oldestMariaDB:
		p.Status, p.Fix = connector.Fail, "MariaDB 10.6 or newer"
	case !c.srv.mariadb && c.srv.number < oldestMySQL:
		p.Status, p.Fix = connector.Fail, "MySQL 8.0 or newer"
	}
	return p
}

// encryption says whether the connection is encrypted.
func (c *checking) encryption(ctx context.Context) connector.Probe {
	p := connector.Probe{Name: "encryption"}
	rows, err := ask(ctx, c.q, "SHOW SESSION STATUS LIKE 'Ssl_version'")
	switch {
	case err == nil && len(rows) > 0 && len(rows[0][1]) > 0:
		p.Detail = string(rows[0][1])
	case c.s.cfg.Socket != "":
		p.Detail = "none: the connection goes through a socket of this machine"
	case c.s.cfg.sslMode() == sslDisabled:
		p.Detail = "none, as ssl_mode=disabled says"
	default:
		p.Status, p.Detail = connector.Warn, "none: the server does not offer TLS"
		p.Fix = "give the server ssl_cert and ssl_key, or say ssl_mode=disabled where the network is trusted"
	}
	return p
}

// zones looks at time zones. Values do not depend on them: sessions of this source are in UTC, by an offset. Conditions may.
func (c *checking) zones(ctx context.Context) (connector.Probe, error) {
	zone := c.vars["time_zone"]
	if zone == "SYSTEM" {
		zone += " (" + c.vars["system_time_zone"] + ")"
	}
	p := connector.Probe{Name: "time zones", Detail: "the server's zone is " + zone + "; values are read in UTC whatever it is"}
	rows, err := ask(ctx, c.q, "SELECT CONVERT_TZ('2024-07-01 12:00:00', 'UTC', 'Europe/Berlin')")
	if err != nil {
		return p, err
	}
	if rows[0][0] == nil {
		p.Status = connector.Warn
		p.Detail += "; the server's tables of time zones are empty, so that CONVERT_TZ with a zone's name is NULL in a condition or query"
		p.Fix = "mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql -u root mysql"
		if c.srv.mariadb {
			p.Fix = "mariadb-tzinfo-to-sql /usr/share/zoneinfo | mariadb -u root mysql"
		}
	}
	return p, nil
}

// tables looks at what is selected: whether it may be read, and what does not go well with it.
func (c *checking) tables(ctx context.Context) ([]connector.Probe, error) {
	all, err := readTables(ctx, c.q, c.s.cfg.soleDatabase())
	if err != nil {
		return nil, err
	}
	selected, err := c.s.cfg.choose(all, "")
	if e, ok := errors.AsType[*connector.Error](err); ok {
		p := connector.Probe{Name: "selection", Status: connector.Fail, Detail: e.Error(), Fix: e.Hint}
		if len(all) == 0 {
			p.Fix = "GRANT SELECT ON " + c.database() + ".* TO " + c.user
		}
		return []connector.Probe{p}, nil
	}
	if err != nil {
		return nil, err
	}
	probes := []connector.Probe{c.readable(ctx, selected)}
	var engines, keyless []string
	for _, t := range selected {
		if !t.view && !t.snapshots() {
			engines = append(engines, t.rel.dataset()+" ("+t.engine+")")
		}
		if t.key, _, err = readKey(ctx, c.q, t.rel); err != nil {
			return nil, err
		}
		if t.key == nil && !t.view {
			keyless = append(keyless, t.rel.dataset())
		}
	}
	if len(engines) > 0 {
		probes = append(probes, connector.Probe{
			Name: "engines", Status: connector.Warn,
			Detail: "tables of engines without transactions are read while they change: " + some(engines),
			Fix:    "ALTER TABLE … ENGINE=InnoDB",
		})
	}
	if len(keyless) > 0 {
		probes = append(probes, connector.Probe{
			Name: "keys", Status: connector.Warn,
			Detail: "tables without a primary key, or a unique one of columns that are NOT NULL, are read in one piece: " + some(keyless),
			Fix:    "ALTER TABLE … ADD PRIMARY KEY (…)",
		})
	}
	return probes, nil
}

// some is the beginning of a list.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// database is the database of the selection, as GRANT writes it.
func (c *checking) database() string {
	if name := c.s.cfg.place(c.s.cfg.Table).database; name != "" {
		return ident(name)
	}
	return "*"
}

// readable tries to read from each table, and no row.
func (c *checking) readable(ctx context.Context, tables []tableInfo) connector.Probe {
	p := connector.Probe{Name: "privileges"}
	var denied, fixes []string
	for _, t := range tables {
		if _, err := ask(ctx, c.q, "SELECT * FROM "+t.rel.String()+" LIMIT 0"); err != nil {
			e, ok := serverErrorOf(err)
			if !ok {
				return connector.Probe{Name: "privileges", Status: connector.Fail, Detail: err.Error()}
			}
			denied = append(denied, t.rel.dataset()+": "+e.message)
			fixes = append(fixes, "GRANT SELECT ON "+t.rel.String()+" TO "+c.user)
		}
	}
	if len(denied) > 0 {
		p.Status, p.Detail, p.Fix = connector.Fail, some(denied), strings.Join(fixes, "; ")
		return p
	}
	p.Detail = fmt.Sprintf("%d tables can be read", len(tables))
	return p
}

// grants looks for what following a log needs. It reads the user's own grants, those of roles included.
func (c *checking) grants(ctx context.Context) ([]connector.Probe, error) {
	rows, err := ask(ctx, c.q, "SHOW GRANTS")
	if err != nil {
		return nil, err
	}
	var global []string
	for _, r := range rows {
		if list, _, ok := strings.Cut(strings.ToUpper(string(r[0])), " ON *.* TO "); ok {
			global = append(global, strings.Split(strings.TrimPrefix(list, "GRANT "), ", ")...)
		}
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(append(names, "ALL PRIVILEGES"), func(n string) bool { return slices.Contains(global, n) })
	}
	follow := connector.Probe{Name: "replication privilege", Detail: "REPLICATION SLAVE"}
	if !has("REPLICATION SLAVE", "REPLICATION REPLICA") {
		follow.Status, follow.Detail = connector.Fail, "the user may not read the binary log"
		follow.Fix = "GRANT REPLICATION SLAVE ON *.* TO " + c.user
	}
	client := "REPLICATION CLIENT"
	if c.srv.mariadb {
		client = "BINLOG MONITOR"
	}
	status := connector.Probe{Name: "status privilege", Detail: client}
	if !has("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER") {
		status.Status, status.Detail = connector.Fail, "the user may not ask where the binary log stands"
		status.Fix = "GRANT " + client + " ON *.* TO " + c.user
	}
	return []connector.Probe{follow, status}, nil
}

// log looks at how the binary log is written.
func (c *checking) log() []connector.Probe {
	set := func(name, value string) string {
		if c.srv.mariadb {
			return "SET GLOBAL " + name + " = " + value + ", and in the configuration: " + name + " = " + value
		}
		return "SET PERSIST " + name + " = " + value
	}
	on := connector.Probe{Name: "log_bin", Detail: c.vars["log_bin"]}
	if !isTrue([]byte(on.Detail)) {
		on.Status, on.Fix = connector.Fail, "start the server with log_bin = binlog and server_id = 1 in its configuration"
		return []connector.Probe{on}
	}
	format := connector.Probe{Name: "binlog_format", Detail: c.vars["binlog_format"]}
	if format.Detail != "ROW" {
		format.Status, format.Fix = connector.Fail, set("binlog_format", "ROW")+"; sessions that are open keep the old one"
	}
	image := connector.Probe{Name: "binlog_row_image", Detail: c.vars["binlog_row_image"]}
	if image.Detail != "FULL" && image.Detail != "FULL_NODUP" {
		image.Status = connector.Warn
		image.Detail += ": updates come without the columns that did not change"
		image.Fix = set("binlog_row_image", "FULL")
	}
	probes := []connector.Probe{on, format, image}
	if options := c.vars["binlog_row_value_options"]; options != "" {
		probes = append(probes, connector.Probe{
			Name: "binlog_row_value_options", Status: connector.Warn, Detail: options + ": changes of JSON come in parts",
			Fix: set("binlog_row_value_options", "''"),
		})
	}
	metadata := connector.Probe{Name: "binlog_row_metadata", Detail: c.vars["binlog_row_metadata"]}
	if metadata.Detail != "FULL" {
		metadata.Status = connector.Warn
		metadata.Detail += ": the log does not name columns, so that the history of the tables is kept with the position"
		metadata.Fix = set("binlog_row_metadata", "FULL")
	}
	return append(probes, metadata)
}

// retention looks at how long the server keeps its log.
func (c *checking) retention() connector.Probe {
	p := connector.Probe{Name: "retention"}
	seconds := int64(0)
	if v, ok := c.vars["binlog_expire_logs_seconds"]; ok {
		seconds = max(toInt([]byte(v)), 0)
	}
	if days, err := strconv.ParseFloat(c.vars["expire_logs_days"], 64); err == nil && seconds == 0 {
		seconds = int64(days * 24 * 60 * 60)
	}
	switch {
	case seconds == 0:
		p.Detail = "the log is kept until somebody purges it"
	case seconds < shortRetention:
		p.Status = connector.Warn
		hours := float64(seconds) / 3600
		p.Detail = fmt.Sprintf("the log is kept for %.1f hours: a pipeline that stands still for longer has to begin anew", hours)
		p.Fix = fmt.Sprintf("SET GLOBAL binlog_expire_logs_seconds = %d", 7*24*60*60)
	default:
		p.Detail = fmt.Sprintf("the log is kept for %.1f days", float64(seconds)/86400)
	}
	return p
}

// gtid looks at whether positions survive another primary.
func (c *checking) gtid() connector.Probe {
	if c.srv.mariadb {
		return connector.Probe{Name: "GTID", Detail: "MariaDB numbers its transactions always"}
	}
	p := connector.Probe{Name: "GTID", Detail: "gtid_mode = " + c.vars["gtid_mode"]}
	if c.vars["gtid_mode"] != "ON" {
		p.Status = connector.Warn
		p.Detail += ": a position is a file of this one server, and another primary can't go on from there"
		p.Fix = "SET PERSIST enforce_gtid_consistency = ON; SET PERSIST gtid_mode = OFF_PERMISSIVE; " +
			"SET PERSIST gtid_mode = ON_PERMISSIVE; SET PERSIST gtid_mode = ON"
	}
	return p
}

// identity looks for another reader of the log with the same number, which the server would throw out.
func (c *checking) identity(ctx context.Context) connector.Probe {
	p := connector.Probe{Name: "server_id", Detail: "the server's is " + c.vars["server_id"]}
	if c.vars["server_id"] == "0" {
		p.Status, p.Detail, p.Fix = connector.Fail, "the server has no server_id: nobody may read its log", "SET GLOBAL server_id = 1"
		return p
	}
	own := c.s.cfg.ServerID
	if own == 0 {
		return p
	}
	taken := c.vars["server_id"] == strconv.FormatInt(own, 10)
	rows, err := ask(ctx, c.q, c.replicas())
	if err != nil {
		p.Detail += "; the numbers of its replicas are not shown to this user"
		return p
	}
	for _, r := range rows {
		taken = taken || toInt(r[0]) == own
	}
	if taken {
		p.Status = connector.Fail
		p.Detail = fmt.Sprintf("server_id=%d is in use by the server or by another reader of its log", own)
		p.Fix = "choose another server_id, or leave the option out"
	}
	return p
}

// replicas lists who reads the log.
func (c *checking) replicas() string {
	if !c.srv.mariadb && c.srv.number >= 80022 {
		return "SHOW REPLICAS"
	}
	return "SHOW SLAVE HOSTS"
}
