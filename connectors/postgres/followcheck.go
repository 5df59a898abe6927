package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
)

// followFacts is all that decides whether the source can be followed. It is read in a few queries, and judged without any.
type followFacts struct {
	Version     int               `json:"version"`
	Role        string            `json:"role"`
	Super       bool              `json:"super"`
	Replication bool              `json:"replication"` // the role may replicate
	RDS         bool              `json:"rds"`         // by a role that Amazon has for it
	Create      bool              `json:"create"`      // the role may make publications
	Database    string            `json:"database"`
	Recovery    bool              `json:"recovery"` // a standby
	Slots       int               `json:"slots"`
	IdleSlots   []string          `json:"idle"`
	Senders     int               `json:"senders"`
	Settings    map[string]string `json:"settings"`
	Oldest      []openTransaction `json:"oldest"`

	Pooled bool `json:"pooled"` // a pooler is in between

	name        string // of the publication
	slotName    string
	columns     []string // that are read; nil: all
	slot        *slotInfo
	publication *publication
	tables      []*followTable
}

// openTransaction is one that a slot would have to wait for.
type openTransaction struct {
	Who     string `json:"who"`
	Seconds int64  `json:"seconds"` // that it has been open
	End     string `json:"end"`     // the statement that ends it
}

// followSettings are the settings of the server that matter.
func followSettings() []string {
	return []string{
		"wal_level", "max_replication_slots", "max_wal_senders", "max_slot_wal_keep_size", "idle_replication_slot_timeout",
		"wal_sender_timeout", "hot_standby_feedback", "primary_slot_name", "rds.logical_replication", "cloudsql.logical_decoding",
		"azure.extensions",
	}
}

const followFactsSQL = `SELECT pg_catalog.jsonb_build_object('version', pg_catalog.current_setting('server_version_num')::int,
	'role', r.rolname, 'super', r.rolsuper,
	'replication', r.rolsuper OR r.rolreplication OR coalesce(pg_catalog.pg_has_role(rds.oid, 'USAGE'), false),
	'rds', rds.oid IS NOT NULL, 'create', pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
	'pooled', pg_catalog.pg_backend_pid() <> $2::int4,
	'database', pg_catalog.current_database(), 'recovery', pg_catalog.pg_is_in_recovery(),
	'slots', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots),
	'idle', (SELECT pg_catalog.jsonb_agg(s.slot_name ORDER BY s.slot_name) FROM pg_catalog.pg_replication_slots s WHERE NOT s.active),
	'senders', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_get_wal_senders()),
	'settings', (SELECT pg_catalog.jsonb_object_agg(s.name, pg_catalog.current_setting(s.name)) FROM pg_catalog.pg_settings s
		WHERE s.name = ANY (pg_catalog.string_to_array($1, ','))),
	'oldest', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('who', o.who, 'seconds', o.seconds, 'end', o.fix)
		ORDER BY o.seconds DESC) FROM (
		SELECT ` + holderSQL + ` AS who, pg_catalog.date_part('epoch', pg_catalog.now() - a.xact_start)::int8 AS seconds,
			'SELECT pg_terminate_backend(' || a.pid || ');' AS fix
		FROM pg_catalog.pg_stat_activity a WHERE a.backend_xid IS NOT NULL
		UNION ALL SELECT 'the prepared transaction ' || pg_catalog.quote_literal(p.gid) || ' of role ' || p.owner || ' in database '
				|| p.database,
			pg_catalog.date_part('epoch', pg_catalog.now() - p.prepared)::int8,
			'ROLLBACK PREPARED ' || pg_catalog.quote_literal(p.gid) || ';'
		FROM pg_catalog.pg_prepared_xacts p) o))
FROM pg_catalog.pg_roles r LEFT JOIN pg_catalog.pg_roles rds ON rds.rolname = 'rds_replication' WHERE r.rolname = current_user`

// followFacts reads what decides whether the source can be followed.
func (s *Source) followFacts(ctx context.Context) (f *followFacts, err error) {
	err = s.borrow(ctx, func(pg *pgconn.PgConn) error {
		s.env.Roundtrip("check")
		if err := s.begin(ctx, pg, ""); err != nil {
			return err
		}
		if err := command(ctx, pg, catalogPath); err != nil {
			return err
		}
		all, err := readRelations(ctx, pg)
		if err != nil {
			return err
		}
		selected, err := s.cfg.selectRelations(all)
		if err != nil {
			return err
		}
		if f, err = s.readFollowFacts(ctx, pg, selected); err != nil {
			return err
		}
		return command(ctx, pg, "COMMIT")
	})
	return f, err
}

// readFollowFacts reads them in the transaction that pg has open.
func (s *Source) readFollowFacts(ctx context.Context, pg *pgconn.PgConn, selected []relationInfo) (*followFacts, error) {
	f := &followFacts{name: s.publicationName(), slotName: s.slotName()}
	if len(s.cfg.Columns) > 0 {
		f.columns = s.cfg.Columns
	}
	rows, err := ask(ctx, pg, followFactsSQL, strings.Join(followSettings(), ","), strconv.FormatUint(uint64(pg.PID()), 10))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(rows[0][0], f); err != nil {
		return nil, fmt.Errorf("reading what the server says of itself: %w", err)
	}
	if f.Version < followVersion {
		return f, nil // it does not know the rest
	}
	if f.slot, err = readSlot(ctx, pg, f.slotName); err != nil {
		return nil, err
	}
	if f.publication, err = readPublication(ctx, pg, f.name, s.env.Pipeline); err != nil {
		return nil, err
	}
	f.tables, err = readFollowTables(ctx, pg, selected)
	return f, err
}

// refusal returns all that keeps the source from being followed, as one error; nil: nothing.
func (f *followFacts) refusal() error {
	var what, fixes []string
	for _, p := range f.probes() {
		if p.Status == connector.Fail {
			what, fixes = append(what, p.Name+": "+p.Detail), append(fixes, p.Fix)
		}
	}
	if len(what) == 0 {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "postgres.follow", Doing: "preparing to follow the database " + strconv.Quote(f.Database),
		Err: errors.New(strings.Join(what, "; ")), Hint: strings.Join(fixes, "\n"),
	}
}

// probes judges everything. The order is that in which fixes are best done.
func (f *followFacts) probes() []connector.Probe {
	if f.Version < followVersion {
		return []connector.Probe{{
			Name: "follow", Status: connector.Fail, Fix: "PostgreSQL 14 or newer; or leave follow out",
			Detail: fmt.Sprintf("PostgreSQL %d does not have all that following needs", f.Version/10_000),
		}}
	}
	out := []connector.Probe{f.walLevel(), f.role(), f.slots(), f.senders()}
	if f.Recovery {
		out = append(out, f.standby())
	}
	out = append(out, f.identities()...)
	out = append(out, f.published()...)
	out = append(out, f.leftOut(), f.rowSecurity(), f.slotState())
	return slices.DeleteFunc(append(out, f.limits()...), func(p connector.Probe) bool { return p.Name == "" })
}

func (f *followFacts) walLevel() connector.Probe {
	p := connector.Probe{Name: "wal_level", Detail: f.Settings["wal_level"]}
	if p.Detail == "logical" {
		return p
	}
	p.Status = connector.Fail
	p.Detail += ": the log does not have what following needs"
	switch {
	case f.Settings["rds.logical_replication"] != "":
		p.Fix = "set rds.logical_replication to 1 in the parameter group, then reboot the instance"
	case f.Settings["cloudsql.logical_decoding"] != "":
		p.Fix = "set the flag cloudsql.logical_decoding to on, then restart the instance"
	case f.Settings["azure.extensions"] != "":
		p.Fix = "set the server parameter wal_level to logical, then restart the server"
	default:
		p.Fix = "ALTER SYSTEM SET wal_level = logical; -- then restart the server"
	}
	if f.Recovery {
		p.Fix += ", first of the primary and then of this standby"
	}
	return p
}

func (f *followFacts) role() connector.Probe {
	p := connector.Probe{Name: "replication", Detail: f.Role + " may replicate"}
	if f.Replication {
		return p
	}
	p.Status, p.Detail = connector.Fail, f.Role+" may not replicate"
	p.Fix = fmt.Sprintf("ALTER ROLE %s REPLICATION;", ident(f.Role))
	if f.RDS {
		p.Fix = fmt.Sprintf("GRANT rds_replication TO %s;", ident(f.Role))
	}
	return p
}

// slotRoom is how many slots and senders a new limit has beyond what is in use.
const slotRoom = 5

func (f *followFacts) slots() connector.Probe {
	limit := toInt([]byte(f.Settings["max_replication_slots"]))
	p := connector.Probe{Name: "max_replication_slots", Detail: fmt.Sprintf("%d of %d in use", f.Slots, limit)}
	if f.slot != nil || int64(f.Slots) < limit {
		return p
	}
	p.Status = connector.Fail
	p.Fix = fmt.Sprintf("ALTER SYSTEM SET max_replication_slots = %d; -- then restart the server", f.Slots+slotRoom)
	if len(f.IdleSlots) > 0 {
		p.Detail += "; nobody is connected to " + strings.Join(f.IdleSlots, ", ")
	}
	return p
}

func (f *followFacts) senders() connector.Probe {
	limit := toInt([]byte(f.Settings["max_wal_senders"]))
	p := connector.Probe{Name: "max_wal_senders", Detail: fmt.Sprintf("%d of %d in use", f.Senders, limit)}
	if int64(f.Senders) < limit || (f.slot != nil && f.slot.Active) {
		return p
	}
	p.Status = connector.Fail
	p.Fix = fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d; -- then restart the server", f.Senders+slotRoom)
	return p
}

func (f *followFacts) standby() connector.Probe {
	p := connector.Probe{Name: "standby", Detail: "changes are read from a standby"}
	const primary = "connect to the primary: target_session_attrs=primary with all hosts"
	switch {
	case f.Version < standbyVersion:
		p.Status, p.Fix = connector.Fail, primary
		p.Detail = "this is a standby, and only PostgreSQL 16 and newer can be followed there"
	case f.Settings["hot_standby_feedback"] != "on":
		p.Status, p.Fix = connector.Fail, "ALTER SYSTEM SET hot_standby_feedback = on;\nSELECT pg_reload_conf(); -- both on this standby"
		p.Detail = "hot_standby_feedback is off: the primary would remove rows that the slot needs, and the slot would be lost"
	case f.Settings["primary_slot_name"] == "":
		p.Status = connector.Warn
		p.Detail = "primary_slot_name is not set: whenever this standby is away, the primary may remove rows that the slot needs"
		p.Fix = "give the standby a physical slot on the primary, and name it in primary_slot_name; or " + primary
	}
	return p
}

// published says whether the publication has what is selected, or can be made.
func (f *followFacts) published() []connector.Probe {
	p := connector.Probe{Name: "publication", Detail: fmt.Sprintf("%q has all %d tables", f.name, len(f.tables))}
	var hidden, roots []string
	for _, t := range f.tables {
		if r := f.root(t); r != "" {
			hidden, roots = append(hidden, t.dataset()), append(roots, r)
		}
	}
	switch {
	case f.publication == nil:
		p = f.unmade()
	case len(hidden) > 0:
		p.Status = connector.Fail
		p.Detail = fmt.Sprintf("%q sends changes of %s under the name of the partitioned table", f.name, strings.Join(hidden, ", "))
		p.Fix = "select the partitioned table: tables=" + strings.Join(slices.Compact(roots), ",")
	default:
		fixes := f.alterPublication()
		if own := f.publication.ours() && f.publication.plain(); len(fixes) > 0 && (!own || len(notOwned(f.unpublished())) > 0) {
			p.Status, p.Fix = connector.Fail, strings.Join(fixes, "\n")
			p.Detail = fmt.Sprintf("%q of %s does not send all changes of all tables, and %s does not change it by itself", f.name,
				f.publication.Owner, f.Role)
		} else if len(fixes) > 0 {
			p.Detail = fmt.Sprintf("%q is made to fit by the start", f.name)
		}
	}
	out := []connector.Probe{p}
	if f.publication == nil {
		return out
	}
	for _, t := range f.tables {
		if m, _ := f.publication.member(t.OID); m.Filter != "" {
			out = append(out, connector.Probe{
				Name: "rows of " + t.dataset(), Detail: "copied and followed are those that the publication has: " + m.Filter,
			})
		}
	}
	return out
}

// unmade is about a publication that has to be made.
func (f *followFacts) unmade() connector.Probe {
	p := connector.Probe{Name: "publication", Detail: fmt.Sprintf("%q is made by the start", f.name)}
	var why []string
	if !f.Create {
		why = append(why, fmt.Sprintf("%s may not create in database %s", f.Role, f.Database))
	}
	if others := notOwned(f.tables); len(others) > 0 {
		why = append(why, fmt.Sprintf("%s does not own %s", f.Role, strings.Join(others, ", ")))
	}
	if f.Recovery {
		why = append(why, "a standby can't make one")
	}
	if len(why) == 0 {
		return p
	}
	p.Status, p.Detail = connector.Fail, fmt.Sprintf("there is no publication %q, and %s", f.name, strings.Join(why, ", and "))
	p.Fix = f.createPublication() + " -- as the owner of the tables or a superuser"
	if f.Recovery {
		p.Fix += ", on the primary"
	}
	return p
}

// notOwned are those of the tables that the role does not own.
func notOwned(tables []*followTable) []string {
	var out []string
	for _, t := range tables {
		if !t.Owned {
			out = append(out, t.dataset())
		}
	}
	return out
}

// slotState is about a slot that is there already.
func (f *followFacts) slotState() connector.Probe {
	p := connector.Probe{Name: "slot", Detail: fmt.Sprintf("%q is made by the start", f.slotName)}
	if f.slot == nil {
		if len(f.Oldest) > 0 && time.Duration(f.Oldest[0].Seconds)*time.Second > slotPatience {
			p.Status, p.Fix = connector.Warn, f.Oldest[0].End
			p.Detail = fmt.Sprintf("%q can't be made before a transaction ends that is open for %s: %s", f.slotName,
				time.Duration(f.Oldest[0].Seconds)*time.Second, f.Oldest[0].Who)
		}
		return p
	}
	other := "slot=NAME, another one; or, if nobody needs this one: SELECT pg_drop_replication_slot(" + literal(f.slotName) + ");"
	p.Detail = fmt.Sprintf("%q stands at %s, %s behind", f.slotName, f.slot.Confirmed, sizeText(int64(f.slot.Now-f.slot.Confirmed)))
	switch {
	case f.slot.foreign() != "":
		p.Status, p.Detail, p.Fix = connector.Fail, fmt.Sprintf("%q: %s", f.slotName, f.slot.foreign()), other
	case f.slot.lost() != "":
		p.Status, p.Detail = connector.Warn, fmt.Sprintf("%q is lost: %s", f.slotName, f.slot.lost())
		p.Fix = "run with --restart, which reads all tables again"
	case f.slot.Synced && f.Recovery:
		p.Status, p.Detail = connector.Fail, fmt.Sprintf("%q is the primary's, and can be used here only after a failover", f.slotName)
		p.Fix = "slot=NAME, another one; or connect to the primary"
	case f.slot.Active:
		p.Status, p.Fix = connector.Warn, "stop that one before this one is started, or: slot=NAME, another one"
		p.Detail = fmt.Sprintf("%q is in use by %s", f.slotName, f.slot.Holder)
	}
	return p
}

// limits are settings by which the server may give the slot up.
func (f *followFacts) limits() []connector.Probe {
	keep := connector.Probe{Name: "max_slot_wal_keep_size", Detail: f.Settings["max_slot_wal_keep_size"]}
	if keep.Detail == "-1" {
		keep.Detail = "unlimited: the server keeps its log for as long as the pipeline is stopped"
	} else {
		keep.Status = connector.Warn
		keep.Detail += ": a pipeline that is further behind loses its slot, and has to read all tables again"
		keep.Fix = "ALTER SYSTEM SET max_slot_wal_keep_size = -1;\nSELECT pg_reload_conf();"
	}
	idle := connector.Probe{Name: "idle_replication_slot_timeout", Detail: f.Settings["idle_replication_slot_timeout"]}
	switch idle.Detail {
	case "": // a setting of PostgreSQL 18
		idle.Name = ""
	case "0":
		idle.Detail = "never"
	default:
		idle.Status = connector.Warn
		idle.Detail += ": a pipeline that is stopped for longer loses its slot, and has to read all tables again"
		idle.Fix = "ALTER SYSTEM SET idle_replication_slot_timeout = 0;\nSELECT pg_reload_conf();"
	}
	sender := connector.Probe{Name: "wal_sender_timeout", Detail: f.Settings["wal_sender_timeout"]}
	if sender.Detail == "0" {
		sender.Detail = "never: the slot of a connection that was cut stays in use until the network says so"
	}
	return []connector.Probe{keep, idle, sender}
}

// direct says whether a replication connection can be made: changes come over no other, and no pooler lets it through.
func (s *Source) direct(ctx context.Context, f *followFacts) []connector.Probe {
	if f.Version < followVersion {
		return nil
	}
	p := connector.Probe{Name: "replication connection", Detail: "it can be made"}
	const itself = "set host and port of the server itself, not those of a pooler"
	if f.role().Status == connector.Fail || f.senders().Status == connector.Fail {
		if !f.Pooled {
			return nil // it could not be made, for reasons that were said
		}
		p.Status, p.Fix = connector.Warn, itself
		p.Detail = "connections go through a pooler, and a replication connection can't"
		return []connector.Probe{p}
	}
	err := s.replication(ctx, func(pg *pgconn.PgConn) error {
		_, err := pg.Exec(ctx, "IDENTIFY_SYSTEM").ReadAll()
		return err //nolint:wrapcheck // the caller says what was being done
	})
	if err != nil {
		p.Status, p.Detail, p.Fix = connector.Fail, err.Error(), fixOf(err)
		if f.Pooled {
			p.Fix = itself
		}
	}
	return []connector.Probe{p}
}
