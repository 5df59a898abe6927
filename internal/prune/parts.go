package prune

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/leatdata/leat/record"
)

// partCount is how many parts the digests are spread over: one part at a time is held in memory.
const partCount = 64

// digestSize is the size of a key's digest in bytes: at 128 bits, two of a billion keys never meet.
const digestSize = 16

// parts keeps digests of keys in temporary files, by their first bits. The sink's entries have the key beside the digest.
type parts struct {
	dir          string
	sink, source [partCount]*part
	buf          []byte
}

type part struct {
	f *os.File
	w *bufio.Writer
}

func newParts(dir string) (*parts, error) {
	d, err := os.MkdirTemp(dir, "leat-keys-")
	if err != nil {
		return nil, err
	}
	p := &parts{dir: d}
	for i := range partCount {
		for side, at := range map[string]*[partCount]*part{"sink": &p.sink, "source": &p.source} {
			f, err := os.Create(filepath.Join(d, fmt.Sprintf("%s-%d", side, i)))
			if err != nil {
				p.remove()
				return nil, err
			}
			at[i] = &part{f: f, w: bufio.NewWriterSize(f, 16<<10)}
		}
	}
	return p, nil
}

func (p *parts) remove() {
	for i := range partCount {
		for _, x := range []*part{p.sink[i], p.source[i]} {
			if x != nil {
				_ = x.f.Close() // about to be deleted
			}
		}
	}
	_ = os.RemoveAll(p.dir) // the system cleans up its temporary files, too
}

func (p *parts) digest(dataset int, b *record.Batch, cols []int, i int) (sum [sha256.Size]byte, at int) {
	p.buf = keyOf(binary.LittleEndian.AppendUint32(p.buf[:0], uint32(dataset)), b, cols, i)
	sum = sha256.Sum256(p.buf)
	return sum, int(sum[0]) % partCount
}

// addSource adds the key of a row of the source.
func (p *parts) addSource(dataset int, b *record.Batch, cols []int, i int) error {
	sum, at := p.digest(dataset, b, cols, i)
	_, err := p.source[at].w.Write(sum[:digestSize])
	return err
}

// addSink adds the key of a row of the sink, and the key itself: dataset, length, a JSON array of its texts.
func (p *parts) addSink(dataset int, b *record.Batch, cols []int, i int) error {
	sum, at := p.digest(dataset, b, cols, i)
	texts := make([]string, len(cols))
	for n, c := range cols {
		if b.Rows.Column(c).IsNull(i) {
			return nil // no key: nothing of ours
		}
		texts[n] = string(record.AppendText(nil, b.Rows.Column(c), i))
	}
	key, err := json.Marshal(texts)
	if err != nil {
		return err
	}
	w := p.sink[at].w
	p.buf = append(p.buf[:0], sum[:digestSize]...)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(dataset))
	p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(len(key)))
	if _, err := w.Write(p.buf); err != nil {
		return err
	}
	_, err = w.Write(key)
	return err
}

func splitKey(key string) ([]string, error) {
	var texts []string
	err := json.Unmarshal([]byte(key), &texts)
	return texts, err
}

// goneBatch is how many keys are handed over at once.
const goneBatch = 4096

// gone calls f with the keys that the sink has and the source has not, in batches of one dataset.
func (p *parts) gone(f func(dataset int, keys []string) error) error {
	for i := range partCount {
		present, err := known(p.source[i])
		if err != nil {
			return err
		}
		if err := missing(p.sink[i], present, f); err != nil {
			return err
		}
	}
	return nil
}

func rewind(x *part) (*bufio.Reader, error) {
	if err := x.w.Flush(); err != nil {
		return nil, err
	}
	if _, err := x.f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return bufio.NewReader(x.f), nil
}

func known(x *part) (map[[digestSize]byte]struct{}, error) {
	r, err := rewind(x)
	if err != nil {
		return nil, err
	}
	present := map[[digestSize]byte]struct{}{}
	for {
		var d [digestSize]byte
		if _, err := io.ReadFull(r, d[:]); errors.Is(err, io.EOF) {
			return present, nil
		} else if err != nil {
			return nil, err
		}
		present[d] = struct{}{}
	}
}

func missing(x *part, present map[[digestSize]byte]struct{}, f func(int, []string) error) error {
	r, err := rewind(x)
	if err != nil {
		return err
	}
	waiting := map[int][]string{}
	for {
		var head [digestSize + 8]byte
		if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		key := make([]byte, binary.LittleEndian.Uint32(head[digestSize+4:]))
		if _, err := io.ReadFull(r, key); err != nil {
			return err
		}
		if _, ok := present[[digestSize]byte(head[:])]; ok {
			continue
		}
		n := int(binary.LittleEndian.Uint32(head[digestSize:]))
		if waiting[n] = append(waiting[n], string(key)); len(waiting[n]) == goneBatch {
			if err := f(n, waiting[n]); err != nil {
				return err
			}
			waiting[n] = nil
		}
	}
	for n, keys := range waiting {
		if len(keys) == 0 {
			continue
		}
		if err := f(n, keys); err != nil {
			return err
		}
	}
	return nil
}
