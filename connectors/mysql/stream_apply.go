package mysql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/mybinlog"
)

var (
	errOutside    = errors.New("the log has rows outside of a transaction")
	errNesting    = errors.New("the log begins a transaction within another one")
	errUnmapped   = errors.New("the log has rows of a table that it did not describe")
	errRolledBack = errors.New("the log has a transaction that was rolled back, as it also changed tables without transactions")
)

// payload is the events of a compressed transaction.
type payload struct {
	*mybinlog.Payload

	now []byte // the present event; nil: not read yet
}

func (p *payload) close() { p.Close() }

// step uses the next event, or the next row of one. It returns false where there is none, or where what was collected has to be handed
// over first: the event comes again then, as it does after an error of a lookup that was cancelled.
func (f *stream) step(ctx context.Context) (more bool, err error) {
	switch {
	case f.rows != nil:
		return true, f.moreRows()
	case f.again != nil:
		return true, f.replay(ctx)
	case f.payload != nil:
		return true, f.unpack(ctx)
	}
	event, err := f.in.peek()
	if event == nil {
		return false, err
	}
	used, err := f.event(ctx, event)
	if used && err == nil {
		f.in.skip()
	}
	return true, err
}

// unpack uses the next event of a compressed transaction.
func (f *stream) unpack(ctx context.Context) error {
	if f.payload.now == nil {
		event, err := f.payload.Next()
		if errors.Is(err, io.EOF) {
			f.payload.close()
			f.payload = nil
			return nil
		}
		if err != nil {
			return err //nolint:wrapcheck // it says what was being read
		}
		f.payload.now = event
	}
	h, body, err := mybinlog.ParseHeader(f.payload.now)
	if err != nil {
		return err //nolint:wrapcheck // callers say what was being done
	}
	used, err := f.apply(ctx, h, body)
	if used && err == nil && f.payload != nil {
		f.payload.now = nil
	}
	return err
}

// event uses an event of the log.
func (f *stream) event(ctx context.Context, event []byte) (used bool, err error) {
	h, body, err := mybinlog.ParseHeader(event)
	if err != nil {
		return false, err //nolint:wrapcheck // callers say what was being done
	}
	if f.format.Checksum && h.Type != mybinlog.TypeFormat && len(body) >= 4 {
		body = body[:len(body)-4]
	}
	before := f.now
	f.advance(h)
	if used, err = f.apply(ctx, h, body); !used {
		f.now = before
	}
	return used, err
}

// advance moves on behind an event. Places in a file beyond 4 GB, which only a huge transaction reaches, lack their upper half.
func (f *stream) advance(h mybinlog.Header) {
	switch {
	case h.Flags&mybinlog.FlagArtificial != 0, h.Type == mybinlog.TypeHeartbeat, h.Type == mybinlog.TypeHeartbeat2:
	case h.End == 0:
		if f.code.flavor == mybinlog.MariaDB && h.Type != mybinlog.TypeFormat {
			f.now.Pos += uint64(h.Size)
		}
	default:
		const half = 1 << 32
		end := f.now.Pos&^(half-1) | uint64(h.End)
		if end < f.now.Pos && f.now.Pos-end > half/2 {
			end += half
		}
		f.now.Pos = max(f.now.Pos, end)
	}
}

// apply uses an event, by its type.
func (f *stream) apply(ctx context.Context, h mybinlog.Header, body []byte) (used bool, err error) {
	if action, ok := mybinlog.RowsAction(h.Type); ok {
		return f.rowsEvent(ctx, h, body, action)
	}
	switch h.Type { //nolint:exhaustive // all others mean nothing here
	case mybinlog.TypeTableMap:
		return f.tableMap(ctx, h, body)
	case mybinlog.TypeGTID, mybinlog.TypeAnonymous:
		b, err := mybinlog.ParseGTIDEvent(h, body)
		if err != nil {
			return false, err //nolint:wrapcheck // callers say what was being done
		}
		return f.begin(ctx, h, b)
	case mybinlog.TypeTaggedGTID:
		b, err := mybinlog.ParseTagged(body)
		if err != nil {
			return false, err //nolint:wrapcheck // callers say what was being done
		}
		return f.begin(ctx, h, b)
	case mybinlog.TypeMariaGTID:
		b, err := mybinlog.ParseMariaGTID(h, body)
		if err != nil {
			return false, err //nolint:wrapcheck // callers say what was being done
		}
		return f.begin(ctx, h, b)
	case mybinlog.TypeXID:
		return true, f.commit(ctx)
	case mybinlog.TypeQuery, mybinlog.TypeMariaQuery:
		q, err := mybinlog.ParseQuery(h, body)
		if err != nil {
			return false, err //nolint:wrapcheck // callers say what was being done
		}
		return true, f.query(ctx, h, q)
	case mybinlog.TypePayload:
		p, err := mybinlog.OpenPayload(body)
		if err != nil {
			return false, err //nolint:wrapcheck // it says what was being read
		}
		f.payload = &payload{Payload: p}
	case mybinlog.TypeXAPrepare:
		return true, f.xaPrepare(ctx, body)
	case mybinlog.TypeFormat:
		f.format, err = mybinlog.ParseFormat(body)
		clear(f.maps)
		return err == nil, err //nolint:wrapcheck // callers say what was being done
	case mybinlog.TypeRotate:
		return f.rotate(ctx, body)
	case mybinlog.TypeHeartbeat, mybinlog.TypeHeartbeat2:
		return f.heartbeat(ctx, h, body)
	case mybinlog.TypeExecuteLoad:
		return false, f.statementLogged("LOAD DATA")
	case mybinlog.TypeIncident:
		return false, f.incident()
	}
	return true, nil
}

// rotate goes on in another file.
func (f *stream) rotate(ctx context.Context, body []byte) (used bool, err error) {
	file, pos, err := mybinlog.ParseRotate(body)
	if err != nil {
		return false, err //nolint:wrapcheck // callers say what was being done
	}
	return f.elsewhere(ctx, place{file, pos})
}

// heartbeat notes how far the server came: outside of transactions all that ended before was sent.
func (f *stream) heartbeat(ctx context.Context, h mybinlog.Header, body []byte) (used bool, err error) {
	file, pos, err := mybinlog.ParseHeartbeat(h, body)
	if err != nil {
		return false, err //nolint:wrapcheck // callers say what was being done
	}
	if file == "" || f.txn != nil || f.now.compare(place{file, pos}) >= 0 {
		return true, nil
	}
	return f.elsewhere(ctx, place{file, pos})
}

// elsewhere moves to a place behind which nothing was skipped that concerns the stream.
func (f *stream) elsewhere(ctx context.Context, to place) (used bool, err error) {
	if f.txn != nil { // a server ends no file within a transaction
		f.now = to
		return true, nil
	}
	if f.now.File != "" {
		if cut, err := f.reachCut(ctx, mybinlog.GTID{}, to); cut || err != nil {
			return false, err
		}
	}
	f.now = to
	if f.place.File == "" || f.place.compare(to) < 0 { // a server may begin in front of what is read already
		f.place, f.quiet = to, true
	}
	return true, nil
}

// begin starts a transaction.
func (f *stream) begin(ctx context.Context, h mybinlog.Header, b mybinlog.Begin) (used bool, err error) {
	if f.txn != nil {
		return false, errNesting
	}
	if f.byPlace {
		b.GTID = mybinlog.GTID{}
	}
	next := f.place
	next.Pos++ // it ends somewhere behind
	if cut, err := f.reachCut(ctx, b.GTID, next); cut || err != nil {
		return false, err
	}
	if b.Committed.IsZero() {
		b.Committed = h.Time
	}
	f.present = transaction{gtid: b.GTID, place: next, time: b.Committed, at: -1}
	f.txn, f.open = &f.present, f.srv.mariadb && !b.Standalone
	if b.Prepared {
		f.xa = &prepared{}
	}
	f.behind = time.Since(b.Committed)
	return true, nil
}

// commit ends the transaction.
func (f *stream) commit(ctx context.Context) error {
	if f.txn == nil {
		return errOutside
	}
	if x := f.xa; x != nil { // committed in one phase
		f.xa = nil
		if len(x.events) > 0 || x.stored > 0 {
			f.again = x.replay()
			return nil
		}
	}
	f.gtids.Add(f.txn.gtid)
	f.text = nil
	if f.only {
		f.order = append(f.order, f.txn.gtid)
	}
	f.place = f.now
	end := f.here()
	end.gtid, end.time = f.txn.gtid, f.txn.time
	if f.txn.at >= 0 || f.partial {
		f.group.finish(f.txn, end)
		f.quiet = false
	} else {
		f.quiet = true
	}
	f.txn = nil
	cut := false
	if len(f.cuts) > 0 {
		order, ok := f.mark().compare(f.cuts[0])
		cut = ok && order >= 0
	}
	if f.partial || cut || (f.group.whole && f.group.enough(f.want)) {
		return f.emit(ctx)
	}
	return nil
}

// query uses a statement: the beginning or the end of a transaction, or one that changes tables.
func (f *stream) query(ctx context.Context, h mybinlog.Header, q mybinlog.Query) error {
	if f.txn == nil { // of a server that writes no GTIDs at all
		f.present = transaction{time: h.Time, at: -1}
		f.txn, f.open = &f.present, false
	}
	first := firstWord(q.SQL)
	switch first {
	case "BEGIN":
		f.open = true
		return nil
	case "COMMIT":
		return f.commit(ctx)
	case "ROLLBACK":
		if f.txn.at < 0 && !f.partial && !bytes.Contains(bytes.ToUpper(q.SQL[:min(len(q.SQL), 100)]), []byte(" TO ")) {
			return f.commit(ctx) // nothing of it concerns anybody
		}
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "mysql.rolled_back", Err: errRolledBack,
			Hint: "ALTER TABLE … ENGINE=InnoDB for the tables without transactions; --resnapshot copies what is followed",
		}
	case "SAVEPOINT":
		return nil
	case "XA":
		return f.xaStatement(ctx, string(q.SQL))
	}
	if err := f.statement(ctx, q, first); err != nil {
		return err
	}
	if !f.open && bytes.HasSuffix(bytes.ToUpper(bytes.TrimRight(q.SQL, " ;")), []byte("START TRANSACTION")) {
		f.open = true // CREATE TABLE … SELECT: its rows follow
	}
	if f.open {
		return nil
	}
	return f.commit(ctx)
}

// firstWord is what a statement begins with, in upper case.
func firstWord(sql []byte) string {
	t := tokens(string(sql[:min(len(sql), 4096)]), 0)
	if len(t) == 0 || t[0].kind != word {
		return ""
	}
	return strings.ToUpper(t[0].text)
}

// statementLogged is the error for a change that the log has only as a statement.
func (*stream) statementLogged(what string) error {
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "mysql.statement",
		Err:  fmt.Errorf("a session wrote to the log by statement, so that the changed rows are not in it: %s", what),
		Hint: "SET GLOBAL binlog_format = 'ROW', and let no session set it otherwise; --resnapshot copies what is followed",
	}
}

func (*stream) incident() error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "mysql.incident",
		Err:  errors.New("the server noted in the log that it could not write all changes to it"),
		Hint: "the server's error log says why; start over with --restart",
	}
}

// pendingRows is an event of which rows are left.
type pendingRows struct {
	event   mybinlog.RowsEvent
	table   *mybinlog.TableMap
	dataset *streamDataset
}

// rowsEvent begins to use the rows of an event.
func (f *stream) rowsEvent(ctx context.Context, h mybinlog.Header, body []byte, action mybinlog.Action) (used bool, err error) {
	id, _, err := mybinlog.ParseRowsTable(body)
	if err != nil {
		return false, err //nolint:wrapcheck // callers say what was being done
	}
	const none = 0xffffff // the event only ends a statement
	t := f.maps[id]
	switch {
	case t == nil && id == none:
		return true, nil
	case t == nil:
		return false, errUnmapped
	case t.dataset == nil:
		return true, nil
	case f.xa != nil: // it is read when it is committed
		return true, f.xa.keep(h.Append(nil, body))
	case f.txn == nil:
		return false, errOutside
	}
	if err := f.adopt(ctx, t); err != nil {
		if t.dataset.fresh && f.caughtUp.compare(f.now) >= 0 && connector.ClassOf(err) == connector.ClassPosition {
			return true, nil // its snapshot is taken behind all that was in the log at the start
		}
		return false, err
	}
	e, err := mybinlog.ParseRows(h, body)
	if err != nil {
		return false, f.rowError(t.dataset, action, err)
	}
	if len(f.group.parts) == 0 {
		f.began = time.Now()
	}
	f.rows = &pendingRows{event: e, table: t.table, dataset: t.dataset}
	return true, nil
}

// moreRows uses rows of an event, until none is left or what was collected is enough.
func (f *stream) moreRows() error {
	p := f.rows
	for range askEvery {
		if f.group.full(f.want) {
			return f.flush()
		}
		part := f.group.part(p.dataset)
		rows := p.dataset.rows
		size := rows.size
		more, err := rows.next(&p.event, p.table)
		if err != nil {
			return f.rowError(p.dataset, p.event.Action, err)
		}
		if !more {
			f.rows = nil
			return nil
		}
		f.group.touch(part, f.txn).rows++
		f.group.rows++
		f.group.bytes += rows.size - size
	}
	return nil
}

// rowError explains a change that can't be taken.
func (*stream) rowError(d *streamDataset, action mybinlog.Action, err error) error {
	e := &connector.Error{
		Class: connector.ClassPermanent, Code: "mysql.log", Doing: "reading the stream of changes", Err: err, Dataset: d.name,
	}
	if c, ok := errors.AsType[*columnError](err); ok {
		e.Column, e.Err = c.column, c.err
	}
	kind := [...]string{mybinlog.Insert: "insert", mybinlog.Update: "update", mybinlog.Delete: "delete"}[action]
	switch {
	case errors.Is(err, errImageKey), errors.Is(err, errImageInsert):
		e.Class, e.Code = connector.ClassConfig, "mysql.row_image"
		e.Err = fmt.Errorf("%w: a session wrote the %s with binlog_row_image other than FULL", e.Err, kind)
		e.Hint = "SET GLOBAL binlog_row_image = 'FULL', and let no session set it otherwise; --resnapshot copies what is followed"
	case errors.Is(err, errImageJSON):
		e.Class, e.Code = connector.ClassConfig, "mysql.row_value_options"
		e.Hint = "SET GLOBAL binlog_row_image = 'FULL', or SET GLOBAL binlog_row_value_options = ''; --resnapshot copies what is followed"
	}
	return e
}
