package mysql

import (
	"context"
	"errors"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// What reading a table once needs of the stream of changes.

// newFollower makes the stream of a source that is followed.
func newFollower(*Source) connector.Source { return unfollowed{} }

// enter begins the transaction of a chunk, and says what it sees.
func (*Source) enter(ctx context.Context, w *wire, _ *sourceTable) (record.Position, error) {
	return snapshotPosition(), w.exec(ctx, beginSQL)
}

// compareFollowed orders positions of the stream.
func compareFollowed(_, _ record.Position) (int, bool) { return 0, false }

// migrateFollowed reads a position of the stream.
func migrateFollowed(p record.Position) (record.Position, error) { return p, nil }

// unfollowed stands where there is no stream yet.
type unfollowed struct{}

var errUnfollowed = errors.New("changes can't be followed yet")

// Start implements connector.Source.
func (unfollowed) Start(context.Context, connector.SourceStart) error { return errUnfollowed }

// Read implements connector.Source.
func (unfollowed) Read(context.Context, connector.Limit) (*record.Batch, error) {
	return nil, errUnfollowed
}

// Close implements connector.Source.
func (unfollowed) Close(context.Context) error { return nil }
