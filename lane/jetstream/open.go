package jetstream

import (
	"context"
	"errors"
	"log/slog"

	"github.com/leatdata/leat/lane"
)

// Open opens the durable lanes of a pipeline, and makes them where there are none. Errors: class ClassConfig for a configuration, or for
// settings of an existing stream, that could lose something; ClassPosition for lanes that can't be gone on with; ClassTransient for a
// server that can't be reached; code lanes.locked where another process has them open.
func Open(ctx context.Context, c Config, spec lane.Spec) (lane.Durable, error) {
	s, log, err := open(ctx, c, spec.Pipeline)
	if err != nil {
		return nil, err
	}
	return lane.Open(ctx, s, spec, log) //nolint:wrapcheck // says it all
}

func open(ctx context.Context, c Config, pipeline string) (*storage, *slog.Logger, error) {
	if err := c.validate(pipeline); err != nil {
		return nil, nil, err
	}
	s, err := connect(ctx, c, pipeline)
	if err != nil {
		return nil, nil, err
	}
	if err := s.ensure(ctx, c.Replicas); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, c.log(), nil
}
