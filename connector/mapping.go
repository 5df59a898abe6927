package connector

import (
	"fmt"

	"github.com/leatdata/leat/record"
)

// Fidelity is how well a column's type survives.
type Fidelity uint8

// The fidelities, best first.
const (
	Exact   Fidelity = iota // every value comes out as it went in
	Checked                 // every value within Limits does; the engine checks each, and one outside is handled by policy, never changed
	Inexact                 // values would change: refused at plan time unless a policy is declared for the column
)

// String names the fidelity for people.
func (f Fidelity) String() string { return name(int(f), "exact", "checked", "inexact") }

// Policy is what happens to values that a sink can't hold.
type Policy uint8

// The policies.
const (
	PolicyFail  Policy = iota // the row is refused: it stops the run or is set aside, as the pipeline says
	PolicyText                // the whole column becomes text, in the canonical form
	PolicyNull                // the value becomes null, counted
	PolicyClamp               // the value becomes the nearest one that fits, counted
	PolicyStrip               // characters that don't fit (NUL) are left out, counted
)

// String returns the name that configurations use.
func (p Policy) String() string { return name(int(p), "fail", "text", "null", "clamp", "strip") }

// ParsePolicy reads what String returns.
func ParsePolicy(s string) (Policy, error) {
	for p := PolicyFail; p <= PolicyStrip; p++ {
		if s == p.String() {
			return p, nil
		}
	}
	return 0, fmt.Errorf("unknown policy %q: want fail, text, null, clamp or strip", s)
}

// Limits says which values a sink's column can hold. The zero value is no limit. The engine checks them before Write, so that every
// sink refuses the same way.
type Limits struct {
	NoNaN       bool  // floats, numerics
	NoInfinity  bool  // floats, numerics, dates and timestamps
	NoMinusZero bool  // floats: -0 would lose its sign
	NoNUL       bool  // text and JSON with a zero character (also \u0000 in JSON)
	Precision   int32 // numerics and decimals: digits in all; 0: any
	Scale       int32 // digits after the point, with Precision
	Min, Max    int64 // integers; dates in days; timestamps in microseconds; both 0: any
	MicrosOnly  bool  // times and timestamps of nanoseconds: digits below a microsecond must be zero
	MaxRank     int   // arrays: dimensions; 0: any
	Rank        int   // arrays: exactly this many dimensions, empty arrays aside; 0: any
	LowerBounds bool  // arrays: every lower bound must be 1
	MaxChars    int   // text: characters; 0: any
	Labels      []string
}

// Zero reports whether there is no limit.
func (l Limits) Zero() bool {
	return !l.NoNaN && !l.NoInfinity && !l.NoMinusZero && !l.NoNUL && l.Precision == 0 && l.Min == 0 && l.Max == 0 && !l.MicrosOnly &&
		l.MaxRank == 0 && l.Rank == 0 && !l.LowerBounds && l.MaxChars == 0 && l.Labels == nil
}

// Mapping is how one column will be stored.
type Mapping struct {
	Column   string
	Native   string // the target's type, as the target writes it; empty: the column is left out (then Why says so)
	Fidelity Fidelity
	Limits   Limits
	Why      string   // for Checked and Inexact: what may not fit, in a few words
	Policies []Policy // what the user may declare to go on; PolicyFail is implied for Checked
}

// TypeRule is a row of a system's mapping table: the documentation is made from it, and the connector maps by it.
type TypeRule struct {
	Native   string      // the system's type
	Kind     record.Kind // what it is read as, or what is written to it
	Read     bool        // the rule holds for reading
	Write    bool        // the rule holds for creating columns and writing
	Fidelity Fidelity
	Note     string
}
