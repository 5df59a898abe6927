package mysql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Sink writes batches into tables. One transaction is open from the first write to the next commit; rows and the lane's progress
// become visible together. The server commits whatever is open when a table is made or changed: that is done on another connection, and
// where the open transaction is in the way it is rolled back and written again. See the package documentation for what each mode does.
type Sink struct {
	cfg   *SinkConfig
	env   connector.Env
	db    *session // nil: not connected
	ddl   *session // makes and changes tables; nil: not connected
	lane  lane
	start connector.SinkStart

	started  bool
	closed   bool
	broken   error // why nothing more is written
	open     bool  // a transaction is open
	kept     bool  // the open transaction holds something that stays
	saved    bool  // the open transaction has a savepoint
	txn      uint64
	redo     []written        // what the open transaction holds
	after    []string         // changes of tables that wait for its end
	ledger   *json.RawMessage // the ledger that is committed; nil: unknown
	columns  map[string][]knownColumn
	datasets map[string]*dataset
	places   map[relation]string // the dataset that owns a table
	buf      []byte              // a statement, used again
	values   []byte              // literals of a merge, used again
	folds    foldRoom            // the same
	reader   string              // name of the reader of files; empty: none was needed
	file     *rowsReader         // what it reads
}

// written is a batch that the open transaction holds, and the rows of it that were refused.
type written struct {
	d   *dataset
	b   *record.Batch
	bad rejects
}

// dataset is where one dataset's rows go.
type dataset struct {
	name      string
	place     relation // the table that users see
	target    relation // the same, or its shadow in mode Replace
	table     *table   // as the catalogue had it at the last look
	plan      *plan
	stage     *stage
	staged    bool           // the stage was made on this connection
	checked   uint64         // the transaction in which the table was proven to be what the plan says
	made      bool           // its table was made by this value
	contested bool           // the target has had rows of a snapshot already
	displaced map[string]int // keys whose row another one took, of a transaction of the source that has not ended
}

var (
	_ connector.Sink          = (*Sink)(nil)
	_ connector.PositionStore = (*Sink)(nil)
	_ connector.Finisher      = (*Sink)(nil)
	_ connector.Mapper        = (*Sink)(nil)
	_ connector.Evolver       = (*Sink)(nil)
	_ connector.RowRejecter   = (*Sink)(nil)
	_ connector.Checker       = (*Sink)(nil)
	_ connector.Named         = (*Sink)(nil)
)

// maxKept is how large a buffer is kept for the next batch.
const maxKept = 16 << 20

var (
	errSinkClosed     = errors.New("the sink is closed")
	errSinkNotStarted = errors.New("the sink is not started")
	errSinkStarted    = errors.New("a sink value is started only once")
)

// usable reports why the sink can't work on.
func (s *Sink) usable(doing string) error {
	switch {
	case s.closed:
		return &connector.Error{Class: connector.ClassPermanent, Code: "mysql.closed", Doing: doing, Err: errSinkClosed}
	case s.broken != nil:
		return s.broken
	case !s.started:
		return &connector.Error{Class: connector.ClassPermanent, Code: "mysql.closed", Doing: doing, Err: errSinkNotStarted}
	}
	return nil
}

// poison keeps anything from becoming durable after an error, and lets go of all locks.
func (s *Sink) poison(ctx context.Context, err error) error {
	if s.broken == nil {
		s.broken = err
	}
	if s.open && s.db != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if _, err := s.db.run(ctx, "rollback", "ROLLBACK"); err != nil { // Close ends it in any case
			s.env.Log.DebugContext(ctx, "rolling back", slog.Any("error", err))
		}
		s.open = false
	}
	return err
}

// RejectsRows implements connector.RowRejecter.
func (*Sink) RejectsRows() {}

// Start implements connector.Sink: it connects, raises the lane's fence, ends what a replacement that was decided has left to do, and
// discards replacements of other runs.
func (s *Sink) Start(ctx context.Context, start connector.SinkStart) error {
	if s.started || s.closed {
		return &connector.Error{Class: connector.ClassPermanent, Code: "mysql.closed", Doing: "starting the sink", Err: errSinkStarted}
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	s.start = start
	s.lane = lane{home: s.cfg.home(), pipeline: start.Pipeline, name: start.Lane, fence: start.Fence, collate: s.db.exactCollation()}
	if err := s.raise(ctx); err != nil {
		return s.poison(ctx, err)
	}
	settings := []string{"SET SESSION TRANSACTION ISOLATION LEVEL " + s.isolation()}
	if s.cfg.Constraints == constraintsOff {
		settings = append(settings, "SET SESSION foreign_key_checks = 0")
	}
	if _, err := s.db.run(ctx, "settings", settings...); err != nil {
		return s.poison(ctx, s.cfg.wrap("starting the session", err))
	}
	if err := s.rollForward(ctx); err != nil {
		return s.poison(ctx, err)
	}
	if start.Mode == connector.Replace {
		if err := s.adoptShadows(ctx); err != nil {
			return s.poison(ctx, err)
		}
	}
	s.started = true
	return nil
}

// isolation is the level that holds fewest locks; a binary log of statements needs a higher one.
func (s *Sink) isolation() string {
	if s.db.statements {
		return "REPEATABLE READ"
	}
	return "READ COMMITTED"
}

// connect makes sure of a connection.
func (s *Sink) connect(ctx context.Context) error {
	if s.db != nil {
		return nil
	}
	if s.closed {
		return &connector.Error{Class: connector.ClassPermanent, Code: "mysql.closed", Doing: "connecting", Err: errSinkClosed}
	}
	db, err := s.cfg.open(ctx, s.env)
	if err != nil {
		return err
	}
	s.db = db
	return nil
}

// Write implements connector.Sink.
func (s *Sink) Write(ctx context.Context, b *record.Batch) error {
	if err := s.usable("writing"); err != nil {
		return err
	}
	bad, err := s.write(ctx, b)
	if cap(s.buf) > maxKept {
		s.buf = nil
	}
	if err != nil {
		return s.poison(ctx, s.explain("writing "+b.Schema.Dataset, err))
	}
	return bad.err()
}

func (s *Sink) write(ctx context.Context, b *record.Batch) (rejects, error) {
	d, err := s.dataset(ctx, b.Schema)
	if err != nil {
		return nil, err
	}
	if !b.Position.Zero() {
		defer clear(d.displaced)
	}
	bad, err := s.apply(ctx, d, b, rejects{})
	if err == nil {
		s.redo = append(s.redo, written{d: d, b: b, bad: bad})
	}
	return bad, err
}

// apply writes a batch but for the rows in bad, and adds to them those that are refused.
func (s *Sink) apply(ctx context.Context, d *dataset, b *record.Batch, bad rejects) (rejects, error) {
	if b.Truncate {
		if err := s.truncate(ctx, d); err != nil {
			return nil, err
		}
	}
	if b.NumRows() == 0 {
		return bad, nil
	}
	return bad, s.writeRows(ctx, load{d: d, b: b, bad: bad})
}

// truncate empties the table. TRUNCATE would commit what is open.
func (s *Sink) truncate(ctx context.Context, d *dataset) error {
	if s.start.Mode == connector.Append {
		return appendOnly(d)
	}
	clear(d.displaced)
	lead, err := s.lead(ctx, d)
	if err != nil {
		return err
	}
	if _, err := s.db.run(ctx, "truncate", append(lead, "DELETE FROM "+d.target.String())...); err != nil {
		return err
	}
	s.kept = true
	return nil
}

// appendOnly refuses what only changes rows that are there.
func appendOnly(d *dataset) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "mysql.append", Dataset: d.name,
		Doing: "appending to " + d.target.String(), Err: errors.New("the batch has updates or deletes"), Hint: "use --mode upsert",
	}
}

// own returns the dataset's place, and refuses two datasets in one table.
func (s *Sink) own(name string) (relation, error) {
	at := s.cfg.place(name)
	owned := at
	if s.db.folded {
		owned = relation{database: strings.ToLower(at.database), name: strings.ToLower(at.name)}
	}
	if other, taken := s.places[owned]; taken && other != name {
		return at, &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.collision", Doing: "choosing a table", Dataset: name,
			Err:  fmt.Errorf("dataset %s already goes to %s", other, at),
			Hint: "give one of them another name (rename), or leave out the option table",
		}
	}
	s.places[owned] = name
	return at, nil
}

// dataset returns where rows of the schema go. The first time, the table is made.
func (s *Sink) dataset(ctx context.Context, schema *record.Schema) (*dataset, error) {
	d, err := s.place(ctx, schema)
	if err != nil {
		return nil, err
	}
	return d, s.replan(d, schema)
}

// place makes the dataset's table exist and describes it.
func (s *Sink) place(ctx context.Context, schema *record.Schema) (*dataset, error) {
	d := s.datasets[schema.Dataset]
	if d == nil {
		at, err := s.own(schema.Dataset)
		if err != nil {
			return nil, err
		}
		d = &dataset{name: schema.Dataset, place: at, target: at, displaced: map[string]int{}}
		if err := s.ensure(ctx, d, schema); err != nil {
			return nil, err
		}
		s.datasets[schema.Dataset] = d
	}
	if d.table != nil {
		return d, nil
	}
	return d, s.look(ctx, d)
}

// look reads the catalogue again.
func (s *Sink) look(ctx context.Context, d *dataset) error {
	t, err := s.db.describe(ctx, d.target)
	if err != nil {
		return err
	}
	if t == nil {
		return fmt.Errorf("%s is no longer there", d.target)
	}
	d.table = t
	return t.transactional(d.name)
}

// ways is how this server and this configuration keep what others keep otherwise.
func (s *Sink) ways() ways {
	return ways{utc: s.cfg.Instants == instantsDateTime, minusZero: !s.db.server.mariadb}
}

// replan makes the plan again where schema or table changed.
func (s *Sink) replan(d *dataset, schema *record.Schema) error {
	if d.plan != nil && d.plan.schema == schema && d.plan.table == d.table {
		return nil
	}
	p, err := newPlan(schema, d.table, s.ways())
	if err != nil {
		return err
	}
	d.setPlan(p)
	return nil
}

func (d *dataset) setPlan(p *plan) {
	st := newStage(p, d.target)
	d.staged = d.staged && d.stage != nil && d.stage.name == st.name
	d.plan, d.stage = p, st
}

// ensure makes the dataset's table, or its shadow, exist.
func (s *Sink) ensure(ctx context.Context, d *dataset, schema *record.Schema) error {
	t, err := s.db.describe(ctx, d.place)
	if err != nil {
		return err
	}
	if t != nil {
		if err := t.transactional(d.name); err != nil {
			return err
		}
	}
	if s.start.Mode == connector.Replace {
		return s.ensureShadow(ctx, d, schema, t)
	}
	if t != nil {
		d.table = t
		return nil
	}
	d.made = true
	return s.create(ctx, schema, d.place)
}

// create makes a table for the schema.
func (s *Sink) create(ctx context.Context, schema *record.Schema, at relation) error {
	design, err := s.db.design(ctx, schema, at, s.cfg.Instants)
	if err != nil {
		return err
	}
	sql := design.statement()
	if s.cfg.Create == createNever {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.missing", Doing: "writing to " + at.String(), Dataset: schema.Dataset,
			Err: errors.New("the table does not exist, and create is never"), Hint: sql,
		}
	}
	// What a table of this name had before means nothing for the one that is made.
	if err := s.forget(ctx, schema.Dataset); err != nil {
		return err
	}
	err = s.define(ctx, sql)
	if e, ok := serverErrorOf(err); ok && e.number == errNoDatabase {
		if err := s.define(ctx, "CREATE DATABASE IF NOT EXISTS "+ident(at.database)); err != nil {
			return err
		}
		err = s.define(ctx, sql)
	}
	const exists = 1050
	if e, ok := serverErrorOf(err); ok && e.number == exists {
		return nil // another one was faster
	}
	return err
}

// define makes or changes tables, on a connection of its own, so that what is open stays so. An owner that another one has followed
// changes nothing.
func (s *Sink) define(ctx context.Context, statements ...string) error {
	if s.ddl == nil {
		db, err := s.cfg.open(ctx, s.env)
		if err != nil {
			return err
		}
		s.ddl = db
		if _, err := db.run(ctx, "settings", "SET SESSION lock_wait_timeout = 20, innodb_lock_wait_timeout = 20"); err != nil {
			return err
		}
	}
	for _, sql := range statements {
		if _, err := s.ddl.run(ctx, "fence", s.lane.mineSQL()); err != nil {
			if notSo(err) {
				return fenced("changing tables")
			}
			return err
		}
		if _, err := s.ddl.run(ctx, "define", sql); err != nil {
			return err
		}
	}
	return nil
}

// Commit implements connector.PositionStore: fence check, progress and COMMIT are one message.
func (s *Sink) Commit(ctx context.Context, p record.Progress) error {
	if err := s.usable("committing"); err != nil {
		return err
	}
	save, err := s.lane.saveSQL(p, s.ledger, false)
	if err != nil {
		return s.poison(ctx, err)
	}
	if err := s.commit(ctx, save...); err != nil {
		return err
	}
	s.ledger = &p.Ledger
	return nil
}

// Flush implements connector.Sink: it commits rows without progress.
func (s *Sink) Flush(ctx context.Context) error {
	if err := s.usable("committing"); err != nil || !s.open {
		return err
	}
	return s.commit(ctx, s.lane.mineSQL()+" FOR UPDATE")
}

// Close implements connector.Sink. The server rolls back what is open.
func (s *Sink) Close(ctx context.Context) error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.forgetReader()
	for _, db := range []*session{s.db, s.ddl} {
		if db == nil {
			continue
		}
		if err := db.close(); err != nil { // an error of the farewell changes nothing
			s.env.Log.DebugContext(ctx, "closing the connection", slog.Any("error", err))
		}
	}
	return nil
}
