package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Waiting for transactions.
const (
	firstWait   = 2 * time.Millisecond
	longestWait = 200 * time.Millisecond
	tellAfter   = 5 * time.Second
	maxEarly    = 1000 // transactions that are looked at one by one
)

// lookSQL takes a snapshot, and the log's end behind it. What is visible was inserted into the log before: the position that was
// written or flushed may lag behind that. age tells the number that the next transaction will get: from the snapshot's end on there may
// be open ones. On a standby, what was received bounds what was replayed, while the replayed position is moved
// only behind a record that is visible already.
const lookSQL = `SELECT s.s::text, pg_catalog.pg_is_in_recovery(), CASE WHEN pg_catalog.pg_is_in_recovery()
	THEN greatest(pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn())
	ELSE pg_catalog.pg_current_wal_insert_lsn() END::text,
	pg_catalog.current_setting('wal_block_size'), pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size')),
	pg_catalog.age('3'::pg_catalog.xid), %s
	FROM pg_catalog.pg_current_snapshot() AS s(s)`

// openSQL lists open transactions one by one. A standby's snapshot says nothing about those between its ends: the server leaves its
// list of them empty.
const openSQL = `coalesce((SELECT pg_catalog.string_agg(c.x::text, ',') FROM (
		SELECT pg_catalog.unnest('%[1]s'::int8[]) UNION ALL
		SELECT pg_catalog.generate_series(greatest(%[2]d, pg_catalog.pg_snapshot_xmin(s.s)::text::int8),
			pg_catalog.pg_snapshot_xmax(s.s)::text::int8 - 1)) AS c(x)
	WHERE c.x >= pg_catalog.pg_snapshot_xmin(s.s)::text::int8 AND pg_catalog.pg_xact_status(c.x::text::xid8) = 'in progress'), '')`

// running is which transactions of a standby's primary are open: of those below, only the ones in open can be.
type running struct {
	below uint64
	open  []uint64
}

func (r running) sql() string {
	open := make([]string, len(r.open))
	for i, x := range r.open {
		open[i] = strconv.FormatUint(x, 10)
	}
	return fmt.Sprintf(lookSQL, fmt.Sprintf(openSQL, "{"+strings.Join(open, ",")+"}", r.below))
}

// sight is a snapshot, and whether it is one of a standby.
type sight struct {
	snapshot
	standby bool
	listed  bool   // its open transactions were looked up
	next    uint64 // no transaction has this number yet, or a greater one
}

func readSight(row [][]byte) (sight, error) {
	var s sight
	var err error
	if s.snapshot, err = parseSnapshot(string(row[0])); err != nil {
		return s, err
	}
	if s.lsn, err = parseLSN(string(row[2])); err != nil {
		return s, err
	}
	s.lsn = recordEnd(s.lsn, lsn(toInt(row[3])), lsn(toInt(row[4])))
	s.standby, s.listed = isTrue(row[1]), row[6] != nil
	s.next = s.xmax + uint64(uint32(toInt(row[5]))+3-uint32(s.xmax))
	if s.standby && s.listed {
		s.open, err = parseXIDs(string(row[6]))
	}
	return s, err
}

// Sizes of the headers of the log's blocks.
const (
	shortHeader = 24
	longHeader  = 40 // of a segment's first block
)

// recordEnd is where the last record ends, if the next one would begin at l: a block's header may lie between the two. Without it, a
// quiet server's stream would never come as far as l.
func recordEnd(l, block, segment lsn) lsn {
	switch {
	case block <= 0 || segment <= 0:
	case l%segment == longHeader:
		return l - longHeader
	case l%block == shortHeader && l%segment != shortHeader:
		return l - shortHeader
	}
	return l
}

// state returns what is known of the server.
func (m *merging) state() (standby bool, known running) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.standby, m.known
}

// lookSQL is the query for a snapshot, by what is known of the server.
func (m *merging) lookSQL() (sql string, listed bool) {
	standby, known := m.state()
	if standby {
		return known.sql(), true
	}
	return fmt.Sprintf(lookSQL, "NULL"), false
}

// learn takes note of what was seen.
func (m *merging) learn(s sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.standby = s.standby
	if s.standby && s.listed && s.xmax > m.known.below {
		m.known = running{below: s.xmax, open: s.open}
	}
}

// look takes a snapshot outside of any transaction. On a standby it is the moment a little before: what is open when it is asked about
// counts as open.
func (m *merging) look(ctx context.Context, pg *pgconn.PgConn) (sight, error) {
	for {
		sql, listed := m.lookSQL()
		rows, err := ask(ctx, pg, sql)
		if err != nil {
			return sight{}, err
		}
		s, err := readSight(rows[0])
		if err != nil {
			return sight{}, err
		}
		m.learn(s)
		if !s.standby || listed {
			return s, nil
		}
	}
}

// exact reports whether a standby's second sight is exactly what its transaction sees: a transaction that was over at the first sight
// is visible, and one that is open at the second one is not; none may have ended between the two.
func (s sight) exact(first sight) bool {
	open := func(x uint64) bool { _, found := slices.BinarySearch(s.open, x); return found }
	for _, x := range first.open {
		if x >= s.xmin && !open(x) {
			return false
		}
	}
	from := max(first.xmax, s.xmin)
	at, _ := slices.BinarySearch(s.open, from)
	return s.xmax <= from || uint64(len(s.open)-at) == s.xmax-from
}

// begun begins a chunk's transaction: first the lock, then the snapshot, all in one round trip. Not ok: the transaction is of no use.
func (s *Source) begun(ctx context.Context, pg *pgconn.PgConn, t *sourceTable) (seen snapshot, ok bool, err error) {
	look, listed := s.merge.lookSQL()
	sql := s.beginSQL(pg, "") + ";"
	if t.lock != "" {
		sql += " LOCK TABLE " + t.lock + " IN ACCESS SHARE MODE;"
	}
	sql += " " + look
	if listed {
		sql = "BEGIN READ ONLY; " + look + "; COMMIT; " + sql
	}
	s.env.Roundtrip("begin")
	results, err := pg.Exec(ctx, sql).ReadAll()
	if err != nil {
		return snapshot{}, false, err //nolint:wrapcheck // the caller says what was being done
	}
	var sights []sight
	for _, r := range results {
		if len(r.Rows) == 1 {
			one, err := readSight(r.Rows[0])
			if err != nil {
				return snapshot{}, false, err
			}
			sights = append(sights, one)
		}
	}
	if len(sights) == 0 {
		return snapshot{}, false, errors.New("the server gave no snapshot")
	}
	last := sights[len(sights)-1]
	s.merge.learn(last)
	return last.snapshot, !last.standby || (listed && last.exact(sights[0])), nil
}

// enter begins the transaction of a chunk. It comes back with one whose snapshot includes all that it must, and holds none while it
// waits for that.
func (s *Source) enter(ctx context.Context, pg *pgconn.PgConn, t *sourceTable) (snapshot, error) {
	began, told := s.env.Now(), false
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		seen, ok, err := s.begun(ctx, pg, t)
		if err != nil {
			return snapshot{}, err
		}
		early, covered := s.merge.early(t.dataset, seen)
		if ok && covered && len(early) == 0 {
			return seen, nil
		}
		if err := command(ctx, pg, "ROLLBACK"); err != nil {
			return snapshot{}, err
		}
		holders, err := s.holdersOf(ctx, pg, early)
		if err != nil {
			return snapshot{}, err
		}
		if !told && s.env.Now().Sub(began) >= tellAfter {
			told = true
			s.env.Log.WarnContext(ctx, "the snapshot waits for older transactions to end", slog.String("dataset", t.dataset),
				slog.Any("transactions", early), slog.String("held_by", strings.Join(holders, ", ")))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return snapshot{}, ctx.Err() //nolint:wrapcheck // the caller says what was being done
		}
	}
}

// markBarrier makes chunks of the datasets wait until every transaction is over that is running now. Such a one may have written before
// the table was published, so that the stream lacks its changes although it commits later: then a snapshot has to have them.
func (s *Source) markBarrier(ctx context.Context, datasets ...string) error {
	now, err := s.present(ctx)
	if err != nil {
		return s.cfg.wrap("looking which transactions are running", err)
	}
	m := &s.merge
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.barriers == nil {
		m.barriers = map[string]uint64{}
	}
	for _, d := range datasets {
		m.barriers[d] = max(m.barriers[d], now.next)
	}
	return nil
}

// early are the transactions that were running at the barrier and are open in the snapshot; covered: it includes all that was said to be
// visible.
func (m *merging) early(dataset string, seen snapshot) (early []uint64, covered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	barrier := m.barriers[dataset]
	for _, x := range seen.open {
		if x < barrier {
			early = append(early, x)
		}
	}
	for x := seen.xmax; x < barrier && len(early) < maxEarly; x++ { // none of these is over
		early = append(early, x)
	}
	early = slices.DeleteFunc(early, func(x uint64) bool { return m.elsewhere[x] })
	if len(early) == 0 && barrier > 0 {
		delete(m.barriers, dataset) // later snapshots include as much
	}
	if len(m.barriers) == 0 {
		m.elsewhere = nil
	}
	return early, !slices.ContainsFunc(m.promised, func(p snapshot) bool { return !seen.covers(p) })
}

// holdersSQL finds out who has the transactions, and whether that is in another database; only their low halves are known here.
const holdersSQL = `SELECT l.transactionid::text, coalesce('process ' || l.pid, 'prepared transaction ' || p.gid),
	coalesce(a.datname, p.database) <> pg_catalog.current_database()
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = l.transactionid
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.transactionid = ANY ($1::xid[]) ORDER BY 2`

// holdersOf says who has the transactions. Those of other databases can't have written to a table of this one: nobody waits for them.
func (s *Source) holdersOf(ctx context.Context, pg *pgconn.PgConn, open []uint64) ([]string, error) {
	if len(open) == 0 {
		return nil, nil
	}
	byLow, ids := make(map[string]uint64, len(open)), make([]string, len(open))
	for i, x := range open {
		ids[i] = strconv.FormatUint(x&math.MaxUint32, 10)
		byLow[ids[i]] = x
	}
	rows, err := ask(ctx, pg, holdersSQL, "{"+strings.Join(ids, ",")+"}")
	if err != nil {
		return nil, err
	}
	s.merge.mu.Lock()
	defer s.merge.mu.Unlock()
	var holders []string
	for _, r := range rows {
		if !isTrue(r[2]) {
			holders = append(holders, string(r[1]))
			continue
		}
		if s.merge.elsewhere == nil {
			s.merge.elsewhere = map[uint64]bool{}
		}
		s.merge.elsewhere[byLow[string(r[0])]] = true
	}
	return holders, nil
}
