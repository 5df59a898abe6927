package parquet

import (
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// storage is how a type of the vocabulary is kept in a file.
type storage struct {
	arrow  arrow.DataType // what is handed to the library
	native string         // Parquet's name
	limits connector.Limits
	why    []string // for other readers, and for limits
	lost   string   // why values would not come out as they went in; empty: they do
}

// Mapping says how the columns are kept. All types are exact for leat itself; Why says what other readers see where that is not
// obvious. Checked are infinite dates and timestamps, which Parquet lacks, and the shape of arrays.
func Mapping(s *record.Schema) []connector.Mapping {
	out := make([]connector.Mapping, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		st := stored(f.Type)
		m := connector.Mapping{Column: f.Name, Native: st.native, Limits: st.limits, Why: strings.Join(st.why, "; ")}
		switch {
		case st.lost != "":
			m.Fidelity, m.Limits, m.Why = connector.Inexact, connector.Limits{}, st.lost
			m.Policies = []connector.Policy{connector.PolicyText}
		case !st.limits.Zero():
			m.Fidelity, m.Policies = connector.Checked, []connector.Policy{connector.PolicyText, connector.PolicyNull}
		}
		out[i] = m
	}
	return out
}

func asText(why string) storage {
	return storage{arrow: arrow.BinaryTypes.String, native: "STRING", why: []string{why}}
}

// stored returns how values of a type of the vocabulary are kept.
func stored(dt arrow.DataType) storage {
	t, err := record.TypeOf(dt)
	if err != nil {
		return storage{native: dt.String(), lost: err.Error()}
	}
	switch t.Kind {
	case record.Numeric:
		return asText("other readers see text: Parquet has no number without fixed precision")
	case record.Enum, record.Bits, record.Network, record.Foreign:
		return asText("other readers see text")
	case record.Interval:
		return asText("other readers see text in ISO 8601: Parquet's interval has no sign and no microseconds")
	case record.Decimal:
		if t.Scale < 0 || t.Scale > t.Precision {
			return asText("other readers see text: Parquet's decimals have a scale between 0 and the precision")
		}
		s := storage{arrow: dt, native: fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale)}
		if t.Precision > 38 {
			s.why = []string{"readers that stop at 38 digits may round"}
		}
		return s
	case record.UUID, record.JSON:
		return storage{arrow: dt, native: strings.ToUpper(t.Kind.String())}
	case record.Duration:
		why := fmt.Sprintf("other readers see a count of %s", t.Unit)
		return storage{arrow: arrow.PrimitiveTypes.Int64, native: "INT64", why: []string{why}}
	case record.Date:
		return storedDate(t)
	case record.Time:
		return storedTime(dt, t)
	case record.Timestamp:
		return storedTimestamp(t)
	case record.Array:
		return storedArray(t)
	case record.List, record.Struct, record.Map:
		return storedNested(dt, t)
	case record.Binary:
		if t.Width > 0 {
			return storage{arrow: dt, native: fmt.Sprintf("FIXED_LEN_BYTE_ARRAY(%d)", t.Width)}
		}
		return storage{arrow: dt, native: "BYTE_ARRAY"}
	default:
		return storage{arrow: dt, native: plainName(t.Kind)}
	}
}

func plainName(k record.Kind) string {
	switch k {
	case record.Bool:
		return "BOOLEAN"
	case record.Float32:
		return "FLOAT"
	case record.Float64:
		return "DOUBLE"
	case record.String:
		return "STRING"
	default:
		return strings.ToUpper(k.String())
	}
}

func storedDate(t record.Type) storage {
	s := storage{arrow: arrow.FixedWidthTypes.Date32, native: "DATE"}
	if t.Infinite {
		s.limits, s.why = connector.Limits{NoInfinity: true}, []string{"Parquet has no infinite dates"}
	}
	return s
}

func storedTime(dt arrow.DataType, t record.Type) storage {
	switch t.Unit {
	case arrow.Second:
		return storage{arrow: arrow.FixedWidthTypes.Time32ms, native: "TIME(MILLIS)"}
	case arrow.Millisecond:
		return storage{arrow: dt, native: "TIME(MILLIS)"}
	case arrow.Microsecond:
		return storage{arrow: dt, native: "TIME(MICROS)"}
	default:
		return storage{arrow: dt, native: "TIME(NANOS)"}
	}
}

func storedTimestamp(t record.Type) storage {
	zone, name := "", "local"
	if t.Zoned {
		zone, name = "UTC", "UTC"
	}
	unit, s := t.Unit, storage{}
	switch {
	case t.Unit == arrow.Second:
		unit = arrow.Millisecond
		s.limits = connector.Limits{Min: math.MinInt64 + 1, Max: math.MaxInt64 - 1} // in microseconds; what overflows them is at the ends
		s.why = []string{"kept in milliseconds: years beyond 290,000 do not fit"}
	case t.Infinite:
		s.limits, s.why = connector.Limits{NoInfinity: true}, []string{"Parquet has no infinite timestamps"}
	}
	s.arrow = &arrow.TimestampType{Unit: unit, TimeZone: zone}
	names := map[arrow.TimeUnit]string{arrow.Millisecond: "MILLIS", arrow.Microsecond: "MICROS", arrow.Nanosecond: "NANOS"}
	s.native = fmt.Sprintf("TIMESTAMP(%s, %s)", names[unit], name)
	return s
}

func storedArray(t record.Type) storage {
	s := stored(t.Elem.Arrow)
	if s.lost != "" {
		return s
	}
	for range t.Rank {
		s.arrow, s.native = arrow.ListOf(s.arrow), "LIST<"+s.native+">"
	}
	s.limits.Rank, s.limits.LowerBounds = t.Rank, true
	s.why = append(s.why, fmt.Sprintf("lists of %d dimensions, counted from 1", t.Rank))
	return s
}

func storedNested(dt arrow.DataType, t record.Type) storage {
	var out storage
	var natives []string
	field := func(f arrow.Field) arrow.Field {
		s := stored(f.Type)
		f.Type = s.arrow
		natives = append(natives, s.native)
		out.limits = both(out.limits, s.limits)
		out.why = append(out.why, s.why...)
		if s.lost != "" {
			out.lost = s.lost
		}
		return f
	}
	var build func() arrow.DataType
	switch dt := dt.(type) {
	case *arrow.ListType:
		elem := field(dt.ElemField())
		build = func() arrow.DataType { return arrow.ListOfField(elem) }
		out.native = "LIST<" + natives[0] + ">"
	case *arrow.MapType:
		key, item := field(dt.KeyField()), field(dt.ItemField())
		build = func() arrow.DataType { return arrow.MapOfFields(key, item) }
		out.native = "MAP<" + strings.Join(natives, ", ") + ">"
	case *arrow.StructType:
		fields := dt.Fields()
		for i := range fields {
			fields[i] = field(fields[i])
		}
		build = func() arrow.DataType { return arrow.StructOf(fields...) }
		out.native = "STRUCT<" + strings.Join(natives, ", ") + ">"
		if len(fields) == 0 {
			out.lost = "Parquet has no struct without fields"
		}
	}
	if build == nil {
		return storage{native: t.String(), lost: "Parquet has no " + t.String()}
	}
	if out.lost == "" {
		out.arrow = build()
	}
	return out
}

// both joins the limits of what a nested value is made of.
func both(a, b connector.Limits) connector.Limits {
	a.NoInfinity = a.NoInfinity || b.NoInfinity
	a.LowerBounds = a.LowerBounds || b.LowerBounds
	if a.Rank == 0 {
		a.Rank = b.Rank
	}
	if a.Min == 0 && a.Max == 0 {
		a.Min, a.Max = b.Min, b.Max
	}
	return a
}
