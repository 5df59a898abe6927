package protobuf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/internal/plain"
	topics "github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/registry"
)

// NewFormat is the format of plain rows in Protobuf, to read.
func NewFormat(r *registry.Client) topics.Format { return &plain.Format{Wire: Wire{r}} }

// Wire is Protobuf with a registry, as formats of messages use it.
type Wire struct{ Registry *registry.Client }

var _ plain.Wire = Wire{}

// Unpacker implements plain.Wire.
func (w Wire) Unpacker(_ string, key bool) plain.Unpacker {
	return &unpacker{registry: w.Registry, key: key, schemas: map[registry.Ref]*schema{}}
}

// Known implements plain.Wire: the first message of the newest schema.
func (w Wire) Known(ctx context.Context, topic string, key bool) (*connect.Schema, error) {
	s, err := w.Registry.Newest(ctx, topic, key)
	if err != nil || s == nil || s.Kind != registry.Protobuf {
		return nil, err
	}
	f, err := files(ctx, s)
	if err != nil {
		return nil, err
	}
	m, err := (&schema{file: f, messages: map[string]*message{}}).message([]int{0}, []byte{0})
	if err != nil {
		return nil, err
	}
	return m.schema, nil
}

// Mine implements plain.Wire.
func (Wire) Mine(data []byte) bool { return registry.Mine(data) }

// schema is a compiled schema with the messages of it that came.
type schema struct {
	file     protoreflect.FileDescriptor
	messages map[string]*message // by the bytes of their indexes
}

func (s *schema) message(indexes []int, text []byte) (*message, error) {
	if m := s.messages[string(text)]; m != nil {
		return m, nil
	}
	d, err := find(s.file, indexes)
	if err != nil {
		return nil, err
	}
	c := compiler{open: map[protoreflect.FullName]bool{}}
	m, err := c.message(d)
	if err != nil {
		return nil, err
	}
	s.messages[string(text)] = m
	return m, nil
}

type unpacker struct {
	registry *registry.Client
	key      bool
	schemas  map[registry.Ref]*schema
}

// Unpack implements plain.Unpacker.
func (u *unpacker) Unpack(
	ctx context.Context, data []byte, headers []topics.Header, t *connect.Tape,
) (*connect.Schema, connect.Cell, error) {
	ref, content, err := registry.Split(data, headers, u.key)
	if err != nil {
		return nil, connect.Cell{}, err
	}
	s := u.schemas[ref]
	if s == nil {
		found, err := u.registry.Find(ctx, ref)
		if err != nil {
			return nil, connect.Cell{}, err
		}
		f, err := files(ctx, found)
		if err != nil {
			return nil, connect.Cell{}, err
		}
		s = &schema{file: f, messages: map[string]*message{}}
		u.schemas[ref] = s
	}
	indexes, rest, err := splitIndexes(content)
	if err != nil {
		return nil, connect.Cell{}, err
	}
	m, err := s.message(indexes, content[:len(content)-len(rest)])
	if err != nil {
		return nil, connect.Cell{}, err
	}
	c, err := m.read(rest, t)
	if err != nil {
		return nil, c, fmt.Errorf("it is not what schema %s says: %w", ref, err)
	}
	return m.schema, c, nil
}

// maxIndexes is how deeply messages may stand in messages.
const maxIndexes = 100

// splitIndexes reads which message of its file a value is: a count and so many indexes, each of variable length with a sign; a count of
// zero is the first message.
func splitIndexes(b []byte) (indexes []int, rest []byte, err error) {
	count, n := binary.Varint(b)
	if n <= 0 || count < 0 || count > maxIndexes {
		return nil, nil, errors.New("it does not say which message of its schema it is")
	}
	if b = b[n:]; count == 0 {
		return []int{0}, b, nil
	}
	for range count {
		i, n := binary.Varint(b)
		if n <= 0 || i < 0 || i > math.MaxInt32 {
			return nil, nil, errors.New("it does not say which message of its schema it is")
		}
		indexes, b = append(indexes, int(i)), b[n:]
	}
	return indexes, b, nil
}
