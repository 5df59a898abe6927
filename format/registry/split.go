package registry

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/leatdata/leat/format/message"
)

// Ref names a schema of a registry: by a number, or by a GUID.
type Ref struct {
	ID   int
	GUID string // empty: ID counts
}

// String names the schema for people.
func (r Ref) String() string {
	if r.GUID != "" {
		return r.GUID
	}
	return strconv.Itoa(r.ID)
}

// Headers that hold the id of a schema instead of the content.
const (
	keyHeader   = "__key_schema_id"
	valueHeader = "__value_schema_id"
)

const (
	idWidth   = 5  // a zero byte, and four of the id
	guidWidth = 17 // a one, and 16
)

// Split takes a key, or a value, apart into the schema that it names and the content.
func Split(data []byte, headers []message.Header, key bool) (Ref, []byte, error) {
	name := valueHeader
	if key {
		name = keyHeader
	}
	for i := range headers {
		if headers[i].Name == name {
			ref, rest, err := split(headers[i].Value)
			if err != nil || len(rest) > 0 {
				return ref, nil, fmt.Errorf("header %s holds no id of a schema", name)
			}
			return ref, data, nil
		}
	}
	return split(data)
}

func split(b []byte) (Ref, []byte, error) {
	switch {
	case len(b) >= idWidth && b[0] == 0:
		return Ref{ID: int(binary.BigEndian.Uint32(b[1:]))}, b[idWidth:], nil
	case len(b) >= guidWidth && b[0] == 1:
		var text [36]byte
		hex.Encode(text[:8], b[1:5])
		hex.Encode(text[9:13], b[5:7])
		hex.Encode(text[14:18], b[7:9])
		hex.Encode(text[19:23], b[9:11])
		hex.Encode(text[24:], b[11:17])
		text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
		return Ref{GUID: string(text[:])}, b[guidWidth:], nil
	}
	return Ref{}, nil, errors.New("it does not begin with the id of a schema (a zero byte and four more), " +
		"as what the serializers of a registry write does")
}

// Mine reports whether bytes begin with the id of a schema.
func Mine(b []byte) bool {
	_, _, err := split(b)
	return err == nil
}

// AppendID appends what stands in front of the content.
func AppendID(dst []byte, id int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0), uint32(id))
}
