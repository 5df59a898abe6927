package mysql

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/mybinlog"
	"github.com/leatdata/leat/record"
)

var _ connector.Merger = (*Source)(nil)

// merging is what the merging of chunks with a stream needs. It may be used concurrently; the zero value is ready.
type merging struct {
	snapshots memo[snapshot]
	marks     memo[mark]

	placing sync.Mutex // held while MariaDB is asked for the place of a snapshot: see snapshotPlace

	mu       sync.Mutex // guards what follows
	promised []snapshot // what a chunk's snapshot has to include
	readers  int64      // of the log, besides the stream
}

// reader is a number for a reader of the log besides the stream: far from those that people give, and from that of the stream.
func (m *merging) reader() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.readers == 0 {
		sum := sha256.Sum256([]byte(rand.Text()))
		m.readers = 1<<31 | int64(binary.LittleEndian.Uint32(sum[:])>>2)
	}
	m.readers++
	return m.readers
}

// snapshot is which transactions a statement or a transaction sees.
//
// MariaDB says it itself: a consistent snapshot is of one place of the log. MySQL commits its transactions in the order of the log as
// well (binlog_order_commits), and says which ones are committed, but a moment later than they are visible; so what a snapshot sees is
// what was committed before it, and some of what was on its way then: see settle.
type snapshot struct {
	gtids  *mybinlog.GTIDSet
	place  place  // all that it includes ends there or before
	exact  bool   // and all that ends there or before is included
	server string // whose place it is
}

// snapshotDoc is a snapshot as record.Chunk.Snapshot has it: a persisted format.
type snapshotDoc struct {
	Flavor string `json:"flavor"`
	GTIDs  string `json:"gtids,omitempty"`
	Exact  bool   `json:"exact,omitempty"`
	place

	Server string `json:"server"`
}

// mergeShape is the layout of snapshotDoc; shape 1 belongs to chunks that are not merged with anything.
const mergeShape = 2

func (s snapshot) encode() record.Position {
	doc, err := json.Marshal(snapshotDoc{
		Flavor: s.gtids.Flavor().String(), GTIDs: s.gtids.String(), Exact: s.exact, place: s.place, Server: s.server,
	})
	if err != nil {
		panic(fmt.Sprintf("mysql: encoding a snapshot: %v", err)) // strings and numbers always marshal
	}
	return record.Position{Shape: mergeShape, Data: doc}
}

func decodeSnapshot(p record.Position) (snapshot, error) {
	var doc snapshotDoc
	if p.Shape != mergeShape {
		return snapshot{}, fmt.Errorf("a snapshot of shape %d, this version knows shape %d", p.Shape, mergeShape)
	}
	if err := json.Unmarshal(p.Data, &doc); err != nil {
		return snapshot{}, fmt.Errorf("reading a snapshot: %w", err)
	}
	set, err := mybinlog.ParseGTIDSet(streamPosition{Flavor: doc.Flavor}.flavor(), doc.GTIDs)
	return snapshot{gtids: set, place: doc.place, exact: doc.Exact, server: doc.Server}, err //nolint:wrapcheck // it says what is wrong
}

// includes reports whether a transaction is visible.
func (s snapshot) includes(m mark) bool {
	if s.exact && s.server == m.server && m.place.File != "" {
		return m.place.compare(s.place) <= 0
	}
	return !m.gtid.Zero() && s.gtids.Has(m.gtid)
}

// covers reports whether all that another one includes is included.
func (s snapshot) covers(o snapshot) bool {
	if s.exact && o.exact && s.server == o.server {
		return o.place.compare(s.place) <= 0
	}
	return !s.gtids.IsEmpty() && s.gtids.Covers(o.gtids)
}

// reaches reports whether a stream that came to m has brought all that the snapshot includes.
func (s snapshot) reaches(m mark) bool {
	if s.server == m.server && s.place.File != "" && m.place.File != "" {
		return m.place.compare(s.place) >= 0
	}
	return !s.gtids.IsEmpty() && m.gtids.Covers(s.gtids)
}

// Includes implements connector.Merger. A snapshot or a position that is none of this source includes nothing.
func (s *Source) Includes(snapshot, txn record.Position) bool {
	seen, err := s.merge.snapshots.get(snapshot, decodeSnapshot)
	if err != nil {
		return false
	}
	m, err := s.merge.marks.get(txn, decodeMark)
	return err == nil && seen.includes(m)
}

// Outlived implements connector.Merger.
func (s *Source) Outlived(snapshot, at record.Position) bool {
	seen, err := s.merge.snapshots.get(snapshot, decodeSnapshot)
	if err != nil {
		return false
	}
	m, err := decodeMark(at)
	return err == nil && seen.reaches(m)
}

// begin takes note of where a stream begins and of its cuts: snapshots have to include all in front of them.
func (m *merging) begin(at mark, cuts []mark, srv server, end logEnd) {
	for _, c := range append([]mark{at}, cuts...) {
		s := snapshot{gtids: c.gtids, place: c.place, server: c.server}
		s.exact = c.server == end.name && (srv.mariadb || !end.gtid)
		m.promise(s)
	}
}

// promise remembers what somebody was told to be visible: chunks that are read later have to see it too, also where a connection leads
// to another one of several servers, which may lag behind.
func (m *merging) promise(now snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.promised = append(slices.DeleteFunc(m.promised, now.covers), now)
}

// keeps reports whether a snapshot includes all that was said to be visible.
func (m *merging) keeps(seen snapshot) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !slices.ContainsFunc(m.promised, func(p snapshot) bool { return !seen.covers(p) })
}

// Now implements connector.Merger.
func (s *Source) Now(ctx context.Context) (record.Position, error) {
	var seen snapshot
	err := s.borrow(ctx, func(w *wire) (err error) {
		s.env.Roundtrip("snapshot")
		_, srv, err := s.server(ctx)
		if err != nil {
			return err
		}
		if !srv.mariadb {
			seen, err = s.committed(ctx, w, srv)
			return err
		}
		if seen, err = s.consistent(ctx, w); err != nil {
			return err
		}
		return w.exec(ctx, "ROLLBACK")
	})
	if err != nil {
		return record.Position{}, s.cfg.wrap("asking which transactions are visible", err)
	}
	s.merge.promise(seen)
	return seen.encode(), nil
}

// texts runs a statement on a connection for rows and returns its rows; of a few columns with short texts.
func (w *wire) texts(ctx context.Context, sql string) ([][]string, error) {
	done := w.watch(ctx)
	r, err := w.conn.Execute(sql)
	if _, said := serverErrorOf(err); err != nil && !said {
		w.broken = true
	}
	if err = done(err); err != nil {
		return nil, err
	}
	defer r.Close()
	out := make([][]string, len(r.Values))
	for i, row := range r.Values {
		out[i] = make([]string, len(row))
		for j := range row {
			text, err := r.GetString(i, j)
			if err != nil {
				return nil, err //nolint:wrapcheck // it can't fail
			}
			out[i][j] = strings.Clone(text) // the library uses the memory again
		}
	}
	return out, nil
}

// consistent opens a transaction of MariaDB, which says which place of the log it sees.
func (s *Source) consistent(ctx context.Context, w *wire) (snapshot, error) {
	out := snapshot{exact: true}
	err := w.exec(ctx, beginSQL)
	if err != nil {
		return out, err
	}
	if out.place, err = s.snapshotPlace(ctx, w); err != nil {
		return out, err
	}
	rows, err := w.texts(ctx, fmt.Sprintf("SELECT CONCAT(@@server_id, '@', @@hostname, ':', @@port), BINLOG_GTID_POS(%s, %d)",
		literal(out.place.File), out.place.Pos))
	if err != nil {
		return out, err
	}
	out.server = rows[0][0]
	out.gtids, err = mybinlog.ParseGTIDSet(mybinlog.MariaDB, rows[0][1])
	return out, err //nolint:wrapcheck // it says what is wrong with which text
}

// sameAnswers is how often MariaDB has to say the same place in a row.
const sameAnswers = 5

// snapshotPlace is the place of the log that the open snapshot of a session sees. The server passes it through memory that all sessions
// share, without a lock: whoever asks for any status at the same moment may put another place into the answer, and then the next answer is
// another one, since the snapshot's own place does not change. Readers of this source ask one after the other.
func (s *Source) snapshotPlace(ctx context.Context, w *wire) (at place, err error) {
	s.merge.placing.Lock()
	defer s.merge.placing.Unlock()
	for same := 0; same < sameAnswers; {
		rows, err := w.texts(ctx, "SHOW STATUS LIKE 'binlog_snapshot_%'")
		if err != nil {
			return at, err
		}
		var now place
		for _, r := range rows {
			switch r[0] {
			case "Binlog_snapshot_file":
				now.File = r[1]
			case "Binlog_snapshot_position":
				now.Pos = toUint([]byte(r[1]))
			}
		}
		if now != at {
			at, same = now, 0
		}
		same++
	}
	return at, nil
}

// committed is what is visible of MySQL's transactions at the least: what it calls executed was committed before.
func (*Source) committed(ctx context.Context, w *wire, srv server) (snapshot, error) {
	out := snapshot{}
	rows, err := w.texts(ctx, "SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed, @@server_uuid")
	if err != nil {
		return out, err
	}
	out.server = rows[0][2]
	if rows[0][0] != "ON" {
		out.gtids = mybinlog.NewGTIDSet(mybinlog.MySQL)
		return w.settled(ctx, srv, out)
	}
	if out.gtids, err = mybinlog.ParseGTIDSet(mybinlog.MySQL, rows[0][1]); err != nil {
		return out, err //nolint:wrapcheck // it says what is wrong with which text
	}
	out.place, err = w.logPlace(ctx, srv)
	return out, err
}

// logPlace is where the log ends.
func (w *wire) logPlace(ctx context.Context, srv server) (place, error) {
	rows, err := w.texts(ctx, srv.statusSQL())
	if err != nil || len(rows) == 0 {
		return place{}, errors.Join(err, errNoLog(rows))
	}
	return place{File: rows[0][0], Pos: toUint([]byte(rows[0][1]))}, nil
}

func errNoLog(rows [][]string) error {
	if len(rows) > 0 {
		return nil
	}
	return errors.New("the server writes no binary log")
}

// What of @@gtid_owned sets of GTIDs do not have: nothing divides the sources, and each transaction has the number of its session.
var (
	ownedSource  = regexp.MustCompile(`[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`)
	ownedSession = regexp.MustCompile(`#[0-9]+`)
)

// parseOwned reads the transactions that are on their way to be committed.
func parseOwned(text string) (*mybinlog.GTIDSet, error) {
	// In this order: a source may begin with digits, behind those of a session.
	divided := ownedSource.ReplaceAllString(text, ",$0")
	return mybinlog.ParseGTIDSet(mybinlog.MySQL, ownedSession.ReplaceAllString(divided, "")) //nolint:wrapcheck // it says what is wrong
}

// Waiting for a snapshot.
const (
	firstWait   = 2 * time.Millisecond
	longestWait = 200 * time.Millisecond
	tellAfter   = 5 * time.Second
)

// enter begins the transaction of a chunk. It comes back with one whose snapshot includes all that it must, and holds none while it
// waits for that.
func (s *Source) enter(ctx context.Context, w *wire, t *sourceTable) (record.Position, error) {
	_, srv, err := s.server(ctx)
	if err != nil {
		return record.Position{}, err
	}
	began, told := s.env.Now(), false
	wait := firstWait
	for try := 0; ; try++ {
		seen, ok, err := s.begun(ctx, w, srv, t, try)
		if err != nil {
			return record.Position{}, err
		}
		if ok && s.merge.keeps(seen) {
			return seen.encode(), nil
		}
		if err := w.exec(ctx, "ROLLBACK"); err != nil {
			return record.Position{}, err
		}
		if !told && s.env.Now().Sub(began) >= tellAfter {
			told = true
			s.env.Log.WarnContext(ctx, "the snapshot waits for transactions to be committed", slog.String("dataset", t.dataset))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return record.Position{}, ctx.Err() //nolint:wrapcheck // the caller says what was being done
		}
		wait = min(2*wait, longestWait)
	}
}

// begun begins a chunk's transaction. Not ok: it can't be told what it sees.
func (s *Source) begun(ctx context.Context, w *wire, srv server, t *sourceTable, try int) (seen snapshot, ok bool, err error) {
	if srv.mariadb {
		seen, err = s.consistent(ctx, w)
		return seen, err == nil, err
	}
	before, err := w.logPlace(ctx, srv)
	if err != nil {
		return seen, false, err
	}
	rows, err := w.texts(ctx, "SELECT @@GLOBAL.gtid_mode, @@server_uuid, @@GLOBAL.gtid_owned")
	if err != nil {
		return seen, false, err
	}
	if rows[0][0] != "ON" {
		seen.server = rows[0][1]
		return s.locked(ctx, w, t, seen, try)
	}
	// What is on its way now is in front of the place that was asked for, and must be over before the snapshot: then all that it may or
	// may not include stands behind that place.
	if err := s.pass(ctx, w, rows[0][2]); err != nil {
		return seen, false, err
	}
	seen.server = rows[0][1]
	if rows, err = w.texts(ctx, "SELECT @@GLOBAL.gtid_executed"); err != nil {
		return seen, false, err
	}
	if seen.gtids, err = mybinlog.ParseGTIDSet(mybinlog.MySQL, rows[0][0]); err != nil {
		return seen, false, err //nolint:wrapcheck // it says what is wrong with which text
	}
	if err := w.exec(ctx, beginSQL); err != nil {
		return seen, false, err
	}
	// In this order: what is committed in between is in the second set.
	if rows, err = w.texts(ctx, "SELECT @@GLOBAL.gtid_owned"); err != nil {
		return seen, false, err
	}
	owned, err := parseOwned(rows[0][0])
	if err != nil {
		return seen, false, err
	}
	if rows, err = w.texts(ctx, "SELECT @@GLOBAL.gtid_executed"); err != nil {
		return seen, false, err
	}
	after, err := mybinlog.ParseGTIDSet(mybinlog.MySQL, rows[0][0])
	if err != nil {
		return seen, false, err //nolint:wrapcheck // it says what is wrong with which text
	}
	if seen.place, err = w.logPlace(ctx, srv); err != nil {
		return seen, false, err
	}
	after.Union(owned)
	open := after.Minus(seen.gtids, maxOpen+1)
	switch {
	case len(open) == 0:
		return seen, true, nil
	case len(open) > maxOpen:
		return seen, false, nil
	}
	return s.settle(ctx, w, t, seen, &doubt{from: before, open: open, keys: map[string]*doubtKey{}})
}

// maxOpen is how many transactions may be open to doubt; beyond that a new snapshot is taken.
const maxOpen = 1000

// pass waits until the transactions are over that are on their way.
func (*Source) pass(ctx context.Context, w *wire, text string) error {
	early, err := parseOwned(text)
	for wait := time.Millisecond; err == nil && !early.IsEmpty(); wait = min(2*wait, longestWait) {
		rows, errNow := w.texts(ctx, "SELECT @@GLOBAL.gtid_owned")
		if errNow != nil {
			return errNow
		}
		now, errNow := parseOwned(rows[0][0])
		if errNow != nil {
			return errNow
		}
		if !slices.ContainsFunc(early.Minus(mybinlog.NewGTIDSet(mybinlog.MySQL), maxOpen), now.Has) {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err() //nolint:wrapcheck // the caller says what was being done
		}
	}
	return err
}
