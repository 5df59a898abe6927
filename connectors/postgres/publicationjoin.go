package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
)

// joining is what is known of the tables that the stream has, for the search for more. No two searches run at once.
type joining struct {
	known      map[uint32]string               // datasets, by OID
	partitions map[uint32]map[uint32]partition // of partitioned tables
	told       map[string]bool                 // what was said already
}

// look reads the selected tables and the publication.
func (s *Source) look(ctx context.Context) (*followFacts, error) {
	f, err := s.followFacts(ctx)
	if err == nil && f.publication == nil {
		err = &connector.Error{
			Class: connector.ClassPosition, Code: "postgres.publication.missing", Doing: "looking for new tables",
			Err: fmt.Errorf("the publication %q is gone", f.name), Hint: hintRestart,
		}
	}
	return f, err
}

// cover sees to it, before anything is read, that the publication has every table that the run knows: one may be new since the last run.
// Whoever copies a table waits for the transactions that wrote to it before it was published, see markBarrier.
func (s *Source) cover(ctx context.Context) error {
	tables, err := s.resolved(ctx)
	if err != nil {
		return err
	}
	f, err := s.look(ctx)
	if err != nil {
		return err
	}
	s.joining = joining{known: map[uint32]string{}, told: map[string]bool{}}
	var missing []*followTable
	for _, t := range f.tables {
		if !slices.ContainsFunc(tables, func(k *sourceTable) bool { return k.dataset == t.dataset() }) {
			continue
		}
		s.joining.known[t.OID] = t.dataset()
		if !f.publication.publishes(t.OID) {
			missing = append(missing, t)
		}
	}
	if err := s.watchPartitions(ctx, f); err != nil || len(missing) == 0 {
		return err
	}
	narrow := *f
	narrow.tables = missing
	if err := narrow.refusal(); err != nil {
		return err
	}
	added, err := s.publishMore(ctx, f, missing)
	if err != nil {
		return err
	}
	if len(added) == 0 {
		return &connector.Error{
			Class: connector.ClassTransient, Code: "postgres.join.wait", Doing: "adding tables to the publication",
			Dataset: missing[0].dataset(), Err: errors.New("a transaction that writes to it does not end"),
			Hint: "end that transaction, or run again later",
		}
	}
	s.env.Log.WarnContext(ctx, "tables were added to the publication: if they were followed before, somebody had taken them out, and "+
		"what was changed meanwhile is missing until they are copied again with --resnapshot", slog.String("datasets", datasetList(added)))
	return nil
}

func datasetList(tables []*followTable) string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.dataset()
	}
	return strings.Join(names, ", ")
}

// join returns tables that the selection means and that the stream does not have yet, published and resolved; resume has said which it
// has. What can't join is said once, with the statement that would let it. An error of class ClassPosition says that a table that the
// stream has is no longer published, or is another one.
func (s *Source) join(ctx context.Context) (added []*sourceTable, err error) {
	added, err = s.findMore(ctx)
	return added, s.cfg.wrap("looking for new tables", err)
}

func (s *Source) findMore(ctx context.Context) (added []*sourceTable, err error) {
	f, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	ready, err := s.newcomers(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, t := range ready {
		r, err := s.refresh(ctx, t.dataset())
		if err != nil {
			return added, err
		}
		s.joining.known[t.OID] = t.dataset()
		added = append(added, r)
	}
	return added, s.watchPartitions(ctx, f)
}

// newcomers publishes tables that are not known, and returns those that are published now.
func (s *Source) newcomers(ctx context.Context, f *followFacts) (ready []*followTable, err error) {
	var missing []*followTable
	for _, t := range f.tables {
		name, known := s.joining.known[t.OID]
		published := f.publication.publishes(t.OID)
		switch {
		case known && name == t.dataset() && !published:
			return nil, unpublishedError(t, f)
		case known && name == t.dataset():
			continue
		case !known && s.replaced(t):
			return nil, replacedError(t)
		case known:
			s.say(ctx, "renamed "+t.dataset(), "a table was renamed, and is followed as another dataset from now on",
				slog.String("dataset", t.dataset()), slog.String("before", name))
		}
		switch {
		case published && s.has(t.dataset()):
			s.joining.known[t.OID] = t.dataset() // it joined when its first change came
		case published:
			ready = append(ready, t)
		case s.fits(ctx, f, t):
			missing = append(missing, t)
		}
	}
	if len(missing) == 0 {
		return ready, nil
	}
	more, err := s.publishMore(ctx, f, missing)
	return append(ready, more...), err
}

// has reports whether a dataset is resolved.
func (s *Source) has(dataset string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.tables, func(t *sourceTable) bool { return t.dataset == dataset })
}

// replaced reports whether a known table had the name before.
func (s *Source) replaced(t *followTable) bool {
	for oid, name := range s.joining.known {
		if name == t.dataset() && oid != t.OID {
			return true
		}
	}
	return false
}

func unpublishedError(t *followTable, f *followFacts) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "postgres.publication.table", Doing: "reading the stream of changes", Dataset: t.dataset(),
		Err:  fmt.Errorf("somebody took the table out of the publication %q: what is changed since then is missing", f.name),
		Hint: "the next run publishes it again; copy it once more with it: --resnapshot " + t.dataset(),
	}
}

func replacedError(t *followTable) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "postgres.table.replaced", Doing: "reading the stream of changes", Dataset: t.dataset(),
		Err:  errors.New("the table was dropped or renamed, and there is another one of this name"),
		Hint: "the next run follows the new one; copy it with it: --resnapshot " + t.dataset(),
	}
}

// fits reports whether a table can be published, and says once why not.
func (s *Source) fits(ctx context.Context, f *followFacts, t *followTable) bool {
	why, fix := f.refused(t)
	switch {
	case t.unpublishable() != "":
		why = t.unpublishable()
	case why != "":
	case f.root(t) != "":
		why = "the publication has it under the name of " + f.root(t)
	case !f.publication.ours() || !f.publication.plain() || !t.Owned:
		why = fmt.Sprintf("%s does not change the publication %q of %s by itself", f.Role, f.name, f.publication.Owner)
		fix = []string{fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s;", ident(f.name), t.from())}
	}
	if why != "" {
		s.say(ctx, "not "+t.dataset(), "a new table can't be followed", slog.String("dataset", t.dataset()), slog.String("why", why),
			slog.String("fix", strings.Join(fix, " ")))
	}
	return why == ""
}

// say logs something that a person should know, once.
func (s *Source) say(ctx context.Context, what, text string, attrs ...slog.Attr) {
	if s.joining.told[what] {
		return
	}
	s.joining.told[what] = true
	s.env.Log.LogAttrs(ctx, slog.LevelWarn, text, attrs...) //nolint:sloglint // each caller's text is a constant
}

// publishMore adds tables to the publication, and returns those that were.
func (s *Source) publishMore(ctx context.Context, f *followFacts, tables []*followTable) ([]*followTable, error) {
	sql := fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", ident(f.name), tableList(tables))
	var server *pgconn.PgError
	err := s.borrow(ctx, func(pg *pgconn.PgConn) error {
		s.env.Roundtrip("publication")
		return command(ctx, pg, addTables(sql, tables, distributes(f.Version)))
	})
	if errors.As(err, &server) && server.Code == lockNotAvailable {
		s.say(ctx, "locked "+datasetList(tables), "a new table can't be followed yet: a transaction that writes to it does not end",
			slog.String("datasets", datasetList(tables)))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.env.Log.InfoContext(ctx, "tables were added to the publication", slog.String("datasets", datasetList(tables)))
	return tables, nil
}

const lockNotAvailable = "55P03"

// distributes reports whether the server's stream notices at once that a table was published, also within transactions that are open.
// Releases before May 2025 may leave out a table's changes for good where a transaction wrote to it before it was published, and goes on
// afterwards: no such transaction may be open then.
func distributes(version int) bool {
	fixed := map[int]int{14: 18, 15: 13, 16: 9, 17: 5}
	major, minor := version/10_000, version%10_000
	return major > 17 || minor >= fixed[major]
}

// addTables is the transaction that publishes tables. Where writers have to be kept out it waits for a moment only: while it waits,
// those that come later wait too.
func addTables(sql string, tables []*followTable, distributes bool) string {
	if distributes {
		return sql
	}
	return fmt.Sprintf("BEGIN READ WRITE; SET LOCAL lock_timeout = '1s'; LOCK TABLE %s IN SHARE MODE; %s; COMMIT", tableList(tables), sql)
}
