package mybinlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Flavor is whose log it is.
type Flavor uint8

// The flavors.
const (
	MySQL Flavor = iota
	MariaDB
)

// String returns the name.
func (f Flavor) String() string {
	if f == MariaDB {
		return "mariadb"
	}
	return "mysql"
}

// GTID names one transaction. MySQL's are a server's UUID, perhaps a tag, and a number; MariaDB's a domain, a server and a number. The
// zero value names none.
type GTID struct {
	Flavor Flavor
	Source Source // MySQL
	Domain uint32 // MariaDB
	Server uint32 // MariaDB
	N      uint64
}

// Source is where transactions of MySQL come from.
type Source struct {
	UUID [16]byte
	Tag  string
}

func (s Source) compare(t Source) int {
	return cmp.Or(bytes.Compare(s.UUID[:], t.UUID[:]), strings.Compare(s.Tag, t.Tag))
}

// Zero reports whether it names no transaction.
func (g GTID) Zero() bool { return g.N == 0 }

// String returns the server's form; nothing for the zero value.
func (g GTID) String() string { return string(g.Append(nil)) }

// Append appends the server's form.
func (g GTID) Append(b []byte) []byte {
	switch {
	case g.Zero():
		return b
	case g.Flavor == MariaDB:
		b = strconv.AppendUint(b, uint64(g.Domain), 10)
		b = strconv.AppendUint(append(b, '-'), uint64(g.Server), 10)
		return strconv.AppendUint(append(b, '-'), g.N, 10)
	}
	b = appendUUID(b, g.Source.UUID)
	if g.Source.Tag != "" {
		b = append(append(b, ':'), g.Source.Tag...)
	}
	return strconv.AppendUint(append(b, ':'), g.N, 10)
}

// ParseGTID reads what String returns.
func ParseGTID(f Flavor, text string) (GTID, error) {
	if text == "" {
		return GTID{}, nil
	}
	set, err := ParseGTIDSet(f, text)
	if err != nil {
		return GTID{}, err
	}
	switch {
	case f == MariaDB && len(set.domains) == 1:
		return set.domains[0], nil
	case f == MySQL && len(set.sources) == 1 && len(set.sources[0].spans) == 1 && set.sources[0].spans[0].count() == 1:
		return GTID{Source: set.sources[0].Source, N: set.sources[0].spans[0].from}, nil
	}
	return GTID{}, fmt.Errorf("%q is no GTID of one transaction", text)
}

func appendUUID(b []byte, id [16]byte) []byte {
	for i, c := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			b = append(b, '-')
		}
		const digits = "0123456789abcdef"
		b = append(b, digits[c>>4], digits[c&15])
	}
	return b
}

// ParseUUID reads a server's UUID.
func ParseUUID(text string) (id [16]byte, err error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("%q is no UUID", text)
	}
	return [16]byte(raw), nil
}

// span is a run of numbers, both ends included.
type span struct{ from, to uint64 }

func (s span) count() uint64 { return s.to - s.from + 1 }

// sourceSpans are the transactions of one source.
type sourceSpans struct {
	Source

	spans []span // in order, with gaps between them
}

// GTIDSet is a set of transactions: MySQL's are any, MariaDB's all up to one in each domain. The zero value is empty, and of MySQL. A
// set is changed by Add alone.
type GTIDSet struct {
	flavor  Flavor
	sources []sourceSpans // in order
	domains []GTID        // in order; the newest of each
}

// NewGTIDSet returns an empty set.
func NewGTIDSet(f Flavor) *GTIDSet { return &GTIDSet{flavor: f} }

// ParseGTIDSet reads the server's form, such as that of @@gtid_executed or of @@gtid_binlog_pos.
func ParseGTIDSet(f Flavor, text string) (*GTIDSet, error) {
	s := NewGTIDSet(f)
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		var err error
		switch {
		case part == "":
		case f == MariaDB:
			err = s.parseDomain(part)
		default:
			err = s.parseSource(part)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *GTIDSet) parseDomain(text string) error {
	parts := strings.Split(text, "-")
	bad := fmt.Errorf("%q is no GTID such as 0-1-55", text)
	if len(parts) != 3 {
		return bad
	}
	domain, err1 := strconv.ParseUint(parts[0], 10, 32)
	server, err2 := strconv.ParseUint(parts[1], 10, 32)
	n, err3 := strconv.ParseUint(parts[2], 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return bad
	}
	s.Add(GTID{Flavor: MariaDB, Domain: uint32(domain), Server: uint32(server), N: n})
	return nil
}

// parseSource reads a UUID, then numbers and tags that the numbers behind them have.
func (s *GTIDSet) parseSource(text string) error {
	parts := strings.Split(text, ":")
	bad := fmt.Errorf("%q is no set of GTIDs such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", text)
	id, err := ParseUUID(strings.TrimSpace(parts[0]))
	if err != nil || len(parts) < 2 {
		return bad
	}
	src := Source{UUID: id}
	for _, p := range parts[1:] {
		p = strings.TrimSpace(p)
		if isTag(p) {
			src.Tag = strings.ToLower(p)
			continue
		}
		low, high, more := strings.Cut(p, "-")
		from, err := strconv.ParseUint(strings.TrimSpace(low), 10, 63)
		to := from
		if more && err == nil {
			to, err = strconv.ParseUint(strings.TrimSpace(high), 10, 63)
		}
		if err != nil || from == 0 {
			return bad
		}
		if to >= from {
			s.add(src, span{from, to})
		}
	}
	return nil
}

// isTag reports whether a text is a tag: a letter or _, then up to 31 of these and digits.
func isTag(text string) bool {
	for i, c := range []byte(text) {
		letter, digit := c == '_' || (c|0x20 >= 'a' && c|0x20 <= 'z'), c >= '0' && c <= '9'
		if !letter && (i == 0 || !digit) {
			return false
		}
	}
	return text != "" && len(text) <= 32
}

// Flavor returns whose set it is.
func (s *GTIDSet) Flavor() Flavor { return s.flavor }

// IsEmpty reports whether the set has no transaction.
func (s *GTIDSet) IsEmpty() bool { return len(s.sources)+len(s.domains) == 0 }

// Clone returns a copy.
func (s *GTIDSet) Clone() *GTIDSet {
	c := &GTIDSet{flavor: s.flavor, sources: slices.Clone(s.sources), domains: slices.Clone(s.domains)}
	for i := range c.sources {
		c.sources[i].spans = slices.Clone(c.sources[i].spans)
	}
	return c
}

// Add adds a transaction. In a domain of MariaDB it becomes the newest.
func (s *GTIDSet) Add(g GTID) {
	switch {
	case g.Zero():
	case g.Flavor == MariaDB:
		at, found := slices.BinarySearchFunc(s.domains, g.Domain, func(d GTID, domain uint32) int { return cmp.Compare(d.Domain, domain) })
		if found {
			s.domains[at] = g
		} else {
			s.domains = slices.Insert(s.domains, at, g)
		}
	default:
		s.add(g.Source, span{g.N, g.N})
	}
}

func (s *GTIDSet) find(src Source) (int, bool) {
	return slices.BinarySearchFunc(s.sources, src, func(a sourceSpans, b Source) int { return a.compare(b) })
}

func (s *GTIDSet) add(src Source, n span) {
	at, found := s.find(src)
	if !found {
		s.sources = slices.Insert(s.sources, at, sourceSpans{Source: src})
	}
	of := &s.sources[at]
	if last := len(of.spans) - 1; last >= 0 && of.spans[last].to+1 == n.from { // nearly always
		of.spans[last].to = n.to
		return
	}
	from := 0 // the first span that touches n or lies behind it
	for from < len(of.spans) && of.spans[from].to+1 < n.from {
		from++
	}
	to := from
	for ; to < len(of.spans) && of.spans[to].from <= n.to+1; to++ {
		n = span{min(n.from, of.spans[to].from), max(n.to, of.spans[to].to)}
	}
	of.spans = slices.Replace(of.spans, from, to, n)
}

// Has reports whether the set has a transaction. In a domain of MariaDB those with smaller numbers than the newest count as had.
func (s *GTIDSet) Has(g GTID) bool {
	if g.Flavor == MariaDB {
		for _, d := range s.domains {
			if d.Domain == g.Domain {
				return g.N <= d.N
			}
		}
		return false
	}
	at, found := s.find(g.Source)
	return found && covers(s.sources[at].spans, span{g.N, g.N})
}

func covers(spans []span, n span) bool {
	for _, s := range spans {
		if s.from <= n.from && n.to <= s.to {
			return true
		}
	}
	return false
}

// Covers reports whether every transaction of t is in the set.
func (s *GTIDSet) Covers(t *GTIDSet) bool {
	for _, d := range t.domains {
		if !s.Has(d) {
			return false
		}
	}
	for _, src := range t.sources {
		at, found := s.find(src.Source)
		if !found {
			return false
		}
		for _, n := range src.spans {
			if !covers(s.sources[at].spans, n) {
				return false
			}
		}
	}
	return true
}

// Equal reports whether both sets have the same transactions.
func (s *GTIDSet) Equal(t *GTIDSet) bool { return s.Covers(t) && t.Covers(s) }

// Union adds all of t.
func (s *GTIDSet) Union(t *GTIDSet) {
	for _, d := range t.domains {
		if !s.Has(d) {
			s.Add(d)
		}
	}
	for _, src := range t.sources {
		for _, n := range src.spans {
			s.add(src.Source, n)
		}
	}
}

// Minus returns the transactions of a set of MySQL that t does not have, at most limit of them.
func (s *GTIDSet) Minus(t *GTIDSet, limit int) []GTID {
	var out []GTID
	for _, src := range s.sources {
		var not []span
		if at, found := t.find(src.Source); found {
			not = t.sources[at].spans
		}
		for _, n := range src.spans {
			for x := n.from; x <= n.to && len(out) < limit; {
				skip := slices.IndexFunc(not, func(s span) bool { return s.from <= x && x <= s.to })
				if skip >= 0 {
					x = not[skip].to + 1
					continue
				}
				out = append(out, GTID{Source: src.Source, N: x})
				x++
			}
		}
	}
	return out
}

// String returns the server's form, without blanks.
func (s *GTIDSet) String() string { return string(s.Append(nil)) }

// Append appends the server's form, without blanks.
func (s *GTIDSet) Append(b []byte) []byte {
	for i, d := range s.domains {
		if i > 0 {
			b = append(b, ',')
		}
		b = d.Append(b)
	}
	for i, src := range s.sources {
		switch {
		case i > 0 && src.UUID == s.sources[i-1].UUID: // another tag
			b = append(append(b, ':'), src.Tag...)
		default:
			if i > 0 {
				b = append(b, ',')
			}
			b = appendUUID(b, src.UUID)
			if src.Tag != "" {
				b = append(append(b, ':'), src.Tag...)
			}
		}
		for _, n := range src.spans {
			b = strconv.AppendUint(append(b, ':'), n.from, 10)
			if n.to > n.from {
				b = strconv.AppendUint(append(b, '-'), n.to, 10)
			}
		}
	}
	return b
}

// taggedFormat marks the binary form of sets with tags.
const taggedFormat = 1

// Encode returns the binary form that MySQL's command for a stream of events wants.
func (s *GTIDSet) Encode() []byte {
	tagged := slices.ContainsFunc(s.sources, func(src sourceSpans) bool { return src.Tag != "" })
	n := uint64(len(s.sources))
	if tagged {
		n = taggedFormat<<56 | n<<8 | taggedFormat
	}
	b := binary.LittleEndian.AppendUint64(nil, n)
	for _, src := range s.sources {
		b = append(b, src.UUID[:]...)
		if tagged {
			b = append(b, byte(len(src.Tag))<<1) // a length of up to 32, in the form for variable lengths
			b = append(b, src.Tag...)
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(len(src.spans)))
		for _, n := range src.spans {
			b = binary.LittleEndian.AppendUint64(b, n.from)
			b = binary.LittleEndian.AppendUint64(b, n.to+1)
		}
	}
	return b
}
