package sqlite

import (
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// storage is how the values of a column are bound.
type storage uint8

const (
	asNumber storage = iota // integers, reals, booleans
	asText                  // the canonical text form
	asBlob
	asSigned      // a float in a column that loses the sign of -0
	asExactNumber // a decimal or numeric as integer or real, checked one by one
)

// kindOfStorage is the storage that a type gets in a column that is made for it.
func kindOfStorage(t record.Type) storage {
	switch t.Kind {
	case record.Bool, record.Int8, record.Int16, record.Int32, record.Int64, record.Uint8, record.Uint16, record.Uint32,
		record.Float32, record.Float64:
		return asNumber
	case record.Decimal:
		if decimalFits(t) {
			return asExactNumber
		}
		return asText
	case record.Binary:
		return asBlob
	default:
		return asText
	}
}

func isFloat(t record.Type) bool { return t.Kind == record.Float32 || t.Kind == record.Float64 }

// looksNumeric reports whether the canonical text of a type may look like a number to SQLite, which then changes it in a column of
// numeric affinity.
func looksNumeric(t record.Type) bool {
	switch t.Kind {
	case record.UUID, record.Date, record.Time, record.Timestamp, record.Duration, record.Interval, record.Network:
		return false
	default:
		return true
	}
}

// mapColumn says how a type is stored in a column that is declared so.
func mapColumn(name string, t record.Type, declared string) (connector.Mapping, storage) {
	m := connector.Mapping{Column: name, Native: declared}
	own := kindOfStorage(t)
	aff := affinityOf(declared)
	switch {
	case isFloat(t):
		if aff == affText {
			return m, asText
		}
		m.Fidelity, m.Limits.NoNaN = connector.Checked, true
		m.Why = "SQLite has no NaN"
		m.Policies = []connector.Policy{connector.PolicyFail, connector.PolicyNull, connector.PolicyText}
		if aff == affNone {
			return m, asNumber
		}
		m.Limits.NoMinusZero, m.Why = true, "SQLite has no NaN, and keeps no sign of -0"
		m.Policies = append(m.Policies, connector.PolicyClamp)
		return m, asSigned
	case aff == affText && own != asBlob:
		return m, asText
	case own == asBlob:
		return m, asBlob
	case own == asNumber:
		if aff == affReal && (t.Kind == record.Int64) {
			m.Fidelity, m.Limits.Min, m.Limits.Max = connector.Checked, -wholeInReal, wholeInReal
			m.Why = "the column turns integers into doubles, which hold whole numbers up to 2^53"
		}
		return m, own
	case t.Kind == record.Decimal || t.Kind == record.Numeric || t.Kind == record.Uint64:
		if aff == affNone {
			return m, asText
		}
		if own != asExactNumber {
			m.Fidelity, m.Why = connector.Checked, "the column holds integers of 64 bits and doubles; other numbers are refused row by row"
		}
		return m, asExactNumber
	case aff != affNone && looksNumeric(t):
		m.Fidelity, m.Why = connector.Inexact, "the column turns text that looks like a number into one: 007 becomes 7"
	}
	return m, asText
}
