package pgtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Cluster is a server of a test's own: what a test does to a whole server (settings, slots, a crash, another timeline) bothers nobody.
// It has the version of the test server, a superuser and a database named leat, asks for no password, and is gone when the test ends.
type Cluster struct {
	t    testing.TB
	bin  string // folder of the server's programs
	dir  string // data, log and socket
	port string
	user *syscall.Credential // that the server runs as; nil: the test's own
}

// startTimeout bounds a start, also one that has to recover.
const startTimeout = time.Minute

// Server makes a cluster and starts it. Settings are lines of its configuration, such as "wal_level=logical"; what they leave out is
// the server's own default, but for small buffers and no fsync.
func Server(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	c := newCluster(t)
	c.program("initdb", "--pgdata="+c.data(), "--username=leat", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8",
		"--no-sync", "--no-instructions")
	c.Set("listen_addresses=127.0.0.1", "unix_socket_directories="+c.dir, "port="+c.port, "fsync=off", "shared_buffers=16MB",
		"max_connections=40", "timezone=UTC")
	c.Set(settings...)
	c.Start()
	exec(t.Context(), t, c.As("leat", "postgres"), "CREATE DATABASE leat TEMPLATE template0")
	return c
}

// newCluster prepares folders for a cluster, and its end.
func newCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	c.bin, c.user = programs(t)
	var err error
	//nolint:usetesting // t.TempDir is closed to others, and long for the path of a socket
	if c.dir, err = os.MkdirTemp("/tmp", "leat-pg-"); err != nil {
		t.Fatal(err)
	}
	if c.user != nil {
		err = os.Chown(c.dir, int(c.user.Uid), int(c.user.Gid))
	}
	if err == nil {
		c.port, err = freePort()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := c.watch()
	t.Cleanup(func() {
		c.end()
		stop()
		if err := os.RemoveAll(c.dir); err != nil {
			t.Errorf("removing a test server: %v", err)
		}
	})
	return c
}

// programs finds the programs of the test server on this machine, and the user that it runs as.
func programs(t testing.TB) (bin string, user *syscall.Credential) {
	t.Helper()
	conn := Conn(t, URL(t))
	var data string
	err := conn.QueryRow(t.Context(), `SELECT setting, current_setting('data_directory') FROM pg_config WHERE name = 'BINDIR'`).
		Scan(&bin, &data)
	if err != nil {
		t.Fatalf("asking the test server for its programs: %v", err)
	}
	info, err := os.Stat(data)
	if err != nil {
		t.Fatalf("a server of one's own is made with the programs of the test server, which must be on this machine: %v", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("the owner of %s is not known", data)
	}
	if os.Getuid() == 0 {
		user = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	return bin, user
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
func (c *Cluster) watch() (stop func()) {
	const script = `cat >/dev/null
[ ! -e "$2/data/postmaster.pid" ] || "$1/pg_ctl" stop --silent --mode=immediate --pgdata="$2/data"
rm -rf "$2"`
	cmd := osexec.Command("sh", "-c", script, "sh", c.bin, c.dir) //nolint:noctx,gosec // it must outlive the test's context
	cmd.Dir, cmd.SysProcAttr = "/", c.attributes()
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatalf("starting the watch over a test server: %v", err)
	}
	return func() {
		if err := errors.Join(input.Close(), cmd.Wait()); err != nil {
			c.t.Logf("the watch over a test server: %v", err)
		}
	}
}

// attributes let a process run as the server's user, and not be hit by an interrupt from the keyboard.
func (c *Cluster) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: c.user, Setpgid: true}
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// run runs a program of the server, or of the system, as the server's user, and returns what it said.
func (c *Cluster) run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), 2*startTimeout)
	defer cancel()
	path := filepath.Join(c.bin, name)
	if _, err := os.Stat(path); err != nil {
		path = name
	}
	cmd := osexec.CommandContext(ctx, path, args...) //nolint:gosec // the test server's own programs
	cmd.Dir, cmd.SysProcAttr = "/", c.attributes()
	// A file, not a pipe: a server that was started would hold a pipe open, and Wait would wait for it.
	said, err := os.CreateTemp(c.t.TempDir(), name)
	if err != nil {
		return "", err //nolint:wrapcheck // the caller says what was being done
	}
	defer func() { _ = said.Close() }()
	cmd.Stdout, cmd.Stderr = said, said
	err = cmd.Run()
	text, _ := os.ReadFile(said.Name())
	return string(bytes.TrimSpace(text)), err
}

func (c *Cluster) program(name string, args ...string) {
	c.t.Helper()
	if said, err := c.run(name, args...); err != nil {
		c.t.Fatalf("%s: %v\n%s\n%s", name, err, said, c.Log())
	}
}

// Set appends lines to the server's configuration, which hold from its next start on.
func (c *Cluster) Set(settings ...string) {
	c.t.Helper()
	var lines strings.Builder
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		fmt.Fprintf(&lines, "%s = '%s'\n", strings.TrimSpace(name), strings.ReplaceAll(strings.TrimSpace(value), "'", "''"))
	}
	f, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(lines.String())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		c.t.Fatalf("configuring a test server: %v", err)
	}
}

// Start starts the server and waits until it takes connections.
func (c *Cluster) Start() {
	c.t.Helper()
	c.program("pg_ctl", "start", "--wait", "--silent", fmt.Sprintf("--timeout=%d", int(startTimeout.Seconds())),
		"--pgdata="+c.data(), "--log="+c.logFile())
}

// Stop stops the server in order.
func (c *Cluster) Stop() {
	c.t.Helper()
	c.program("pg_ctl", "stop", "--wait", "--silent", "--mode=fast", "--pgdata="+c.data())
}

// Restart stops and starts the server.
func (c *Cluster) Restart() {
	c.t.Helper()
	c.Stop()
	c.Start()
}

// Kill ends the server as a loss of power would, and waits until none of its processes is left.
func (c *Cluster) Kill() {
	c.t.Helper()
	pid, err := c.pid()
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		c.t.Fatalf("killing a test server: %v", err)
	}
	// The others notice, and end by themselves.
	for deadline := time.Now().Add(startTimeout); c.alive(); {
		if time.Now().After(deadline) {
			c.t.Fatal("killing a test server: some of its processes do not end")
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // another program's end
	}
	// Nobody may have taken note of its end yet, and then its number seems to be in use: after a loss of power it would not.
	socket := filepath.Join(c.dir, ".s.PGSQL."+c.port)
	for _, f := range []string{filepath.Join(c.data(), pidFile), socket, socket + ".lock"} {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.t.Fatalf("killing a test server: %v", err)
		}
	}
}

// pidFile says in its first line which process a data folder's server is.
const pidFile = "postmaster.pid"

func (c *Cluster) pid() (int, error) {
	content, err := os.ReadFile(filepath.Join(c.data(), pidFile))
	if err != nil {
		return 0, err //nolint:wrapcheck // the caller says what was being done
	}
	first, _, _ := strings.Cut(string(content), "\n")
	return strconv.Atoi(first) //nolint:wrapcheck // the caller says what was being done
}

// alive reports whether a process works in the data folder, as each of the server's does.
func (c *Cluster) alive() bool {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, l := range links {
		if at, err := os.Readlink(l); err == nil && at == c.data() {
			return true
		}
	}
	return false
}

// end stops the server if it runs, without ceremony.
func (c *Cluster) end() {
	if _, err := c.pid(); err != nil {
		return
	}
	if said, err := c.run("pg_ctl", "stop", "--wait", "--silent", "--mode=immediate", "--pgdata="+c.data()); err != nil {
		c.t.Logf("stopping a test server: %v\n%s", err, said)
	}
}

// Copy is a second server that begins with all that this one has, as one that is restored from a copy of its disk does. This one must
// be stopped meanwhile; the copy is not started. Both have the same system identifier.
func (c *Cluster) Copy(settings ...string) *Cluster {
	c.t.Helper()
	other := newCluster(c.t)
	c.program("cp", "--archive", c.data(), other.data())
	other.Set("port="+other.port, "unix_socket_directories="+other.dir)
	other.Set(settings...)
	return other
}

// Recover starts a copy as one that is restored from an archive, up to the end of the log that it has. It then is on a timeline of its
// own. The setting restore_command must be there.
func (c *Cluster) Recover() {
	c.t.Helper()
	c.program("touch", filepath.Join(c.data(), "recovery.signal"))
	c.Start()
	ctx, cancel := context.WithTimeout(c.t.Context(), startTimeout)
	defer cancel()
	conn := Conn(c.t, c.URL())
	for recovering := true; recovering; {
		if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&recovering); err != nil {
			c.t.Fatalf("waiting for the end of a recovery: %v", err)
		}
	}
}

// Standby is a second server that follows this one, which is restarted for it. It begins without the slots of this one, as one that is
// made from a base backup does.
func (c *Cluster) Standby(settings ...string) *Cluster {
	c.t.Helper()
	c.Stop()
	other := c.Copy("hot_standby=on", "primary_conninfo="+fmt.Sprintf("host=%s port=%s user=leat dbname=leat", c.dir, c.port))
	other.Set(settings...)
	c.Start()
	slots, _ := filepath.Glob(filepath.Join(other.data(), "pg_replslot", "*"))
	c.program("rm", append([]string{"-rf"}, slots...)...)
	c.program("touch", filepath.Join(other.data(), "standby.signal"))
	other.Start()
	return other
}

// CatchUp waits until this standby has replayed all that the other server has written.
func (c *Cluster) CatchUp(primary *Cluster) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), startTimeout)
	defer cancel()
	var at string
	from := Conn(c.t, primary.URL())
	if err := from.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&at); err != nil {
		c.t.Fatal(err)
	}
	conn := Conn(c.t, c.URL())
	for there := false; !there; {
		if err := conn.QueryRow(ctx, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", at).Scan(&there); err != nil {
			c.t.Fatalf("waiting for a standby: %v", err)
		}
	}
}

// URL is the address of the database leat, as the superuser.
func (c *Cluster) URL() string { return c.As("leat", "leat") }

// Database makes an empty database and returns its address, as the superuser. It is gone with the server.
func (c *Cluster) Database() string {
	c.t.Helper()
	name := "leat_test_" + strings.ToLower(rand.Text()[:12])
	exec(c.t.Context(), c.t, c.As("leat", "postgres"), "CREATE DATABASE "+name+" TEMPLATE template0")
	return c.As("leat", name)
}

// As is the address of a database for a role.
func (c *Cluster) As(role, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(role), Host: net.JoinHostPort("127.0.0.1", c.port), Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func (c *Cluster) logFile() string { return filepath.Join(c.dir, "log") }

// Log returns the end of the server's log.
func (c *Cluster) Log() string {
	const enough = 4000
	f, err := os.Open(c.logFile())
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	text, _ := io.ReadAll(f)
	return string(text[max(0, len(text)-enough):])
}
