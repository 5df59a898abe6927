package connectortest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// How many random streams are tried; the environment variable LEAT_STREAM_SEEDS asks for more, LEAT_STREAM_SEED for one.
const (
	modelSeeds   = 12
	messageSeeds = 3 // a log is read whole behind each commit
)

// random: transactions over several datasets end as the model says, behind every commit (clauses E12, E15).
func (s *streamSuite) random(t testing.TB) {
	first, seeds := 0, modelSeeds
	if s.messages {
		seeds = messageSeeds
	}
	if n, err := strconv.Atoi(os.Getenv("LEAT_STREAM_SEEDS")); err == nil {
		seeds = n
	}
	if n, err := strconv.Atoi(os.Getenv("LEAT_STREAM_SEED")); err == nil {
		first, seeds = n, n+1
	}
	target := s.New(t)
	fence := uint64(1)
	for seed := first; seed < seeds; seed++ {
		m := newModel(uint64(seed), s.contract.Keyless && !s.messages)
		m.messages = s.messages
		fence = m.play(t, s, target, fence)
		if t.Failed() {
			t.Fatalf("seed %d; the last transaction was\n%s", seed, strings.Join(m.log, "\n"))
		}
	}
}

// model is a source: tables, and what a stream tells of their changes.
type model struct {
	r      *rand.Rand
	tables []*modelTable
	log    []string // the last transaction

	// messages: values are sent, or in the image before, no two rows have a key at the same time, and tables keep their columns.
	messages bool
}

// modelTable is a table of the source.
type modelTable struct {
	name   string
	keys   int  // columns of the key, the first ones; 0: none
	full   bool // changes have the full image before them
	cols   []modelColumn
	nextID int
	free   []string            // names of columns that are gone
	rows   []map[string]string // documents by column id

	schema *record.Schema // of what was sent last; nil: the columns changed
	sent   *record.Schema // what this value of the sink was given last
	seen   bool           // the sink has heard of it
}

type modelColumn struct {
	id, name string
	dt       arrow.DataType
}

func newModel(seed uint64, keyless bool) *model {
	m := &model{r: rand.New(rand.NewPCG(seed, 17))} //nolint:gosec // a seed replays the run
	name := func(what string) string { return fmt.Sprintf("%s_%d", what, seed) }
	text, wide, narrow := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32
	m.tables = []*modelTable{
		{name: name("plain"), keys: 1, cols: []modelColumn{{"1", "id", wide}, {"2", "a", text}, {"3", "b", text}, {"4", "n", narrow}}},
		{name: name("full"), keys: 1, full: true, cols: []modelColumn{{"1", "id", wide}, {"2", "a", text}, {"3", "n", wide}}},
		{name: name("pair"), keys: 2, cols: []modelColumn{{"1", "k", wide}, {"2", "l", text}, {"3", "v", text}}},
	}
	if keyless {
		m.tables = append(m.tables, &modelTable{name: name("bag"), full: true, cols: []modelColumn{{"1", "a", text}, {"2", "n", narrow}}})
	}
	for _, t := range m.tables {
		t.nextID = len(t.cols) + 1
	}
	return m
}

// chance is true n times in a hundred.
func (m *model) chance(n int) bool { return m.r.IntN(100) < n }

// play sends transactions and compares behind each commit. It returns a fence that was not used yet.
func (m *model) play(t testing.TB, s *streamSuite, target Target, fence uint64) uint64 {
	t.Helper()
	const transactions = 12
	var x *session
	for n := range transactions {
		if x == nil {
			req := request(connector.Upsert)
			req.Fence = fence
			fence++
			x = s.start(t, target, req)
			for _, tab := range m.tables {
				tab.sent = nil
			}
		}
		m.log = nil
		for _, b := range m.transaction() {
			m.deliver(t, x, b)
		}
		if n < transactions-1 && m.chance(30) {
			continue
		}
		x.commit(t)
		if s.OneOwner || n == transactions-1 || m.chance(25) {
			x.end(t)
			x = nil
		}
		m.compare(t, target, n)
		if t.Failed() {
			break
		}
	}
	if x != nil {
		x.end(t)
	}
	return fence
}

func (m *model) compare(t testing.TB, target Target, n int) {
	t.Helper()
	for _, tab := range m.tables {
		if tab.seen {
			rows := make([][]string, len(tab.rows))
			for i, r := range tab.rows {
				rows[i] = tab.docs(r)
			}
			holds(t, target, fmt.Sprintf("behind transaction %d", n), tab.schema, BatchOf(nullable(tab.schema), rows...))
		}
	}
}

// deliver gives a batch to the sink, and the schema before it where it is another one, as the engine does.
func (m *model) deliver(t testing.TB, x *session, b *record.Batch) {
	t.Helper()
	tab := m.tables[slices.IndexFunc(m.tables, func(tab *modelTable) bool { return tab.name == b.Schema.Dataset })]
	if tab.sent != b.Schema {
		x.evolve(t, tab.sent, b.Schema)
	}
	tab.sent, tab.seen = b.Schema, true
	if err := x.offer(t, b); err != nil {
		x.end(t)
		t.Fatalf("Write of %d rows to %s: %v; the transaction is\n%s", b.NumRows(), tab.name, err, strings.Join(m.log, "\n"))
	}
}

// transaction changes the tables, and returns what the stream tells of it.
func (m *model) transaction() []*record.Batch {
	var batches []*record.Batch
	for range 1 + m.r.IntN(4) {
		tab := m.tables[m.r.IntN(len(m.tables))]
		if !m.messages && tab.sent != nil && m.chance(12) { // what changed while a sink was away, it can't know
			m.alter(tab)
		}
		truncate := !m.messages && m.chance(7)
		if truncate {
			tab.rows = nil
		}
		s := tab.columns()
		var changes []Change
		for range 1 + m.r.IntN(8) {
			changes = append(changes, m.change(tab)...)
		}
		b := Changes(s, changes...)
		b.Truncate = truncate
		batches = append(batches, b)
		m.log = append(m.log, fmt.Sprintf("%s %v truncate %v", tab.name, s.Names(), truncate))
		for _, c := range changes {
			m.log = append(m.log, fmt.Sprintf("  %s %.60q from %.60q", c.Op, c.Row, c.Old))
		}
	}
	return batches
}

// columns returns the schema, the same value for as long as nothing changes.
func (tab *modelTable) columns() *record.Schema {
	if tab.schema == nil {
		fields := make([]arrow.Field, len(tab.cols))
		for i, c := range tab.cols {
			fields[i] = column(c.id, c.name, c.dt)
			if v, ok := missing(c); ok {
				fields[i] = record.WithMissing(fields[i], v)
			}
		}
		tab.schema = streamSchema(tab.name, tab.keys, fields...)
	}
	return tab.schema
}

// missing is what rows have that are older than the column.
func missing(c modelColumn) (string, bool) {
	if n, err := strconv.Atoi(c.id); err != nil || n%2 == 1 || n <= 4 {
		return "", false
	}
	return c.id + "00", true
}

// alter adds, renames, drops or widens a column.
func (m *model) alter(tab *modelTable) {
	others := tab.cols[tab.keys:]
	i := tab.keys + m.r.IntN(len(others))
	switch m.r.IntN(4) {
	case 0:
		c := modelColumn{strconv.Itoa(tab.nextID), fmt.Sprintf("c%d", tab.nextID), arrow.BinaryTypes.String}
		if m.chance(50) {
			c.dt = arrow.PrimitiveTypes.Int32
		}
		if len(tab.free) > 0 && m.chance(50) { // the name of one that is gone
			c.name, tab.free = tab.free[0], tab.free[1:]
		}
		tab.nextID++
		tab.cols = append(tab.cols, c)
		doc := "null"
		if v, ok := missing(c); ok {
			doc = v
			if c.dt.ID() == arrow.STRING {
				doc = strconv.Quote(v)
			}
		}
		for _, r := range tab.rows {
			r[c.id] = doc
		}
	case 1:
		tab.free = append(tab.free, tab.cols[i].name)
		tab.cols[i].name = fmt.Sprintf("r%d_%d", tab.nextID, m.r.IntN(1000))
	case 2:
		if len(others) < 2 {
			return
		}
		tab.free = append(tab.free, tab.cols[i].name)
		for _, r := range tab.rows {
			delete(r, tab.cols[i].id)
		}
		tab.cols = slices.Delete(slices.Clone(tab.cols), i, i+1)
	case 3:
		if tab.cols[i].dt.ID() != arrow.INT32 {
			return
		}
		tab.cols[i].dt = arrow.PrimitiveTypes.Int64
	}
	tab.schema = nil
}

// docs returns a row's documents in the order of the columns.
func (tab *modelTable) docs(r map[string]string) []string {
	out := make([]string, len(tab.cols))
	for i, c := range tab.cols {
		out[i] = r[c.id]
	}
	return out
}

// image is the image before a change, as far as the stream has it.
func (tab *modelTable) image(r map[string]string) []string {
	out := tab.docs(r)
	if !tab.full {
		for i := tab.keys; i < len(out); i++ {
			out[i] = "null"
		}
	}
	return out
}

func (tab *modelTable) key(r map[string]string) string {
	return strings.Join(tab.docs(r)[:tab.keys], "/")
}

// change makes one change, or a few that belong together.
func (m *model) change(tab *modelTable) []Change {
	n := len(tab.rows)
	switch k := m.r.IntN(10); {
	case n == 0 || k < 3:
		return m.insert(tab)
	case k == 3:
		i := m.r.IntN(n)
		c := remove(tab.image(tab.rows[i])...)
		tab.rows = slices.Delete(tab.rows, i, i+1)
		return []Change{c}
	case k == 4 && tab.keys > 0 && n > 2:
		return m.rotate(tab)
	default:
		return m.update(tab)
	}
}

func (m *model) insert(tab *modelTable) []Change {
	r := map[string]string{}
	if tab.keys > 0 && !m.freeKey(tab, r) {
		return nil
	}
	for _, c := range tab.cols[tab.keys:] {
		r[c.id] = m.value(tab, c)
	}
	tab.rows = append(tab.rows, r)
	c := insert(tab.docs(r)...)
	if tab.keys > 0 && !tab.full && m.chance(20) {
		c.Op = record.Upsert
	}
	return []Change{c}
}

// freeKey gives the row a key that no other one has; false: none was found.
func (m *model) freeKey(tab *modelTable, r map[string]string) bool {
	const keys, tries = 12, 20
	for range tries {
		for _, c := range tab.cols[:tab.keys] {
			r[c.id] = strconv.Itoa(1 + m.r.IntN(keys))
			if c.dt.ID() == arrow.STRING {
				r[c.id] = strconv.Quote("k" + strconv.Itoa(m.r.IntN(3)))
			}
		}
		if !slices.ContainsFunc(tab.rows, func(o map[string]string) bool { return tab.key(o) == tab.key(r) }) {
			return true
		}
	}
	return false
}

func (m *model) value(tab *modelTable, c modelColumn) string {
	if m.chance(25) {
		return "null"
	}
	n := m.r.IntN(100)
	switch {
	case tab.keys == 0 && c.dt.ID() == arrow.STRING: // few values, so that rows are equal
		return strconv.Quote(string("xy"[n%2]))
	case tab.keys == 0:
		return strconv.Itoa(n % 2)
	case c.dt.ID() == arrow.INT32:
		return strconv.Itoa(n - 2_147_483_648)
	case c.dt.ID() == arrow.INT64:
		return strconv.Itoa(n + 3_000_000_000)
	case n < 3:
		return strconv.Quote(strings.Repeat("large "+strconv.Itoa(n), 1_000))
	case n < 10:
		return string(record.AppendJSONString(nil, "it's \\ \"é\"\n"+strconv.Itoa(n)))
	}
	return strconv.Quote("t" + strconv.Itoa(n))
}

func (m *model) update(tab *modelTable) []Change {
	r := tab.rows[m.r.IntN(len(tab.rows))]
	was := maps.Clone(r)
	if moved := maps.Clone(r); tab.keys > 0 && m.chance(25) && m.freeKey(tab, moved) {
		maps.Copy(r, moved)
	}
	for _, c := range tab.cols[tab.keys:] {
		if m.chance(40) {
			r[c.id] = m.value(tab, c)
		}
	}
	return []Change{m.updated(tab, was, r)}
}

// updated tells of an update, and leaves out some values that did not change.
func (m *model) updated(tab *modelTable, was, is map[string]string) Change {
	c := update(tab.docs(is)...)
	for i, col := range tab.cols[tab.keys:] {
		known := tab.full && is[col.id] != "null"
		if was[col.id] == is[col.id] && (known || !tab.full && !m.messages) && m.chance(50) {
			c.Row[tab.keys+i] = Unsent
		}
	}
	if tab.full || tab.key(was) != tab.key(is) {
		c.Old = tab.image(was)
	}
	return c
}

// rotate gives three rows each other's keys: directly where the images are full and the target can tell rows of one key apart, else by way
// of a key that is free.
func (m *model) rotate(tab *modelTable) []Change {
	at := m.r.Perm(len(tab.rows))[:3]
	var keys []map[string]string
	for _, i := range at {
		keys = append(keys, keyOf(tab, tab.rows[i]))
	}
	var out []Change
	move := func(r, key map[string]string) {
		was := maps.Clone(r)
		maps.Copy(r, key)
		out = append(out, m.updated(tab, was, r))
	}
	if tab.full && !m.messages {
		for n, i := range at {
			move(tab.rows[i], keys[(n+1)%len(keys)])
		}
		return out
	}
	spare := map[string]string{}
	if !m.freeKey(tab, spare) {
		return nil
	}
	move(tab.rows[at[0]], spare)
	move(tab.rows[at[2]], keys[0])
	move(tab.rows[at[1]], keys[2])
	move(tab.rows[at[0]], keys[1])
	return out
}

func keyOf(tab *modelTable, r map[string]string) map[string]string {
	out := map[string]string{}
	for _, c := range tab.cols[:tab.keys] {
		out[c.id] = r[c.id]
	}
	return out
}
