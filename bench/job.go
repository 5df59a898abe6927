package main

import (
	"context"
)

// contender is one way to do a job: a shell command, run with bash.
type contender struct {
	name     string
	version  string // of the tool; empty where it is the machine's own
	settings string // what differs from the tool's defaults, in words
	command  string // measured: its process and all that it waits for
	reset    string // run before each round, not measured
	limit    bool   // what the machine or the server can do at best, by which others are measured
	skip     string // why it can't run here; empty: it runs
	output   string // a file or folder whose size is recorded; empty: none
	rows     int64  // rows or changes that it moves; 0: as many as the job has
	figures  string // a file in which the command leaves measured as JSON: what is there is taken instead of the process' own. Empty: none

	// complete says after every round whether the command did all of its work; nil: nothing is asked.
	complete func(ctx context.Context) error
	// verify compares what the command left behind, value by value; nil: nothing is compared. It is not measured. dir is the job's
	// folder.
	verify func(ctx context.Context, dir string) error
}

// jobEnv is what a job's contenders are told: where they work, and on what. What a job does not have is empty.
type jobEnv struct {
	dir   string // the job's folder: inputs are there, outputs go there. It is deleted at the end
	cache string // where tools are installed, and stay: .dev/bench
	leat  string // the binary that is measured
	self  string // the program of the benchmarks: it makes rows, too
	meter string // the program that runs what is measured
	rows  int64  // rows or changes of the input

	csv     string // the input as CSV with a header
	parquet string // the input as Parquet

	postgres string // URL of the source's database, over TCP
	socket   string // the same over a unix socket
	source   string // table to read, with its schema
	into     string // URL of the target's database
	target   string // table to write, with its schema
	create   string // SQL that makes the target anew, empty
	fresh    string // a shell command that makes the target what it was when slot began: for a contender's reset

	kafka string // brokers; empty: there are none

	// Of jobs that follow changes. A contender's reset copies slot under a name of its own (pg_copy_logical_replication_slot).
	slot        string // a replication slot (pgoutput) behind which all changes of the job wait
	publication string
	end         string // LSN at which the changes end
}

// job is one workload.
type job struct {
	name    string
	title   string
	note    string
	rows    int64 // at full scale
	largest int64 // rows at the most; 0: as many as the scale says
	least   int   // rounds at the least
	most    int   // rounds at the most; 0: as asked for
	alone   bool  // only where it is named: it takes long, or much room

	// prepare makes the data, says in e where it is, and describes it in words.
	prepare func(ctx context.Context, e *jobEnv) (string, error)
	// contenders returns leat's ways and the limits; peersOf adds the others.
	contenders func(e jobEnv) []contender
	// measure runs a contender's command in a way of its own; nil: as it is.
	measure func(ctx context.Context, e jobEnv, c contender) (measured, error)
	// servers says that the job needs databases.
	servers bool
	// drop removes what the job left elsewhere than in its folder and databases; nil: there is no such thing.
	drop func(ctx context.Context, e jobEnv) error
}

// run measures one run of a contender.
func (j job) run(ctx context.Context, e jobEnv, c contender) (measured, error) {
	if j.measure != nil {
		return j.measure(ctx, e, c)
	}
	return measure(ctx, e, c)
}

// jobs returns all workloads, in the order of the page. most is the largest size of those that grow.
func jobs(most int64) []job {
	all := []job{csvJSONL(), csvParquet(), csvDuckDB(), parquetPostgres()}
	all = append(all, postgresCopies()...)
	all = append(all, postgresParquet())
	all = append(all, streams()...)
	all = append(all, lanesSynced(), latencyJob(), startJob(), fanoutCopy("jsonl"), fanoutCopy("parquet"), fanoutFollow())
	return append(all, bigCSV(), growthJob(most), soakJob())
}
