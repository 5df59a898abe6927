package mysql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// shadowPrefix begins the names of tables that are to replace another one; retiredPrefix those of tables that were replaced.
const (
	shadowPrefix  = "_leat_new_"
	retiredPrefix = "_leat_old_"
)

// shadow is a table with the rows that will replace those of another table. The table of shadows lists it before it is made and until it
// is gone, so that nothing is left behind by whoever ends in between: a persisted format, see docs/formats/mysql-progress.md.
type shadow struct {
	at     relation
	note   shadowNote
	exists bool
}

type shadowNote struct {
	Run      string `json:"run"`
	Database string `json:"database"`
	Table    string `json:"table"`
	Refill   bool   `json:"refill,omitempty"` // the table stays, and gets the shadow's rows
}

// at is the table that the shadow replaces.
func (n shadowNote) at() relation { return relation{database: n.Database, name: n.Table} }

// retired is what the table is called that was replaced, until it is dropped.
func (s *Sink) retired(n shadowNote) relation {
	return relation{database: n.Database, name: helperName(retiredPrefix, s.start.Pipeline, s.start.Lane, n.Run, n.Table)}
}

// newShadow names a shadow that is to be made. The fence is part of the name, so that it never waits for one that a late owner is
// about to make.
func (s *Sink) newShadow(at relation) shadow {
	of := []string{s.start.Pipeline, s.start.Lane, s.start.Run, strconv.FormatUint(s.start.Fence, 10), at.database, at.name}
	return shadow{
		at:   relation{database: at.database, name: helperName(shadowPrefix, of...)},
		note: shadowNote{Run: s.start.Run, Database: at.database, Table: at.name},
	}
}

// shadows lists the lane's shadows, of any run.
func (s *Sink) shadows(ctx context.Context) ([]shadow, error) {
	results, err := s.db.run(ctx, "shadows", fmt.Sprintf("SELECT s.place, s.shadow, s.note, t.TABLE_NAME FROM %s s"+
		" LEFT JOIN information_schema.TABLES t ON t.TABLE_SCHEMA = s.place AND t.TABLE_NAME = s.shadow WHERE %s ORDER BY 1, 2",
		s.lane.shadows(), s.lane.where()))
	if err != nil {
		return nil, fmt.Errorf("looking for unfinished replacements: %w", err)
	}
	out := make([]shadow, len(results[0]))
	for i, r := range results[0] {
		out[i] = shadow{at: relation{database: string(r[0]), name: string(r[1])}, exists: r[3] != nil}
		if err := json.Unmarshal(r[2], &out[i].note); err != nil {
			return nil, fmt.Errorf("looking for unfinished replacements: %w", err)
		}
	}
	return out, nil
}

// noteSQL lists a shadow; dropped takes it off the list, together with its table and with the one that it replaced.
func (s *Sink) noteSQL(sh shadow) (string, error) {
	note, err := json.Marshal(sh.note)
	if err != nil {
		return "", fmt.Errorf("writing the shadow's note: %w", err)
	}
	return fmt.Sprintf("INSERT INTO %s (pipeline, lane, place, shadow, note) VALUES (%s, %s, %s, %s, %s)", s.lane.shadows(),
		literal(s.lane.pipeline), literal(s.lane.name), literal(sh.at.database), literal(sh.at.name), literal(string(note))), nil
}

func (s *Sink) drop(ctx context.Context, sh shadow) error {
	return s.define(ctx, "DROP TABLE IF EXISTS "+sh.at.String(), "DROP TABLE IF EXISTS "+s.retired(sh.note).String(),
		fmt.Sprintf("DELETE FROM %s WHERE %s AND place = %s AND shadow = %s", s.lane.shadows(), s.lane.where(),
			literal(sh.at.database), literal(sh.at.name)))
}

var errShadowGone = errors.New("the rows that an interrupted run had already written for the replacement are gone")

// adoptShadows drops what other runs of the lane left and makes sure that what this run wrote before is still there.
func (s *Sink) adoptShadows(ctx context.Context) error {
	all, err := s.shadows(ctx)
	if err != nil {
		return s.cfg.wrap("starting a replacement", err)
	}
	mine := 0
	for _, sh := range all {
		if sh.note.Run == s.start.Run && sh.exists {
			mine++
			continue
		}
		if err := s.drop(ctx, sh); err != nil {
			return s.cfg.wrap("dropping the unfinished replacement "+sh.at.String(), err)
		}
	}
	p, ok, err := s.committed(ctx, "progress")
	if err != nil {
		return s.cfg.wrap("reading "+s.lane.progress().String(), err)
	}
	if ok && p.Run == s.start.Run && !p.Done && !p.Position.Zero() && mine == 0 {
		return &connector.Error{
			Class: connector.ClassPosition, Code: "mysql.shadow", Doing: "resuming a replacement", Err: errShadowGone,
			Hint: "begin again: leat state reset",
		}
	}
	return nil
}

// ensureShadow makes the shadow exist: like the table that it will replace, indexes and defaults included.
func (s *Sink) ensureShadow(ctx context.Context, d *dataset, schema *record.Schema, old *table) error {
	all, err := s.shadows(ctx)
	if err != nil {
		return err
	}
	for _, made := range all {
		if made.note.Run == s.start.Run && made.note.at() == d.place && made.exists {
			d.target = made.at
			return nil
		}
	}
	sh := s.newShadow(d.place)
	d.target = sh.at
	if old != nil {
		if sh.note.Refill, err = s.bound(ctx, d.place); err != nil {
			return err
		}
	}
	note, err := s.noteSQL(sh)
	if err != nil {
		return err
	}
	if err := s.define(ctx, note); err != nil {
		return err
	}
	if old == nil {
		return s.create(ctx, schema, sh.at)
	}
	return s.define(ctx, fmt.Sprintf("CREATE TABLE %s LIKE %s", sh.at, d.place))
}

// bound reports whether something belongs to a table that one that is made like it does not have: foreign keys from it and to it, and
// triggers. Such a table stays, and its rows are replaced.
func (s *Sink) bound(ctx context.Context, at relation) (bool, error) {
	results, err := s.db.run(ctx, "catalogue", fmt.Sprintf(`SELECT
(SELECT COUNT(*) FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_TABLE_NAME IS NOT NULL AND
	((TABLE_SCHEMA = %[1]s AND TABLE_NAME = %[2]s) OR (REFERENCED_TABLE_SCHEMA = %[1]s AND REFERENCED_TABLE_NAME = %[2]s)))
+ (SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %[1]s AND EVENT_OBJECT_TABLE = %[2]s)`,
		literal(at.database), literal(at.name)))
	if err != nil {
		return false, err
	}
	return results[0].number() != 0, nil
}

// Finish implements connector.Finisher: in mode Replace all shadows take the places of their tables. In the other modes it is a commit.
//
// Renaming tables is no part of a transaction. So the last rows, and the rows of tables that stay, are committed together with the
// decision: the progress that the run ends with, in a place where it does not count yet. Then the tables change places, at once. Then
// the progress counts. Whoever starts behind a crash finds the decision, and does what is left to do (see rollForward); each step can be
// done again.
func (s *Sink) Finish(ctx context.Context, p record.Progress) error {
	if s.start.Mode != connector.Replace {
		return s.Commit(ctx, p)
	}
	if err := s.usable("finishing"); err != nil {
		return err
	}
	all, err := s.shadows(ctx)
	if err != nil {
		return s.poison(ctx, s.cfg.wrap("finishing", err))
	}
	for _, sh := range all {
		if sh.note.Run != s.start.Run || !sh.note.Refill {
			continue
		}
		if err := s.refill(ctx, sh); err != nil {
			return s.poison(ctx, s.cfg.wrap("replacing the rows of "+sh.note.at().String(), err))
		}
	}
	clear(s.datasets) // what comes after is written to new shadows
	clear(s.places)
	save, err := s.lane.saveSQL(p, nil, true)
	if err != nil {
		return s.poison(ctx, err)
	}
	if err := s.commit(ctx, save...); err != nil {
		return err
	}
	if err := s.rollForward(ctx); err != nil {
		return s.poison(ctx, err)
	}
	return nil
}

// rollForward does what is left to do of a replacement that was decided.
func (s *Sink) rollForward(ctx context.Context) error {
	p, ok, err := s.committed(ctx, "finishing")
	if err != nil {
		return s.cfg.wrap("reading "+s.lane.progress().String(), err)
	}
	if !ok {
		return nil
	}
	if err := s.swap(ctx, p.Run); err != nil {
		return s.cfg.wrap("replacing tables", err)
	}
	save, err := s.lane.saveSQL(p, nil, false)
	if err != nil {
		return err
	}
	return s.commit(ctx, save...)
}

// swap puts the shadows of a run in the places of their tables, all at once, and then drops what is left over.
func (s *Sink) swap(ctx context.Context, run string) error {
	all, err := s.shadows(ctx)
	if err != nil {
		return err
	}
	var renames []string
	for _, sh := range all {
		if sh.note.Run != run || sh.note.Refill || !sh.exists {
			continue
		}
		at := sh.note.at()
		old, err := s.db.describe(ctx, at)
		if err != nil {
			return err
		}
		if old != nil {
			renames = append(renames, fmt.Sprintf("%s TO %s", at, s.retired(sh.note)))
		}
		renames = append(renames, fmt.Sprintf("%s TO %s", sh.at, at))
	}
	if len(renames) > 0 {
		if err := s.define(ctx, "RENAME TABLE "+strings.Join(renames, ", ")); err != nil {
			return err
		}
	}
	for _, sh := range all {
		if sh.note.Run != run {
			continue
		}
		if err := s.drop(ctx, sh); err != nil {
			return err
		}
	}
	return nil
}

var errReferenced = errors.New("other tables refer to it by foreign keys, and it has no primary key to replace its rows by")

// refill replaces the rows of a table that stays: those that are no longer there are deleted, others are updated in place, new ones are
// inserted, all in the transaction that is open.
func (s *Sink) refill(ctx context.Context, sh shadow) error {
	at := sh.note.at()
	t, err := s.db.describe(ctx, at)
	if err != nil || t == nil {
		return errors.Join(err, errIf(t == nil, fmt.Errorf("%s is no longer there", at)))
	}
	var names, sets, same, key []string
	for _, k := range t.keys {
		if k.primary {
			key = k.columns
		}
	}
	isKey := map[string]bool{}
	for _, k := range key {
		isKey[k] = true
		same = append(same, fmt.Sprintf("n.%[1]s = t.%[1]s", ident(k)))
	}
	for _, c := range t.columns {
		if c.generated != 0 {
			continue
		}
		names = append(names, ident(c.name))
		sets = append(sets, fmt.Sprintf("t.%[1]s = n.%[1]s", ident(c.name)))
	}
	list := strings.Join(names, ", ")
	script := []string{"DELETE FROM " + at.String(), fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s", at, list, list, sh.at)}
	if len(key) > 0 {
		on := strings.Join(same, " AND ")
		script = []string{
			fmt.Sprintf("DELETE t FROM %s t LEFT JOIN %s n ON %s WHERE n.%s IS NULL", at, sh.at, on, ident(key[0])),
			fmt.Sprintf("UPDATE %s t JOIN %s n ON %s SET %s", at, sh.at, on, strings.Join(sets, ", ")),
			fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s n LEFT JOIN %s t ON %s WHERE t.%s IS NULL", at, list,
				"n."+strings.Join(names, ", n."), sh.at, at, on, ident(key[0])),
		}
	}
	for _, sql := range script {
		err := s.db.write(ctx, "swap", append(s.opening(), sql)...)
		if e, ok := serverErrorOf(err); ok && foreignKey(e) && len(key) == 0 {
			return &connector.Error{
				Class: connector.ClassConfig, Code: "mysql.referenced", Doing: "replacing " + at.String(), Err: errReferenced,
				Hint: "give the table a primary key, or use --mode upsert",
			}
		}
		if err != nil {
			return err
		}
	}
	s.kept = true
	return nil
}

func errIf(cond bool, err error) error {
	if cond {
		return err
	}
	return nil
}
