package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/transform"
)

// Replay is one pass of letters into one sink: a source over letters that stand in the order in which they came, each dataset with one
// schema. It is run as a pipeline of its own, whose positions are places in a queue that the store keeps: places are never given twice,
// so that a letter is known to be in the sink exactly where the sink, or the saved state, is behind its place. Only then it is removed.
//
// What the sink refuses once more stays a letter, with the new reason, see [Replay.Rejects].
type Replay struct {
	store    *Store
	pipeline string
	sink     string
	sinks    []string // of the pipeline: all that a letter of the reader is for
	source   []transform.Step
	own      []transform.Step
	filter   Filter
	after    int64 // letters of earlier passes end here
	until    int64 // the last letter of this pass
	schemas  []*record.Schema
	letters  int64
	changes  bool // some letters are updates or deletes

	started bool
	flight  flight
}

// ReplayOf says which letters are replayed, and where to.
type ReplayOf struct {
	Filter                   // Pipeline is needed; Sink: only what it refused; Limit is not looked at
	Into    string           // the sink
	Sinks   []string         // of the pipeline
	Shared  []transform.Step // of the pipeline's source
	Own     []transform.Step // of the sink
	Earlier int64            // letters up to this number were dealt with
}

// NewReplay looks for the letters of the next pass; nil: there are none.
func (s *Store) NewReplay(ctx context.Context, of ReplayOf) (*Replay, error) {
	r := &Replay{
		store: s, pipeline: of.Pipeline, sink: of.Into, sinks: of.Sinks, source: of.Shared, own: of.Own,
		filter: of.Filter, after: of.Earlier,
	}
	r.filter.Limit = 0
	known := map[string]*record.Schema{}
	ways := map[way]*record.Schema{}
	err := s.each(ctx, r.filter, r.after, func(l Letter) error {
		if !r.takes(l) {
			return nil
		}
		w := r.way(l)
		out, ok := ways[w]
		if !ok {
			var err error
			if out, err = r.passed(w); err != nil {
				return err
			}
			ways[w] = out
		}
		if out != nil {
			if k := known[out.Dataset]; k == nil {
				known[out.Dataset] = out
				r.schemas = append(r.schemas, out)
			} else if !sameShape(k, out) {
				return io.EOF // the next pass
			}
		}
		r.until, r.letters, r.changes = l.Number, r.letters+1, r.changes || l.Op == record.Update || l.Op == record.Delete
		return nil
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if r.letters == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	slices.SortFunc(r.schemas, func(a, b *record.Schema) int { return strings.Compare(a.Dataset, b.Dataset) })
	return r, nil
}

// Letters is how many there are.
func (r *Replay) Letters() int64 { return r.letters }

// Until is the number of the last letter: the next pass takes those behind it.
func (r *Replay) Until() int64 { return r.until }

// Started reports whether the pass was read: a run that finds its sink done with an earlier one does not.
func (r *Replay) Started() bool { return r.started }

// Schemas are the datasets as the sink gets them.
func (r *Replay) Schemas() []*record.Schema { return r.schemas }

func sameShape(a, b *record.Schema) bool {
	return a.Columns.Equal(b.Columns) && slices.Equal(a.Key, b.Key)
}

// takes reports whether a letter is for the sink and has a row of columns.
func (r *Replay) takes(l Letter) bool {
	return l.Replayable() && (l.Sink == r.sink || l.Sink == "")
}

// Replayable reports whether the letter has a row of columns, and not only the source's own text.
func (l Letter) Replayable() bool { return l.Schema != nil && (l.Sink != "" || l.Step > 0) }

// way is the transforms that a letter has not passed: those from a step on, of the source or of the sink.
type way struct {
	schema *record.Schema
	shared bool
	step   int
}

func (*Replay) way(l Letter) way { return way{l.Schema, l.Sink == "", l.Step} }

func (r *Replay) steps(w way) ([]transform.Step, error) {
	if w.step == 0 {
		return nil, nil
	}
	list := r.own
	if w.shared {
		list = r.source
	}
	if w.step > len(list) {
		return nil, &connector.Error{
			Class: connector.ClassConfig, Code: "deadletter.transforms", Doing: "replaying", Dataset: w.schema.Dataset,
			Err:  fmt.Errorf("a letter was refused by transform %d, and now there are %d", w.step, len(list)),
			Hint: "put the transform back, mended, in its place; or copy the row again",
		}
	}
	list = list[w.step-1:]
	if w.shared {
		list = slices.Concat(list, r.own)
	}
	return list, nil
}

// passed is the schema of what comes to the sink; nil: the transforms drop it.
func (r *Replay) passed(w way) (*record.Schema, error) {
	steps, err := r.steps(w)
	if err != nil {
		return nil, err
	}
	s := w.schema
	for _, step := range steps {
		if s, err = step.Schema(s); err != nil || s == nil {
			return nil, err
		}
	}
	return s, s.Validate()
}

var (
	_ connector.SourceConfig = (*Replay)(nil)
	_ connector.Source       = (*replaySource)(nil)
	_ connector.Discoverer   = (*replaySource)(nil)
	_ connector.Positions    = (*replaySource)(nil)
	_ connector.Acknowledger = (*replaySource)(nil)
)

// Contract implements connector.SourceConfig. A pass goes on behind the last one.
func (r *Replay) Contract() (connector.SourceContract, error) {
	c := connector.SourceContract{Replay: connector.Deterministic, Bounded: true, Incremental: true}
	if r.changes {
		c.Input = connector.Changelog
	}
	return c, nil
}

// Identity implements connector.SourceConfig.
func (r *Replay) Identity() map[string]string {
	return map[string]string{"dead_letters": r.pipeline, "sink": r.sink}
}

// Open implements connector.SourceConfig.
func (r *Replay) Open(connector.Env) (connector.Source, error) { return &replaySource{Replay: r}, nil }

// replaySource reads the queue.
type replaySource struct {
	*Replay
	at      int64
	page    []queued
	ended   bool
	unknown []*record.Schema // datasets that no batch was read of
	schemas map[string]*record.Schema
}

// queued is a letter in its place.
type queued struct {
	Letter
	place int64
}

const placeShape = 1

type placePosition struct {
	Place int64 `json:"place"`
}

func positionOf(place int64) record.Position {
	data, err := json.Marshal(placePosition{place})
	if err != nil {
		panic(fmt.Sprintf("deadletter: place: %v", err)) // a number always marshals
	}
	return record.Position{Shape: placeShape, Data: data}
}

func placeOf(p record.Position) (int64, error) {
	var at placePosition
	if p.Zero() {
		return 0, nil
	}
	if err := json.Unmarshal(p.Data, &at); err != nil || p.Shape != placeShape {
		return 0, &connector.Error{
			Class: connector.ClassPosition, Code: "deadletter.position", Doing: "replaying dead letters",
			Err: fmt.Errorf("%s is no place of a letter", p), Hint: "use the version of leat that saved it",
		}
	}
	return at.Place, nil
}

// Compare implements connector.Positions.
func (*replaySource) Compare(a, b record.Position) (int, bool) {
	x, err1 := placeOf(a)
	y, err2 := placeOf(b)
	if err1 != nil || err2 != nil {
		return 0, false
	}
	return cmp.Compare(x, y), true
}

// Migrate implements connector.Positions.
func (*replaySource) Migrate(p record.Position) (record.Position, error) {
	_, err := placeOf(p)
	return p, err
}

// Discover implements connector.Discoverer.
func (s *replaySource) Discover(context.Context) ([]connector.Dataset, error) {
	out := make([]connector.Dataset, len(s.Replay.schemas))
	for i, schema := range s.Replay.schemas {
		out[i] = connector.Dataset{Name: schema.Dataset, Schema: schema, Rows: -1, Bytes: -1}
	}
	return out, nil
}

// Start implements connector.Source: letters up to the position are in the sink; all others that are asked for get new places behind it.
func (s *replaySource) Start(ctx context.Context, start connector.SourceStart) error {
	at, err := placeOf(start.From.Position)
	if err != nil {
		return err
	}
	if err := s.delivered(ctx, at); err != nil {
		return err
	}
	s.flight.clear()
	s.unknown, s.schemas, s.started = slices.Clone(s.Replay.schemas), map[string]*record.Schema{}, true
	s.at, err = s.enqueue(ctx, at)
	return err
}

// enqueue gives every letter of the pass a place behind at, and returns the place before the first one.
func (s *replaySource) enqueue(ctx context.Context, at int64) (before int64, err error) {
	where, args, err := s.filter.where()
	if err != nil {
		return 0, err
	}
	if where == "" {
		where = " where true"
	}
	err = s.store.use(ctx, true, func(in *session) (err error) {
		end, err := sqlitex.ImmediateTransaction(in.conn)
		if err != nil {
			return err
		}
		defer end(&err)
		who := []any{s.pipeline, s.sink}
		before, err = number(in.conn, "select coalesce(max(last), 0) from place where pipeline = ? and sink = ?", who...)
		if err != nil {
			return err
		}
		before = max(before, at)
		if err := exec(in.conn, "delete from queue where pipeline = ? and sink = ?", who...); err != nil {
			return err
		}
		query := "insert into queue (pipeline, sink, place, letter)" +
			" select ?, ?, ? + row_number() over (order by number), number from letter" + where +
			` and number > ? and number <= ? and columns is not null and (sink = ? or (sink = '' and step > 0))
			and not exists (select 1 from delivered d where d.letter = number and d.sink = ?)`
		err = exec(in.conn, query, slices.Concat(who, []any{before}, args, []any{s.after, s.until, s.sink, s.sink})...)
		if err != nil {
			return err
		}
		last := before + int64(in.conn.Changes())
		return exec(in.conn, "insert into place (pipeline, sink, last) values (?, ?, ?) on conflict do update set last = excluded.last",
			s.pipeline, s.sink, last)
	})
	return before, err
}

// Read implements connector.Source.
func (s *replaySource) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if len(s.page) == 0 && !s.ended {
		if err := s.load(ctx); err != nil {
			return nil, err
		}
	}
	if len(s.page) == 0 {
		return s.rest()
	}
	n, size := 0, int64(0)
	w := s.way(s.page[0].Letter)
	for n < len(s.page) && s.way(s.page[n].Letter) == w && (want.Rows == 0 || n < max(want.Rows, 1)) {
		if size += int64(len(s.page[n].Raw)); n > 0 && want.Bytes > 0 && size > want.Bytes {
			break
		}
		n++
	}
	taken := s.page[:n]
	s.page = s.page[n:]
	last := taken[n-1].place
	s.flight.add(last, taken)
	b, err := s.batch(w, taken)
	if err != nil {
		return nil, err
	}
	b.Position = positionOf(last)
	return b, nil
}

// rest gives an empty batch for every dataset that had none.
func (s *replaySource) rest() (*record.Batch, error) {
	if len(s.unknown) == 0 {
		return nil, io.EOF
	}
	b := &record.Batch{Schema: s.unknown[0], Position: positionOf(s.at)}
	s.unknown = s.unknown[1:]
	return b, nil
}

func (s *replaySource) load(ctx context.Context) error {
	err := s.store.use(ctx, false, func(in *session) error {
		query := "select q.place, l.* from queue q join (" + selectLetter + ") l on l.number = q.letter" +
			" where q.pipeline = ? and q.sink = ? and q.place > ? order by q.place limit ?"
		return sqlitex.Execute(in.conn, query, &sqlitex.ExecOptions{
			Args: []any{s.pipeline, s.sink, s.at, pageLetters},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				l, err := scan(stmt, 1, s.schemas)
				s.page = append(s.page, queued{l, stmt.ColumnInt64(0)})
				return err
			},
		})
	})
	if err != nil {
		return err
	}
	if len(s.page) > 0 {
		s.at = s.page[len(s.page)-1].place
	}
	s.ended = len(s.page) < pageLetters
	return nil
}

// batch makes the rows of letters that are alike, and takes them through the transforms that they had not passed.
func (s *replaySource) batch(w way, letters []queued) (*record.Batch, error) {
	b, err := join(letters)
	if err != nil {
		return nil, err
	}
	steps, err := s.steps(w)
	if err != nil {
		return nil, err
	}
	for i, step := range steps {
		out, err := step.Apply(b)
		if err != nil {
			return nil, fmt.Errorf("transforming %s: %w", w.schema.Dataset, err)
		}
		if out == nil {
			return &record.Batch{Rejects: b.Rejects}, nil
		}
		for n := len(b.Rejects); n < len(out.Rejects); n++ {
			out.Rejects[n].Step = w.step + i
		}
		b = out
	}
	s.unknown = slices.DeleteFunc(s.unknown, func(u *record.Schema) bool { return u.Dataset == b.Schema.Dataset })
	return b, nil
}

// Acknowledge implements connector.Acknowledger: letters up to the position are in the sink, and go.
func (s *replaySource) Acknowledge(ctx context.Context, p record.Position) error {
	at, err := placeOf(p)
	if err != nil {
		return err
	}
	s.flight.acknowledged(at)
	return s.delivered(ctx, at)
}

// Settle removes the letters up to where a run of the pass has ended.
func (r *Replay) Settle(ctx context.Context, p record.Position) error {
	at, err := placeOf(p)
	if err != nil {
		return err
	}
	return r.delivered(ctx, at)
}

// delivered removes the letters up to a place; those of the reader once they are in every sink of the pipeline.
func (r *Replay) delivered(ctx context.Context, place int64) error {
	return r.store.use(ctx, false, func(in *session) (err error) {
		end, err := sqlitex.ImmediateTransaction(in.conn)
		if err != nil {
			return err
		}
		defer end(&err)
		const passed = "(select letter from queue where pipeline = ?1 and sink = ?2 and place <= ?3)"
		args := []any{r.pipeline, r.sink, place}
		into := "insert into delivered (letter, sink) select number, ?2 from letter where sink = '' and number in "
		if err := exec(in.conn, into+passed+" on conflict do nothing", args...); err != nil {
			return err
		}
		names, err := json.Marshal(r.sinks)
		if err != nil {
			return err
		}
		gone := "delete from letter where number in " + passed + ` and (sink = ?2 or not exists (select 1 from json_each(?4) s
			where not exists (select 1 from delivered d where d.letter = number and d.sink = s.value)))`
		err = exec(in.conn, gone, r.pipeline, r.sink, place, string(names))
		if err != nil {
			return err
		}
		return exec(in.conn, "delete from queue where pipeline = ?1 and sink = ?2 and place <= ?3", args...)
	})
}

// Close implements connector.Source.
func (*replaySource) Close(context.Context) error { return nil }
