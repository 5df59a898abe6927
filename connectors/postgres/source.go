package postgres

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

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

	merge   merging // what merging chunks with a stream needs
	joining joining // what the search for new tables knows

	inner  connector.Source // reads what Start resolved: chunked, incremental or the stream
	coded  []string         // datasets whose rows are handed out as the server sends them
	ready  chan struct{}    // of a source that is followed: there may be something to read; capacity 1
	closed bool

	mu      sync.Mutex // guards what follows
	tables  []*sourceTable
	holders map[string]*holder
}

var (
	_ connector.Source      = (*Source)(nil)
	_ connector.Positions   = (*Source)(nil)
	_ connector.Discoverer  = (*Source)(nil)
	_ connector.Snapshotter = (*Source)(nil)
	_ connector.Checker     = (*Source)(nil)
	_ connector.Named       = (*Source)(nil)

	_ connector.Acknowledger = (*Source)(nil)
	_ connector.Notifier     = (*Source)(nil)

	_ chunked.BoundedPlanner = (*Source)(nil)

	_ connector.EncodedSource = (*Source)(nil)
)

func newSource(cfg *SourceConfig, env connector.Env) *Source {
	s := &Source{cfg: cfg, env: env, pool: pool{cfg: cfg, env: env}, holders: map[string]*holder{}}
	if cfg.Follow {
		s.ready = make(chan struct{}, 1)
	}
	return s
}

// Start implements connector.Source. It validates the position, then reads the catalogue.
func (s *Source) Start(ctx context.Context, start connector.SourceStart) error {
	if s.inner != nil || s.closed {
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "postgres.closed", Doing: "starting the source",
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
	s.coded = start.Encoded
	if s.cfg.Follow {
		f := newStream(s)
		s.inner = f
		return f.Start(ctx, start)
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
		out[i] = chunked.Dataset{Name: t.dataset, Schema: t.schema, Whole: t.mode != byKey}
	}
	return out
}

// Read implements connector.Source.
func (s *Source) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if s.inner == nil || s.closed {
		return nil, &connector.Error{
			Class: connector.ClassPermanent, Code: "postgres.closed", Doing: "reading from PostgreSQL",
			Err: errors.New("the source is closed or not started"),
		}
	}
	return s.inner.Read(ctx, want) //nolint:wrapcheck // errors were translated where they arose; io.EOF is the end
}

// Acknowledge implements connector.Acknowledger: the server may forget what the stream of a followed source sent up to p. Other sources
// keep nothing on the server.
func (s *Source) Acknowledge(_ context.Context, p record.Position) error {
	if f, ok := s.inner.(*stream); ok {
		return f.acknowledge(p)
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
	s.mu.Lock()
	held := s.holders
	s.holders = map[string]*holder{}
	s.mu.Unlock()
	for _, h := range held {
		s.pool.discard(ctx, h.conn)
	}
	s.pool.close(ctx)
	return errors.Join(errs...)
}

// Compare implements connector.Positions.
func (s *Source) Compare(a, b record.Position) (int, bool) {
	switch {
	case s.cfg.Follow:
		return compareStream(a, b)
	case s.cfg.Cursor != "":
		return chunked.CompareCursors[cursorState](a, b)
	}
	return chunked.Compare(a, b)
}

// Migrate implements connector.Positions.
func (s *Source) Migrate(p record.Position) (record.Position, error) {
	switch {
	case s.cfg.Follow:
		_, err := decodeStream(p)
		return p, err
	case s.cfg.Cursor != "":
		_, err := chunked.DecodeCursors[cursorState](p)
		return p, err
	}
	return chunked.Migrate(p) //nolint:wrapcheck // speaks for itself
}

// URI implements connector.Named.
func (s *Source) URI(dataset string) string { return s.cfg.lineage(s.cfg.place(dataset)) }

// place is the relation that a name of the configuration means.
func (c *SourceConfig) place(name string) relation {
	parts := record.SplitName(name)
	r := relation{schema: c.Schema, name: parts[len(parts)-1]}
	if r.schema == "" {
		r.schema = "public"
	}
	if len(parts) > 1 {
		r.schema = parts[len(parts)-2]
	}
	return r
}

// pool keeps connections that are not in use. It may be used concurrently.
type pool struct {
	cfg *SourceConfig
	env connector.Env

	mu   sync.Mutex // guards what follows
	free []*pgx.Conn
	over bool
}

// take returns a connection that no one else uses.
func (p *pool) take(ctx context.Context) (*pgx.Conn, error) {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return nil, errors.New("the source is closed")
	}
	if n := len(p.free); n > 0 {
		conn := p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return conn, nil
	}
	p.mu.Unlock()
	p.env.Roundtrip("connect")
	return p.cfg.connectBy(ctx, patiently) // a COPY sends each 8 KiB by itself
}

// put gives a connection back that has no transaction open.
func (p *pool) put(ctx context.Context, conn *pgx.Conn) {
	p.mu.Lock()
	keep := !p.over && !conn.IsClosed() && conn.PgConn().TxStatus() == 'I'
	if keep {
		p.free = append(p.free, conn)
	}
	p.mu.Unlock()
	if !keep {
		p.discard(ctx, conn)
	}
}

// discard closes a connection, and with it whatever it has open.
func (p *pool) discard(ctx context.Context, conn *pgx.Conn) {
	if err := closeConn(ctx, conn); err != nil {
		p.env.Log.DebugContext(ctx, "closing a PostgreSQL connection", slog.Any("error", err))
	}
}

func (p *pool) close(ctx context.Context) {
	p.mu.Lock()
	free := p.free
	p.free, p.over = nil, true
	p.mu.Unlock()
	for _, conn := range free {
		p.discard(ctx, conn)
	}
}
