package mysql

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// The tables that keep every lane's progress and fence, which columns each dataset has, and which tables are to replace others:
// persisted formats, see docs/formats/mysql-progress.md.
const (
	progressName = "_leat_progress"
	columnsName  = "_leat_columns"
	shadowsName  = "_leat_shadows"
)

var errFenced = errors.New("another owner of this pipeline has taken over")

// lane is the row of the progress table that a sink owns.
type lane struct {
	home           string
	pipeline, name string
	fence          uint64
	collate        string
}

func (l lane) progress() relation { return relation{database: l.home, name: progressName} }
func (l lane) columns() relation  { return relation{database: l.home, name: columnsName} }
func (l lane) shadows() relation  { return relation{database: l.home, name: shadowsName} }

func (l lane) where() string {
	return fmt.Sprintf("pipeline = %s AND lane = %s", literal(l.pipeline), literal(l.name))
}

// setupSQL makes the helper tables.
func (l lane) setupSQL() []string {
	options := fmt.Sprintf("ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE %s ROW_FORMAT=DYNAMIC", l.collate)
	return []string{
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
	pipeline varchar(255) NOT NULL,
	lane varchar(255) NOT NULL,
	fence bigint unsigned NOT NULL,
	run longtext,
	progress longtext,
	ledger longtext,
	finishing longtext,
	updated datetime(6) NOT NULL,
	PRIMARY KEY (pipeline, lane)
) %s COMMENT 'How far each pipeline got. Written in the same transaction as the rows: do not edit.'`, l.progress(), options),
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
	pipeline varchar(255) NOT NULL,
	lane varchar(255) NOT NULL,
	dataset varchar(255) NOT NULL,
	columns longtext NOT NULL,
	PRIMARY KEY (pipeline, lane, dataset)
) %s COMMENT 'Which columns of its source each dataset has here: do not edit.'`, l.columns(), options),
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
	pipeline varchar(255) NOT NULL,
	lane varchar(255) NOT NULL,
	place varchar(64) NOT NULL,
	shadow varchar(64) NOT NULL,
	note longtext NOT NULL,
	PRIMARY KEY (pipeline, lane, place, shadow)
) %s COMMENT 'Tables that are to replace others: do not edit.'`, l.shadows(), options),
	}
}

// mineSQL fails, with an error that notSo knows, where the fence is no longer the lane's own.
func (l lane) mineSQL() string {
	return fmt.Sprintf("%s FROM %s WHERE %s AND fence = %d", onlyIf("COUNT(*) = 1"), l.progress(), l.where(), l.fence)
}

// saveSQL stores progress where the fence still is the lane's own, or else fails with an error that notSo knows, so that the check, the
// progress and the COMMIT behind it are one message, and a process that is paused in between holds no lock. The ledger, which is large
// and changes seldom, is written only where it differs from the one that is committed (nil: unknown). finishing stores it as what the
// replacement of tables ends with.
func (l lane) saveSQL(p record.Progress, committed *json.RawMessage, finishing bool) ([]string, error) {
	sets := []string{"run = " + literal(p.Run)}
	if committed == nil || !bytes.Equal(*committed, p.Ledger) || finishing {
		value := "NULL"
		if len(p.Ledger) > 0 {
			value = literal(string(p.Ledger))
		}
		sets = append(sets, "ledger = "+value)
	}
	p.Ledger = nil
	doc, err := p.Append(nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what
	}
	if finishing {
		sets = append(sets, "finishing = "+literal(string(doc)))
	} else {
		sets = append(sets, "progress = "+literal(string(doc)), "finishing = NULL")
	}
	return []string{
		fmt.Sprintf("UPDATE %s SET %s, updated = UTC_TIMESTAMP(6) WHERE %s AND fence = %d", l.progress(), strings.Join(sets, ", "),
			l.where(), l.fence),
		onlyIf("ROW_COUNT() = 1"),
	}, nil
}

func fenced(doing string) error {
	return &connector.Error{
		Class: connector.ClassFenced, Code: "mysql.fenced", Doing: doing, Err: errFenced,
		Hint: "stop this process: its writes have no effect; the owner with the higher fence goes on",
	}
}

// raise makes the helper tables and the lane's row exist and raises its fence.
func (s *Sink) raise(ctx context.Context) error {
	results, err := s.db.run(ctx, "fence", s.lane.raiseSQL()...)
	if e, ok := serverErrorOf(err); ok && (e.number == errNoTable || e.number == errNoDatabase) {
		setup := s.lane.setupSQL()
		if s.cfg.Database == "" {
			setup = append([]string{"CREATE DATABASE IF NOT EXISTS " + ident(s.lane.home)}, setup...)
		}
		if _, err := s.db.run(ctx, "setup", setup...); err != nil {
			return s.progressDenied("creating "+s.lane.progress().String(), err)
		}
		results, err = s.db.run(ctx, "fence", s.lane.raiseSQL()...)
	}
	if err != nil {
		return s.progressDenied("raising the fence in "+s.lane.progress().String(), err)
	}
	if len(results) == 0 || len(results[0]) == 0 || toUint(results[0][0][0]) != s.lane.fence {
		return fenced("starting " + s.lane.pipeline)
	}
	return nil
}

// raiseSQL makes the lane's row exist with this fence, unless it has seen a higher one, and returns the fence that it has. It also
// fails where one of the other tables is missing.
func (l lane) raiseSQL() []string {
	return []string{
		fmt.Sprintf("INSERT INTO %s (pipeline, lane, fence, updated) SELECT %s, %s, %d, UTC_TIMESTAMP(6)"+
			" FROM (SELECT COUNT(*) FROM %s) c, (SELECT COUNT(*) FROM %s) d ON DUPLICATE KEY UPDATE fence = GREATEST(fence, %[4]d)",
			l.progress(), literal(l.pipeline), literal(l.name), l.fence, l.columns(), l.shadows()),
		fmt.Sprintf("SELECT fence FROM %s WHERE %s", l.progress(), l.where()),
	}
}

// progressDenied adds to an error about missing privileges what an administrator types.
func (s *Sink) progressDenied(doing string, err error) error {
	e, ok := serverErrorOf(err)
	if !ok || !slices.Contains([]uint16{1044, 1142, 1143, 1227}, e.number) {
		return s.cfg.wrap(doing, err)
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "mysql.privilege", Doing: "keeping progress in " + s.lane.progress().String(), Err: e,
		Hint: writeGrant(s.lane.home, "<the sink's user>"),
	}
}

// writeGrant is what an administrator types for a sink.
func writeGrant(database, user string) string {
	return fmt.Sprintf("as an administrator: GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES, "+
		"CREATE TEMPORARY TABLES ON %s.* TO %s", ident(database), user)
}

// Committed implements connector.PositionStore.
func (s *Sink) Committed(ctx context.Context) (record.Progress, bool, error) {
	if err := s.usable("reading progress"); err != nil {
		return record.Progress{}, false, err
	}
	p, ok, err := s.committed(ctx, "progress")
	if err != nil {
		return record.Progress{}, false, s.poison(ctx, s.cfg.wrap("reading "+s.lane.progress().String(), err))
	}
	return p, ok, nil
}

// committed reads the progress in a column.
func (s *Sink) committed(ctx context.Context, column string) (p record.Progress, ok bool, err error) {
	results, err := s.db.run(ctx, "progress", fmt.Sprintf("SELECT %s, ledger FROM %s WHERE %s", column, s.lane.progress(), s.lane.where()))
	if err != nil || len(results[0]) == 0 || results[0][0][0] == nil {
		return p, false, err
	}
	row := results[0][0]
	if err := json.Unmarshal(row[0], &p); err != nil {
		return p, false, fmt.Errorf("reading the answer: %w", err)
	}
	if row[1] != nil {
		p.Ledger = row[1]
	}
	return p, true, nil
}
