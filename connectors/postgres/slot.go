package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// ownPrefix begins the names of slots and publications that leat makes.
const ownPrefix = "leat_"

// slotPattern is what the server takes as the name of a slot.
var slotPattern = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// slotName is the slot that the source follows by: the option, or a name made of the pipeline's. Where that has other characters than a
// slot may have, a hash keeps two pipelines apart.
func (s *Source) slotName() string {
	if s.cfg.Slot != "" {
		return s.cfg.Slot
	}
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, s.env.Pipeline)
	name := ownPrefix + clean
	if clean == s.env.Pipeline && len(name) <= maxIdentifier {
		return name
	}
	return name[:min(len(name), maxIdentifier-hashDigits-1)] + "_" + nameHash(s.env.Pipeline)
}

// publicationName is the publication that the source follows by. It may be any text: START_REPLICATION takes it as
// literal(ident(name)), SQL as ident(name).
func (s *Source) publicationName() string {
	if s.cfg.Publication != "" {
		return s.cfg.Publication
	}
	return shortName(ownPrefix + s.env.Pipeline)
}

// validateNames checks the names of slot and publication.
func (c *SourceConfig) validateNames(add func(bad bool, format string, args ...any)) {
	add(c.Slot != "" && !slotPattern.MatchString(c.Slot), "slot is %q: want 1 to %d characters of a-z, 0-9 and _", c.Slot, maxIdentifier)
	add(len(c.Publication) > maxIdentifier, "publication has %d bytes, the server keeps %d", len(c.Publication), maxIdentifier)
}

// slotInfo is what the server says of a slot.
type slotInfo struct {
	Plugin    string `json:"plugin"`
	Type      string `json:"slot_type"`
	Database  string `json:"database"`
	Here      bool   `json:"here"` // it is of the database that was asked
	Temporary bool   `json:"temporary"`
	Active    bool   `json:"active"`
	Restart   lsn    `json:"restart_lsn"` // the oldest log that it keeps; 0: none
	Confirmed lsn    `json:"confirmed_flush_lsn"`
	State     string `json:"wal_status"`          // reserved, extended, unreserved, lost
	Reason    string `json:"invalidation_reason"` // PostgreSQL 17: why it can't be used any more
	Conflict  bool   `json:"conflicting"`         // PostgreSQL 16, on a standby: rows that it needs are gone
	TwoPhase  bool   `json:"two_phase"`
	Synced    bool   `json:"synced"` // PostgreSQL 17, on a standby: it belongs to the primary
	Age       int64  `json:"age"`    // of catalog_xmin, in transactions
	Holder    string `json:"holder"` // who uses it
	// Application is the name that the one who uses it gave itself.
	Application string `json:"application"`
	Now         lsn    `json:"now"` // the end of the server's log
}

// nowLSN is the end of the log as far as it is safe, and so may be sent.
const nowLSN = `CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
	ELSE pg_catalog.pg_current_wal_flush_lsn() END`

// holderSQL names a process for people. Whom the role may not look into has a number and an application.
const holderSQL = `'process ' || a.pid || ' (' || pg_catalog.concat_ws(', ', 'application ' || NULLIF(a.application_name, ''),
	'role ' || a.usename, 'database ' || a.datname, 'address ' || pg_catalog.host(a.client_addr), a.state,
	'in a transaction since ' || pg_catalog.to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC') || ')'`

const slotSQL = `SELECT pg_catalog.to_jsonb(s) || pg_catalog.jsonb_build_object('now', ` + nowLSN + `,
	'here', s.datoid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()),
	'age', pg_catalog.age(s.catalog_xmin),
	'application', (SELECT a.application_name FROM pg_catalog.pg_stat_activity a WHERE a.pid = s.active_pid),
	'holder', (SELECT ` + holderSQL + ` FROM pg_catalog.pg_stat_activity a WHERE a.pid = s.active_pid))
FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1`

// readSlot returns what the server says of a slot; nil: there is none.
func readSlot(ctx context.Context, pg *pgconn.PgConn, name string) (*slotInfo, error) {
	rows, err := ask(ctx, pg, slotSQL, name)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	s := new(slotInfo)
	if err := json.Unmarshal(rows[0][0], s); err != nil {
		return nil, fmt.Errorf("reading the slot: %w", err)
	}
	if s.Active && s.Holder == "" {
		s.Holder = "a process"
	}
	return s, nil
}

// lost says why the slot can't be used any more; empty: it can.
func (i *slotInfo) lost() string {
	reasons := map[string]string{
		"wal_removed":            "the server removed log that it still needed (max_slot_wal_keep_size)",
		"rows_removed":           "the standby removed rows that it still needed (hot_standby_feedback was off)",
		"wal_level_insufficient": "wal_level of the primary was lowered",
		"idle_timeout":           "nobody used it for longer than idle_replication_slot_timeout",
	}
	switch {
	case reasons[i.Reason] != "":
		return reasons[i.Reason]
	case i.Reason != "":
		return "the server invalidated it: " + i.Reason
	case i.State == "lost":
		return reasons["wal_removed"]
	case i.Conflict:
		return reasons["rows_removed"]
	}
	return ""
}

// foreign says why a slot of the right name is not one to follow by; empty: it is.
func (i *slotInfo) foreign() string {
	switch {
	case i.Type != "logical":
		return "it is a physical slot"
	case !i.Here:
		return "it belongs to database " + strconv.Quote(i.Database)
	case i.Plugin != "pgoutput":
		return "its plugin is " + i.Plugin + ", not pgoutput"
	case i.Temporary:
		return "it is a temporary one of another session"
	case i.TwoPhase:
		return "it sends prepared transactions before they are committed (two_phase)"
	}
	return ""
}

// slotChoice is what Anchor does about a slot.
type slotChoice uint8

const (
	makeSlot    slotChoice = iota
	takeSlot               // it goes on where it stands
	replaceSlot            // it is of no use where it stands
)

// adoptBytes is how much log a slot that nothing refers to may be behind. A snapshot follows, which has all of that already.
const adoptBytes = 256 << 20

// chooseSlot decides about a slot that nothing saved refers to, and that could be followed: a start that crashed left it behind, or an
// administrator made it. It is taken where it stands, unless that is of no use: it was invalidated, it stands so far behind that
// replacing it is cheaper, or the publication is not older than it is (the server can't send what happened before there was the
// publication). One that somebody uses is never touched.
func chooseSlot(name string, slot *slotInfo, p *publication) (slotChoice, error) {
	switch {
	case slot == nil:
		return makeSlot, nil
	case slot.Active:
		return 0, &connector.Error{
			Class: connector.ClassTransient, Code: "postgres.slot.active", Doing: "taking the replication slot " + strconv.Quote(name),
			Err: fmt.Errorf("%s uses it", slot.Holder), Hint: "stop that one, or name another slot: slot=NAME",
		}
	case slot.lost() != "" || p == nil || p.Age <= slot.Age || slot.Now > slot.Confirmed+adoptBytes:
		return replaceSlot, nil
	}
	return takeSlot, nil
}

// Anchor implements connector.Anchor: it makes the publication and then the slot, and returns where the slot's stream begins. All
// that the server or the role lacks for it is reported at once, before anything is changed. After an error nothing is left of what
// the call made.
func (s *Source) Anchor(ctx context.Context) (record.Position, error) {
	if !s.cfg.Follow {
		return record.Position{}, nil
	}
	a := &anchoring{s: s, slot: s.slotName()}
	p, err := a.run(ctx)
	if err != nil {
		a.undo(ctx)
		return record.Position{}, s.cfg.wrap("making the place to follow from", err)
	}
	return p.encode(), nil
}

// anchoring is one call of Anchor.
type anchoring struct {
	s    *Source
	slot string

	madePublication, madeSlot bool
}

func (a *anchoring) run(ctx context.Context) (p streamPosition, err error) {
	facts, err := a.facts(ctx)
	if err != nil {
		return p, err
	}
	if err := facts.refusal(); err != nil {
		return p, err
	}
	if _, err := chooseSlot(a.slot, facts.slot, facts.publication); err != nil {
		return p, err
	}
	var pub *publication
	err = a.s.borrow(ctx, func(pg *pgconn.PgConn) (err error) {
		pub, a.madePublication, err = a.s.publish(ctx, pg, facts)
		return err
	})
	if err != nil {
		return p, err
	}
	if p.origin, err = a.s.identify(ctx); err != nil {
		return p, err
	}
	p.Publication = pub.OID
	if p.LSN, err = a.take(ctx, facts, pub); err != nil {
		return p, err
	}
	p.Created = p.LSN
	return p, nil
}

// deadSession is how long the server may take to notice that the one who uses a slot has died.
const deadSession = 5 * time.Second

// facts looks at the server. A slot that a process of our name uses may be used by one that died, which the server soon notices.
func (a *anchoring) facts(ctx context.Context) (*followFacts, error) {
	for end := time.Now().Add(deadSession); ; {
		f, err := a.s.followFacts(ctx)
		ours := err == nil && f.slot != nil && f.slot.Active && f.slot.Application == a.s.cfg.ApplicationName
		if !ours || time.Now().After(end) {
			return f, err
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return f, nil //nolint:nilerr // the next call says so
		}
	}
}

// take returns where the stream begins.
func (a *anchoring) take(ctx context.Context, f *followFacts, pub *publication) (lsn, error) {
	s := a.s
	choice, err := chooseSlot(a.slot, f.slot, pub)
	if err != nil {
		return 0, err
	}
	if choice == takeSlot {
		s.env.Log.InfoContext(ctx, "a replication slot that nothing refers to is taken over where it stands",
			slog.String("slot", a.slot), slog.String("position", f.slot.Confirmed.String()))
		return f.slot.Confirmed, nil
	}
	if choice == replaceSlot {
		s.env.Log.InfoContext(ctx, "a replication slot that nothing refers to is of no use where it stands, and replaced",
			slog.String("slot", a.slot), slog.String("position", f.slot.Confirmed.String()))
		if err := s.borrow(ctx, func(pg *pgconn.PgConn) error { return dropSlot(ctx, pg, a.slot) }); err != nil {
			return 0, err
		}
	}
	at, err := s.makeSlot(ctx, a.slot, f)
	var server *pgconn.PgError
	// With the connection lost nobody knows whether it was made: there was none before, so it would be ours.
	a.madeSlot = err == nil || !errors.As(err, &server)
	return at, err
}

// undo removes what the call made, also when its context is over.
func (a *anchoring) undo(ctx context.Context) {
	if !a.madeSlot && !a.madePublication {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := a.s.borrow(ctx, func(pg *pgconn.PgConn) error {
		var errs []error
		if a.madeSlot {
			errs = append(errs, dropSlot(ctx, pg, a.slot))
		}
		if a.madePublication {
			errs = append(errs, command(ctx, pg, "DROP PUBLICATION IF EXISTS "+ident(a.s.publicationName())))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		a.s.env.Log.WarnContext(ctx, "removing what a start that did not succeed had made", slog.Any("error", a.s.cfg.redact(err)))
	}
}

// dropSlot removes a slot, if there is one.
func dropSlot(ctx context.Context, pg *pgconn.PgConn, name string) error {
	_, err := ask(ctx, pg, `SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots
		WHERE slot_name = $1`, name)
	return err
}

// Versions of the server at which following gets more.
const (
	followVersion    = 140000 // the forms of slots and of the stream that are used
	columnsVersion   = 150000 // publications have lists of columns, conditions, and schemas
	standbyVersion   = 160000 // a standby can be followed
	failoverVersion  = 170000 // slots survive the loss of the primary
	generatedVersion = 180000 // generated columns can be published
)

// slotPatience is how long the making of a slot waits for transactions that began before, where the option statement_timeout says
// nothing.
const slotPatience = 5 * time.Minute

func (s *Source) patience() time.Duration {
	if s.cfg.Timeout > 0 {
		return s.cfg.Timeout
	}
	return slotPatience
}

// makeSlot makes the slot and returns where its stream begins. The server waits until all transactions are over that began before, of
// every database; meanwhile the log says which.
func (s *Source) makeSlot(ctx context.Context, name string, f *followFacts) (lsn, error) {
	patience := s.patience()
	create := func(failover bool) (at lsn, holder string, err error) {
		err = s.borrow(ctx, func(pg *pgconn.PgConn) error {
			stop := s.watchSlot(ctx, pg.PID(), f.Recovery)
			at, err = createSlot(ctx, pg, name, failover, patience)
			holder = stop()
			return err
		})
		return at, holder, err
	}
	failover := f.Version >= failoverVersion && !f.Recovery
	at, holder, err := create(failover)
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "0A000" && failover {
		at, holder, err = create(false) // a server that can't let slots fail over, and says so
	}
	if !errors.As(err, &server) {
		return at, err
	}
	e := &connector.Error{Doing: "making the replication slot " + strconv.Quote(name), Err: s.cfg.redact(serverMessage(server))}
	e.Class, e.Code, e.Hint = classify(server)
	if server.Code == "57014" && holder != "" {
		e.Code, e.Err = "postgres.slot.wait", fmt.Errorf("it has to wait for %s, which did not end within %s", holder, patience)
		e.Hint = "end that transaction and run again; statement_timeout sets how long to wait"
	}
	return 0, e
}

func createSlot(ctx context.Context, pg *pgconn.PgConn, name string, failover bool, patience time.Duration) (at lsn, err error) {
	// So that the server does not go on waiting for others when this process has died. Not every platform has it.
	_ = command(ctx, pg, "SET client_connection_check_interval = '1s'")
	err = command(ctx, pg, fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = %d", patience.Milliseconds()))
	if err != nil {
		return 0, err
	}
	more := ""
	if failover {
		more = ", false, true"
	}
	rows, err := ask(ctx, pg, `SELECT lsn FROM pg_catalog.pg_create_logical_replication_slot($1, 'pgoutput', false`+more+`)`, name)
	if err != nil {
		return 0, err
	}
	if at, err = parseLSN(string(rows[0][0])); err != nil {
		return 0, err
	}
	return at, command(ctx, pg, "COMMIT")
}

// Waiting for the making of a slot is reported after slotQuiet, and then every slotReport.
const (
	slotQuiet  = time.Second
	slotReport = 30 * time.Second
)

// watchSlot says in the log what a process waits for that makes a slot. The function that it returns ends that, and returns what was
// found last.
func (s *Source) watchSlot(ctx context.Context, pid uint32, standby bool) func() string {
	ctx, cancel := context.WithCancel(ctx)
	var holder string
	var work sync.WaitGroup
	work.Go(func() {
		timer := time.NewTimer(slotQuiet)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			who, err := s.blocking(ctx, pid)
			if err == nil && who == "" && standby {
				who = "the primary to log its open transactions (on the primary: SELECT pg_log_standby_snapshot();)"
			}
			if err == nil && who != "" {
				holder = who
				s.env.Log.WarnContext(ctx, "the making of a replication slot waits", slog.String("for", who))
			}
			timer.Reset(slotReport)
		}
	})
	return func() string {
		cancel()
		work.Wait()
		return holder
	}
}

// blockingSQL names what a process waits for: other processes, and transactions that were prepared and forgotten.
const blockingSQL = `SELECT ` + holderSQL + ` FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids($1::int4)) b(pid)
	JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid
UNION ALL SELECT 'the prepared transaction ' || pg_catalog.quote_literal(p.gid) || ' (role ' || p.owner || ', database ' || p.database
	|| ', since ' || pg_catalog.to_char(p.prepared AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC)'
	FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = l.transactionid
	WHERE l.pid = $1::int4 AND NOT l.granted`

func (s *Source) blocking(ctx context.Context, pid uint32) (who string, err error) {
	err = s.borrow(ctx, func(pg *pgconn.PgConn) error {
		rows, err := ask(ctx, pg, blockingSQL, strconv.FormatUint(uint64(pid), 10))
		list := make([]string, len(rows))
		for i, r := range rows {
			list[i] = string(r[0])
		}
		who = strings.Join(list, ", ")
		return err
	})
	return who, err
}
