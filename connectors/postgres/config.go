package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
)

// Connection is how source and sink reach a server. The names and meanings are those of libpq; what is left out comes from the
// environment (PGHOST, PGUSER, PGPASSWORD …), the service file and the password file, as libpq has it.
type Connection struct {
	Host               string            `leat:"host" doc:"server, several with commas, or a socket's folder" example:"db.example.com"`
	Port               string            `leat:"port" doc:"port, one for all hosts or one for each" example:"5432"`
	User               string            `leat:"user" doc:"role to log in as" example:"app"`
	Password           connector.Secret  `leat:"password" doc:"password of the role; any characters" example:"${env:PGPASSWORD}"`
	Database           string            `leat:"database" doc:"database" example:"shop"`
	SSLMode            string            `leat:"sslmode" doc:"TLS as in libpq" enum:"disable|allow|prefer|require|verify-ca|verify-full"`
	SSLRootCert        string            `leat:"sslrootcert" doc:"file of trusted authorities; system: the machine's"`
	SSLCert            string            `leat:"sslcert" doc:"file with the client's certificate"`
	SSLKey             string            `leat:"sslkey" doc:"file with the client's key"`
	SSLPassword        connector.Secret  `leat:"sslpassword" doc:"password of the client's key"`
	Service            string            `leat:"service" doc:"section of the service file that gives what is left out here"`
	PassFile           string            `leat:"passfile" doc:"password file; default ~/.pgpass"`
	ConnectTimeout     string            `leat:"connect_timeout" doc:"seconds to wait for each host" example:"10"`
	TargetSessionAttrs string            `leat:"target_session_attrs" doc:"which of several hosts will do, as in libpq" example:"primary"`
	ServerOptions      string            `leat:"options" doc:"command-line options for the session" example:"-c search_path=app"`
	ApplicationName    string            `leat:"application_name" doc:"name that pg_stat_activity shows"`
	Params             map[string]string `leat:"params" doc:"further parameters of libpq" example:"channel_binding:require"`
}

// libpqParams are the parameters that a URL may have beyond the options of Connection.
func libpqParams() []string {
	return []string{
		"channel_binding", "krbspn", "krbsrvname", "max_protocol_version", "min_protocol_version", "require_auth", "servicefile",
		"sslcertmode", "sslnegotiation", "sslsni",
	}
}

// defaultConnection holds the defaults of Connection.
func defaultConnection() Connection { return Connection{ApplicationName: "leat"} }

// NULL cursor policies.
const (
	nullInclude = "include"
	nullSkip    = "skip"
	nullFail    = "fail"
)

// Values of the option chunks.
const (
	chunksByKey   = "key"
	chunksByBlock = "block"
)

// SourceConfig is the configuration of a source of tables or of one query.
type SourceConfig struct {
	Connection

	Table   string   `leat:"table" doc:"the table, view or materialised view to read" example:"public.orders"`
	Tables  []string `leat:"tables" doc:"tables by pattern: * any text, ? a character, ! not" example:"public.*,!*.log_*"`
	Query   string   `leat:"query" doc:"a SELECT to read instead of tables" example:"SELECT id, total FROM orders"`
	Name    string   `leat:"name" doc:"dataset name of the query's rows; default query" example:"big_orders"`
	Schema  string   `leat:"schema" doc:"schema of tables that are named without one; default public" example:"app"`
	Columns []string `leat:"columns" doc:"columns to read, in this order; default all" example:"id,total"`
	Where   string   `leat:"where" doc:"condition in SQL that rows have to meet" example:"total > 100"`
	Key     []string `leat:"key" doc:"columns that identify a row, for views and queries" example:"id"`

	Types   map[string]string `leat:"types" doc:"how to read columns: text, or numeric (also NaN)" example:"price:numeric"`
	Numeric string            `leat:"numeric" doc:"how to read numeric(p,s); decimal refuses NaN" enum:"decimal|numeric"`

	Cursor      string `leat:"cursor" doc:"column that grows with changes: read what is new" example:"updated_at"`
	CursorLag   string `leat:"lag" doc:"how far back to look for late commits: interval or number" example:"5m"`
	CursorNulls string `leat:"nulls" doc:"rows without a cursor: in every run, never, or fail" enum:"include|skip|fail"`

	Follow      bool   `leat:"follow" doc:"after reading the tables follow every change, by logical replication"`
	Slot        string `leat:"slot" doc:"replication slot to follow by; default leat_ and the pipeline's name" example:"leat_shop"`
	Publication string `leat:"publication" doc:"publication to follow by; default as slot" example:"leat_shop"`

	Streaming     string        `leat:"streaming" doc:"take large transactions while open; off: the server keeps them" enum:"on|off"`
	Binary        string        `leat:"binary" doc:"binary values in the stream; auto: where every type allows it" enum:"auto|on|off"`
	SpillBytes    int64         `leat:"spill_bytes" doc:"most memory for open transactions; more goes to files"`
	SpillDir      string        `leat:"spill_dir" doc:"folder for these files; default the system's temporary folder" example:"/var/tmp"`
	Heartbeat     time.Duration `leat:"heartbeat" doc:"write a message to the log when the stream is idle this long; 0: never"`
	PublishOrigin string        `leat:"publish_origin" doc:"none leaves out what the server itself got by replication" enum:"any|none"`
	Refresh       time.Duration `leat:"refresh" doc:"how often to look for new tables that the selection means"`

	Chunks     string        `leat:"chunks" doc:"how to cut tables: key can be resumed, block suits random keys" enum:"key|block"`
	Parallel   int           `leat:"parallel" doc:"connections that read chunks at the same time"`
	ChunkBytes int64         `leat:"chunk_bytes" doc:"size of a chunk; each is read in one short transaction"`
	Timeout    time.Duration `leat:"statement_timeout" doc:"longest time for one statement; 0: none"`
}

// Defaults of the sizes.
const (
	defaultParallel   = 3
	defaultChunkBytes = 16 << 20
	maxParallel       = 64
	defaultSpillBytes = 64 << 20
	defaultRefresh    = 30 * time.Second
)

// Values of the options of a stream.
const (
	optionOn   = "on"
	optionOff  = "off"
	optionAuto = "auto"
	originAny  = "any"
	originNone = "none"
)

// NewSource returns the default configuration of a source.
func NewSource() connector.SourceConfig {
	return &SourceConfig{
		Connection: defaultConnection(), Schema: "public", Numeric: "decimal", CursorNulls: nullFail,
		Chunks: chunksByKey, Parallel: defaultParallel, ChunkBytes: defaultChunkBytes,
		Streaming: optionOn, Binary: optionAuto, SpillBytes: defaultSpillBytes, PublishOrigin: originAny, Refresh: defaultRefresh,
	}
}

var (
	_ connector.SourceConfig = (*SourceConfig)(nil)
	_ connector.URLSetter    = (*SourceConfig)(nil)
)

// SetURL takes a URL as libpq has it, whose query may also hold the options of the source.
func (c *SourceConfig) SetURL(raw string) error { return setURL(c, &c.Connection, raw) }

// Contract implements connector.SourceConfig. A resume gives exactly the rows whose keys follow the position, in the same order, so
// that none is applied twice; their values are those of that moment. Looking again for late commits (lag), or at rows without a cursor,
// gives rows once more. A followed source sends every change, in the order of the commits, without an end.
func (c *SourceConfig) Contract() (connector.SourceContract, error) {
	if err := c.validate(); err != nil {
		return connector.SourceContract{}, err
	}
	if c.Follow {
		return connector.SourceContract{
			Replay: connector.Deterministic, Topology: connector.Singleton, Input: connector.Changelog, CancelSafe: true,
			Readers: c.Parallel, Conditions: true,
		}, nil
	}
	replay := connector.Deterministic
	if c.Cursor != "" && (c.CursorLag != "" || c.CursorNulls == nullInclude) {
		replay = connector.Replayable
	}
	return connector.SourceContract{
		Replay: replay, Topology: connector.Singleton, Input: connector.AppendOnly, Bounded: true, CancelSafe: true,
		Incremental: c.Cursor != "",
	}, nil
}

func (c *SourceConfig) validate() error {
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	selected := 0
	for _, set := range []bool{c.Table != "", len(c.patterns()) > 0, c.Query != ""} {
		if set {
			selected++
		}
	}
	add(selected > 1, "table, tables and query exclude each other")
	add(c.Query == "" && c.Name != "", "name is for a query")
	add(c.Query != "" && c.Where != "", "put the condition into the query itself")
	add(len(c.Columns) > 0 && c.Table == "" && c.Query == "", "columns is for one table or query")
	add(len(c.Key) > 0 && c.Table == "" && c.Query == "", "key is for one table or query")
	add(c.Cursor == "" && c.CursorLag != "", "lag is for reading by cursor")
	add(c.Parallel < 1 || c.Parallel > maxParallel, "parallel is %d: want 1 to %d", c.Parallel, maxParallel)
	add(c.ChunkBytes < 1, "chunk_bytes is %d: want a positive number", c.ChunkBytes)
	add(c.Timeout < 0, "statement_timeout is negative")
	nulls := []string{"", nullInclude, nullSkip, nullFail}
	add(!slices.Contains(nulls, c.CursorNulls), "nulls is %q: want include, skip or fail", c.CursorNulls)
	add(!slices.Contains([]string{"", chunksByKey, chunksByBlock}, c.Chunks), "chunks is %q: want key or block", c.Chunks)
	c.validateFollow(add)
	for column, as := range c.Types {
		add(as != "text" && as != "numeric", "types: column %q: %q is neither text nor numeric", column, as)
	}
	if len(errs) == 0 {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "postgres.config", Doing: "configuring the PostgreSQL source", Err: errors.Join(errs...),
	}
}

// validateFollow checks the options of a stream of changes.
func (c *SourceConfig) validateFollow(add func(bad bool, format string, args ...any)) {
	add(!slices.Contains([]string{"", optionOn, optionOff}, c.Streaming), "streaming is %q: want on or off", c.Streaming)
	add(!slices.Contains([]string{"", optionAuto, optionOn, optionOff}, c.Binary), "binary is %q: want auto, on or off", c.Binary)
	add(!slices.Contains([]string{"", originAny, originNone}, c.PublishOrigin), "publish_origin is %q: want any or none", c.PublishOrigin)
	add(c.SpillBytes < 0, "spill_bytes is negative")
	c.validateNames(add)
	add(c.Heartbeat < 0, "heartbeat is negative")
	add(c.Refresh < 0, "refresh is negative")
	if !c.Follow {
		add(c.Slot != "", "slot is for a source that is followed: add follow=true")
		add(c.Publication != "", "publication is for a source that is followed: add follow=true")
		return
	}
	add(c.Query != "", "a query can't be followed, only tables: leave out query or follow")
	add(c.Cursor != "", "follow and cursor exclude each other: the stream of changes needs no cursor")
	add(c.CursorNulls != "" && c.CursorNulls != nullFail, "nulls is for reading by cursor")
}

// Identity implements connector.SourceConfig.
func (c *SourceConfig) Identity() map[string]string {
	id := map[string]string{
		"table": c.Table, "tables": strings.Join(c.patterns(), ","), "query": c.Query, "name": c.Name, "schema": c.Schema,
		"columns": strings.Join(c.Columns, ","), "where": c.Where, "key": strings.Join(c.Key, ","), "cursor": c.Cursor,
		"database": c.Database, "slot": c.Slot,
	}
	if c.Follow {
		id["follow"] = "true"
	}
	if c.PublishOrigin == originNone {
		id["publish_origin"] = originNone
	}
	for k, v := range id {
		if v == "" {
			delete(id, k)
		}
	}
	return id
}

// Open implements connector.SourceConfig.
func (c *SourceConfig) Open(env connector.Env) (connector.Source, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	cfg := *c
	sql := sqlgen.Dialect{Text: literal, Bytes: func(hex string) string { return "pg_catalog.decode('" + hex + "', 'hex')" }}
	err := connector.ResolveParent(&cfg, env.Parent, map[string]connector.ParentText{"query": sql.Parent, "where": sql.Parent})
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what
	}
	return newSource(&cfg, env), nil
}
