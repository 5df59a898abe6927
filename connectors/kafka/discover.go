package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

const (
	sampleMessages = 1_000 // of a topic
	sampleTime     = 5 * time.Second
)

// Discover implements connector.Discoverer: columns are found in the messages that each topic begins with.
func (s *Source) Discover(ctx context.Context) ([]connector.Dataset, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	f, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	l, err := s.limits(ctx, f.names())
	if err != nil {
		return nil, err
	}
	from, err := s.beginning(ctx, f, l)
	if err != nil {
		return nil, err
	}
	if err := s.learn(ctx, f); err != nil {
		return nil, err
	}
	var out []connector.Dataset
	for _, t := range f.topics {
		d := connector.Dataset{
			Name: datasetName(t.Topic), Schema: s.schema(t.Topic), Bytes: -1, Patch: map[string]string{"topics": t.Topic},
		}
		for i := range t.Partitions {
			start := max(from(t.Topic, int(i)), offsetOf(l.start, t.Topic, int(i)))
			d.Rows += max(0, offsetOf(l.end, t.Topic, int(i))-start)
		}
		out = append(out, d)
	}
	return out, nil
}

// learn finds out the schemas of topics whose schema is not known yet.
func (s *Source) learn(ctx context.Context, f found) error {
	var ask found
	for _, t := range f.topics {
		if s.schema(t.Topic) == nil {
			ask.topics = append(ask.topics, t)
		}
	}
	if len(ask.topics) == 0 {
		return nil
	}
	samples, err := s.sample(ctx, ask)
	if err != nil {
		return err
	}
	for _, t := range ask.topics {
		schema, err := s.format.Learn(ctx, s.cfg.topic(t.Topic, datasetName(t.Topic)), samples[t.Topic])
		if err != nil {
			return decodeError(t.Topic, fmt.Errorf("finding the columns: %w", err))
		}
		s.mu.Lock()
		s.schemas[t.Topic] = schema
		s.mu.Unlock()
	}
	return nil
}

// schema is what was learned of a topic; nil: nothing yet.
func (s *Source) schema(topic string) *record.Schema {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.schemas[topic]
}

// sampled is a partition of which the beginning is read.
type sampled struct{ next, end int64 }

// sample reads the first messages of every topic: of each partition the same number, as far as there are any.
func (s *Source) sample(ctx context.Context, f found) (map[string][]message.Message, error) {
	l, err := s.limits(ctx, f.names())
	if err != nil {
		return nil, err
	}
	left := map[string]map[int32]*sampled{}
	from := map[string]map[int32]kgo.Offset{}
	open := 0
	for _, t := range f.topics {
		left[t.Topic], from[t.Topic] = map[int32]*sampled{}, map[int32]kgo.Offset{}
		each := int64(max(1, sampleMessages/max(1, len(t.Partitions))))
		for _, n := range t.Partitions.Numbers() {
			start, end := offsetOf(l.start, t.Topic, int(n)), offsetOf(l.end, t.Topic, int(n))
			if start >= end {
				continue
			}
			left[t.Topic][n] = &sampled{start, min(end, start+each)}
			from[t.Topic][n] = kgo.NewOffset().At(start)
			open++
		}
		if len(from[t.Topic]) == 0 {
			delete(from, t.Topic)
		}
	}
	out := map[string][]message.Message{}
	if open == 0 {
		return out, nil
	}
	return out, s.sampleFrom(ctx, from, left, open, out)
}

func (s *Source) sampleFrom(
	ctx context.Context, from map[string]map[int32]kgo.Offset, left map[string]map[int32]*sampled, open int,
	out map[string][]message.Message,
) error {
	isolation := kgo.ReadCommitted()
	if s.cfg.Uncommitted {
		isolation = kgo.ReadUncommitted()
	}
	cl, err := s.cfg.client(s.env, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(),
		kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxWait(100*time.Millisecond)) //nolint:mnd // a look
	if err != nil {
		return err
	}
	defer cl.Close()
	timed, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	for open > 0 && timed.Err() == nil {
		fetches := cl.PollFetches(timed)
		for _, e := range fetches.Errors() {
			if timed.Err() == nil {
				return s.cfg.wrap("reading the first messages of topic "+e.Topic, e.Err)
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			p := left[r.Topic][r.Partition]
			if p == nil || p.next >= p.end {
				return
			}
			if p.next = r.Offset + 1; p.next >= p.end {
				open--
			}
			if r.Offset >= p.end || r.Attrs.IsControl() {
				return
			}
			m := message.Message{Topic: r.Topic}
			fill(&m, r)
			out[r.Topic] = append(out[r.Topic], m)
		})
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("reading the first messages: %w", err)
	}
	return nil
}

// Check implements connector.Checker.
func (s *Source) Check(ctx context.Context) ([]connector.Probe, error) {
	if err := s.connect(ctx); err != nil {
		return []connector.Probe{failed("connection", err)}, nil
	}
	m, err := s.admin.BrokerMetadata(ctx)
	if err != nil {
		return []connector.Probe{failed("connection", s.cfg.wrap("asking for the brokers", err))}, nil
	}
	probes := []connector.Probe{connected(m)}
	f, err := s.find(ctx)
	if err != nil {
		return append(probes, failed("topics", err)), nil
	}
	for _, t := range f.topics {
		probes = append(probes, s.checkTopic(ctx, t))
	}
	if s.cfg.Group != "" {
		p := connector.Probe{Name: "group", Detail: "group " + s.cfg.Group + " is told how far runs get"}
		if _, err := s.admin.FetchOffsets(ctx, s.cfg.Group); err != nil {
			p = failed("group", s.cfg.wrap("asking how far group "+s.cfg.Group+" is", err))
		}
		probes = append(probes, p)
	}
	return probes, nil
}

func connected(m kadm.Metadata) connector.Probe {
	brokers := "1 broker"
	if len(m.Brokers) != 1 {
		brokers = fmt.Sprintf("%d brokers", len(m.Brokers))
	}
	return connector.Probe{Name: "connection", Detail: fmt.Sprintf("cluster %s of %s", m.Cluster, brokers)}
}

func failed(name string, err error) connector.Probe {
	fix := connector.HintOf(err)
	if fix == "" {
		fix = "the log of the brokers may say more"
	}
	return connector.Probe{Name: name, Status: connector.Fail, Detail: err.Error(), Fix: fix}
}

// checkTopic looks whether a topic can be read: its offsets need the right to describe it, a message that to read it.
func (s *Source) checkTopic(ctx context.Context, t kadm.TopicDetail) connector.Probe {
	name := "topic " + t.Topic
	l, err := s.limits(ctx, []string{t.Topic})
	if err != nil {
		return readable(failed(name, err), t.Topic)
	}
	if err := s.learn(ctx, found{topics: []kadm.TopicDetail{t}}); err != nil {
		return readable(failed(name, err), t.Topic)
	}
	var n int64
	for i := range t.Partitions {
		n += offsetOf(l.end, t.Topic, int(i)) - offsetOf(l.start, t.Topic, int(i))
	}
	schema := s.schema(t.Topic)
	return connector.Probe{
		Name: name, Detail: fmt.Sprintf("%d partitions, at most %d messages, %d columns", len(t.Partitions), n, schema.Columns.NumFields()),
	}
}

// readable names the ACL that a topic needs.
func readable(p connector.Probe, topic string) connector.Probe {
	if p.Fix == "leat check lists the rights that are missing, with the ACL for each" {
		p.Fix = "kafka-acls.sh --add --allow-principal User:NAME --operation Read --operation Describe --topic " + topic
	}
	return p
}
