package kafka

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/leatdata/leat/connector"
)

// Vnode is the virtual node that reads a partition: the same for ever for a source, a topic and a number of virtual nodes, and spread
// evenly over them. Which process has a virtual node is no concern of the source.
func Vnode(source, topic string, partition int32, vnodes int) int {
	h := sha256.New()
	for _, part := range []string{"leat kafka vnode 1", source, topic} {
		var size [4]byte
		binary.BigEndian.PutUint32(size[:], uint32(len(part))) // so that no two names run into each other
		h.Write(size[:])
		h.Write([]byte(part))
	}
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], uint32(partition))
	h.Write(number[:])
	return int(binary.BigEndian.Uint64(h.Sum(nil)) % uint64(vnodes))
}

// Owned are the splits of the virtual nodes that owns is true for.
func Owned(splits []connector.Split, source string, vnodes int, owns func(vnode int) bool) []connector.Split {
	var out []connector.Split
	for _, s := range splits {
		if topic, partition, ok := parseSplit(s.ID); ok && owns(Vnode(source, topic, partition, vnodes)) {
			out = append(out, s)
		}
	}
	return out
}
