package sqlite

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector/sqlgen"
)

// stage returns the table that collects the rows of a replacement, and notes that this run has it.
func (s *sink) stage(table string) (string, error) {
	const digits = 4
	sum := sha256.Sum256([]byte(s.start.Pipeline + "\x00" + s.start.Lane))
	stage := "_leat_new_" + hex.EncodeToString(sum[:digits]) + "_" + table
	err := s.db.each(`INSERT INTO `+replaceTable+` (pipeline, lane, run, "table", stage)
		VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, nil,
		s.start.Pipeline, s.start.Lane, s.start.Run, table, stage)
	return stage, err
}

// staged is one replacement that was begun.
type staged struct{ run, table, stage string }

func (s *sink) stages() ([]staged, error) {
	var out []staged
	err := s.db.each(`SELECT run, "table", stage FROM `+replaceTable+` WHERE pipeline = ? AND lane = ? ORDER BY "table"`,
		func(st *sqlite.Stmt) error {
			out = append(out, staged{run: st.ColumnText(0), table: st.ColumnText(1), stage: st.ColumnText(2)})
			return nil
		}, s.start.Pipeline, s.start.Lane)
	return out, err
}

// dropStages discards what other runs of this lane began.
func (s *sink) dropStages() error {
	all, err := s.stages()
	if err != nil {
		return err
	}
	for _, g := range all {
		if g.run == s.start.Run {
			continue
		}
		if err := s.db.exec("DROP TABLE IF EXISTS " + ident(g.stage)); err != nil {
			return err
		}
		if err := s.forget(g); err != nil {
			return err
		}
	}
	return nil
}

func (s *sink) forget(g staged) error {
	return s.db.each(`DELETE FROM `+replaceTable+` WHERE pipeline = ? AND lane = ? AND "table" = ?`, nil,
		s.start.Pipeline, s.start.Lane, g.table)
}

// swapStages puts every stage in the place of its table. Indexes, unique constraints made by CREATE INDEX, and triggers of the old
// table are made again on the new one; views and foreign keys that name the table stay as they are.
func (s *sink) swapStages() error {
	all, err := s.stages()
	if err != nil {
		return err
	}
	for _, g := range all {
		if err := s.swap(g); err != nil {
			return fmt.Errorf("replacing table %q: %w", g.table, err)
		}
	}
	clear(s.targets) // rows that came now would go to the tables themselves
	return nil
}

func (s *sink) swap(g staged) error {
	extras, err := s.extras(g.table)
	if err != nil {
		return err
	}
	old, exists, err := s.db.describe(g.table)
	if err != nil {
		return err
	}
	if exists && old.kind != "table" {
		return configError("sqlite.name", "replacing", fmt.Errorf("%q is a %s", g.table, old.kind))
	}
	err = s.db.exec("DROP TABLE IF EXISTS "+ident(g.table), "ALTER TABLE "+ident(g.stage)+" RENAME TO "+sqlgen.Ident(g.table))
	if err != nil {
		return err
	}
	if err := s.db.exec(extras...); err != nil {
		e := configError("sqlite.index", "making an index or trigger of the old table again", err)
		e.Dataset, e.Hint = g.table, "drop the index or trigger that does not suit the new rows, then run again"
		return e
	}
	return s.forget(g)
}
