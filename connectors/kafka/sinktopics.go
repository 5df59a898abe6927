package kafka

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

const maxTopicName = 249

// legalTopic makes the name of a topic of any text: what can't be in one is replaced, and a hash keeps such names apart.
func legalTopic(s string) string {
	legal := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
	if legal == s && len(s) <= maxTopicName && s != "" && s != "." && s != ".." {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	hash := "-" + hex.EncodeToString(sum[:4])
	return legal[:min(len(legal), maxTopicName-len(hash))] + hash
}

// topicOf names the topic of a dataset.
func (s *Sink) topicOf(dataset string) (string, error) {
	parts := record.SplitName(dataset)
	part := func(fromEnd int) string {
		if len(parts) < fromEnd {
			return ""
		}
		return parts[len(parts)-fromEnd]
	}
	name, err := expand(s.cfg.Topic, func(name string) string {
		switch name {
		case "table":
			return part(1)
		case "schema":
			return part(2)
		case "database":
			return part(3)
		case "pipeline":
			return s.env.Pipeline
		default:
			return dataset
		}
	})
	if err != nil {
		return "", err
	}
	return legalTopic(name), nil
}

// topicConfig are the settings of topics that are made for datasets.
func (s *Sink) topicConfig() map[string]string {
	config := map[string]string{}
	switch {
	case s.cfg.Cleanup != "":
		config["cleanup.policy"] = s.cfg.Cleanup
	case s.start.Mode == connector.Upsert:
		config["cleanup.policy"] = "compact"
	}
	maps.Copy(config, s.cfg.TopicConfig)
	return config
}

// ensure makes a topic where there is none, and returns the number of its partitions.
func (s *Sink) ensure(ctx context.Context, topic string, config map[string]string) (int, error) {
	doing := "looking for topic " + topic
	m, err := s.admin.Metadata(ctx, topic)
	if err != nil {
		return 0, s.cfg.wrap(doing, err)
	}
	t := m.Topics[topic]
	switch {
	case t.Err == nil && len(t.Partitions) > 0:
		return len(t.Partitions), nil
	case t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		return 0, writable(s.cfg.wrap(doing, t.Err), topic)
	case !s.cfg.Create:
		return 0, &connector.Error{
			Class: connector.ClassConfig, Code: "kafka.topic", Doing: doing, Err: errors.New("there is no such topic"),
			Hint: "make it (kafka-topics.sh --create --topic " + topic + "), or say create=true",
		}
	}
	return s.create(ctx, topic, config)
}

func (s *Sink) create(ctx context.Context, topic string, config map[string]string) (int, error) {
	partitions, replication := int32(-1), int16(-1)
	if n := s.cfg.Partitions; n > 0 {
		partitions = int32(min(n, 1<<20)) //nolint:mnd // brokers refuse less
	}
	if topic == s.cfg.PositionTopic && s.cfg.Transactions {
		partitions = 1
	}
	if n := s.cfg.Replication; n > 0 {
		replication = int16(min(n, 1<<14)) //nolint:mnd // likewise
	}
	configs := map[string]*string{}
	for _, name := range slices.Sorted(maps.Keys(config)) {
		configs[name] = new(config[name])
	}
	doing := "making topic " + topic
	r, err := s.admin.CreateTopic(ctx, partitions, replication, configs, topic)
	if err == nil {
		err = r.Err
	}
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists):
		err = nil
	case err != nil && r.ErrMessage != "":
		if ke, ok := errors.AsType[*kerr.Error](err); ok {
			e := &connector.Error{Doing: doing, Err: errors.New(s.cfg.redact(r.ErrMessage))}
			e.Class, e.Code, e.Hint = classify(ke)
			return 0, e
		}
	}
	if err != nil {
		return 0, writable(s.cfg.wrap(doing, err), topic)
	}
	return s.wait(ctx, topic)
}

// wait returns when a new topic shows.
func (s *Sink) wait(ctx context.Context, topic string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	for {
		m, err := s.admin.Metadata(ctx, topic)
		if err != nil {
			return 0, s.cfg.wrap("waiting for topic "+topic, err)
		}
		t := m.Topics[topic]
		ready := t.Err == nil && len(t.Partitions) > 0
		for _, p := range t.Partitions {
			ready = ready && p.Err == nil && p.Leader >= 0
		}
		if ready {
			return len(t.Partitions), nil
		}
		if err := pause(ctx); err != nil {
			return 0, s.cfg.wrap("waiting for topic "+topic, err)
		}
	}
}

// limitOf is the largest message that a topic takes.
func (s *Sink) limitOf(ctx context.Context, topic string) (int64, error) {
	if s.cfg.MaxMessage > 0 {
		return s.cfg.MaxMessage, nil
	}
	value, err := s.setting(ctx, topic, "max.message.bytes")
	if err != nil {
		return 0, err
	}
	if n, err := strconv.ParseInt(value, 10, 32); err == nil && n > 0 {
		return n, nil
	}
	return defaultMaxBatch, nil
}

// setting reads a setting of a topic; empty: this user may not see it.
func (s *Sink) setting(ctx context.Context, topic, name string) (string, error) {
	all, err := s.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return "", s.cfg.wrap("asking for the settings of topic "+topic, err)
	}
	for _, r := range all {
		for _, c := range r.Configs {
			if c.Key == name && c.Value != nil {
				return *c.Value, nil
			}
		}
	}
	return "", nil
}

// writable names the ACL that a topic needs.
func writable(err error, topic string) error {
	var e *connector.Error
	if errors.As(err, &e) && e.Code == "kafka.privilege" {
		e.Hint = "kafka-acls.sh --add --allow-principal User:NAME --operation Write --operation Describe --operation Create --topic " +
			topic
	}
	return err
}

// Check implements connector.Checker.
func (s *Sink) Check(ctx context.Context) ([]connector.Probe, error) {
	if s.client == nil {
		if err := s.connect(ctx); err != nil {
			return []connector.Probe{failed("connection", err)}, nil
		}
	}
	m, err := s.admin.BrokerMetadata(ctx)
	if err != nil {
		return []connector.Probe{failed("connection", s.cfg.wrap("asking for the brokers", err))}, nil
	}
	probes := []connector.Probe{connected(m)}
	if s.cfg.Replication > len(m.Brokers) {
		probes = append(probes, connector.Probe{
			Name: "replication", Status: connector.Fail, Fix: fmt.Sprintf("replication=%d", len(m.Brokers)),
			Detail: fmt.Sprintf("%d copies are asked for, and there are %d brokers", s.cfg.Replication, len(m.Brokers)),
		})
	}
	if !s.cfg.Transactions {
		return append(probes, connector.Probe{Name: "transactions", Detail: "off: after a crash messages may come twice"}), nil
	}
	return append(probes, s.checkPositions(ctx), s.checkTimeout(ctx, m)), nil
}

// checkPositions looks for the topic of positions, or whether it may be made.
func (s *Sink) checkPositions(ctx context.Context) connector.Probe {
	name, topic := "position topic", s.cfg.PositionTopic
	m, err := s.admin.Metadata(ctx, topic)
	if err != nil {
		return failed(name, s.cfg.wrap("looking for topic "+topic, err))
	}
	if m.Topics[topic].Err == nil {
		if err := s.checkCleanup(ctx); err != nil {
			return failed(name, err)
		}
		return connector.Probe{Name: name, Detail: topic + " keeps positions"}
	}
	if !s.cfg.Create {
		return connector.Probe{
			Name: name, Status: connector.Fail, Detail: "there is no topic " + topic,
			Fix: "kafka-topics.sh --create --topic " + topic + " --partitions 1 --config cleanup.policy=compact",
		}
	}
	r, err := s.admin.ValidateCreateTopics(ctx, 1, -1, nil, topic)
	if err == nil {
		err = r[topic].Err
	}
	if err != nil {
		return failed(name, writable(s.cfg.wrap("making topic "+topic, err), topic))
	}
	return connector.Probe{Name: name, Detail: topic + " will be made"}
}

// checkTimeout compares the time-out of transactions with what the brokers allow.
func (s *Sink) checkTimeout(ctx context.Context, m kadm.Metadata) connector.Probe {
	p := connector.Probe{Name: "transactions", Detail: fmt.Sprintf("rolled back after %s", s.cfg.TransactionTimeout)}
	if len(m.Brokers) == 0 {
		return p
	}
	all, err := s.admin.DescribeBrokerConfigs(ctx, m.Brokers[0].NodeID)
	if err != nil {
		return p // a right that is needed for nothing else
	}
	for _, r := range all {
		for _, c := range r.Configs {
			if c.Key != "transaction.max.timeout.ms" || c.Value == nil {
				continue
			}
			if most, err := strconv.ParseInt(*c.Value, 10, 64); err == nil && s.cfg.TransactionTimeout.Milliseconds() > most {
				p.Status, p.Fix = connector.Fail, fmt.Sprintf("transaction_timeout=%dms", most)
				p.Detail = fmt.Sprintf("transaction_timeout=%s is more than the brokers allow", s.cfg.TransactionTimeout)
			}
		}
	}
	return p
}
