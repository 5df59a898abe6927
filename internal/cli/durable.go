package cli

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/jetstream"
)

// laneStore says where the durable lanes of a pipeline are: on the servers that it names, or in a folder, by default one beside the state.
func (s *session) laneStore(p *config.Pipeline, log *slog.Logger) (jetstream.Config, error) {
	c := jetstream.Config{URL: p.Lanes.URL, Credentials: p.Lanes.Creds, Replicas: p.Lanes.Replicas, Log: log}
	if c.URL != "" {
		return c, nil
	}
	c.Dir = p.Lanes.Folder
	if c.Dir == "" {
		dir, err := s.stateDir()
		if err != nil {
			return c, err
		}
		c.Dir = filepath.Join(dir, "lanes")
	}
	return c, nil
}

// openLanes is how a run opens durable lanes.
func (s *session) openLanes(p *config.Pipeline, log *slog.Logger) func(context.Context, lane.Spec) (lane.Durable, error) {
	return func(ctx context.Context, spec lane.Spec) (lane.Durable, error) {
		c, err := s.laneStore(p, log)
		if err != nil {
			return nil, err
		}
		return jetstream.Open(ctx, c, spec)
	}
}

// lanesOf is how a plan keeps its lanes.
func lanesOf(l config.Lanes) (engine.Lanes, error) {
	kind, err := engine.ParseLanes(l.Kind)
	if err != nil {
		return engine.Lanes{}, &usageError{err: err}
	}
	quota := lane.Quota{Bytes: l.Quota, Age: l.Age, Detach: l.Over == config.OverDetach}
	return engine.Lanes{Kind: kind, Quota: quota}, nil
}
