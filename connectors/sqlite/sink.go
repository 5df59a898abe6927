package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// sink writes into one file. One transaction is open from the first write to the commit; DDL is part of it.
type sink struct {
	cfg   SinkConfig
	env   connector.Env
	db    *db
	start connector.SinkStart

	started bool
	closed  bool
	open    bool // a transaction is open
	failed  bool // nothing more may become durable

	targets map[string]*target // by dataset
	owners  map[string]string  // lower-case table name -> dataset
}

var (
	_ connector.Sink          = (*sink)(nil)
	_ connector.PositionStore = (*sink)(nil)
	_ connector.Finisher      = (*sink)(nil)
	_ connector.Mapper        = (*sink)(nil)
	_ connector.Evolver       = (*sink)(nil)
	_ connector.RowRejecter   = (*sink)(nil)
	_ connector.Readback      = (*sink)(nil)
)

// RejectsRows implements connector.RowRejecter: rows that a constraint refuses are reported one by one.
func (*sink) RejectsRows() {}

const (
	progressTable = "_leat_progress"
	replaceTable  = "_leat_replace"
)

// progressDDL is a persisted format, see docs/formats/sqlite-progress.md.
const progressDDL = `CREATE TABLE IF NOT EXISTS ` + progressTable + ` (
	pipeline TEXT NOT NULL,
	lane TEXT NOT NULL,
	run TEXT NOT NULL,
	fence INTEGER NOT NULL,
	progress TEXT,
	PRIMARY KEY (pipeline, lane)
) WITHOUT ROWID`

const replaceDDL = `CREATE TABLE IF NOT EXISTS ` + replaceTable + ` (
	pipeline TEXT NOT NULL,
	lane TEXT NOT NULL,
	run TEXT NOT NULL,
	"table" TEXT NOT NULL,
	stage TEXT NOT NULL,
	PRIMARY KEY (pipeline, lane, "table")
) WITHOUT ROWID`

// Start implements connector.Sink. It takes over the lane: an owner with an older fence commits nothing from then on.
func (s *sink) Start(ctx context.Context, req connector.SinkStart) error {
	if s.closed {
		return errors.New("the sink is closed")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("opening %s: %w", s.cfg.Path, context.Cause(ctx))
	}
	s.start, s.targets, s.owners = req, map[string]*target{}, map[string]string{}
	if err := s.prepare(ctx); err != nil {
		return wrap(ctx, "opening "+s.cfg.Path, err)
	}
	s.started = true
	return nil
}

func (s *sink) prepare(ctx context.Context) error {
	if err := s.db.close(); err != nil { // what Map looked through
		return err
	}
	var err error
	if s.db, err = openDB(s.cfg.Path, sqlite.OpenReadWrite|sqlite.OpenCreate, s.cfg.BusyTimeout, s.env); err != nil {
		return err
	}
	release := s.db.bound(ctx)
	defer release()
	if s.cfg.Journal == journalWAL && s.cfg.Path != inMemory {
		if err := s.db.exec("PRAGMA journal_mode = wal"); err != nil {
			return err
		}
	}
	err = s.db.exec("PRAGMA synchronous = full", "PRAGMA foreign_keys = off", "PRAGMA legacy_alter_table = on",
		"PRAGMA cache_size = -32768", "BEGIN IMMEDIATE", progressDDL, replaceDDL, columnsDDL)
	s.open = !s.db.conn.AutocommitEnabled()
	if err != nil {
		return err
	}
	if err := s.takeOver(); err != nil {
		return err
	}
	if err := s.dropStages(); err != nil {
		return err
	}
	if err := s.forgetColumns(); err != nil {
		return err
	}
	return s.commit()
}

// takeOver writes the fence, unless a higher one was seen.
func (s *sink) takeOver() error {
	err := s.db.each(`INSERT INTO `+progressTable+` (pipeline, lane, run, fence) VALUES (?, ?, ?, ?)
		ON CONFLICT (pipeline, lane) DO UPDATE SET fence = excluded.fence WHERE excluded.fence >= fence`, nil,
		s.start.Pipeline, s.start.Lane, s.start.Run, int64(s.start.Fence))
	if err != nil {
		return err
	}
	if s.db.conn.Changes() == 0 {
		return s.fenced()
	}
	return nil
}

func (s *sink) fenced() error {
	return &connector.Error{
		Class: connector.ClassFenced, Code: "sqlite.fenced", Doing: "writing to " + s.cfg.Path,
		Err:  fmt.Errorf("another process took over pipeline %q, lane %q", s.start.Pipeline, s.start.Lane),
		Hint: "only one process may run a pipeline: end the other one first",
	}
}

// begin opens the transaction.
func (s *sink) begin() error {
	if s.open {
		return nil
	}
	if err := s.db.run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	s.open = true
	return nil
}

// commit makes the transaction durable. Where SQLite can't tell whether it is, the class of the error is "outcome unknown".
func (s *sink) commit() error {
	if !s.open {
		return nil
	}
	s.env.Roundtrip("commit")
	if err := s.db.run("COMMIT"); err != nil {
		s.failed = true
		if s.db.conn.AutocommitEnabled() {
			return &connector.Error{Class: connector.ClassOutcome, Code: "sqlite.commit", Doing: "committing to " + s.cfg.Path, Err: err}
		}
		return err
	}
	s.open = false
	return nil
}

// usable reports why the sink can't be used now.
func (s *sink) usable(ctx context.Context) error {
	switch {
	case s.closed:
		return errors.New("the sink is closed")
	case !s.started:
		return errors.New("the sink is not started")
	case s.failed:
		return errors.New("the sink failed before and was not replaced")
	case ctx.Err() != nil:
		s.failed = true
		return fmt.Errorf("writing to %s: %w", s.cfg.Path, context.Cause(ctx))
	}
	return nil
}

// guard runs f with the context; after an error the sink takes nothing more.
func (s *sink) guard(ctx context.Context, doing string, f func() error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	release := s.db.bound(ctx)
	defer release()
	err := f()
	var rows *connector.RowErrors
	if err == nil || errors.As(err, &rows) {
		return err
	}
	s.failed = true
	return wrap(ctx, doing, err)
}

// Write implements connector.Sink.
func (s *sink) Write(ctx context.Context, b *record.Batch) error {
	return s.guard(ctx, fmt.Sprintf("writing %s to %s", b.Schema.Dataset, s.cfg.Path), func() error {
		if err := s.begin(); err != nil {
			return err
		}
		t, err := s.target(b.Schema)
		if err != nil {
			return err
		}
		return s.apply(t, b)
	})
}

// Flush implements connector.Sink: rows without progress.
func (s *sink) Flush(ctx context.Context) error {
	return s.guard(ctx, "committing to "+s.cfg.Path, func() error {
		if err := s.settle(); err != nil {
			return err
		}
		return s.commit()
	})
}

// Commit implements connector.PositionStore.
func (s *sink) Commit(ctx context.Context, p record.Progress) error {
	return s.guard(ctx, "committing to "+s.cfg.Path, func() error {
		if err := s.begin(); err != nil {
			return err
		}
		if err := s.settle(); err != nil {
			return err
		}
		if err := s.save(p); err != nil {
			return err
		}
		return s.commit()
	})
}

// save writes the progress where the fence still holds.
func (s *sink) save(p record.Progress) error {
	doc, err := p.Append(nil)
	if err != nil {
		return err
	}
	err = s.db.run(`UPDATE `+progressTable+` SET run = ?, progress = ? WHERE pipeline = ? AND lane = ? AND fence = ?`,
		p.Run, string(doc), s.start.Pipeline, s.start.Lane, int64(s.start.Fence))
	if err != nil {
		return err
	}
	if s.db.conn.Changes() == 0 {
		return s.fenced()
	}
	return nil
}

// Committed implements connector.PositionStore.
func (s *sink) Committed(ctx context.Context) (record.Progress, bool, error) {
	var p record.Progress
	found := false
	err := s.guard(ctx, "reading the progress in "+s.cfg.Path, func() error {
		return s.db.each(`SELECT progress FROM `+progressTable+` WHERE pipeline = ? AND lane = ? AND progress IS NOT NULL`,
			func(st *sqlite.Stmt) error {
				found = true
				if err := json.Unmarshal([]byte(st.ColumnText(0)), &p); err != nil {
					return fmt.Errorf("the saved progress is damaged: %w", err)
				}
				return nil
			}, s.start.Pipeline, s.start.Lane)
	})
	return p, found && err == nil, err
}

// Finish implements connector.Finisher: staged tables take the place of the old ones, together with the progress.
func (s *sink) Finish(ctx context.Context, p record.Progress) error {
	return s.guard(ctx, "finishing "+s.cfg.Path, func() error {
		if err := s.begin(); err != nil {
			return err
		}
		if err := s.settle(); err != nil {
			return err
		}
		if err := s.swapStages(); err != nil {
			return err
		}
		if err := s.save(p); err != nil {
			return err
		}
		return s.commit()
	})
}

// settle applies what waits for the end of a source transaction.
func (s *sink) settle() error {
	for _, t := range s.targets {
		if err := t.settle(s.db); err != nil {
			return err
		}
	}
	return nil
}

// Close implements connector.Sink: what was not committed is rolled back.
func (s *sink) Close(context.Context) error {
	s.closed = true
	if s.db == nil || s.db.conn == nil {
		return nil
	}
	if !s.db.conn.AutocommitEnabled() {
		s.db.conn.SetInterrupt(nil)
		_ = s.db.exec("ROLLBACK") // closing rolls back too
	}
	if err := s.db.close(); err != nil {
		return fmt.Errorf("closing %s: %w", s.cfg.Path, err)
	}
	return nil
}

// Readback implements connector.Readback.
func (s *sink) Readback(dataset string) (connector.SourceConfig, error) {
	cfg := NewSource()
	cfg.Path, cfg.Table, cfg.BusyTimeout = s.cfg.Path, s.tableName(dataset), s.cfg.BusyTimeout
	cfg.Name = strings.Join(record.SplitName(dataset), ".")
	return cfg, nil
}

// tableName is the table of a dataset.
func (s *sink) tableName(dataset string) string {
	parts := record.SplitName(dataset)
	switch {
	case s.cfg.Table != "":
		return s.cfg.Table
	case s.cfg.Names == namesFull:
		return strings.Join(parts, "_")
	}
	return parts[len(parts)-1]
}

// ident is a quoted table name.
func ident(table string) string { return "main." + sqlgen.Ident(table) }
