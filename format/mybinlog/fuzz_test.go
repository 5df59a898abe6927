package mybinlog_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/leatdata/leat/format/mybinlog"
)

// Damaged events are errors, and never more than that.
func FuzzEvents(f *testing.F) {
	seed := func(kind mybinlog.Type, body ...byte) {
		f.Add(mybinlog.Header{Type: kind, Time: time.Unix(1, 0)}.Append(nil, body))
	}
	for k := range 200 {
		seed(mybinlog.Type(k), 1, 0, 0, 0, 0, 0, 1, 0, 2, 0xff, 0, 1, 2, 3)
	}
	seed(mybinlog.TypeTableMap, 1, 0, 0, 0, 0, 0, 1, 0, 1, 'd', 0, 1, 't', 0, 2, 3, 15, 2, 10, 0, 3, 1, 1, 0x80, 4, 4, 1, 'a', 1, 'b')
	seed(mybinlog.TypeInsert2, 1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 3, 0, 7, 0, 0, 0, 1, 'x')
	f.Fuzz(func(t *testing.T, event []byte) {
		h, body, err := mybinlog.ParseHeader(event)
		if err != nil {
			return
		}
		_, _ = mybinlog.ParseFormat(body)
		_, _, _ = mybinlog.ParseRotate(body)
		_, _ = mybinlog.ParseMariaGTID(h, body)
		_, _ = mybinlog.ParseGTIDEvent(h, body)
		_, _ = mybinlog.ParseTagged(body)
		_, _, _ = mybinlog.ParseXAPrepare(body)
		_, _ = mybinlog.ParseQuery(h, body)
		_, _, _ = mybinlog.ParseHeartbeat(h, body)
		if p, err := mybinlog.OpenPayload(body); err == nil {
			for range 10 {
				if _, err = p.Next(); err != nil {
					break
				}
			}
			if err != nil && errors.Is(err, io.EOF) && len(body) == 0 {
				t.Error("an empty payload has an end")
			}
			p.Close()
		}
		m, err := mybinlog.ParseTableMap(mybinlog.MySQL, body)
		if err != nil {
			m = &mybinlog.TableMap{Columns: []mybinlog.MapColumn{{Kind: mybinlog.KindLong}, {Kind: mybinlog.KindVarchar, Meta: 10}, {Kind: mybinlog.KindJSON, Meta: 4}}}
		}
		e, err := mybinlog.ParseRows(h, body)
		if err != nil {
			return
		}
		values := make([]mybinlog.Value, len(m.Columns))
		for range 100 {
			if more, err := e.Image(m, false, values); err != nil || !more {
				break
			}
			if e.Action == mybinlog.Update {
				if more, err := e.Image(m, true, values); err != nil || !more {
					break
				}
			}
		}
	})
}

// Damaged documents are errors, and never more than that.
func FuzzJSON(f *testing.F) {
	f.Add([]byte{0, 1, 0, 12, 0, 11, 0, 1, 0, 5, 1, 0, 'a'}, []byte{0, 3, '$', '.', 'a', 3, 5, 2, 0})
	f.Add([]byte{2, 1, 0, 7, 0, 5, 1, 0}, []byte{2, 4, '$', '[', '0', ']'})
	f.Add([]byte{15, 246, 4, 3, 2, 0x80, 0x96}, []byte{})
	f.Add([]byte{12, 2, 'a', 'b'}, []byte{1, 1, '$', 1, 4})
	f.Fuzz(func(_ *testing.T, doc, diffs []byte) {
		_, _ = mybinlog.AppendJSON(nil, doc)
		_, _ = mybinlog.AppendPatchedJSON(nil, doc, diffs)
		_, _ = mybinlog.Inflate(doc)
		if len(diffs) > 2 {
			_, _ = mybinlog.AppendDecimal(nil, doc, int(diffs[0]), int(diffs[1]))
		}
	})
}
