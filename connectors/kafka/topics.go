package kafka

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// selected reports whether a topic is meant by the patterns. Topics that Kafka keeps for itself have to be named exactly.
func selected(patterns []string, topic string, internal bool) bool {
	in := false
	for _, p := range patterns {
		out := strings.HasPrefix(p, "!")
		p = strings.TrimPrefix(p, "!")
		if ok, err := path.Match(p, topic); err != nil || !ok {
			continue
		}
		if out {
			return false
		}
		in = in || !internal || p == topic
	}
	return in
}

// isPattern reports whether a name stands for more than one topic. Topics have no such characters in their names.
func isPattern(s string) bool { return strings.ContainsAny(s, `*?[\!`) }

// datasetName is the dataset of a topic: the topic's own name, so that shop.orders is table orders of schema shop.
func datasetName(topic string) string {
	if record.JoinName(record.SplitName(topic)...) != topic {
		return record.JoinName(topic)
	}
	return topic
}

// found is what the cluster has of the selected topics.
type found struct {
	cluster string
	topics  []kadm.TopicDetail // by name
}

func (f found) topic(name string) (kadm.TopicDetail, bool) {
	i, ok := slices.BinarySearchFunc(f.topics, name, func(t kadm.TopicDetail, name string) int { return strings.Compare(t.Topic, name) })
	if !ok {
		return kadm.TopicDetail{}, false
	}
	return f.topics[i], true
}

func (f found) names() []string {
	out := make([]string, len(f.topics))
	for i, t := range f.topics {
		out[i] = t.Topic
	}
	return out
}

// find looks for the selected topics. Those that are named and are not there are an error.
func (s *Source) find(ctx context.Context) (found, error) {
	var exact []string
	all := false
	for _, p := range s.cfg.Topics {
		switch {
		case strings.HasPrefix(p, "!"):
		case isPattern(p):
			all = true
		default:
			exact = append(exact, p)
		}
	}
	ask := exact
	if all {
		ask = nil
	}
	const doing = "looking for topics"
	m, err := s.admin.Metadata(ctx, ask...)
	if err != nil {
		return found{}, s.cfg.wrap(doing, err)
	}
	f := found{cluster: m.Cluster}
	for _, t := range m.Topics.Sorted() {
		named := slices.Contains(exact, t.Topic)
		switch {
		case !selected(s.cfg.Topics, t.Topic, t.IsInternal) || !s.wanted(datasetName(t.Topic)):
		case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			if named {
				return found{}, missingTopic(t.Topic)
			}
		case t.Err != nil:
			return found{}, s.cfg.wrap("looking for topic "+t.Topic, t.Err)
		default:
			f.topics = append(f.topics, t)
		}
	}
	for _, name := range exact {
		if _, ok := f.topic(name); !ok && selected(s.cfg.Topics, name, false) && s.wanted(datasetName(name)) {
			return found{}, missingTopic(name)
		}
	}
	if len(f.topics) == 0 {
		return found{}, &connector.Error{
			Class: connector.ClassConfig, Code: "kafka.topic", Doing: doing,
			Err:  fmt.Errorf("no topic is meant by %s", strings.Join(s.cfg.Topics, ",")),
			Hint: "kafka-topics.sh --list shows the topics that this user may see",
		}
	}
	return f, nil
}

// wanted reports whether the run reads a dataset.
func (s *Source) wanted(dataset string) bool {
	return len(s.only) == 0 || slices.Contains(s.only, dataset)
}

func missingTopic(name string) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "kafka.topic", Doing: "looking for topic " + name, Dataset: datasetName(name),
		Err:  errors.New("there is no such topic"),
		Hint: "kafka-topics.sh --list shows the topics that this user may see; names are case-sensitive",
	}
}

// limits are the offsets where the partitions of topics begin and end.
type limits struct{ start, end, watermark kadm.ListedOffsets }

// limits asks where topics begin and end. The end is where the newest record that may be read ends.
func (s *Source) limits(ctx context.Context, topics []string) (l limits, err error) {
	const doing = "asking where topics begin and end"
	if l.start, err = s.admin.ListStartOffsets(ctx, topics...); err == nil {
		err = l.start.Error()
	}
	if err != nil {
		return l, s.cfg.wrap(doing, err)
	}
	if l.watermark, err = s.admin.ListEndOffsets(ctx, topics...); err == nil {
		err = l.watermark.Error()
	}
	if err != nil {
		return l, s.cfg.wrap(doing, err)
	}
	l.end, err = s.ends(ctx, topics)
	return l, err
}

// ends asks where the newest records end that may be read.
func (s *Source) ends(ctx context.Context, topics []string) (kadm.ListedOffsets, error) {
	ask := s.admin.ListCommittedOffsets
	if s.cfg.Uncommitted {
		ask = s.admin.ListEndOffsets
	}
	ends, err := ask(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, s.cfg.wrap("asking where topics end", err)
	}
	return ends, nil
}

func offsetOf(l kadm.ListedOffsets, topic string, partition int) int64 {
	o, ok := l.Lookup(topic, int32(partition))
	if !ok {
		return -1
	}
	return o.Offset
}
