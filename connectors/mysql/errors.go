package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	gosql "github.com/go-sql-driver/mysql"

	"github.com/leatdata/leat/connector"
)

// redacted is an error whose text holds no secret.
type redacted struct {
	text string
}

func (e *redacted) Error() string { return e.text }

// redact takes the password out of an error's text.
func (c *Connection) redact(err error) error {
	if c.Password == "" || !strings.Contains(err.Error(), c.Password.Reveal()) {
		return err
	}
	return &redacted{text: strings.ReplaceAll(err.Error(), c.Password.Reveal(), "***")}
}

// serverError is an error that the server sent, whichever library received it.
type serverError struct {
	number  uint16
	state   string
	message string
}

// Error is what the server said, in one line.
func (e *serverError) Error() string {
	return fmt.Sprintf("%s (error %d, SQLSTATE %s)", strings.TrimSuffix(e.message, "."), e.number, e.state)
}

// serverErrorOf finds what the server said.
func serverErrorOf(err error) (*serverError, bool) {
	if own, ok := errors.AsType[*serverError](err); ok {
		return own, true
	}
	if m, ok := errors.AsType[*gosql.MySQLError](err); ok {
		return &serverError{number: m.Number, state: string(m.SQLState[:]), message: m.Message}, true
	}
	if m, ok := errors.AsType[*mysql.MyError](err); ok {
		return &serverError{number: m.Code, state: m.State, message: m.Message}, true
	}
	return nil, false
}

// wrap translates an error of the server or of the connection: class, code and hint. An error that is a *connector.Error already
// stays as it is.
func (c *Connection) wrap(doing string, err error) error {
	var done *connector.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	e := &connector.Error{Doing: doing, Err: c.redact(err)}
	if s, ok := serverErrorOf(err); ok {
		e.Class, e.Code, e.Hint = classify(s)
		e.Err = c.redact(s)
		return e
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Class, e.Code = connector.ClassTransient, "mysql.cancelled"
	case connectionLost(err):
		e.Class, e.Code = connector.ClassTransient, "mysql.connection"
		e.Hint = "the server or the network ended the connection; the server's log says why"
	default:
		e.Class, e.Code = connector.ClassPermanent, "mysql.error"
	}
	return e
}

// connectionLost reports whether an error means that the connection is gone.
func connectionLost(err error) bool {
	var op net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &op) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, gosql.ErrInvalidConn) || errors.Is(err, mysql.ErrBadConn) ||
		errors.Is(err, sql.ErrConnDone) || strings.Contains(err.Error(), mysql.ErrBadConn.Error())
}

// Numbers of errors that are looked for by name elsewhere.
const (
	errNoTable       = 1146
	errNoDatabase    = 1049
	errNoColumn      = 1054
	errTooLong       = 1969 // MariaDB: max_statement_time
	errInterrupted   = 1317
	errTimeout       = 3024 // MySQL: max_execution_time
	errDefinition    = 1412 // the table changed after the snapshot began
	errPurged        = 1236 // the server can't send the binary log from there
	errLockWait      = 1205
	errPrivilege     = 1227
	errRecover       = 1401
	errDeadlock      = 1213
	errUnknownThread = 1094
)

// classify says what an error of the server means for the engine and for the user.
func classify(e *serverError) (class connector.Class, code, hint string) {
	switch e.number {
	case 1045, 1698, 1251, 2059, 3118, 4151:
		return connector.ClassConfig, "mysql.auth", "check user and password; the password may come from MYSQL_PWD or from the option file"
	case 3159, 3161, 1275:
		return connector.ClassConfig, "mysql.tls.required", "the server wants TLS: ssl_mode=required"
	case 1820, 1862:
		return connector.ClassConfig, "mysql.auth", "the password has expired: ALTER USER USER() IDENTIFIED BY '…'"
	case 1044, 1142, 1143, 1227, 1370, 1410:
		return connector.ClassPermanent, "mysql.privilege", "leat check names the missing privileges and the GRANT for each"
	case errNoDatabase:
		return connector.ClassConfig, "mysql.database", "SHOW DATABASES lists the databases that the user may see"
	case errNoTable, 1051, 1109:
		return connector.ClassConfig, "mysql.table", "name it with its database, as in shop.orders; SHOW TABLES lists them"
	case 1046:
		return connector.ClassConfig, "mysql.database", "add the database to the URL, or name tables with it, as in shop.orders"
	case errNoColumn:
		return connector.ClassConfig, "mysql.column", "SHOW COLUMNS FROM … lists the columns"
	case 1064, 1149:
		return connector.ClassConfig, "mysql.syntax", "check where and query"
	case errLockWait, errDeadlock, 3572, errInterrupted:
		return connector.ClassTransient, "mysql.retry", ""
	case errTimeout, errTooLong:
		return connector.ClassTransient, "mysql.timeout", "raise statement_timeout"
	case 1040, 1203, 1226:
		return connector.ClassTransient, "mysql.connections", "raise max_connections, or lower parallel"
	case errDefinition, 1615, 1447:
		return connector.ClassTransient, "mysql.schema_changed", ""
	case errPurged, 1373, 1220:
		return connector.ClassPosition, "mysql.log", ""
	case 1021, 1114, 3, 28:
		return connector.ClassTransient, "mysql.disk_full", "free disk space on the server"
	case 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169, 4031:
		return connector.ClassTransient, "mysql.shutdown", ""
	case 1290, 1792, 1836, 3032:
		return connector.ClassPermanent, "mysql.read_only", "a source may only read; a sink needs a server that can be written to"
	case 1153, 2020:
		return connector.ClassPermanent, "mysql.packet", "a row is larger than max_allowed_packet of the server: raise it"
	case 1048, 1062, 1169, 1216, 1217, 1264, 1265, 1292, 1366, 1367, 1406, 1411, 1451, 1452, 1364, 1557, 1586, 1690, 3140, 3819, 4025:
		return connector.ClassPermanent, "mysql.value", ""
	}
	return classifyState(e.state)
}

// classifyState judges by the SQLSTATE where the number is not known.
func classifyState(state string) (class connector.Class, code, hint string) {
	switch state[:min(2, len(state))] {
	case "08":
		return connector.ClassTransient, "mysql.connection", ""
	case "40":
		return connector.ClassTransient, "mysql.retry", ""
	case "22", "23":
		return connector.ClassPermanent, "mysql.value", ""
	case "28":
		return connector.ClassConfig, "mysql.auth", "check user and password"
	}
	return connector.ClassPermanent, "mysql.error", ""
}

// connectError says which step of connecting did not work, and to which server.
func (e *endpoint) connectError(err error) error {
	out := &connector.Error{
		Class: connector.ClassTransient, Code: "mysql.connect",
		Doing: fmt.Sprintf("connecting to MySQL at %s, database %q, as %q", e.address, e.Database, e.User),
	}
	if s, ok := serverErrorOf(err); ok {
		out.Class, out.Code, out.Hint = classify(s)
		out.Err = e.redact(s)
		return out
	}
	if e.tlsError(out, err) || e.networkError(out, err) {
		return out
	}
	out.Err = e.redact(err)
	return out
}

// tlsError fills out where a check of TLS failed, and says which.
func (e *endpoint) tlsError(out *connector.Error, err error) bool {
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &name):
		out.Code = "mysql.tls.hostname"
		names := certificateNames(name.Certificate)
		out.Err = fmt.Errorf("ssl_mode=verify_identity: the server's certificate is not for %q but for %s", e.Host, names)
		out.Hint = "connect by a name of the certificate, or use ssl_mode=verify_ca to check only who signed it"
	case errors.As(err, &authority):
		out.Code = "mysql.tls.authority"
		out.Err = errors.New("the server's certificate is signed by an authority that is not trusted")
		out.Hint = "ssl_ca=FILE with the certificate of the authority that signed it"
	case errors.As(err, &invalid):
		out.Code = "mysql.tls.certificate"
		out.Err = fmt.Errorf("the server's certificate is not valid: %w", invalid)
	case errors.Is(err, gosql.ErrNoTLS), strings.Contains(err.Error(), "not support TLS"):
		out.Code = "mysql.tls.refused"
		out.Err = errors.New("the server does not offer TLS")
		out.Hint = "give the server a certificate (ssl_cert, ssl_key), or use ssl_mode=disabled where the network is trusted"
	case errors.As(err, &header), strings.Contains(err.Error(), "tls:"):
		out.Code = "mysql.tls.handshake"
		out.Err = e.redact(err)
	default:
		return false
	}
	out.Class = connector.ClassConfig
	return true
}

// certificateNames lists the names of a certificate for people.
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

// networkError fills out where the server was not reached.
func (e *endpoint) networkError(out *connector.Error, err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		out.Class, out.Code = connector.ClassConfig, "mysql.host"
		out.Err = fmt.Errorf("there is no host %q", dns.Name)
		out.Hint = "check the host's name"
	case e.network == "unix" && errors.Is(err, os.ErrNotExist):
		out.Class, out.Code = connector.ClassConfig, "mysql.host"
		out.Err = errors.New("there is no socket of this name")
		out.Hint = "mariadb -e 'SELECT @@socket' or mysql -e 'SELECT @@socket' names the file"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		out.Code = "mysql.timeout"
		out.Err = errors.New("no answer in time")
		out.Hint = "check host, port and firewall; connect_timeout sets how long to wait"
	case errors.As(err, &op):
		out.Code = "mysql.host"
		out.Err = e.redact(op)
		out.Hint = "check host and port, and that the server listens there"
	default:
		return false
	}
	return true
}
