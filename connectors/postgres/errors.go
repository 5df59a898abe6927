package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
)

// redacted is an error whose text holds no secret.
type redacted struct {
	text  string
	cause error
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.cause }

// redact takes the secrets of the connection out of an error's text.
func (c *Connection) redact(err error) error {
	text := err.Error()
	for _, s := range []connector.Secret{c.Password, c.SSLPassword} {
		if s != "" {
			text = strings.ReplaceAll(text, s.Reveal(), "***")
		}
	}
	if text == err.Error() {
		return err
	}
	return &redacted{text: text}
}

// wrap translates an error of the server or of the connection: class, code and hint. An error that is a *connector.Error already
// stays as it is.
func (c *Connection) wrap(doing string, err error) error {
	var done *connector.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	e := &connector.Error{Doing: doing, Err: c.redact(err)}
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg):
		e.Class, e.Code, e.Hint = classify(pg)
		e.Err = c.redact(serverMessage(pg))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Class, e.Code = connector.ClassTransient, "postgres.cancelled"
	case connectionLost(err):
		e.Class, e.Code = connector.ClassTransient, "postgres.connection"
		e.Hint = "the server or the network ended the connection; the server's log says why"
	default:
		e.Class, e.Code = connector.ClassPermanent, "postgres.error"
	}
	return e
}

func connectionLost(err error) bool {
	var op net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &op) || strings.Contains(err.Error(), "conn closed")
}

// serverMessageError is what the server said, in one line.
type serverMessageError struct {
	text string
	pg   *pgconn.PgError
}

func (e *serverMessageError) Error() string { return e.text }
func (e *serverMessageError) Unwrap() error { return e.pg }

func serverMessage(pg *pgconn.PgError) error {
	text := pg.Message
	if pg.Detail != "" {
		text += " (" + pg.Detail + ")"
	}
	return &serverMessageError{text: text + ", SQLSTATE " + pg.Code, pg: pg}
}

// classify says what an SQLSTATE means for the engine and for the user.
func classify(pg *pgconn.PgError) (class connector.Class, code, hint string) {
	if strings.Contains(pg.Message, "cached plan must not change result type") {
		return connector.ClassTransient, "postgres.schema_changed", ""
	}
	hint = pg.Hint
	or := func(text string) string {
		if hint != "" {
			return hint
		}
		return text
	}
	switch pg.Code {
	case "28P01":
		return connector.ClassConfig, "postgres.auth", or("check user and password; the password may come from PGPASSWORD or ~/.pgpass")
	case "28000":
		return connector.ClassConfig, "postgres.auth", or("check user, database and sslmode against the server's pg_hba.conf")
	case "3D000":
		return connector.ClassConfig, "postgres.database", or("psql -l lists the databases")
	case "3F000":
		return connector.ClassConfig, "postgres.schema", or(`psql -c '\dn' lists the schemas`)
	case "42P01":
		return connector.ClassConfig, "postgres.table", or("name it with its schema, as in public.orders, in the case that psql shows")
	case "42703":
		return connector.ClassConfig, "postgres.column", or("name columns in the case that psql shows")
	case "42601":
		return connector.ClassConfig, "postgres.syntax", or("check where and query")
	case "42501":
		return connector.ClassPermanent, "postgres.privilege", or("leat check names the missing privileges and the GRANT for each")
	case "25006":
		return connector.ClassPermanent, "postgres.read_only",
			or("a source may only read; a sink needs the primary: target_session_attrs=read-write")
	case "57014":
		return connector.ClassTransient, "postgres.timeout", or("raise statement_timeout")
	case "40001", "40P01", "55P03", "72000", "26000", "42P05":
		return connector.ClassTransient, "postgres.retry", hint
	case "53300":
		return connector.ClassTransient, "postgres.connections", or("raise max_connections, or lower parallel")
	case "53100":
		return connector.ClassTransient, "postgres.disk_full", or("free disk space on the server")
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "08", "53":
		return connector.ClassTransient, "postgres.connection", hint
	case "57":
		return connector.ClassTransient, "postgres.shutdown", hint
	case "22", "23":
		return connector.ClassPermanent, "postgres.value", hint
	}
	return connector.ClassPermanent, "postgres.error", hint
}

// connectError says which step of connecting did not work, and to which server.
func (c *Connection) connectError(cfg *pgx.ConnConfig, err error) error {
	host := cfg.Host
	where := fmt.Sprintf("connecting to PostgreSQL at %s:%d, database %q, as %q", host, cfg.Port, cfg.Database, cfg.User)
	if strings.HasPrefix(host, "/") {
		where = fmt.Sprintf("connecting to PostgreSQL in %s, port %d, database %q, as %q", host, cfg.Port, cfg.Database, cfg.User)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		e := &connector.Error{Doing: where, Err: c.redact(serverMessage(pg))}
		e.Class, e.Code, e.Hint = classify(pg)
		return e
	}
	e := &connector.Error{Class: connector.ClassTransient, Code: "postgres.connect", Doing: where}
	if c.tlsError(e, host, err) || c.networkError(e, host, err) {
		return e
	}
	e.Err = c.redact(innermost(err))
	return e
}

// innermost skips the driver's own wording.
func innermost(err error) error {
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		if inner := errors.Unwrap(connect); inner != nil {
			return inner
		}
	}
	return err
}

// tlsError fills e where a check of TLS failed, and says which.
func (c *Connection) tlsError(e *connector.Error, host string, err error) bool {
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &name):
		e.Code = "postgres.tls.hostname"
		names := certificateNames(name.Certificate)
		e.Err = fmt.Errorf("sslmode=verify-full: the server's certificate is not for %q but for %s", host, names)
		e.Hint = "connect by a name of the certificate, or use sslmode=verify-ca to check only who signed it"
	case errors.As(err, &authority):
		e.Code = "postgres.tls.authority"
		e.Err = errors.New("the server's certificate is signed by an authority that is not trusted")
		e.Hint = "sslrootcert=FILE with the certificate of the authority that signed it, or sslrootcert=system"
	case errors.As(err, &invalid):
		e.Code = "postgres.tls.certificate"
		e.Err = fmt.Errorf("the server's certificate is not valid: %w", invalid)
	case strings.Contains(err.Error(), "server refused TLS"):
		e.Code = "postgres.tls.refused"
		e.Err = errors.New("the server does not offer TLS")
		e.Hint = "switch TLS on at the server (ssl = on), or use sslmode=disable where the network is trusted"
	case errors.As(err, &record), strings.Contains(err.Error(), "tls:"):
		e.Code = "postgres.tls.handshake"
		e.Err = c.redact(innermost(err))
	default:
		return false
	}
	e.Class = connector.ClassConfig
	return true
}

func certificateNames(cert *x509.Certificate) string {
	if cert == nil {
		return "another name"
	}
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no name at all"
	}
	return strings.Join(names, ", ")
}

// networkError fills e where the server was not reached.
func (c *Connection) networkError(e *connector.Error, host string, err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		e.Class, e.Code = connector.ClassConfig, "postgres.host"
		e.Err = fmt.Errorf("there is no host %q", dns.Name)
		e.Hint = "check the host's name"
	case errors.Is(err, os.ErrNotExist) && strings.HasPrefix(host, "/"):
		e.Class, e.Code = connector.ClassConfig, "postgres.host"
		e.Err = errors.New("there is no socket of this port in the folder")
		e.Hint = "check the folder and the port; psql -c 'SHOW unix_socket_directories' names the folder"
	case pgconn.Timeout(err), errors.Is(err, context.DeadlineExceeded):
		e.Code = "postgres.timeout"
		e.Err = errors.New("no answer in time")
		e.Hint = "check host, port and firewall; connect_timeout=SECONDS sets how long to wait"
	case errors.As(err, &op):
		e.Code = "postgres.host"
		e.Err = c.redact(op)
		e.Hint = "check host and port, and that the server listens there"
	default:
		return false
	}
	return true
}
