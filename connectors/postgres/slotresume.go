package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
)

// identitySQL says which server this is. A standby does not know its timeline in SQL.
const identitySQL = `SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()),
	CASE WHEN NOT pg_catalog.pg_is_in_recovery()
	THEN ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8))::bit(32)::int8 END`

// identify returns what the positions of the source mean at this moment: system, timeline and slot.
func (s *Source) identify(ctx context.Context) (origin, error) {
	at := origin{Slot: s.slotName()}
	var rows [][][]byte
	err := s.borrow(ctx, func(pg *pgconn.PgConn) (err error) {
		s.env.Roundtrip("identify")
		rows, err = ask(ctx, pg, identitySQL)
		return err
	})
	if err == nil && rows[0][1] != nil {
		at.System, at.Timeline = string(rows[0][0]), toInt(rows[0][1])
		return at, nil
	}
	if err != nil && ctx.Err() != nil {
		return at, err
	}
	// A standby, or a server that shows it only to those who replicate.
	err = s.replication(ctx, func(pg *pgconn.PgConn) error {
		results, err := pg.Exec(ctx, "IDENTIFY_SYSTEM").ReadAll()
		if err != nil {
			return err //nolint:wrapcheck // the caller says what was being done
		}
		at.System, at.Timeline = string(results[0].Rows[0][0]), toInt(results[0].Rows[0][1])
		return nil
	})
	return at, err
}

// replication runs f on a replication connection of its own, which takes simple statements only.
func (s *Source) replication(ctx context.Context, f func(pg *pgconn.PgConn) error) error {
	cfg, err := s.cfg.connConfig()
	if err != nil {
		return err
	}
	cfg.RuntimeParams["replication"] = "database"
	s.env.Roundtrip("connect")
	pg, err := pgconn.ConnectConfig(ctx, &cfg.Config)
	if err != nil {
		return replicationError(s.cfg.connectError(cfg, err), cfg.User)
	}
	err = f(pg)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if e := pg.Close(ctx); e != nil {
		s.env.Log.DebugContext(ctx, "closing a replication connection", slog.Any("error", e))
	}
	return err
}

// timelineSwitch is where a timeline was left for the next one.
type timelineSwitch struct {
	timeline int64
	at       lsn
}

// readHistory returns the timelines that led to this one.
func (s *Source) readHistory(ctx context.Context, timeline int64) (history []timelineSwitch, err error) {
	err = s.replication(ctx, func(pg *pgconn.PgConn) error {
		results, err := pg.Exec(ctx, "TIMELINE_HISTORY "+strconv.FormatInt(timeline, 10)).ReadAll()
		if err != nil {
			return err //nolint:wrapcheck // the caller says what was being done
		}
		history, err = parseHistory(string(results[0].Rows[0][1]))
		return err
	})
	return history, err
}

// parseHistory reads a timeline history file: lines of a timeline, the position where it was left, and why.
func parseHistory(text string) ([]timelineSwitch, error) {
	var out []timelineSwitch
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("the timeline history has a line %q", line)
		}
		timeline, errT := strconv.ParseInt(fields[0], 10, 64)
		at, errA := parseLSN(fields[1])
		if err := errors.Join(errT, errA); err != nil {
			return nil, fmt.Errorf("the timeline history: %w", err)
		}
		out = append(out, timelineSwitch{timeline, at})
	}
	return out, nil
}

// resumption is what decides whether a stream can go on at a position.
type resumption struct {
	here        origin
	slot        *slotInfo
	publication *publication
	end         lsn // of the server's log
	standby     bool
	history     []timelineSwitch // where the position is of another timeline
}

// resume checks that the stream can go on at p with nothing missing, and sees to it that the publication has every table of the run. It
// returns the position as it is on the server that is there now: after a failover its timeline is another. An error of class
// ClassPosition says what is missing and what the choices are; errors of other classes say nothing about the position.
func (s *Source) resume(ctx context.Context, p streamPosition) (streamPosition, error) {
	doing := fmt.Sprintf("resuming the stream of slot %q at %s", s.slotName(), p.LSN)
	r, err := s.readResumption(ctx, p)
	if err != nil {
		return p, s.cfg.wrap(doing, err)
	}
	if e := r.judge(p); e != nil {
		e.Doing = doing
		if e.Class == connector.ClassUnknown {
			e.Class = connector.ClassPosition
		}
		return p, e
	}
	if r.slot.State == "unreserved" {
		s.env.Log.WarnContext(ctx, "the server is about to remove log that the stream still needs: max_slot_wal_keep_size is exceeded",
			slog.String("slot", s.slotName()))
	}
	p.Timeline, p.Publication = r.here.Timeline, r.publication.OID
	return p, s.cfg.wrap(doing, s.cover(ctx))
}

func (s *Source) readResumption(ctx context.Context, p streamPosition) (r resumption, err error) {
	if r.here, err = s.identify(ctx); err != nil {
		return r, err
	}
	if r.here.System == p.System && r.here.Timeline > p.Timeline {
		if r.history, err = s.readHistory(ctx, r.here.Timeline); err != nil {
			return r, err
		}
	}
	err = s.borrow(ctx, func(pg *pgconn.PgConn) (err error) {
		if r.slot, err = readSlot(ctx, pg, s.slotName()); err != nil {
			return err
		}
		if r.publication, err = readPublication(ctx, pg, s.publicationName(), s.env.Pipeline); err != nil {
			return err
		}
		rows, err := ask(ctx, pg, "SELECT "+nowLSN+", pg_catalog.pg_is_in_recovery()")
		if err == nil {
			r.standby = isTrue(rows[0][1])
			r.end, err = parseLSN(string(rows[0][0]))
		}
		return err
	})
	return r, err
}

// Hints for a position that can't be resumed from: what may bring it back, and the way that always works.
const (
	hintRestart = "nothing was read or changed. To read all tables again from the beginning: run with --restart"
	hintServer  = "connect to the server that the pipeline was run with before; or, to read all tables again from the beginning: " +
		"run with --restart"
)

// judge returns why the stream can't go on at p without a gap; nil: it can.
func (r *resumption) judge(p streamPosition) *connector.Error {
	switch {
	case p.System != r.here.System:
		return &connector.Error{
			Code: "postgres.system", Hint: hintServer,
			Err: fmt.Errorf("the position is of the server with system identifier %s, and this is %s: another server, or one that was "+
				"made anew. What was changed behind %s is not known here", p.System, r.here.System, p.LSN),
		}
	case p.Slot != r.here.Slot:
		return &connector.Error{
			Code: "postgres.slot.other", Err: fmt.Errorf("the position is of the slot %q", p.Slot),
			Hint: "slot=" + p.Slot + " goes on where that one stands; or, to read all tables again from the beginning: run with --restart",
		}
	}
	if e := r.judgeTimeline(p); e != nil {
		return e
	}
	if p.LSN > r.end && r.standby {
		return &connector.Error{
			Class: connector.ClassTransient, Code: "postgres.standby.behind", Hint: "wait until the standby has caught up",
			Err: fmt.Errorf("the standby has come to %s only, %s before the position", r.end, sizeText(int64(p.LSN-r.end))),
		}
	}
	if p.LSN > r.end {
		return &connector.Error{
			Code: "postgres.behind", Hint: hintServer,
			Err: fmt.Errorf("the server's log ends at %s, %s before the position: the server was restored from an older copy", r.end,
				sizeText(int64(p.LSN-r.end))),
		}
	}
	if e := r.judgeSlot(p); e != nil {
		return e
	}
	return r.judgePublication(p)
}

// judgeTimeline: a promoted standby goes on from a certain place of its predecessor's log. What the predecessor logged behind that place
// is lost, and the same positions mean something else.
func (r *resumption) judgeTimeline(p streamPosition) *connector.Error {
	if p.Timeline == r.here.Timeline {
		return nil
	}
	e := &connector.Error{Code: "postgres.timeline", Hint: hintServer}
	e.Err = fmt.Errorf("the position is of timeline %d, and the server is on timeline %d, which does not come from it", p.Timeline,
		r.here.Timeline)
	for _, h := range r.history {
		switch {
		case h.timeline != p.Timeline:
		case h.at >= p.LSN:
			return nil
		default:
			e.Err = fmt.Errorf("the server left timeline %d at %s for timeline %d, and the position is %s behind that: changes between "+
				"%s and %s were delivered that the new primary does not have", p.Timeline, h.at, r.here.Timeline,
				sizeText(int64(p.LSN-h.at)), h.at, p.LSN)
			e.Hint = "the sinks have changes that the source has lost. To read all tables again from the beginning: run with --restart"
		}
	}
	return e
}

func (r *resumption) judgeSlot(p streamPosition) *connector.Error {
	behind := fmt.Sprintf("what was changed between %s and %s (%s of log)", p.LSN, r.end, sizeText(int64(r.end-p.LSN)))
	switch {
	case r.slot == nil:
		return &connector.Error{
			Code: "postgres.slot.missing", Hint: hintRestart,
			Err: fmt.Errorf("the server has no such slot: it was dropped, or this is a new primary that did not have it. Missing is %s",
				behind),
		}
	case r.slot.lost() != "":
		return &connector.Error{
			Code: "postgres.slot.lost", Hint: hintRestart, Err: fmt.Errorf("the slot is lost: %s. Missing is %s", r.slot.lost(), behind),
		}
	case r.slot.foreign() != "":
		return &connector.Error{
			Code: "postgres.slot.foreign", Hint: hintRestart + ", and with another slot: slot=NAME",
			Err: fmt.Errorf("the slot is not the one that was there before: %s. Missing is %s", r.slot.foreign(), behind),
		}
	case r.slot.Confirmed > p.LSN:
		return &connector.Error{
			Code: "postgres.slot.gap", Hint: hintRestart,
			Err: fmt.Errorf("the slot stands at %s: it was dropped and made anew, or somebody else read from it. Missing is what was "+
				"changed between %s and %s (%s of log)", r.slot.Confirmed, p.LSN, r.slot.Confirmed,
				sizeText(int64(r.slot.Confirmed-p.LSN))),
		}
	}
	return nil
}

func (r *resumption) judgePublication(p streamPosition) *connector.Error {
	switch {
	case r.publication == nil:
		return &connector.Error{
			Code: "postgres.publication.missing", Hint: hintRestart,
			Err: fmt.Errorf("the publication is gone, and without it the server does not send what was changed behind %s", p.LSN),
		}
	case p.Publication != 0 && p.Publication != r.publication.OID:
		return &connector.Error{
			Code: "postgres.publication.other", Hint: hintRestart,
			Err: fmt.Errorf("the publication %q is not the one that was followed before: it was dropped and made anew, or the option "+
				"publication was changed. The server may not have published everything behind %s", r.publication.Name, p.LSN),
		}
	}
	return nil
}

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	const unit = 1000
	if n < 10*unit {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	size := float64(n)
	for _, name := range []string{"kB", "MB", "GB"} {
		if size /= unit; size < unit {
			return fmt.Sprintf("%.1f %s", size, name)
		}
	}
	return fmt.Sprintf("%.1f TB", size/unit)
}
