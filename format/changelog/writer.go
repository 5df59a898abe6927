package changelog

import (
	"bytes"

	"github.com/leatdata/leat/format/internal/value"
	"github.com/leatdata/leat/record"
)

// Writer turns changes of one dataset into bytes. Methods are never called concurrently. After an error only Close may be called, and
// what was written is no valid file. It keeps no reference to a batch.
type Writer interface {
	// Write appends the changes of a batch of the writer's schema. They are numbered seq, seq+1 and so on, see Count.
	Write(b *record.Batch, seq int64) error
	// Close writes what is buffered and what ends the file. It does not close the io.Writer; only the first call writes.
	Close() error
}

// names are the columns of a schema as the keys of JSON objects, with the colon behind.
func names(s *record.Schema) [][]byte {
	out := make([][]byte, s.Columns.NumFields())
	for i, n := range s.Names() {
		out[i] = append(record.AppendJSONString(nil, n), ':')
	}
	return out
}

// image prints rows of one record batch.
type image struct {
	names    [][]byte
	printers []value.Printer
}

// object appends columns of row i as a JSON object, in the form of record.AppendJSON: those of cols, or all where it is nil, without
// those that skip names; skip may be nil.
func (m *image) object(dst []byte, cols []int, i int, skip func(col int) bool) []byte {
	dst = append(dst, '{')
	first := true
	put := func(c int) {
		if skip != nil && skip(c) {
			return
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, m.names[c]...)
		if p := &m.printers[c]; p.Null(i) {
			dst = append(dst, "null"...)
		} else {
			dst = p.JSON(dst, i)
		}
	}
	if cols != nil {
		for _, c := range cols {
			put(c)
		}
		return append(dst, '}')
	}
	for c := range m.printers {
		put(c)
	}
	return append(dst, '}')
}

// oneLine appends a JSON document without line ends: those stand between values, where a blank means the same.
func oneLine(dst, doc []byte) []byte {
	from := len(dst)
	dst = append(dst, doc...)
	if bytes.ContainsAny(doc, "\r\n") {
		for i := from; i < len(dst); i++ {
			if dst[i] == '\n' || dst[i] == '\r' {
				dst[i] = ' '
			}
		}
	}
	return dst
}
