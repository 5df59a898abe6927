package mysql

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
)

// systemName is the system of this connector's types in the metadata of schemas, for MySQL and MariaDB alike.
const systemName = "mysql"

// Connection is how source and sink reach a server. What is left out comes from the option file and the environment (MYSQL_HOST,
// MYSQL_TCP_PORT, MYSQL_UNIX_PORT, MYSQL_PWD), as the server's own programs have it.
type Connection struct {
	Host           string           `leat:"host" doc:"server; default 127.0.0.1" example:"db.example.com"`
	Port           int              `leat:"port" doc:"port; default 3306" example:"3306"`
	Socket         string           `leat:"socket" doc:"file of a socket, instead of host and port" example:"/run/mysqld/mysqld.sock"`
	User           string           `leat:"user" doc:"user to log in as" example:"app"`
	Password       connector.Secret `leat:"password" doc:"password of the user; any characters" example:"${env:MYSQL_PWD}"`
	Database       string           `leat:"database" doc:"database" example:"shop"`
	SSLMode        string           `leat:"ssl_mode" doc:"TLS, as --ssl-mode" enum:"disabled|preferred|required|verify_ca|verify_identity"`
	SSLCA          string           `leat:"ssl_ca" doc:"file of trusted authorities; default the machine's"`
	SSLCert        string           `leat:"ssl_cert" doc:"file with the client's certificate"`
	SSLKey         string           `leat:"ssl_key" doc:"file with the client's key"`
	DefaultsFile   string           `leat:"defaults_file" doc:"option file whose section client gives what is left out" example:"~/.my.cnf"`
	ConnectTimeout time.Duration    `leat:"connect_timeout" doc:"longest time to connect" example:"10s"`
}

// Values of the option ssl_mode.
const (
	sslDisabled  = "disabled"
	sslPreferred = "preferred"
	sslRequired  = "required"
	sslVerifyCA  = "verify_ca"
	sslVerifyID  = "verify_identity"
)

// defaultConnectTimeout bounds the time to connect.
const defaultConnectTimeout = 30 * time.Second

// defaultConnection holds the defaults of Connection.
func defaultConnection() Connection {
	return Connection{SSLMode: sslPreferred, ConnectTimeout: defaultConnectTimeout}
}

// validate adds what is wrong with the connection's options.
func (c *Connection) validate(add func(bad bool, format string, args ...any)) {
	modes := []string{"", sslDisabled, sslPreferred, sslRequired, sslVerifyCA, sslVerifyID}
	add(!slices.Contains(modes, c.sslMode()), "ssl_mode is %q: want %s", c.SSLMode, strings.Join(modes[1:], ", "))
	add(c.Port < 0 || c.Port > 65535, "port is %d: want 1 to 65535", c.Port)
	add(c.Socket != "" && c.Host != "", "socket and host exclude each other")
	add((c.SSLCert == "") != (c.SSLKey == ""), "ssl_cert and ssl_key belong together")
	add(c.ConnectTimeout < 0, "connect_timeout is negative")
}

// sslMode is the mode in the form of this package: the server's programs write VERIFY_CA, others verify-ca.
func (c *Connection) sslMode() string {
	return strings.ToLower(strings.ReplaceAll(c.SSLMode, "-", "_"))
}

// Policies for dates that no calendar has.
const (
	zeroFail = "fail"
	zeroNull = "null"
	zeroText = "text"
)

// Policies for rows without a cursor.
const (
	nullInclude = "include"
	nullSkip    = "skip"
	nullFail    = "fail"
)

// Values of the option types.
const (
	asText = "text"
	asBool = "bool"
)

// SourceConfig is the configuration of a source of tables or of one query.
type SourceConfig struct {
	Connection

	Table   string   `leat:"table" doc:"the table or view to read" example:"orders"`
	Tables  []string `leat:"tables" doc:"tables by pattern: * any text, ? a character, ! not" example:"shop.*,!*.log_*"`
	Query   string   `leat:"query" doc:"a SELECT to read instead of tables" example:"SELECT id, total FROM orders"`
	Name    string   `leat:"name" doc:"dataset name of the query's rows; default query" example:"big_orders"`
	Columns []string `leat:"columns" doc:"columns to read, in this order; default all" example:"id,total"`
	Where   string   `leat:"where" doc:"condition in SQL that rows have to meet" example:"total > 100"`
	Key     []string `leat:"key" doc:"columns that identify a row, for views and queries" example:"id"`

	Types     map[string]string `leat:"types" doc:"how to read columns: bool (tinyint(1), bit(1)) or text (dates)" example:"paid:bool"`
	ZeroDates string            `leat:"zero_dates" doc:"dates such as 0000-00-00: fail, null, or text for all dates" enum:"fail|null|text"`

	Cursor      string `leat:"cursor" doc:"column that grows with changes: read what is new" example:"updated_at"`
	CursorLag   string `leat:"lag" doc:"how far back to look for late commits: duration or number" example:"5m"`
	CursorNulls string `leat:"nulls" doc:"rows without a cursor: in every run, never, or fail" enum:"include|skip|fail"`

	Follow bool `leat:"follow" doc:"after reading the tables follow every change, by the binary log"`

	Parallel   int           `leat:"parallel" doc:"connections that read chunks at the same time"`
	ChunkBytes int64         `leat:"chunk_bytes" doc:"size of a chunk; each is read in one short transaction"`
	Timeout    time.Duration `leat:"statement_timeout" doc:"longest time for one statement; 0: none"`

	FollowOptions
}

// FollowOptions are the options of a source that is followed.
type FollowOptions struct {
	ServerID  int64         `leat:"server_id" doc:"number of this reader among the server's replicas; default made of the pipeline's name"`
	Heartbeat time.Duration `leat:"heartbeat" doc:"how often the server says that it is alive while nothing changes"`
}

// Defaults of the sizes.
const (
	defaultParallel   = 3
	defaultChunkBytes = 16 << 20
	maxParallel       = 64
	defaultHeartbeat  = 10 * time.Second
)

// NewSource returns the default configuration of a source.
func NewSource() connector.SourceConfig {
	return &SourceConfig{
		Connection: defaultConnection(), ZeroDates: zeroFail, CursorNulls: nullFail, Parallel: defaultParallel,
		ChunkBytes: defaultChunkBytes, FollowOptions: FollowOptions{Heartbeat: defaultHeartbeat},
	}
}

var (
	_ connector.SourceConfig = (*SourceConfig)(nil)
	_ connector.URLSetter    = (*SourceConfig)(nil)
)

// SetURL takes mysql://user:password@host:port/database, whose query may also hold the options of the source.
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
	c.Connection.validate(add)
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
	zeros := []string{"", zeroFail, zeroNull, zeroText}
	add(!slices.Contains(zeros, c.ZeroDates), "zero_dates is %q: want fail, null or text", c.ZeroDates)
	for column, as := range c.Types {
		add(as != asText && as != asBool, "types: column %q: %q is neither bool nor text", column, as)
	}
	c.validateFollow(add)
	if len(errs) == 0 {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "mysql.config", Doing: "configuring the MySQL source", Err: errors.Join(errs...),
	}
}

// validateFollow checks the options of a stream of changes.
func (c *SourceConfig) validateFollow(add func(bad bool, format string, args ...any)) {
	add(c.ServerID < 0 || c.ServerID > 1<<32-1, "server_id is %d: want 1 to 4294967295", c.ServerID)
	add(c.Heartbeat < 0, "heartbeat is negative")
	if !c.Follow {
		add(c.ServerID != 0, "server_id is for a source that is followed: add follow=true")
		return
	}
	add(c.Query != "", "a query can't be followed, only tables: leave out query or follow")
	add(c.Cursor != "", "follow and cursor exclude each other: the stream of changes needs no cursor")
	add(c.Where != "", "where is for reading tables once: changes of rows that do not meet it would come all the same")
}

// patterns are the patterns of the option tables, without empty ones.
func (c *SourceConfig) patterns() []string {
	var out []string
	for _, p := range c.Tables {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// Identity implements connector.SourceConfig.
func (c *SourceConfig) Identity() map[string]string {
	id := map[string]string{
		"table": c.Table, "tables": strings.Join(c.patterns(), ","), "query": c.Query, "name": c.Name,
		"columns": strings.Join(c.Columns, ","), "where": c.Where, "key": strings.Join(c.Key, ","), "cursor": c.Cursor,
		"database": c.Database,
	}
	if c.Follow {
		id["follow"] = "true"
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
	sql := sqlgen.Dialect{Text: literal, Bytes: func(hex string) string { return "X'" + hex + "'" }}
	err := connector.ResolveParent(&cfg, env.Parent, map[string]connector.ParentText{"query": sql.Parent, "where": sql.Parent})
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what
	}
	return newSource(&cfg, env), nil
}

// readOptions is what the user says about reading types.
func (c *SourceConfig) readOptions() readOptions {
	o := readOptions{as: c.Types, zero: c.ZeroDates}
	if o.zero == "" {
		o.zero = zeroFail
	}
	return o
}
