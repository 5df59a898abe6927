package sim

import (
	"context"
	"errors"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/state"
)

// Store is a state store in memory: what was saved is durable.
type Store struct {
	World   *World
	Record  state.Record
	Version state.Version // 0: nothing is saved
}

var _ state.Store = (*Store)(nil)

// Load implements state.Store.
func (s *Store) Load(ctx context.Context, pipeline string) (r state.Record, v state.Version, err error) {
	err = s.World.do(ctx, Event{Who: "state", What: "load"}, func() error {
		if s.Version == 0 || s.Record.Pipeline != pipeline {
			return state.ErrNotFound
		}
		r, v = s.Record, s.Version
		return nil
	})
	return r, v, err
}

// Save implements state.Store.
func (s *Store) Save(ctx context.Context, r state.Record, prev state.Version) (v state.Version, err error) {
	data, err := state.Encode(r)
	if err != nil {
		return 0, err
	}
	err = s.World.do(ctx, Event{Who: "state", What: "save", At: r.Progress.Position.String()}, func() error {
		if s.World.failSaves > 0 {
			s.World.failSaves--
			return &connector.Error{Class: connector.ClassPermanent, Code: "sim.save", Err: errors.New("the disk is full")}
		}
		if prev != s.Version {
			return state.ErrConflict
		}
		if s.Record, err = state.Decode(data, r.Pipeline); err != nil {
			return err
		}
		s.Version++
		v = s.Version
		return nil
	})
	if err != nil {
		return 0, err
	}
	return v, nil
}

// List implements state.Store.
func (s *Store) List(context.Context) ([]state.Record, error) {
	if s.Version == 0 {
		return nil, nil
	}
	return []state.Record{s.Record}, nil
}

// Delete implements state.Store.
func (s *Store) Delete(context.Context, string) error {
	s.Record, s.Version = state.Record{}, 0
	return nil
}

// Close implements state.Store.
func (*Store) Close() error { return nil }
