package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/leatdata/leat/connector"
)

func (c *Connection) validate() error {
	mechanisms := []string{saslPlain, saslSCRAM256, saslSCRAM512, saslOAuth}
	switch {
	case len(c.Brokers) == 0 || slices.Contains(c.Brokers, ""):
		return configError(errors.New("no broker is named"), "write it as kafka://BROKER:9092/TOPIC")
	case c.SASL != "" && !slices.Contains(mechanisms, c.SASL):
		return configError(connector.UnknownName("way to log in", c.SASL, mechanisms), "")
	case c.SASL != "" && c.SASL != saslOAuth && c.User == "":
		return configError(fmt.Errorf("sasl=%s needs a user", c.SASL), "say user=NAME and password")
	case c.Timeout <= 0:
		return configError(fmt.Errorf("timeout=%s is no time to wait", c.Timeout), "say timeout=20s")
	case !c.TLS && (c.TLSCA != "" || c.TLSCert != "" || c.TLSKey != "" || c.TLSServerName != ""):
		return configError(errors.New("there are options of TLS, and TLS is off"), "say tls=true, or write kafkas://")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return configError(errors.New("tls_cert and tls_key go together"), "name both files")
	}
	return c.validateToken()
}

func (c *Connection) validateToken() error {
	tokens := 0
	for _, t := range []bool{c.Token != "", c.TokenFile != "", c.TokenURL != ""} {
		if t {
			tokens++
		}
	}
	switch {
	case c.mechanism() == saslOAuth && tokens != 1:
		return configError(errors.New("sasl=oauth needs one of token, token_file and token_url"), "say where the token comes from")
	case c.mechanism() != saslOAuth && tokens > 0:
		return configError(errors.New("a token is for sasl=oauth"), "say sasl=oauth")
	case c.TokenURL != "" && !strings.HasPrefix(c.TokenURL, "https://") && !strings.HasPrefix(c.TokenURL, "http://"):
		return configError(errors.New("token_url is no URL"), "write it as https://HOST/PATH")
	}
	return nil
}

// mechanism is how to log in; empty: not at all.
func (c *Connection) mechanism() string {
	if c.SASL == "" && c.User != "" {
		return saslPlain
	}
	return c.SASL
}

// secrets are what must not show.
func (c *Connection) secrets() []connector.Secret { return []connector.Secret{c.Password, c.Token} }

// tlsConfig is the configuration of TLS.
func (c *Connection) tlsConfig() (*tls.Config, error) {
	cfg, err := tlsFiles("tls", c.TLSCA, c.TLSCert, c.TLSKey)
	if err == nil {
		cfg.ServerName = c.TLSServerName
	}
	return cfg, err
}

// tlsFiles makes a configuration of files; empty names: the system's authorities, no certificate of one's own. Errors name the options,
// which begin with prefix.
func tlsFiles(prefix, ca, cert, key string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, configError(fmt.Errorf("%s_ca: %w", prefix, err), "")
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, configError(fmt.Errorf("%s_ca: %s holds no certificate in PEM", prefix, ca),
				"openssl x509 -in FILE -out FILE.pem converts it")
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, configError(fmt.Errorf("%s_cert and %s_key: %w", prefix, prefix, err), "")
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// login is the mechanism of SASL; nil: none.
func (c *Connection) login() sasl.Mechanism {
	switch c.mechanism() {
	case saslPlain:
		return plain.Auth{User: c.User, Pass: c.Password.Reveal()}.AsMechanism()
	case saslSCRAM256:
		return scram.Auth{User: c.User, Pass: c.Password.Reveal()}.AsSha256Mechanism()
	case saslSCRAM512:
		return scram.Auth{User: c.User, Pass: c.Password.Reveal()}.AsSha512Mechanism()
	case saslOAuth:
		t := &tokens{c: c}
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := t.get(ctx)
			return oauth.Auth{Token: token}, err
		})
	}
	return nil
}

// client opens a client; it connects when it is first used.
func (c *Connection) client(env connector.Env, more ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID(c.ClientID), kgo.WithLogger(logger{env.Log, c}), kgo.WithHooks(calls{env.Roundtrip}),
		kgo.RetryTimeout(c.Timeout), kgo.RequestTimeoutOverhead(c.Timeout), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(250 * time.Millisecond), //nolint:mnd // a new topic is found at once
	}
	if c.dial == nil {
		opts = append(opts, kgo.DialTimeout(c.Timeout))
	}
	if c.TLS {
		cfg, err := c.tlsConfig()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(cfg))
	}
	if c.dial != nil {
		opts = append(opts, kgo.Dialer(c.dial))
	}
	if m := c.login(); m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	cl, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		return nil, c.wrap("configuring the client", err)
	}
	return cl, nil
}

// logger passes on what the library tells, but for its chatter.
type logger struct {
	log *slog.Logger
	c   *Connection
}

func (logger) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (l logger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	for i, v := range keyvals {
		if err, ok := v.(error); ok {
			keyvals[i] = l.c.redact(err.Error())
		}
	}
	about := []any{slog.String("said", msg), slog.Group("about", keyvals...)}
	if level == kgo.LogLevelError { // one that matters comes back to the caller as well
		l.log.Info("the Kafka client", about...)
		return
	}
	l.log.Debug("the Kafka client", about...)
}

// calls counts real calls to brokers.
type calls struct{ count func(op string) }

var _ kgo.HookBrokerWrite = calls{}

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (c calls) OnBrokerWrite( //nolint:revive // the hook has so many
	_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error,
) {
	if err == nil && c.count != nil {
		c.count(callName(key))
	}
}

// callName names a call in lower case: InitProducerID is init producer id.
func callName(key int16) string {
	var b strings.Builder
	name := kmsg.Key(key).Name()
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 && (name[i-1] < 'A' || name[i-1] > 'Z') {
				b.WriteByte(' ')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// where names the cluster for messages: the brokers as they were given.
func (c *Connection) where() string { return strings.Join(c.Brokers, ",") }

// uri is the cluster by the naming rules of OpenLineage.
func (c *Connection) uri(topic string) string {
	broker := c.Brokers[0]
	if !strings.Contains(broker, ":") {
		broker = net.JoinHostPort(broker, defaultPort)
	}
	return "kafka://" + broker + "/" + topic
}
