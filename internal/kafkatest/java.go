package kafkatest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// javaTimeout bounds how long a program of Kafka's may take to start, or to do what it was started for.
const javaTimeout = time.Minute

// Message is a record as the console consumer prints it.
type Message struct {
	Partition  int
	Offset     int64
	Key, Value string
	Null       bool // there is no value
}

// Console reads n messages of a topic from its beginning, of committed transactions only, with Java's console consumer. Keys and values
// are texts without tabs and line ends.
func Console(t testing.TB, broker, topic string, n int) []Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), javaTimeout)
	defer cancel()
	args := []string{
		"org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker, "--topic", topic, "--from-beginning",
		"--isolation-level", "read_committed", "--max-messages", strconv.Itoa(n),
		"--timeout-ms", strconv.FormatInt(readTimeout.Milliseconds(), 10),
	}
	for _, p := range []string{
		"print.partition=true", "print.offset=true", "print.key=true", "key.separator=\t", "null.literal=\x01",
	} {
		args = append(args, "--formatter-property", p)
	}
	cmd := osexec.CommandContext(ctx, program(t), args...) //nolint:gosec // the test broker's own
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("the console consumer: %v\n%s", err, said.String())
	}
	var read []Message
	for line := range strings.Lines(out.String()) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 4)
		if len(fields) != 4 {
			t.Fatalf("the console consumer printed %q", line)
		}
		m := Message{Key: fields[2], Value: fields[3], Null: fields[3] == "\x01"}
		_, err := fmt.Sscanf(fields[0]+" "+fields[1], "Partition:%d Offset:%d", &m.Partition, &m.Offset)
		if err != nil {
			t.Fatalf("the console consumer printed %q: %v", line, err)
		}
		read = append(read, m)
	}
	return read
}

// program runs a class of Kafka's.
func program(t testing.TB) string {
	t.Helper()
	return filepath.Join(variable(t, "LEAT_TEST_KAFKA_HOME"), "run")
}

// process is a program that runs until the test ends.
type process struct {
	t     testing.TB
	what  string
	cmd   *osexec.Cmd
	log   string
	ended chan error
	input interface{ Close() error }
}

// start runs a class of Kafka's with the options of its Java. It ends with this process at the latest.
func start(t testing.TB, what, log, java string, args ...string) *process {
	t.Helper()
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // the process has a copy
	// The shell's input ends with this process, and then the shell ends the program.
	const script = `exec 3<&0; trap : TERM; "$@" </dev/null & p=$!; { cat >/dev/null; kill -KILL $p; } <&3 & wait $p; wait $p`
	p := &process{t: t, what: what, log: log, ended: make(chan error, 1)}
	p.cmd = osexec.Command("sh", append([]string{"-c", script, "sh", program(t)}, args...)...) //nolint:noctx,gosec // it is ended by hand
	p.cmd.Env = append(os.Environ(), "KAFKA_JAVA="+java)
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.input, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatalf("starting %s: %v", what, err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p
}

// end sends a signal to all of the process group, and waits until none of it is left.
func (p *process) end(signal syscall.Signal) {
	p.t.Helper()
	group := -p.cmd.Process.Pid
	_ = syscall.Kill(group, signal) // it may have ended
	for deadline := time.Now().Add(javaTimeout); syscall.Kill(group, 0) == nil; {
		if time.Now().After(deadline) {
			p.t.Errorf("%s does not end", p.what)
			_ = syscall.Kill(group, syscall.SIGKILL)
			break
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // another program's end
	}
	_ = p.input.Close()
}

// until waits for a condition while the process runs.
func (p *process) until(what string, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(javaTimeout); !ok(); time.Sleep(50 * time.Millisecond) { //nolint:forbidigo // another program's work
		select {
		case err := <-p.ended:
			p.ended <- err
			p.t.Fatalf("%s ended by itself while waiting for %s: %v\n%s", p.what, what, err, p.Log())
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %s did not come about\n%s", p.what, what, p.Log())
		}
	}
}

// Log returns the end of what the process said.
func (p *process) Log() string {
	const enough = 6000
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-enough):])
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // it listens on TCP
}

// properties writes a file of Java properties.
func properties(t testing.TB, path string, settings map[string]string) string {
	t.Helper()
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s=%s\n", key, strings.ReplaceAll(settings[key], `\`, `\\`))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Worker is a standalone worker of Kafka Connect, with Debezium's connectors.
type Worker struct {
	*process

	rest string
	args []string
}

// Connect starts a worker that runs connectors, each with its settings, of which "name" and "connector.class" are the least. It ends
// with the test.
func Connect(t testing.TB, broker string, connectors ...map[string]string) *Worker {
	t.Helper()
	dir := t.TempDir()
	port, plugins := freePort(t), filepath.Join(dir, "plugins")
	// Each folder in the path of plug-ins is one, of which the worker loads the jars together.
	if err := os.Mkdir(plugins, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(variable(t, "LEAT_TEST_KAFKA_CONNECT"), filepath.Join(plugins, "debezium")); err != nil {
		t.Fatal(err)
	}
	own := properties(t, filepath.Join(dir, "worker.properties"), map[string]string{
		"bootstrap.servers": broker, "offset.storage.file.filename": filepath.Join(dir, "offsets"), "offset.flush.interval.ms": "500",
		"listeners": "http://127.0.0.1:" + port, "plugin.path": plugins, "plugin.discovery": "hybrid_warn",
		"key.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
	})
	args := []string{"org.apache.kafka.connect.cli.ConnectStandalone", own}
	for i, c := range connectors {
		args = append(args, properties(t, filepath.Join(dir, fmt.Sprintf("connector%d.properties", i)), c))
	}
	w := &Worker{rest: "http://127.0.0.1:" + port, args: args}
	const java = "-Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
	w.process = start(t, "Kafka Connect", filepath.Join(dir, "log"), java, args...)
	t.Cleanup(func() { w.end(syscall.SIGTERM) })
	w.until("a running task of each connector", func() bool {
		for _, c := range connectors {
			if !w.Running(c["name"]) {
				return false
			}
		}
		return true
	})
	return w
}

// Running reports whether a connector runs. One of which a task failed fails the test.
func (w *Worker) Running(name string) bool {
	w.t.Helper()
	var status struct {
		Connector struct{ State string }
		Tasks     []struct{ State, Trace string }
	}
	if err := w.get("/connectors/"+name+"/status", &status); err != nil {
		return false
	}
	for _, task := range status.Tasks {
		if task.State == "FAILED" {
			w.t.Fatalf("%s: %s: %s\n%s", w.what, name, task.Trace, w.Log())
		}
	}
	return status.Connector.State == "RUNNING" && len(status.Tasks) > 0 && status.Tasks[0].State == "RUNNING"
}

// Until waits for a condition while the worker and its connectors run.
func (w *Worker) Until(what string, ok func() bool) {
	w.t.Helper()
	var all []string
	if err := w.get("/connectors", &all); err != nil {
		w.t.Fatalf("%s: %v", w.what, err)
	}
	w.until(what, func() bool {
		for _, name := range all {
			w.Running(name)
		}
		return ok()
	})
}

func (w *Worker) get(path string, into any) error {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.rest+path, nil)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what was being done
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what was being done
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into) //nolint:wrapcheck // the caller says what was being done
}

// Server is a broker of a test's own: what a test does to a whole broker bothers nobody. It has the version of the test broker and one
// listener without encryption or login, and is gone when the test ends.
type Server struct {
	*process

	Addr string // host and port

	t   testing.TB
	dir string
}

// NewServer makes a broker and starts it, with settings in addition to those that one broker alone needs. It takes some seconds.
func NewServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	port, controller := freePort(t), freePort(t)
	all := map[string]string{
		"process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER",
		"controller.quorum.voters":       "1@127.0.0.1:" + controller,
		"listeners":                      "PLAINTEXT://127.0.0.1:" + port + ",CONTROLLER://127.0.0.1:" + controller,
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", "log.dirs": filepath.Join(dir, "data"),
		"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0",
		"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1",
		"transaction.state.log.num.partitions": "1", "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
		"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500",
	}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		all[key] = value
	}
	properties(t, filepath.Join(dir, "server.properties"), all)
	cmd := osexec.CommandContext(t.Context(), program(t), //nolint:gosec // the test broker's own
		"kafka.tools.StorageTool", "format", "--cluster-id", "bGVhdC10ZXN0LWJyb2tlcg", "--config", filepath.Join(dir, "server.properties"))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("formatting a broker's storage: %v\n%s", err, said)
	}
	s := &Server{t: t, Addr: "127.0.0.1:" + port, dir: dir}
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	s.Start()
	return s
}

// Start starts the broker and waits until it takes requests.
func (s *Server) Start() {
	s.t.Helper()
	log := filepath.Join(s.dir, fmt.Sprintf("log-%d", time.Now().UnixNano()))
	const java = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=info"
	s.process = start(s.t, "a test broker", log, java, "kafka.Kafka", filepath.Join(s.dir, "server.properties"))
	s.until("its start", func() bool {
		text, _ := os.ReadFile(log)
		return bytes.Contains(text, []byte("Kafka Server started"))
	})
}

// Stop stops the broker in order.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the broker at once.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }
