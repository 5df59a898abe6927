package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/format/message"
)

// Definition returns the connector, for a registry.
func Definition() connector.Definition {
	return connector.Definition{
		Name:  "kafka",
		Title: "Apache Kafka",
		Doc: "Reads topics, to their end or for ever, with leat's own positions, and writes datasets to topics, exactly once by " +
			"transactions. " +
			"Needs Kafka 2.5 or newer, or what speaks its protocol.",
		Schemes: []string{"kafka", "kafkas"},
		Source:  NewSource,
		Sink:    NewSink,
		Types:   typeRules(),
	}
}

// Connection is how source and sink reach a cluster.
type Connection struct {
	Brokers  []string         `leat:"brokers,required" doc:"brokers to begin with" example:"kafka1:9092,kafka2:9092"`
	SASL     string           `leat:"sasl" doc:"how to log in; empty: plain, with a user" enum:"|plain|scram-sha-256|scram-sha-512|oauth"`
	User     string           `leat:"user" doc:"user to log in as" example:"app"`
	Password connector.Secret `leat:"password" doc:"password of the user" example:"${env:KAFKA_PASSWORD}"`

	Token         connector.Secret `leat:"token" doc:"oauth: the token itself"`
	TokenFile     string           `leat:"token_file" doc:"oauth: file with the token, read at every login" example:"/run/secrets/token"`
	TokenURL      string           `leat:"token_url" doc:"oauth: where a token is to be had for user and password (client credentials)"`
	TokenScope    string           `leat:"token_scope" doc:"oauth: scope to ask for at token_url"`
	TokenAudience string           `leat:"token_audience" doc:"oauth: audience to ask for at token_url"`

	TLS           bool   `leat:"tls" doc:"encrypt the connection, as kafkas:// does"`
	TLSCA         string `leat:"tls_ca" doc:"file of trusted authorities; empty: the machine's"`
	TLSCert       string `leat:"tls_cert" doc:"file with the client's certificate"`
	TLSKey        string `leat:"tls_key" doc:"file with the client's key"`
	TLSServerName string `leat:"tls_server_name" doc:"name that the certificates have to be for; empty: each broker's own"`

	ClientID string        `leat:"client_id" doc:"name that the brokers' logs and quotas show"`
	Timeout  time.Duration `leat:"timeout" doc:"how long to try to reach the cluster, and to wait for an answer"`

	dial func(ctx context.Context, network, host string) (net.Conn, error) // of tests; nil: as usual
}

// Values of the option sasl.
const (
	saslPlain    = "plain"
	saslSCRAM256 = "scram-sha-256"
	saslSCRAM512 = "scram-sha-512"
	saslOAuth    = "oauth"
)

const (
	defaultTimeout = 20 * time.Second
	defaultRefresh = 30 * time.Second
)

func defaultConnection() Connection { return Connection{ClientID: "leat", Timeout: defaultTimeout} }

// SourceConfig is the configuration of a source of topics.
type SourceConfig struct {
	Connection
	Format

	Topics      []string      `leat:"topics,required" doc:"topics by pattern: * any text, ? a character, ! not" example:"shop.*,!shop.log"`
	Follow      bool          `leat:"follow" doc:"go on for ever; otherwise the run ends where the topics end when it begins"`
	Incremental bool          `leat:"incremental" doc:"every run reads what is new since the last one; without follow"`
	From        string        `leat:"from" doc:"where to begin: earliest, latest, group, or a time" example:"2026-01-31T12:00:00Z"`
	Group       string        `leat:"group" doc:"consumer group that is told how far the run got, for tools that look at lag"`
	Uncommitted bool          `leat:"read_uncommitted" doc:"also read what open and aborted transactions wrote"`
	Keyed       bool          `leat:"keyed" doc:"a message is the row of its key from now on; a message without a value deletes it"`
	Tombstones  string        `leat:"tombstones" doc:"messages without a value: delete their key, or are skipped" enum:"delete|skip"`
	Metadata    []string      `leat:"metadata" doc:"columns _kafka_NAME: topic, partition, offset, timestamp, timestamp_type, key, headers"`
	Refresh     time.Duration `leat:"refresh" doc:"with follow: how often to look for new topics and partitions"`
}

// Values of the option from.
const (
	fromEarliest = "earliest"
	fromLatest   = "latest"
	fromGroup    = "group"
)

// Values of the option tombstones.
const (
	tombstonesDelete = "delete"
	tombstonesSkip   = "skip"
)

// NewSource returns the default configuration of a source.
func NewSource() connector.SourceConfig {
	return &SourceConfig{
		Connection: defaultConnection(), Format: defaultFormat(), From: fromEarliest, Tombstones: tombstonesDelete, Refresh: defaultRefresh,
	}
}

var (
	_ connector.SourceConfig = (*SourceConfig)(nil)
	_ connector.URLSetter    = (*SourceConfig)(nil)
)

func configError(err error, hint string) error {
	if hint == "" {
		hint = "leat connectors kafka lists the options"
	}
	return &connector.Error{Class: connector.ClassConfig, Code: "kafka.config", Doing: "configuring kafka", Err: err, Hint: hint}
}

// Contract implements connector.SourceConfig.
func (c *SourceConfig) Contract() (connector.SourceContract, error) {
	if err := c.validate(); err != nil {
		return connector.SourceContract{}, err
	}
	f, err := c.withMetadata(c.promised())
	if err != nil {
		return connector.SourceContract{}, err
	}
	return connector.SourceContract{
		Replay: connector.Deterministic, Interleaved: true, Topology: connector.Splittable, Input: f.Input(c.topic("", "")),
		Bounded: !c.Follow, Incremental: c.Incremental, CancelSafe: true,
	}, nil
}

// topic is what the format is told of a topic.
func (c *SourceConfig) topic(name, dataset string) message.Topic {
	return message.Topic{
		Name: name, Dataset: dataset, Keyed: c.Keyed, SkipTombstones: c.Tombstones == tombstonesSkip, Types: c.Types, Key: c.KeyFormat,
	}
}

func (c *SourceConfig) validate() error {
	if err := c.Connection.validate(); err != nil {
		return err
	}
	positive := slices.ContainsFunc(c.Topics, func(t string) bool { return t != "" && t[0] != '!' })
	switch _, err := c.since(); {
	case !positive:
		return configError(errors.New("no topic is named"), "write it as kafka://BROKER:9092/TOPIC")
	case err != nil:
		return err
	case c.From == fromGroup && c.Group == "":
		return configError(errors.New("from=group has no group to begin from"), "say group=NAME")
	case c.Follow && c.Incremental:
		return configError(errors.New("a run that goes on for ever has no next one"), "leave incremental or follow out")
	case c.Refresh <= 0:
		return configError(fmt.Errorf("refresh=%s is no interval", c.Refresh), "say refresh=30s")
	case !slices.Contains([]string{tombstonesDelete, tombstonesSkip}, c.Tombstones):
		return configError(connector.UnknownName("way with tombstones", c.Tombstones, []string{tombstonesDelete, tombstonesSkip}), "")
	}
	for _, t := range c.Topics {
		if _, err := path.Match(strings.TrimPrefix(t, "!"), ""); err != nil {
			return configError(fmt.Errorf("%q is no pattern of topics", t), "* is any text, ? a character, ! in front leaves topics out")
		}
	}
	if err := c.Format.validate(); err != nil {
		return err
	}
	_, err := c.withMetadata(c.promised())
	return err
}

// metadataPrefix stands in front of the names of columns of metadata.
const metadataPrefix = "_kafka_"

// withMetadata returns the format with the columns of metadata.
func (c *SourceConfig) withMetadata(f message.Format, err error) (message.Format, error) {
	if err != nil || len(c.Metadata) == 0 {
		return f, err
	}
	if c.Name == "raw" {
		return nil, configError(errors.New("the columns of format=raw are the parts of messages"), "leave metadata out")
	}
	if f, err = message.WithMetadata(f, metadataPrefix, c.Metadata); err != nil {
		return nil, configError(fmt.Errorf("metadata=%s: %w", strings.Join(c.Metadata, ","), err),
			"name any of "+strings.Join(message.MetadataParts(), ", "))
	}
	return f, nil
}

// since is the time of the option from; zero: it is none.
func (c *SourceConfig) since() (time.Time, error) {
	switch c.From {
	case fromEarliest, fromLatest, fromGroup, "":
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02"} {
		if t, err := time.Parse(layout, c.From); err == nil {
			return t, nil
		}
	}
	return time.Time{}, configError(fmt.Errorf("from=%q is neither earliest, latest, group nor a time", c.From),
		"write a time as 2026-01-31T12:00:00Z or 2026-01-31")
}

// Identity implements connector.SourceConfig.
func (c *SourceConfig) Identity() map[string]string {
	id := c.Format.identity()
	maps.Copy(id, map[string]string{
		"topics": strings.Join(c.Topics, ","), "from": c.From, "follow": strconv.FormatBool(c.Follow), "keyed": strconv.FormatBool(c.Keyed),
		"tombstones": c.Tombstones, "read_uncommitted": strconv.FormatBool(c.Uncommitted),
	})
	if len(c.Metadata) > 0 {
		id["metadata"] = strings.Join(c.Metadata, ",")
	}
	return id
}

// Open implements connector.SourceConfig.
func (c *SourceConfig) Open(env connector.Env) (connector.Source, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	cfg := *c
	if err := connector.ResolveParent(&cfg, env.Parent, nil); err != nil {
		return nil, err
	}
	f, err := cfg.withMetadata(cfg.open(debezium.Options{}))
	if err != nil {
		return nil, err
	}
	s := newSource(&cfg, env, f)
	if cfg.Group == "" {
		return s, nil
	}
	return &GroupSource{Source: s}, nil
}
