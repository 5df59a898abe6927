package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// looker opens a source outside of a run: to discover and to preview.
type looker struct {
	src    connector.Source
	wg     sync.WaitGroup
	cancel context.CancelFunc
}

// lookFunc is what is done with an open source and the datasets that it has.
type lookFunc func(ctx context.Context, l *looker, found []connector.Dataset) error

// look opens the source and hands its datasets to use; everything is released afterwards.
func (s *session) look(ctx context.Context, cfg connector.SourceConfig, use lookFunc) (err error) {
	log, err := s.logger(s.Stderr)
	if err != nil {
		return err
	}
	if _, err := cfg.Contract(); err != nil {
		return err
	}
	ctx, l, err := s.open(ctx, "", cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = join(err, l.close(ctx)) }()
	d, ok := connector.As[connector.Discoverer](l.src)
	if !ok {
		return use(ctx, l, nil)
	}
	found, err := d.Discover(ctx)
	if err != nil {
		return err
	}
	return use(ctx, l, found)
}

// open opens the source of a pipeline, which has no name where nothing on the server belongs to it.
func (s *session) open(ctx context.Context, pipeline string, cfg connector.SourceConfig, log *slog.Logger,
) (context.Context, *looker, error) {
	ctx, cancel := s.untilDrain(ctx)
	l := &looker{cancel: cancel}
	src, err := cfg.Open(connector.Env{
		Pipeline: pipeline, Log: log, Now: s.Now, Roundtrip: func(string) {},
		Go: func(f func(context.Context)) error {
			l.wg.Go(func() { f(ctx) })
			return nil
		},
	})
	if err != nil {
		cancel()
		return ctx, nil, err
	}
	l.src = src
	return ctx, l, nil
}

func (l *looker) close(ctx context.Context) error {
	err := l.src.Close(context.WithoutCancel(ctx))
	l.cancel()
	l.wg.Wait()
	return err
}

// read reads up to rows rows of the dataset (all datasets where it has no name) and hands them over batch by batch.
func (l *looker) read(ctx context.Context, dataset string, rows int64, take func(b *record.Batch) error) error {
	start := connector.SourceStart{From: connector.From{Origin: connector.Initial}}
	if dataset != "" {
		start.Datasets = []string{dataset}
	}
	if err := l.src.Start(ctx, start); err != nil {
		return err
	}
	for idle := 0; rows > 0; {
		b, err := l.src.Read(ctx, connector.Limit{Rows: int(min(rows, previewBatch)), Bytes: defaultBatchBytes})
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case b == nil:
			if idle++; idle > maxIdle {
				return nil
			}
			continue
		}
		idle = 0
		if b.Rows == nil || (dataset != "" && b.Schema.Dataset != dataset) {
			continue
		}
		if n := int64(b.NumRows()); n > rows {
			if b, err = b.Keep(func(i int) bool { return int64(i) < rows }); err != nil {
				return err
			}
		}
		rows -= int64(b.NumRows())
		if err := take(b); err != nil {
			return err
		}
	}
	return nil
}

const (
	previewBatch = 1024
	maxIdle      = 3 // reads in a row that find nothing now
)

// estimate is how a number reads that is not exact.
func estimate(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return "about " + thousands(n)
}
