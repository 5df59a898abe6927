package mysql

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/chunked"
	"github.com/leatdata/leat/record"
)

// Source reads tables in chunks, or what changed since the last run by a cursor column, or the stream of all changes. PlanChunks and
// ReadChunk may be called concurrently with everything; each works on a connection of its own.
type Source struct {
	cfg  *SourceConfig
	env  connector.Env
	pool pool

	merge merging // what merging chunks with a stream needs

	inner  connector.Source // reads what Start resolved: chunked, incremental or the stream
	ready  chan struct{}    // of a source that is followed: there may be something to read; capacity 1
	closed bool

	mu     sync.Mutex // guards what follows
	db     *sql.DB    // control connections; opened when they are needed first
	srv    server
	tables []*sourceTable
}

var (
	_ connector.Source       = (*Source)(nil)
	_ connector.Positions    = (*Source)(nil)
	_ connector.Discoverer   = (*Source)(nil)
	_ connector.Snapshotter  = (*Source)(nil)
	_ connector.Conditional  = (*Source)(nil)
	_ connector.Checker      = (*Source)(nil)
	_ connector.Named        = (*Source)(nil)
	_ connector.Acknowledger = (*Source)(nil)
	_ connector.Notifier     = (*Source)(nil)

	_ chunked.BoundedPlanner = (*Source)(nil)
)

func newSource(cfg *SourceConfig, env connector.Env) *Source {
	s := &Source{cfg: cfg, env: env, pool: pool{cfg: cfg, env: env}}
	if cfg.Follow {
		s.ready = make(chan struct{}, 1)
	}
	return s
}

// server returns the pool of control connections, and what the server is.
func (s *Source) server(ctx context.Context) (*sql.DB, server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db != nil && s.srv.version != "" {
		return s.db, s.srv, nil
	}
	if s.db == nil {
		db, err := s.cfg.control(readSession(s.cfg.Timeout))
		if err != nil {
			return nil, server{}, err
		}
		s.db = db
	}
	s.env.Roundtrip("connect")
	srv, err := identify(ctx, s.db)
	if err != nil {
		return nil, server{}, s.cfg.wrap("asking the server what it is", err)
	}
	s.srv = srv
	return s.db, srv, nil
}

// Start implements connector.Source. It validates the position, then reads the catalogue.
func (s *Source) Start(ctx context.Context, start connector.SourceStart) error {
	if s.inner != nil || s.closed {
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "mysql.closed", Doing: "starting the source",
			Err: errors.New("a source value is started only once"),
		}
	}
	for _, p := range append([]record.Position{start.From.Position}, start.Cuts...) {
		if !p.Zero() {
			if _, err := s.Migrate(p); err != nil {
				return err
			}
		}
	}
	if s.cfg.Follow {
		s.inner = newFollower(s)
		return s.inner.Start(ctx, start) //nolint:wrapcheck // it speaks for itself
	}
	tables, err := s.resolved(ctx)
	if err != nil {
		return err
	}
	if len(start.Datasets) > 0 {
		tables = slices.DeleteFunc(slices.Clone(tables), func(t *sourceTable) bool { return !slices.Contains(start.Datasets, t.dataset) })
	}
	if s.cfg.Cursor != "" {
		s.inner = newIncremental(s, tables)
	} else {
		s.inner = chunked.New(s, chunkedDatasets(tables), s.env, chunked.Options{
			ChunkBytes: s.cfg.ChunkBytes, Readers: s.cfg.Parallel, Buffer: s.bufferBytes(),
		})
	}
	return s.inner.Start(ctx, start) //nolint:wrapcheck // both speak for themselves
}

// bufferBytes lets each reader hold a chunk, and one more, as far as the run has memory for it.
func (s *Source) bufferBytes() int64 {
	return s.env.Buffer(s.cfg.ChunkBytes * int64(s.cfg.Parallel+1))
}

func chunkedDatasets(tables []*sourceTable) []chunked.Dataset {
	out := make([]chunked.Dataset, len(tables))
	for i, t := range tables {
		out[i] = chunked.Dataset{Name: t.dataset, Schema: t.schema, Whole: len(t.key) == 0}
	}
	return out
}

// Read implements connector.Source.
func (s *Source) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if s.inner == nil || s.closed {
		return nil, &connector.Error{
			Class: connector.ClassPermanent, Code: "mysql.closed", Doing: "reading from MySQL",
			Err: errors.New("the source is closed or not started"),
		}
	}
	return s.inner.Read(ctx, want) //nolint:wrapcheck // errors were translated where they arose; io.EOF is the end
}

// Acknowledge implements connector.Acknowledger: what is followed may forget what it keeps up to p. The server keeps nothing for a reader
// of its log.
func (s *Source) Acknowledge(ctx context.Context, p record.Position) error {
	if f, ok := s.inner.(connector.Acknowledger); ok {
		return f.Acknowledge(ctx, p) //nolint:wrapcheck // it speaks for itself
	}
	return nil
}

// Ready implements connector.Notifier. Sources that are not followed never say anything.
func (s *Source) Ready() <-chan struct{} { return s.ready }

// Close implements connector.Source.
func (s *Source) Close(ctx context.Context) error {
	s.closed = true
	var errs []error
	if s.inner != nil {
		errs = append(errs, s.inner.Close(ctx))
	}
	s.pool.close(ctx)
	s.mu.Lock()
	db := s.db
	s.db = nil
	s.mu.Unlock()
	if db != nil {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

// Compare implements connector.Positions.
func (s *Source) Compare(a, b record.Position) (int, bool) {
	switch {
	case s.cfg.Follow:
		return compareFollowed(a, b)
	case s.cfg.Cursor != "":
		return chunked.CompareCursors[cursorState](a, b)
	}
	return chunked.Compare(a, b)
}

// Migrate implements connector.Positions.
func (s *Source) Migrate(p record.Position) (record.Position, error) {
	switch {
	case s.cfg.Follow:
		return migrateFollowed(p)
	case s.cfg.Cursor != "":
		_, err := chunked.DecodeCursors[cursorState](p)
		return p, err
	}
	return chunked.Migrate(p) //nolint:wrapcheck // speaks for itself
}

// URI implements connector.Named.
func (s *Source) URI(dataset string) string { return s.cfg.lineage(s.cfg.place(dataset)) }

// lineage is the OpenLineage name of a table, percent-encoded.
func (c *Connection) lineage(r relation) string {
	host, port := c.Host, c.Port
	if host == "" {
		host = "localhost"
	}
	if port == 0 {
		port = defaultPort
	}
	name := r.name
	if r.database != "" {
		name = r.database + "." + name
	}
	return (&url.URL{Scheme: "mysql", Host: net.JoinHostPort(host, strconv.Itoa(port)), Path: "/" + name}).String()
}

// borrow lends a connection to f, and takes it back where f succeeded.
func (s *Source) borrow(ctx context.Context, f func(w *wire) error) error {
	w, err := s.pool.take(ctx)
	if err != nil {
		return err
	}
	if err := f(w); err != nil {
		if w.broken && ctx.Err() != nil {
			s.interrupt(ctx, w)
		}
		s.pool.discard(ctx, w)
		return err
	}
	s.pool.put(ctx, w)
	return nil
}

// interruptTimeout bounds how long a cancelled read tells the server about it.
const interruptTimeout = time.Second

// interrupt ends what a connection is doing: the server would find out only when it has a row to send.
func (s *Source) interrupt(ctx context.Context, w *wire) {
	s.mu.Lock()
	db := s.db
	s.mu.Unlock()
	if db == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), interruptTimeout)
	defer cancel()
	if _, err := db.ExecContext(ctx, "KILL "+strconv.FormatUint(uint64(w.id), 10)); err != nil {
		s.env.Log.DebugContext(ctx, "ending a statement that was cancelled", slog.Any("error", err))
	}
}

// pool keeps connections for reading rows that are not in use. It may be used concurrently.
type pool struct {
	cfg *SourceConfig
	env connector.Env

	mu   sync.Mutex // guards what follows
	free []*wire
	over bool
}

var errSourceClosed = errors.New("the source is closed")

// take returns a connection that no one else uses.
func (p *pool) take(ctx context.Context) (*wire, error) {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return nil, errSourceClosed
	}
	if n := len(p.free); n > 0 {
		w := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return w, nil
	}
	p.mu.Unlock()
	p.env.Roundtrip("connect")
	conn, err := p.cfg.stream(ctx, readSession(p.cfg.Timeout))
	if err != nil {
		return nil, err
	}
	return newWire(conn), nil
}

// put gives a connection back that has no transaction open.
func (p *pool) put(ctx context.Context, w *wire) {
	p.mu.Lock()
	keep := !p.over && !w.broken
	if keep {
		p.free = append(p.free, w)
	}
	p.mu.Unlock()
	if !keep {
		p.discard(ctx, w)
	}
}

// discard closes a connection, and with it whatever it has open.
func (p *pool) discard(ctx context.Context, w *wire) {
	if err := w.close(); err != nil {
		p.env.Log.DebugContext(ctx, "closing a MySQL connection", slog.Any("error", err))
	}
}

func (p *pool) close(ctx context.Context) {
	p.mu.Lock()
	free := p.free
	p.free, p.over = nil, true
	p.mu.Unlock()
	for _, w := range free {
		p.discard(ctx, w)
	}
}
