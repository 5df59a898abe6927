package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// serverLog passes on what the server inside says: warnings and errors, since all else is of no interest to who runs a pipeline.
type serverLog struct {
	log *slog.Logger

	stopped chan struct{} // closed when the server says that it can't write any more

	mu     sync.Mutex
	newest string // the last error
}

func newServerLog(log *slog.Logger) *serverLog {
	return &serverLog{log: log, stopped: make(chan struct{})}
}

var _ server.Logger = (*serverLog)(nil)

func (l *serverLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// dead reports whether the server can't write any more.
func (l *serverLog) dead() bool {
	select {
	case <-l.stopped:
		return true
	default:
		return false
	}
}

// unwritable recognizes what the server says when a write has failed: it then leaves publications without an answer until it is started
// anew. Were it not recognized, the wait for the answer would end a little later.
func unwritable(text string) bool {
	return strings.Contains(text, "write error") || strings.Contains(text, "failed to store a msg") ||
		strings.Contains(text, "will be DISABLED")
}

func (l *serverLog) say(level slog.Level, format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if level >= slog.LevelError {
		l.mu.Lock()
		if !l.dead() { // what comes behind that follows from it
			l.newest = text
			if unwritable(text) {
				close(l.stopped)
			}
		}
		l.mu.Unlock()
	}
	l.log.Log(context.Background(), level, "nats server", slog.String("text", text)) //nolint:forbidigo // the server hands over no context
}

// Noticef implements server.Logger.
func (l *serverLog) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v...) }

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) { l.say(slog.LevelWarn, format, v...) }

// Fatalf implements server.Logger.
func (l *serverLog) Fatalf(format string, v ...any) { l.say(slog.LevelError, format, v...) }

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) { l.say(slog.LevelError, format, v...) }

// Debugf implements server.Logger.
func (*serverLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (*serverLog) Tracef(string, ...any) {}
