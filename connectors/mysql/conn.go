package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	gosql "github.com/go-sql-driver/mysql"

	"github.com/leatdata/leat/connector"
)

// Limits of connections.
const (
	defaultPort  = 3306
	closeTimeout = 5 * time.Second
	keepAlive    = 30 * time.Second
	netTimeout   = 24 * 60 * 60 // seconds that the server waits for a reader that has no room, and for a session that is silent
	lockWait     = 60           // seconds to wait for a table that is being altered
)

// settings are statements of one kind of session, see session.
type settings string

// readSession is for reading: instants in UTC, no mode that changes values or quoting, every date that the server may hold, waits that are
// bounded, and readers that may be slow. Comments of versions are read by those servers only.
func readSession(timeout time.Duration) settings {
	return settings(fmt.Sprintf("SET SESSION time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', sql_safe_updates = 0,"+
		" sql_select_limit = DEFAULT, group_concat_max_len = 4294967295, net_write_timeout = %[1]d,"+
		" net_read_timeout = %[1]d, wait_timeout = %[1]d,"+
		" lock_wait_timeout = %[2]d /*!80000 , max_execution_time = %[3]d */ /*M!100600 , max_statement_time = %[4]s */",
		netTimeout, lockWait, timeout.Milliseconds(), strconv.FormatFloat(timeout.Seconds(), 'f', 3, 64)))
}

// endpoint is a connection whose parts are all resolved.
type endpoint struct {
	Connection
	network, address string
	tls              *tls.Config // nil: none
	fallback         bool        // without TLS where the server has none
}

// resolve takes what was left out from the option file and the environment, and reads the certificates. It reads files, but nothing of the
// network.
func (c *Connection) resolve() (*endpoint, error) {
	e := &endpoint{Connection: *c}
	if err := e.fill(); err != nil {
		return nil, &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.config", Doing: "reading the connection parameters", Err: err,
			Hint: "check the options of the connection, the option file and the ssl_… files",
		}
	}
	return e, nil
}

func (e *endpoint) fill() error {
	if err := e.readDefaults(); err != nil {
		return err
	}
	if e.Socket == "" && e.Host == "" {
		e.Host, e.Socket = os.Getenv("MYSQL_HOST"), os.Getenv("MYSQL_UNIX_PORT")
		if e.Host != "" {
			e.Socket = ""
		}
	}
	if e.Port == 0 {
		if port, err := strconv.Atoi(os.Getenv("MYSQL_TCP_PORT")); err == nil {
			e.Port = port
		}
	}
	if e.Password == "" {
		e.Password = connector.Secret(os.Getenv("MYSQL_PWD"))
	}
	if e.User == "" {
		e.User = os.Getenv("USER")
	}
	if e.Host == "" {
		e.Host = "127.0.0.1"
	}
	if e.Port == 0 {
		e.Port = defaultPort
	}
	if e.ConnectTimeout == 0 {
		e.ConnectTimeout = defaultConnectTimeout
	}
	if e.Socket != "" {
		e.network, e.address = "unix", e.Socket
	} else {
		e.network, e.address = "tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port))
	}
	return e.secure()
}

// secure decides about TLS. A socket needs none.
func (e *endpoint) secure() error {
	mode := e.sslMode()
	if mode == "" {
		mode = sslPreferred
	}
	if mode == sslDisabled || (mode == sslPreferred && e.network == "unix") {
		return nil
	}
	e.fallback = mode == sslPreferred
	cfg := &tls.Config{ServerName: e.Host, MinVersion: tls.VersionTLS12}
	if e.SSLCA != "" {
		pem, err := os.ReadFile(e.SSLCA)
		if err != nil {
			return fmt.Errorf("ssl_ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("ssl_ca: %s has no certificate in PEM form", e.SSLCA)
		}
	}
	if e.SSLCert != "" {
		pair, err := tls.LoadX509KeyPair(e.SSLCert, e.SSLKey)
		if err != nil {
			return fmt.Errorf("ssl_cert and ssl_key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	switch mode {
	case sslPreferred, sslRequired:
		cfg.InsecureSkipVerify = true // these modes encrypt, and check nobody
	case sslVerifyCA:
		cfg.InsecureSkipVerify = true // the name is not checked; who signed it is
		cfg.VerifyConnection = func(s tls.ConnectionState) error { return verifyAuthority(cfg.RootCAs, s) }
	}
	e.tls = cfg
	return nil
}

// verifyAuthority checks who signed the server's certificate, whatever name is on it.
func verifyAuthority(roots *x509.CertPool, s tls.ConnectionState) error {
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, cert := range s.PeerCertificates[1:] {
		o.Intermediates.AddCert(cert)
	}
	_, err := s.PeerCertificates[0].Verify(o)
	return err //nolint:wrapcheck // tlsError looks at it
}

// readDefaults takes what was left out from the section client of the option file.
func (e *endpoint) readDefaults() error {
	if e.DefaultsFile == "" {
		return nil
	}
	path := e.DefaultsFile
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("defaults_file: %w", err)
		}
		path = home + "/" + rest
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("defaults_file: %w", err)
	}
	return e.apply(clientSection(string(text)))
}

// apply takes values of an option file where nothing else was said.
func (e *endpoint) apply(values map[string]string) error {
	for name, at := range map[string]*string{
		"host": &e.Host, "socket": &e.Socket, "user": &e.User, "database": &e.Database, "ssl_ca": &e.SSLCA, "ssl_cert": &e.SSLCert,
		"ssl_key": &e.SSLKey,
	} {
		if *at == "" {
			*at = values[name]
		}
	}
	if e.Host != "" {
		e.Socket = ""
	}
	if e.Password == "" {
		e.Password = connector.Secret(values["password"])
	}
	if mode := values["ssl_mode"]; mode != "" && (e.SSLMode == "" || e.SSLMode == sslPreferred) {
		e.SSLMode = mode
	}
	if port := values["port"]; port != "" && e.Port == 0 {
		n, err := strconv.Atoi(port)
		if err != nil {
			return errors.New("defaults_file: port is no number")
		}
		e.Port = n
	}
	return nil
}

// clientSection reads the section client of an option file: name=value lines, names with - or _, values perhaps in quotes.
func clientSection(text string) map[string]string {
	values, inside := map[string]string{}, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';' || line[0] == '!':
			continue
		case line[0] == '[':
			inside = line == "[client]"
			continue
		case !inside:
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		value = strings.TrimSpace(value)
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		values[strings.ReplaceAll(strings.TrimSpace(name), "-", "_")] = value
	}
	return values
}

// dial opens the network connection.
func (e *endpoint) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: e.ConnectTimeout, KeepAlive: keepAlive}
	return d.DialContext(ctx, network, address) //nolint:wrapcheck // connectError says what was being done
}

// control opens a pool of ordinary connections, each with the settings. Nothing is connected yet.
func (c *Connection) control(s settings, options ...func(*gosql.Config)) (*sql.DB, error) {
	e, err := c.resolve()
	if err != nil {
		return nil, err
	}
	cfg := gosql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.DBName = e.User, e.Password.Reveal(), e.network, e.address, e.Database
	cfg.TLS, cfg.AllowFallbackToPlaintext = e.tls, e.fallback
	cfg.Collation, cfg.Timeout, cfg.DialFunc = "utf8mb4_bin", e.ConnectTimeout, e.dial
	cfg.MaxAllowedPacket = 0 // as the server has it
	cfg.Logger = &gosql.NopLogger{}
	cfg.ConnectionAttributes = "program_name:leat"
	for _, o := range options {
		o(cfg)
	}
	inner, err := gosql.NewConnector(cfg)
	if err != nil {
		return nil, c.redact(err)
	}
	db := sql.OpenDB(&preparing{inner: inner, end: e, settings: s})
	db.SetMaxIdleConns(2)
	return db, nil
}

// preparing makes connections with the settings of a session. Errors of connecting name the server.
type preparing struct {
	inner    driver.Connector
	end      *endpoint
	settings settings
}

// Connect implements driver.Connector.
func (p *preparing) Connect(ctx context.Context) (driver.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, p.end.ConnectTimeout)
	defer cancel()
	conn, err := p.inner.Connect(bounded)
	if err != nil {
		return nil, p.end.connectError(err)
	}
	if ex, ok := conn.(driver.ExecerContext); ok && p.settings != "" {
		if _, err := ex.ExecContext(bounded, string(p.settings), nil); err != nil {
			_ = conn.Close()
			return nil, p.end.wrap("setting up a session", err)
		}
	}
	return conn, nil
}

// Driver implements driver.Connector.
func (p *preparing) Driver() driver.Driver { return p.inner.Driver() }

// stream opens a connection of its own for reading many rows, or the binary log: values come in the character sets of their columns.
func (c *Connection) stream(ctx context.Context, s settings) (*client.Conn, error) {
	e, err := c.resolve()
	if err != nil {
		return nil, err
	}
	conn, err := e.handshake(ctx, e.tls)
	if err != nil && e.fallback && e.tls != nil && strings.Contains(err.Error(), "not support TLS") {
		conn, err = e.handshake(ctx, nil)
	}
	if err != nil {
		return nil, e.connectError(err)
	}
	if _, err := conn.Execute(string(s)); err != nil {
		_ = conn.Close()
		return nil, c.wrap("setting up a session", err)
	}
	if _, err := conn.Execute("SET SESSION character_set_results = NULL"); err != nil {
		_ = conn.Close()
		return nil, c.wrap("setting up a session", err)
	}
	return conn, nil
}

// handshake connects and logs in, in a bounded time.
func (e *endpoint) handshake(ctx context.Context, secure *tls.Config) (*client.Conn, error) {
	deadline := time.Now().Add(e.ConnectTimeout)
	stop := func() bool { return true }
	defer func() { stop() }()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := e.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		return conn, conn.SetDeadline(deadline) //nolint:wrapcheck // connectError says what was being done
	}
	prepare := func(c *client.Conn) error {
		c.SetTLSConfig(secure)
		c.SetAttributes(map[string]string{"program_name": "leat"})
		return c.SetCollation("utf8mb4_bin") //nolint:wrapcheck // likewise
	}
	conn, err := client.ConnectWithDialer(ctx, e.network, e.address, e.User, e.Password.Reveal(), e.Database, dial, prepare)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err() //nolint:wrapcheck // connectError says what was being done
		}
		return nil, err //nolint:wrapcheck // likewise
	}
	stop()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close()
		return nil, err //nolint:wrapcheck // likewise
	}
	return conn, nil
}

// querier is a pool, a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// ask runs one statement and returns its rows as text; a nil slice is NULL.
func ask(ctx context.Context, q querier, query string, args ...any) ([][][]byte, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err //nolint:wrapcheck // callers say what was being done
	}
	defer func() { _ = rows.Close() }() // its error is that of Err
	names, err := rows.Columns()
	if err != nil {
		return nil, err //nolint:wrapcheck // likewise
	}
	var out [][][]byte
	for rows.Next() {
		row := make([][]byte, len(names))
		at := make([]any, len(names))
		for i := range row {
			at[i] = &row[i]
		}
		if err := rows.Scan(at...); err != nil {
			return nil, err //nolint:wrapcheck // likewise
		}
		out = append(out, row)
	}
	return out, rows.Err() //nolint:wrapcheck // likewise
}

// server is what a server says of itself.
type server struct {
	mariadb bool
	version string // as it says
	number  int    // 80034 for 8.0.34, 101105 for 10.11.5
	id      uint64 // @@server_id
	uuid    string // MySQL: @@server_uuid; MariaDB has none
	logBin  bool
}

// String names the server for people.
func (s server) String() string {
	if s.mariadb {
		return "MariaDB " + s.version
	}
	return "MySQL " + s.version
}

// identify asks a server what it is.
func identify(ctx context.Context, q querier) (server, error) {
	rows, err := ask(ctx, q, "SELECT VERSION(), @@version_comment, @@server_id, @@log_bin /*!80000 , @@server_uuid */")
	if err != nil {
		return server{}, err
	}
	r := rows[0]
	s := server{version: string(r[0]), logBin: isTrue(r[3])}
	s.mariadb = strings.Contains(strings.ToLower(s.version+string(r[1])), "mariadb")
	s.number = versionNumber(s.version)
	s.id = toUint(r[2])
	if len(r) > 4 && !s.mariadb {
		s.uuid = string(r[4])
	}
	return s, nil
}

// versionNumber makes one number of a version: 80034 of 8.0.34-log.
func versionNumber(version string) int {
	n := 0
	rest := strings.TrimPrefix(version, "5.5.5-") // what MariaDB once put in front
	for range 3 {
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		part, err := strconv.Atoi(rest[:digits])
		if err != nil {
			part = 0
		}
		n = n*100 + part
		rest = strings.TrimPrefix(rest[digits:], ".")
	}
	return n
}

func toInt(b []byte) int64 {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func toUint(b []byte) uint64 {
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// isTrue reads a boolean of the server, which is a number or a word.
func isTrue(b []byte) bool {
	switch string(b) {
	case "1", "ON", "on", "YES":
		return true
	}
	return false
}
