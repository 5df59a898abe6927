package cli

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/prune"
)

// prune treats the rows that are gone from the source as each sink says, once a run is done. It returns how many there were.
func (s *session) prune(ctx context.Context, p *config.Pipeline, sum engine.Summary, plan engine.Plan,
	log *slog.Logger,
) (map[string]int64, error) {
	gone := map[string]int64{}
	for i, sink := range p.Sinks {
		mode := map[string]prune.Mode{config.DeletesHard: prune.Hard, config.DeletesSoft: prune.Soft}[sink.Deletes]
		if mode == prune.Keep {
			continue
		}
		res, err := prune.Run(ctx, prune.Job{
			Pipeline: p.Name, Lane: sink.Name, Run: sum.Run, Fence: sum.Attempt, Source: p.Source.Config, Sink: sink.Config,
			Transforms: append(slices.Clip(p.Transforms.Steps), plan.Sinks[i].Transforms...),
			Key:        sink.Key, Keys: sink.Keys, Mode: mode, Log: log, Now: s.clock(),
		})
		for d, n := range res.Gone {
			gone[d] += n
		}
		if err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// clock is the session's, or the system's.
func (s *session) clock() func() time.Time {
	if s.Now != nil {
		return s.Now
	}
	return time.Now
}
