package lane

import (
	"slices"
	"sync"

	"github.com/leatdata/leat/lane/internal/wire"
)

// recent keeps the packs that were read last: lanes that are behind at the same place share what one of them has read and decoded.
type recent struct {
	most int

	mu    sync.Mutex
	packs []*sharedPack // the newest one last
}

// sharedPack is one pack with its decoded items.
type sharedPack struct {
	first uint64
	once  sync.Once
	pack  *wire.Opened
	last  uint64
	err   error

	mu    sync.Mutex
	items []*wire.Item
}

// newRecent returns one for so many lanes. A single lane reads everything once anyway.
func newRecent(lanes int) *recent { return &recent{most: min(2*max(lanes-1, 0), 8)} }

// read returns the pack that begins with this entry, which load reads where it is not known.
func (r *recent) read(first uint64, load func() (*wire.Opened, uint64, error)) (*sharedPack, error) {
	p := r.slot(first)
	p.once.Do(func() { p.pack, p.last, p.err = load() })
	if p.err != nil {
		r.forget(p)
		return nil, p.err
	}
	return p, nil
}

func (r *recent) slot(first uint64) *sharedPack {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.packs, func(p *sharedPack) bool { return p.first == first }); i >= 0 {
		return r.packs[i]
	}
	p := &sharedPack{first: first}
	if r.most > 0 {
		r.packs = append(r.packs, p)
	}
	if len(r.packs) > r.most {
		r.packs = slices.Delete(r.packs, 0, 1)
	}
	return p
}

func (r *recent) forget(p *sharedPack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.packs = slices.DeleteFunc(r.packs, func(q *sharedPack) bool { return q == p })
}

// item decodes an item, once for all.
func (p *sharedPack) item(i int) (wire.Item, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.items == nil {
		p.items = make([]*wire.Item, p.pack.Items)
	}
	if p.items[i] == nil {
		it, err := p.pack.Item(i)
		if err != nil {
			return wire.Item{}, err //nolint:wrapcheck // the caller says which item
		}
		p.items[i] = &it
	}
	return *p.items[i], nil
}
