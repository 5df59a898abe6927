package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/leatdata/leat/format/pgoutput"
)

// Kinds of messages within the stream's messages of the protocol.
const (
	streamData      = 'w'
	streamKeepalive = 'k'
	dataHeader      = 1 + 8 + 8 + 8 // kind, position, end of the log, time
	keepaliveLength = 1 + 8 + 8 + 1 // kind, position, time, whether an answer is wanted
)

var (
	errOutside = errors.New("the server sent a change outside of a transaction")
	errNesting = errors.New("the server began a transaction within another one")
	errFrame   = errors.New("the server sent a message that is no part of a stream of changes")
)

// step uses the next message. It returns false where there is none, or where what was collected has to be handed over first: the message
// comes again then, as it does after an error of a lookup that was cancelled.
func (f *stream) step(ctx context.Context) (more bool, err error) {
	if f.replay != nil {
		return true, f.again(ctx)
	}
	frame, err := f.in.peek()
	if frame == nil {
		return false, err
	}
	used := true
	switch body := frame[frameHeader:]; {
	case frame[0] != frameCopyData: // a notice, a changed setting
	case len(body) >= dataHeader && body[0] == streamData:
		f.sent = serverTime(body[17:])
		used, err = f.message(ctx, body[dataHeader:])
	case len(body) == keepaliveLength && body[0] == streamKeepalive:
		used = f.keepalive(lsn(binary.BigEndian.Uint64(body[1:])))
	default:
		err = errFrame
	}
	if used && err == nil {
		f.in.skip(frame)
	}
	return true, err
}

// serverTime reads microseconds since 2000.
func serverTime(b []byte) time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(b)) + serverEpoch)
}

// serverEpoch is where the server's clock begins, in microseconds since 1970.
const serverEpoch = 946_684_800_000_000

// again uses the next message of a transaction that came in blocks and is committed now.
func (f *stream) again(ctx context.Context) error {
	data, err := f.replay.peek()
	if err != nil {
		return err
	}
	if data == nil {
		f.replay.spool.drop()
		f.replay = nil
		f.settle()
		f.commit(f.txn.lsn)
		return nil
	}
	used, err := f.change(ctx, data, true)
	if used && err == nil {
		return f.replay.skip()
	}
	return err
}

// keepalive notes how far the server came. Outside of transactions all that ended before was sent.
func (f *stream) keepalive(at lsn) (used bool) {
	if f.txn != nil || f.block != nil {
		return true
	}
	if f.reachCut(at) {
		return false
	}
	f.idle = max(f.idle, at)
	return true
}

// message uses one message of the plugin.
func (f *stream) message(ctx context.Context, data []byte) (used bool, err error) {
	if f.block != nil {
		return true, f.collect(data)
	}
	if f.txn != nil {
		return f.change(ctx, data, false)
	}
	begin, ok, err := pgoutput.ParseBegin(data)
	if err != nil {
		return false, err //nolint:wrapcheck // the caller says what was being done
	}
	if ok {
		return f.begin(begin), nil
	}
	m, err := pgoutput.Parse(data, false, f.wire.protocol())
	if err != nil {
		return false, err //nolint:wrapcheck // the caller says what was being done
	}
	switch m := m.(type) {
	case pgoutput.StreamStart:
		f.block, err = f.spools.begin(m.XID, m.First)
		return err == nil, err
	case pgoutput.StreamCommit:
		return f.streamCommit(m)
	case pgoutput.StreamAbort:
		f.streamAbort(m)
	case pgoutput.LogicalMessage:
		if f.reachCut(lsn(m.LSN)) {
			return false, nil
		}
		f.idle = max(f.idle, lsn(m.LSN))
	case pgoutput.Relation:
		f.describe(m)
	case pgoutput.Type:
		f.types[m.ID] = m
	case pgoutput.Insert, pgoutput.Update, pgoutput.Delete, pgoutput.Truncate, pgoutput.Commit, pgoutput.Origin, pgoutput.StreamStop:
		return false, errOutside
	default:
		return false, fmt.Errorf("%w: %T", errFrame, m)
	}
	return true, nil
}

// begin starts a transaction that comes as a whole.
func (f *stream) begin(m pgoutput.Begin) (used bool) {
	if f.reachCut(lsn(m.FinalLSN)) {
		return false
	}
	// Where the commit record ends is not known yet. A place within it is behind all that ended before and in front of all that follows.
	f.enter(transaction{id: f.widen(m.XID), lsn: lsn(m.FinalLSN) + 1, time: m.Time, at: -1})
	return true
}

// enter makes t the transaction whose changes are read.
func (f *stream) enter(t transaction) {
	f.present = t
	f.txn = &f.present
	f.behind = f.sent.Sub(t.time)
}

// commit ends the transaction.
func (f *stream) commit(end lsn) {
	f.txn.lsn = end
	f.group.finish(f.txn)
	f.idle = max(f.idle, end)
	f.txn = nil
	if f.partial || f.group.enough(f.want) || (len(f.cuts) > 0 && f.cuts[0] <= end) {
		f.emit()
	}
}

// change uses a message within a transaction.
func (f *stream) change(ctx context.Context, data []byte, inBlock bool) (used bool, err error) {
	c, ok, err := pgoutput.ParseChange(data, inBlock)
	if err != nil {
		return false, err //nolint:wrapcheck // the caller says what was being done
	}
	if ok {
		return f.row(ctx, &c, len(data))
	}
	commit, ok, err := pgoutput.ParseCommit(data)
	if err != nil {
		return false, err //nolint:wrapcheck // the caller says what was being done
	}
	if ok {
		f.commit(lsn(commit.EndLSN))
		return true, nil
	}
	m, err := pgoutput.Parse(data, inBlock, f.wire.protocol())
	if err != nil {
		return false, err //nolint:wrapcheck // the caller says what was being done
	}
	switch m := m.(type) {
	case pgoutput.Relation:
		f.describe(m)
	case pgoutput.Type:
		f.types[m.ID] = m
	case pgoutput.Truncate:
		return f.truncate(ctx, m)
	case pgoutput.Origin:
		f.txn.foreign = f.unwantedOrigin()
	case pgoutput.LogicalMessage:
	case pgoutput.Begin, pgoutput.StreamStart, pgoutput.StreamCommit:
		return false, errNesting
	default:
		return false, fmt.Errorf("%w: %T", errFrame, m)
	}
	return true, nil
}

// unwantedOrigin reports whether changes are left out that were replicated to the server from elsewhere. Newer servers do it themselves.
func (f *stream) unwantedOrigin() bool { return f.s.cfg.PublishOrigin == originNone }

// row collects an insert, update or delete.
func (f *stream) row(ctx context.Context, c *pgoutput.Change, size int) (used bool, err error) {
	r, err := f.relation(ctx, c.Relation)
	if err != nil || r.ignored || f.txn.foreign {
		return err == nil, err
	}
	if f.group.full(f.want, size) {
		f.flush()
		return false, nil
	}
	d := r.dataset
	if len(d.enums) > 0 && c.Kind != 'D' {
		if err := f.relabel(ctx, r, c.New); err != nil {
			return false, err
		}
	}
	if len(f.group.parts) == 0 {
		f.began = time.Now()
	}
	p := f.group.part(d)
	before := d.rows.Len()
	switch c.Kind {
	case 'I':
		err = d.rows.Insert(c.New)
	case 'U':
		err = d.rows.Update(c.OldKind, c.Old, c.New)
	default:
		err = d.rows.Delete(c.OldKind, c.Old)
	}
	if err != nil {
		return false, f.rowError(d, err)
	}
	f.group.touch(p, f.txn).rows += d.rows.Len() - before
	f.group.rows++
	f.group.bytes += int64(size)
	return true, nil
}

// truncate empties datasets: what was collected of each comes before.
func (f *stream) truncate(ctx context.Context, m pgoutput.Truncate) (used bool, err error) {
	relations := make([]*streamRelation, 0, len(m.Relations))
	for _, id := range m.Relations {
		r, err := f.relation(ctx, id)
		if err != nil {
			return false, err
		}
		if !r.ignored && !f.txn.foreign {
			relations = append(relations, r)
		}
	}
	for _, r := range relations {
		r.dataset.seal()
		p := f.group.part(r.dataset)
		p.truncate = true
		f.group.touch(p, f.txn)
	}
	return true, nil
}

// collect keeps a message of a transaction that is still open.
func (f *stream) collect(data []byte) error {
	if len(data) == 0 {
		return errFrame
	}
	switch data[0] {
	case 'E':
		f.block = nil
		return nil
	case 'O':
		f.block.foreign = f.unwantedOrigin()
		return nil
	case 'M':
		return nil
	case 'R':
		m, err := pgoutput.Parse(data, true, f.wire.protocol())
		if err != nil {
			return err //nolint:wrapcheck // the caller says what was being done
		}
		if r, ok := m.(pgoutput.Relation); ok {
			f.block.ignored[r.ID] = f.excluded[relation{schema: r.Namespace, name: r.Name}.dataset()]
			f.described++
			f.block.numbers = append(f.block.numbers, f.described)
		}
	case 'I', 'U', 'D':
		if len(data) < 9 {
			return errFrame
		}
		if f.block.foreign || f.block.ignored[binary.BigEndian.Uint32(data[5:])] {
			return nil
		}
	case 'T', 'Y':
	default:
		return fmt.Errorf("%w: %q within a block of an open transaction", errFrame, data[0])
	}
	return f.block.append(data)
}

// streamCommit begins to hand over a transaction that came in blocks.
func (f *stream) streamCommit(m pgoutput.StreamCommit) (used bool, err error) {
	if f.reachCut(lsn(m.LSN)) {
		return false, nil
	}
	sp := f.spools.open[m.XID]
	if sp == nil {
		return false, fmt.Errorf("the server committed transaction %d and did not send it", m.XID)
	}
	if f.group.whole {
		f.emit() // what is complete does not wait for a large transaction
	}
	f.enter(transaction{id: f.widen(m.XID), lsn: lsn(m.EndLSN), time: m.Time, foreign: sp.foreign, at: -1})
	f.replay = sp.replay()
	return true, nil
}

func (f *stream) streamAbort(m pgoutput.StreamAbort) {
	sp := f.spools.open[m.XID]
	switch {
	case sp == nil:
	case m.XID == m.SubXID:
		sp.drop()
	default:
		sp.undo(m.SubXID)
	}
}

// widen adds the epoch to a transaction's number: of two numbers with the same lower half, the one nearer to the newest that is known.
func (f *stream) widen(xid uint32) uint64 {
	const epoch = 1 << 32
	x := f.newest&^(epoch-1) | uint64(xid)
	switch {
	case x > f.newest && x-f.newest > epoch/2 && x >= epoch:
		x -= epoch
	case x < f.newest && f.newest-x > epoch/2:
		x += epoch
	}
	f.newest = max(f.newest, x)
	return x
}
