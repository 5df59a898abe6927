package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// The table that keeps every lane's progress and fence: a persisted format, see docs/formats/postgres-progress.md.
const (
	progressTable = "_leat.progress"
	progressDDL   = `CREATE TABLE IF NOT EXISTS _leat.progress (
	pipeline text NOT NULL,
	lane text NOT NULL,
	fence numeric(20,0) NOT NULL,
	run text NOT NULL DEFAULT '',
	progress json,
	updated timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (pipeline, lane)
);
ALTER TABLE _leat.progress ADD COLUMN IF NOT EXISTS ledger json;
COMMENT ON TABLE _leat.progress IS 'How far each pipeline got. Written in the same transaction as the rows: do not edit.';
CREATE TABLE IF NOT EXISTS _leat.columns (
	pipeline text NOT NULL,
	lane text NOT NULL,
	dataset text NOT NULL,
	columns json NOT NULL,
	PRIMARY KEY (pipeline, lane, dataset)
);
COMMENT ON TABLE _leat.columns IS 'Which columns of its source each dataset has here. Written with the rows: do not edit.'`
	// setupLock serialises the creation of helper objects, which IF NOT EXISTS alone does not.
	setupLock = 0x6c656174 // "leat"
)

var errFenced = errors.New("another owner of this pipeline has taken over")

// lane is the row of the progress table that a sink owns.
type lane struct {
	pipeline, name string
	fence          uint64
}

func (l lane) where() string {
	return fmt.Sprintf("pipeline = %s AND lane = %s", literal(l.pipeline), literal(l.name))
}

// raised is what raiseSQL returns.
type raised struct {
	Layout      bool   `json:"layout"`      // the tables have all that they need
	Process     uint32 `json:"process"`     // of the server: the one that we connected to, unless a pooler stands in between
	Synchronous string `json:"synchronous"` // what a commit waits for here: never for less than the disk of this server
}

// raiseSQL makes the lane's row exist with this fence; it returns no row where a higher one was seen.
func (l lane) raiseSQL() string {
	return fmt.Sprintf(`INSERT INTO %s AS p (pipeline, lane, fence) VALUES (%s, %s, %d)
ON CONFLICT (pipeline, lane) DO UPDATE SET fence = EXCLUDED.fence, updated = now() WHERE p.fence <= EXCLUDED.fence
RETURNING json_build_object('layout', to_regclass('_leat.columns') IS NOT NULL AND EXISTS (SELECT FROM pg_attribute
	WHERE attrelid = '%[1]s'::regclass AND attname = 'ledger' AND NOT attisdropped),
'process', pg_backend_pid(),
'synchronous', replace(current_setting('synchronous_commit'), 'off', 'on'))`,
		progressTable, literal(l.pipeline), literal(l.name), l.fence)
}

// fencedMark is in the error that saveSQL and holdSQL fail with; fencedSQL is the end of both: it fails where mine has no row.
const (
	fencedMark = "_leat_fenced"
	fencedSQL  = "SELECT CASE count(*) WHEN 0 THEN ('" + fencedMark + "' || count(*))::int END FROM mine"
)

// saveSQL stores progress where the fence still is the lane's own, or else fails with an error that [fencedError] recognises, so that
// the check, the progress and the COMMIT behind it are one message, and a process that is paused in between holds no lock. The ledger,
// which is large and changes seldom, is written only where it differs from the one that is committed (nil: unknown).
func (l lane) saveSQL(p record.Progress, committed *json.RawMessage) (statement, error) {
	ledger := ""
	var ledgers [][]byte
	if committed == nil || !bytes.Equal(*committed, p.Ledger) {
		ledger, ledgers = ", ledger = $3", [][]byte{nil}
		if len(p.Ledger) > 0 {
			ledgers[0] = p.Ledger
		}
	}
	p.Ledger = nil
	doc, err := p.Append(nil)
	if err != nil {
		return statement{}, err //nolint:wrapcheck // it says what
	}
	sql := fmt.Sprintf(`WITH mine AS (UPDATE %s SET run = $1, progress = $2%s, updated = now() WHERE %s AND fence = %d RETURNING 1)
%s`, progressTable, ledger, l.where(), l.fence, fencedSQL)
	return statement{sql: sql, values: append([][]byte{[]byte(p.Run), doc}, ledgers...)}, nil
}

// holdSQL fails like saveSQL where the fence is no longer the lane's own; it holds the row until the transaction ends.
func (l lane) holdSQL() string {
	return fmt.Sprintf(`WITH mine AS (SELECT 1 FROM %s WHERE %s AND fence = %d FOR SHARE) %s`, progressTable, l.where(), l.fence, fencedSQL)
}

// fencedError reports whether err is what saveSQL and holdSQL fail with.
func fencedError(err error) bool {
	e, ok := serverError(err)
	return ok && e.Code == "22P02" && strings.Contains(e.Message, fencedMark)
}

func fenced(doing string) error {
	return &connector.Error{
		Class: connector.ClassFenced, Code: "postgres.fenced", Doing: doing, Err: errFenced,
		Hint: "stop this process: its writes have no effect; the owner with the higher fence goes on",
	}
}

// raise makes the progress table and the lane's row exist and raises its fence.
func (s *Sink) raise(ctx context.Context) error {
	var answer raised
	ok, err := s.db.query(ctx, "fence", s.lane.raiseSQL(), &answer)
	e, server := serverError(err)
	missing := server && (e.Code == "42P01" || e.Code == "3F000") // no such table, no such schema
	if missing || err == nil && ok && !answer.Layout {
		if err := s.setup(ctx); err != nil {
			return progressDenied(s.cfg.wrap("creating "+progressTable, err), err)
		}
		ok, err = s.db.query(ctx, "fence", s.lane.raiseSQL(), &answer)
	}
	if err != nil {
		return progressDenied(s.cfg.wrap("raising the fence in "+progressTable, err), err)
	}
	if !ok {
		return fenced("starting " + s.lane.pipeline)
	}
	s.synchronous, s.db.direct = answer.Synchronous, answer.Process == s.db.conn.PgConn().PID()
	return nil
}

// setup makes schema and table; the schema only where it is missing, since IF NOT EXISTS asks for the privilege all the same.
func (s *Sink) setup(ctx context.Context) error {
	var exists bool
	_, err := s.db.query(ctx, "setup", fmt.Sprintf("BEGIN; SELECT pg_advisory_xact_lock(%d)::text IS NULL;\n"+
		"SELECT to_json(to_regnamespace('_leat') IS NOT NULL)", setupLock), &exists)
	sql := progressDDL + ";\nCOMMIT"
	if !exists {
		sql = "CREATE SCHEMA _leat;\n" + sql
	}
	if err == nil {
		err = s.db.exec(ctx, "setup", sql)
	}
	if err != nil && !s.db.conn.IsClosed() {
		_ = s.db.exec(ctx, "rollback", "ROLLBACK") // the first error says why
	}
	return err
}

// progressDenied adds to an error about missing privileges what an administrator types.
func progressDenied(wrapped, cause error) error {
	e, ok := serverError(cause)
	if !ok || e.Code != "42501" {
		return wrapped
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "postgres.privilege", Doing: "keeping progress in " + progressTable, Err: cause,
		Hint: progressGrant,
	}
}

const progressGrant = `as an administrator: CREATE SCHEMA IF NOT EXISTS _leat; GRANT USAGE, CREATE ON SCHEMA _leat TO <the sink's user>; ` +
	`and where _leat.progress exists: GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA _leat TO <the sink's user>, after its owner ` +
	`has run this version once`

// Committed implements connector.PositionStore.
func (s *Sink) Committed(ctx context.Context) (record.Progress, bool, error) {
	if err := s.usable("reading progress"); err != nil {
		return record.Progress{}, false, err
	}
	p, ok, err := s.committed(ctx)
	if err != nil {
		return record.Progress{}, false, s.poison(ctx, s.cfg.wrap("reading "+progressTable, err))
	}
	return p, ok, nil
}

func (s *Sink) committed(ctx context.Context) (p record.Progress, ok bool, err error) {
	x := new(script)
	x.add("SELECT progress, ledger FROM " + progressTable + " WHERE " + s.lane.where())
	results, err := s.db.run(ctx, "progress", x)
	if err != nil || len(results[0].Rows) == 0 || results[0].Rows[0][0] == nil {
		return p, false, err
	}
	row := results[0].Rows[0]
	if err := json.Unmarshal(row[0], &p); err != nil {
		return p, false, fmt.Errorf("reading the answer: %w", err)
	}
	if row[1] != nil {
		p.Ledger = row[1]
	}
	return p, true, nil
}
