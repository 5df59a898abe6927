package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/jetstream"
)

// serverDir has the program that buildServer built.
var serverDir string

// buildServer builds the server that go.mod names, as a program.
var buildServer = sync.OnceValues(func() (path string, err error) {
	if serverDir, err = os.MkdirTemp("", "nats-server"); err != nil {
		return "", err
	}
	path = filepath.Join(serverDir, "nats-server")
	out, err := exec.Command("go", "build", "-o", path, "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// natsServer is a NATS server in a process of its own.
type natsServer struct {
	t    *testing.T
	args []string
	addr string
	mu   sync.Mutex
	cmd  *exec.Cmd
}

// startServer starts one with a user and a password.
func startServer(t *testing.T) *natsServer {
	t.Helper()
	return startServerWith(t, "")
}

func startServerWith(t *testing.T, limits string) *natsServer {
	t.Helper()
	program, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	dir := t.TempDir()
	conf := filepath.Join(dir, "nats.conf")
	content := fmt.Sprintf("listen: \"127.0.0.1:%s\"\njetstream: {store_dir: %q, sync_interval: always%s}\nauthorization: {user: leat, password: sesame}\n",
		port, dir, limits)
	if err := os.WriteFile(conf, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &natsServer{t: t, args: []string{program, "-c", conf}, addr: "127.0.0.1:" + port}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *natsServer) url() string { return "nats://leat:sesame@" + s.addr }

func (s *natsServer) config() jetstream.Config {
	return jetstream.Config{URL: connector.Secret(s.url())}
}

// start returns when the server answers.
func (s *natsServer) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	if err := s.cmd.Start(); err != nil {
		s.t.Error(err)
		return
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			_ = c.Close()
			return
		}
	}
	s.t.Error("the server does not answer")
}

func (s *natsServer) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// clauses W14, E16: the process and its server are killed, in turn and at once: nothing is lost, and nothing comes twice where the sink
// says what it has.
func TestKillExternal(t *testing.T) {
	s := startServer(t)
	var work sync.WaitGroup
	killAndCheck(t, s.url(), 6, func(try int) {
		work.Wait()
		if try%2 == 0 { // while the process works
			work.Go(func() {
				time.Sleep(250 * time.Millisecond)
				s.kill()
				time.Sleep(100 * time.Millisecond)
				s.start()
			})
		}
	})
	work.Wait()
}

func (s *natsServer) connect(ctx context.Context) js.JetStream {
	s.t.Helper()
	nc, err := nats.Connect(s.url())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	api, err := js.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	return api
}

func (s *natsServer) open(ctx context.Context, spec lane.Spec) lane.Durable {
	s.t.Helper()
	d, err := jetstream.Open(ctx, s.config(), spec)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = d.Release() })
	return d
}

// case C107: the server's default wait for acknowledgements, cut short, passes many times while the sink is blocked, with 1,000 messages in
// hand: nothing is sent again, since no delivery has a timer. What is acknowledged is so only once the sink is durable. A stranger who
// listens to everything, next to it, changes nothing, and neither does one who answers what looks like a request for an acknowledgement.
func TestBlockedSink(t *testing.T) {
	s := startServer(t)
	ctx := t.Context()
	api := s.connect(ctx)
	stranger, err := api.Conn().Subscribe(">", func(m *nats.Msg) {
		if m.Reply != "" && strings.HasPrefix(m.Subject, "leat.lanes.") {
			_ = m.Respond([]byte("+ACK"))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Unsubscribe() //nolint:errcheck // at the end
	spec := lane.Spec{Pipeline: "blocked", Run: "r", Sinks: []string{"a"}, Options: lane.Options{Items: 2000}}
	d := s.open(ctx, spec)
	c, err := d.Lane("a")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := d.Publish(ctx, positioned(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	var held []lane.Delivery[lane.Item]
	for i := range 1000 {
		x, err := c.Receive(ctx)
		if err != nil || x.Number() != uint64(i+1) {
			t.Fatal(x, err)
		}
		held = append(held, x)
	}
	short, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer cancel()
	if x, err := c.Receive(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("received %v again, %v", x, err)
	}
	stream, err := api.Stream(ctx, "leat_lanes_blocked")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Consumers; n != 0 {
		t.Errorf("%d consumers with timers of their own", n)
	}
	for _, x := range held[:500] {
		if err := x.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Release(); err != nil {
		t.Fatal(err)
	}
	d = s.open(ctx, spec)
	if h, err := d.Holds("a"); err != nil || h.Acked != 500 || h.Items != 500 {
		t.Errorf("%+v, %v", h, err)
	}
}

// case C107: settings of what is there are read, and refused where they would lose something.
func TestSettings(t *testing.T) {
	s := startServer(t)
	ctx := t.Context()
	api := s.connect(ctx)
	good := js.StreamConfig{
		Name: "leat_lanes_p", Subjects: []string{"leat.lanes.p"}, Storage: js.FileStorage, AllowDirect: true, MaxMsgSize: 40_000,
	}
	for want, change := range map[string]func(*js.StreamConfig){
		"memory":     func(c *js.StreamConfig) { c.Storage = js.MemoryStorage },
		"older than": func(c *js.StreamConfig) { c.MaxAge = time.Hour },
		"discard":    func(c *js.StreamConfig) { c.MaxBytes = 1 << 20 },
		"retention":  func(c *js.StreamConfig) { c.Retention = js.InterestPolicy },
		"subject":    func(c *js.StreamConfig) { c.Subjects = []string{"leat.lanes.>"} },
		"no_ack":     func(c *js.StreamConfig) { c.NoAck = true },
		"too small":  func(c *js.StreamConfig) { c.MaxMsgSize = 1500 },
		"removed":    func(c *js.StreamConfig) { c.DenyPurge = true },
	} {
		c := good
		change(&c)
		if _, err := api.CreateStream(ctx, c); err != nil {
			t.Fatal(err)
		}
		d, err := jetstream.Open(ctx, s.config(), lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a"}})
		if err == nil {
			_ = d.Release()
		}
		if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(err.Error(), want) || connector.HintOf(err) == "" {
			t.Errorf("%s: %v", want, err)
		}
		if err := api.DeleteStream(ctx, c.Name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := api.CreateStream(ctx, good); err != nil { // messages as small as somebody wants them
		t.Fatal(err)
	}
	d := s.open(ctx, lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a"}})
	big := numbered(1, 100_000)
	big.Position = position(1)
	if err := d.Publish(ctx, big); err != nil {
		t.Fatal(err)
	}
	c, err := d.Lane("a")
	if err != nil {
		t.Fatal(err)
	}
	if x, err := c.Receive(ctx); err != nil || batchIn(x).NumRows() != 100_000 {
		t.Error(err)
	}
}

// A stream that is deleted under the lanes is a position error; a secret is in no message.
func TestDeletedStream(t *testing.T) {
	s := startServer(t)
	ctx := t.Context()
	d := s.open(ctx, lane.Spec{Pipeline: "gone", Run: "r", Sinks: []string{"a"}})
	if err := d.Publish(ctx, positioned(1)); err != nil {
		t.Fatal(err)
	}
	<-d.Moved()
	if err := s.connect(ctx).DeleteStream(ctx, "leat_lanes_gone"); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := 2; err == nil; i++ {
		err = d.Publish(ctx, positioned(i))
		time.Sleep(time.Millisecond)
	}
	if connector.ClassOf(err) != connector.ClassPosition {
		t.Errorf("%v", err)
	}
	_ = d.Release()
	_, err = jetstream.Open(ctx, s.config(), lane.Spec{Pipeline: "gone", Run: "r", Sinks: []string{"a"}})
	if connector.ClassOf(err) != connector.ClassPosition {
		t.Errorf("opened again: %v", err)
	}
	s.kill()
	_, err = jetstream.Open(ctx, s.config(), lane.Spec{Pipeline: "gone", Run: "r", Sinks: []string{"a"}})
	if err == nil || connector.ClassOf(err) != connector.ClassTransient || strings.Contains(err.Error(), "sesame") || !strings.Contains(err.Error(), s.addr) {
		t.Errorf("%v", err)
	}
	if text := fmt.Sprintf("%v %+v %#v", s.config(), s.config(), s.config()); strings.Contains(text, "sesame") {
		t.Error(text)
	}
	s.start()
}

// Another owner on the same server: the first one changes nothing any more.
func TestFencedExternal(t *testing.T) {
	s := startServer(t)
	ctx := t.Context()
	spec := lane.Spec{Pipeline: "fence", Run: "r", Sinks: []string{"a"}}
	first := s.open(ctx, spec)
	if err := first.Publish(ctx, positioned(1)); err != nil {
		t.Fatal(err)
	}
	<-first.Moved()
	second := s.open(ctx, spec)
	var err error
	for i := 2; err == nil; i++ {
		err = first.Publish(ctx, positioned(i))
		time.Sleep(time.Millisecond)
	}
	if !errors.Is(err, lane.ErrFenced) || connector.ClassOf(err) != connector.ClassFenced {
		t.Errorf("%v", err)
	}
	if m, _ := second.Stored(); m.Position.String() != "1" {
		t.Errorf("stored %s", m.Position)
	}
	if err := second.Publish(ctx, positioned(2)); err != nil {
		t.Error(err)
	}
}

// A server that goes away and comes back is told of in the log, where stderr belongs to the program, and without the password.
func TestServerAway(t *testing.T) {
	s := startServer(t)
	var log lockedBuffer
	c := s.config()
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	d, err := jetstream.Open(t.Context(), c, lane.Spec{Pipeline: "away", Run: "r", Sinks: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release() //nolint:errcheck // the lane is not what is tested
	s.kill()
	s.start()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), "the lanes' server is back"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log does not say that the server is back: %s", log.String())
		}
	}
	for _, want := range []string{"level=WARN", "the lanes' server is away", "where=\"the lanes at nats://127.0.0.1:"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "sesame") {
		t.Errorf("the log has the password: %s", log.String())
	}
}

// A server without room: it says so, and the reader waits; once a sink has acknowledged something, everything goes on, and nothing is lost.
func TestFullStore(t *testing.T) {
	s := startServerWith(t, ", max_file_store: 4MB")
	ctx := t.Context()
	var log lockedBuffer
	c := s.config()
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	d, err := jetstream.Open(ctx, c, lane.Spec{Pipeline: "full", Run: "r", Sinks: []string{"a"}, Options: lane.Options{Bytes: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release() //nolint:errcheck // checked below
	const items = 20
	published := make(chan error, 1)
	go func() {
		for i := range items {
			b := numbered(1, 20_000)
			b.Position = position(i + 1)
			if err := d.Publish(ctx, b); err != nil {
				published <- err
				return
			}
		}
		published <- d.Close()
	}()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), "no room") && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	select {
	case err := <-published:
		t.Fatalf("everything fits, or: %v", err)
	default:
	}
	consumer, err := d.Lane("a")
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		x, err := consumer.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if p := batchIn(x).Position.String(); p != strconv.Itoa(i+1) {
			t.Fatalf("received %s, want %d", p, i+1)
		}
		if err := x.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(<-published, d.Release()); err != nil {
		t.Error(err)
	}
}

// lockedBuffer may be written and read at the same time.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
