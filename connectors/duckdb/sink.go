//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

type sink struct {
	cfg    *SinkConfig
	env    connector.Env
	db     *db
	start  connector.SinkStart
	inTx   bool
	broken error // the first failure: nothing more becomes durable
	sets   map[string]*set
	order  []*set
	bytes  int64 // gathered in all sets
}

var (
	_ connector.Sink          = (*sink)(nil)
	_ connector.PositionStore = (*sink)(nil)
	_ connector.Finisher      = (*sink)(nil)
	_ connector.Mapper        = (*sink)(nil)
	_ connector.Evolver       = (*sink)(nil)
	_ connector.Checker       = (*sink)(nil)
	_ connector.Readback      = (*sink)(nil)
	_ connector.Named         = (*sink)(nil)
)

// Open implements connector.SinkConfig.
func (c *SinkConfig) Open(env connector.Env) (connector.Sink, error) {
	if _, err := c.Contract(); err != nil {
		return nil, err
	}
	return &sink{cfg: c, env: env, sets: map[string]*set{}}, nil
}

// progressTable holds one row for each lane; its layout is a persisted format.
const progressTable = `"main"."_leat_progress"`

// Start implements connector.Sink.
func (s *sink) Start(ctx context.Context, st connector.SinkStart) error {
	d, err := open(ctx, s.cfg.Database, "READ_WRITE", s.env)
	if err != nil {
		return err
	}
	s.db, s.start = d, st
	if s.cfg.Threads == 0 && st.Mode != connector.Upsert { // one feeds and inserts; more only make it wait for order
		if err := d.exec(ctx, "SET threads = 1"); err != nil {
			return wrap(err, "setting the threads", "", "")
		}
	}
	if err := d.exec(ctx, `CREATE TABLE IF NOT EXISTS `+progressTable+
		` (pipeline VARCHAR, lane VARCHAR, run VARCHAR, fence UBIGINT, progress VARCHAR, updated TIMESTAMPTZ)`); err != nil {
		return wrap(err, "creating the table _leat_progress", "", "")
	}
	row, err := s.progressRow(ctx)
	if err != nil {
		return err
	}
	if err := s.claim(ctx, row); err != nil {
		return err
	}
	if err := s.openColumns(ctx); err != nil {
		return err
	}
	if row != nil && row.run == st.Run {
		return nil
	}
	return s.dropShadows(ctx)
}

// saved is the lane's row of the progress table.
type saved struct {
	run      string
	fence    uint64
	progress string
}

func (s *sink) progressRow(ctx context.Context) (*saved, error) {
	rows, err := s.db.rows(ctx, `SELECT run, fence::VARCHAR, coalesce(progress, '') FROM `+progressTable+` WHERE pipeline =
		$1 AND lane = $2`,
		s.start.Pipeline, s.start.Lane)
	if err != nil {
		return nil, wrap(err, "reading the saved progress", "", "")
	}
	if len(rows) == 0 {
		return nil, nil //nolint:nilnil // none
	}
	fence, err := strconv.ParseUint(rows[0][1], 10, 64)
	return &saved{run: rows[0][0], fence: fence, progress: rows[0][2]}, err
}

// claim raises the fence, or finds that a later owner has been here.
func (s *sink) claim(ctx context.Context, row *saved) error {
	if row == nil {
		return wrap(s.db.exec(ctx, `INSERT INTO `+progressTable+` VALUES ($1, $2, '', $3, NULL, now())`, s.start.Pipeline,
			s.start.Lane, s.start.Fence),
			"claiming the lane", "", "")
	}
	if row.fence > s.start.Fence {
		return s.fenced(row.fence)
	}
	return wrap(s.db.exec(ctx, `UPDATE `+progressTable+` SET fence = $3 WHERE pipeline = $1 AND lane = $2`, s.start.Pipeline,
		s.start.Lane, s.start.Fence),
		"claiming the lane", "", "")
}

func (s *sink) fenced(by uint64) error {
	return &connector.Error{
		Class: connector.ClassFenced, Code: "duckdb.fenced", Doing: "duckdb: writing to " + s.cfg.Path,
		Err: fmt.Errorf("another run of pipeline %s took over (fence %d, this one has %d)", s.start.Pipeline, by, s.start.Fence),
	}
}

// begin opens the transaction that the next commit ends, and checks that the lane is still ours.
func (s *sink) begin(ctx context.Context) error {
	if s.broken != nil {
		return s.broken
	}
	if s.db == nil {
		return errors.New("duckdb: write before start")
	}
	if s.inTx {
		return nil
	}
	if err := s.db.exec(ctx, "BEGIN"); err != nil {
		return s.poison(wrap(err, "beginning a transaction", "", ""))
	}
	s.inTx = true
	return nil
}

func (s *sink) poison(err error) error {
	if err != nil && s.broken == nil {
		s.broken = err
	}
	return err
}

// Write implements connector.Sink.
func (s *sink) Write(ctx context.Context, b *record.Batch) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	x, err := s.set(ctx, b.Schema)
	if err != nil {
		return s.poison(err)
	}
	if b.Truncate {
		if err := s.truncate(ctx, x); err != nil {
			return s.poison(err)
		}
	}
	if b.NumRows() == 0 {
		return nil
	}
	refused, now, err := x.accept(b, s.start.Mode)
	if err != nil {
		return s.poison(err)
	}
	s.bytes += b.Bytes()
	list := x.gathered
	more, err := s.storeIfDue(ctx, x, now)
	if err != nil {
		return s.poison(err)
	}
	refused = append(refused, more...)
	if len(refused) == 0 {
		return nil
	}
	rows, err := x.rowErrors(list, refused)
	if err != nil {
		return s.poison(err)
	}
	return rows
}

// storeIfDue hands what was gathered to DuckDB if it is time: now where only the table tells whether the rows can be applied; it returns
// those that can't.
func (s *sink) storeIfDue(ctx context.Context, x *set, now bool) ([]refusal, error) {
	switch {
	case now:
		return s.storeNow(ctx, x)
	case s.flows(x):
		return nil, s.storeSet(ctx, x, false)
	case x.rows >= gatherRows || s.bytes >= gatherBytes:
		return nil, s.store(ctx, false)
	}
	return nil, nil
}

// flows reports whether rows need not be gathered: they go into the statement that is open, or may open one as no other dataset waits.
func (s *sink) flows(x *set) bool {
	if s.start.Mode == connector.Upsert {
		return false
	}
	if s.db.flow != nil {
		return s.db.flow.set == x
	}
	return !slices.ContainsFunc(s.order, func(o *set) bool { return o != x && len(o.gathered) > 0 })
}

func (s *sink) truncate(ctx context.Context, x *set) error {
	x.drop(&s.bytes)
	n, err := s.db.affected(ctx, "DELETE FROM "+x.into.sql())
	x.dirty = x.dirty || n > 0 && !x.made
	return wrap(err, "emptying the table", x.dataset, "")
}

// storeNow hands what was gathered for one dataset to DuckDB, and returns the rows that could not be applied.
func (s *sink) storeNow(ctx context.Context, x *set) ([]refusal, error) {
	for _, g := range x.gathered {
		s.bytes -= g.Bytes()
	}
	return x.store(ctx, s.db, s.start.Mode, false)
}

// storeSet does so where nothing can be refused any more: rows that need the table were applied when they came.
func (s *sink) storeSet(ctx context.Context, x *set, ends bool) error {
	for _, g := range x.gathered {
		s.bytes -= g.Bytes()
	}
	list := x.gathered
	refused, err := x.store(ctx, s.db, s.start.Mode, ends)
	if err == nil && len(refused) > 0 {
		_, err = x.rowErrors(append(slices.Clip(list), gathered{}), refused)
	}
	return err
}

// store hands everything that was gathered to DuckDB.
func (s *sink) store(ctx context.Context, ends bool) error {
	for _, x := range s.order {
		if err := s.storeSet(ctx, x, ends); err != nil {
			return err
		}
	}
	return nil
}

// Flush implements connector.Sink.
func (s *sink) Flush(ctx context.Context) error {
	if !s.inTx {
		return s.broken
	}
	if err := s.poison(s.store(ctx, true)); err != nil {
		return err
	}
	return s.commit(ctx)
}

func (s *sink) commit(ctx context.Context) error {
	if s.broken != nil {
		return s.broken
	}
	s.inTx = false
	for _, x := range s.order {
		x.dirty, x.made = false, false
	}
	err := s.db.exec(ctx, "COMMIT")
	if err == nil {
		return nil
	}
	return s.poison(&connector.Error{
		Class: connector.ClassOutcome, Code: "duckdb.commit", Doing: "duckdb: committing", Err: wrap(err, "committing", "", ""),
	})
}

// Commit implements connector.PositionStore.
func (s *sink) Commit(ctx context.Context, p record.Progress) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.poison(s.store(ctx, true)); err != nil {
		return err
	}
	if err := s.poison(s.saveProgress(ctx, p)); err != nil {
		return err
	}
	return s.commit(ctx)
}

func (s *sink) saveProgress(ctx context.Context, p record.Progress) error {
	data, err := p.Append(nil)
	if err != nil {
		return fmt.Errorf("duckdb: %w", err)
	}
	n, err := s.db.affected(ctx, `UPDATE `+progressTable+` SET run = $3, progress = $4, updated = now() WHERE pipeline = $1
		AND lane = $2 AND fence = $5`,
		s.start.Pipeline, s.start.Lane, p.Run, string(data), s.start.Fence)
	if err != nil {
		return wrap(err, "saving the progress", "", "")
	}
	if n == 1 {
		return nil
	}
	row, err := s.progressRow(ctx)
	if err != nil {
		return err
	}
	if row == nil {
		return errors.New("duckdb: the lane's row in _leat_progress is gone")
	}
	return s.fenced(row.fence)
}

// Committed implements connector.PositionStore.
func (s *sink) Committed(ctx context.Context) (record.Progress, bool, error) {
	row, err := s.progressRow(ctx)
	if err != nil || row == nil || row.progress == "" {
		return record.Progress{}, false, err
	}
	var p record.Progress
	if err := json.Unmarshal([]byte(row.progress), &p); err != nil {
		return p, false, fmt.Errorf("duckdb: the saved progress in _leat_progress can't be read: %w", err)
	}
	return p, true, nil
}

// Finish implements connector.Finisher: in mode replace all datasets are swapped in one transaction with the progress.
func (s *sink) Finish(ctx context.Context, p record.Progress) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.poison(s.store(ctx, true)); err != nil {
		return err
	}
	if s.start.Mode == connector.Replace {
		if err := s.commit(ctx); err != nil { // the swap is a transaction of its own
			return err
		}
		if err := s.begin(ctx); err != nil {
			return err
		}
		if err := s.poison(s.swap(ctx)); err != nil {
			return err
		}
	}
	if err := s.poison(s.saveProgress(ctx, p)); err != nil {
		return err
	}
	return s.commit(ctx)
}

// shadow is a table that will replace another one.
type shadow struct {
	at     table
	target table
	remark remark
}

func (s *sink) shadows(ctx context.Context) ([]shadow, error) {
	rows, err := s.db.rows(ctx, `SELECT schema_name, table_name, coalesce(comment, '') FROM duckdb_tables() WHERE
		starts_with(table_name, $1) ORDER BY 1, 2`,
		s.shadowPrefix())
	if err != nil {
		return nil, wrap(err, "listing unfinished replacements", "", "")
	}
	var out []shadow
	for _, r := range rows {
		m := parseRemark(r[2])
		if len(m.For) == 2 {
			out = append(out, shadow{at: table{r[0], r[1]}, target: table{m.For[0], m.For[1]}, remark: m})
		}
	}
	return out, nil
}

func (s *sink) swap(ctx context.Context) error {
	list, err := s.shadows(ctx)
	if err != nil {
		return err
	}
	for _, sh := range list {
		done := remark{Key: sh.remark.Key}
		for _, sql := range []string{
			"DROP TABLE IF EXISTS " + sh.target.sql(),
			"ALTER TABLE " + sh.at.sql() + " RENAME TO " + sqlgen.Ident(sh.target.name),
			"COMMENT ON TABLE " + sh.target.sql() + " IS " + sqlgen.Literal(done.String()),
		} {
			if err := s.db.exec(ctx, sql); err != nil {
				return wrap(err, "replacing the table", datasetName(sh.target.schema, sh.target.name), "")
			}
		}
	}
	return nil
}

func (s *sink) dropShadows(ctx context.Context) error {
	list, err := s.shadows(ctx)
	if err != nil {
		return err
	}
	for _, sh := range list {
		if err := s.db.exec(ctx, "DROP TABLE "+sh.at.sql()); err != nil {
			return wrap(err, "dropping an unfinished replacement", "", "")
		}
	}
	return nil
}

// shadowPrefix is the same for every replacement that this lane writes.
func (s *sink) shadowPrefix() string {
	return ownPrefix + "new_" + short(s.start.Pipeline+"\x00"+s.start.Lane) + "_"
}

func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// Check implements connector.Checker. It creates nothing, not even the file.
func (s *sink) Check(ctx context.Context) ([]connector.Probe, error) {
	name := "open " + s.cfg.Path
	d, exists, err := s.peek(ctx)
	switch {
	case err != nil:
		return []connector.Probe{{Name: name, Status: connector.Fail, Detail: err.Error(), Fix: connector.HintOf(err)}}, nil
	case !exists:
		return []connector.Probe{{Name: name, Detail: "the file does not exist yet: it will be created"}}, nil
	}
	return []connector.Probe{{Name: name, Detail: "the file exists"}}, d.close()
}

// Readback implements connector.Readback.
func (s *sink) Readback(dataset string) (connector.SourceConfig, error) {
	t, err := s.tableOf(dataset)
	if err != nil {
		return nil, err
	}
	return &SourceConfig{Database: s.cfg.Database, Table: datasetName(t.schema, t.name)}, nil
}

// URI implements connector.Named.
func (s *sink) URI(dataset string) string { return connector.FileURI(s.cfg.Path, dataset) }

// Close implements connector.Sink: what was not committed is rolled back.
func (s *sink) Close(context.Context) error {
	if s.db == nil {
		return nil
	}
	d := s.db
	s.db, s.broken = nil, errors.New("duckdb: the sink is closed")
	return d.close()
}
