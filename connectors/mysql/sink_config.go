package mysql

import (
	"errors"
	"fmt"

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

// Values of the option instants.
const (
	instantsTimestamp = "timestamp"
	instantsDateTime  = "datetime"
)

// SinkConfig is the configuration of a MySQL or MariaDB sink.
type SinkConfig struct {
	Connection

	Table  string `leat:"table" doc:"table of a single dataset, whatever its name is" example:"orders_copy"`
	Create string `leat:"create" enum:"auto|never" doc:"make what is missing (auto), or show the SQL for it (never)"`

	Constraints string `leat:"constraints" enum:"hold|off" doc:"foreign keys at the target: as for any writer, or off"`
	Instants    string `leat:"instants" enum:"timestamp|datetime" doc:"new columns of instants: timestamp, or datetime in UTC"`
}

// NewSink returns the default configuration of a sink.
func NewSink() connector.SinkConfig {
	return &SinkConfig{Connection: defaultConnection(), Create: createAuto, Constraints: constraintsHold, Instants: instantsTimestamp}
}

var (
	_ connector.SinkConfig = (*SinkConfig)(nil)
	_ connector.URLSetter  = (*SinkConfig)(nil)
)

// SetURL takes mysql://user:password@host:port/database, whose query may also hold the options of the sink.
func (c *SinkConfig) SetURL(raw string) error { return setURL(c, &c.Connection, raw) }

// Contract implements connector.SinkConfig.
func (c *SinkConfig) Contract() (connector.SinkContract, error) {
	if err := c.validate(); err != nil {
		return connector.SinkContract{}, err
	}
	return connector.SinkContract{
		Modes: []connector.WriteMode{connector.Append, connector.Upsert, connector.Replace}, Input: connector.Changelog,
		Atomicity: connector.PositionInTransaction, Durable: true, NeedsKey: true, Keyless: true,
	}, nil
}

// Identity implements connector.SinkConfig: where rows go, not how to get there.
func (c *SinkConfig) Identity() map[string]string {
	return map[string]string{"database": c.Database, "table": c.Table}
}

// Open implements connector.SinkConfig.
func (c *SinkConfig) Open(env connector.Env) (connector.Sink, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Sink{cfg: c, env: env, datasets: map[string]*dataset{}, places: map[relation]string{}}, nil
}

func (c *SinkConfig) validate() error {
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	c.Connection.validate(add)
	add(c.Create != createAuto && c.Create != createNever, "create is %q: want auto or never", c.Create)
	add(c.Constraints != constraintsHold && c.Constraints != constraintsOff, "constraints is %q: want hold or off", c.Constraints)
	add(c.Instants != instantsTimestamp && c.Instants != instantsDateTime, "instants is %q: want timestamp or datetime", c.Instants)
	if len(errs) == 0 {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "mysql.config", Doing: "configuring the MySQL sink", Err: errors.Join(errs...),
	}
}

// URI implements connector.Named: mysql://host:port/database.table, by the OpenLineage naming rules.
func (s *Sink) URI(dataset string) string { return s.cfg.lineage(s.cfg.place(dataset)) }
