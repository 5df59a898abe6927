package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// Sink writes datasets to topics, with an idempotent producer: what is sent again after an error arrives once.
type Sink struct {
	cfg    *SinkConfig
	env    connector.Env
	format message.Format

	client *kgo.Client
	admin  *kadm.Client
	start  connector.SinkStart
	sets   map[string]*set                 // by dataset
	owner  map[string]string               // dataset by topic
	begin  func(ctx context.Context) error // before the first message of a transaction; nil: there are none
	closed bool
	failed error

	buffers buffers

	mu     sync.Mutex
	refuse error            // the first error of a message that was sent
	limits map[string]int32 // largest batch, by topic
}

// set is a dataset that is written.
type set struct {
	topic      string
	enc        message.Encoder
	partitions int
	limit      int64 // largest message
}

var (
	_ connector.Sink        = (*Sink)(nil)
	_ connector.Mapper      = (*Sink)(nil)
	_ connector.Evolver     = (*Sink)(nil)
	_ connector.RowRejecter = (*Sink)(nil)
	_ connector.Checker     = (*Sink)(nil)
	_ connector.Named       = (*Sink)(nil)
)

func newSink(c *SinkConfig, env connector.Env, f message.Format) *Sink {
	return &Sink{cfg: c, env: env, format: f, sets: map[string]*set{}, owner: map[string]string{}, limits: map[string]int32{}}
}

const (
	maxBuffered      = 64 << 20 // bytes of messages that were not answered yet
	maxRecords       = 1 << 18  // likewise, messages
	defaultMaxBatch  = 1 << 20  // what topics allow by default
	messageOverhead  = 200      // most bytes that a batch has besides keys, values and headers
	headerOverhead   = 16
	maxPositionBytes = 16 << 20
)

// connect opens a client.
func (s *Sink) connect(ctx context.Context, more ...kgo.Opt) error {
	codec, err := s.cfg.codec()
	if err != nil {
		return err
	}
	opts := []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(partitioner{kgo.StickyKeyPartitioner(nil)}),
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerLinger(s.cfg.Linger), kgo.MaxBufferedBytes(int(s.env.Buffer(maxBuffered))), kgo.MaxBufferedRecords(maxRecords),
		kgo.ProducerBatchMaxBytesFn(s.maxBatch),
	}
	cl, err := s.cfg.client(s.env, append(opts, more...)...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return s.cfg.wrap("connecting to Kafka at "+s.cfg.where(), err)
	}
	if s.client != nil { // of Check
		s.client.Close()
	}
	s.client, s.admin = cl, kadm.NewClient(cl)
	return nil
}

func (s *Sink) maxBatch(topic string) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.limits[topic]; ok {
		return n
	}
	return defaultMaxBatch
}

func (s *Sink) allow(topic string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits[topic] = int32(min(bytes, 1<<30)) //nolint:mnd // requests are smaller than 2 GiB
}

// Map implements connector.Mapper.
func (s *Sink) Map(_ context.Context, schema *record.Schema) ([]connector.Mapping, error) {
	name, err := s.topicOf(schema.Dataset)
	if err != nil {
		return nil, err
	}
	return s.format.Map(s.cfg.topic(name, schema.Dataset, connector.Upsert), schema), nil
}

// Start implements connector.Sink.
func (s *Sink) Start(ctx context.Context, start connector.SinkStart) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting to write topics: %w", err)
	}
	if s.closed {
		return errClosed
	}
	s.start = start
	return s.connect(ctx)
}

var errClosed = errors.New("the sink is not open")

// guard runs f; after an error the sink takes nothing more.
func (s *Sink) guard(ctx context.Context, doing string, f func() error) error {
	switch {
	case s.closed || s.client == nil:
		return errClosed
	case s.failed != nil:
		return s.failed
	case ctx.Err() != nil:
		s.failed = fmt.Errorf("%s: %w", doing, context.Cause(ctx))
		return s.failed
	}
	err := f()
	var rows *connector.RowErrors
	if err != nil && !errors.As(err, &rows) {
		s.failed = err
	}
	return err
}

// Write implements connector.Sink.
func (s *Sink) Write(ctx context.Context, b *record.Batch) error {
	return s.guard(ctx, "writing messages", func() error {
		if b.Schema == nil {
			return nil
		}
		t, err := s.set(ctx, b.Schema)
		if err != nil {
			return err
		}
		if b.NumRows() == 0 && !b.Truncate {
			return nil
		}
		if s.begin != nil {
			if err := s.begin(ctx); err != nil {
				return err
			}
		}
		return s.write(ctx, t, b)
	})
}

// set finds a dataset, or makes its topic.
func (s *Sink) set(ctx context.Context, schema *record.Schema) (*set, error) {
	if t := s.sets[schema.Dataset]; t != nil {
		return t, nil
	}
	name, err := s.topicOf(schema.Dataset)
	if err != nil {
		return nil, err
	}
	if other, taken := s.owner[name]; taken {
		return nil, &connector.Error{
			Class: connector.ClassConfig, Code: "kafka.topic_shared", Doing: "writing topic " + name, Dataset: schema.Dataset,
			Err:  fmt.Errorf("dataset %s is written to the same topic", other),
			Hint: "say topic={dataset}, so that every dataset has its own",
		}
	}
	t := &set{topic: name}
	if t.enc, err = s.format.NewEncoder(s.cfg.topic(name, schema.Dataset, s.start.Mode)); err != nil {
		return nil, encodeError(t.topic, err)
	}
	if err := t.enc.Bind(ctx, schema); err != nil {
		return nil, encodeError(t.topic, err)
	}
	if t.partitions, err = s.ensure(ctx, name, s.topicConfig()); err != nil {
		return nil, err
	}
	if t.limit, err = s.limitOf(ctx, name); err != nil {
		return nil, err
	}
	s.allow(name, t.limit)
	s.sets[schema.Dataset], s.owner[name] = t, schema.Dataset
	return t, nil
}

func encodeError(topic string, err error) error {
	if _, ok := errors.AsType[*connector.Error](err); ok {
		return err
	}
	return messageError("kafka.encode", "encoding messages of topic "+topic, err)
}

// write encodes a batch and sends it.
func (s *Sink) write(ctx context.Context, t *set, b *record.Batch) error {
	if err := s.sendError(); err != nil {
		return err
	}
	if b.Truncate {
		if s.cfg.Truncate == truncateSkip {
			without := *b
			without.Truncate = false
			b = &without
		} else if s.cfg.Truncate == truncateFail && t.partitions > 1 {
			return &connector.Error{
				Class: connector.ClassPermanent, Code: "kafka.truncate", Doing: "writing topic " + t.topic, Dataset: b.Schema.Dataset,
				Err: fmt.Errorf("the dataset was emptied, and the topic has %d partitions, whose messages have no common order",
					t.partitions),
				Hint: "partitions=1 keeps the order; truncate=event writes an event to every partition, truncate=skip none",
			}
		}
	}
	o := outgoing{s: s, ctx: ctx, t: t, b: b, row: -2} //nolint:mnd // no row yet
	refused, err := t.enc.Encode(ctx, b, o.add)
	if err == nil {
		err = o.send()
	}
	if err != nil {
		return encodeError(t.topic, err)
	}
	if s.buffers.bytes() > s.env.Buffer(maxBuffered) { // a large transaction: what was sent so far waits for its answers
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	if refused = append(refused, o.refused...); len(refused) > 0 {
		slices.SortFunc(refused, func(a, b connector.RowError) int { return a.Index - b.Index })
		return &connector.RowErrors{Rows: refused}
	}
	return nil
}

// sendError is the first error of a message that was sent.
func (s *Sink) sendError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse == nil {
		return nil
	}
	return s.sent(s.refuse)
}

// sent says what it means that a message did not arrive.
func (s *Sink) sent(err error) error {
	if errors.Is(err, kerr.MessageTooLarge) {
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "kafka.size", Doing: "sending messages",
			Err:  errors.New("a message is larger than its topic allows"),
			Hint: "raise max.message.bytes of the topic, or say max_message=BYTES so that such rows are set aside",
		}
	}
	return s.cfg.wrap("sending messages", err)
}

// promise takes note of what became of a message.
func (s *Sink) promise(_ *kgo.Record, err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse == nil {
		s.refuse = err
	}
}

// flush returns when every message was answered.
func (s *Sink) flush(ctx context.Context) error {
	if err := s.client.Flush(ctx); err != nil {
		return s.cfg.wrap("sending messages", err)
	}
	s.buffers.reset()
	return s.sendError()
}

// Flush implements connector.Sink.
func (s *Sink) Flush(ctx context.Context) error {
	return s.guard(ctx, "sending messages", func() error { return s.flush(ctx) })
}

// Evolve implements connector.Evolver: messages that are there stay as they are, and those to come have the columns of their schema.
func (s *Sink) Evolve(ctx context.Context, _, to *record.Schema) error {
	return s.guard(ctx, "changing columns", func() error {
		t, err := s.set(ctx, to)
		if err != nil {
			return err
		}
		if err := t.enc.Bind(ctx, to); err != nil {
			return encodeError(t.topic, err)
		}
		return nil
	})
}

// RejectsRows implements connector.RowRejecter.
func (*Sink) RejectsRows() {}

// URI implements connector.Named.
func (s *Sink) URI(dataset string) string {
	name, err := s.topicOf(dataset)
	if err != nil {
		name = dataset
	}
	return s.cfg.uri(name)
}

// Close implements connector.Sink.
func (s *Sink) Close(ctx context.Context) error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	_ = s.client.AbortBufferedRecords(ctx) // what was not flushed may be lost
	s.client.Close()
	return nil
}
