package main

import "context"

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

	// verify compares what the command left behind, value by value; nil: nothing is compared. It is not measured. dir is the job's folder.
	verify func(ctx context.Context, dir string) error
}

// jobEnv is what a job's contenders are told: where they work, and on what. What a job does not have is empty.
type jobEnv struct {
	dir   string // the job's folder: inputs are there, outputs go there. It is deleted at the end
	cache string // where tools are installed, and stay: .dev/bench
	leat  string // the binary that is measured
	rows  int64  // rows or changes of the input

	csv     string // the input as CSV with a header
	parquet string // the input as Parquet

	postgres string // URL of the source's database, over TCP
	socket   string // the same over a unix socket
	source   string // table to read, with its schema
	into     string // URL of the target's database
	target   string // table to write, with its schema: reset makes it, by the SQL of create
	create   string // SQL that makes the target anew, empty

	// Of jobs that follow changes. A contender's reset copies slot under a name of its own (pg_copy_logical_replication_slot)
	// and makes the target what it was when slot began.
	slot        string // a replication slot (pgoutput) behind which all changes of the job wait
	publication string
	end         string // LSN at which the changes end
}
