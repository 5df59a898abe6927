package postgres

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// lsn is a place in the server's log, in bytes.
type lsn uint64

// String returns the server's own form, such as 0/16B3748.
func (l lsn) String() string { return fmt.Sprintf("%X/%X", uint64(l)>>32, uint32(l)) }

// MarshalText implements encoding.TextMarshaler.
func (l lsn) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *lsn) UnmarshalText(text []byte) (err error) {
	*l, err = parseLSN(string(text))
	return err
}

func parseLSN(s string) (lsn, error) {
	high, low, ok := strings.Cut(s, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	if err != nil || !ok {
		return 0, fmt.Errorf("%q is no log position such as 0/16B3748", s)
	}
	l, err := strconv.ParseUint(low, 16, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no log position such as 0/16B3748", s)
	}
	return lsn(h<<32 | l), nil
}

// origin is which log positions mean: part of every position of a stream, so that a position of another server, of another
// history or of another slot is never taken for one of this stream.
type origin struct {
	System   string `json:"system"`   // the cluster's identifier
	Timeline int64  `json:"timeline"` // of its history
	Slot     string `json:"slot"`
	Created  lsn    `json:"created"` // where the slot's stream began

	// Publication is its OID: one that was dropped and made anew has another one, and a gap before it.
	Publication uint32 `json:"publication,omitempty"`
}

// streamPosition is a place in the stream of changes: behind a transaction, or behind a stretch of log in which nothing ended that
// concerns the stream.
type streamPosition struct {
	LSN lsn    `json:"lsn"`           // behind the commit: the end of the transaction's last record
	XID uint64 `json:"xid,omitempty"` // the transaction, with its epoch; 0: no transaction
	origin
}

// streamShape is the layout of positions of streams; shape 1 belongs to chunks and cursors.
const streamShape = 2

// encode returns the position as the engine keeps it.
func (p streamPosition) encode() record.Position {
	doc, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("postgres: encoding a position: %v", err)) // strings and numbers always marshal
	}
	return record.Position{Shape: streamShape, Data: doc}
}

func decodeStream(at record.Position) (streamPosition, error) {
	var p streamPosition
	err := errors.New("it is a position of another kind of reading")
	if at.Shape == streamShape {
		if err = json.Unmarshal(at.Data, &p); err == nil && (p.System == "" || p.Slot == "") {
			err = errors.New("it does not say which slot it is of")
		}
	}
	if at.Shape > streamShape {
		err = errors.New("it was saved by a newer version of this program")
	}
	if err != nil {
		return p, &connector.Error{
			Class: connector.ClassPosition, Code: "postgres.position", Doing: "reading the position " + at.String(), Err: err,
			Hint: "run with the options that the pipeline was run with before, or start over with --restart",
		}
	}
	return p, nil
}

// decodeEnd reads only where a position is and of which transaction: of the form that positionCode writes without a detour, as every
// transaction of a stream is asked for.
func decodeEnd(at record.Position) (txnEnd, error) {
	if end, ok := quickEnd(at); ok {
		return end, nil
	}
	p, err := decodeStream(at)
	return txnEnd{lsn: p.LSN, xid: p.XID}, err
}

func quickEnd(at record.Position) (end txnEnd, ok bool) {
	rest, ok := bytes.CutPrefix(at.Data, []byte(`{"lsn":"`))
	if !ok || at.Shape != streamShape {
		return end, false
	}
	high, rest, ok1 := cutHex(rest, '/')
	low, rest, ok2 := cutHex(rest, '"')
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"xid":`)); !ok || !ok1 || !ok2 {
		return end, false
	}
	xid, i := uint64(0), 0
	for ; i < len(rest) && rest[i]-'0' < 10 && i < 19; i++ { // 19 digits fit
		xid = xid*10 + uint64(rest[i]-'0')
	}
	ok = i > 0 && bytes.HasPrefix(rest[i:], []byte(`,"system":"`))
	return txnEnd{lsn: lsn(high<<32 | low), xid: xid}, ok
}

// cutHex reads up to eight upper-case digits and the byte that ends them.
func cutHex(b []byte, end byte) (v uint64, rest []byte, ok bool) {
	for i, c := range b[:min(len(b), 9)] {
		switch {
		case c-'0' < 10:
			v = v<<4 | uint64(c-'0')
		case c-'A' < 6:
			v = v<<4 | uint64(c-'A'+10)
		default:
			return v, b[i+1:], c == end && i > 0
		}
	}
	return 0, nil, false
}

// compareStream orders positions of one slot's stream.
func compareStream(a, b record.Position) (int, bool) {
	p, errP := decodeStream(a)
	q, errQ := decodeStream(b)
	if errP != nil || errQ != nil || p.System != q.System || p.Slot != q.Slot {
		return 0, false
	}
	switch {
	case p.LSN < q.LSN:
		return -1, true
	case p.LSN > q.LSN:
		return 1, true
	}
	return 0, true
}
