package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Row is one row of the simulated source.
type Row struct {
	Dataset string
	ID      int64
	Value   string
}

// Unit is a replay unit: batches of rows. A unit without batches is an empty positioned one.
type Unit [][]Row

// Source is the configuration of a simulated source, and the system behind it.
type Source struct {
	World    *World
	Units    []Unit
	Datasets []string
	Has      connector.SourceContract
	Options  map[string]string         // Identity
	Schemas  map[string]*record.Schema // nil: id and value
	Rejects  map[int64]string          // rows with these ids can't be read
	Origin   bool                      // it resolves its start, to unit 0
	Plain    bool                      // it can't order positions
	OnRead   func(unit int) error      // called before each batch of the unit; nil: nothing
	Released int                       // units that were acknowledged
	Durable  func(units int) string    // why so many units may not be released; empty: they may
	Control  func() (bool, error)      // nil: no control plane
	Resolved int                       // how often the origin was resolved
	Starts   []connector.SourceStart   // all that were accepted
	schemas  map[string]*record.Schema
}

// Position is the position behind n units.
func Position(n int) record.Position {
	return record.Position{Shape: 1, Data: json.RawMessage(fmt.Sprintf(`{"units":%d}`, n))}
}

// UnitsOf reads a position: the number of units that are behind it.
func UnitsOf(p record.Position) int {
	var v struct {
		Units int `json:"units"`
	}
	if err := json.Unmarshal(p.Data, &v); err != nil {
		return 0
	}
	return v.Units
}

// Schema is what datasets of the simulation have: id and value, the id is the key.
func Schema(dataset string) *record.Schema {
	return &record.Schema{
		Dataset: dataset, Key: []int{0},
		Columns: arrow.NewSchema([]arrow.Field{
			{Name: "id", Type: arrow.PrimitiveTypes.Int64},
			{Name: "value", Type: arrow.BinaryTypes.String, Nullable: true},
		}, nil),
	}
}

// RandomUnits makes n units with 0 to 4 batches each, of datasets chosen at random.
func RandomUnits(r *rand.Rand, n int, datasets []string) []Unit {
	units := make([]Unit, n)
	id := int64(0)
	for u := range units {
		for range r.IntN(5) {
			dataset := datasets[r.IntN(len(datasets))]
			var batch []Row
			for range 1 + r.IntN(4) {
				id++
				batch = append(batch, Row{Dataset: dataset, ID: id, Value: "v" + strconv.FormatInt(id, 10)})
			}
			units[u] = append(units[u], batch)
		}
	}
	return units
}

// Rows returns all rows of the source in order, but for those that can't be read.
func (s *Source) Rows() []Row {
	var out []Row
	for _, u := range s.Units {
		for _, b := range u {
			for _, r := range b {
				if _, bad := s.Rejects[r.ID]; !bad {
					out = append(out, r)
				}
			}
		}
	}
	return out
}

// Contract implements connector.SourceConfig.
func (s *Source) Contract() (connector.SourceContract, error) { return s.Has, nil }

// Identity implements connector.SourceConfig.
func (s *Source) Identity() map[string]string { return s.Options }

// Open implements connector.SourceConfig.
func (s *Source) Open(connector.Env) (connector.Source, error) {
	r := &reading{cfg: s}
	if s.Plain {
		return &plain{r}, nil
	}
	return r, nil
}

func (s *Source) schema(dataset string) *record.Schema {
	if s.schemas == nil {
		s.schemas = map[string]*record.Schema{}
	}
	if s.schemas[dataset] == nil {
		s.schemas[dataset] = Schema(dataset)
		if own := s.Schemas[dataset]; own != nil {
			s.schemas[dataset] = own
		}
	}
	return s.schemas[dataset]
}

// plain hides all capabilities but discovery.
type plain struct{ r *reading }

func (p *plain) Start(ctx context.Context, s connector.SourceStart) error { return p.r.Start(ctx, s) }

func (p *plain) Read(ctx context.Context, l connector.Limit) (*record.Batch, error) {
	return p.r.Read(ctx, l)
}
func (p *plain) Close(ctx context.Context) error                           { return p.r.Close(ctx) }
func (p *plain) Discover(ctx context.Context) ([]connector.Dataset, error) { return p.r.Discover(ctx) }

// reading is one generation of the source.
type reading struct {
	cfg       *Source
	started   bool
	closed    bool
	failed    bool
	only      map[string]bool
	unit      int
	batch     int
	delivered int
	announced int
}

var (
	_ connector.Acknowledger = (*reading)(nil)
	_ connector.Positions    = (*reading)(nil)
	_ connector.Originator   = (*reading)(nil)
	_ connector.Discoverer   = (*reading)(nil)
	_ connector.Controlled   = (*reading)(nil)
)

func (r *reading) use(what string) {
	w := r.cfg.World
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.closed || r.failed || (!r.started && what != "discover" && what != "resolve") {
		w.violateLocked("source: %s on a value that is closed, failed or not started", what)
	}
}

// Discover implements connector.Discoverer.
func (r *reading) Discover(ctx context.Context) ([]connector.Dataset, error) {
	r.use("discover")
	var out []connector.Dataset
	err := r.cfg.World.do(ctx, Event{Who: "source", What: "discover"}, func() error {
		for _, d := range r.cfg.Datasets {
			out = append(out, connector.Dataset{Name: d, Schema: r.cfg.schema(d), Rows: -1, Bytes: -1})
		}
		return nil
	})
	return out, err
}

// ResolveOrigin implements connector.Originator.
func (r *reading) ResolveOrigin(ctx context.Context) (record.Position, error) {
	if !r.cfg.Origin {
		return record.Position{}, nil
	}
	r.use("resolve")
	err := r.cfg.World.do(ctx, Event{Who: "source", What: "resolve"}, func() error { r.cfg.Resolved++; return nil })
	return Position(0), err
}

// Start implements connector.Source.
func (r *reading) Start(ctx context.Context, s connector.SourceStart) error {
	if err := s.Validate(); err != nil {
		return err
	}
	return r.cfg.World.do(ctx, Event{Who: "source", What: "start", At: s.From.Position.String()}, func() error {
		r.started = true
		r.unit = UnitsOf(s.From.Position)
		r.delivered = r.unit
		r.cfg.Starts = append(r.cfg.Starts, s)
		if len(s.Datasets) > 0 {
			r.only = map[string]bool{}
			for _, d := range s.Datasets {
				r.only[d] = true
			}
		}
		if r.unit < r.cfg.Released {
			return &connector.Error{
				Class: connector.ClassPosition, Code: "sim.released",
				Err: fmt.Errorf("unit %d was released, and the start is %d", r.cfg.Released, r.unit),
			}
		}
		return nil
	})
}

// Read implements connector.Source.
func (r *reading) Read(ctx context.Context, _ connector.Limit) (*record.Batch, error) {
	r.use("read")
	if r.announced < len(r.cfg.Datasets) && r.unit == 0 && r.batch == 0 {
		d := r.cfg.Datasets[r.announced]
		r.announced++
		if r.only == nil || r.only[d] {
			return batchOf(r.cfg.schema(d), nil, r.cfg.Rejects), nil
		}
	}
	if r.unit >= len(r.cfg.Units) {
		if r.cfg.Has.Bounded {
			return nil, io.EOF
		}
		return nil, nil //nolint:nilnil // nothing now
	}
	if r.cfg.OnRead != nil {
		if err := r.cfg.OnRead(r.unit); err != nil {
			r.failed = true
			return nil, err
		}
	}
	var out *record.Batch
	err := r.cfg.World.do(ctx, Event{Who: "source", What: "read"}, func() error {
		u := r.cfg.Units[r.unit]
		if r.batch < len(u) {
			rows := u[r.batch]
			if r.only != nil && !r.only[rows[0].Dataset] {
				out = &record.Batch{}
			} else {
				out = batchOf(r.cfg.schema(rows[0].Dataset), rows, r.cfg.Rejects)
			}
			r.batch++
		} else {
			out = &record.Batch{}
		}
		if r.batch >= len(u) {
			r.unit, r.batch = r.unit+1, 0
			out.Position = Position(r.unit)
			r.delivered = r.unit
		}
		return nil
	})
	if err != nil {
		r.failed = true
		return nil, err
	}
	return out, nil
}

func batchOf(s *record.Schema, rows []Row, bad map[int64]string) *record.Batch {
	b := &record.Batch{Schema: s}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	for _, r := range rows {
		if why, ok := bad[r.ID]; ok {
			b.Rejects = append(b.Rejects, record.Reject{
				Dataset: s.Dataset, Line: r.ID, Column: "value", Value: r.Value, Class: "bad_value", Message: why, Raw: []byte(r.Value),
			})
			continue
		}
		rb.Field(0).(*array.Int64Builder).Append(r.ID) //nolint:forcetypeassert // by construction
		if err := record.ParseText(rb.Field(1), r.Value); err != nil {
			panic(err)
		}
	}
	b.Rows = rb.NewRecordBatch()
	return b
}

// Acknowledge implements connector.Acknowledger. It notes every acknowledgement that comes too early.
func (r *reading) Acknowledge(ctx context.Context, p record.Position) error {
	r.use("acknowledge")
	n := UnitsOf(p)
	err := r.cfg.World.do(ctx, Event{Who: "source", What: "acknowledge", At: p.String()}, func() error {
		if n > r.delivered {
			return fmt.Errorf("position %s was never delivered", p)
		}
		if r.cfg.Durable != nil {
			if why := r.cfg.Durable(n); why != "" {
				r.cfg.World.violateLocked("acknowledged %s: %s", p, why)
			}
		}
		r.cfg.Released = max(r.cfg.Released, n)
		return nil
	})
	r.failed = r.failed || err != nil
	return err
}

// Compare implements connector.Positions.
func (*reading) Compare(a, b record.Position) (int, bool) {
	x, y := UnitsOf(a), UnitsOf(b)
	switch {
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	}
	return 0, true
}

// Migrate implements connector.Positions.
func (*reading) Migrate(p record.Position) (record.Position, error) {
	if p.Shape != 1 {
		return p, &connector.Error{Class: connector.ClassPosition, Code: "sim.shape", Err: fmt.Errorf("shape %d", p.Shape)}
	}
	return p, nil
}

// DriveControl implements connector.Controlled.
func (*reading) DriveControl() {}

// Reconciled implements connector.Controlled.
func (r *reading) Reconciled() (bool, error) {
	if r.cfg.Control == nil {
		return true, nil
	}
	return r.cfg.Control()
}

// Close implements connector.Source.
func (r *reading) Close(context.Context) error {
	w := r.cfg.World
	w.mu.Lock()
	defer w.mu.Unlock()
	r.closed = true
	return nil
}
