package jetstream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/leatdata/leat/connector"
)

const (
	lockName   = "lock"
	startWait  = time.Minute // a large log is read at the start
	maxPayload = 8 << 20     // of the server inside
	noLimit    = 1 << 60     // bytes: the disk is the limit, and what a lane may hold is bounded by its quota
	noteMemory = 16 << 20
)

// folder returns where a pipeline's files are. Names that differ only in case are apart on every file system.
func folder(dir, pipeline string) string {
	name := strings.ToLower(pipeline)
	if name != pipeline {
		sum := sha256.Sum256([]byte(pipeline))
		name += "~" + hex.EncodeToString(sum[:6])
	}
	return filepath.Join(dir, name)
}

// inside is a server in this process, with the lock of its folder.
type inside struct {
	dir    string
	server *server.Server
	log    *serverLog
	lock   *os.File
}

// startInside starts the server of a pipeline's folder, which is made where it is missing.
func startInside(c Config, pipeline string) (*inside, error) {
	dir := folder(c.Dir, pipeline)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, trouble("making the folder of the lanes", err)
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "leat", DontListen: true, NoSigs: true, NoSystemAccount: true, MaxPayload: maxPayload,
		JetStream: true, StoreDir: dir, SyncAlways: true, JetStreamMaxStore: noLimit, JetStreamMaxMemory: noteMemory,
	})
	if err != nil {
		return nil, errors.Join(trouble("starting JetStream in "+dir, err), lock.Close())
	}
	log := newServerLog(c.log())
	s.SetLoggerV2(log, false, false, false)
	s.Start()
	if !s.ReadyForConnections(startWait) || !s.JetStreamEnabled() {
		s.Shutdown()
		s.WaitForShutdown()
		why := log.last()
		if why == "" {
			why = "it did not become ready"
		}
		return nil, errors.Join(trouble("starting JetStream in "+dir, errors.New(why)), lock.Close())
	}
	return &inside{dir, s, log, lock}, nil
}

// folder returns where the messages of a stream are.
func (i *inside) folder(stream string) string {
	return filepath.Join(i.dir, server.JetStreamStoreDir, server.DEFAULT_GLOBAL_ACCOUNT, "streams", stream, "msgs")
}

func (i *inside) close() error {
	i.server.Shutdown()
	i.server.WaitForShutdown()
	if err := i.lock.Close(); err != nil {
		return fmt.Errorf("closing the lock: %w", err)
	}
	return nil
}

// lockFolder takes the folder for this process until the file is closed. The process number in it is for people.
func lockFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, trouble("opening the lanes in "+dir, err)
	}
	err = tryLock(f)
	if errors.Is(err, errLocked) {
		owner, rerr := os.ReadFile(path)
		if who := strings.TrimSpace(string(owner)); rerr == nil && who != "" {
			err = fmt.Errorf("process %s has them open", who)
		}
		return nil, errors.Join(&connector.Error{
			Class: connector.ClassPermanent, Code: "lanes.locked", Doing: "opening the lanes in " + dir, Err: err,
			Hint: "one process at a time runs a pipeline: stop the other one first",
		}, f.Close())
	}
	if err == nil {
		err = errors.Join(f.Truncate(0), writePID(f))
	}
	if err != nil {
		return nil, errors.Join(trouble("locking the lanes in "+dir, err), f.Close())
	}
	return f, nil
}

func writePID(f *os.File) error {
	_, err := fmt.Fprintf(f, "%d\n", os.Getpid())
	return err //nolint:wrapcheck // the caller says it
}

// trouble is an error with what was being done.
func trouble(doing string, err error) error {
	return &connector.Error{Class: connector.ClassPermanent, Code: "lanes.storage", Doing: doing, Err: err}
}
