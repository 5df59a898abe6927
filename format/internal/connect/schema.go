package connect

import (
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
)

// Type is a plain type: those of Connect, and three that other systems have besides.
type Type uint8

// The types.
const (
	Int8 Type = iota + 1
	Int16
	Int32
	Int64
	Float32
	Float64
	Boolean
	String
	Bytes
	Array
	Map
	Struct
	Uint32 // Protobuf
	Uint64 // Protobuf
	Number // JSON Schema: any number
	Any    // JSON Schema: any document
)

var typeNames = [...]string{ //nolint:gochecknoglobals // a constant table
	"", "int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes", "array", "map", "struct", "uint32", "uint64",
	"number", "any",
}

// String returns the name that schemas in JSON messages have.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "type(" + strconv.Itoa(int(t)) + ")"
}

// ParseType reads what String returns.
func ParseType(s string) (Type, bool) {
	i := slices.Index(typeNames[:], s)
	return Type(i), i > 0
}

// Schema is the type of a value. It is never changed once it is in use: equal pointers are equal schemas.
type Schema struct {
	Type     Type
	Name     string // what values mean; of structs, their name
	Version  int
	Params   map[string]string
	Optional bool
	Fields   []Field // Struct
	Key      *Schema // Map
	Elem     *Schema // Array, Map
	// Record is the type of package record that the schema itself names, as schemas that leat wrote do; nil: it follows from the others.
	Record arrow.DataType
}

// Field is a field of a struct.
type Field struct {
	Name   string
	Schema *Schema
	Column string // the name before it was changed to what the format allows; empty: Name
}

// ColumnName is what the field's column is called.
func (f Field) ColumnName() string {
	if f.Column != "" {
		return f.Column
	}
	return f.Name
}

// Field returns the index of the field with this name, or -1.
func (s *Schema) Field(name string) int {
	return slices.IndexFunc(s.Fields, func(f Field) bool { return f.Name == name })
}

// Names of meanings: Kafka Connect's own, Debezium's, and those of Avro's logical types that neither has.
const (
	Decimal   = "org.apache.kafka.connect.data.Decimal"
	Date      = "org.apache.kafka.connect.data.Date"
	Time      = "org.apache.kafka.connect.data.Time"
	Timestamp = "org.apache.kafka.connect.data.Timestamp"

	debeziumTime   = "io.debezium.time."
	EpochDate      = debeziumTime + "Date"
	MilliTime      = debeziumTime + "Time"
	MicroTime      = debeziumTime + "MicroTime"
	NanoTime       = debeziumTime + "NanoTime"
	MilliTimestamp = debeziumTime + "Timestamp"
	MicroTimestamp = debeziumTime + "MicroTimestamp"
	NanoTimestamp  = debeziumTime + "NanoTimestamp"
	ZonedTimestamp = debeziumTime + "ZonedTimestamp"
	ZonedTime      = debeziumTime + "ZonedTime"
	IsoDate        = debeziumTime + "IsoDate"
	IsoTime        = debeziumTime + "IsoTime"
	IsoTimestamp   = debeziumTime + "IsoTimestamp"
	Interval       = debeziumTime + "Interval"
	MicroDuration  = debeziumTime + "MicroDuration"
	NanoDuration   = debeziumTime + "NanoDuration"

	debeziumData  = "io.debezium.data."
	JSON          = debeziumData + "Json"
	UUID          = debeziumData + "Uuid"
	Enum          = debeziumData + "Enum"
	Bits          = debeziumData + "Bits"
	VariableScale = debeziumData + "VariableScaleDecimal"

	InstantMillis = "timestamp-millis"
	InstantMicros = "timestamp-micros"
	InstantNanos  = "timestamp-nanos"
	LocalMillis   = "local-timestamp-millis"
	LocalMicros   = "local-timestamp-micros"
	LocalNanos    = "local-timestamp-nanos"
	AvroDuration  = "duration"
)

// Parameters of schemas.
const (
	ParamScale     = "scale"
	ParamPrecision = "connect.decimal.precision"
	ParamLength    = "length"
	ParamAllowed   = "allowed"
)

// param returns a parameter that is a number.
func (s *Schema) param(name string) (int, bool) {
	n, err := strconv.Atoi(s.Params[name])
	return n, err == nil
}
