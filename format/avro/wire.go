package avro

import (
	"context"
	"fmt"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/internal/plain"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/registry"
)

// Wire is Avro with a registry, as formats of messages use it.
type Wire struct{ Registry *registry.Client }

var _ plain.Wire = Wire{}

// Unpacker implements plain.Wire.
func (w Wire) Unpacker(_ string, key bool) plain.Unpacker {
	return &unpacker{registry: w.Registry, key: key, nodes: map[registry.Ref]*node{}}
}

// Known implements plain.Wire.
func (w Wire) Known(ctx context.Context, topic string, key bool) (*connect.Schema, error) {
	s, err := w.Registry.Newest(ctx, topic, key)
	if err != nil || s == nil || s.Kind != registry.Avro {
		return nil, err
	}
	n, err := compile(s)
	if err != nil {
		return nil, err
	}
	return n.schema, nil
}

// Mine implements plain.Wire.
func (Wire) Mine(data []byte) bool { return registry.Mine(data) }

// unpacker reads the keys, or the values, of a topic.
type unpacker struct {
	registry *registry.Client
	key      bool
	nodes    map[registry.Ref]*node
}

// Unpack implements plain.Unpacker.
func (u *unpacker) Unpack(
	ctx context.Context, data []byte, headers []message.Header, t *connect.Tape,
) (*connect.Schema, connect.Cell, error) {
	ref, content, err := registry.Split(data, headers, u.key)
	if err != nil {
		return nil, connect.Cell{}, err
	}
	n := u.nodes[ref]
	if n == nil {
		s, err := u.registry.Find(ctx, ref)
		if err != nil {
			return nil, connect.Cell{}, err
		}
		if n, err = compile(s); err != nil {
			return nil, connect.Cell{}, err
		}
		u.nodes[ref] = n
	}
	c, err := n.read(content, t)
	if err != nil {
		return nil, c, fmt.Errorf("it is not what schema %s says: %w", ref, err)
	}
	return n.schema, c, nil
}
