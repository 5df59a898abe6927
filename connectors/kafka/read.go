package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/record"
)

// Read implements connector.Source. It never waits for brokers but where the format asks a registry.
func (s *Source) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	switch {
	case s.ended != nil:
		return nil, s.ended
	case s.topics == nil:
		return nil, errors.New("the source is not started")
	case ctx.Err() != nil:
		return nil, fmt.Errorf("reading topics: %w", context.Cause(ctx))
	}
	b, err := s.next(ctx, want)
	if err != nil && ctx.Err() == nil {
		s.ended = err
	}
	return b, err
}

func (s *Source) next(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if err := s.hear(); err != nil {
		return nil, err
	}
	for {
		if len(s.tell) > 0 {
			t := s.tell[0]
			s.tell = s.tell[1:]
			return s.announce(t), nil
		}
		b, err := s.take(ctx, want)
		if b != nil || err != nil {
			return b, err
		}
		if s.moved && s.reached() { // the cut lay behind records that are no rows
			return s.mark(), nil
		}
		if s.finished() {
			return s.finish()
		}
		select {
		case f := <-s.inbox:
			if err := s.accept(ctx, f); err != nil {
				return nil, err
			}
			continue
		default:
		}
		if more, err := s.idle(ctx); err != nil || !more {
			return s.rest(), err
		}
	}
}

// rest hands out a position alone, from time to time, where only records came that are no rows.
func (s *Source) rest() *record.Batch {
	if s.moved && time.Since(s.sent) >= idleAfter && s.cfg.Follow {
		return s.mark()
	}
	return nil
}

// mark is a position without rows.
func (s *Source) mark() *record.Batch {
	s.moved, s.sent = false, time.Now()
	return &record.Batch{Position: s.position().encode()}
}

// accept sorts fetched records into the queues of their partitions.
func (s *Source) accept(ctx context.Context, fetches kgo.Fetches) error {
	s.quiet = time.Now()
	for _, f := range fetches {
		for i := range f.Topics {
			ft := &f.Topics[i]
			t := s.byName[ft.Topic]
			for j := range ft.Partitions {
				fp := &ft.Partitions[j]
				if fp.Err != nil {
					if err := s.fetchError(ctx, ft.Topic, fp); err != nil {
						return err
					}
				}
				if t == nil || int(fp.Partition) >= len(t.parts) || len(fp.Records) == 0 {
					continue
				}
				p := t.parts[fp.Partition]
				if p.gone {
					continue
				}
				if p.queue == nil {
					p.queue = fp.Records
				} else {
					p.queue = append(p.queue, fp.Records...)
				}
			}
		}
	}
	return nil
}

// fetchError says what an error of one partition means; nil: it passes.
func (s *Source) fetchError(ctx context.Context, topic string, fp *kgo.FetchPartition) error {
	partition := int(fp.Partition)
	var loss *kgo.ErrDataLoss
	switch {
	case errors.Is(fp.Err, context.Canceled), errors.Is(fp.Err, context.DeadlineExceeded):
		return nil
	case errors.As(fp.Err, &loss):
		return lost(topic, partition, loss.ConsumedTo, loss.ResetTo)
	case errors.Is(fp.Err, kerr.OffsetOutOfRange):
		next := int64(0)
		if t := s.byName[topic]; t != nil && partition < len(t.parts) {
			next = t.parts[partition].taken
		}
		return s.outOfRange(ctx, topic, partition, next)
	case errors.Is(fp.Err, kerr.UnknownTopicID), errors.Is(fp.Err, kerr.UnknownTopicOrPartition):
		return deleted(topic)
	}
	return s.cfg.wrap(fmt.Sprintf("reading partition %d of topic %s", partition, topic), fp.Err)
}

// outOfRange finds out why a partition does not have an offset.
func (s *Source) outOfRange(ctx context.Context, topic string, partition int, next int64) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	l, err := s.limits(ctx, []string{topic})
	if err != nil {
		return err
	}
	if start := offsetOf(l.start, topic, partition); next < start {
		return expired(topic, partition, next, start)
	}
	return lost(topic, partition, next, offsetOf(l.watermark, topic, partition))
}

var errStubborn = errors.New("the decoder does not take a message")

// defaultRows is how many rows a batch of a source without an end has where no number is wanted.
const defaultRows = 10_000

// take decodes what is in the queues, topic by topic, and hands out a batch where there is enough for one.
func (s *Source) take(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	whole := want.Rows == 0
	if whole && s.cfg.Follow {
		whole, want.Rows = false, defaultRows
	}
	for range s.topics {
		t := s.topics[s.turn]
		for {
			full, rested, err := s.gather(ctx, t, want)
			if err != nil {
				return nil, err
			}
			if t.appended == 0 {
				s.settle(t)
			} else if full || !whole || rested {
				if b, err := s.emit(t); b != nil || err != nil {
					return b, err
				}
			}
			if !full {
				break
			}
		}
		s.turn = (s.turn + 1) % len(s.topics)
	}
	return nil, nil //nolint:nilnil // nothing now
}

// gather decodes records of a topic until a batch is full. rested: every partition is at its end, or at the cut.
func (s *Source) gather(ctx context.Context, t *topic, want connector.Limit) (full, rested bool, err error) {
	m := message.Message{Topic: t.name}
	rested = true
	for _, p := range t.parts {
		if full, err = t.drain(ctx, p, &m, want); err != nil {
			return false, false, decodeError(t.name, err)
		}
		if full {
			return true, false, nil
		}
		s.leave(t, p)
		rested = rested && (p.ended() || p.held())
	}
	return false, rested, nil
}

// drain decodes what is in the queue of a partition, as far as the batch has room and the partition may go.
func (t *topic) drain(ctx context.Context, p *part, m *message.Message, want connector.Limit) (full bool, err error) {
	n, limit := 0, p.limit()
	for n < len(p.queue) && !full && err == nil {
		r := p.queue[n]
		if limit >= 0 && r.Offset >= limit {
			p.taken = max(p.taken, limit) // nothing lies between
			break
		}
		if r.Offset >= p.taken {
			taken := true
			if !r.Attrs.IsControl() {
				fill(m, r)
				taken, err = t.decode(ctx, m)
			}
			if full = !taken; full || err != nil {
				break
			}
			p.taken, p.newest = r.Offset+1, r.LeaderEpoch
		}
		n++
		rows := t.dec.Rows()
		full = (want.Rows > 0 && rows >= want.Rows) || (want.Bytes > 0 && t.bytes >= want.Bytes && rows > 0)
	}
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil // and with it what was fetched
	}
	return full, err
}

// decode adds a message to the batch under way; false: the batch has to be handed out first.
func (t *topic) decode(ctx context.Context, m *message.Message) (bool, error) {
	ok, err := t.dec.Append(ctx, m)
	if err == nil && !ok {
		if t.appended > 0 {
			return false, nil
		}
		// Of an empty batch: the message has another schema than the ones before.
		if _, err = t.dec.Batch(); err == nil {
			ok, err = t.dec.Append(ctx, m)
		}
		if err == nil && !ok {
			err = errStubborn
		}
	}
	if err != nil {
		return false, err //nolint:wrapcheck // gather says what was done
	}
	t.appended++
	t.bytes += int64(len(m.Key) + len(m.Value))
	t.newest = m.Time
	return true, nil
}

// leave stops to fetch a partition that is at its end.
func (s *Source) leave(t *topic, p *part) {
	if p.gone || !p.ended() {
		return
	}
	p.gone, p.queue = true, nil
	s.consumer.RemoveConsumePartitions(map[string][]int32{t.name: {p.number}})
}

func fill(m *message.Message, r *kgo.Record) {
	m.Partition, m.Offset, m.Time, m.Key, m.Value = r.Partition, r.Offset, r.Timestamp, r.Key, r.Value
	m.Headers, m.Logged = nil, r.Attrs.TimestampType() == 1
	if len(r.Headers) > 0 {
		m.Headers = make([]message.Header, len(r.Headers))
	}
	for i, h := range r.Headers {
		m.Headers[i] = message.Header{Name: h.Key, Value: h.Value}
	}
}

func decodeError(topic string, err error) error {
	if _, ok := errors.AsType[*connector.Error](err); ok {
		return err
	}
	return messageError("kafka.decode", "decoding messages of topic "+topic, err)
}

// messageError is an error of a format, or of the registry that it asks.
func messageError(code, doing string, err error) error {
	e := &connector.Error{Class: connector.ClassPermanent, Code: code, Doing: doing, Err: err}
	if registry.Failed(err) {
		e.Class, e.Code = connector.ClassTransient, "kafka.registry"
		e.Hint = "check that the registry runs, and the options registry and registry_user"
	}
	return e
}

// settle makes what was decoded what was handed out.
func (s *Source) settle(t *topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range t.parts {
		if p.next != p.taken {
			p.next, p.epoch = p.taken, p.newest
			s.moved = true
		}
	}
	t.bytes, t.appended, t.last = 0, 0, t.newest
}

// emit hands out what was decoded of a topic.
func (s *Source) emit(t *topic) (*record.Batch, error) {
	size := t.bytes
	s.settle(t)
	b, err := t.dec.Batch()
	if err != nil {
		return nil, decodeError(t.name, err)
	}
	if b == nil {
		return nil, nil //nolint:nilnil // nothing that says anything
	}
	t.told, s.moved, s.sent = true, false, time.Now()
	b.Size = size
	b.Position = s.position().encode()
	if s.cfg.Follow {
		b.Changes = b.NumRows()
		b.Txns = []record.Txn{{Rows: b.NumRows(), Position: b.Position, Time: t.last}}
	}
	s.reached()
	return b, nil
}

// finished reports whether every partition is at its end.
func (s *Source) finished() bool {
	if s.cfg.Follow {
		return false
	}
	for _, t := range s.topics {
		for _, p := range t.parts {
			if !p.ended() {
				return false
			}
		}
	}
	return true
}

// finish hands out what is left to say: the schemas of topics without rows, and the last position.
func (s *Source) finish() (*record.Batch, error) {
	for _, t := range s.topics {
		if !t.told {
			return s.announce(t), nil
		}
	}
	if s.moved {
		return s.mark(), nil
	}
	s.ended = io.EOF
	return nil, io.EOF
}

// announce tells of a dataset, without rows.
func (s *Source) announce(t *topic) *record.Batch {
	t.told, s.moved, s.sent = true, false, time.Now()
	rows := array.NewRecordBuilder(memory.DefaultAllocator, t.dec.Schema().Columns)
	return &record.Batch{Schema: t.dec.Schema(), Rows: rows.NewRecordBatch(), Position: s.position().encode()}
}

// idle looks after partitions that say nothing although the run needs to hear of them: behind the last record that may be read there may
// be some that were aborted. It reports whether anything moved.
func (s *Source) idle(ctx context.Context) (moved bool, err error) {
	if time.Since(s.quiet) < stallAfter || (s.cfg.Follow && len(s.cuts) == 0) {
		return false, nil
	}
	s.quiet = time.Now()
	for _, t := range s.topics {
		for _, p := range t.parts {
			if p.gone || p.held() || len(p.queue) > 0 {
				continue
			}
			next, err := s.probe(ctx, t, p)
			if err != nil {
				return false, err
			}
			if next > p.taken {
				p.taken = next
				if limit := p.limit(); limit >= 0 {
					p.taken = min(p.taken, limit)
				}
				moved = true
				s.leave(t, p)
			}
		}
	}
	return moved, nil
}

// probe fetches once from where a partition stands, and returns the offset behind what is no record to read; the partition's own where
// there are any to come.
func (s *Source) probe(ctx context.Context, t *topic, p *part) (int64, error) {
	leader, epoch, err := s.consumer.PartitionLeader(t.name, p.number)
	if err != nil || leader < 0 {
		return p.taken, nil // the library looks for the leader
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.SessionEpoch, req.MaxBytes = -1, -1, partFetch
	isolation := kgo.ReadUncommitted()
	if !s.cfg.Uncommitted {
		req.IsolationLevel, isolation = 1, kgo.ReadCommitted()
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = t.name
	if id, err := s.admin.Metadata(ctx, t.name); err == nil {
		rt.TopicID = id.Topics[t.name].ID
	}
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.CurrentLeaderEpoch, rp.PartitionMaxBytes = p.number, p.taken, epoch, partFetch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, s.consumer.Broker(int(leader)))
	if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		return p.taken, ctx.Err()
	}
	opts := kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true, Offset: p.taken, IsolationLevel: isolation, Topic: t.name, Partition: p.number,
	}
	fp, next := kgo.ProcessFetchPartition(opts, &resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	if len(fp.Records) > 0 || fp.Err != nil {
		return p.taken, nil
	}
	return next, nil
}
