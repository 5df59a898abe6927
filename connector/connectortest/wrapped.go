package connectortest

import (
	"testing"

	"github.com/leatdata/leat/connector"
)

// Wrapped proves that a decorator of a source or a sink hides no capability: what [connector.As] finds in inner it finds in
// wrap(inner) as well.
func Wrapped(t testing.TB, inner any, wrap func(inner any) any) {
	t.Helper()
	outer := wrap(inner)
	for _, c := range capabilities() {
		if c.in(inner) && !c.in(outer) {
			t.Errorf("the wrapper %T hides the capability %s of %T: it needs a method Unwrap() any", outer, c.name, inner)
		}
	}
}

type capability struct {
	name string
	in   func(v any) bool
}

func capabilityOf[T any](name string) capability {
	return capability{name: name, in: func(v any) bool {
		_, ok := connector.As[T](v)
		return ok
	}}
}

// capabilities lists all of package connector.
func capabilities() []capability {
	return []capability{
		capabilityOf[connector.Acknowledger]("Acknowledger"),
		capabilityOf[connector.Notifier]("Notifier"),
		capabilityOf[connector.Positions]("Positions"),
		capabilityOf[connector.Originator]("Originator"),
		capabilityOf[connector.Anchor]("Anchor"),
		capabilityOf[connector.Discoverer]("Discoverer"),
		capabilityOf[connector.Snapshotter]("Snapshotter"),
		capabilityOf[connector.Merger]("Merger"),
		capabilityOf[connector.Conditional]("Conditional"),
		capabilityOf[connector.Tip]("Tip"),
		capabilityOf[connector.Dropper]("Dropper"),
		capabilityOf[connector.Splitter]("Splitter"),
		capabilityOf[connector.EncodedSource]("EncodedSource"),
		capabilityOf[connector.Controlled]("Controlled"),
		capabilityOf[connector.Checker]("Checker"),
		capabilityOf[connector.LagReporter]("LagReporter"),
		capabilityOf[connector.Named]("Named"),
		capabilityOf[connector.PositionStore]("PositionStore"),
		capabilityOf[connector.TwoPhase]("TwoPhase"),
		capabilityOf[connector.Finisher]("Finisher"),
		capabilityOf[connector.Mapper]("Mapper"),
		capabilityOf[connector.Evolver]("Evolver"),
		capabilityOf[connector.EncodedSink]("EncodedSink"),
		capabilityOf[connector.RowRejecter]("RowRejecter"),
		capabilityOf[connector.Readback]("Readback"),
	}
}
