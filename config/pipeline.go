package config

import (
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/transform"
)

// Pipeline is a pipeline file, decoded: one source, transforms, and one or more sinks.
type Pipeline struct {
	Name       string
	Guarantee  connector.Guarantee // what is asked for; the zero value takes the best that is reached
	Source     Source
	Transforms Transforms // applied once, before the sinks
	Sinks      []Sink     // in the order of the file
	BadRows    *BadRows   // for rows that can't be read or transformed, and for sinks that say nothing else; nil: stop
	// DeadLetters is a sink that gets every row that was set aside, besides what is kept of it; nil: none. Only its connector, its
	// configuration and its mode count.
	DeadLetters *Sink
	Limit       int64  // rows of each dataset; 0: all
	BatchRows   int    // rows of a batch; 0: the engine's default
	Snapshot    string // of a source that is followed, what is copied of what is there already: first (or empty), none, only
	Once        bool   // of a source that is followed: end where its changes end when the run starts
	Lanes       Lanes  // of a source that is followed
}

// Source is the source's connector and its configuration.
type Source struct {
	Connector string
	Config    connector.SourceConfig
}

// Sink is one sink.
type Sink struct {
	Name       string
	Connector  string
	Config     connector.SinkConfig
	Mode       *connector.WriteMode        // nil: the connector's default
	Key        []string                    // key columns of every dataset; empty: what the source says
	Keys       map[string][]string         // key columns by dataset, before Key
	Policies   map[string]connector.Policy // by column, by dataset and column ("orders.total"), or by "*" for all
	BadRows    *BadRows                    // nil: the pipeline's
	Transforms Transforms                  // applied for this sink alone
	Deletes    string                      // rows that are gone from the source: keep (or empty), hard, soft; needs mode upsert
	Schema     map[string]string           // of a source that is followed, what happens when columns change, by dataset or by "*"
}

// Transforms are the steps of a pipeline or a sink.
type Transforms struct {
	Steps []transform.Step
	Text  string // canonical text of the steps, without secrets: part of a pipeline's durable identity; empty: none
}

// BadRows is what happens to rows that can't be carried.
type BadRows struct {
	SetAside bool  // keep them in the reject store and go on; false: stop the run
	Limit    int64 // with SetAside: more than this many stop the run; 0: no limit
	// PerDataset is the same for the rows of each dataset.
	PerDataset int64
}
