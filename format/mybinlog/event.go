package mybinlog

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Type is a kind of event.
type Type uint8

// The kinds that mean something to a reader of changes; the servers' own names stand in their documentation.
const (
	TypeQuery        Type = 2
	TypeStop         Type = 3
	TypeRotate       Type = 4
	TypeFormat       Type = 15
	TypeXID          Type = 16
	TypeBeginLoad    Type = 17
	TypeExecuteLoad  Type = 18
	TypeTableMap     Type = 19
	TypeInsert1      Type = 23
	TypeUpdate1      Type = 24
	TypeDelete1      Type = 25
	TypeIncident     Type = 26
	TypeHeartbeat    Type = 27
	TypeInsert2      Type = 30
	TypeUpdate2      Type = 31
	TypeDelete2      Type = 32
	TypeGTID         Type = 33
	TypeAnonymous    Type = 34
	TypePrevious     Type = 35
	TypeXAPrepare    Type = 38
	TypePartial      Type = 39
	TypePayload      Type = 40
	TypeHeartbeat2   Type = 41
	TypeTaggedGTID   Type = 42
	TypeMariaNote    Type = 160 // the statement of rows
	TypeMariaGTID    Type = 162
	TypeMariaList    Type = 163
	TypeMariaCrypt   Type = 164
	TypeMariaQuery   Type = 165 // compressed, as are those that follow
	TypeMariaInsert1 Type = 166
	TypeMariaUpdate1 Type = 167
	TypeMariaDelete1 Type = 168
)

// HeaderSize is how many bytes stand in front of each event.
const HeaderSize = 19

// Flags of events.
const (
	FlagArtificial = 0x20 // it is not in the log, but was made by the server for the reader
)

// Header is what stands in front of each event.
type Header struct {
	Time   time.Time
	Type   Type
	Server uint32
	Size   uint32 // with the header
	End    uint32 // where it ends in its file; 0: it does not say
	Flags  uint16
}

// ErrShort says that an event ends before all was read of it.
var ErrShort = errors.New("the event of the binary log is too short")

// ParseHeader reads the header, and returns what is behind it.
func ParseHeader(event []byte) (h Header, body []byte, err error) {
	if len(event) < HeaderSize {
		return h, nil, ErrShort
	}
	le := binary.LittleEndian
	h = Header{
		Time: time.Unix(int64(le.Uint32(event)), 0).UTC(), Type: Type(event[4]), Server: le.Uint32(event[5:]),
		Size: le.Uint32(event[9:]), End: le.Uint32(event[13:]), Flags: le.Uint16(event[17:]),
	}
	return h, event[HeaderSize:], nil
}

// reader takes an event apart. After a failure it returns zeros; err says so.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// uint reads n bytes, the lowest first.
func (r *reader) uint(n int) (v uint64) {
	for i, b := range r.take(n) {
		v |= uint64(b) << (8 * i)
	}
	return v
}

// packed reads a number in the protocol's form of one to nine bytes.
func (r *reader) packed() uint64 {
	switch first := r.uint(1); first {
	case 0xfc:
		return r.uint(2)
	case 0xfd:
		return r.uint(3)
	case 0xfe:
		return r.uint(8)
	case 0xfb, 0xff:
		r.bad = true
		return 0
	default:
		return first
	}
}

// count reads a packed number of things that take at least one byte each.
func (r *reader) count() int {
	n := r.packed()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return 0
	}
	return int(n)
}

// text reads a text behind its packed length.
func (r *reader) text() []byte { return r.take(r.count()) }

// zeroEnded reads a text behind a byte with its length, and the zero at its end.
func (r *reader) zeroEnded() []byte {
	v := r.take(int(r.uint(1)))
	r.take(1)
	return v
}

func (r *reader) err() error {
	if r.bad {
		return ErrShort
	}
	return nil
}

// Format is what an event of that name says of those that follow.
type Format struct {
	Version  string // of the server
	Checksum bool   // four bytes with a checksum stand at the end of each event
}

// ParseFormat reads the body of a TypeFormat.
func ParseFormat(body []byte) (f Format, err error) {
	r := reader{b: body}
	if v := r.uint(2); v != 4 && !r.bad {
		return f, fmt.Errorf("the binary log has version %d: want 4", v)
	}
	f.Version, _, _ = strings0(r.take(50))
	r.take(4)
	if n := r.uint(1); n != HeaderSize && !r.bad {
		return f, fmt.Errorf("events of the binary log have headers of %d bytes: want %d", n, HeaderSize)
	}
	if len(body) >= 5 { // the method, and the event's own checksum
		f.Checksum = body[len(body)-5] == 1
	}
	return f, r.err()
}

// strings0 cuts at the first zero byte.
func strings0(b []byte) (text string, rest []byte, ok bool) {
	before, after, ok := bytes.Cut(b, []byte{0})
	return string(before), after, ok
}

// ParseRotate reads the body of a TypeRotate: where the log goes on.
func ParseRotate(body []byte) (file string, pos uint64, err error) {
	r := reader{b: body}
	pos = r.uint(8)
	return string(r.b), pos, r.err()
}

// Begin is the beginning of a transaction.
type Begin struct {
	GTID       GTID      // zero: the server writes none
	Committed  time.Time // zero: it does not say; the header's time has whole seconds
	Standalone bool      // MariaDB: one statement, without an end of its own
	Prepared   bool      // MariaDB: it ends prepared, as XA has it; MySQL has a statement for that
}

// Flags of MariaDB's events.
const (
	mariaStandalone = 1
	mariaPrepared   = 64
)

// ParseMariaGTID reads the body of a TypeMariaGTID.
func ParseMariaGTID(h Header, body []byte) (b Begin, err error) {
	r := reader{b: body}
	b.GTID = GTID{Flavor: MariaDB, Server: h.Server, N: r.uint(8)}
	b.GTID.Domain = uint32(r.uint(4))
	flags := r.uint(1)
	b.Standalone, b.Prepared = flags&mariaStandalone != 0, flags&mariaPrepared != 0
	return b, r.err()
}

// ParseXAPrepare reads the body of a TypeXAPrepare: the transaction's name as statements about it have it; onePhase: it is committed
// already.
func ParseXAPrepare(body []byte) (xid string, onePhase bool, err error) {
	r := reader{b: body}
	onePhase = r.uint(1) != 0
	format, gtrid, bqual := r.uint(4), r.uint(4), r.uint(4)
	if gtrid > 64 || bqual > 64 {
		return "", false, ErrShort
	}
	xid = fmt.Sprintf("X'%x',X'%x',%d", r.take(int(gtrid)), r.take(int(bqual)), format)
	return xid, onePhase, r.err()
}

// ParseGTIDEvent reads the body of a TypeGTID or of a TypeAnonymous.
func ParseGTIDEvent(h Header, body []byte) (b Begin, err error) {
	r := reader{b: body}
	r.take(1)
	var g GTID
	copy(g.Source.UUID[:], r.take(16))
	g.N = r.uint(8)
	if h.Type == TypeGTID {
		b.GTID = g
	}
	const logical = 2
	if len(r.b) >= 1+16+7 && r.uint(1) == logical {
		r.take(16)
		micros := r.uint(7)
		b.Committed = time.UnixMicro(int64(micros &^ (1 << 55))).UTC()
	}
	return b, r.err()
}

// ParseTagged reads the body of a TypeTaggedGTID. It is in the form of messages that MySQL calls serialization: each field has a number.
func ParseTagged(body []byte) (b Begin, err error) {
	r := reader{b: body}
	r.varint() // version of the form
	r.varint() // size of the message
	r.varint() // the last field that must be understood
	var g GTID
	for len(r.b) > 0 && !r.bad {
		switch field := r.varint(); field {
		case 0: // flags: a fixed number of bytes, each by itself
			r.varint()
		case 1:
			for i := range g.Source.UUID {
				g.Source.UUID[i] = byte(r.varint())
			}
		case 2:
			g.N = uint64(r.zigzag())
		case 3:
			n := r.varint()
			if n > 32 {
				return b, ErrShort
			}
			g.Source.Tag = string(r.take(int(n)))
		case 6:
			b.Committed = time.UnixMicro(int64(r.varint())).UTC()
		default: // of no use here: all others are numbers
			r.varint()
		}
	}
	b.GTID = g
	return b, r.err()
}

// varint reads a number whose first byte says, by its trailing ones, how many follow.
func (r *reader) varint() uint64 {
	first := r.uint(1)
	more := 0
	for more < 8 && first>>more&1 == 1 {
		more++
	}
	if more == 8 {
		return r.uint(8)
	}
	low := first >> (more + 1)
	return r.uint(more)<<(7-more) | low
}

// zigzag reads a number with a sign in its lowest bit.
func (r *reader) zigzag() int64 {
	v := r.varint()
	return int64(v>>1) ^ -int64(v&1)
}

// Query is a statement.
type Query struct {
	Database string
	SQL      []byte
	Mode     uint64 // sql_mode
	Code     uint16 // what it failed with; 0: it did not
	Charset  uint16 // collation of the client, in which SQL is; 0: it does not say
}

// Bits of Query.Mode.
const (
	ModeANSIQuotes         = 1 << 2  // "…" are names
	ModeNoBackslashEscapes = 1 << 20 // \ is a character like others
)

// ParseQuery reads the body of a TypeQuery, or of a TypeMariaQuery.
func ParseQuery(h Header, body []byte) (q Query, err error) {
	r := reader{b: body}
	r.take(8)
	n := int(r.uint(1))
	q.Code = uint16(r.uint(2))
	status := r.take(int(r.uint(2)))
	q.Database = string(r.take(n))
	r.take(1)
	q.SQL = r.b
	if err := r.err(); err != nil {
		return q, err
	}
	q.status(status)
	if h.Type == TypeMariaQuery {
		q.SQL, err = Inflate(q.SQL)
	}
	return q, err
}

// status reads what is known of the variables of a statement's session, as far as it is understood: those that matter come first.
func (q *Query) status(vars []byte) {
	r := reader{b: vars}
	for len(r.b) > 0 && !r.bad {
		switch r.uint(1) {
		case 0: // flags
			r.take(4)
		case 1:
			q.Mode = r.uint(8)
		case 2: // catalogue, with a zero
			r.zeroEnded()
		case 3: // auto increment
			r.take(4)
		case 4:
			q.Charset = uint16(r.uint(2))
			return
		case 5: // time zone
			r.take(int(r.uint(1)))
		case 6: // catalogue
			r.take(int(r.uint(1)))
		default:
			return
		}
	}
}

// ParseHeartbeat reads the body of a heartbeat: where the server is. Nothing happened since.
func ParseHeartbeat(h Header, body []byte) (file string, pos uint64, err error) {
	if h.Type == TypeHeartbeat {
		return string(body), uint64(h.End), nil
	}
	r := reader{b: body}
	for len(r.b) > 0 && !r.bad {
		kind := r.uint(1)
		if kind == 0 {
			break
		}
		v := reader{b: r.text()}
		switch kind {
		case 1:
			file = string(v.b)
		case 2:
			pos = v.packed()
		}
	}
	return file, pos, r.err()
}

// Payload is the events of a compressed transaction.
type Payload struct {
	in  io.Reader
	end func()
	buf []byte
}

// OpenPayload reads the body of a TypePayload. Close must be called.
func OpenPayload(body []byte) (*Payload, error) {
	const zstandard, uncompressed = 0, 255
	r := reader{b: body}
	method := uint64(uncompressed)
	for !r.bad {
		field := r.packed()
		if field == 0 {
			break
		}
		v := reader{b: r.text()}
		if field == 2 {
			method = v.packed()
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	p := &Payload{in: bytes.NewReader(r.b), end: func() {}}
	switch method {
	case uncompressed:
	case zstandard:
		d, err := zstd.NewReader(p.in, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("reading a compressed transaction: %w", err)
		}
		p.in, p.end = d, d.Close
	default:
		return nil, fmt.Errorf("a transaction is compressed by method %d, which is not known here", method)
	}
	return p, nil
}

// Next returns the next event, valid until the next call; io.EOF: that was all.
func (p *Payload) Next() ([]byte, error) {
	p.buf = append(p.buf[:0], make([]byte, HeaderSize)...)
	if _, err := io.ReadFull(p.in, p.buf); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("reading a compressed transaction: %w", err)
	}
	size := binary.LittleEndian.Uint32(p.buf[9:])
	if size < HeaderSize || size > math.MaxInt32 {
		return nil, ErrShort
	}
	body := bytes.NewBuffer(p.buf)
	if _, err := io.CopyN(body, p.in, int64(size-HeaderSize)); err != nil {
		return nil, fmt.Errorf("reading a compressed transaction: %w", err)
	}
	p.buf = body.Bytes()
	return p.buf, nil
}

// Close releases what reading took.
func (p *Payload) Close() { p.end() }

// Inflate takes apart what MariaDB compressed: a byte with method and length of the length, the length, and the data.
func Inflate(b []byte) ([]byte, error) {
	r := reader{b: b}
	head := r.uint(1)
	if head&0xe0 != 0x80 || r.bad {
		return nil, errors.New("an event is compressed by a method that is not known here")
	}
	var size uint64
	for _, c := range r.take(int(head & 7)) { // the highest byte first
		size = size<<8 | uint64(c)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	z, err := zlib.NewReader(bytes.NewReader(r.b))
	if err != nil {
		return nil, fmt.Errorf("reading a compressed event: %w", err)
	}
	var out bytes.Buffer
	if n, err := io.Copy(&out, io.LimitReader(z, int64(min(size, math.MaxInt32))+1)); err != nil || uint64(n) != size {
		return nil, fmt.Errorf("reading a compressed event of %d bytes: %d bytes came: %w", size, n, errors.Join(err, z.Close()))
	}
	return out.Bytes(), nil
}

// Append appends an event: the header with the size of this body, and the body.
func (h Header) Append(dst, body []byte) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(h.Time.Unix()))
	dst = le.AppendUint32(append(dst, byte(h.Type)), h.Server)
	dst = le.AppendUint32(dst, uint32(HeaderSize+len(body)))
	dst = le.AppendUint16(le.AppendUint32(dst, h.End), h.Flags)
	return append(dst, body...)
}
