package sqlite

import (
	"errors"
	"time"

	"github.com/leatdata/leat/connector"
)

// Values of options.
const (
	namesShort  = "short"
	namesFull   = "full"
	journalWAL  = "wal"
	journalKeep = "keep"
)

// SinkConfig is the configuration of a sink that writes one file. Use NewSink, which sets the defaults.
type SinkConfig struct {
	Path    string `leat:"path,required" doc:"the database file; it is made where it does not exist" example:"out.db"`
	Table   string `leat:"table" doc:"the table to write, of one dataset; default: the dataset's name" example:"orders"`
	Names   string `leat:"names" doc:"tables take the last part of a dataset's name, or all with _ between" enum:"short|full"`
	Journal string `leat:"journal" doc:"wal: writers and readers do not wait for each other; keep: as it is" enum:"wal|keep"`

	BusyTimeout time.Duration `leat:"busy_timeout" doc:"how long to wait for another program's lock"`
}

// NewSink returns a configuration with the defaults.
func NewSink() *SinkConfig {
	return &SinkConfig{Names: namesShort, Journal: journalWAL, BusyTimeout: defaultBusyTimeout}
}

var (
	_ connector.SinkConfig = (*SinkConfig)(nil)
	_ connector.URLSetter  = (*SinkConfig)(nil)
)

// SetURL takes a file name or a URL, such as out.db or sqlite:out.db?table=orders.
func (c *SinkConfig) SetURL(raw string) error { return setURL(c, &c.Path, raw) }

// Contract says that rows and progress are committed in one transaction, and survive loss of power then.
func (c *SinkConfig) Contract() (connector.SinkContract, error) {
	if c.Path == "" {
		return connector.SinkContract{}, configError("sqlite.config", "reading the configuration of an SQLite sink",
			errors.New("path is missing: name the database file"))
	}
	return connector.SinkContract{
		Modes: []connector.WriteMode{connector.Append, connector.Upsert, connector.Replace}, Input: connector.Changelog,
		Atomicity: connector.PositionInTransaction, Durable: c.Path != inMemory, NeedsKey: true, Keyless: true,
		Rows: likedRows,
	}, nil
}

// likedRows share pages of a large table, as they are written in the order of their keys.
const likedRows = 64 << 10

// Identity is which tables are written.
func (c *SinkConfig) Identity() map[string]string {
	id := map[string]string{"names": c.Names}
	if c.Table != "" {
		id["table"] = c.Table
	}
	return id
}

// Open builds the sink; the file is first looked at by Map or Start.
func (c *SinkConfig) Open(env connector.Env) (connector.Sink, error) {
	if _, err := c.Contract(); err != nil {
		return nil, err
	}
	cfg := *c
	return &sink{cfg: cfg, env: env}, nil
}
