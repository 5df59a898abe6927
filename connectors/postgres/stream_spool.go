package postgres

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/leatdata/leat/connector"
)

// Sizes of spools, in bytes.
const (
	firstPage   = 16 << 10
	largestPage = 1 << 20
	leastBudget = 1 << 20
	spoolBuffer = 256 << 10
)

// spools keeps the changes of transactions that are still open, in memory up to a budget, then in files. It is used by one goroutine.
type spools struct {
	folder string // where the own folder is made
	prefix string // of its name: that of every folder of this stream
	budget int64
	used   int64
	dir    string // the own folder; empty: not needed yet
	open   map[uint32]*spool
}

// spool is one open transaction: its messages as they came, each behind its length, in the file and then in the pages.
type spool struct {
	owner   *spools
	xid     uint32
	foreign bool                // replicated to the server from elsewhere
	ignored map[uint32]bool     // relations that are not read
	numbers []uint64            // of its descriptions of relations, in their order
	undone  map[uint32]struct{} // subtransactions that were taken back
	file    *os.File
	stored  int64
	pages   [][]byte
	used    int64
}

func newSpools(folder, prefix string, budget int64) *spools {
	if folder == "" {
		folder = os.TempDir()
	}
	return &spools{folder: folder, prefix: prefix, budget: max(budget, leastBudget), open: map[uint32]*spool{}}
}

// sweep removes what an earlier process left behind. Only the owner of the slot may call it.
func (s *spools) sweep() error {
	entries, err := os.ReadDir(s.folder)
	for _, e := range entries {
		if dir := filepath.Join(s.folder, e.Name()); strings.HasPrefix(e.Name(), s.prefix) && dir != s.dir {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// begin returns the spool of a transaction, and makes it where its first block begins.
func (s *spools) begin(xid uint32, first bool) (*spool, error) {
	sp := s.open[xid]
	switch {
	case first && sp != nil:
		return nil, fmt.Errorf("transaction %d begins twice", xid)
	case !first && sp == nil:
		return nil, fmt.Errorf("transaction %d goes on without its beginning", xid)
	case first:
		sp = &spool{owner: s, xid: xid, ignored: map[uint32]bool{}}
		s.open[xid] = sp
	}
	return sp, nil
}

// append adds a message.
func (sp *spool) append(message []byte) error {
	size := 4 + len(message)
	last := len(sp.pages) - 1
	if last < 0 || cap(sp.pages[last])-len(sp.pages[last]) < size {
		page := firstPage
		if last >= 0 {
			page = min(2*cap(sp.pages[last]), largestPage)
		}
		sp.pages = append(sp.pages, make([]byte, 0, max(page, size)))
		last++
		sp.used += int64(cap(sp.pages[last]))
		sp.owner.used += int64(cap(sp.pages[last]))
	}
	sp.pages[last] = append(binary.BigEndian.AppendUint32(sp.pages[last], uint32(len(message))), message...)
	for sp.owner.used > sp.owner.budget {
		if err := sp.owner.largest().store(); err != nil {
			return err
		}
	}
	return nil
}

// largest is the spool that takes most memory.
func (s *spools) largest() *spool {
	var most *spool
	for _, sp := range s.open {
		if most == nil || sp.used > most.used || (sp.used == most.used && sp.xid < most.xid) {
			most = sp
		}
	}
	return most
}

// store moves the pages to the file.
func (sp *spool) store() error {
	if err := sp.write(); err != nil {
		return &connector.Error{
			Class: connector.ClassTransient, Code: "postgres.spill", Doing: "keeping an open transaction in " + sp.owner.folder, Err: err,
			Hint: "make room there, or name another folder with spill_dir=FOLDER; streaming=off leaves open transactions to the server",
		}
	}
	return nil
}

func (sp *spool) write() (err error) {
	s := sp.owner
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp(s.folder, s.prefix+"*"); err != nil {
			return err //nolint:wrapcheck // the caller says what was being done
		}
	}
	if sp.file == nil {
		if sp.file, err = os.CreateTemp(s.dir, fmt.Sprintf("%d-*", sp.xid)); err != nil {
			return err //nolint:wrapcheck // the caller says what was being done
		}
	}
	for _, page := range sp.pages {
		if _, err := sp.file.WriteAt(page, sp.stored); err != nil {
			return err //nolint:wrapcheck // the caller says what was being done
		}
		sp.stored += int64(len(page))
	}
	sp.free()
	return nil
}

// free lets the pages go.
func (sp *spool) free() {
	sp.owner.used -= sp.used
	sp.pages, sp.used = nil, 0
}

// undo takes back a subtransaction. Those within it are told one by one.
func (sp *spool) undo(xid uint32) {
	if sp.undone == nil {
		sp.undone = map[uint32]struct{}{}
	}
	sp.undone[xid] = struct{}{}
}

// drop forgets the transaction.
func (sp *spool) drop() {
	sp.free()
	if sp.file != nil {
		_ = sp.file.Close()
		_ = os.Remove(sp.file.Name())
		sp.file = nil
	}
	delete(sp.owner.open, sp.xid)
}

// close drops everything.
func (s *spools) close() error {
	for _, sp := range s.open {
		sp.drop()
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir) //nolint:wrapcheck // the caller says what was being done
}

// replay reads a spool from its beginning. It ends with the spool's last message, and nothing is appended meanwhile.
type replay struct {
	spool *spool
	file  *bufio.Reader // nil: the file is done
	now   []byte        // the present message; nil: not read yet
	large bool          // it does not fit into the buffer, and was read already
	page  int
	at    int
	seen  int // descriptions of relations
}

func (sp *spool) replay() *replay {
	r := &replay{spool: sp}
	if sp.file != nil {
		r.file = bufio.NewReaderSize(io.NewSectionReader(sp.file, 0, sp.stored), spoolBuffer)
	}
	return r
}

// peek returns the next message that was not taken back, valid until skip; nil: there is none.
func (r *replay) peek() ([]byte, error) {
	for {
		if r.now == nil {
			if err := r.load(); err != nil || r.now == nil {
				return nil, err
			}
			if r.now[0] == 'R' {
				r.seen++
			}
		}
		if _, undone := r.spool.undone[subtransaction(r.now)]; !undone {
			return r.now, nil
		}
		// The server describes relations anew after what it took back.
		if err := r.skip(); err != nil {
			return nil, err
		}
	}
}

// number is that of the description that peek returned.
func (r *replay) number() uint64 { return r.spool.numbers[r.seen-1] }

// subtransaction is the one that a message of a stream block belongs to.
func subtransaction(message []byte) uint32 {
	if len(message) < 5 {
		return 0
	}
	return binary.BigEndian.Uint32(message[1:])
}

func (r *replay) load() error {
	if r.file != nil {
		head, err := r.file.Peek(4)
		if err == nil {
			return r.stored(int(binary.BigEndian.Uint32(head)))
		}
		if !errors.Is(err, io.EOF) || len(head) > 0 {
			return fmt.Errorf("reading back an open transaction: %w", err)
		}
		r.file = nil
	}
	for r.page < len(r.spool.pages) {
		page := r.spool.pages[r.page]
		if r.at < len(page) {
			size := int(binary.BigEndian.Uint32(page[r.at:]))
			r.now = page[r.at+4 : r.at+4+size]
			return nil
		}
		r.spool.pages[r.page] = nil // it is no longer needed
		r.page, r.at = r.page+1, 0
	}
	return nil
}

func (r *replay) stored(size int) (err error) {
	if r.large = 4+size > spoolBuffer; !r.large {
		r.now, err = r.file.Peek(4 + size)
		if err == nil {
			r.now = r.now[4:]
		}
	} else if _, err = r.file.Discard(4); err == nil {
		r.now = make([]byte, size)
		_, err = io.ReadFull(r.file, r.now)
	}
	if err != nil {
		r.now = nil
		return fmt.Errorf("reading back an open transaction: %w", err)
	}
	return nil
}

// skip moves on behind the message that peek returned.
func (r *replay) skip() error {
	size := 4 + len(r.now)
	r.now = nil
	switch {
	case r.file == nil:
		r.at += size
	case !r.large:
		if _, err := r.file.Discard(size); err != nil {
			return fmt.Errorf("reading back an open transaction: %w", err)
		}
	}
	return nil
}
