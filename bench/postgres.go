package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Names of the databases that a job has to itself.
const (
	sourceDB = "leat_bench"
	intoDB   = "leat_bench_into"
)

// openServers makes a database to read from and one to write to: on another server, if there is one, so that what is written is
// not in the log that is followed.
func openServers(ctx context.Context, e *jobEnv) error {
	source := os.Getenv("LEAT_TEST_POSTGRES")
	if source == "" {
		return errors.New("LEAT_TEST_POSTGRES is not set: dev/services run -- make bench")
	}
	into := os.Getenv("LEAT_TEST_POSTGRES18")
	if into == "" {
		into = source
	}
	err := errors.Join(dropServers(ctx), execute(ctx, source, "create database "+sourceDB), execute(ctx, into, "create database "+intoDB))
	if err != nil {
		return err
	}
	e.postgres, e.into = database(source, sourceDB), database(into, intoDB)
	e.socket, e.kafka = overSocket(e.postgres), os.Getenv("LEAT_TEST_KAFKA")
	return nil
}

// dropServers removes what jobs left on the servers: slots first, then databases.
func dropServers(ctx context.Context) error {
	var errs []error
	for _, server := range []string{os.Getenv("LEAT_TEST_POSTGRES"), os.Getenv("LEAT_TEST_POSTGRES18")} {
		if server == "" {
			continue
		}
		names, err := query(ctx, server, "select datname from pg_database where starts_with(datname, '"+sourceDB+"')")
		errs = append(errs, err, execute(ctx, server,
			"select pg_terminate_backend(active_pid) from pg_replication_slots where starts_with(database, '"+sourceDB+"')",
			"select pg_sleep(0.1) from pg_replication_slots where starts_with(database, '"+sourceDB+"') and active",
			"select pg_drop_replication_slot(slot_name) from pg_replication_slots where starts_with(database, '"+sourceDB+"')"))
		for _, name := range names {
			errs = append(errs, execute(ctx, server, "drop database if exists "+name+" with (force)"))
		}
	}
	return errors.Join(errs...)
}

// database returns the URL of another database of the same server.
func database(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	u.Path = "/" + name
	return u.String()
}

// overSocket returns the URL of the same database over the server's unix socket; empty: its folder is not known.
func overSocket(server string) string {
	u, err := url.Parse(server)
	dir := os.Getenv("LEAT_TEST_PG_SOCKET")
	if err != nil || dir == "" {
		return ""
	}
	q := u.Query()
	q.Set("host", dir)
	q.Set("port", u.Port())
	u.Host, u.RawQuery = "", q.Encode()
	return u.String()
}

// connect opens a session that writes times as any other does, whatever the server's zone is.
func connect(ctx context.Context, server string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(server)
	if err != nil {
		return nil, err
	}
	c.RuntimeParams["timezone"] = "UTC"
	return pgx.ConnectConfig(ctx, c)
}

// execute runs statements one by one, each in a transaction of its own.
func execute(ctx context.Context, server string, statements ...string) error {
	conn, err := connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // all was said
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%w, in: %s", err, s)
		}
	}
	return nil
}

// query returns the first column of what a statement finds, as text.
func query(ctx context.Context, server, statement string) ([]string, error) {
	conn, err := connect(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // all was read
	rows, err := conn.Query(ctx, statement, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, fmt.Errorf("%w, in: %s", err, statement)
	}
	found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) { return string(r.RawValues()[0]), nil })
	if err != nil {
		return nil, fmt.Errorf("%w, in: %s", err, statement)
	}
	return found, nil
}

// psql is a shell command that runs statements, in one session and one by one.
func psql(server string, statements ...string) string {
	var b strings.Builder
	b.WriteString("psql -qXAt -v ON_ERROR_STOP=1 " + quote(server))
	for _, s := range statements {
		b.WriteString(" -c " + quote(s))
	}
	return b.String()
}

// quote makes one word of the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// serverSettings says what a server is, and what makes it fast or slow.
func serverSettings(ctx context.Context, server string) (string, error) {
	said, err := query(ctx, server,
		`select 'PostgreSQL ' || current_setting('server_version') || ': ' || string_agg(name || ' ' || current_setting(name), ', '
		order by name) from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers',
			'max_wal_size',
		'checkpoint_timeout', 'autovacuum', 'work_mem', 'logical_decoding_work_mem', 'wal_level', 'wal_compression', 'jit', 'ssl')`)
	if err != nil {
		return "", err
	}
	return strings.Join(said, ""), nil
}

// sameTables compares two tables of any databases by an order-independent digest of all values of all rows, as the servers write them.
func sameTables(ctx context.Context, fromURL, from, toURL, to string) error {
	digest := func(server, table string) (string, error) {
		found, err := query(ctx, server, "select count(*) || ' rows, ' || coalesce(sum(hashtextextended(r, 0)::numeric), 0) || ' ' || "+
			"coalesce(sum(hashtextextended(r, 1)::numeric), 0) from (select t::text r from "+table+" t) s")
		return strings.Join(found, ""), err
	}
	a, err := digest(fromURL, from)
	if err != nil {
		return err
	}
	b, err := digest(toURL, to)
	if err != nil {
		return err
	}
	if a != b || strings.HasPrefix(a, "0 rows") {
		return fmt.Errorf("%s and %s differ: %s; %s", from, to, a, b)
	}
	return nil
}
