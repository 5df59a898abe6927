package debezium

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/record"
)

// Mapping says how the columns are kept, which is as Debezium's defaults are where those keep every value:
//
//	numbers            JSON numbers; NaN and infinities are text
//	decimal, numeric   text with every digit, as decimal.handling.mode=string
//	binary             base64
//	date               days since 1970-01-01; infinite ones are refused
//	time, timestamp    milliseconds, microseconds or nanoseconds, as precise as the column is; infinite timestamps are
//	                   9223372036825200000 and -9223372036832400000
//	instant            text in UTC, such as 2026-01-31T12:00:00.5Z
//	interval           text in ISO 8601, as interval.handling.mode=string; parts that are zero are left out
//	duration           microseconds, or nanoseconds
//	json               text
//	bits               one: a boolean; a fixed number: base64 of bytes, the lowest bit first; varying: digits
//	enum, network, uuid, and types that have no other form: text as the source prints it
//	array, list        a list; further dimensions are lists in it. Lower bounds other than 1 are refused
//	struct             an object
//	map                an object where the keys are text, else a list of pairs
func Mapping(s *record.Schema) []connector.Mapping {
	out := make([]connector.Mapping, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		m := connector.Mapping{Column: f.Name}
		t, err := record.TypeOf(f.Type)
		if err != nil {
			m.Native, m.Fidelity, m.Why = f.Type.String(), connector.Inexact, err.Error()
			out[i] = m
			continue
		}
		m.Native = native(t, millis(record.NativeOf(f)))
		m.Limits = limits(t)
		if !m.Limits.Zero() {
			m.Fidelity = connector.Checked
			m.Policies = []connector.Policy{connector.PolicyText, connector.PolicyNull}
			m.Why = "infinite dates have no number of days"
			if m.Limits.LowerBounds {
				m.Why = "lists have no bounds: elements are counted from 1"
			}
		}
		out[i] = m
	}
	return out
}

// withSchema changes a mapping to what it is where messages have schemas: decimals are such, and there is no NaN and no infinity, which
// Connect's JSON converter takes for zero.
func withSchema(m *connector.Mapping, t record.Type) {
	if isDecimal(t) || t.Kind == record.Uint64 {
		m.Native = connect.Decimal
	}
	if floats(t) {
		m.Limits.NoNaN, m.Limits.NoInfinity = true, true
		m.Fidelity, m.Why = connector.Checked, "numbers in JSON can't be NaN or infinite"
		m.Policies = []connector.Policy{connector.PolicyNull}
	}
}

// floats reports whether values of a type have floating-point numbers in them.
func floats(t record.Type) bool {
	switch {
	case t.Kind == record.Float32 || t.Kind == record.Float64:
		return true
	case t.Key != nil && floats(*t.Key), t.Elem != nil && floats(*t.Elem):
		return true
	}
	return slices.ContainsFunc(t.Fields, func(f record.Field) bool { return floats(f.Type) })
}

// limits is what values of a type must keep.
func limits(t record.Type) connector.Limits {
	switch t.Kind {
	case record.Date:
		return connector.Limits{NoInfinity: t.Infinite}
	case record.Array, record.List:
		l := limits(*t.Elem)
		l.LowerBounds = l.LowerBounds || t.Kind == record.Array
		return l
	case record.Struct:
		var l connector.Limits
		for _, f := range t.Fields {
			l = join(l, limits(f.Type))
		}
		return l
	case record.Map:
		return join(limits(*t.Key), limits(*t.Elem))
	default:
		return connector.Limits{}
	}
}

func join(a, b connector.Limits) connector.Limits {
	return connector.Limits{NoInfinity: a.NoInfinity || b.NoInfinity, LowerBounds: a.LowerBounds || b.LowerBounds}
}

// native is the name of the form.
func native(t record.Type, millis bool) string {
	switch t.Kind {
	case record.Bool:
		return "boolean"
	case record.Int8, record.Int16, record.Int32, record.Int64, record.Uint8, record.Uint16, record.Uint32, record.Uint64, record.Float32,
		record.Float64:
		return "number"
	case record.Binary:
		return "base64"
	case record.Bits:
		switch {
		case t.Varying || t.Width == 0:
			return "string"
		case t.Width == 1:
			return "boolean"
		}
		return "io.debezium.data.Bits"
	case record.Date:
		return "io.debezium.time.Date"
	case record.Time:
		return "io.debezium.time." + unitName(t.Unit, millis) + "Time"
	case record.Timestamp:
		if t.Zoned {
			return "io.debezium.time.ZonedTimestamp"
		}
		return "io.debezium.time." + unitName(t.Unit, millis) + "Timestamp"
	case record.Duration:
		if t.Unit == arrow.Nanosecond {
			return "io.debezium.time.NanoDuration"
		}
		return "io.debezium.time.MicroDuration"
	case record.Interval:
		return "io.debezium.time.Interval"
	case record.JSON:
		return "io.debezium.data.Json"
	case record.Array, record.List:
		return fmt.Sprintf("array<%s>", native(*t.Elem, false))
	case record.Struct:
		return "struct"
	case record.Map:
		return "map"
	default:
		return "string"
	}
}

// unitName is the beginning of the names of Debezium's types for times.
func unitName(u arrow.TimeUnit, millis bool) string {
	switch {
	case u == arrow.Nanosecond:
		return "Nano"
	case u == arrow.Microsecond && !millis:
		return "Micro"
	}
	return ""
}
