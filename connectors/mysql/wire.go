package mysql

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
)

// Sizes of the reader's buffer: it grows to the largest packet.
const (
	wireBuffer = 256 << 10
	packetHead = 4
	packetMost = 1<<24 - 1 // a payload of this size goes on in the next packet
)

// First bytes of packets.
const (
	headOK  = 0x00
	headEOF = 0xfe
	headErr = 0xff
)

// wire reads the rows of prepared statements from a connection: in the binary protocol, where every value is exact (the text protocol cuts
// float to six digits), and from one buffer, without copies. The library connects and logs in; it also runs statements without rows.
type wire struct {
	conn *client.Conn
	net  net.Conn
	id   uint32 // of the connection, for KILL

	buf    []byte
	r, w   int // what is in buf and was not read yet
	joined []byte
	read   int64 // bytes of rows since the statement began
	broken bool  // an answer was not read to its end: the connection is of no use any more
}

// newWire takes over a connection.
func newWire(conn *client.Conn) *wire {
	return &wire{conn: conn, net: conn.Conn.Conn, id: conn.GetConnectionID(), buf: make([]byte, wireBuffer)}
}

// watch lets ctx end what waits for the network. The returned function ends that; it reports ctx's error in place of what it caused.
func (w *wire) watch(ctx context.Context) (done func(error) error) {
	stop := context.AfterFunc(ctx, func() { _ = w.net.SetDeadline(time.Unix(1, 0)) })
	return func(err error) error {
		if !stop() {
			w.broken = true
		}
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
}

// exec runs a statement that returns nothing of interest.
func (w *wire) exec(ctx context.Context, sql string) error {
	done := w.watch(ctx)
	_, err := w.conn.Execute(sql)
	if _, said := serverErrorOf(err); err != nil && !said {
		w.broken = true
	}
	return done(err)
}

// wireColumn is a column of a result as the server describes it.
type wireColumn struct {
	name     string
	typ      byte
	charset  uint16
	length   uint32
	flags    uint16
	decimals byte
}

// describe prepares a statement and returns what its result looks like and how many parameters it has; it does not run it.
func (w *wire) describe(ctx context.Context, sql string) (cols []wireColumn, params int, err error) {
	done := w.watch(ctx)
	st, err := w.prepare(sql)
	if err == nil {
		err = w.closeStatement(st.id)
	}
	return st.columns, st.params, done(err)
}

// query runs a statement and hands over its rows: first the columns, then each row in the binary form, which is valid until the next one.
// An error of the callbacks leaves the connection broken, unless there were no more rows.
func (w *wire) query(ctx context.Context, sql string, columns func([]wireColumn) error, row func([]byte) error) error {
	done := w.watch(ctx)
	return done(w.run(sql, columns, row))
}

func (w *wire) run(sql string, columns func([]wireColumn) error, row func([]byte) error) error {
	w.read = 0
	st, err := w.prepare(sql)
	if err != nil {
		return err
	}
	cols, err := w.execute(st)
	if err != nil {
		return err
	}
	if err := columns(cols); err != nil {
		w.broken = true
		return err
	}
	for {
		p, err := w.packet()
		if err != nil {
			return err
		}
		switch {
		case p[0] == headEOF && len(p) < 9:
			return w.closeStatement(st.id)
		case p[0] == headErr:
			w.broken = false
			return parseError(p)
		}
		w.read += int64(len(p)) + packetHead
		if err := row(p); err != nil {
			w.broken = true
			return err
		}
	}
}

// statement is a prepared statement.
type statement struct {
	id      uint32
	columns []wireColumn
	params  int
}

// prepare sends a statement and reads what its result looks like.
func (w *wire) prepare(sql string) (st statement, err error) {
	if err := w.send(mysql.COM_STMT_PREPARE, []byte(sql)); err != nil {
		return st, err
	}
	p, err := w.packet()
	switch {
	case err != nil:
		return st, err
	case p[0] == headErr:
		return st, parseError(p)
	case len(p) < 12:
		return st, w.garbled()
	}
	st.id = binary.LittleEndian.Uint32(p[1:])
	n := int(binary.LittleEndian.Uint16(p[5:]))
	if st.params = int(binary.LittleEndian.Uint16(p[7:])); st.params > 0 {
		if err := w.skip(st.params + 1); err != nil {
			return st, err
		}
	}
	st.columns, err = w.describing(n)
	return st, err
}

// describing reads the descriptions of n columns.
func (w *wire) describing(n int) ([]wireColumn, error) {
	if n == 0 {
		return nil, nil
	}
	cols := make([]wireColumn, n)
	for i := range cols {
		p, err := w.packet()
		if err != nil {
			return nil, err
		}
		if cols[i], err = parseColumn(p); err != nil {
			return nil, w.garbled()
		}
	}
	return cols, w.skip(1)
}

// execute runs a prepared statement and reads up to its first row. The result may look otherwise than it did when it was prepared.
func (w *wire) execute(st statement) ([]wireColumn, error) {
	body := binary.LittleEndian.AppendUint32(make([]byte, 0, 16), st.id)
	body = append(body, 0)                           // no cursor on the server
	body = binary.LittleEndian.AppendUint32(body, 1) // once
	if err := w.send(mysql.COM_STMT_EXECUTE, body); err != nil {
		return nil, err
	}
	p, err := w.packet()
	switch {
	case err != nil:
		return nil, err
	case p[0] == headErr:
		return nil, parseError(p)
	}
	n, _, ok := lengthEncoded(p)
	if !ok || n == 0 {
		return nil, w.garbled()
	}
	return w.describing(int(n))
}

// closeStatement lets the server forget a statement; it does not answer.
func (w *wire) closeStatement(id uint32) error {
	return w.send(mysql.COM_STMT_CLOSE, binary.LittleEndian.AppendUint32(nil, id))
}

// send writes a command.
func (w *wire) send(command byte, body []byte) error {
	data := make([]byte, packetHead, packetHead+1+len(body))
	data = append(append(data, command), body...)
	w.conn.ResetSequence()
	if err := w.conn.WritePacket(data); err != nil {
		w.broken = true
		return fmt.Errorf("sending a statement: %w", err)
	}
	return nil
}

func (w *wire) skip(packets int) error {
	for range packets {
		if _, err := w.packet(); err != nil {
			return err
		}
	}
	return nil
}

func (w *wire) garbled() error {
	w.broken = true
	return errors.New("the server's answer can't be read")
}

// packet returns the next payload, which is valid until the next call. It has at least one byte.
func (w *wire) packet() ([]byte, error) {
	p, more, err := w.part()
	if err == nil && len(p) == 0 {
		err = w.garbled()
	}
	if err != nil || !more {
		return p, err
	}
	w.joined = append(w.joined[:0], p...)
	for more {
		if p, more, err = w.part(); err != nil {
			return nil, err
		}
		w.joined = append(w.joined, p...)
	}
	return w.joined, nil
}

// part returns one packet's payload, and whether it goes on in the next one.
func (w *wire) part() (p []byte, more bool, err error) {
	if err := w.need(packetHead); err != nil {
		return nil, false, err
	}
	head := w.buf[w.r:]
	size := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	if err := w.need(packetHead + size); err != nil {
		return nil, false, err
	}
	p = w.buf[w.r+packetHead : w.r+packetHead+size]
	w.r += packetHead + size
	return p, size == packetMost, nil
}

// need reads until n bytes are in the buffer.
func (w *wire) need(n int) error {
	if w.w-w.r >= n {
		return nil
	}
	if w.r > 0 {
		w.w = copy(w.buf, w.buf[w.r:w.w])
		w.r = 0
	}
	if len(w.buf) < n {
		bigger := make([]byte, max(n, 2*len(w.buf)))
		copy(bigger, w.buf[:w.w])
		w.buf = bigger
	}
	for w.w < n {
		got, err := w.net.Read(w.buf[w.w:])
		w.w += got
		if err != nil && w.w < n {
			w.broken = true
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("reading from the server: %w", err)
		}
	}
	return nil
}

// close ends the connection.
func (w *wire) close() error {
	_ = w.net.SetDeadline(time.Now().Add(closeTimeout))
	if w.broken {
		return w.conn.Close() //nolint:wrapcheck // callers log it
	}
	return w.conn.Quit() //nolint:wrapcheck // likewise
}

// parseError reads an error packet.
func parseError(p []byte) error {
	e := &serverError{}
	if len(p) < 3 {
		return errors.New("the server refused, without a reason")
	}
	e.number, p = binary.LittleEndian.Uint16(p[1:]), p[3:]
	if len(p) > 6 && p[0] == '#' {
		e.state, p = string(p[1:6]), p[6:]
	}
	e.message = string(p)
	return e
}

var errPacket = errors.New("a packet ends too early")

// parseColumn reads the description of a column.
func parseColumn(p []byte) (wireColumn, error) {
	var c wireColumn
	for i := range 6 { // catalog, schema, table, the table's own name, name, the column's own name
		n, size, ok := lengthEncoded(p)
		if !ok || uint64(len(p)-size) < n {
			return c, errPacket
		}
		if i == 4 {
			c.name = string(p[size : size+int(n)])
		}
		p = p[size+int(n):]
	}
	if len(p) < 13 {
		return c, errPacket
	}
	c.charset, c.length = binary.LittleEndian.Uint16(p[1:]), binary.LittleEndian.Uint32(p[3:])
	c.typ, c.flags, c.decimals = p[7], binary.LittleEndian.Uint16(p[8:]), p[10]
	return c, nil
}

// lengthEncoded reads a number in front of p, and says how many bytes it took; 0xfb, which stands for NULL in other places, is none.
func lengthEncoded(p []byte) (n uint64, size int, ok bool) {
	if len(p) == 0 {
		return 0, 0, false
	}
	switch p[0] {
	case 0xfb, 0xff:
		return 0, 0, false
	case 0xfc:
		size = 3
	case 0xfd:
		size = 4
	case 0xfe:
		size = 9
	default:
		return uint64(p[0]), 1, true
	}
	if len(p) < size {
		return 0, 0, false
	}
	for i := size - 1; i >= 1; i-- {
		n = n<<8 | uint64(p[i])
	}
	return n, size, true
}
