package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// byKey, as the partition of a record, leaves the choice to its key.
const byKey = -1

// partitioner chooses as the default of the Java client does: murmur2 of the key, and for messages without one whatever fills batches
// best. Records that name their partition go there.
type partitioner struct{ byKey kgo.Partitioner }

// ForTopic implements kgo.Partitioner.
func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	t := topicPartitioner{TopicPartitioner: p.byKey.ForTopic(topic)}
	t.batches, _ = t.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch)
	return t
}

type topicPartitioner struct {
	kgo.TopicPartitioner
	batches kgo.TopicPartitionerOnNewBatch
}

// RequiresConsistency implements kgo.TopicPartitioner.
func (t topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition != byKey || t.TopicPartitioner.RequiresConsistency(r)
}

// Partition implements kgo.TopicPartitioner.
func (t topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition != byKey {
		return int(r.Partition)
	}
	return t.TopicPartitioner.Partition(r, n)
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (t topicPartitioner) OnNewBatch() {
	if t.batches != nil {
		t.batches.OnNewBatch()
	}
}

// outgoing sends the messages of a batch, row by row: all messages of a row, or none.
type outgoing struct {
	s   *Sink
	ctx context.Context //nolint:containedctx // of one call of Write
	t   *set
	b   *record.Batch

	row     int
	records []*kgo.Record // of the row
	large   int64         // size of a message of the row that the topic does not take
	refused []connector.RowError
}

// add takes a message of the encoder.
func (o *outgoing) add(row int, m *message.Message) error {
	if row != o.row {
		if err := o.send(); err != nil {
			return err
		}
		o.row = row
	}
	size := int64(messageOverhead + len(m.Key) + len(m.Value))
	for _, h := range m.Headers {
		size += int64(headerOverhead + len(h.Name) + len(h.Value))
	}
	if size > o.t.limit {
		o.large = size
		return nil
	}
	r := o.s.buffers.record()
	r.Topic, r.Partition = o.t.topic, byKey
	r.Key, r.Value = o.s.buffers.copy(m.Key), o.s.buffers.copy(m.Value)
	if !m.Time.IsZero() {
		r.Timestamp = m.Time
	}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Name, Value: o.s.buffers.copy(h.Value)})
	}
	if row < 0 { // a truncation concerns all partitions
		for p := 1; p < o.t.partitions; p++ {
			more := o.s.buffers.record()
			*more = *r
			more.Partition = int32(p)
			o.records = append(o.records, more)
		}
		r.Partition = 0
	}
	if m.Key == nil && len(o.b.Schema.Key) == 0 && (o.b.Ops != nil || o.b.Txns != nil || o.s.changelog()) {
		r.Partition = 0 // changes of rows without keys have one order, and come behind the rows that were there at first
	}
	o.records = append(o.records, r)
	return nil
}

var errLargeTruncate = errors.New("an event of a dataset that was emptied is larger than its topic allows")

// changelog reports whether messages tell of changes, not of rows.
func (s *Sink) changelog() bool { return s.format.Input(message.Topic{}) == connector.Changelog }

// send hands over the messages of a row.
func (o *outgoing) send() error {
	if o.large > 0 {
		if o.row < 0 {
			return errLargeTruncate
		}
		reject := o.b.Reject(o.row)
		reject.Class, reject.Code = "too_large", "kafka.size"
		reject.Message = fmt.Sprintf("the message has %d bytes, and topic %s takes %d (max.message.bytes)", o.large, o.t.topic, o.t.limit)
		o.refused = append(o.refused, connector.RowError{Index: o.row, Reject: reject})
	} else {
		for _, r := range o.records {
			o.s.client.Produce(o.ctx, r, o.s.promise)
		}
	}
	o.records, o.large = o.records[:0], 0
	if o.ctx.Err() != nil {
		return fmt.Errorf("writing messages: %w", context.Cause(o.ctx))
	}
	return nil
}

// buffers lends memory for messages until all that was sent is answered.
type buffers struct {
	blocks  [][]byte
	used    int // blocks that are full
	records [][]kgo.Record
	n       int   // records lent
	large   int64 // bytes of values that have memory of their own
}

const (
	bufferBytes   = 1 << 20
	bufferRecords = 1 << 10
	keptBlocks    = 32 // that wait to be used again
)

// record lends a record.
func (b *buffers) record() *kgo.Record {
	block, at := b.n/bufferRecords, b.n%bufferRecords
	if block == len(b.records) {
		b.records = append(b.records, make([]kgo.Record, bufferRecords))
	}
	b.n++
	r := &b.records[block][at]
	*r = kgo.Record{}
	return r
}

// copy copies bytes; nil stays nil.
func (b *buffers) copy(v []byte) []byte {
	if v == nil {
		return nil
	}
	if len(v) > bufferBytes/8 { //nolint:mnd // little is wasted at the end of a block
		b.large += int64(len(v))
		return append([]byte(nil), v...)
	}
	for {
		if b.used == len(b.blocks) {
			b.blocks = append(b.blocks, make([]byte, 0, bufferBytes))
		}
		block := b.blocks[b.used]
		if from := len(block); cap(block)-from >= len(v) {
			b.blocks[b.used] = append(block, v...)
			return b.blocks[b.used][from : from+len(v) : from+len(v)]
		}
		b.used++
	}
}

// bytes is how much is lent.
func (b *buffers) bytes() int64 { return int64(b.used)*bufferBytes + b.large }

// reset takes everything back.
func (b *buffers) reset() {
	b.blocks = b.blocks[:min(len(b.blocks), keptBlocks)]
	for i := range b.blocks {
		b.blocks[i] = b.blocks[i][:0]
	}
	b.records = b.records[:min(len(b.records), keptBlocks*4)] //nolint:mnd // as many as fit
	b.used, b.n, b.large = 0, 0, 0
}
