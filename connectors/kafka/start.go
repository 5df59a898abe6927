package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// ResolveOrigin implements connector.Originator: the option from as offsets, and for a run that ends, where it ends.
func (s *Source) ResolveOrigin(ctx context.Context) (record.Position, error) {
	if err := s.connect(ctx); err != nil {
		return record.Position{}, err
	}
	f, err := s.find(ctx)
	if err != nil {
		return record.Position{}, err
	}
	p, err := s.origin(ctx, f)
	if err != nil {
		return record.Position{}, err
	}
	return p.encode(), nil
}

// origin is the position of the option from.
func (s *Source) origin(ctx context.Context, f found) (position, error) {
	l, err := s.limits(ctx, f.names())
	if err != nil {
		return position{}, err
	}
	from, err := s.beginning(ctx, f, l)
	if err != nil {
		return position{}, err
	}
	p := position{Cluster: f.cluster, Topics: map[string]topicPosition{}}
	for _, t := range f.topics {
		at := newTopicPosition(t)
		for i := range at.Next {
			at.Next[i] = max(from(t.Topic, i), offsetOf(l.start, t.Topic, i))
		}
		p.Topics[t.Topic] = at
	}
	s.aim(p, l)
	return p, nil
}

func newTopicPosition(t kadm.TopicDetail) topicPosition {
	n := len(t.Partitions)
	return topicPosition{ID: topicID(t.ID), Next: slices.Repeat([]int64{-1}, n), Epochs: slices.Repeat([]int32{-1}, n)}
}

// beginning returns where partitions begin that are read for the first time.
func (s *Source) beginning(ctx context.Context, f found, l limits) (func(topic string, partition int) int64, error) {
	since, err := s.cfg.since()
	if err != nil {
		return nil, err
	}
	listed := l.start
	switch {
	case !since.IsZero():
		listed, err = s.admin.ListOffsetsAfterMilli(ctx, since.UnixMilli(), f.names()...)
		if err == nil {
			err = listed.Error()
		}
		if err != nil {
			return nil, s.cfg.wrap("asking for the offsets of "+since.Format(time.RFC3339Nano), err)
		}
	case s.cfg.From == fromLatest:
		listed = l.end
	case s.cfg.From == fromGroup:
		committed, err := s.admin.FetchOffsets(ctx, s.cfg.Group)
		if err != nil {
			return nil, s.cfg.wrap("asking how far group "+s.cfg.Group+" is", err)
		}
		return func(topic string, partition int) int64 {
			if o, ok := committed.Lookup(topic, int32(partition)); ok && o.Err == nil && o.At >= 0 {
				return o.At
			}
			return offsetOf(l.start, topic, partition)
		}, nil
	}
	return func(topic string, partition int) int64 { return offsetOf(listed, topic, partition) }, nil
}

// aim writes into a position where the run ends.
func (s *Source) aim(p position, l limits) {
	for name, t := range p.Topics {
		t.End = nil
		if !s.cfg.Follow {
			t.End = make([]int64, len(t.Next))
			for i := range t.End {
				t.End[i] = max(offsetOf(l.end, name, i), t.Next[i])
			}
		}
		p.Topics[name] = t
	}
}

// resume checks a position against what is there, and completes it with topics and partitions that came since (S4).
func (s *Source) resume(ctx context.Context, saved position, f found) (position, error) {
	if saved.Cluster != f.cluster {
		return position{}, positionError("kafka.cluster", "", "name brokers of the same cluster, or read everything from there: --restart",
			"the position is of cluster %q, and these brokers are of cluster %q", saved.Cluster, f.cluster)
	}
	l, err := s.limits(ctx, f.names())
	if err != nil {
		return position{}, err
	}
	p := position{Cluster: f.cluster, Topics: map[string]topicPosition{}}
	for _, t := range f.topics {
		if p.Topics[t.Topic], err = goOn(t, saved.Topics[t.Topic], l); err != nil {
			return position{}, err
		}
	}
	for name := range saved.Topics {
		if _, there := f.topic(name); !there && selected(s.cfg.Topics, name, false) && s.wanted(datasetName(name)) {
			return position{}, deleted(name)
		}
	}
	if err := s.truncated(ctx, p, l); err != nil {
		return position{}, err
	}
	s.aim(p, l)
	if !s.cfg.Follow && !saved.finished() { // the run that was interrupted goes on to its own end
		for name, t := range p.Topics {
			for i := range t.End {
				if end := saved.Topics[name].end(i); end >= 0 {
					t.End[i] = end
				}
			}
		}
	}
	return p, nil
}

// goOn is where a topic is read on, of which was is saved; its zero value: nothing is.
func goOn(t kadm.TopicDetail, was topicPosition, l limits) (topicPosition, error) {
	if err := sameTopic(t, was); err != nil {
		return topicPosition{}, err
	}
	at := newTopicPosition(t)
	for i := range at.Next {
		start := offsetOf(l.start, t.Topic, i)
		next, had := was.at(i)
		switch {
		case !had: // it came since, and nothing of it was read
			next = start
		case next < start:
			return topicPosition{}, expired(t.Topic, i, next, start)
		}
		at.Next[i], at.Epochs[i] = next, was.epoch(i)
	}
	return at, nil
}

func sameTopic(t kadm.TopicDetail, was topicPosition) error {
	switch id := topicID(t.ID); {
	case id != was.ID && id != "" && was.ID != "":
		return positionError("kafka.topic_recreated", t.Topic, "",
			"the topic was deleted and made anew: it had id %s, and has %s", was.ID, id)
	case len(t.Partitions) < len(was.Next):
		return positionError("kafka.topic_recreated", t.Topic, "",
			"the topic was deleted and made anew: it had %d partitions, and has %d", len(was.Next), len(t.Partitions))
	}
	return nil
}

func deleted(topic string) error {
	return positionError("kafka.topic_deleted", topic,
		"leave the topic out: topics=…,!"+topic+", and say --adopt; or start over with --restart", "the topic was deleted")
}

func expired(topic string, partition int, next, start int64) error {
	return positionError("kafka.expired", topic, "raise retention.ms or retention.bytes of the topic, and read what is left: --restart",
		"records of partition %d from offset %d up to %d were deleted before they were read", partition, next, start-1)
}

// truncated refuses a position behind records that the cluster has lost: their leader epoch ends before, or the whole partition does.
func (s *Source) truncated(ctx context.Context, p position, l limits) error {
	var ask kadm.OffsetForLeaderEpochRequest
	for name, t := range p.Topics {
		for i := range t.Next {
			if epoch := t.epoch(i); epoch >= 0 {
				ask.Add(name, int32(i), epoch)
			}
		}
	}
	epochs := kadm.OffsetsForLeaderEpochs{}
	if len(ask) > 0 {
		var err error
		if epochs, err = s.admin.OffsetForLeaderEpoch(ctx, ask); err != nil {
			return s.cfg.wrap("asking for the history of partitions", err)
		}
	}
	for name, t := range p.Topics {
		for i, next := range t.Next {
			e, asked := epochs[name][int32(i)]
			end := offsetOf(l.watermark, name, i)
			switch {
			case asked && e.Err != nil:
				return s.cfg.wrap(fmt.Sprintf("asking for the history of partition %d of topic %s", i, name), e.Err)
			case asked && e.LeaderEpoch >= 0 && e.EndOffset < next:
				return lost(name, i, next, e.EndOffset)
			case (!asked || e.LeaderEpoch < 0) && next > end:
				return lost(name, i, next, end)
			}
		}
	}
	return nil
}

func lost(topic string, partition int, next, end int64) error {
	return positionError("kafka.truncated", topic, "",
		"the cluster lost records of partition %d that were read: from offset %d up to %d, by an unclean election of a leader",
		partition, end, next-1)
}

// Start implements connector.Source.
func (s *Source) Start(ctx context.Context, start connector.SourceStart) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting to read topics: %w", err)
	}
	s.only = start.Datasets
	saved, fresh := position{}, start.From.Position.Zero()
	var err error
	if !fresh {
		if saved, err = decode(start.From.Position); err != nil {
			return err
		}
	}
	var cuts []position
	for _, c := range start.Cuts {
		p, err := decode(c)
		if err != nil {
			return err
		}
		cuts = append(cuts, p)
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	f, err := s.find(ctx)
	if err != nil {
		return err
	}
	var at position
	if fresh {
		at, err = s.origin(ctx, f)
	} else {
		at, err = s.resume(ctx, saved, f)
	}
	if err != nil {
		return err
	}
	if err := s.learn(ctx, f); err != nil {
		return err
	}
	if err := s.install(at, f, start.Splits); err != nil {
		return err
	}
	s.cut(cuts)
	if s.cfg.Follow && start.From.Origin != connector.Resume {
		s.speakOf(s.topics...)
	}
	return s.run(ctx)
}

// speakOf makes datasets exist that may stay empty for long, as far as their columns are known.
func (s *Source) speakOf(topics ...*topic) {
	for _, t := range topics {
		if t.dec.Schema().Columns.NumFields() > 0 {
			s.tell = append(s.tell, t)
		}
	}
}
