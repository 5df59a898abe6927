package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Sink writes batches into tables. One transaction is open from the first write to the next commit; rows and the lane's progress
// become visible together. See the package documentation for what each mode does.
type Sink struct {
	cfg   *SinkConfig
	env   connector.Env
	db    session
	lane  lane
	start connector.SinkStart

	started  bool
	closed   bool
	broken   error // why nothing more is written
	open     bool  // a transaction is open
	txn      uint64
	saved    bool // the open transaction has a savepoint
	datasets map[string]*dataset
	places   map[relation]string // the dataset that owns a table
	buf      []byte              // encoded rows, used again
}

// dataset is where one dataset's rows go.
type dataset struct {
	name        string
	place       relation // the table that users see
	target      relation // the same, or its shadow in mode Replace
	plan        *plan
	stage       *stage
	checked     uint64 // the transaction in which the catalogue was last read
	stageTxn    uint64 // the transaction in which the stage was last made sure of
	stageFilled bool
}

var (
	_ connector.Sink          = (*Sink)(nil)
	_ connector.PositionStore = (*Sink)(nil)
	_ connector.Finisher      = (*Sink)(nil)
	_ connector.Mapper        = (*Sink)(nil)
	_ connector.Evolver       = (*Sink)(nil)
	_ connector.RowRejecter   = (*Sink)(nil)
	_ connector.Seeder        = (*Sink)(nil)
	_ connector.Readback      = (*Sink)(nil)
	_ connector.Checker       = (*Sink)(nil)
	_ connector.Named         = (*Sink)(nil)
)

// maxKept is how large a buffer is kept for the next batch.
const maxKept = 16 << 20

// closeTimeout bounds what Close waits for the server.
const closeTimeout = 5 * time.Second

var (
	errClosed     = errors.New("the sink is closed")
	errNotStarted = errors.New("the sink is not started")
	errStarted    = errors.New("a sink value is started only once")
)

// usable reports why the sink can't work on.
func (s *Sink) usable(doing string) error {
	switch {
	case s.closed:
		return &connector.Error{Class: connector.ClassPermanent, Code: "postgres.closed", Doing: doing, Err: errClosed}
	case s.broken != nil:
		return s.broken
	case !s.started:
		return &connector.Error{Class: connector.ClassPermanent, Code: "postgres.closed", Doing: doing, Err: errNotStarted}
	}
	return nil
}

// poison keeps anything from becoming durable after an error, and lets go of all locks.
func (s *Sink) poison(ctx context.Context, err error) error {
	if s.broken == nil {
		s.broken = err
	}
	if s.open && !s.db.conn.IsClosed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err := s.db.exec(ctx, "rollback", "ROLLBACK"); err != nil { // Close ends it in any case
			s.env.Log.DebugContext(ctx, "rolling back", slog.Any("error", err))
		}
		s.open = false
	}
	return err
}

// RejectsRows implements connector.RowRejecter.
func (*Sink) RejectsRows() {}

// Start implements connector.Sink: it connects, raises the lane's fence and discards replacements of other runs.
func (s *Sink) Start(ctx context.Context, start connector.SinkStart) error {
	if s.started || s.closed {
		return &connector.Error{Class: connector.ClassPermanent, Code: "postgres.closed", Doing: "starting the sink", Err: errStarted}
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	s.start = start
	s.lane = lane{pipeline: start.Pipeline, name: start.Lane, fence: start.Fence}
	if err := s.raise(ctx); err != nil {
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

// connect makes sure of a connection.
func (s *Sink) connect(ctx context.Context) error {
	if s.db.conn != nil {
		return nil
	}
	if s.closed {
		return &connector.Error{Class: connector.ClassPermanent, Code: "postgres.closed", Doing: "connecting", Err: errClosed}
	}
	s.env.Roundtrip("connect")
	conn, err := s.cfg.connect(ctx)
	if err != nil {
		return err
	}
	s.db = session{conn: conn, env: s.env}
	return nil
}

// beginSQL opens a transaction. The settings decide how values are cast to and from text, and that a commit survives loss of
// power; they end with the transaction, so that a pooler's next user does not see them.
const beginSQL = `BEGIN;
SET LOCAL client_min_messages = warning; SET LOCAL bytea_output = hex; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL TimeZone = 'UTC';
SET LOCAL IntervalStyle = postgres; SET LOCAL extra_float_digits = 3; SET LOCAL statement_timeout = 0;
SET CONSTRAINTS ALL DEFERRED;
SELECT set_config('synchronous_commit', CASE v WHEN 'off' THEN 'on' ELSE v END, true) FROM current_setting('synchronous_commit') v`

// begin opens a transaction where none is open.
func (s *Sink) begin(ctx context.Context) error {
	if s.open {
		return nil
	}
	if err := s.db.exec(ctx, "begin", beginSQL); err != nil {
		return s.cfg.wrap("opening a transaction", err)
	}
	s.open, s.saved = true, false
	s.txn++
	for _, d := range s.datasets {
		d.stageFilled = false // ON COMMIT DELETE ROWS
	}
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
		if _, known := errors.AsType[*connector.Error](err); !known {
			err = s.cfg.wrap("writing "+b.Schema.Dataset, err)
		}
		return s.poison(ctx, err)
	}
	return bad.err()
}

func (s *Sink) write(ctx context.Context, b *record.Batch) (rejects, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	d, err := s.dataset(ctx, b.Schema)
	if err != nil {
		return nil, err
	}
	if b.Truncate {
		if err := s.db.exec(ctx, "truncate", "TRUNCATE "+d.target.String()); err != nil {
			return nil, err
		}
	}
	if b.NumRows() == 0 {
		return nil, nil
	}
	return s.writeRows(ctx, d, b)
}

// own returns the dataset's place, and refuses two datasets in one table.
func (s *Sink) own(name string) (relation, error) {
	at := place(name, s.cfg.schema(), s.cfg.Table)
	if other, taken := s.places[at]; taken && other != name {
		return at, &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.collision", Doing: "choosing a table", Dataset: name,
			Err:  fmt.Errorf("dataset %s already goes to %s", other, at),
			Hint: "give one of them another name (rename), or leave out the option table",
		}
	}
	s.places[at] = name
	return at, nil
}

// dataset returns where rows of the schema go. The first time, the table is made. Once per transaction the catalogue is read again
// under a lock, so that rows are never encoded for columns that meanwhile have another type.
func (s *Sink) dataset(ctx context.Context, schema *record.Schema) (*dataset, error) {
	d := s.datasets[schema.Dataset]
	if d == nil {
		at, err := s.own(schema.Dataset)
		if err != nil {
			return nil, err
		}
		d = &dataset{name: schema.Dataset, place: at, target: at}
		if err := s.ensure(ctx, d, schema); err != nil {
			return nil, err
		}
		s.datasets[schema.Dataset] = d
	}
	if d.plan != nil && d.plan.schema == schema && d.checked == s.txn {
		return d, nil
	}
	t, err := s.db.lockAndDescribe(ctx, d.target)
	if err != nil {
		return nil, err
	}
	return d, d.replan(schema, t, s.txn)
}

// replan makes the plan again where schema or table changed.
func (d *dataset) replan(schema *record.Schema, t *table, txn uint64) error {
	shape, err := t.shape()
	if err != nil {
		return err
	}
	if d.plan == nil || d.plan.schema != schema || d.plan.shape != shape {
		p, err := newPlan(schema, t)
		if err != nil {
			return err
		}
		d.plan, d.stage, d.stageTxn, d.stageFilled = p, newStage(p, d.target), 0, true
	}
	d.checked = txn
	return nil
}

// ensure makes the dataset's table, or its shadow, exist.
func (s *Sink) ensure(ctx context.Context, d *dataset, schema *record.Schema) error {
	t, err := s.db.describe(ctx, d.place)
	if err != nil {
		return err
	}
	if t != nil && !strings.Contains("rpf", t.Kind) {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.kind", Doing: "writing to " + d.place.String(), Dataset: d.name,
			Err: errors.New("it is no table"), Hint: "name a table",
		}
	}
	if s.start.Mode == connector.Replace {
		return s.ensureShadow(ctx, d, schema, t)
	}
	if t != nil {
		return nil
	}
	return s.create(ctx, schema, d.place)
}

// create makes a table for the schema.
func (s *Sink) create(ctx context.Context, schema *record.Schema, at relation) error {
	design, err := s.db.design(ctx, schema, at)
	if err != nil {
		return err
	}
	sql := strings.Join(design.statements(), ";\n")
	if s.cfg.Create == createNever {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.missing", Doing: "writing to " + at.String(), Dataset: schema.Dataset,
			Err: errors.New("the table does not exist, and create is never"), Hint: sql,
		}
	}
	// Makers of the same table wait for each other; CREATE SCHEMA is left out where it exists, since it asks for a privilege.
	lock := fmt.Sprintf("SELECT pg_advisory_xact_lock(%d, hashtext(%s))", setupLock, literal(at.String()))
	if err := s.db.exec(ctx, "create", lock); err != nil {
		return err
	}
	var exists bool
	asked := "SELECT to_json(to_regnamespace(" + literal(ident(at.schema)) + ") IS NOT NULL)"
	if _, err := s.db.query(ctx, "create", asked, &exists); err != nil {
		return err
	}
	if exists {
		sql = strings.Join(design.statements()[1:], ";\n")
	}
	if t, err := s.db.describe(ctx, at); err != nil || t != nil {
		return err
	}
	err = s.db.exec(ctx, "create", sql)
	return err
}

// Commit implements connector.PositionStore: fence check, progress and COMMIT are one message.
func (s *Sink) Commit(ctx context.Context, p record.Progress) error {
	if err := s.usable("committing"); err != nil {
		return err
	}
	sql, err := s.lane.saveSQL(p)
	if err != nil {
		return s.poison(ctx, err)
	}
	return s.commit(ctx, sql)
}

// Flush implements connector.Sink: it commits rows without progress.
func (s *Sink) Flush(ctx context.Context) error {
	if err := s.usable("committing"); err != nil || !s.open {
		return err
	}
	return s.commit(ctx, s.lane.holdSQL())
}

// commit ends the transaction behind the given statement.
func (s *Sink) commit(ctx context.Context, last string) error {
	if err := s.begin(ctx); err != nil {
		return s.poison(ctx, err)
	}
	err := s.db.exec(ctx, "commit", last+"; COMMIT")
	if err == nil {
		s.open = false
		return nil
	}
	if fencedError(err) {
		return s.poison(ctx, fenced("committing"))
	}
	if _, aborted := serverError(err); aborted {
		return s.poison(ctx, s.cfg.wrap("committing", err))
	}
	return s.poison(ctx, &connector.Error{
		Class: connector.ClassOutcome, Code: "postgres.outcome", Doing: "committing", Err: err,
		Hint: "whether the transaction was committed is read back on the next start",
	})
}

// Close implements connector.Sink.
func (s *Sink) Close(ctx context.Context) error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.db.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	// The server rolls back what is open. An error of the farewell changes nothing about that.
	if err := s.db.conn.Close(ctx); err != nil {
		s.env.Log.DebugContext(ctx, "closing the connection", slog.Any("error", err))
	}
	return nil
}
