package mysql

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/mybinlog"
	"github.com/leatdata/leat/record"
)

// Times of the connection that the log comes on.
const (
	firstEvent = 30 * time.Second // for the server to find the place
	deadAfter  = 4                // heartbeats that did not come: the connection is given up
	leastDead  = 30 * time.Second
)

// logEnd is where a server's log ends at this moment.
type logEnd struct {
	place place
	gtids *mybinlog.GTIDSet // MySQL: what is committed, not what the log has; empty without GTIDs
	gtid  bool              // the server has GTIDs
	name  string            // who the server is, as positions have it
}

// statusSQL is the statement for the end of the log, which was renamed.
func (s server) statusSQL() string {
	if !s.mariadb && s.number >= 80200 {
		return "SHOW BINARY LOG STATUS"
	}
	return "SHOW MASTER STATUS"
}

// readLogEnd asks a server where its log ends.
func readLogEnd(ctx context.Context, q querier, srv server) (logEnd, error) {
	end := logEnd{}
	rows, err := ask(ctx, q, srv.statusSQL())
	if err != nil {
		return end, err
	}
	if len(rows) == 0 {
		return end, &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.log_bin", Doing: "looking for the binary log",
			Err:  errors.New("the server writes none"),
			Hint: "start the server with log_bin = binlog and server_id = 1 in its configuration",
		}
	}
	end.place = place{File: string(rows[0][0]), Pos: toUint(rows[0][1])}
	sql := "SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed, @@server_uuid"
	if srv.mariadb {
		sql = "SELECT 'ON', @@GLOBAL.gtid_binlog_pos, CONCAT(@@server_id, '@', @@hostname, ':', @@port)"
	}
	if rows, err = ask(ctx, q, sql); err != nil {
		return end, err
	}
	end.gtid, end.name = string(rows[0][0]) == "ON", string(rows[0][2])
	end.gtids = mybinlog.NewGTIDSet(srv.flavor())
	if end.gtid {
		if end.gtids, err = mybinlog.ParseGTIDSet(srv.flavor(), string(rows[0][1])); err != nil {
			return end, err //nolint:wrapcheck // it says what is wrong with which text
		}
	}
	return end, nil
}

// flavor is whose log the server has.
func (s server) flavor() mybinlog.Flavor {
	if s.mariadb {
		return mybinlog.MariaDB
	}
	return mybinlog.MySQL
}

// position is the end in the form of positions.
func (e logEnd) position(srv server) streamPosition {
	return streamPosition{
		Flavor: srv.flavor().String(), GTIDs: e.gtids.String(), ByPlace: !e.gtid, place: e.place, Server: e.name,
	}
}

// lookAtLog asks the server where its log ends.
func (s *Source) lookAtLog(ctx context.Context) (logEnd, server, error) {
	db, srv, err := s.server(ctx)
	if err != nil {
		return logEnd{}, srv, err
	}
	s.env.Roundtrip("log")
	end, err := readLogEnd(ctx, db, srv)
	return end, srv, s.cfg.wrap("asking where the binary log ends", err)
}

// Tip implements connector.Tip.
func (s *Source) Tip(ctx context.Context) (record.Position, error) {
	end, srv, err := s.lookAtLog(ctx)
	if err != nil {
		return record.Position{}, err
	}
	if srv.mariadb || !end.gtid {
		return end.position(srv).encode(), nil
	}
	// The set lacks what is in the log and not committed yet, and the place is only of use with all that comes before it.
	p := end.position(srv)
	p.place = place{}
	return p.encode(), nil
}

// anchorTries is how often the catalogue is read for tables that stay as they are meanwhile.
const anchorTries = 20

// Anchor implements connector.Anchor: the end of the log, and what the tables are like there. The server keeps nothing for a reader.
func (s *Source) Anchor(ctx context.Context) (record.Position, error) {
	if !s.cfg.Follow {
		return record.Position{}, nil
	}
	f := newStream(s)
	if err := f.attach(ctx); err != nil {
		return record.Position{}, err
	}
	for range anchorTries { // waiting for prepared transactions is one of them
		before, err := f.catalogue(ctx)
		if err != nil {
			return record.Position{}, err
		}
		end, srv, err := s.lookAtLog(ctx)
		if err != nil {
			return record.Position{}, err
		}
		after, err := f.catalogue(ctx)
		if err != nil {
			return record.Position{}, err
		}
		if string(before.encode()) == string(after.encode()) {
			if waits, err := f.awaitPrepared(ctx); waits || err != nil {
				if err != nil {
					return record.Position{}, err
				}
				continue
			}
			p := end.position(srv)
			defs := after.definitions()
			p.Tables = &defs
			return p.encode(), nil
		}
	}
	return record.Position{}, &connector.Error{
		Class: connector.ClassTransient, Code: "mysql.schema_changed", Doing: "beginning to follow the tables",
		Err: errors.New("they are being changed all the time"), Hint: "run again when nobody alters them",
	}
}

// attach takes the control connections.
func (f *stream) attach(ctx context.Context) error {
	db, srv, err := f.s.server(ctx)
	if err != nil {
		return err
	}
	f.db, f.srv = db, srv
	return nil
}

// catalogue reads the definitions of all tables that are selected.
func (f *stream) catalogue(ctx context.Context) (*history, error) {
	tables, err := f.s.resolved(ctx)
	if err != nil {
		return nil, err
	}
	h := newHistory()
	for _, t := range tables {
		def, err := f.lookUp(ctx, t.rel)
		if err != nil {
			return nil, err
		}
		if def != nil {
			h.tables[t.dataset] = def
		}
	}
	return h, nil
}

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
	if err := f.attach(ctx); err != nil {
		return err
	}
	end, srv, err := f.s.lookAtLog(ctx)
	if err != nil {
		return err
	}
	if err := f.resume(ctx, p, end, srv); err != nil {
		return err
	}
	if f.collations, err = readCollations(ctx, f.db, srv); err != nil {
		return f.s.cfg.wrap("reading the collations of the server", err)
	}
	f.code = newPositionCode(srv.flavor(), end.name)
	f.code.byPlace, f.byPlace = p.ByPlace, p.ByPlace
	f.caughtUp = end.place
	f.now, f.delivered = f.place, f.place // where it begins was delivered once
	if err := f.choose(ctx, p, start.Datasets); err != nil {
		return err
	}
	if err := f.setCuts(start.Cuts); err != nil {
		return err
	}
	f.s.merge.begin(f.mark(), f.cuts, srv, end)
	if f.wire, err = f.connect(ctx, p); err != nil {
		return err
	}
	return f.launch(ctx)
}

// resume checks that the log has all that follows a position.
func (f *stream) resume(ctx context.Context, p streamPosition, end logEnd, srv server) (err error) {
	gap := func(err error, hint string) error {
		return &connector.Error{
			Class: connector.ClassPosition, Code: "mysql.position", Doing: "resuming the stream of changes", Err: err, Hint: hint,
		}
	}
	const restart = "start over with --restart, which copies the tables again"
	switch {
	case p.flavor() != srv.flavor():
		return gap(fmt.Errorf("the position is one of %s, and the server is %s", p.Flavor, srv), restart)
	case p.ByPlace && p.Server != end.name:
		return gap(fmt.Errorf("without GTIDs a position is of use on its own server alone: %s, and this is %s", p.Server, end.name),
			"connect to that server, or "+restart)
	case !p.ByPlace && !end.gtid:
		return gap(errors.New("the position is one of GTIDs, and the server has none"), "SET GLOBAL gtid_mode = ON, or "+restart)
	}
	if f.gtids, err = p.set(); err != nil {
		return err
	}
	if p.Server == end.name {
		f.place = p.place
	}
	if p.ByPlace {
		return f.resumeByPlace(ctx, p, end, gap, restart)
	}
	if srv.mariadb {
		return nil // the server itself looks for the place, and says what is missing
	}
	return f.resumeByGTID(ctx, end, gap, restart)
}

// resumeByPlace checks that the file is still there.
func (f *stream) resumeByPlace(
	ctx context.Context, p streamPosition, end logEnd, gap func(error, string) error, restart string,
) error {
	rows, err := ask(ctx, f.db, "SHOW BINARY LOGS")
	if err != nil {
		return f.s.cfg.wrap("asking which logs there are", err)
	}
	at := slices.IndexFunc(rows, func(r [][]byte) bool { return string(r[0]) == p.File })
	switch {
	case at < 0 && len(rows) > 0:
		return gap(fmt.Errorf("the log %s was purged: the oldest one that is left is %s", p.File, rows[0][0]), restart)
	case at < 0 || toUint(rows[at][1]) < p.Pos:
		return gap(fmt.Errorf("the log ends at %s, in front of %s: the server was set back", end.place, p.place), restart)
	}
	return nil
}

// resumeByGTID checks that nothing was purged that the position lacks, and that the server has what it includes.
func (f *stream) resumeByGTID(ctx context.Context, end logEnd, gap func(error, string) error, restart string) error {
	rows, err := ask(ctx, f.db, "SELECT @@GLOBAL.gtid_purged")
	if err != nil {
		return f.s.cfg.wrap("asking which transactions were purged", err)
	}
	purged, err := mybinlog.ParseGTIDSet(mybinlog.MySQL, string(rows[0][0]))
	if err != nil {
		return err //nolint:wrapcheck // it says what is wrong with which text
	}
	if lost := purged.Minus(f.gtids, 1); len(lost) > 0 {
		return gap(fmt.Errorf("the logs with transactions that were not read were purged, among them %s", lost[0]), restart)
	}
	ahead := f.gtids.Minus(end.gtids, 1)
	if len(ahead) == 0 {
		return nil
	}
	const lacks = "the server lacks transactions that were read, among them %s: it was set back, or is another one"
	e := gap(fmt.Errorf(lacks, ahead[0]), restart)
	replica := "SHOW REPLICA STATUS"
	if f.srv.number < 80022 {
		replica = "SHOW SLAVE STATUS"
	}
	if rows, err := ask(ctx, f.db, replica); err == nil && len(rows) > 0 {
		return &connector.Error{
			Class: connector.ClassTransient, Code: "mysql.behind", Doing: "resuming the stream of changes",
			Err: fmt.Errorf("the server is a replica that has not come to %s yet", ahead[0]), Hint: "wait until it has caught up",
		}
	}
	return e
}

// choose takes the tables to read, and what they are like at the position.
func (f *stream) choose(ctx context.Context, p streamPosition, names []string) error {
	tables, err := f.s.resolved(ctx)
	if err != nil {
		return err
	}
	f.history.load(p.Tables, f.s.cfg.place)
	selected := map[string]bool{}
	for _, t := range tables {
		if len(names) > 0 && !slices.Contains(names, t.dataset) {
			f.excluded[t.dataset] = true
			continue
		}
		selected[t.dataset] = true
		d := &streamDataset{name: t.dataset, rel: t.rel, schema: t.schema}
		f.datasets[t.dataset] = d
		if f.history.tables[t.dataset] != nil {
			continue
		}
		if p.Tables != nil {
			d.fresh = true
			continue
		}
		def, err := f.lookUp(ctx, t.rel)
		if err != nil {
			return err
		}
		if def != nil {
			f.history.tables[t.dataset] = def
		}
	}
	for name, def := range f.history.tables {
		switch {
		case selected[name]:
		case f.excluded[name] || (len(names) > 0 && !slices.Contains(names, name)) || !f.s.cfg.means(def.rel):
			delete(f.history.tables, name)
		default: // it was dropped or renamed since: the stream will tell
			f.datasets[name] = &streamDataset{name: name, rel: def.rel}
		}
	}
	for _, d := range f.names() {
		if def := f.history.tables[d.name]; def != nil {
			if err := f.reshape(ctx, d, def); err != nil {
				return err
			}
			d.part = nil
		}
	}
	f.group = group{} // nothing is told of what was so before
	f.code.tables = f.history.encode()
	return nil
}

func (f *stream) setCuts(cuts []record.Position) error {
	for _, c := range cuts {
		at, err := decodeMark(c)
		if err != nil {
			return err
		}
		if order, ok := f.mark().compare(at); !ok || order < 0 {
			f.cuts = append(f.cuts, at)
		}
	}
	return nil
}

// serverID is the number of this reader among the replicas of a server.
func (c *SourceConfig) serverID(pipeline string) uint32 {
	if c.ServerID != 0 {
		return uint32(c.ServerID)
	}
	const low, span = 1 << 30, 1 << 30 // far from those that people give
	sum := sha256.Sum256([]byte("leat " + pipeline))
	return low + binary.LittleEndian.Uint32(sum[:])%span
}

// readerUUID is the same for all sessions of a pipeline: a server gives up a session of the same one that it has not noticed to be dead.
func (c *SourceConfig) readerUUID(pipeline string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("leat %s %d", pipeline, c.serverID(pipeline))))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// connect opens the connection and asks for the log behind the position. It comes back once the server has found the place.
func (f *stream) connect(ctx context.Context, p streamPosition) (*wire, error) {
	f.s.env.Roundtrip("stream")
	conn, err := f.s.cfg.stream(ctx, readSession(0))
	if err != nil {
		return nil, err
	}
	w := newWire(conn)
	stop := context.AfterFunc(ctx, func() { _ = w.net.SetDeadline(time.Unix(1, 0)) })
	err = f.dump(w, p)
	if err == nil {
		err = f.first(ctx, w)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		w.broken = true
		_ = w.close()
		return nil, f.streamError("starting the stream of changes", err)
	}
	return w, w.net.SetDeadline(time.Time{}) //nolint:wrapcheck // it can't fail
}

// dump sends what a replica sends.
func (f *stream) dump(w *wire, p streamPosition) error {
	cfg := f.s.cfg
	beat := cfg.Heartbeat
	if beat <= 0 {
		beat = defaultHeartbeat
	}
	id, uuid := cfg.serverID(f.s.env.Pipeline), cfg.readerUUID(f.s.env.Pipeline)
	settings := []string{
		"SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE'",
		fmt.Sprintf("SET @master_heartbeat_period = %[1]d, @source_heartbeat_period = %[1]d", beat.Nanoseconds()),
		fmt.Sprintf("SET @slave_uuid = '%[1]s', @replica_uuid = '%[1]s'", uuid),
	}
	mariaGTID := f.srv.mariadb && !p.ByPlace
	if f.srv.mariadb {
		settings = append(settings, "SET @mariadb_slave_capability = 4")
	}
	if mariaGTID {
		settings = append(settings, "SET @slave_connect_state = "+literal(p.GTIDs), "SET @slave_gtid_strict_mode = 0")
	}
	for _, sql := range settings {
		if _, err := w.conn.Execute(sql); err != nil {
			return err //nolint:wrapcheck // callers say what was being done
		}
	}
	if err := f.register(w, id); err != nil {
		return err
	}
	le := binary.LittleEndian
	if !f.srv.mariadb && !p.ByPlace {
		set := f.gtids.Encode()
		body := le.AppendUint32(le.AppendUint16(nil, 0), id)
		body = le.AppendUint64(le.AppendUint32(body, 0), 4) // no file: the server looks for it
		return w.send(mysql.COM_BINLOG_DUMP_GTID, append(le.AppendUint32(body, uint32(len(set))), set...))
	}
	at, flags := place{Pos: 4}, uint16(0)
	if p.ByPlace {
		at = p.place
	}
	if at.Pos > 1<<32-1 {
		return fmt.Errorf("the place %s is behind what a reader without GTIDs can ask for", at)
	}
	if f.srv.mariadb && f.srv.number >= 110400 {
		flags = 2 // statements of rows, too: without them places can't be counted, which the events no longer have
	}
	body := le.AppendUint32(nil, uint32(at.Pos))
	body = le.AppendUint32(le.AppendUint16(body, flags), id)
	file := at.File
	if mariaGTID {
		file = ""
	}
	return w.send(mysql.COM_BINLOG_DUMP, append(body, file...))
}

// register makes the server list the reader among its replicas.
func (*stream) register(w *wire, id uint32) error {
	host, _ := os.Hostname() // it is for people
	host = host[:min(len(host), 60)]
	le := binary.LittleEndian
	body := le.AppendUint32(nil, id)
	body = append(append(body, byte(len(host))), host...)
	body = append(body, 0, 0)               // neither user nor password
	body = le.AppendUint16(body, 0)         // port
	body = append(body, make([]byte, 8)...) // rank, and the primary's number
	if err := w.send(mysql.COM_REGISTER_SLAVE, body); err != nil {
		return err
	}
	p, err := w.packet()
	if err == nil && p[0] == headErr {
		err = parseError(p)
	}
	return err
}

// first waits for the first event, which names the file: then the server has found the place.
func (f *stream) first(ctx context.Context, w *wire) error {
	if err := w.net.SetReadDeadline(time.Now().Add(firstEvent)); err != nil {
		return err //nolint:wrapcheck // it can't fail
	}
	p, err := w.packet()
	if err != nil {
		return err
	}
	return f.receive(ctx, p)
}

// errEnded says that the server ended the stream by itself.
var errEnded = errors.New("the server ended the stream")

// receive puts an event of a packet into the inbox.
func (f *stream) receive(ctx context.Context, p []byte) error {
	switch p[0] {
	case headOK:
		return f.in.put(ctx, p[1:])
	case headErr:
		return parseError(p)
	}
	return errEnded
}

// launch starts the goroutine that reads from the connection.
func (f *stream) launch(ctx context.Context) error {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	f.work.Add(1)
	err := f.s.env.Go(func(ctx context.Context) {
		defer f.work.Done()
		defer context.AfterFunc(ctx, stop)()
		defer context.AfterFunc(run, func() { _ = f.wire.net.SetDeadline(time.Unix(1, 0)) })()
		f.in.end(f.pump(run))
	})
	if err != nil {
		f.work.Done()
		stop()
		return fmt.Errorf("starting the stream of changes: %w", err)
	}
	return nil
}

// pump reads from the connection into the inbox. A server that is silent for longer than several heartbeats is given up.
func (f *stream) pump(ctx context.Context) error {
	patience := max(leastDead, deadAfter*max(f.s.cfg.Heartbeat, defaultHeartbeat))
	var until time.Time
	for ctx.Err() == nil {
		if now := time.Now(); until.Sub(now) < patience-time.Second {
			until = now.Add(patience)
			if err := f.wire.net.SetReadDeadline(until); err != nil {
				return err //nolint:wrapcheck // Read says what was being done
			}
			if ctx.Err() != nil {
				break // its own deadline was moved
			}
		}
		p, err := f.wire.packet()
		f.heard.Store(time.Now().UnixNano())
		if err == nil {
			err = f.receive(ctx, p)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err() //nolint:wrapcheck // Read says what was being done
}

// streamError translates what ends a stream.
func (f *stream) streamError(doing string, err error) error {
	if errors.Is(err, errEnded) {
		return &connector.Error{
			Class: connector.ClassTransient, Code: "mysql.stream", Doing: doing, Err: err,
			Hint: "the server was stopped, or gave the stream up; its log says why",
		}
	}
	var e *connector.Error
	if errors.As(err, &e) {
		if e.Doing == "" {
			e.Doing = doing
		}
		return err
	}
	wrapped := f.s.cfg.wrap(doing, err)
	said, ok := serverErrorOf(err)
	if !ok || !errors.As(wrapped, &e) {
		if errors.Is(err, mybinlog.ErrShort) {
			err = fmt.Errorf("at %s: %w", f.now, err)
			return &connector.Error{Class: connector.ClassPermanent, Code: "mysql.log", Doing: doing, Err: err}
		}
		return wrapped
	}
	if said.number != errPurged {
		return wrapped
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(said.message), w) })
	}
	switch {
	case has("same server_uuid", "same server_id", "same server-id"):
		e.Class, e.Code = connector.ClassPermanent, "mysql.server_id"
		e.Hint = "another reader has the same number: server_id=NUMBER gives this one another"
	case has("max_allowed_packet", "max allowed packet"):
		e.Class, e.Code = connector.ClassPermanent, "mysql.packet"
		e.Hint = "SET GLOBAL max_allowed_packet = 1073741824"
	case has("purged", "could not find", "not in the master's binlog", "could not open", "missing from", "no longer"):
		e.Class, e.Code = connector.ClassPosition, "mysql.log.purged"
		e.Hint = "start over with --restart, which copies the tables again"
	default:
		e.Class, e.Hint = connector.ClassPosition, "start over with --restart, which copies the tables again"
	}
	return wrapped
}
