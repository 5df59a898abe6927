package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgoutput"
	"github.com/leatdata/leat/record"
)

// Protocol versions of pgoutput, by the server's major version.
const (
	protocolBlocks   = 2 // PostgreSQL 14: transactions that are still open
	protocolPrepared = 3 // PostgreSQL 15
	protocolParallel = 4 // PostgreSQL 16
)

// protocol is the version to ask for.
func (w *wire) protocol() int {
	switch w.version {
	case 14:
		return protocolBlocks
	case 15:
		return protocolPrepared
	}
	return protocolParallel
}

// originVersion is the first major version that leaves out changes by their origin.
const originVersion = 16

// Start implements connector.Source.
func (f *stream) Start(ctx context.Context, start connector.SourceStart) error {
	from := start.From.Position
	if from.Zero() {
		var err error
		if from, err = f.s.Anchor(ctx); err != nil {
			return err
		}
	}
	p, err := decodeStream(from)
	if err != nil {
		return err
	}
	if p, err = f.s.resume(ctx, p); err != nil {
		return err
	}
	if err := f.choose(ctx, start.Datasets); err != nil {
		return err
	}
	f.code, f.at, f.idle = newPositionCode(p.origin), txnEnd{lsn: p.LSN, xid: p.XID}, p.LSN
	if err := f.setCuts(start.Cuts); err != nil {
		return err
	}
	if f.wire, err = f.connect(ctx, p.LSN); err != nil {
		return err
	}
	f.newest = f.wire.nextXID
	f.received.Store(uint64(p.LSN))
	f.delivered.Store(uint64(p.LSN))
	prefix := fmt.Sprintf("leat-open-%s-", nameHash(p.System, p.Slot))
	f.spools = newSpools(f.s.cfg.SpillDir, prefix, f.s.env.Buffer(f.s.cfg.SpillBytes))
	if err := f.spools.sweep(); err != nil {
		f.s.env.Log.WarnContext(ctx, "removing files that an earlier process left behind", slog.Any("error", err))
	}
	return f.launch(ctx)
}

// choose takes the tables to read.
func (f *stream) choose(ctx context.Context, names []string) error {
	tables, err := f.s.resolved(ctx)
	if err != nil {
		return err
	}
	var chosen []string
	for _, t := range tables {
		if len(names) > 0 && !slices.Contains(names, t.dataset) {
			f.excluded[t.dataset] = true
			continue
		}
		f.datasets[t.dataset] = &streamDataset{table: t, schema: t.schema}
		chosen = append(chosen, t.dataset)
	}
	return f.s.markBarrier(ctx, chosen...)
}

func (f *stream) setCuts(cuts []record.Position) error {
	for _, c := range cuts {
		at, err := decodeStream(c)
		if err != nil {
			return err
		}
		if at.LSN > f.at.lsn {
			f.cuts = append(f.cuts, at.LSN)
		}
	}
	slices.Sort(f.cuts)
	f.cuts = slices.Compact(f.cuts)
	return nil
}

// launch starts the goroutines.
func (f *stream) launch(ctx context.Context) error {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	for _, serve := range []func(context.Context){f.pump, f.report, f.tend} {
		f.work.Add(1)
		err := f.s.env.Go(func(ctx context.Context) {
			defer f.work.Done()
			defer context.AfterFunc(ctx, stop)()
			serve(run)
		})
		if err != nil {
			f.work.Done()
			stop()
			return fmt.Errorf("starting the stream of changes: %w", err)
		}
	}
	return nil
}

// How long a slot that somebody uses is waited for, and how often it is tried.
const (
	busyPatience = time.Minute
	firstTry     = 100 * time.Millisecond
	lastTry      = 2 * time.Second
)

// connect opens the connection and starts the stream on it.
func (f *stream) connect(ctx context.Context, at lsn) (*wire, error) {
	w, err := f.s.openWire(ctx)
	if err != nil {
		return nil, err
	}
	if w.system != f.code.origin.System {
		err = &connector.Error{
			Class: connector.ClassTransient, Code: "postgres.system", Doing: "starting the stream of changes",
			Err:  fmt.Errorf("the replication connection reached the server %s, other connections %s", w.system, f.code.origin.System),
			Hint: "all connections have to reach the same server: name one host, or set target_session_attrs=primary",
		}
	} else {
		err = f.engage(ctx, w, at)
	}
	if err != nil {
		_ = w.conn.Close()
		return nil, err
	}
	return w, nil
}

// startSQL is the command that starts the stream.
func (f *stream) startSQL(w *wire, at lsn) string {
	cfg := f.s.cfg
	options := []string{
		fmt.Sprintf("proto_version '%d'", w.protocol()),
		"publication_names " + quoted(ident(f.s.publicationName())),
	}
	if f.binary = f.inBinary(); f.binary {
		options = append(options, "binary 'true'")
	}
	own := cfg.PublishOrigin == originNone && w.version >= originVersion
	if cfg.Streaming != optionOff && (own || cfg.PublishOrigin != originNone) {
		options = append(options, "streaming 'on'") // without own, the origin of an open transaction is not known
	}
	if own {
		options = append(options, "origin 'none'")
	}
	if cfg.Heartbeat > 0 {
		options = append(options, "messages 'true'")
	}
	return fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (%s)", ident(f.s.slotName()), at, strings.Join(options, ", "))
}

// quoted is a text of the replication commands: quotes are doubled, and nothing else has a meaning.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// inBinary reports whether values may come in binary.
func (f *stream) inBinary() bool {
	switch f.s.cfg.Binary {
	case optionOff:
		return false
	case optionOn:
		return true
	}
	for _, d := range f.datasets {
		for _, c := range d.table.cols {
			if !c.inBinary() {
				return false
			}
		}
	}
	return true
}

// engage starts the stream. A slot that is in use may be so by an own session that the server has not given up yet.
func (f *stream) engage(ctx context.Context, w *wire, at lsn) error {
	sql := f.startSQL(w, at)
	var who holderOfSlot
	deadline := time.Now().Add(busyPatience)
	for wait := firstTry; ; wait = min(2*wait, lastTry) {
		f.s.env.Roundtrip("stream")
		err := w.replicate(ctx, sql)
		if err == nil {
			return nil
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != slotInUse {
			return f.streamError("starting the stream of changes", err)
		}
		seen, lookErr := f.holder(ctx)
		if lookErr != nil {
			return lookErr
		}
		alive := who.pid == seen.pid && who.answered != "" && who.answered != seen.answered
		if who.pid != seen.pid || who.answered == "" {
			who = seen
		}
		late := time.Now().After(deadline)
		switch {
		case seen.pid == 0 && late:
			return f.streamError("starting the stream of changes", err)
		case seen.pid != 0 && (!seen.ours || alive || late):
			return f.busy(seen, alive)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return f.s.cfg.wrap("waiting for the slot", ctx.Err())
		}
	}
}

// slotInUse is the server's code for a slot that somebody uses.
const slotInUse = "55006"

// holderOfSlot is who uses a slot.
type holderOfSlot struct {
	pid      int64 // 0: nobody any more
	text     string
	ours     bool   // it has our name: it may be a session of our own that is dead
	answered string // when it said something last; empty: not known
}

func (f *stream) holder(ctx context.Context) (h holderOfSlot, err error) {
	err = f.s.borrow(ctx, func(pg *pgconn.PgConn) error {
		f.s.env.Roundtrip("holder")
		rows, err := ask(ctx, pg, `SELECT s.active_pid, `+holderSQL+`, a.application_name, r.reply_time
			FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
			LEFT JOIN pg_catalog.pg_stat_replication r ON r.pid = s.active_pid
			WHERE s.slot_name = $1 AND s.active_pid IS NOT NULL`, f.s.slotName())
		if err != nil || len(rows) == 0 {
			return err
		}
		h = holderOfSlot{pid: toInt(rows[0][0]), text: string(rows[0][1]), ours: string(rows[0][2]) == f.s.cfg.ApplicationName}
		h.answered = string(rows[0][3])
		if h.text == "" {
			h.text = "process " + strconv.FormatInt(h.pid, 10)
		}
		return nil
	})
	return h, f.s.cfg.wrap("asking who uses the slot", err)
}

// busy is the error for a slot that somebody uses.
func (f *stream) busy(h holderOfSlot, alive bool) error {
	e := &connector.Error{
		Class: connector.ClassPermanent, Code: "postgres.slot.active",
		Doing: fmt.Sprintf("starting the stream of slot %q", f.s.slotName()), Err: fmt.Errorf("%s uses it", h.text),
		Hint: "a slot is for one reader: stop that one, or name another slot: slot=NAME",
	}
	if h.ours && !alive {
		e.Class = connector.ClassTransient
		e.Err = fmt.Errorf("%s still uses it after %s", h.text, busyPatience)
		e.Hint = fmt.Sprintf("if that is what a crash left behind: SELECT pg_terminate_backend(%d);", h.pid)
	}
	return e
}

// streamError translates what ends a stream.
func (f *stream) streamError(doing string, err error) error {
	if errors.Is(err, errEnded) {
		return &connector.Error{
			Class: connector.ClassTransient, Code: "postgres.stream", Doing: doing, Err: err,
			Hint: "the server was stopped, or gave the stream up; its log says why",
		}
	}
	wrapped := f.s.cfg.wrap(doing, err)
	pg, isServer := errors.AsType[*pgconn.PgError](err)
	e, ok := errors.AsType[*connector.Error](wrapped)
	if !ok || !isServer {
		return wrapped
	}
	gap := fmt.Sprintf("what was changed behind %s can't be had from it", f.at.lsn)
	switch {
	case pg.Code == "42704" && strings.Contains(pg.Message, "publication"):
		e.Class, e.Code, e.Hint = connector.ClassPosition, "postgres.publication.missing", hintRestart
	case pg.Code == "42704", pg.Code == "58P01", pg.Code == "55000" && strings.Contains(pg.Message, "slot"):
		e.Class, e.Code, e.Hint = connector.ClassPosition, "postgres.slot.lost", hintRestart
		e.Err = fmt.Errorf("%w; %s", e.Err, gap)
	case pg.Code == "57P01", pg.Code == "57P02", pg.Code == "57P03":
		e.Class = connector.ClassTransient
	case pg.Code == "XX000" && strings.Contains(pg.Message, "could not map file"):
		// The server loses track of tables that are truncated while a slot is made, until the stream is started once more; and, up to
		// 18 and for good, of one whose columns change in a savepoint that is rolled back and then again, in a transaction that it
		// sends while it is open.
		e.Class, e.Code = connector.ClassTransient, "postgres.decoding"
		e.Hint = "if this comes again and again: streaming=off takes only whole transactions from the server"
	}
	return wrapped
}

// rowError explains a change that can't be taken.
func (f *stream) rowError(d *streamDataset, err error) error {
	e := &connector.Error{
		Class: connector.ClassPermanent, Code: "postgres.stream", Doing: "reading the stream of changes", Err: err,
		Dataset: d.table.dataset,
	}
	switch {
	case errors.Is(err, pgoutput.ErrBinary) && f.s.cfg.Binary == optionOn:
		e.Class, e.Code, e.Hint = connector.ClassConfig, "postgres.binary", "binary=auto, or off, reads such columns as text"
	case errors.Is(err, pgoutput.ErrBinary):
		e.Class, e.Code = connector.ClassTransient, "postgres.binary" // the next start sees the column, and reads all as text
		e.Hint = "binary=off reads all columns as text"
	case errors.Is(err, pgoutput.ErrKey):
		e.Class, e.Code = connector.ClassConfig, "postgres.key"
		e.Hint = "ALTER TABLE " + d.table.rel.String() + " REPLICA IDENTITY FULL; or leave out the option key"
	}
	return e
}
