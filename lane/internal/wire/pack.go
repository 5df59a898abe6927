package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Format is the number of the persisted form.
const Format = 1

// ErrFormat says that an entry was not written in a form that this program knows.
var ErrFormat = errors.New("unknown format")

// Mark says where the newest item with a position is.
type Mark struct {
	Number uint64 `json:"number"` // 0: none
	Entry  uint64 `json:"entry"`  // the first one of its pack
}

// Sum is an amount of items of one lane since that began.
type Sum struct {
	Items   int64 `json:"items"`
	Rows    int64 `json:"rows"`
	Changes int64 `json:"changes"`
	Memory  int64 `json:"memory"` // bytes
	Stored  int64 `json:"stored"` // bytes of frames
}

// Add returns the sum of both.
func (s Sum) Add(t Sum) Sum {
	return Sum{s.Items + t.Items, s.Rows + t.Rows, s.Changes + t.Changes, s.Memory + t.Memory, s.Stored + t.Stored}
}

// Sub returns the difference.
func (s Sum) Sub(t Sum) Sum {
	return Sum{s.Items - t.Items, s.Rows - t.Rows, s.Changes - t.Changes, s.Memory - t.Memory, s.Stored - t.Stored}
}

// Head says what a pack is.
type Head struct {
	Epoch uint64         `json:"epoch"` // of the owner that wrote it
	First uint64         `json:"first"` // number of its first item; without items: of the next one that will be published
	Items int            `json:"items"` // how many it has; 0: it is the mark of a new owner
	Mark  Mark           `json:"mark"`  // before its own items
	Sums  map[string]Sum `json:"sums"`  // by lane, before its own items
	Time  int64          `json:"time"`  // when it was written, in nanoseconds since 1970
}

// Prefix begins every entry.
type Prefix struct {
	Epoch uint64
	Part  int // from 0
	Parts int // of the pack
}

// PrefixSize is the length of an entry's prefix, in bytes.
const PrefixSize = 32

const magic = "leat"

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // the library keeps it

// Pack puts frames together into the entries of one pack, each of at most limit bytes.
func Pack(h Head, frames []*Frame, limit int) ([][]byte, error) {
	h.Items = len(frames)
	head, err := json.Marshal(&h)
	if err != nil {
		return nil, fmt.Errorf("encoding the head of a pack: %w", err)
	}
	var schemas []*Schema
	size := PrefixSize + len(head) + 16
	for _, f := range frames {
		size += int(f.Size()) + 16
		for _, s := range f.schemas {
			if !slices.Contains(schemas, s) {
				schemas = append(schemas, s)
				size += len(s.blob) + 8
			}
		}
	}
	b := appendBlob(make([]byte, PrefixSize, size), head)
	b = binary.AppendUvarint(b, uint64(len(schemas)))
	for _, s := range schemas {
		b = appendBlob(b, s.blob)
	}
	for _, f := range frames {
		b = binary.AppendUvarint(b, uint64(len(f.schemas)))
		for _, s := range f.schemas {
			b = binary.AppendUvarint(b, uint64(slices.Index(schemas, s)))
		}
		b = binary.AppendUvarint(appendBlob(b, f.meta), uint64(f.size))
		for _, section := range f.body {
			b = append(b, section...)
		}
	}
	return entries(h.Epoch, b, limit), nil
}

func appendBlob(b, blob []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(blob))), blob...)
}

// entries cuts a pack, which begins with room for a prefix.
func entries(epoch uint64, b []byte, limit int) [][]byte {
	room := max(limit-PrefixSize, 1)
	parts := max((len(b)-PrefixSize+room-1)/room, 1)
	out := make([][]byte, parts)
	if parts == 1 {
		out[0] = b
	} else {
		payload := b[PrefixSize:]
		for i := range out {
			n := min(room, len(payload))
			out[i] = append(make([]byte, PrefixSize, PrefixSize+n), payload[:n]...)
			payload = payload[n:]
		}
	}
	for i, e := range out {
		copy(e, magic)
		binary.LittleEndian.PutUint16(e[4:], Format)
		binary.LittleEndian.PutUint16(e[6:], 0)
		binary.LittleEndian.PutUint64(e[8:], epoch)
		binary.LittleEndian.PutUint32(e[16:], uint32(i))
		binary.LittleEndian.PutUint32(e[20:], uint32(parts))
		binary.LittleEndian.PutUint32(e[24:], 0)
		binary.LittleEndian.PutUint32(e[28:], checksum(e))
	}
	return out
}

// checksum covers all of an entry but itself.
func checksum(e []byte) uint32 {
	sum := crc32.Checksum(e[:28], castagnoli())
	return crc32.Update(sum, castagnoli(), e[PrefixSize:])
}

// ReadPrefix checks an entry and returns its prefix and its part of the pack.
func ReadPrefix(e []byte) (Prefix, []byte, error) {
	if len(e) < PrefixSize || string(e[:4]) != magic {
		return Prefix{}, nil, fmt.Errorf("%w: it does not begin as an entry of a lane does", ErrFormat)
	}
	if f := binary.LittleEndian.Uint16(e[4:]); f != Format {
		return Prefix{}, nil, fmt.Errorf("%w: it has format %d, and this program reads format %d", ErrFormat, f, Format)
	}
	if flags := binary.LittleEndian.Uint16(e[6:]); flags != 0 {
		return Prefix{}, nil, fmt.Errorf("%w: flags %#x", ErrFormat, flags)
	}
	if checksum(e) != binary.LittleEndian.Uint32(e[28:]) {
		return Prefix{}, nil, errors.New("its checksum is wrong")
	}
	p := Prefix{
		Epoch: binary.LittleEndian.Uint64(e[8:]),
		Part:  int(binary.LittleEndian.Uint32(e[16:])),
		Parts: int(binary.LittleEndian.Uint32(e[20:])),
	}
	if p.Part >= p.Parts {
		return Prefix{}, nil, fmt.Errorf("it is part %d of %d", p.Part+1, p.Parts)
	}
	return p, e[PrefixSize:], nil
}

// Opened is a pack that was read: its items are decoded one by one.
type Opened struct {
	Head

	schemas []*Schema
	frames  []opened
}

type opened struct {
	meta    *meta
	body    []byte
	schemas []*Schema
	size    int64
}

// Open reads a pack, given the parts of its entries joined.
func (s *Schemas) Open(payload []byte) (*Opened, error) {
	head, rest, err := cut(payload)
	if err != nil {
		return nil, fmt.Errorf("head: %w", err)
	}
	o := new(Opened)
	if err := json.Unmarshal(head, &o.Head); err != nil {
		return nil, fmt.Errorf("head: %w", err)
	}
	n, w := binary.Uvarint(rest)
	if w <= 0 || n > uint64(len(rest)) || o.Items < 0 || o.Items > len(rest) {
		return nil, errors.New("it is cut off")
	}
	rest = rest[w:]
	for range n {
		var blob []byte
		if blob, rest, err = cut(rest); err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		known, err := s.decode(blob)
		if err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		o.schemas = append(o.schemas, known)
	}
	for i := range o.Items {
		if rest, err = o.frame(rest); err != nil {
			return nil, fmt.Errorf("item %d of %d: %w", i+1, o.Items, err)
		}
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes behind its last item", len(rest))
	}
	return o, nil
}

func (o *Opened) frame(rest []byte) ([]byte, error) {
	n, w := binary.Uvarint(rest)
	if w <= 0 || n > uint64(len(rest)) {
		return nil, errors.New("it is cut off")
	}
	rest = rest[w:]
	f := opened{meta: new(meta)}
	for range n {
		i, w := binary.Uvarint(rest)
		if w <= 0 || i >= uint64(len(o.schemas)) {
			return nil, errors.New("a schema that is not there")
		}
		rest = rest[w:]
		f.schemas = append(f.schemas, o.schemas[i])
	}
	raw, rest, err := cut(rest)
	if err != nil {
		return nil, err
	}
	if f.body, rest, err = cut(rest); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, f.meta); err != nil {
		return nil, err //nolint:wrapcheck // the caller says which item
	}
	f.size = int64(len(raw) + len(f.body) + frameOverhead)
	o.frames = append(o.frames, f)
	return rest, nil
}

// About describes item i of the pack.
func (o *Opened) About(i int) About { return o.frames[i].meta.about() }

// To returns the lanes that item i is for; nil: all.
func (o *Opened) To(i int) []string { return o.frames[i].meta.To }

// Sum returns what item i adds to a lane.
func (o *Opened) Sum(i int) Sum {
	f := o.frames[i]
	return Sum{Items: 1, Rows: f.meta.Rows, Changes: f.meta.Changes, Memory: f.meta.Memory, Stored: f.size}
}

// Positioned reports whether item i has a position.
func (o *Opened) Positioned(i int) bool { return len(o.frames[i].meta.Position.Data) > 0 }

// Item decodes item i.
func (o *Opened) Item(i int) (it Item, err error) {
	defer func() {
		if p := recover(); p != nil {
			it, err = Item{}, fmt.Errorf("it is damaged: %v", p)
		}
	}()
	return o.frames[i].meta.item(o.frames[i].body, o.frames[i].schemas)
}

// withSchema returns the same rows under this schema, which is the one that they were written under.
func withSchema(rec arrow.RecordBatch, s *arrow.Schema) arrow.RecordBatch {
	if s == nil || rec.Schema() == s || len(rec.Columns()) != s.NumFields() {
		return rec
	}
	return array.NewRecordBatch(s, rec.Columns(), rec.NumRows())
}
