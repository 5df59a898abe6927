package postgres

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/leatdata/leat/connector"
)

// Values of the option create.
const (
	createAuto  = "auto"
	createNever = "never"
)

// Values of the option constraints.
const (
	constraintsHold = "hold"
	constraintsOff  = "off"
)

// SinkConfig is the configuration of a PostgreSQL sink.
type SinkConfig struct {
	Connection

	Schema string `leat:"schema" doc:"schema of datasets whose names have none" example:"staging"`
	Table  string `leat:"table" doc:"table of a single dataset, whatever its name is" example:"staging.orders"`
	Create string `leat:"create" enum:"auto|never" doc:"make what is missing (auto), or show the SQL for it (never)"`

	Constraints string `leat:"constraints" enum:"hold|off" doc:"foreign keys and triggers at the target: as for any writer, or off"`
}

// NewSink returns the default configuration of a sink.
func NewSink() connector.SinkConfig {
	return &SinkConfig{Connection: defaultConnection(), Schema: "public", Create: createAuto, Constraints: constraintsHold}
}

var (
	_ connector.SinkConfig = (*SinkConfig)(nil)
	_ connector.URLSetter  = (*SinkConfig)(nil)
)

// SetURL takes a URL as libpq has it, whose query may also hold the options of the sink.
func (c *SinkConfig) SetURL(raw string) error { return setURL(c, &c.Connection, raw) }

// Contract implements connector.SinkConfig.
func (c *SinkConfig) Contract() (connector.SinkContract, error) {
	if err := c.validate(); err != nil {
		return connector.SinkContract{}, err
	}
	return connector.SinkContract{
		Modes: []connector.WriteMode{connector.Append, connector.Upsert, connector.Replace}, Input: connector.Changelog,
		Atomicity: connector.PositionInTransaction, Durable: true, NeedsKey: true, Keyless: true, Rows: likedRows,
	}, nil
}

// likedRows share pages of a large table, as they are written in the order of their keys: at random ones, 64k rows at once cost the server
// a third less than 8k.
const likedRows = 64 << 10

// Identity implements connector.SinkConfig: where rows go, not how to get there.
func (c *SinkConfig) Identity() map[string]string {
	return map[string]string{"schema": c.Schema, "table": c.Table}
}

// Open implements connector.SinkConfig.
func (c *SinkConfig) Open(env connector.Env) (connector.Sink, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Sink{cfg: c, env: env, datasets: map[string]*dataset{}, places: map[relation]string{}}, nil
}

func (c *SinkConfig) validate() error {
	wrong := func(option, value, want, hint string) error {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.config", Doing: "reading the options of a postgres sink",
			Err: fmt.Errorf("%s is %q: want %s", option, value, want), Hint: option + ": " + hint,
		}
	}
	switch {
	case c.Create != createAuto && c.Create != createNever:
		return wrong("create", c.Create, "auto or never", createAuto)
	case c.Constraints != constraintsHold && c.Constraints != constraintsOff:
		return wrong("constraints", c.Constraints, "hold or off", constraintsHold)
	}
	return nil
}

// schema is where datasets go whose names have none.
func (c *SinkConfig) schema() string {
	if c.Schema == "" {
		return "public"
	}
	return c.Schema
}

// Readback implements connector.Readback: a source over the dataset's table.
func (s *Sink) Readback(dataset string) (connector.SourceConfig, error) {
	src, ok := NewSource().(*SourceConfig)
	if !ok {
		return nil, fmt.Errorf("reading %s back: no source", dataset)
	}
	at := place(dataset, s.cfg.schema(), s.cfg.Table)
	src.Connection, src.Table = s.cfg.Connection, at.dataset()
	return src, nil
}

// URI implements connector.Named.
func (s *Sink) URI(dataset string) string {
	return s.cfg.lineage(place(dataset, s.cfg.schema(), s.cfg.Table))
}

// lineage returns a table's URI by the OpenLineage naming rules: postgres://host:port/database.schema.table.
func (c *Connection) lineage(at relation) string {
	host, _, _ := strings.Cut(c.Host, ",")
	if host == "" || strings.HasPrefix(host, "/") {
		host = "localhost"
	}
	port, _, _ := strings.Cut(c.Port, ",")
	if port == "" {
		port = "5432"
	}
	database := c.Database
	if database == "" {
		database = c.User
	}
	name := strings.Join([]string{database, at.schema, at.name}, ".")
	return (&url.URL{Scheme: "postgres", Host: net.JoinHostPort(host, port), Path: "/" + name}).String()
}
