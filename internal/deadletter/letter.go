package deadletter

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
)

// Letter is one row that was set aside, as the store has it.
type Letter struct { //nolint:errname // it is a row, see engine.Rejected
	Number int64  // grows in the order in which letters came; never used again
	ID     string // of what it holds: the same row that is refused for the same reason has the same
	Times  int64  // how often it came
	First  time.Time
	Asked  uint64 // the backfill that reads its row again; 0: none
	engine.Rejected
}

// Filter chooses letters. The zero value is all of them; each field that is set leaves out the others.
type Filter struct {
	Pipeline string
	Run      string
	Sink     *string // empty text: what could not be read, or transformed for all sinks
	Dataset  string
	Class    string
	IDs      []string // or their beginnings, see ShortID
	Asked    bool     // only those whose rows are to be read again
	Limit    int64    // 0: all
}

// ShortID is how much of an ID is shown, and enough to name a letter where no other begins so.
const ShortID = 12

// Short is the beginning of the id, or all of it where letters are alike in all that makes it.
func (l Letter) Short() string {
	if len(l.ID) > hex.EncodedLen(idBytes) {
		return l.ID
	}
	return l.ID[:ShortID]
}

// identity is what tells letters apart: where the row stands, what it holds, and why it was refused.
func identity(r engine.Rejected) []byte {
	h := sha256.New()
	add := func(part []byte) {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write(part)
	}
	for _, s := range []string{r.Pipeline, r.Run, r.Sink, r.Dataset, r.Class, r.Column, r.Op.String()} {
		add([]byte(s))
	}
	add(r.Key)
	add(fmt.Append(nil, r.Line, r.Offset))
	if len(r.Key) == 0 && r.Line == 0 { // nothing else says which row it is
		add(fmt.Append(nil, r.Position.Shape, r.Position.Data))
	}
	add(r.Raw)
	add(r.Before)
	return h.Sum(nil)[:idBytes]
}

const idBytes = 16

// idOf is the text of an identity; n counts rows that are alike in all of it.
func idOf(identity []byte, n int64) string {
	id := hex.EncodeToString(identity)
	if n > 0 {
		id += fmt.Sprintf("-%d", n)
	}
	return id
}

// parseOp reads what record.Op.String returns.
func parseOp(s string) record.Op {
	for op := record.Insert; op <= record.Delete; op++ {
		if op.String() == s {
			return op
		}
	}
	return record.Insert
}
