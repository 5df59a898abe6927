package mysql

import (
	"context"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// What a source that is followed has besides.
var (
	_ connector.Anchor      = (*Source)(nil)
	_ connector.Tip         = (*Source)(nil)
	_ connector.LagReporter = (*Source)(nil)
	_ connector.Source      = (*stream)(nil)
)

// newFollower makes the stream of a source that is followed.
func newFollower(s *Source) connector.Source { return newStream(s) }

// compareFollowed orders positions of the stream.
func compareFollowed(a, b record.Position) (int, bool) { return compareStream(a, b) }

// migrateFollowed reads a position of the stream.
func migrateFollowed(p record.Position) (record.Position, error) {
	_, err := decodeStream(p)
	return p, err
}

// Lag implements connector.LagReporter.
func (s *Source) Lag(ctx context.Context) (connector.Lag, error) {
	lag := connector.Lag{Bytes: -1, Events: -1, Age: -1}
	f, ok := s.inner.(*stream)
	if !ok || !s.cfg.Follow {
		return lag, nil
	}
	lag.Age = f.age()
	db, srv, err := s.server(ctx)
	if err != nil {
		return lag, err
	}
	s.env.Roundtrip("lag")
	end, err := readLogEnd(ctx, db, srv)
	if err != nil {
		return lag, s.cfg.wrap("asking where the binary log ends", err)
	}
	f.mu.Lock()
	at := f.delivered
	f.mu.Unlock()
	switch {
	case at.File == end.place.File:
		lag.Bytes = max(0, int64(end.place.Pos)-int64(at.Pos))
	case at.File != "":
		if lag.Bytes, err = bytesBetween(ctx, db, at, end.place); err != nil {
			return lag, s.cfg.wrap("asking how large the logs are", err)
		}
	}
	return lag, nil
}

// bytesBetween is how much log lies between two places; -1: it can't be told.
func bytesBetween(ctx context.Context, q querier, from, to place) (int64, error) {
	rows, err := ask(ctx, q, "SHOW BINARY LOGS")
	if err != nil {
		return -1, err
	}
	n := int64(-1)
	for _, r := range rows {
		file := string(r[0])
		switch {
		case file == from.File:
			n = max(0, toInt(r[1])-int64(from.Pos))
		case n < 0:
		case file == to.File:
			return n + int64(to.Pos), nil
		default:
			n += toInt(r[1])
		}
	}
	return -1, nil
}
