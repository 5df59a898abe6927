package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
)

// redact takes the secrets of the connection out of a text, and makes it one line.
func (c *Connection) redact(text string) string {
	for _, s := range c.secrets() {
		if s != "" {
			text = strings.ReplaceAll(text, s.Reveal(), "***")
		}
	}
	return strings.Join(strings.Fields(text), " ")
}

// redacted is an error whose text holds no secret.
type redacted struct {
	text  string
	cause error // nil where its text has a secret
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.cause }

func (c *Connection) clean(err error) error {
	text := c.redact(err.Error())
	for _, s := range c.secrets() {
		if s != "" && strings.Contains(err.Error(), s.Reveal()) {
			return &redacted{text: text}
		}
	}
	return &redacted{text: text, cause: err}
}

// wrap translates an error of brokers or of the library: class, code and hint. An error that is a *connector.Error already stays as it is.
func (c *Connection) wrap(doing string, err error) error {
	var done *connector.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	e := &connector.Error{Doing: doing, Err: c.clean(err)}
	var ke *kerr.Error
	switch {
	case errors.Is(err, context.Canceled):
		e.Class, e.Code = connector.ClassTransient, "kafka.cancelled"
	case c.connectError(e, err):
	case errors.As(err, &ke):
		e.Class, e.Code, e.Hint = classify(ke)
		e.Err = brokerError(ke, err, c)
	case errors.Is(err, context.DeadlineExceeded):
		e.Class, e.Code = connector.ClassTransient, "kafka.timeout"
		e.Err = fmt.Errorf("no answer from %s in time", c.where())
		e.Hint = "check that the brokers advertise addresses that can be reached from here (advertised.listeners); timeout=1m waits longer"
	case errors.Is(err, kgo.ErrClientClosed):
		e.Class, e.Code = connector.ClassTransient, "kafka.closed"
	default:
		e.Class, e.Code = connector.ClassTransient, "kafka.error"
		e.Hint = "the log of the brokers may say more"
	}
	return e
}

// brokerError says what the broker said, in its own words, shorter than the library has it.
func brokerError(ke *kerr.Error, err error, c *Connection) error {
	return &redacted{text: c.redact(ke.Message + ": " + ke.Description), cause: err}
}

// connectError fills e where a broker was not reached, or did not let us in.
func (c *Connection) connectError(e *connector.Error, err error) bool {
	var first *kgo.ErrFirstReadEOF
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	var dns *net.DNSError
	var op *net.OpError
	where := c.where()
	e.Class = connector.ClassConfig
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		e.Code = "kafka.auth"
		e.Err = fmt.Errorf("%s refuses the login as %q by %s", where, c.User, c.mechanism())
		e.Hint = "check user, password and the mechanism: sasl=plain, scram-sha-256, scram-sha-512 or oauth"
	case errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		e.Code = "kafka.auth"
		e.Err = fmt.Errorf("%s does not take a login by %s", where, c.mechanism())
		e.Hint = "sasl.enabled.mechanisms of the brokers names what they take; say sasl=NAME"
	case strings.Contains(err.Error(), "token_url") || strings.Contains(err.Error(), "token_file"):
		e.Code = "kafka.token"
		e.Hint = "check token_url or token_file, user and password"
	case errors.As(err, &name), errors.As(err, &authority), errors.As(err, &invalid):
		e.Code = "kafka.tls"
		e.Hint = "tls_ca=FILE names the authority that signed the brokers' certificates, tls_server_name=NAME the name that they have"
	case errors.As(err, &header):
		e.Code, e.Err = "kafka.tls", fmt.Errorf("%s does not speak TLS on this port", where)
		e.Hint = "write kafka:// instead of kafkas://, or name the port of a listener with TLS"
	case errors.As(err, &alert), strings.Contains(err.Error(), "remote error: tls"):
		e.Code = "kafka.tls"
		e.Hint = "the brokers may want a certificate: tls_cert=FILE and tls_key=FILE"
	case errors.As(err, &first), strings.Contains(err.Error(), "tls alert record"):
		e.Class, e.Code = connector.ClassTransient, "kafka.handshake"
		e.Err = fmt.Errorf("%s closed the connection at once", where)
		e.Hint = "the port may want TLS (kafkas://) or a login (user and password), or may not be Kafka's"
	case errors.As(err, &dns) && dns.IsNotFound:
		e.Code, e.Err = "kafka.host", fmt.Errorf("there is no host %q", dns.Name)
		e.Hint = "check the brokers' names; a name that you did not type is one that the brokers advertise (advertised.listeners)"
	case errors.As(err, &op):
		e.Class, e.Code = connector.ClassTransient, "kafka.host"
		e.Hint = "check that the brokers run, and host and port; an address that you did not type is one that they advertise " +
			"(advertised.listeners)"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		e.Class, e.Code = connector.ClassTransient, "kafka.connection"
		e.Hint = "the broker or the network ended the connection; the broker's log says why"
	default:
		e.Class = connector.ClassUnknown
		return false
	}
	return true
}

// classify says what a broker's error means for the engine and for the user.
func classify(err *kerr.Error) (class connector.Class, code, hint string) {
	switch err.Code {
	case kerr.TopicAuthorizationFailed.Code:
		return connector.ClassConfig, "kafka.privilege", "leat check lists the rights that are missing, with the ACL for each"
	case kerr.GroupAuthorizationFailed.Code:
		return connector.ClassConfig, "kafka.privilege", "kafka-acls.sh --add --allow-principal User:NAME --operation Read --group GROUP"
	case kerr.ClusterAuthorizationFailed.Code:
		return connector.ClassConfig, "kafka.privilege",
			"make the topics yourself and say create=false, or allow it: kafka-acls.sh --add --allow-principal User:NAME " +
				"--operation Create --cluster"
	case kerr.TransactionalIDAuthorizationFailed.Code:
		return connector.ClassConfig, "kafka.privilege",
			"kafka-acls.sh --add --allow-principal User:NAME --operation Write --operation Describe --transactional-id ID; " +
				"or transactions=false"
	case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code:
		return connector.ClassConfig, "kafka.topic", "kafka-topics.sh --list shows the topics; names are case-sensitive"
	case kerr.InvalidTopicException.Code:
		return connector.ClassConfig, "kafka.topic", "topics have letters, digits and . _ - in their names; the option topic sets them"
	case kerr.InvalidReplicationFactor.Code:
		return connector.ClassConfig, "kafka.replication", "the cluster has fewer brokers than that: replication=1"
	case kerr.PolicyViolation.Code, kerr.InvalidConfig.Code, kerr.InvalidPartitions.Code:
		return connector.ClassConfig, "kafka.topic_config", "change partitions, replication or topic_config, or make the topic yourself"
	case kerr.InvalidTransactionTimeout.Code:
		return connector.ClassConfig, "kafka.transaction",
			"say a smaller transaction_timeout, or raise transaction.max.timeout.ms of the brokers"
	case kerr.MessageTooLarge.Code, kerr.RecordListTooLarge.Code:
		return connector.ClassPermanent, "kafka.size", "raise max.message.bytes of the topic"
	case kerr.NotEnoughReplicas.Code, kerr.NotEnoughReplicasAfterAppend.Code:
		return connector.ClassTransient, "kafka.replicas", "fewer replicas are in sync than min.insync.replicas of the topic asks for"
	case kerr.CorruptMessage.Code, kerr.UnsupportedForMessageFormat.Code, kerr.InvalidRecord.Code, kerr.UnsupportedVersion.Code:
		return connector.ClassPermanent, "kafka.error", ""
	}
	if err.Retriable {
		return connector.ClassTransient, "kafka.retry", "the log of the brokers may say more"
	}
	return connector.ClassPermanent, "kafka.error", "the log of the brokers may say more"
}

// positionError refuses a position, see clause S4.
func positionError(code, topic, hint, format string, args ...any) error {
	if hint == "" {
		hint = "read from the beginning of what is there: --restart"
	}
	return &connector.Error{
		Class: connector.ClassPosition, Code: code, Doing: "resuming topic " + topic, Err: fmt.Errorf(format, args...), Hint: hint,
	}
}
