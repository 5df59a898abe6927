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

	orders        state.Orders
	ordersVersion state.Version
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
	s.orders, s.ordersVersion = state.Orders{}, 0
	return nil
}

// Orders implements state.OrderStore. It is no step: looking changes nothing, and how often the engine looks says nothing.
func (s *Store) Orders(ctx context.Context, _ string) (state.Orders, state.Version, error) {
	if err := ctx.Err(); err != nil {
		return state.Orders{}, 0, err
	}
	s.World.mu.Lock()
	defer s.World.mu.Unlock()
	if s.World.crashed {
		return state.Orders{}, 0, errCrashed
	}
	return s.orders.Clone(), s.ordersVersion, nil
}

// SaveOrders implements state.OrderStore.
func (s *Store) SaveOrders(ctx context.Context, pipeline string, o state.Orders, prev state.Version) (v state.Version, err error) {
	data, err := state.EncodeOrders(o, pipeline)
	if err != nil {
		return 0, err
	}
	err = s.World.do(ctx, Event{Who: "state", What: "orders"}, func() error {
		if prev != s.ordersVersion {
			return state.ErrConflict
		}
		if s.orders, err = state.DecodeOrders(data, pipeline); err != nil {
			return err
		}
		s.ordersVersion++
		v = s.ordersVersion
		return nil
	})
	if err != nil {
		return 0, err
	}
	return v, nil
}

// Order replaces the orders as a person does, from beside the world: it always works.
func (s *Store) Order(o state.Orders) {
	s.World.mu.Lock()
	defer s.World.mu.Unlock()
	s.orders = o.Clone()
	s.ordersVersion++
}

// Close implements state.Store.
func (*Store) Close() error { return nil }
