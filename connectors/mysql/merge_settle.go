package mysql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/mybinlog"
	"github.com/leatdata/leat/record"
)

// Limits of looking at transactions one by one.
const (
	maxDoubtKeys   = 2000
	settlePatience = 10 * time.Second
	lookAgain      = 20 * time.Millisecond
)

// doubt is transactions that a snapshot may include or not, as they were committed while it was taken.
type doubt struct {
	from place           // in front of all of them
	open []mybinlog.GTID // in the order of the log, as far as they were seen there
	seen int             // of open: seen in the log
	keys map[string]*doubtKey
}

// doubtKey is a row that some of them changed.
type doubtKey struct {
	raw    json.RawMessage
	states []doubtState // in order
	now    []string     // what the snapshot has; nil: no such row
}

// doubtState is what a transaction left of a row.
type doubtState struct {
	txn    int      // of doubt.open
	values []string // by column; empty: not known; nil: the row is gone
}

// settle finds out which of the open transactions a snapshot includes. The server makes transactions visible in the order of its log, so
// it is those up to one of them; and of all rows of the table that they changed, the snapshot has what the last of those left. Where
// several ends of that sort fit, the rows are the same with each.
func (s *Source) settle(ctx context.Context, w *wire, t *sourceTable, seen snapshot, d *doubt) (snapshot, bool, error) {
	rows, err := w.texts(ctx, "SELECT @@GLOBAL.binlog_order_commits")
	if err != nil || rows[0][0] != "1" {
		return seen, false, err
	}
	ok, err := s.collectDoubt(ctx, t, seen, d)
	if err != nil || !ok {
		if err != nil && connector.ClassOf(err) != connector.ClassTransient && ctx.Err() == nil {
			s.env.Log.DebugContext(ctx, "looking at transactions that a snapshot may include", slog.Any("error", err))
			err = nil // the next snapshot may do without
		}
		return seen, false, err
	}
	if len(d.keys) > 0 {
		if ok, err = s.readDoubt(ctx, w, t, d); err != nil || !ok {
			return seen, false, err
		}
	}
	for _, g := range d.open[:d.included()] {
		seen.gtids.Add(g)
	}
	return seen, true, nil
}

// included is how many of the transactions the snapshot includes.
func (d *doubt) included() int {
	for n := d.seen; n > 0; n-- {
		fits := true
		for _, k := range d.keys {
			if !k.fits(n) {
				fits = false
				break
			}
		}
		if fits {
			return n
		}
	}
	return 0
}

// fits reports whether the snapshot has what the first n transactions left of the row.
func (k *doubtKey) fits(n int) bool {
	var values []string
	touched, gone := false, false
	for _, s := range k.states {
		if s.txn >= n {
			break
		}
		if touched, gone = true, s.values == nil; gone {
			values = nil
			continue
		}
		if values == nil {
			values = make([]string, len(s.values))
		}
		for i, v := range s.values {
			if v != "" {
				values[i] = v
			}
		}
	}
	if !touched || gone {
		return !touched || k.now == nil
	}
	if k.now == nil {
		return false
	}
	for i, v := range values {
		if v != "" && v != k.now[i] {
			return false
		}
	}
	return true
}

// collectDoubt reads the open transactions from the log. Not ok: it can't be told what they did.
func (s *Source) collectDoubt(ctx context.Context, t *sourceTable, seen snapshot, d *doubt) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	f, err := s.lookFrom(ctx, t, seen, d.from)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close(context.WithoutCancel(ctx)) }() // it only closes a connection
	order := []mybinlog.GTID{}
	wanted := func(g mybinlog.GTID) bool { return slices.Contains(d.open, g) }
	for {
		b, err := f.Read(ctx, connector.Limit{})
		if err != nil {
			return false, err
		}
		if f.unknownXA {
			return false, nil
		}
		for _, g := range f.order {
			if wanted(g) {
				order = append(order, g)
			}
		}
		f.order = f.order[:0]
		if b != nil {
			if ok := d.take(s, t, b, &order); !ok {
				return false, nil
			}
			continue
		}
		missing := slices.DeleteFunc(slices.Clone(d.open), f.gtids.Has)
		switch {
		case f.group.whole: // transactions that were read are handed over once the one that is being read has ended
		case len(missing) == 0:
			d.open, d.seen = order, len(order)
			return true, nil
		default:
			if d.open, err = s.alive(ctx, d.open, missing); err != nil {
				return false, err
			}
		}
		timer := time.NewTimer(lookAgain)
		select {
		case <-f.s.ready:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, ctx.Err() //nolint:wrapcheck // callers say what was being done
		}
		timer.Stop()
	}
}

// take notes what changes of a batch left of their rows. Not ok: that can't be told.
func (d *doubt) take(s *Source, t *sourceTable, b *record.Batch, order *[]mybinlog.GTID) (ok bool) {
	if b.Schema == nil || (b.NumRows() == 0 && !b.Truncate && len(b.Rejects) == 0) {
		return true
	}
	if b.Truncate || len(b.Rejects) > 0 || len(b.Schema.Key) == 0 || !slices.Equal(b.Schema.Names(), t.schema.Names()) {
		return false
	}
	row := 0
	for _, run := range b.Txns {
		m, err := decodeMark(run.Position)
		if err != nil {
			return false
		}
		at := slices.Index(*order, m.gtid)
		if at < 0 && slices.Contains(d.open, m.gtid) { // a piece of a large one
			return false
		}
		for range run.Rows {
			if at >= 0 {
				d.note(s, b, row, at)
			}
			row++
		}
	}
	return len(d.keys) <= maxDoubtKeys
}

// note adds what a change left of its row.
func (d *doubt) note(s *Source, b *record.Batch, i, txn int) {
	key := func(old bool) *doubtKey {
		rows := b.Rows
		if old {
			rows = b.Old
		}
		raw := s.KeyOf(b.Schema, rows, i)
		k := d.keys[string(raw)]
		if k == nil {
			k = &doubtKey{raw: raw}
			d.keys[string(raw)] = k
		}
		return k
	}
	if b.KeyMoved(i) {
		k := key(true)
		k.states = append(k.states, doubtState{txn: txn})
	}
	state := doubtState{txn: txn}
	if b.Op(i) != record.Delete {
		state.values = make([]string, b.Rows.NumCols())
		for c := range state.values {
			if !b.IsUnchanged(c, i) {
				state.values[c] = string(record.AppendJSON(nil, b.Rows.Column(c), i))
			}
		}
	}
	k := key(false)
	k.states = append(k.states, state)
}

// readDoubt reads the rows that the open transactions changed, as the snapshot has them.
func (s *Source) readDoubt(ctx context.Context, w *wire, t *sourceTable, d *doubt) (ok bool, err error) {
	if len(d.keys) > maxDoubtKeys {
		return false, nil
	}
	keys := make([]json.RawMessage, 0, len(d.keys))
	for _, k := range d.keys {
		keys = append(keys, k.raw)
	}
	where, err := t.keysIn(keys)
	if err != nil {
		return false, fmt.Errorf("reading rows once more: %w", err)
	}
	ok = true
	err = s.readRows(ctx, w, t, t.selectSQL([]string{where}, ""), func(b *record.Batch) error {
		ok = ok && len(b.Rejects) == 0
		for i := range b.NumRows() {
			k := d.keys[string(s.KeyOf(b.Schema, b.Rows, i))]
			if k == nil { // the server takes keys for equal that are not the same
				ok = false
				continue
			}
			k.now = make([]string, b.Rows.NumCols())
			for c := range k.now {
				k.now[c] = string(record.AppendJSON(nil, b.Rows.Column(c), i))
			}
		}
		return nil
	})
	return ok, err
}

// alive leaves out transactions that came to nothing: they are neither on their way nor committed.
func (s *Source) alive(ctx context.Context, open, missing []mybinlog.GTID) ([]mybinlog.GTID, error) {
	db, _, err := s.server(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := ask(ctx, db, "SELECT @@GLOBAL.gtid_owned")
	if err != nil {
		return nil, err
	}
	owned, errOwned := parseOwned(string(rows[0][0]))
	if rows, err = ask(ctx, db, "SELECT @@GLOBAL.gtid_executed"); err != nil {
		return nil, err
	}
	executed, err := mybinlog.ParseGTIDSet(mybinlog.MySQL, string(rows[0][0]))
	if err = errors.Join(err, errOwned); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(open), func(g mybinlog.GTID) bool {
		return slices.Contains(missing, g) && !owned.Has(g) && !executed.Has(g)
	}), nil
}

// lookFrom opens a stream of one table from a place of the log that is hardly behind its end.
func (s *Source) lookFrom(ctx context.Context, t *sourceTable, seen snapshot, from place) (*stream, error) {
	own := *s.cfg
	own.ServerID = s.merge.reader() // each look is a reader of its own
	f := newStream(&Source{cfg: &own, env: s.env, ready: make(chan struct{}, 1)})
	db, srv, err := s.server(ctx)
	if err != nil {
		return nil, err
	}
	f.db, f.srv, f.gtids, f.place, f.now = db, srv, seen.gtids.Clone(), from, from
	f.code = newPositionCode(mybinlog.MySQL, seen.server)
	f.only = true
	if f.collations, err = readCollations(ctx, db, srv); err != nil {
		return nil, err
	}
	def, err := f.lookUp(ctx, t.rel)
	if err != nil || def == nil {
		return nil, errors.Join(err, errShape)
	}
	f.s.tables = []*sourceTable{t}
	d := &streamDataset{name: t.dataset, rel: t.rel, schema: t.schema}
	f.datasets[t.dataset] = d
	f.history.tables[t.dataset] = def
	if err := f.reshape(ctx, d, def); err != nil {
		return nil, err
	}
	p := streamPosition{Flavor: mybinlog.MySQL.String(), ByPlace: true, place: from, Server: seen.server}
	if f.wire, err = f.connect(ctx, p); err != nil {
		return nil, err
	}
	return f, f.launch(ctx)
}
