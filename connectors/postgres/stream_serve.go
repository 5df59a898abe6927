package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
)

// Times of the connection.
const (
	reportEvery = time.Second      // at most, between two messages to the server
	farewell    = time.Second      // for the server to end the stream when it is told to
	proveAfter  = 10 * time.Second // of silence the server is asked for an answer
	deadAfter   = 5 * time.Minute  // of silence the connection is given up, or twice the server's own patience
	writeWithin = 30 * time.Second
)

// pump reads from the connection into the inbox.
func (f *stream) pump(ctx context.Context) {
	f.heard.Store(time.Now().UnixNano())
	stop := context.AfterFunc(ctx, func() { _ = f.wire.conn.SetReadDeadline(time.Now().Add(farewell)) })
	defer stop()
	f.in.end(f.in.fill(ctx, listener{f}, f.see))
	if ctx.Err() != nil {
		_, _ = io.Copy(io.Discard, f.wire.conn) // until the server is done: then the slot is free
	}
}

// listener notes when something came.
type listener struct{ f *stream }

// Read implements io.Reader.
func (l listener) Read(p []byte) (int, error) {
	l.f.waiting.Store(true)
	n, err := l.f.wire.conn.Read(p)
	l.f.waiting.Store(false)
	l.f.heard.Store(time.Now().UnixNano())
	return n, err //nolint:wrapcheck // io.EOF must stay
}

// see looks at a message as it comes in.
func (f *stream) see(frame []byte) error {
	body := frame[frameHeader:]
	switch frame[0] {
	case frameCopyData:
		switch {
		case len(body) >= dataHeader && body[0] == streamData:
			f.hear(binary.BigEndian.Uint64(body[1:]))
		case len(body) == keepaliveLength && body[0] == streamKeepalive:
			f.hear(binary.BigEndian.Uint64(body[1:]))
			if body[keepaliveLength-1] != 0 {
				wake(f.asked)
			}
		}
	case frameError:
		return errorOf(body)
	case frameCopyDone, frameReady:
		return errEnded
	}
	return nil
}

// hear notes how far the server came.
func (f *stream) hear(at uint64) {
	if at > f.received.Load() {
		f.received.Store(at)
	}
}

// report tells the server how far the stream came, whether or not anybody reads it, so that the server neither gives the connection up
// nor keeps log that nobody needs.
func (f *stream) report(ctx context.Context) {
	every := reportEvery
	if t := f.wire.timeout / 3; t > 0 {
		every = min(every, t)
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-f.asked:
		case <-ctx.Done():
			_ = f.status(false, farewell)
			_ = f.wire.send(frameCopyDone)
			_ = f.wire.send(frameEnd)
			return
		}
		silence := time.Since(time.Unix(0, f.heard.Load()))
		err := f.status(silence > proveAfter, writeWithin)
		if dead := max(deadAfter, 2*f.wire.timeout); err == nil && silence > dead && f.waiting.Load() {
			err = fmt.Errorf("the server said nothing for %s: %w", silence.Round(time.Second), os.ErrDeadlineExceeded)
		}
		if err != nil {
			f.giveUp(err)
			return
		}
	}
}

// giveUp ends the stream: Read tells why once it has used what came before.
func (f *stream) giveUp(err error) {
	f.in.end(err)
	_ = f.wire.conn.SetReadDeadline(time.Unix(1, 0))
}

// statusLength is that of a message about how far the stream came.
const statusLength = 1 + 3*8 + 8 + 1

// status sends how far the stream came: what arrived, and what is safe. Only what was acknowledged is; 0 leaves that as it is.
func (f *stream) status(answer bool, within time.Duration) error {
	safe := f.confirmed.Load()
	body := make([]byte, 0, statusLength)
	body = append(body, 'r')
	body = binary.BigEndian.AppendUint64(body, f.received.Load()) // written
	body = binary.BigEndian.AppendUint64(body, safe)              // flushed
	body = binary.BigEndian.AppendUint64(body, safe)              // applied
	body = binary.BigEndian.AppendUint64(body, uint64(time.Now().UnixMicro()-serverEpoch))
	if answer {
		body = append(body, 1)
	} else {
		body = append(body, 0)
	}
	_ = f.wire.conn.SetWriteDeadline(time.Now().Add(within))
	return f.wire.send(frameCopyData, body...)
}

// tend looks for new tables, and lets an idle server log something.
func (f *stream) tend(ctx context.Context) {
	refresh, stopRefresh := every(f.s.cfg.Refresh)
	defer stopRefresh()
	beat, stopBeat := every(f.s.cfg.Heartbeat)
	defer stopBeat()
	var seen uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-refresh:
			err := f.join(ctx)
			switch {
			case err == nil || ctx.Err() != nil:
			case connector.ClassOf(err) == connector.ClassPosition:
				f.giveUp(err)
			default:
				f.s.env.Log.WarnContext(ctx, "looking for new tables", slog.Any("error", err))
			}
		case <-beat:
			if now := f.received.Load(); now != seen {
				seen = now
				continue
			}
			if err := f.beat(ctx); err != nil && ctx.Err() == nil {
				f.s.env.Log.WarnContext(ctx, "writing a heartbeat", slog.Any("error", err))
			}
		}
	}
}

// every is a ticker; 0: it never ticks.
func every(d time.Duration) (<-chan time.Time, func()) {
	if d <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(d)
	return t.C, t.Stop
}

// heartbeatPrefix names the messages that are written into the log of an idle server.
const heartbeatPrefix = "leat.heartbeat"

func (f *stream) beat(ctx context.Context) error {
	return f.s.cfg.wrap("writing a heartbeat", f.s.borrow(ctx, func(pg *pgconn.PgConn) error {
		f.s.env.Roundtrip("heartbeat")
		_, err := ask(ctx, pg, "SELECT pg_catalog.pg_logical_emit_message(false, $1, '')", heartbeatPrefix)
		return err
	}))
}

// join looks for tables that are selected and not followed yet.
func (f *stream) join(ctx context.Context) error {
	if err := f.lockJoining(ctx); err != nil {
		return err
	}
	defer f.unlockJoining()
	added, err := f.s.join(ctx)
	if err != nil {
		return err
	}
	return f.welcome(ctx, added...)
}

// joinNow lets a table join that is in the stream already.
func (f *stream) joinNow(ctx context.Context, dataset string) error {
	if err := f.lockJoining(ctx); err != nil {
		return err
	}
	defer f.unlockJoining()
	f.announce()
	if f.datasets[dataset] != nil {
		return nil
	}
	t, err := f.s.refresh(ctx, dataset)
	switch {
	case connector.ClassOf(err) == connector.ClassConfig:
		return nil // it is not selected
	case err != nil:
		return err
	}
	if err := f.welcome(ctx, t); err != nil {
		return err
	}
	f.announce()
	return nil
}

// welcome puts new tables where Read finds them.
func (f *stream) welcome(ctx context.Context, tables ...*sourceTable) error {
	if len(tables) == 0 {
		return nil
	}
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.dataset
	}
	if err := f.s.markBarrier(ctx, names...); err != nil {
		return err
	}
	f.mu.Lock()
	f.joined = append(f.joined, tables...)
	f.mu.Unlock()
	wake(f.in.ready)
	return nil
}

// lockJoining keeps two goroutines from letting the same table join.
func (f *stream) lockJoining(ctx context.Context) error {
	select {
	case f.joining <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // callers say what was being done
	}
}

func (f *stream) unlockJoining() { <-f.joining }
