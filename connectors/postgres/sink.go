package postgres

import (
	"context"
	"encoding/json"
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

	started     bool
	closed      bool
	broken      error  // why nothing more is written
	synchronous string // what commits wait for
	open        bool   // a transaction is open
	kept        bool   // the open transaction holds something that stays
	saved       bool   // the open transaction has a savepoint
	txn         uint64
	ledger      *json.RawMessage // the ledger that is committed; nil: unknown
	columns     map[string][]knownColumn
	datasets    map[string]*dataset
	places      map[relation]string // the dataset that owns a table
	buf         []byte              // encoded rows, used again
	arrays      arrays              // the same
	folds       foldRoom            // the same
	fields      [][]byte            // the same
}

// dataset is where one dataset's rows go.
type dataset struct {
	name        string
	place       relation // the table that users see
	target      relation // the same, or its shadow in mode Replace
	table       *table   // as the catalogue had it at the last look
	plan        *plan
	stage       *stage
	checked     uint64 // the transaction in which the table was proven to be what the plan says
	stageTxn    uint64 // the transaction in which the stage was last made sure of
	stageFilled bool
	made        bool           // its table was made by this value
	contested   bool           // the target has had rows of a snapshot already
	lacks       bool           // it lacked rows that were to be updated
	displaced   map[string]int // keys whose row another one took, of a transaction of the source that has not ended
}

var (
	_ connector.Sink          = (*Sink)(nil)
	_ connector.PositionStore = (*Sink)(nil)
	_ connector.Finisher      = (*Sink)(nil)
	_ connector.Mapper        = (*Sink)(nil)
	_ connector.Evolver       = (*Sink)(nil)
	_ connector.RowRejecter   = (*Sink)(nil)
	_ connector.EncodedSink   = (*Sink)(nil)
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
	if s.db.direct {
		if err := s.db.exec(ctx, "settings", strings.Join(s.settings("SET SESSION"), ";\n")); err != nil {
			return s.poison(ctx, s.explain("starting the session", err))
		}
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
	s.db = session{conn: conn, env: s.env, kept: map[string]string{}}
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
	if errors.Is(err, connector.ErrNeedsRows) {
		return err // nothing was written, and they come again
	}
	if err != nil {
		if _, known := errors.AsType[*connector.Error](err); !known {
			err = s.explain("writing "+b.Schema.Dataset, err)
		}
		return s.poison(ctx, err)
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
	if b.Truncate {
		if err := s.truncate(ctx, d); err != nil {
			return nil, err
		}
	}
	if b.NumRows() == 0 {
		return nil, nil
	}
	return s.writeRows(ctx, d, b)
}

// truncate empties the table. Where foreign keys of other tables are in the way, its rows are deleted, which may work.
func (s *Sink) truncate(ctx context.Context, d *dataset) error {
	if s.start.Mode == connector.Append {
		return appendOnly(d)
	}
	clear(d.displaced)
	for _, sql := range []string{"TRUNCATE ", "DELETE FROM "} {
		x := new(script)
		x.add(s.lead(d)...)
		x.add(sql + d.target.String())
		_, err := s.db.run(ctx, "truncate", x)
		if err == nil {
			s.kept = true
			return nil
		}
		const notSupported = "0A000"
		if e, ok := serverError(err); !ok || e.Code != notSupported {
			return err
		}
		if err := s.undo(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// appendOnly refuses what only changes rows that are there.
func appendOnly(d *dataset) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "postgres.append", Dataset: d.name,
		Doing: "appending to " + d.target.String(), Err: errors.New("the batch has updates or deletes"), Hint: "use --mode upsert",
	}
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

// dataset returns where rows of the schema go. The first time, the table is made. That the table still is what the plan says is
// proven in each transaction, together with the first rows, so that none are encoded for columns that meanwhile have another type.
func (s *Sink) dataset(ctx context.Context, schema *record.Schema) (*dataset, error) {
	d, err := s.place(ctx, schema)
	if err != nil {
		return nil, err
	}
	return d, d.replan(schema)
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
	return nil
}

// replan makes the plan again where schema or table changed.
func (d *dataset) replan(schema *record.Schema) error {
	if d.plan != nil && d.plan.schema == schema && d.plan.table == d.table {
		return nil
	}
	shape, err := d.table.shape()
	if err != nil {
		return err
	}
	if d.plan != nil && d.plan.schema == schema && d.plan.shape == shape {
		d.plan.table = d.table
		return nil
	}
	p, err := newPlan(schema, d.table)
	if err != nil {
		return err
	}
	d.plan, d.stage, d.stageTxn, d.stageFilled = p, newStage(p, d.target), 0, true
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
		d.table = t
		return nil
	}
	d.made = true
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
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.kept = true
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
	// What a table of this name had before means nothing for the one that is made.
	if s.columns != nil {
		s.columns[schema.Dataset] = []knownColumn{}
	}
	forget := fmt.Sprintf("UPDATE %s SET columns = '[]' WHERE %s AND dataset = %s", columnsTable, s.lane.where(), literal(schema.Dataset))
	return s.db.exec(ctx, "create", sql+";\n"+forget)
}

// Commit implements connector.PositionStore: fence check, progress and COMMIT are one message.
func (s *Sink) Commit(ctx context.Context, p record.Progress) error {
	if err := s.usable("committing"); err != nil {
		return err
	}
	save, err := s.lane.saveSQL(p, s.ledger)
	if err != nil {
		return s.poison(ctx, err)
	}
	if err := s.commit(ctx, save); err != nil {
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
	return s.commit(ctx, statement{sql: s.lane.holdSQL()})
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
