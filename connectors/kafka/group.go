package kafka

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// GroupSource is a source that tells a consumer group how far the run got. It is advice for tools that look at lag; leat never
// reads it back.
type GroupSource struct {
	*Source
}

var _ connector.Acknowledger = (*GroupSource)(nil)

// Acknowledge implements connector.Acknowledger. What the group could not be told is logged, and told with the next position.
func (s *GroupSource) Acknowledge(ctx context.Context, p record.Position) error {
	at, err := decode(p)
	if err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	for name, t := range at.Topics {
		for i, next := range t.Next {
			if next >= 0 {
				offsets.AddOffset(name, int32(i), next, t.epoch(i))
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.admin.CommitAllOffsets(ctx, s.cfg.Group, offsets); err != nil {
		s.env.Log.Warn("telling the consumer group how far the run got", slog.String("group", s.cfg.Group),
			slog.String("error", s.cfg.redact(err.Error())))
	}
	return nil
}
