package kafka

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
)

// news is what the goroutine that watches the cluster found out, for Read.
type news struct {
	found    found
	position position // where new topics and partitions begin
	err      error    // the source can't go on
}

// watch looks from time to time for topics and partitions that came, and for topics that are gone or were made anew.
func (s *Source) watch(ctx context.Context) {
	t := time.NewTicker(s.cfg.Refresh)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		n, err := s.look(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.env.Log.Warn("looking for new topics and partitions", slog.Any("error", err))
			}
			continue
		}
		if n == nil {
			continue
		}
		s.mu.Lock()
		s.news = n
		s.mu.Unlock()
		s.wake()
	}
}

// look compares the cluster with what is read; nil: nothing is new.
func (s *Source) look(ctx context.Context) (*news, error) {
	s.mu.Lock()
	known := map[string]topicPosition{}
	for _, t := range s.topics {
		known[t.name] = topicPosition{ID: t.id, Next: make([]int64, len(t.parts))}
	}
	s.mu.Unlock()
	f, err := s.find(ctx)
	var e *connector.Error
	switch {
	case errors.As(err, &e) && e.Code == "kafka.topic":
		f = found{} // of a topic that is named
	case err != nil:
		return nil, err
	}
	n := &news{found: found{cluster: s.cluster}, position: position{Cluster: s.cluster, Topics: map[string]topicPosition{}}}
	for name, was := range known {
		t, there := f.topic(name)
		if !there {
			return s.missing(ctx, name)
		}
		if err := sameTopic(t, was); err != nil {
			return &news{err: err}, nil //nolint:nilerr // for Read
		}
	}
	if !s.cfg.Follow {
		return nil, nil //nolint:nilnil // the run reads what was there when it began
	}
	for _, t := range f.topics {
		if was, ok := known[t.Topic]; !ok || len(t.Partitions) > len(was.Next) {
			n.found.topics = append(n.found.topics, t)
		}
	}
	if len(n.found.topics) == 0 {
		return nil, nil //nolint:nilnil // likewise
	}
	starts, err := s.admin.ListStartOffsets(ctx, n.found.names()...)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, s.cfg.wrap("asking where new partitions begin", err)
	}
	for _, t := range n.found.topics {
		at := newTopicPosition(t)
		for i := range at.Next {
			at.Next[i] = offsetOf(starts, t.Topic, i)
		}
		n.position.Topics[t.Topic] = at
	}
	return n, s.learn(ctx, n.found)
}

// missing makes sure that a topic is gone: metadata of a moment ago may lack it.
func (s *Source) missing(ctx context.Context, topic string) (*news, error) {
	m, err := s.admin.Metadata(ctx, topic)
	if err != nil {
		return nil, s.cfg.wrap("looking for topic "+topic, err)
	}
	if t, ok := m.Topics[topic]; ok && t.Err == nil {
		return nil, nil //nolint:nilnil // it is there
	}
	return &news{err: deleted(topic)}, nil
}

// hear takes over what watch found. As long as batches have to end at certain positions, new partitions wait: those don't know them.
func (s *Source) hear() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.news
	if n == nil || (n.err == nil && len(s.cuts) > 0) {
		return nil
	}
	s.news = nil
	if n.err != nil {
		return n.err
	}
	add := map[string]map[int32]kgo.Offset{}
	for _, d := range n.found.topics {
		at := n.position.Topics[d.Topic]
		t := s.byName[d.Topic]
		if t == nil {
			var err error
			if t, err = s.newTopic(d.Topic, topicPosition{ID: at.ID}); err != nil {
				return err
			}
			s.byName[t.name] = t
			s.topics = append(s.topics, t)
			s.speakOf(t)
			s.env.Log.Info("a topic joined", slog.String("topic", t.name))
		}
		for i := len(t.parts); i < len(at.Next); i++ {
			p := s.newPart(t.name, i, at.Next[i], -1, -1)
			t.parts = append(t.parts, p)
			if p.read {
				if add[t.name] == nil {
					add[t.name] = map[int32]kgo.Offset{}
				}
				add[t.name][p.number] = kgo.NewOffset().At(p.next)
			}
			s.moved = true // the position tells of it
		}
	}
	s.consumer.AddConsumePartitions(add)
	return nil
}

// Lag implements connector.LagReporter.
func (s *Source) Lag(ctx context.Context) (connector.Lag, error) {
	lag := connector.Lag{Bytes: -1, Events: -1, Age: -1, Retained: -1}
	s.mu.Lock()
	next := map[string][]int64{}
	var names []string
	var last time.Time
	for _, t := range s.topics {
		names = append(names, t.name)
		for _, p := range t.parts {
			n := p.next
			if !p.read {
				n = -1
			}
			next[t.name] = append(next[t.name], n)
		}
		if t.last.After(last) {
			last = t.last
		}
	}
	admin := s.admin
	s.mu.Unlock()
	if admin == nil || len(names) == 0 {
		return lag, nil
	}
	ends, err := s.ends(ctx, names)
	if err != nil {
		return lag, err
	}
	lag.Events = 0
	for name, parts := range next {
		for i, n := range parts {
			if end := offsetOf(ends, name, i); n >= 0 && end > n {
				lag.Events += end - n
			}
		}
	}
	switch {
	case lag.Events == 0:
		lag.Age = 0
	case !last.IsZero():
		lag.Age = max(0, s.env.Now().Sub(last))
	}
	return lag, nil
}
