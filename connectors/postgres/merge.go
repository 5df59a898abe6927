package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

var _ connector.Merger = (*Source)(nil)

// merging is what the merging of chunks with a stream needs. It may be used concurrently; the zero value is ready.
type merging struct {
	snapshots memo[snapshot]

	mu        sync.Mutex        // guards what follows
	barriers  map[string]uint64 // by dataset: transactions below that were running have to be over before a chunk is read
	elsewhere map[uint64]bool   // transactions of other databases, which no barrier waits for
	promised  []snapshot        // what a chunk's snapshot has to include
	standby   bool              // the server was one when it was asked last
	known     running           // of the standby's primary
}

// snapshot is which transactions a statement or a transaction sees.
//
// A log position would not do: a commit is in the log before it is visible, and two transactions may become visible in another order
// than their commits are logged.
type snapshot struct {
	xmin, xmax uint64   // all transactions below xmin are over, none from xmax on is visible
	open       []uint64 // between the two, in order: not visible
	lsn        lsn      // no visible transaction ends behind it
}

// snapshotDoc is a snapshot as record.Chunk.Snapshot has it: a persisted format.
type snapshotDoc struct {
	Snapshot string `json:"snapshot"` // the server's own text, xmin:xmax:xip_list
	LSN      lsn    `json:"lsn"`
}

// mergeShape is the layout of snapshotDoc; snapshotShape belongs to chunks that are not merged with anything.
const mergeShape = 2

// String returns the server's form.
func (s snapshot) String() string {
	open := make([]string, len(s.open))
	for i, x := range s.open {
		open[i] = strconv.FormatUint(x, 10)
	}
	return fmt.Sprintf("%d:%d:%s", s.xmin, s.xmax, strings.Join(open, ","))
}

func parseSnapshot(text string) (snapshot, error) {
	bad := fmt.Errorf("%q is no snapshot such as 10:20:10,14", text)
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return snapshot{}, bad
	}
	var s snapshot
	var errs [2]error
	s.xmin, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	s.xmax, errs[1] = strconv.ParseUint(parts[1], 10, 64)
	if errors.Join(errs[:]...) != nil {
		return snapshot{}, bad
	}
	open, err := parseXIDs(parts[2])
	if err != nil {
		return snapshot{}, bad
	}
	s.open = open
	return s, nil
}

// parseXIDs reads numbers of transactions with commas between them, and puts them in order.
func parseXIDs(list string) ([]uint64, error) {
	if list == "" {
		return nil, nil
	}
	var out []uint64
	for text := range strings.SplitSeq(list, ",") {
		x, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no transaction", text)
		}
		out = append(out, x)
	}
	slices.Sort(out)
	return out, nil
}

func (s snapshot) encode() record.Position {
	doc, err := json.Marshal(snapshotDoc{Snapshot: s.String(), LSN: s.lsn})
	if err != nil {
		panic(fmt.Sprintf("postgres: encoding a snapshot: %v", err)) // strings always marshal
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
	s, err := parseSnapshot(doc.Snapshot)
	s.lsn = doc.LSN
	return s, err
}

// includes reports whether a committed transaction is visible.
func (s snapshot) includes(xid uint64) bool {
	if xid < s.xmin || xid >= s.xmax {
		return xid < s.xmin
	}
	_, open := slices.BinarySearch(s.open, xid)
	return !open
}

// covers reports whether every transaction that o includes is included.
func (s snapshot) covers(o snapshot) bool {
	if slices.ContainsFunc(s.open, o.includes) {
		return false
	}
	if s.xmax >= o.xmax {
		return true
	}
	from, _ := slices.BinarySearch(o.open, s.xmax)
	return uint64(len(o.open)-from) == o.xmax-s.xmax // whatever lies between the two ends is open in o
}

// Now implements connector.Merger: one round trip, on a connection of its own.
func (s *Source) Now(ctx context.Context) (record.Position, error) {
	now, err := s.present(ctx)
	if err != nil {
		return record.Position{}, s.cfg.wrap("asking which transactions are visible", err)
	}
	s.merge.promise(now.snapshot)
	return now.encode(), nil
}

// present takes a snapshot of this moment.
func (s *Source) present(ctx context.Context) (now sight, err error) {
	err = s.borrow(ctx, func(pg *pgconn.PgConn) error {
		s.env.Roundtrip("snapshot")
		now, err = s.merge.look(ctx, pg)
		return err
	})
	return now, err
}

// borrow runs f on a connection that nobody else uses, outside of any transaction.
func (s *Source) borrow(ctx context.Context, f func(pg *pgconn.PgConn) error) error {
	conn, err := s.pool.take(ctx)
	if err != nil {
		return err
	}
	if err := f(conn.PgConn()); err != nil {
		s.pool.discard(ctx, conn)
		return err
	}
	s.pool.put(ctx, conn)
	return nil
}

// promise remembers what somebody was told to be visible: chunks that are read later have to see it too, also where a connection leads
// to another one of several servers, which may lag behind.
func (m *merging) promise(now snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.promised = append(slices.DeleteFunc(m.promised, now.covers), now)
}

// Includes implements connector.Merger. A snapshot or a position that is none of this source includes nothing.
func (s *Source) Includes(snapshot, txn record.Position) bool {
	seen, err := s.merge.snapshots.get(snapshot, decodeSnapshot)
	if err != nil {
		return false
	}
	end, err := decodeEnd(txn)
	return err == nil && end.xid != 0 && seen.includes(end.xid)
}

// Outlived implements connector.Merger: what a snapshot includes had its commit in the log when the snapshot was taken.
func (s *Source) Outlived(snapshot, at record.Position) bool {
	seen, err := s.merge.snapshots.get(snapshot, decodeSnapshot)
	if err != nil {
		return false
	}
	end, err := decodeEnd(at)
	return err == nil && end.lsn >= seen.lsn
}

// memo keeps what was decoded: the same few positions are asked for again and again. The zero value is ready.
type memo[T any] struct {
	mu    sync.Mutex
	known map[string]T
}

// maxMemo bounds a memo; it begins anew when it is full.
const maxMemo = 1024

func (m *memo[T]) get(p record.Position, decode func(record.Position) (T, error)) (T, error) {
	m.mu.Lock()
	v, ok := m.known[string(p.Data)]
	m.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := decode(p)
	if err != nil {
		return v, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxMemo {
		m.known = map[string]T{}
	}
	m.known[string(p.Data)] = v
	return v, nil
}
