package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
)

// defaultConnectTimeout bounds the wait for each host where the configuration says nothing.
const defaultConnectTimeout = 30 * time.Second

// connConfig resolves the connection, the environment and the service file included. It reads files, but nothing of the network.
func (c *Connection) connConfig() (*pgx.ConnConfig, error) {
	settings := map[string]string{
		"host": c.Host, "port": c.Port, "user": c.User, "database": c.Database, "sslmode": c.SSLMode, "sslrootcert": c.SSLRootCert,
		"sslcert": c.SSLCert, "sslkey": c.SSLKey, "sslpassword": c.SSLPassword.Reveal(), "service": c.Service, "passfile": c.PassFile,
		"connect_timeout": c.ConnectTimeout, "target_session_attrs": c.TargetSessionAttrs, "options": c.ServerOptions,
		"password": c.Password.Reveal(), "application_name": c.ApplicationName,
	}
	maps.Copy(settings, c.Params)
	var dsn strings.Builder
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		if v := settings[k]; v != "" {
			dsn.WriteString(k + "='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v) + "' ")
		}
	}
	cfg, err := pgx.ParseConfig(dsn.String())
	if err != nil {
		return nil, c.configError(err)
	}
	// Only parameters that poolers let through: all else is set in each transaction.
	for k, v := range map[string]string{"client_encoding": "UTF8", "DateStyle": "ISO, YMD", "TimeZone": "UTC"} {
		maps.DeleteFunc(cfg.RuntimeParams, func(name, _ string) bool { return strings.EqualFold(name, k) })
		cfg.RuntimeParams[k] = v
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = defaultConnectTimeout
	}
	// No named statements: they break behind poolers, and a change of a table makes them stale.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.StatementCacheCapacity, cfg.DescriptionCacheCapacity = 0, 0
	return cfg, nil
}

// configError says what is wrong with the parameters, without quoting any.
func (c *Connection) configError(err error) error {
	why := errors.New("a parameter is not valid")
	if parse, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		if inner := errors.Unwrap(parse); inner != nil {
			why = inner
		}
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "postgres.config", Doing: "reading the connection parameters", Err: c.redact(why),
		Hint: "check host, port, the ssl… files and the service; the meanings are those of libpq",
	}
}

// connect opens a connection. Errors name what was wrong and never hold a secret.
func (c *Connection) connect(ctx context.Context) (*pgx.Conn, error) {
	return c.connectBy(ctx, func(dial pgconn.DialFunc) pgconn.DialFunc { return dial })
}

// connectBy is connect with another way to dial.
func (c *Connection) connectBy(ctx context.Context, way func(pgconn.DialFunc) pgconn.DialFunc) (*pgx.Conn, error) {
	cfg, err := c.connConfig()
	if err != nil {
		return nil, err
	}
	cfg.DialFunc = way(cfg.DialFunc)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, c.connectError(cfg, err)
	}
	return conn, nil
}

// closeConn closes a connection in a bounded time, also when ctx is over.
func closeConn(ctx context.Context, conn *pgx.Conn) error {
	if conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := conn.Close(ctx)
	select {
	case <-conn.PgConn().CleanupDone(): // of a connection that was cancelled in the middle of a statement
	case <-ctx.Done():
	}
	return err //nolint:wrapcheck // callers log it
}

// ask runs one statement with all values bound, and returns its rows as text; nil is NULL.
func ask(ctx context.Context, conn *pgconn.PgConn, sql string, args ...string) ([][][]byte, error) {
	values := make([][]byte, len(args))
	for i, a := range args {
		values[i] = []byte(a)
	}
	result := conn.ExecParams(ctx, sql, values, nil, nil, nil).Read()
	return result.Rows, result.Err //nolint:wrapcheck // callers say what was being done
}
