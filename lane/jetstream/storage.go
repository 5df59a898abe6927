package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
)

const (
	callWait   = 10 * time.Second
	headerRoom = 1 << 10 // bytes of a message besides the entry
	maxFlying  = 1 << 16 // messages; lanes bound what is on its way by its bytes
	lagTries   = 20      // a replica may not have yet what the leader has acknowledged
	lagWait    = 50 * time.Millisecond
)

// storage implements lane.Storage.
type storage struct {
	where   string // for messages; without secrets
	inside  *inside
	conn    *nats.Conn
	js      js.JetStream
	stream  js.Stream
	notes   js.KeyValue
	name    string // of the stream
	subject string
	key     string
	limit   int
	stopped <-chan struct{} // closed when the server inside can't write any more; nil: it is not inside
	written syncedDir       // of the stream, where the server is inside
	noted   syncedDir       // of the notes, likewise
	done    chan struct{}   // closed by Close
	once    sync.Once
	flying  sync.WaitGroup
}

var _ lane.Storage = (*storage)(nil)

// connect reaches the server, or starts it, without looking for a stream.
func connect(ctx context.Context, c Config, pipeline string) (s *storage, err error) {
	s = &storage{name: streamName(pipeline), subject: subject(pipeline), key: token(pipeline), done: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	opts := []nats.Option{
		nats.Name("leat lanes of " + pipeline), nats.Timeout(callWait), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond),
	}
	addr := c.URL.Reveal()
	if c.Dir != "" {
		s.where = "the lanes in " + folder(c.Dir, pipeline)
		if s.inside, err = startInside(c, pipeline); err != nil {
			return s, err
		}
		s.stopped = s.inside.log.stopped
		opts = append(opts, nats.InProcessServer(s.inside.server))
	} else {
		s.where = "the lanes at " + redacted(addr)
		if c.Credentials != "" {
			opts = append(opts, nats.UserCredentials(c.Credentials))
		}
	}
	if s.conn, err = nats.Connect(addr, append(opts, s.told(c.log())...)...); err != nil {
		return s, s.failed("reaching", err)
	}
	s.js, err = js.New(
		s.conn, js.WithPublishAsyncMaxPending(maxFlying), js.WithPublishAsyncTimeout(callWait), js.WithDefaultTimeout(callWait),
	)
	if err != nil {
		return s, s.failed("reaching", err)
	}
	s.limit = int(s.conn.MaxPayload()) - headerRoom
	return s, ctx.Err()
}

// told logs what becomes of the connection: the library would write it to stderr by itself.
func (s *storage) told(log *slog.Logger) []nats.Option {
	log = log.With(slog.String("where", s.where))
	return []nats.Option{
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Info("the lanes' server has trouble", slog.Any("error", err))
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // else it was closed here
				log.Warn("the lanes' server is away: trying to reach it again", slog.Any("error", err))
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("the lanes' server is back") }),
	}
}

// redacted returns addresses without users and passwords.
func redacted(urls string) string {
	parts := strings.Split(urls, ",")
	for i, p := range parts {
		u, err := url.Parse(strings.TrimSpace(p))
		if err != nil {
			parts[i] = "***"
			continue
		}
		u.User = nil
		parts[i] = u.String()
	}
	return strings.Join(parts, ",")
}

// ensure makes the stream and the bucket where they are missing, and checks them where they are there.
func (s *storage) ensure(ctx context.Context, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	var err error
	s.stream, err = s.js.Stream(ctx, s.name)
	if errors.Is(err, js.ErrStreamNotFound) {
		s.stream, err = s.js.CreateStream(ctx, js.StreamConfig{
			Name: s.name, Subjects: []string{s.subject}, Description: "leat: what was published and is not delivered everywhere",
			Retention: js.LimitsPolicy, Storage: js.FileStorage, Discard: js.DiscardNew, MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1,
			MaxMsgsPerSubject: -1, AllowDirect: true, Replicas: max(replicas, 1),
		})
	}
	if err != nil {
		return s.failed("opening", err)
	}
	if err := s.check(s.stream.CachedInfo().Config); err != nil {
		return err
	}
	s.notes, err = s.js.KeyValue(ctx, bucket)
	if errors.Is(err, js.ErrBucketNotFound) {
		s.notes, err = s.js.CreateOrUpdateKeyValue(ctx, js.KeyValueConfig{
			Bucket: bucket, Description: "leat: how far the lanes of each pipeline are", History: 1,
			Storage: js.FileStorage, Replicas: max(replicas, 1),
		})
	}
	if err != nil {
		return s.failed("opening", err)
	}
	if err := s.checkNotes(ctx); err != nil || s.inside == nil {
		return err
	}
	s.written.path, s.noted.path = s.inside.folder(s.name), s.inside.folder("KV_"+bucket)
	return s.failed("opening", syncTree(s.inside.dir))
}

// settle makes what the server inside has stored survive a loss of power.
func (s *storage) settle(d *syncedDir) error {
	if s.inside == nil {
		return nil
	}
	return s.failed("writing to", d.settle())
}

// check refuses a stream whose settings could lose what was published. Others may have made it, with settings of their own.
func (s *storage) check(c js.StreamConfig) error {
	wrong := ""
	switch {
	case c.Storage != js.FileStorage:
		wrong = "it is kept in memory: it needs storage file"
	case c.Retention != js.LimitsPolicy:
		wrong = fmt.Sprintf("its retention is %s: it needs limits", c.Retention)
	case c.MaxAge > 0:
		wrong = fmt.Sprintf("it removes what is older than %s: it needs no max_age", c.MaxAge)
	case c.Discard != js.DiscardNew && (c.MaxMsgs > 0 || c.MaxBytes > 0):
		wrong = "it removes old messages at a limit: it needs discard new, or no limit"
	case c.MaxMsgsPerSubject > 0:
		wrong = "it limits the messages of a subject: it needs max_msgs_per_subject -1"
	case c.NoAck:
		wrong = "it does not acknowledge: it needs no_ack false"
	case c.DenyPurge || c.Sealed || c.Mirror != nil:
		wrong = "nothing can be written to it, or removed from it"
	case len(c.Subjects) != 1 || c.Subjects[0] != s.subject || len(c.Sources) > 0:
		wrong = "it takes other messages: it needs the one subject " + s.subject
	}
	if wrong == "" {
		if c.MaxMsgSize > 0 {
			s.limit = min(s.limit, int(c.MaxMsgSize)-headerRoom)
		}
		if s.limit >= headerRoom {
			return nil
		}
		wrong = "its messages are too small"
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "lanes.settings", Doing: "opening " + s.where, Err: fmt.Errorf("stream %s: %s", s.name, wrong),
		Hint: "change it with: nats stream edit " + s.name,
	}
}

// checkNotes refuses a bucket that forgets.
func (s *storage) checkNotes(ctx context.Context) error {
	st, err := s.notes.Status(ctx)
	if err != nil {
		return s.failed("opening", err)
	}
	wrong := ""
	switch {
	case st.TTL() > 0:
		wrong = fmt.Sprintf("it removes what is older than %s: it needs no ttl", st.TTL())
	case st.BackingStore() == "JetStream" && memoryOnly(st):
		wrong = "it is kept in memory: it needs storage file"
	}
	if wrong == "" {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "lanes.settings", Doing: "opening " + s.where, Err: fmt.Errorf("bucket %s: %s", bucket, wrong),
		Hint: "change it with: nats stream edit KV_" + bucket,
	}
}

func memoryOnly(st js.KeyValueStatus) bool {
	b, ok := st.(*js.KeyValueBucketStatus)
	return ok && b.StreamInfo().Config.Storage != js.FileStorage
}

// Limit implements lane.Storage.
func (s *storage) Limit() int { return s.limit }

// Bounds implements lane.Log.
func (s *storage) Bounds(ctx context.Context) (first, last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	i, err := s.stream.Info(ctx)
	if err != nil {
		return 0, 0, s.failed("looking at", err)
	}
	if i.State.Msgs == 0 {
		return i.State.LastSeq + 1, i.State.LastSeq, nil
	}
	return i.State.FirstSeq, i.State.LastSeq, nil
}

// Append implements lane.Log.
func (s *storage) Append(number uint64, data []byte, done func(error)) {
	m := &nats.Msg{Subject: s.subject, Data: data}
	ack, err := s.js.PublishMsgAsync(m, js.WithExpectLastSequence(number-1), js.WithExpectStream(s.name), js.WithRetryAttempts(0))
	s.flying.Go(func() {
		if err != nil {
			done(s.failed("writing to", err))
			return
		}
		select {
		case a := <-ack.Ok():
			if a.Sequence != number {
				done(s.failed("writing to", fmt.Errorf("entry %d was stored as %d", number, a.Sequence)))
				return
			}
			done(s.settle(&s.written))
		case err := <-ack.Err():
			done(s.failed("writing to", err))
		case <-s.stopped:
			done(s.failed("writing to", lane.ErrStopped))
		case <-s.done:
			done(s.failed("writing to", nats.ErrConnectionClosed))
		}
	})
}

// Read implements lane.Log.
func (s *storage) Read(ctx context.Context, number uint64) ([]byte, error) {
	for try := 0; ; try++ {
		b, err := s.get(ctx, number)
		if err == nil || !errors.Is(err, js.ErrMsgNotFound) {
			return b, err
		}
		first, last, berr := s.Bounds(ctx)
		if berr != nil {
			return nil, berr
		}
		if number < first || number > last || try == lagTries || s.inside != nil {
			return nil, fmt.Errorf("%w: %d (the log has %d to %d)", lane.ErrMissing, number, first, last)
		}
		t := time.NewTimer(lagWait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
	}
}

func (s *storage) get(ctx context.Context, number uint64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	m, err := s.stream.GetMsg(ctx, number)
	if err != nil {
		return nil, s.failed("reading", err)
	}
	return m.Data, nil
}

// Trim implements lane.Log.
func (s *storage) Trim(ctx context.Context, number uint64) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	return s.failed("removing what was delivered from", s.stream.Purge(ctx, js.WithPurgeSequence(number)))
}

// Drop implements lane.Log.
func (s *storage) Drop(ctx context.Context, from, to uint64) error {
	for n := from; n <= to; n++ {
		if err := s.drop(ctx, n); err != nil && !errors.Is(err, js.ErrMsgNotFound) {
			return err
		}
	}
	return nil
}

func (s *storage) drop(ctx context.Context, number uint64) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	return s.failed("removing what was not finished from", s.stream.DeleteMsg(ctx, number))
}

// Load implements lane.Note.
func (s *storage) Load(ctx context.Context) ([]byte, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	e, err := s.notes.Get(ctx, s.key)
	if errors.Is(err, js.ErrKeyNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, s.failed("reading", err)
	}
	return e.Value(), e.Revision(), nil
}

// Save implements lane.Note.
func (s *storage) Save(ctx context.Context, value []byte, prev uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	if prev == 0 {
		v, err := s.notes.Create(ctx, s.key, value)
		if errors.Is(err, js.ErrKeyExists) {
			err = lane.ErrTaken
		}
		return s.saved(v, err)
	}
	return s.saved(s.notes.Update(ctx, s.key, value, prev))
}

func (s *storage) saved(version uint64, err error) (uint64, error) {
	if err != nil {
		return 0, s.failed("writing to", err)
	}
	return version, s.settle(&s.noted)
}

// Close implements lane.Storage.
func (s *storage) Close() error {
	var err error
	s.once.Do(func() {
		close(s.done)
		if s.conn != nil {
			s.conn.Close()
		}
		s.flying.Wait()
		if s.inside != nil {
			err = s.inside.close()
		}
	})
	return err
}

// failed makes of an error what this program understands; nil stays nil.
func (s *storage) failed(doing string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, lane.ErrTaken) {
		return err
	}
	out := &connector.Error{Class: connector.ClassTransient, Code: "lanes.storage", Doing: doing + " " + s.where, Err: err}
	if api, ok := errors.AsType[*js.APIError](err); ok {
		switch api.ErrorCode {
		case js.JSErrCodeStreamWrongLastSequence, js.JSErrCodeStreamWrongLastSequenceConstant:
			return lane.ErrTaken
		case errNoSpace, errStreamFull, errStreamFullBytes, js.JSErrCodeJetStreamNotEnabled, errWriteFailed:
			out.Code, out.Err = "lanes.full", fmt.Errorf("%w: %w", lane.ErrNoRoom, err)
			out.Hint = "see that there is room on the disk of the lanes, and within the limits of the server"
		default:
		}
	}
	switch {
	case s.inside != nil && (s.inside.log.dead() || !s.inside.server.JetStreamEnabled()):
		out.Code, out.Err = "lanes.full", fmt.Errorf("%w: %s", lane.ErrStopped, s.inside.log.last())
		out.Hint = "see that there is room on the disk, and that the folder can be written to"
	case errors.Is(err, js.ErrStreamNotFound), errors.Is(err, js.ErrBucketNotFound), errors.Is(err, js.ErrKeyDeleted):
		out.Class, out.Code = connector.ClassPosition, "lanes.missing"
		out.Hint = "what the lanes held was removed: start over with: leat state reset"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrPermissionViolation),
		errors.Is(err, js.ErrJetStreamNotEnabledForAccount):
		out.Class, out.Code = connector.ClassConfig, "lanes.auth"
	}
	return out
}

// Codes of the server that the client has no names for.
const (
	errNoSpace         js.ErrorCode = 10023 // insufficient resources
	errStreamFull      js.ErrorCode = 10077 // maximum messages or bytes exceeded
	errStreamFullBytes js.ErrorCode = 10047 // insufficient storage resources available
	errWriteFailed     js.ErrorCode = 10032 // stream store failed
)
