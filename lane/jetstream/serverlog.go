package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// serverLog passes on what the server inside says: warnings and errors, since all else is of no interest to who runs a pipeline.
type serverLog struct {
	log *slog.Logger

	mu     sync.Mutex
	newest string // the last error
}

var _ server.Logger = (*serverLog)(nil)

func (l *serverLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

func (l *serverLog) say(level slog.Level, format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if level >= slog.LevelError {
		l.mu.Lock()
		l.newest = text
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
