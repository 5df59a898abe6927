package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// Source reads topics. A goroutine polls; Read takes what came apart into batches of one topic each. Where the source stands is what was
// handed out: records that were decoded and not handed out don't count.
type Source struct {
	cfg    *SourceConfig
	env    connector.Env
	format message.Format

	client   *kgo.Client // for questions
	admin    *kadm.Client
	consumer *kgo.Client // of the records; nil before Start
	cluster  string
	only     []string // datasets to read; nil: all

	mu      sync.Mutex // guards what Lag and watch look at
	topics  []*topic
	schemas map[string]*record.Schema // by topic
	news    *news

	byName map[string]*topic
	splits map[string]bool // to read; nil: all
	cuts   []position      // ahead, in order
	tell   []*topic        // to speak of before anything of them is read
	turn   int             // the topic that is looked at next
	moved  bool            // the position moved since the last batch
	sent   time.Time       // when the last position was handed out
	quiet  time.Time       // since when nothing came
	inbox  chan kgo.Fetches
	ready  chan struct{}
	stop   context.CancelFunc
	done   sync.WaitGroup
	closed bool
	ended  error // what Read returns from now on
}

// topic is a topic that is read.
type topic struct {
	name     string
	id       string
	topic    message.Topic
	dec      message.Decoder
	parts    []*part   // by number
	bytes    int64     // of messages that were decoded and not handed out
	appended int       // how many these are
	newest   time.Time // of the last message that was decoded
	last     time.Time // of the last message that was handed out
	told     bool      // a batch of it was handed out
}

// part is a partition that is read.
type part struct {
	number int32
	read   bool  // it is one of the splits
	next   int64 // the first offset that was not handed out
	taken  int64 // the first offset that was not decoded
	epoch  int32 // leader epoch of the record in front of next
	newest int32 // likewise of taken
	end    int64 // where the run ends; -1: nowhere
	hold   int64 // where the next cut is; -1: none
	hidden bool  // it came behind the next cut, and no position tells of it before
	gone   bool  // it is not fetched any more
	queue  []*kgo.Record
}

var (
	_ connector.Source      = (*Source)(nil)
	_ connector.Notifier    = (*Source)(nil)
	_ connector.Positions   = (*Source)(nil)
	_ connector.Originator  = (*Source)(nil)
	_ connector.Discoverer  = (*Source)(nil)
	_ connector.Splitter    = (*Source)(nil)
	_ connector.Tip         = (*Source)(nil)
	_ connector.Checker     = (*Source)(nil)
	_ connector.LagReporter = (*Source)(nil)
	_ connector.Named       = (*Source)(nil)
)

func newSource(cfg *SourceConfig, env connector.Env, f message.Format) *Source {
	return &Source{
		cfg: cfg, env: env, format: f, schemas: map[string]*record.Schema{}, byName: map[string]*topic{},
		inbox: make(chan kgo.Fetches, 1), ready: make(chan struct{}, 1),
	}
}

const (
	maxFetch   = 32 << 20 // bytes that brokers are asked for at a time
	partFetch  = 8 << 20
	maxWait    = 100 * time.Millisecond // partitions that begin later wait for a fetch that is under way
	idleAfter  = time.Second            // a position without rows comes at most so often
	stallAfter = time.Second            // a partition that says nothing for so long is asked whether there is anything
)

// connect opens the client for questions, once.
func (s *Source) connect(ctx context.Context) error {
	if s.closed {
		return errors.New("the source is closed")
	}
	if s.client != nil {
		return nil
	}
	cl, err := s.cfg.client(s.env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return s.cfg.wrap("connecting to Kafka at "+s.cfg.where(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client, s.admin = cl, kadm.NewClient(cl)
	return nil
}

// install makes topics of a position.
func (s *Source) install(at position, f found, splits []connector.Split) error {
	s.cluster = f.cluster
	if len(splits) > 0 {
		s.splits = map[string]bool{}
		for _, sp := range splits {
			s.splits[sp.ID] = true
		}
	}
	for _, d := range f.topics {
		t, err := s.newTopic(d.Topic, at.Topics[d.Topic])
		if err != nil {
			return err
		}
		s.topics = append(s.topics, t)
		s.byName[t.name] = t
	}
	return nil
}

func (s *Source) newTopic(name string, at topicPosition) (*topic, error) {
	t := &topic{name: name, id: at.ID, topic: s.cfg.topic(name, datasetName(name))}
	var err error
	if t.dec, err = s.format.NewDecoder(t.topic, s.schemas[name]); err != nil {
		return nil, fmt.Errorf("reading topic %s: %w", name, err)
	}
	for i, next := range at.Next {
		t.parts = append(t.parts, s.newPart(name, i, next, at.epoch(i), at.end(i)))
	}
	return t, nil
}

func (s *Source) newPart(topic string, i int, next int64, epoch int32, end int64) *part {
	p := &part{
		number: int32(i), next: next, taken: next, epoch: epoch, newest: epoch, end: end, hold: -1,
	}
	p.read = s.splits == nil || s.splits[splitID(topic, i)]
	p.gone = !p.read || p.ended()
	return p
}

// ended reports whether all of the partition was decoded.
func (p *part) ended() bool { return !p.read || (p.end >= 0 && p.taken >= p.end) }

// held reports whether the partition waits for others to come to the cut.
func (p *part) held() bool { return p.read && p.hold >= 0 && p.taken >= p.hold }

// limit is the offset at which to stop for now; -1: none.
func (p *part) limit() int64 {
	switch {
	case p.hold < 0:
		return p.end
	case p.end < 0:
		return p.hold
	}
	return min(p.hold, p.end)
}

// run begins to fetch.
func (s *Source) run(ctx context.Context) error {
	from := map[string]map[int32]kgo.Offset{}
	for _, t := range s.topics {
		for _, p := range t.parts {
			if !p.gone {
				if from[t.name] == nil {
					from[t.name] = map[int32]kgo.Offset{}
				}
				// Without the epoch, which Start has checked: all partitions begin at once then, in one fetch.
				from[t.name][p.number] = kgo.NewOffset().At(p.next)
			}
		}
	}
	if len(from) == 0 && !s.cfg.Follow {
		return nil // everything is at its end
	}
	bytes := int32(s.env.Buffer(maxFetch))
	isolation := kgo.ReadCommitted()
	if s.cfg.Uncommitted {
		isolation = kgo.ReadUncommitted()
	}
	cl, err := s.cfg.client(s.env, kgo.ConsumePartitions(from), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(), kgo.FetchMaxBytes(bytes),
		kgo.FetchMaxPartitionBytes(min(bytes, partFetch)), kgo.FetchMaxWait(maxWait))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.consumer, s.stop = cl, cancel
	s.quiet = time.Now()
	if err := s.spawn(ctx, s.poll); err != nil {
		return err
	}
	return s.spawn(ctx, s.watch)
}

// spawn starts a goroutine that Close stops and waits for.
func (s *Source) spawn(ctx context.Context, f func(ctx context.Context)) error {
	s.done.Add(1)
	err := s.env.Go(func(run context.Context) {
		defer s.done.Done()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(run, cancel)()
		f(ctx)
	})
	if err != nil {
		s.done.Done()
		return fmt.Errorf("starting to read topics: %w", err)
	}
	return nil
}

// poll brings what was fetched into the inbox.
func (s *Source) poll(ctx context.Context) {
	for ctx.Err() == nil {
		f := s.consumer.PollFetches(ctx)
		if ctx.Err() != nil || f.IsClientClosed() {
			return
		}
		select {
		case s.inbox <- f:
			s.wake()
		case <-ctx.Done():
		}
	}
}

func (s *Source) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Ready implements connector.Notifier.
func (s *Source) Ready() <-chan struct{} { return s.ready }

// URI implements connector.Named.
func (s *Source) URI(dataset string) string { return s.cfg.uri(strings.Trim(dataset, `"`)) }

// Close implements connector.Source.
func (s *Source) Close(context.Context) error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.ended == nil {
		s.ended = errors.New("the source is closed")
	}
	if s.stop != nil {
		s.stop()
	}
	s.done.Wait()
	for _, cl := range []*kgo.Client{s.consumer, s.client} {
		if cl != nil {
			cl.Close()
		}
	}
	return nil
}

// splitID names a partition, for ever.
func splitID(topic string, partition int) string { return fmt.Sprintf("%s/%d", topic, partition) }

// parseSplit takes the name of a partition apart; no topic has a slash in its name.
func parseSplit(id string) (topic string, partition int32, ok bool) {
	topic, number, found := strings.Cut(id, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	return topic, int32(n), found && err == nil
}

// Tip implements connector.Tip.
func (s *Source) Tip(ctx context.Context) (record.Position, error) {
	if err := s.connect(ctx); err != nil {
		return record.Position{}, err
	}
	f, err := s.find(ctx)
	if err != nil {
		return record.Position{}, err
	}
	ends, err := s.ends(ctx, f.names())
	if err != nil {
		return record.Position{}, err
	}
	p := position{Cluster: f.cluster, Topics: map[string]topicPosition{}}
	for _, t := range f.topics {
		at := newTopicPosition(t)
		for i := range at.Next {
			if s.splits == nil || s.splits[splitID(t.Topic, i)] {
				at.Next[i] = offsetOf(ends, t.Topic, i)
			}
		}
		at.Epochs = nil
		p.Topics[t.Topic] = at
	}
	return p.encode(), nil
}

// Splits implements connector.Splitter: one for each partition, however many are wanted.
func (s *Source) Splits(ctx context.Context, _ int) ([]connector.Split, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	f, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	var out []connector.Split
	for _, t := range f.topics {
		for _, p := range t.Partitions.Numbers() {
			out = append(out, connector.Split{ID: splitID(t.Topic, int(p))})
		}
	}
	return out, nil
}

// position is where the source stands.
func (s *Source) position() position {
	at := position{Cluster: s.cluster, Topics: make(map[string]topicPosition, len(s.topics))}
	for _, t := range s.topics {
		n := len(t.parts)
		p := topicPosition{ID: t.id, Next: make([]int64, n), Epochs: make([]int32, n)}
		if !s.cfg.Follow {
			p.End = make([]int64, n)
		}
		known := false
		for i, x := range t.parts {
			p.Next[i], p.Epochs[i] = x.next, x.epoch
			if !x.read || x.hidden {
				p.Next[i], p.Epochs[i] = -1, -1
			}
			known = known || x.epoch >= 0
			if p.End != nil {
				p.End[i] = x.end
			}
		}
		if !known {
			p.Epochs = nil
		}
		at.Topics[t.name] = p
	}
	return at
}

// cut takes over the positions at which batches have to end.
func (s *Source) cut(cuts []position) {
	for _, c := range cuts {
		if s.ahead(c) {
			s.cuts = append(s.cuts, c)
		}
	}
	s.hold()
}

// ahead reports whether a cut has more of any partition than was handed out.
func (s *Source) ahead(c position) bool {
	for _, t := range s.topics {
		for i, p := range t.parts {
			if at, ok := c.Topics[t.name].at(i); ok && p.read && p.next < at {
				return true
			}
		}
	}
	return false
}

// hold lets partitions go as far as the next cut. One that the cut does not know came after it, and waits where it is.
func (s *Source) hold() {
	for _, t := range s.topics {
		for _, p := range t.parts {
			p.hold, p.hidden = -1, false
			if len(s.cuts) == 0 {
				continue
			}
			at, ok := s.cuts[0].Topics[t.name].at(int(p.number))
			if !ok {
				at, p.hidden = p.taken, true
			}
			p.hold = at
		}
	}
}

// reached reports whether a cut was just passed, and goes on to the next one.
func (s *Source) reached() bool {
	if len(s.cuts) == 0 {
		return false
	}
	for _, t := range s.topics {
		for _, p := range t.parts {
			if p.read && p.next < p.hold {
				return false
			}
		}
	}
	s.cuts = s.cuts[1:]
	s.hold()
	return true
}
