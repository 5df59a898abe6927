package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/format/message"
)

// SinkConfig is the configuration of a sink.
type SinkConfig struct {
	Connection
	Format

	Topic string `leat:"topic" doc:"name of topics; {dataset}, {schema}, {table}, {pipeline} stand for names" example:"shop.{table}"`

	Create      bool              `leat:"create" doc:"make topics that are not there"`
	Partitions  int               `leat:"partitions" doc:"of topics that are made; 0: as the brokers have it"`
	Replication int               `leat:"replication" doc:"copies of topics that are made; 0: as the brokers have it"`
	Cleanup     string            `leat:"cleanup" doc:"of new topics; empty: compact in mode upsert" enum:"|delete|compact|compact,delete"`
	TopicConfig map[string]string `leat:"topic_config" doc:"further settings of topics that are made" example:"retention.ms:604800000"`

	Transactions       bool          `leat:"transactions" doc:"exactly once: rows and position in one transaction"`
	PositionTopic      string        `leat:"position_topic" doc:"compacted topic that keeps positions; made if it is not there"`
	TransactionPrefix  string        `leat:"transactional_id_prefix" doc:"transactional ids begin with it, then pipeline and sink"`
	TransactionTimeout time.Duration `leat:"transaction_timeout" doc:"brokers roll back what takes longer"`

	Truncate    string        `leat:"truncate" doc:"of a dataset that is emptied: an event in each partition" enum:"fail|event|skip"`
	Compression string        `leat:"compression" doc:"of messages" enum:"none|gzip|snappy|lz4|zstd"`
	Linger      time.Duration `leat:"linger" doc:"how long messages wait for others to be sent with"`
	MaxMessage  int64         `leat:"max_message" doc:"largest message, in bytes; 0: max.message.bytes of each topic"`
}

// Values of the option truncate.
const (
	truncateFail  = "fail"
	truncateEvent = "event"
	truncateSkip  = "skip"
)

const (
	defaultPositionTopic      = "leat_positions"
	defaultTransactionPrefix  = "leat"
	defaultTransactionTimeout = 5 * time.Minute // a source transaction may be large; a restart ends what is open at once
	defaultLinger             = 5 * time.Millisecond
)

// NewSink returns the default configuration of a sink.
func NewSink() connector.SinkConfig {
	return &SinkConfig{
		Connection: defaultConnection(), Format: defaultFormat(), Topic: "{dataset}", Create: true, Transactions: true,
		PositionTopic: defaultPositionTopic, TransactionPrefix: defaultTransactionPrefix, TransactionTimeout: defaultTransactionTimeout,
		Truncate: truncateFail, Compression: "lz4", Linger: defaultLinger,
	}
}

var (
	_ connector.SinkConfig = (*SinkConfig)(nil)
	_ connector.URLSetter  = (*SinkConfig)(nil)
)

// Contract implements connector.SinkConfig. A format that tells of changes keeps all of them. Otherwise a message is a row: in mode append
// of its own, in mode upsert that of its key.
func (c *SinkConfig) Contract() (connector.SinkContract, error) {
	if err := c.validate(); err != nil {
		return connector.SinkContract{}, err
	}
	f, err := c.promised()
	if err != nil {
		return connector.SinkContract{}, err
	}
	if _, err := f.NewEncoder(c.topic("x", "x", connector.Append)); err != nil {
		return connector.SinkContract{}, configError(fmt.Errorf("format=%s: %w", c.Name, err), "")
	}
	contract := connector.SinkContract{
		Modes: []connector.WriteMode{connector.Append}, Input: f.Input(message.Topic{}), Durable: true, Atomicity: connector.NoAtomicity,
	}
	if c.Transactions {
		contract.Atomicity = connector.PositionInTransaction
	}
	switch {
	case contract.Input == connector.Changelog:
		contract.Keyless = true
	case f.Input(message.Topic{Keyed: true}) > connector.AppendOnly:
		// An update is the row as it is then: a change that has all of it needs nothing else.
		contract.Modes, contract.Input, contract.NeedsKey = append(contract.Modes, connector.Upsert), connector.Changelog, true
		if !c.Transactions {
			contract.Atomicity = connector.KeyedWrites
		}
	}
	return contract, nil
}

func (c *SinkConfig) validate() error {
	if err := c.Connection.validate(); err != nil {
		return err
	}
	if err := c.Format.validate(); err != nil {
		return err
	}
	if _, err := c.codec(); err != nil {
		return err
	}
	if _, err := expand(c.Topic, func(string) string { return "x" }); err != nil {
		return err
	}
	truncations := []string{truncateFail, truncateEvent, truncateSkip}
	switch {
	case c.Topic == "":
		return configError(errors.New("topics have no name"), "say topic={dataset}")
	case c.Partitions < 0 || c.Replication < 0:
		return configError(errors.New("partitions and replication can't be negative"), "0 leaves it to the brokers")
	case c.Transactions && (c.PositionTopic == "" || legalTopic(c.PositionTopic) != c.PositionTopic):
		return configError(fmt.Errorf("position_topic=%q is no name of a topic", c.PositionTopic),
			"say position_topic="+defaultPositionTopic)
	case c.Transactions && c.TransactionTimeout < time.Second:
		return configError(fmt.Errorf("transaction_timeout=%s is too short", c.TransactionTimeout), "say transaction_timeout=5m")
	case !slices.Contains(truncations, c.Truncate):
		return configError(connector.UnknownName("way to empty a dataset", c.Truncate, truncations), "")
	case c.Linger < 0 || c.MaxMessage < 0:
		return configError(errors.New("linger and max_message can't be negative"), "")
	}
	return nil
}

// codec is how messages are compressed.
func (c *SinkConfig) codec() (kgo.CompressionCodec, error) {
	switch c.Compression {
	case "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, configError(
		connector.UnknownName("compression", c.Compression, []string{"none", "gzip", "snappy", "lz4", "zstd"}), "")
}

// topic is what the format is told of a topic.
func (c *SinkConfig) topic(name, dataset string, mode connector.WriteMode) message.Topic {
	return message.Topic{Name: name, Dataset: dataset, Keyed: mode == connector.Upsert, Key: c.KeyFormat}
}

// Identity implements connector.SinkConfig.
func (c *SinkConfig) Identity() map[string]string {
	id := c.Format.identity()
	maps.Copy(id, map[string]string{"topic": c.Topic})
	return id
}

// Open implements connector.SinkConfig.
func (c *SinkConfig) Open(env connector.Env) (connector.Sink, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	f, err := c.open(debezium.Options{Name: env.Pipeline, Now: env.Now})
	if err != nil {
		return nil, err
	}
	s := newSink(c, env, f)
	if c.Transactions {
		return &TransactionalSink{Sink: s}, nil
	}
	return s, nil
}

// expand puts names into a template.
func expand(template string, value func(name string) string) (string, error) {
	var b strings.Builder
	rest := template
	for {
		before, after, found := strings.Cut(rest, "{")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, tail, closed := strings.Cut(after, "}")
		known := []string{"dataset", "schema", "table", "database", "pipeline"}
		if !closed || !slices.Contains(known, name) {
			return "", configError(connector.UnknownName("name in the option topic", name, known), "write it as topic=shop.{table}")
		}
		b.WriteString(value(name))
		rest = tail
	}
}
