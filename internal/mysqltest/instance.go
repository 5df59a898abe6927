package mysqltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Instance is a server of a test's own: what a test does to a whole server (settings, accounts, purged logs, a crash) bothers nobody.
// It has the version and the settings of the test server and its account leat, and is gone when the test ends.
type Instance struct {
	t        testing.TB
	flavor   Flavor
	home     string // what it is made of
	dir      string // data, log and socket
	port     string
	password string
	settings []string
	env      []string
	user     *syscall.Credential // that the server runs as; nil: the test's own
	process  *osexec.Cmd         // nil while it doesn't run
}

// startTimeout bounds a start, also one that has to recover.
const startTimeout = time.Minute

// Server makes a server and starts it. Settings are options such as "gtid_mode=OFF", in addition to those of the test server. One that
// begins with "TZ=" is the time zone that the process runs in, which the setting default_time_zone=SYSTEM takes.
func Server(t testing.TB, f Flavor, settings ...string) *Instance {
	t.Helper()
	s := newInstance(t, f)
	s.shell(`cp -a "$1/template" "$2"`, s.home, s.data())
	s.Set(settings...)
	s.Start()
	return s
}

// newInstance prepares the folder of a server, and its end.
func newInstance(t testing.TB, f Flavor) *Instance {
	t.Helper()
	s := &Instance{t: t, flavor: f, home: variable(t, f, "LEAT_TEST_"+strings.ToUpper(string(f))+"_HOME")}
	base, err := url.Parse(URL(t, f))
	if err != nil {
		t.Fatal(err)
	}
	s.password, _ = base.User.Password()
	info, err := os.Stat(filepath.Join(s.home, "template"))
	if err != nil {
		t.Fatalf("a server of one's own is made of the test server's folder: %v", err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Getuid() == 0 {
		s.user = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	//nolint:usetesting // t.TempDir is closed to others, and long for the path of a socket
	if s.dir, err = os.MkdirTemp("/tmp", "leat-my-"); err != nil {
		t.Fatal(err)
	}
	if s.user != nil {
		err = os.Chown(s.dir, int(s.user.Uid), int(s.user.Gid))
	}
	if err == nil {
		s.port, err = freePort()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := s.watch()
	t.Cleanup(func() {
		if s.process != nil {
			s.Kill()
		}
		stop()
		if err := os.RemoveAll(s.dir); err != nil {
			t.Errorf("removing a test server: %v", err)
		}
	})
	s.Set("server_id=" + s.port) // two servers with one id do not replicate
	return s
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// watch starts a process that ends the server when the test process dies without cleaning up. It is told by the end of its input.
func (s *Instance) watch() (stop func()) {
	const script = `cat >/dev/null
[ ! -e "$1/data/server.pid" ] || kill -KILL "$(cat "$1/data/server.pid")"
rm -rf "$1"`
	cmd := osexec.Command("sh", "-c", script, "sh", s.dir) //nolint:noctx,gosec // it must outlive the test's context
	cmd.Dir, cmd.SysProcAttr = "/", s.attributes()
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatalf("starting the watch over a test server: %v", err)
	}
	return func() { // the server has ended: what the script says of it is of no interest
		_ = input.Close()
		_ = cmd.Wait()
	}
}

// attributes let a process run as the server's user, and not be hit by an interrupt from the keyboard.
func (s *Instance) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: s.user, Setpgid: true}
}

func (s *Instance) data() string { return filepath.Join(s.dir, "data") }

// shell runs a script as the server's user.
func (s *Instance) shell(script string, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), startTimeout)
	defer cancel()
	cmd := osexec.CommandContext(ctx, "sh", append([]string{"-ec", script, "sh"}, args...)...) //nolint:gosec // a test's own
	cmd.Dir, cmd.SysProcAttr = "/", s.attributes()
	if said, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", script, err, said)
	}
}

// Flavor is the kind of server.
func (s *Instance) Flavor() Flavor { return s.flavor }

// Set adds settings, which hold from the next start on. The last one of a name counts.
func (s *Instance) Set(settings ...string) {
	for _, line := range settings {
		if strings.HasPrefix(line, "TZ=") {
			s.env = append(s.env, line)
			continue
		}
		s.settings = append(s.settings, "--"+line)
	}
}

// Start starts the server and waits until it takes connections.
func (s *Instance) Start() {
	s.t.Helper()
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the server has a copy
	args := append([]string{
		"--defaults-file=" + filepath.Join(s.home, "my.cnf"), "--datadir=" + s.data(), "--socket=" + s.SocketPath(),
		"--pid-file=" + filepath.Join(s.data(), "server.pid"), "--port=" + s.port,
		"--tmpdir=" + s.dir, // servers make files of the same names
	}, s.settings...)
	s.process = osexec.Command(filepath.Join(s.home, "server"), args...) //nolint:noctx,gosec // it must outlive the test's context
	s.process.Dir, s.process.SysProcAttr = s.dir, s.attributes()
	s.process.Env = append(os.Environ(), s.env...)
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		s.t.Fatalf("starting a test server: %v", err)
	}
	s.await()
}

// await waits until the server takes connections.
func (s *Instance) await() {
	s.t.Helper()
	db, err := open(s.URL())
	if err != nil {
		s.t.Fatal(err)
	}
	defer closeDB(s.t, db)
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // another program's start
		if err = db.PingContext(context.WithoutCancel(s.t.Context())); err == nil {
			return
		}
		var status syscall.WaitStatus
		ended, _ := syscall.Wait4(s.process.Process.Pid, &status, syscall.WNOHANG, nil)
		if ended != 0 || time.Now().After(deadline) {
			if ended != 0 {
				s.process = nil
			}
			s.t.Fatalf("a test server did not start: %v\n%s", err, s.Log())
		}
	}
}

// Stop stops the server in order.
func (s *Instance) Stop() {
	s.t.Helper()
	s.end(syscall.SIGTERM)
}

// Restart stops and starts the server.
func (s *Instance) Restart() {
	s.t.Helper()
	s.Stop()
	s.Start()
}

// Kill ends the server at once.
func (s *Instance) Kill() {
	s.t.Helper()
	s.end(syscall.SIGKILL)
}

func (s *Instance) end(signal syscall.Signal) {
	s.t.Helper()
	if err := s.process.Process.Signal(signal); err != nil {
		s.t.Fatalf("ending a test server: %v", err)
	}
	_ = s.process.Wait() // how it ended is known
	s.process = nil
	// What a killed server leaves there would keep the next one from starting.
	for _, f := range []string{s.SocketPath(), s.SocketPath() + ".lock"} {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.t.Fatalf("ending a test server: %v", err)
		}
	}
}

// Replica is a second server that follows this one by GTID, from the beginning of this one's log.
func (s *Instance) Replica(settings ...string) *Instance {
	s.t.Helper()
	r := Server(s.t, s.flavor, settings...)
	change := `CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%s, MASTER_USER='leat', MASTER_PASSWORD='%s',
		MASTER_USE_GTID=slave_pos; START SLAVE`
	if s.flavor == MySQL {
		change = `CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%s, SOURCE_USER='leat',
			SOURCE_PASSWORD='%s', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1; START REPLICA`
	}
	Exec(s.t, r.URL(), fmt.Sprintf(change, s.port, s.password))
	return r
}

// CatchUp waits until this replica has applied all that the other server has in its log.
func (s *Instance) CatchUp(primary *Instance) {
	s.t.Helper()
	at, wait := "SELECT @@GLOBAL.gtid_binlog_pos", "SELECT MASTER_GTID_WAIT('%s', %d)"
	if s.flavor == MySQL {
		at, wait = "SELECT @@GLOBAL.gtid_executed", "SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', %d)"
	}
	var position string
	if err := DB(s.t, primary.URL()).QueryRowContext(s.t.Context(), at).Scan(&position); err != nil {
		s.t.Fatal(err)
	}
	var outcome int
	sql := fmt.Sprintf(wait, position, int(startTimeout.Seconds()))
	if err := DB(s.t, s.URL()).QueryRowContext(s.t.Context(), sql).Scan(&outcome); err != nil || outcome != 0 {
		s.t.Fatalf("waiting for a replica: outcome %d, error %v\n%s", outcome, err, s.Log())
	}
}

// Promote lets a replica follow nobody any more.
func (s *Instance) Promote() {
	s.t.Helper()
	statement := "STOP SLAVE; RESET SLAVE ALL"
	if s.flavor == MySQL {
		statement = "STOP REPLICA; RESET REPLICA ALL"
	}
	Exec(s.t, s.URL(), statement)
}

// URL is the address of the database leat, as a user with all privileges.
func (s *Instance) URL() string { return s.As("leat", s.password, "leat") }

// Database makes an empty database and returns its address, as a user with all privileges.
func (s *Instance) Database() string {
	s.t.Helper()
	return database(s.t, s.URL())
}

// As is the address of a database for a user.
func (s *Instance) As(user, password, database string) string {
	u := url.URL{Scheme: "mysql", User: url.UserPassword(user, password), Host: s.Address(), Path: "/" + database}
	return u.String()
}

// Address is host and port.
func (s *Instance) Address() string { return net.JoinHostPort("127.0.0.1", s.port) }

// SocketPath is the path of the server's unix socket.
func (s *Instance) SocketPath() string { return filepath.Join(s.dir, "socket") }

func (s *Instance) logFile() string { return filepath.Join(s.dir, "log") }

// Log returns the end of the server's log.
func (s *Instance) Log() string {
	const enough = 4000
	f, err := os.Open(s.logFile())
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	text, _ := io.ReadAll(f)
	return string(text[max(0, len(text)-enough):])
}
