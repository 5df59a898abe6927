package engine

import (
	"fmt"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// skipper lets a lane pass over what its sink has. It sees every item of the lane, in order.
type skipper struct {
	skip
	ledger  *string // with until: the ledger that the item must carry, too; nil: any
	compare compare
}

// over reports whether the sink has this item. A source ends a batch exactly at every cut, so no item is had in part.
func (s *skipper) over(p record.Position, ledger string) (bool, error) {
	switch {
	case s.all:
		return true, nil
	case s.until.Zero():
		return false, nil
	case p.Zero():
		return true, nil
	case s.ledger != nil:
		if p.Equal(s.until) && ledger == *s.ledger {
			s.until, s.ledger = record.Position{}, nil
		}
		return true, nil
	case p.Equal(s.until):
		s.until = record.Position{}
		return true, nil
	case s.compare == nil:
		return true, nil
	}
	switch order, ok := s.compare(p, s.until); {
	case ok && order < 0:
		return true, nil
	case ok && order == 0:
		s.until = record.Position{}
		return true, nil
	}
	return false, s.passed(p)
}

// passed is the error for a source that came to a place that the sink does not have, without coming by where the sink stands.
func (s *skipper) passed(p record.Position) error {
	e := &connector.Error{
		Class: connector.ClassPosition, Code: "engine.cut", Doing: "skipping what the sink has",
		Err:  fmt.Errorf("the source went on to %s without ending a batch at %s, where the sink stands", p, s.until),
		Hint: "this is a mistake in the source: please report it",
	}
	if !s.compare.covers(p, s.until) {
		e.Err = fmt.Errorf("the source came to %s, and the sink stands at %s: neither has all that the other one has", p, s.until)
		e.Hint = "its log has another order than the one that the sink was filled from (another server?): start over with --restart"
	}
	return e
}

// missed is the error for a source that ended before it came to where the sink stands.
func (s *skipper) missed() error {
	if s.all || s.until.Zero() {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassPosition, Code: "engine.cut", Doing: "skipping what the sink has",
		Err:  fmt.Errorf("the source ended before %s, where the sink stands", s.until),
		Hint: "the source lost rows or was replaced; start over with --restart",
	}
}
