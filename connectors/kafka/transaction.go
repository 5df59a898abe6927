package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// TransactionalSink writes rows and the lane's progress in one transaction (E5). The progress is a message of a compacted topic, whose key
// is pipeline and lane.
//
// Owners of a lane have one transactional id, so that the brokers let only the newest of them write: a start rolls back what an older one
// has open. Which owner is the newest is decided by the fence, which stands in the message: a start reads it, takes over the id, reads
// once more (somebody may have come in between), and writes its own fence before anything else.
type TransactionalSink struct {
	*Sink

	open   bool   // a transaction is
	stored stored // as it is committed
	has    bool
}

// stored is the message of a lane in the topic of positions.
type stored struct {
	Format   int              `json:"format"`
	Pipeline string           `json:"pipeline"`
	Lane     string           `json:"lane"`
	Fence    uint64           `json:"fence"`
	Progress *record.Progress `json:"progress"` // nil: none yet
}

const storedFormat = 1

var (
	_ connector.Sink          = (*TransactionalSink)(nil)
	_ connector.PositionStore = (*TransactionalSink)(nil)
)

// transactionalID is the same for all owners of a lane.
func (s *TransactionalSink) transactionalID() string {
	return s.cfg.TransactionPrefix + "." + s.start.Pipeline + "." + s.start.Lane
}

// storedKey is the key of the lane's messages.
func (s *TransactionalSink) storedKey() []byte {
	key := record.AppendJSONString([]byte{'['}, s.start.Pipeline)
	return append(record.AppendJSONString(append(key, ','), s.start.Lane), ']')
}

// Start implements connector.Sink.
func (s *TransactionalSink) Start(ctx context.Context, start connector.SinkStart) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting to write topics: %w", err)
	}
	if s.closed {
		return errClosed
	}
	s.start = start
	s.allow(s.cfg.PositionTopic, maxPositionBytes)
	if err := s.connect(ctx, kgo.TransactionalID(s.transactionalID()), kgo.TransactionTimeout(s.cfg.TransactionTimeout)); err != nil {
		return err
	}
	s.begin = s.beginTransaction
	if err := s.takeOver(ctx); err != nil {
		s.failed = err
		return err
	}
	return nil
}

func (s *TransactionalSink) takeOver(ctx context.Context) error {
	if _, err := s.ensure(ctx, s.cfg.PositionTopic, positionConfig()); err != nil {
		return err
	}
	if err := s.checkCleanup(ctx); err != nil {
		return err
	}
	// What is still open may be a transaction of a process that was killed: nobody waits for it before it is ended, here below.
	if err := s.readBack(ctx, s.admin.ListCommittedOffsets); err != nil {
		return err
	}
	timed, cancel := context.WithTimeout(ctx, s.cfg.TransactionTimeout+s.cfg.Timeout)
	defer cancel()
	if _, _, err := s.client.ProducerID(timed); err != nil {
		return s.transactionError(ctx, "taking over transactional id "+s.transactionalID(), err, false)
	}
	if err := s.readBack(ctx, s.admin.ListEndOffsets); err != nil {
		return err
	}
	if s.has && s.stored.Fence == s.start.Fence {
		return nil
	}
	return s.commit(ctx, s.stored.Progress)
}

// positionConfig are the settings of the topic of positions: small segments, so that old messages are soon cleaned away.
func positionConfig() map[string]string {
	return map[string]string{
		"cleanup.policy": "compact", "segment.bytes": "16777216", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1",
		"max.message.bytes": strconv.Itoa(maxPositionBytes),
	}
}

// checkCleanup refuses a topic whose messages are deleted by age: a position would be forgotten.
func (s *Sink) checkCleanup(ctx context.Context) error {
	policy, err := s.setting(ctx, s.cfg.PositionTopic, "cleanup.policy")
	if err != nil || policy == "" || policy == "compact" {
		return err
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "kafka.position_topic", Doing: "looking at topic " + s.cfg.PositionTopic,
		Err: fmt.Errorf("its cleanup.policy is %s, which forgets positions", policy),
		Hint: "kafka-configs.sh --alter --topic " + s.cfg.PositionTopic +
			" --add-config cleanup.policy=compact, or name another position_topic",
	}
}

// readBack reads what the lane has committed, and refuses to go on behind a newer owner.
func (s *TransactionalSink) readBack(ctx context.Context, end endOf) error {
	m, found, err := s.load(ctx, end)
	if err != nil {
		return err
	}
	if found && m.Fence > s.start.Fence {
		return s.fenced(m.Fence)
	}
	s.stored, s.has = m, found
	return nil
}

func (s *TransactionalSink) fenced(by uint64) error {
	return &connector.Error{
		Class: connector.ClassFenced, Code: "kafka.fenced", Doing: "writing as " + s.transactionalID(),
		Err: fmt.Errorf("another process has taken over pipeline %q: its attempt is %d, this one's is %d", s.start.Pipeline,
			by, s.start.Fence),
		Hint: "let one process run the pipeline; leat status shows which",
	}
}

func (s *TransactionalSink) beginTransaction(ctx context.Context) error {
	if s.open {
		return nil
	}
	if err := s.client.BeginTransaction(); err != nil {
		return s.transactionError(ctx, "beginning a transaction", err, false)
	}
	s.open = true
	return nil
}

// Write implements connector.Sink.
func (s *TransactionalSink) Write(ctx context.Context, b *record.Batch) error {
	return s.explain(ctx, s.Sink.Write(ctx, b))
}

// explain finds out whether an error of the brokers means that another owner took over.
func (s *TransactionalSink) explain(ctx context.Context, err error) error {
	if err == nil || !isFence(err) || connector.ClassOf(err) == connector.ClassFenced {
		return err
	}
	s.failed = s.transactionError(ctx, "sending messages", err, false)
	return s.failed
}

// Commit implements connector.PositionStore.
func (s *TransactionalSink) Commit(ctx context.Context, p record.Progress) error {
	return s.guard(ctx, "committing", func() error { return s.commit(ctx, &p) })
}

// Flush implements connector.Sink, for use without an engine: what was written is committed, and the progress stays as it is.
func (s *TransactionalSink) Flush(ctx context.Context) error {
	return s.guard(ctx, "committing", func() error { return s.commit(ctx, s.stored.Progress) })
}

// commit ends the transaction with the progress in it.
func (s *TransactionalSink) commit(ctx context.Context, p *record.Progress) error {
	m := stored{Format: storedFormat, Pipeline: s.start.Pipeline, Lane: s.start.Lane, Fence: s.start.Fence, Progress: p}
	value, err := m.encode()
	if err != nil {
		return err
	}
	if err := s.beginTransaction(ctx); err != nil {
		return err
	}
	// Last and at once before the end: readers of the topic wait for transactions that are open in it.
	if err := s.flush(ctx); err != nil {
		return s.transactionError(ctx, "sending messages", err, false)
	}
	r := &kgo.Record{Topic: s.cfg.PositionTopic, Partition: 0, Key: s.storedKey(), Value: value}
	s.client.Produce(ctx, r, s.promise)
	if err := s.flush(ctx); err != nil {
		return s.transactionError(ctx, "writing the position to topic "+s.cfg.PositionTopic, err, false)
	}
	// A cancelled end would leave its outcome unknown where it need not be.
	timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	if err := s.client.EndTransaction(timed, kgo.TryCommit); err != nil {
		return s.transactionError(timed, "committing", err, true)
	}
	s.open = false
	s.stored, s.has = m, true
	return nil
}

// isFence reports whether brokers refused a producer as an older one, or do not know it any more.
func isFence(err error) bool {
	for _, ke := range []error{
		kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.FencedInstanceID, kerr.InvalidProducerIDMapping, kerr.UnknownProducerID,
		kerr.InvalidTxnState,
	} {
		if errors.Is(err, ke) {
			return true
		}
	}
	return false
}

// transactionError says what an error of a transaction means. A producer is refused as an older one where another owner took over, but
// also where brokers rolled back a transaction that took too long: the fence in the topic tells which. unsure: the transaction may have
// been committed all the same.
func (s *TransactionalSink) transactionError(ctx context.Context, doing string, err error, unsure bool) error {
	var done *connector.Error
	if errors.As(err, &done) && !isFence(err) && !unsure {
		return err
	}
	if isFence(err) {
		timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
		defer cancel()
		m, found, readErr := s.load(timed, s.admin.ListEndOffsets)
		if readErr == nil && found && m.Fence > s.start.Fence {
			return s.fenced(m.Fence)
		}
	}
	e := &connector.Error{
		Class: connector.ClassTransient, Code: "kafka.transaction", Doing: doing, Err: s.cfg.clean(err),
		Hint: "transactions that take longer than transaction_timeout are rolled back by the brokers",
	}
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		class, code, hint := classify(ke)
		e.Err = brokerError(ke, err, &s.cfg.Connection)
		if class == connector.ClassConfig {
			e.Class, e.Code, e.Hint = class, code, hint
		}
	}
	definite := errors.Is(err, kerr.OperationNotAttempted) || errors.Is(err, kerr.TransactionAbortable)
	if unsure && !definite {
		e.Class, e.Code = connector.ClassOutcome, "kafka.outcome"
		e.Hint = "the position topic is read back before anything is tried again"
	}
	return e
}

func (m stored) encode() ([]byte, error) {
	out := record.AppendJSONString([]byte(`{"format":1,"pipeline":`), m.Pipeline)
	out = record.AppendJSONString(append(out, `,"lane":`...), m.Lane)
	out = fmt.Appendf(out, `,"fence":%d,"progress":`, m.Fence)
	if m.Progress == nil {
		return append(out, "null}"...), nil
	}
	out, err := m.Progress.Append(out)
	if err != nil {
		return nil, fmt.Errorf("encoding the progress: %w", err)
	}
	return append(out, '}'), nil
}

// Committed implements connector.PositionStore: it is read from the topic each time.
func (s *TransactionalSink) Committed(ctx context.Context) (p record.Progress, found bool, err error) {
	err = s.guard(ctx, "reading the progress", func() error {
		m, has, err := s.load(ctx, s.admin.ListEndOffsets)
		if err == nil && has && m.Progress != nil {
			p, found = *m.Progress, true
		}
		return err
	})
	return p, found, err
}

// How far the search for the newest message of the lane looks back at first, and by how much more each time.
const (
	firstLook = 256
	lookMore  = 16
)

// endOf asks where topics end: behind all that is written, which waits for transactions that are open, or before the first of those.
type endOf func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)

// load finds the newest message of the lane that is committed: from the end backwards, as lanes that run have one there.
func (s *TransactionalSink) load(ctx context.Context, end endOf) (m stored, found bool, err error) {
	topic := s.cfg.PositionTopic
	ctx, cancel := context.WithTimeout(ctx, s.cfg.TransactionTimeout+s.cfg.Timeout)
	defer cancel()
	starts, err := s.admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return m, false, s.cfg.wrap("reading positions of topic "+topic, err)
	}
	ends, err := end(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return m, false, s.cfg.wrap("reading positions of topic "+topic, err)
	}
	start, to := offsetOf(starts, topic, 0), offsetOf(ends, topic, 0)
	for back := int64(firstLook); start < to && !found; back *= lookMore {
		from := max(start, to-back)
		if m, found, err = s.search(ctx, from, to); err != nil {
			return m, false, err
		}
		to = from
	}
	return m, found, nil
}

// search reads a part of the topic, and returns the last message of the lane in it.
func (s *TransactionalSink) search(ctx context.Context, from, to int64) (m stored, found bool, err error) {
	topic := s.cfg.PositionTopic
	cl, err := s.cfg.client(s.env, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(maxWait), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}))
	if err != nil {
		return m, false, err
	}
	defer cl.Close()
	key := string(s.storedKey())
	var newest []byte
	for at := from; at < to; {
		fetches := cl.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			return m, false, s.cfg.wrap("reading positions of topic "+topic, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at = r.Offset + 1
			if r.Offset < to && !r.Attrs.IsControl() && string(r.Key) == key {
				newest = r.Value
			}
		})
	}
	if newest == nil {
		return m, false, nil
	}
	if err := json.Unmarshal(newest, &m); err != nil || m.Format != storedFormat {
		return m, false, &connector.Error{
			Class: connector.ClassPermanent, Code: "kafka.position_format", Doing: "reading positions of topic " + topic,
			Err:  fmt.Errorf("the message of %s is not one of this version of leat: %.100q", strings.ToValidUTF8(key, "?"), newest),
			Hint: "use the version that wrote it, or another position_topic",
		}
	}
	return m, true, nil
}

// pause waits a moment between two looks.
func pause(ctx context.Context) error {
	t := time.NewTimer(10 * time.Millisecond) //nolint:mnd // a moment
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller says what it was
	}
}

// Close implements connector.Sink: what was not committed is rolled back.
func (s *TransactionalSink) Close(ctx context.Context) error {
	if s.closed {
		return nil
	}
	if s.open && s.client != nil {
		timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
		defer cancel()
		if err := s.client.AbortBufferedRecords(timed); err == nil {
			_ = s.client.EndTransaction(timed, kgo.TryAbort) // else the brokers do it, after transaction_timeout or at the next start
		}
		s.open = false
	}
	return s.Sink.Close(ctx)
}
