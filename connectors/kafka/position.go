package kafka

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// positionShape is the version of the layout of positions.
const positionShape = 1

// position is where a source stands: for every topic the offset of the next record of each partition.
//
//	{"cluster":"4L6g3nShT-eMCtK--X86sw","topics":{"orders":{"id":"zfiEB4bORvKbLwWfFHzSAg==","next":[12,7],"epochs":[0,3],"end":[40,7]}}}
type position struct {
	Cluster string                   `json:"cluster"`
	Topics  map[string]topicPosition `json:"topics"`
}

// topicPosition is where a source stands in one topic. Lists go by partition; -1: not known, or not of this source.
type topicPosition struct {
	ID     string  `json:"id,omitempty"` // empty: the brokers have no ids
	Next   []int64 `json:"next"`
	Epochs []int32 `json:"epochs,omitempty"` // leader epochs of the records in front of Next
	End    []int64 `json:"end,omitempty"`    // where the run ends; nil: it does not end
}

// at returns the offset of a partition; false: it has none.
func (t topicPosition) at(partition int) (int64, bool) {
	if partition >= len(t.Next) || t.Next[partition] < 0 {
		return 0, false
	}
	return t.Next[partition], true
}

func (t topicPosition) epoch(partition int) int32 {
	if partition >= len(t.Epochs) {
		return -1
	}
	return t.Epochs[partition]
}

func (t topicPosition) end(partition int) int64 {
	if partition >= len(t.End) {
		return -1
	}
	return t.End[partition]
}

// finished reports whether the position is the end of a run.
func (p position) finished() bool {
	for _, t := range p.Topics {
		for i := range t.Next {
			if t.End == nil || t.Next[i] < t.end(i) {
				return false
			}
		}
	}
	return true
}

func topicID(id [16]byte) string {
	if id == ([16]byte{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// encode makes a position for the engine.
func (p position) encode() record.Position {
	out := record.AppendJSONString([]byte(`{"cluster":`), p.Cluster)
	out = append(out, `,"topics":{`...)
	for i, name := range slices.Sorted(maps.Keys(p.Topics)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(record.AppendJSONString(out, name), ':')
		out = p.Topics[name].append(out)
	}
	return record.Position{Shape: positionShape, Data: append(out, "}}"...)}
}

func (t topicPosition) append(out []byte) []byte {
	out = append(out, '{')
	if t.ID != "" {
		out = append(record.AppendJSONString(append(out, `"id":`...), t.ID), ',')
	}
	out = appendList(append(out, `"next":`...), t.Next)
	if t.Epochs != nil {
		out = appendList(append(out, `,"epochs":`...), t.Epochs)
	}
	if t.End != nil {
		out = appendList(append(out, `,"end":`...), t.End)
	}
	return append(out, '}')
}

func appendList[T int32 | int64](out []byte, list []T) []byte {
	out = append(out, '[')
	for i, n := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(n), 10)
	}
	return append(out, ']')
}

// decode reads a position.
func decode(p record.Position) (position, error) {
	refuse := func(err error) (position, error) {
		return position{}, &connector.Error{
			Class: connector.ClassPosition, Code: "kafka.position", Doing: "reading the saved position", Err: err,
			Hint: "read from the beginning of what is there: --restart",
		}
	}
	if p.Shape != positionShape {
		return refuse(fmt.Errorf("it has layout %d, and this version of leat reads %d", p.Shape, positionShape))
	}
	var out position
	d := json.NewDecoder(bytes.NewReader(p.Data))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil || out.Topics == nil {
		return refuse(errors.New("it is not one of a Kafka source"))
	}
	for name, t := range out.Topics {
		if t.Epochs != nil && len(t.Epochs) != len(t.Next) || t.End != nil && len(t.End) != len(t.Next) {
			return refuse(fmt.Errorf("its lists for topic %s differ in length", name))
		}
	}
	return out, nil
}

// compare orders two positions: one is behind another where it is in every partition. Partitions that one lacks were not there yet.
// False: they can't be ordered.
func compare(a, b position) (order int, ok bool) {
	if a.Cluster != b.Cluster {
		return 0, false
	}
	less, more := false, false
	for name, x := range a.Topics {
		y, both := b.Topics[name]
		if both && x.ID != y.ID {
			return 0, false
		}
		for i := range max(len(x.Next), len(y.Next)) {
			m, inA := x.at(i)
			n, inB := y.at(i)
			less = less || (inB && (!inA || m < n))
			more = more || (inA && (!inB || m > n))
		}
	}
	for name, y := range b.Topics {
		if _, both := a.Topics[name]; !both {
			less = less || slices.ContainsFunc(y.Next, func(n int64) bool { return n >= 0 })
		}
	}
	switch {
	case less && more:
		return 0, false
	case less:
		return -1, true
	case more:
		return 1, true
	}
	return 0, true
}

// Compare implements connector.Positions.
func (*Source) Compare(a, b record.Position) (order int, ok bool) {
	x, errX := decode(a)
	y, errY := decode(b)
	if errX != nil || errY != nil {
		return 0, false
	}
	return compare(x, y)
}

// Migrate implements connector.Positions.
func (*Source) Migrate(p record.Position) (record.Position, error) {
	if _, err := decode(p); err != nil {
		return record.Position{}, err
	}
	return p, nil
}
