package debezium

import (
	"iter"

	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/record"
)

// Event is one message: of a change, or of one side of a change of a key. It is valid until the next call of Events.
type Event struct {
	changelog.Change
	side side
}

// side is which part of a change an event is.
type side uint8

const (
	both    side = iota
	removal      // of the old key, of an update that changed it
	arrival      // of the new key
)

// Op returns the letter of the operation: r, c, u, d or t. An upsert is an update, as Debezium has nothing that may be either.
func (e Event) Op() byte {
	switch {
	case e.side == removal:
		return byte(changelog.Delete)
	case e.side == arrival:
		return byte(changelog.Insert)
	case e.Change.Op == changelog.Upsert:
		return byte(changelog.Update)
	}
	return byte(e.Change.Op)
}

// Tombstone reports whether a message with the same key and no value follows in a topic that is compacted by key.
func (e Event) Tombstone() bool {
	return e.Op() == byte(changelog.Delete) && len(e.Batch.Schema.Key) > 0
}

// events takes a batch apart.
func events(b *record.Batch) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for c := range changelog.Changes(b) {
			if c.Op == changelog.Update && b.KeyMoved(c.Row) {
				if !yield(Event{c, removal}) || !yield(Event{c, arrival}) {
					return
				}
				continue
			}
			if !yield(Event{c, both}) {
				return
			}
		}
	}
}
