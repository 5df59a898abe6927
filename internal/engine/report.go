package engine

import (
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Summary is the outcome of a run.
type Summary struct {
	Pipeline string
	Run      string
	Attempt  uint64
	Reached  connector.Guarantee
	Why      string
	Resumed  bool // it went on from a saved position
	Done     bool // the end of a bounded source was reached, and everything is durable
	Started  time.Time
	Took     time.Duration
	Position record.Position // what was saved last
	Target   record.Position // with Plan.Once: where the stream ended at the start; Done says that the run got there
	Datasets []DatasetStatus
	Sinks    []SinkStatus
	SetAside int64 // rows set aside, by source, transforms and sinks
	Failed   int   // datasets that failed for one sink while the others went on
}

// Report is what Check found.
type Report struct {
	Admission Admission
	Datasets  []connector.Dataset // what the source selects, before transforms
	Sinks     []SinkReport        // in plan order
	Probes    []ProbeReport
	Problems  []Problem // all that Run would refuse, those of the admission included
	Resume    string    // where Run would start, in words; empty: at the beginning
	Lanes     LaneChoice
	WhyLanes  string
}

// OK reports whether Run would start: no problem and no failed probe.
func (r Report) OK() bool {
	for _, p := range r.Probes {
		if p.Status == connector.Fail {
			return false
		}
	}
	return len(r.Problems) == 0
}

// SinkReport is how one sink will store what it gets.
type SinkReport struct {
	Name     string
	Mode     connector.WriteMode
	Datasets []DatasetReport
}

// DatasetReport is how one dataset will be stored.
type DatasetReport struct {
	Dataset string
	Schema  *record.Schema // as the sink will get it
	Key     []string
	Columns []ColumnReport
	// Encoding names the source's own encoding, in which rows are passed on as they come; empty: they are decoded, and WhyDecoded says
	// why, where source and sink both have an encoding of their own.
	Encoding   string
	WhyDecoded string
}

// ColumnReport is how one column will be stored.
type ColumnReport struct {
	connector.Mapping
	Type   record.Type      // as the sink will get it
	Policy connector.Policy // for values that do not fit
}

// ProbeReport is a probe, with the connector that made it.
type ProbeReport struct {
	Where string // source, or the sink's name
	connector.Probe
}
