package pgoutput

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

var (
	errShort    = errors.New("it ends too early")
	errLong     = errors.New("there is more data than it has fields")
	errFlags    = errors.New("unknown flags")
	errVersion  = errors.New("it does not belong to the protocol version of this stream")
	errOldTuple = errors.New("there is no old tuple where one must be")
	errNewTuple = errors.New("there is no new tuple where one must be")
	errColumns  = errors.New("a number of columns below zero")
	errUnknown  = errors.New("the protocol has no such message")
)

// Parse reads one message of a stream of the given protocol version, 1 to 4. inStream says that it came between StreamStart and
// StreamStop: there some messages have one more field, the transaction. The byte slices and tuples of the result are parts of data.
// An error means that the message is not of the protocol: nothing after it can be trusted.
func Parse(data []byte, inStream bool, version int) (Message, error) {
	c, ok, err := ParseChange(data, inStream)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return c.message(), nil
	case len(data) == 0:
		return nil, fmt.Errorf("an empty message: %w", errShort)
	}
	r := reader{rest: data[1:], inStream: inStream, version: version}
	m := r.message(data[0])
	if err := r.end(data); err != nil {
		return nil, err
	}
	return m, nil
}

// ParseBegin is Parse for Begin; it allocates nothing. It returns false for other messages, which Parse reads.
func ParseBegin(data []byte) (m Begin, ok bool, err error) {
	if len(data) == 0 || data[0] != 'B' {
		return m, false, nil
	}
	r := reader{rest: data[1:]}
	m = r.begin()
	if err := r.end(data); err != nil {
		return Begin{}, false, err
	}
	return m, true, nil
}

// ParseCommit is Parse for Commit; it allocates nothing. It returns false for other messages, which Parse reads.
func ParseCommit(data []byte) (m Commit, ok bool, err error) {
	if len(data) == 0 || data[0] != 'C' {
		return m, false, nil
	}
	r := reader{rest: data[1:]}
	m = r.commit()
	if err := r.end(data); err != nil {
		return Commit{}, false, err
	}
	return m, true, nil
}

// reader takes a message apart. After an error all that it returns is zero.
type reader struct {
	rest     []byte
	inStream bool
	version  int
	err      error
}

func (r *reader) message(kind byte) Message {
	switch kind {
	case 'B':
		return r.begin()
	case 'C':
		return r.commit()
	case 'O':
		return Origin{LSN: r.uint64(), Name: r.string()}
	case 'R':
		return r.relation()
	case 'Y':
		return Type{XID: r.xid(), ID: r.uint32(), Namespace: r.namespace(), Name: r.string()}
	case 'T':
		return r.truncate()
	case 'M':
		return r.logical()
	case 'S', 'E', 'c', 'A':
		r.since(2)
		return r.stream(kind)
	case 'b', 'P', 'K', 'r', 'p':
		r.since(3)
		return r.prepared(kind)
	}
	r.fail(errUnknown)
	return nil
}

func (r *reader) begin() Begin {
	return Begin{FinalLSN: r.uint64(), Time: r.time(), XID: r.uint32()}
}

func (r *reader) commit() Commit {
	r.flags()
	return Commit{LSN: r.uint64(), EndLSN: r.uint64(), Time: r.time()}
}

func (r *reader) stream(kind byte) Message {
	switch kind {
	case 'S':
		return StreamStart{XID: r.uint32(), First: r.byte() != 0}
	case 'E':
		return StreamStop{}
	case 'c':
		m := StreamCommit{XID: r.uint32()}
		r.flags()
		m.LSN, m.EndLSN, m.Time = r.uint64(), r.uint64(), r.time()
		return m
	default:
		m := StreamAbort{XID: r.uint32(), SubXID: r.uint32()}
		if r.version >= 4 && len(r.rest) > 0 {
			m.LSN, m.Time = r.uint64(), r.time()
		}
		return m
	}
}

func (r *reader) prepared(kind byte) Message {
	if kind != 'b' {
		r.flags()
	}
	if kind == 'r' {
		return RollbackPrepared{
			PrepareEndLSN: r.uint64(), EndLSN: r.uint64(), PrepareTime: r.time(), Time: r.time(), XID: r.uint32(), GID: r.string(),
		}
	}
	m := Prepare{LSN: r.uint64(), EndLSN: r.uint64(), Time: r.time(), XID: r.uint32(), GID: r.string()}
	switch kind {
	case 'b':
		return BeginPrepare(m)
	case 'K':
		return CommitPrepared(m)
	case 'p':
		return StreamPrepare(m)
	default:
		return m
	}
}

func (r *reader) relation() Relation {
	m := Relation{XID: r.xid(), ID: r.uint32(), Namespace: r.namespace(), Name: r.string(), Identity: r.byte()}
	n := int(int16(r.uint16()))
	if n < 0 {
		r.fail(errColumns)
	}
	for i := 0; i < n && r.err == nil; i++ {
		const key = 1
		flags := r.byte()
		if flags&^key != 0 {
			r.fail(errFlags)
		}
		m.Columns = append(m.Columns, Column{Key: flags&key != 0, Name: r.string(), Type: r.uint32(), Mod: int32(r.uint32())})
	}
	return m
}

func (r *reader) truncate() Truncate {
	const cascade, restart = 1, 2
	m := Truncate{XID: r.xid()}
	n, flags := r.uint32(), r.byte()
	if flags&^(cascade|restart) != 0 {
		r.fail(errFlags)
	}
	m.Cascade, m.RestartIdentity = flags&cascade != 0, flags&restart != 0
	if uint64(len(r.rest)) < 4*uint64(n) {
		r.fail(errShort)
		return m
	}
	m.Relations = make([]uint32, n)
	for i := range m.Relations {
		m.Relations[i] = r.uint32()
	}
	return m
}

func (r *reader) logical() LogicalMessage {
	const transactional = 1
	m := LogicalMessage{XID: r.xid()}
	flags := r.byte()
	if flags&^transactional != 0 {
		r.fail(errFlags)
	}
	m.Transactional, m.LSN, m.Prefix = flags&transactional != 0, r.uint64(), r.string()
	m.Content = r.bytes(int64(r.uint32()))
	return m
}

// end says what is wrong with the message.
func (r *reader) end(data []byte) error {
	if r.err == nil && len(r.rest) > 0 {
		r.err = errLong
	}
	if r.err != nil {
		return fmt.Errorf("message %q of %d bytes: %w", data[0], len(data), r.err)
	}
	return nil
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *reader) since(version int) {
	if r.version < version {
		r.fail(errVersion)
	}
}

func (r *reader) bytes(n int64) []byte {
	if n > int64(len(r.rest)) {
		r.fail(errShort)
		return nil
	}
	v := r.rest[:n:n]
	r.rest = r.rest[n:]
	return v
}

func (r *reader) byte() byte {
	if v := r.bytes(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if v := r.bytes(2); v != nil {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if v := r.bytes(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if v := r.bytes(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

// time reads microseconds since 2000.
func (r *reader) time() time.Time {
	const epoch, second = 946_684_800, 1_000_000
	t := int64(r.uint64())
	return time.Unix(epoch+t/second, t%second*int64(time.Microsecond)).UTC()
}

// string reads up to a zero byte.
func (r *reader) string() string {
	n := bytes.IndexByte(r.rest, 0)
	if n < 0 {
		r.fail(errShort)
		return ""
	}
	v := string(r.rest[:n])
	r.rest = r.rest[n+1:]
	return v
}

// namespace reads a schema's name: none stands for pg_catalog.
func (r *reader) namespace() string {
	if s := r.string(); s != "" || r.err != nil {
		return s
	}
	return "pg_catalog"
}

// xid reads the transaction where there is one.
func (r *reader) xid() uint32 {
	if !r.inStream {
		return 0
	}
	return r.uint32()
}

// flags reads a byte that is always zero so far.
func (r *reader) flags() {
	if r.byte() != 0 {
		r.fail(errFlags)
	}
}
