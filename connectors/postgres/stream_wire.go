package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/leatdata/leat/connector"
)

// Kinds of messages of the server's protocol that a stream of changes consists of.
const (
	frameCopyBoth = 'W'
	frameCopyData = 'd'
	frameCopyDone = 'c'
	frameError    = 'E'
	frameQuery    = 'Q'
	frameReady    = 'Z'
	frameEnd      = 'X'
)

// frameHeader is a message's kind and length.
const frameHeader = 5

// maxFrame is more than the server can send in one message.
const maxFrame = 1<<30 + 1<<20

// wire is a replication connection whose messages are taken apart here. One goroutine may read while another one writes.
type wire struct {
	conn    net.Conn
	pid     uint32
	system  string        // the cluster's identifier
	version int           // major version of the server
	timeout time.Duration // after which the server gives up a silent reader; 0: never
	nextXID uint64        // the server's next transaction when the connection was made
	out     []byte
}

// wireSettings decide how values look in text. They are those of begin, for the whole session: nobody else uses it.
const wireSettings = `SET client_encoding = '%s'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = postgres; SET TimeZone = 'UTC';
SET bytea_output = hex; SET extra_float_digits = 3; SET xmlbinary = base64; SET standard_conforming_strings = on;
SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0`

// wireFacts are what the stream has to know of the server.
const wireFacts = `SELECT pg_catalog.current_setting('server_version_num'),
	(SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'),
	pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())`

// openWire makes a replication connection.
func (s *Source) openWire(ctx context.Context) (*wire, error) {
	cfg, err := s.cfg.connConfig()
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["replication"] = "database"
	cfg.DialFunc = patiently(cfg.DialFunc)
	s.env.Roundtrip("connect")
	pg, err := pgconn.ConnectConfig(ctx, &cfg.Config)
	if err != nil {
		return nil, replicationError(s.cfg.connectError(cfg, err), cfg.User)
	}
	w, err := prepareWire(ctx, pg)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = pg.Close(ctx)
		return nil, replicationError(s.cfg.wrap("opening a replication connection", err), cfg.User)
	}
	return w, nil
}

func prepareWire(ctx context.Context, pg *pgconn.PgConn) (*wire, error) {
	encoding := "UTF8"
	if unchecked(pg) {
		encoding = "SQL_ASCII"
	}
	if err := command(ctx, pg, fmt.Sprintf(wireSettings, encoding)); err != nil {
		return nil, err
	}
	facts, err := pg.Exec(ctx, wireFacts).ReadAll()
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what was being done
	}
	identity, err := pg.Exec(ctx, "IDENTIFY_SYSTEM").ReadAll()
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what was being done
	}
	row := facts[0].Rows[0]
	next, err := strconv.ParseUint(string(row[2]), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the next transaction %q: %w", row[2], err)
	}
	w := &wire{
		pid: pg.PID(), system: string(identity[0].Rows[0][0]), version: int(toInt(row[0]) / 10_000), nextXID: next,
		timeout: time.Duration(max(toInt(row[1]), 0)) * time.Millisecond,
	}
	hijacked, err := pg.Hijack()
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what was being done
	}
	w.conn = hijacked.Conn
	for hijacked.Frontend.ReadBufferLen() > 0 { // notices that came behind the answer
		if _, err := hijacked.Frontend.Receive(); err != nil {
			_ = w.conn.Close()
			return nil, err //nolint:wrapcheck // the caller says what was being done
		}
	}
	return w, nil
}

// replicationError says what replication asks for beyond an ordinary connection.
func replicationError(err error, role string) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	e, ok := errors.AsType[*connector.Error](err)
	if !ok {
		return err
	}
	switch {
	case pg.Code == "08P01", strings.Contains(pg.Message, "unsupported startup parameter"):
		e.Class, e.Code = connector.ClassConfig, "postgres.pooler"
		e.Hint = "changes are read over a replication connection, which no pooler lets through: set host and port of the server itself"
	case pg.Code == "42501":
		e.Code = "postgres.privilege"
		e.Hint = "as a superuser: ALTER ROLE " + ident(role) + " REPLICATION; (managed servers have a role to grant instead)"
	case pg.Code == "53300" && strings.Contains(pg.Message, "max_wal_senders"):
		e.Hint = "raise max_wal_senders, or end other replication connections"
	}
	return err
}

// send writes one message.
func (w *wire) send(kind byte, body ...byte) error {
	w.out = append(w.out[:0], kind, 0, 0, 0, 0)
	w.out = append(w.out, body...)
	binary.BigEndian.PutUint32(w.out[1:], uint32(len(w.out)-1))
	_, err := w.conn.Write(w.out)
	return err //nolint:wrapcheck // callers say what was being done
}

// frame reads one message, and not a byte more. It serves until the stream begins.
func (w *wire) frame() (kind byte, body []byte, err error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(w.conn, head[:]); err != nil {
		return 0, nil, err //nolint:wrapcheck // callers say what was being done
	}
	size, err := frameSize(head[:])
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, size-frameHeader)
	_, err = io.ReadFull(w.conn, body)
	return head[0], body, err //nolint:wrapcheck // callers say what was being done
}

// frameSize is the length of the message that begins with head, its header included.
func frameSize(head []byte) (int, error) {
	n := binary.BigEndian.Uint32(head[1:])
	if n < frameHeader-1 || n > maxFrame {
		return 0, fmt.Errorf("the server sent a message of kind %q and %d bytes: this is not its protocol", head[0], n)
	}
	return int(n) + 1, nil
}

// replicate starts the stream. After an error of the server the connection can be used again.
func (w *wire) replicate(ctx context.Context, sql string) error {
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetDeadline(time.Unix(1, 0)) })
	err := w.begin(sql)
	if !stop() && ctx.Err() != nil {
		return ctx.Err() //nolint:wrapcheck // callers say what was being done
	}
	return err
}

func (w *wire) begin(sql string) error {
	if err := w.send(frameQuery, append([]byte(sql), 0)...); err != nil {
		return err
	}
	var refused error
	for {
		kind, body, err := w.frame()
		if err != nil {
			return err
		}
		switch kind {
		case frameCopyBoth:
			return nil
		case frameError:
			refused = errorOf(body)
		case frameReady:
			if refused == nil {
				refused = errors.New("the server did not begin the stream")
			}
			return refused
		}
	}
}

// errorOf is the error that a message of the server holds.
func errorOf(body []byte) error {
	var m pgproto3.ErrorResponse
	if err := m.Decode(body); err != nil {
		return fmt.Errorf("the server sent an error that can't be read: %w", err)
	}
	return pgconn.ErrorResponseToPgError(&m)
}
