package mysql

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/mybinlog"
	"github.com/leatdata/leat/record"
)

// place is a place in the binary log of one server. Names and numbers of another server's files mean other places.
type place struct {
	File string `json:"file,omitempty"`
	Pos  uint64 `json:"pos,omitempty"`
}

// String is for people.
func (p place) String() string { return p.File + ":" + strconv.FormatUint(p.Pos, 10) }

// compare orders places of one server. Files are numbered, with six digits or more.
func (p place) compare(q place) int {
	number := func(file string) uint64 {
		n, err := strconv.ParseUint(file[strings.LastIndexByte(file, '.')+1:], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	if p.File == q.File {
		return cmp.Compare(p.Pos, q.Pos)
	}
	return cmp.Or(cmp.Compare(number(p.File), number(q.File)), strings.Compare(p.File, q.File))
}

// streamPosition is a place in the stream of changes: behind a transaction, or behind a stretch of log in which nothing ended that
// concerns the stream. Where the server has GTIDs, they say what to resume behind, on this server or on another one that took over; the
// place in the log only tells which of two positions of one server lies ahead. A server without GTIDs has nothing but the place.
type streamPosition struct {
	Flavor  string `json:"flavor"`
	GTIDs   string `json:"gtids,omitempty"`    // all transactions up to here, and those that the log began with
	GTID    string `json:"gtid,omitempty"`     // the transaction that ends here; empty: none does
	ByPlace bool   `json:"by_place,omitempty"` // the server has no GTIDs
	place

	Server string       `json:"server"` // whose log the place is of
	Tables *definitions `json:"tables,omitempty"`
}

// streamShape is the layout of positions of streams; shape 1 belongs to chunks and cursors.
const streamShape = 2

// encode returns the position as the engine keeps it.
func (p streamPosition) encode() record.Position {
	doc, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("mysql: encoding a position: %v", err)) // strings and numbers always marshal
	}
	return record.Position{Shape: streamShape, Data: doc}
}

func decodeStream(at record.Position) (streamPosition, error) {
	var p streamPosition
	err := errors.New("it is a position of another kind of reading")
	if at.Shape == streamShape {
		if err = json.Unmarshal(at.Data, &p); err == nil && (p.Server == "" || (p.ByPlace && p.File == "")) {
			err = errors.New("it does not say which log it is of")
		}
	}
	if at.Shape > streamShape {
		err = errors.New("it was saved by a newer version of this program")
	}
	if err == nil {
		_, err = p.set()
	}
	if err != nil {
		return p, &connector.Error{
			Class: connector.ClassPosition, Code: "mysql.position", Doing: "reading the position " + shorten(at.String()), Err: err,
			Hint: "run with the options that the pipeline was run with before, or start over with --restart",
		}
	}
	return p, nil
}

// maxShown is how much of a position an error shows: one of many tables is long.
const maxShown = 400

func shorten(text string) string {
	if len(text) > maxShown {
		return text[:maxShown] + "…"
	}
	return text
}

// flavor is whose GTIDs the position has.
func (p streamPosition) flavor() mybinlog.Flavor {
	if p.Flavor == mybinlog.MariaDB.String() {
		return mybinlog.MariaDB
	}
	return mybinlog.MySQL
}

// set returns the transactions up to the position.
func (p streamPosition) set() (*mybinlog.GTIDSet, error) {
	return mybinlog.ParseGTIDSet(p.flavor(), p.GTIDs) //nolint:wrapcheck // it says what is wrong with which text
}

// mark is what of a position orders it and tells its transaction, without the tables.
type mark struct {
	flavor mybinlog.Flavor
	gtids  *mybinlog.GTIDSet
	gtid   mybinlog.GTID
	place  place
	server string
}

func decodeMark(at record.Position) (mark, error) {
	p, err := decodeStream(at)
	if err != nil {
		return mark{}, err
	}
	m := mark{flavor: p.flavor(), place: p.place, server: p.Server}
	if m.gtids, err = p.set(); err != nil {
		return m, err
	}
	m.gtid, err = mybinlog.ParseGTID(m.flavor, p.GTID)
	return m, err //nolint:wrapcheck // it says what is wrong with which text
}

// compare orders positions: those of one server by their places, all others by what they include. Of two positions that include the same
// on different servers none lies ahead.
func (m mark) compare(n mark) (int, bool) {
	if m.flavor != n.flavor {
		return 0, false
	}
	if m.server == n.server && m.place.File != "" && n.place.File != "" {
		return m.place.compare(n.place), true
	}
	if m.gtids.IsEmpty() || n.gtids.IsEmpty() {
		return 0, false
	}
	ahead, behind := m.gtids.Covers(n.gtids), n.gtids.Covers(m.gtids)
	switch {
	case ahead && behind:
		return 0, true
	case ahead:
		return 1, true
	case behind:
		return -1, true
	}
	return 0, false
}

// compareStream orders positions of a stream.
func compareStream(a, b record.Position) (int, bool) {
	p, errP := decodeMark(a)
	q, errQ := decodeMark(b)
	if errP != nil || errQ != nil {
		return 0, false
	}
	return p.compare(q)
}

// memo keeps what was decoded: the same few positions are asked for again and again. The zero value is ready.
type memo[T any] struct {
	mu    sync.Mutex
	known map[string]T
}

// maxMemo bounds a memo; it begins anew when it is full.
const maxMemo = 4096

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

// positionCode makes positions of one stream, with the same bytes as streamPosition.encode.
type positionCode struct {
	flavor mybinlog.Flavor
	server string
	head   string
	tail   string
	tables []byte // the definitions, as JSON; nil: none

	byPlace bool // without GTIDs
}

func newPositionCode(f mybinlog.Flavor, server string) *positionCode {
	text, err := json.Marshal(server)
	if err != nil {
		panic(fmt.Sprintf("mysql: encoding a server's name: %v", err)) // strings always marshal
	}
	return &positionCode{flavor: f, server: server, head: `{"flavor":"` + f.String() + `"`, tail: `,"server":` + string(text)}
}

// encode makes the position behind a transaction, or (gtid zero) behind a stretch of log. With tables it says what the tables are like
// there: only positions that a stream may be resumed at have that.
func (c *positionCode) encode(gtids []byte, gtid mybinlog.GTID, at place, tables bool) record.Position {
	b := make([]byte, 0, len(c.head)+len(gtids)+len(c.tail)+128)
	b = append(b, c.head...)
	if len(gtids) > 0 {
		b = append(append(append(b, `,"gtids":"`...), gtids...), '"')
	}
	if !gtid.Zero() {
		b = append(gtid.Append(append(b, `,"gtid":"`...)), '"')
	}
	if c.byPlace {
		b = append(b, `,"by_place":true`...)
	}
	if at.File != "" {
		b = record.AppendJSONString(append(b, `,"file":`...), at.File)
	}
	if at.Pos != 0 {
		b = strconv.AppendUint(append(b, `,"pos":`...), at.Pos, 10)
	}
	b = append(b, c.tail...)
	if tables && len(c.tables) > 0 {
		b = append(append(b, `,"tables":`...), c.tables...)
	}
	return record.Position{Shape: streamShape, Data: append(b, '}')}
}
