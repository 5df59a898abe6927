package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

var (
	_ connector.Anchor      = (*Source)(nil)
	_ connector.Tip         = (*Source)(nil)
	_ connector.LagReporter = (*Source)(nil)
	_ connector.Dropper     = (*Source)(nil)
)

// tipSQL reads how far the log is written, how far it is safe, how long a commit may be visible before it is safe
// (synchronous_commit = off: up to three rounds of the server's writer), and the size of a page of the log.
const tipSQL = `SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
		ELSE pg_catalog.pg_current_wal_insert_lsn() END, ` + nowLSN + `,
	(SELECT 3 * setting::int8 FROM pg_catalog.pg_settings WHERE name = 'wal_writer_delay'), pg_catalog.current_setting('wal_block_size')`

// tipPoll is how often Tip looks whether the log is safe.
const tipPoll = 20 * time.Millisecond

// Tip implements connector.Tip: where the log ends that may be sent. It lies behind every commit that was visible when Tip was called,
// also behind those that were not safe yet.
func (s *Source) Tip(ctx context.Context) (record.Position, error) {
	if !s.cfg.Follow {
		return record.Position{}, nil
	}
	const doing = "asking where the stream ends"
	here, err := s.identify(ctx)
	if err != nil {
		return record.Position{}, s.cfg.wrap(doing, err)
	}
	p := streamPosition{origin: here}
	err = s.borrow(ctx, func(pg *pgconn.PgConn) (err error) {
		s.env.Roundtrip("tip")
		if p.LSN, err = safeEnd(ctx, pg); err != nil {
			return err
		}
		pub, err := readPublication(ctx, pg, s.publicationName(), s.env.Pipeline)
		if pub != nil {
			p.Publication = pub.OID
		}
		return err
	})
	if err != nil {
		return record.Position{}, s.cfg.wrap(doing, err)
	}
	return p.encode(), nil
}

// safeEnd waits until all is safe that was written when it was called, and returns the end of what is safe. What is not after the time
// in which every commit is, is no commit.
func safeEnd(ctx context.Context, pg *pgconn.PgConn) (lsn, error) {
	var written lsn
	var end time.Time
	for {
		rows, err := ask(ctx, pg, tipSQL)
		if err != nil {
			return 0, err
		}
		now, errW := parseLSN(string(rows[0][0]))
		safe, errS := parseLSN(string(rows[0][1]))
		if err := errors.Join(errW, errS); err != nil {
			return 0, err
		}
		if written == 0 {
			written = beforeHeader(now, lsn(toInt(rows[0][3])))
			end = time.Now().Add(time.Duration(toInt(rows[0][2]))*time.Millisecond + time.Second)
		}
		if safe >= written || time.Now().After(end) {
			return safe, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err() //nolint:wrapcheck // the caller says what was being done
		case <-time.After(tipPoll): //nolint:forbidigo // it goes with ctx.Done
		}
	}
}

// maxPageHeader is the size of the longest header of a page of the log.
const maxPageHeader = 40

// beforeHeader takes a place just behind the header of a page to the end of the page before. Where nothing follows they mean the same,
// and the server calls it the one way when it writes and the other way when it sends.
func beforeHeader(at, page lsn) lsn {
	if page > 0 && at%page <= maxPageHeader {
		return at - at%page
	}
	return at
}

// Lag implements connector.LagReporter: how much log the slot has not confirmed, and how much the server keeps for it. One query. It is
// for every moment, also before Start; without a slot nothing is known.
func (s *Source) Lag(ctx context.Context) (connector.Lag, error) {
	lag := connector.Lag{Bytes: -1, Events: -1, Age: -1, Retained: -1}
	if !s.cfg.Follow {
		return lag, nil
	}
	err := s.borrow(ctx, func(pg *pgconn.PgConn) error {
		rows, err := ask(ctx, pg, `SELECT pg_catalog.pg_wal_lsn_diff(e.lsn, s.confirmed_flush_lsn)::int8,
				pg_catalog.pg_wal_lsn_diff(e.lsn, s.restart_lsn)::int8
			FROM pg_catalog.pg_replication_slots s CROSS JOIN (SELECT `+nowLSN+` AS lsn) e WHERE s.slot_name = $1`, s.slotName())
		if err != nil || len(rows) == 0 {
			return err
		}
		lag.Bytes, lag.Retained = measured(rows[0][0]), measured(rows[0][1])
		return nil
	})
	if err != nil {
		return lag, s.cfg.wrap("asking how far behind the slot is", err)
	}
	if f, ok := s.inner.(*stream); ok {
		lag.Age = f.age()
	}
	return lag, nil
}

// measured is a distance in the log; -1: unknown. A standby may be asked at a moment when it is behind its slot.
func measured(text []byte) int64 {
	if text == nil {
		return -1
	}
	return max(0, toInt(text))
}

// leftovers is what the server keeps for the pipeline: the slot, and the publication if leat made it; nil: there is none.
type leftovers struct {
	slot        *slotInfo
	publication *publication
}

func (s *Source) leftovers(ctx context.Context, pg *pgconn.PgConn) (l leftovers, err error) {
	s.env.Roundtrip("slot")
	if l.slot, err = readSlot(ctx, pg, s.slotName()); err != nil {
		return l, err
	}
	if l.slot != nil && l.slot.foreign() != "" {
		l.slot = nil
	}
	if l.publication, err = readPublication(ctx, pg, s.publicationName(), s.env.Pipeline); err != nil {
		return l, err
	}
	standby, err := ask(ctx, pg, "SELECT pg_catalog.pg_is_in_recovery()")
	if err == nil && (isTrue(standby[0][0]) || l.publication == nil || !l.publication.ours()) {
		l.publication = nil // of a standby it is the primary's
	}
	return l, err
}

// Describe implements connector.Dropper.
func (s *Source) Describe(ctx context.Context) ([]string, error) {
	if !s.cfg.Follow {
		return nil, nil
	}
	var l leftovers
	err := s.borrow(ctx, func(pg *pgconn.PgConn) (err error) {
		l, err = s.leftovers(ctx, pg)
		return err
	})
	if err != nil {
		return nil, s.cfg.wrap("looking for what the server keeps for the pipeline", err)
	}
	var out []string
	if l.slot != nil {
		line := "replication slot " + s.slotName()
		if l.slot.Restart > 0 {
			line += ", for which the server keeps " + sizeText(max(0, int64(l.slot.Now-l.slot.Restart))) + " of log"
		}
		if l.slot.Active {
			line += "; " + l.slot.Holder + " uses it"
		}
		out = append(out, line)
	}
	if l.publication != nil {
		out = append(out, fmt.Sprintf("publication %s, of %d tables", ident(l.publication.Name), len(l.publication.Members)))
	}
	return out, nil
}

// Drop implements connector.Dropper: it removes the slot, unless it is in use, and the publication if leat made it. What is gone already
// is no error.
func (s *Source) Drop(ctx context.Context) error {
	if !s.cfg.Follow {
		return nil
	}
	doing := "removing the replication slot " + strconv.Quote(s.slotName())
	err := s.borrow(ctx, func(pg *pgconn.PgConn) error {
		l, err := s.leftovers(ctx, pg)
		if err != nil {
			return err
		}
		if l.slot != nil {
			if l.slot.Active {
				return &connector.Error{
					Class: connector.ClassPermanent, Code: "postgres.slot.active", Doing: doing,
					Err: fmt.Errorf("%s uses it", l.slot.Holder), Hint: "stop the pipeline first",
				}
			}
			if err := dropSlot(ctx, pg, s.slotName()); err != nil {
				return err
			}
		}
		if l.publication == nil {
			return nil
		}
		doing = "removing the publication " + strconv.Quote(l.publication.Name)
		return command(ctx, pg, "DROP PUBLICATION IF EXISTS "+ident(l.publication.Name))
	})
	return s.cfg.wrap(doing, err)
}
