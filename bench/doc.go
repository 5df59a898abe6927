// Command bench measures leat on whole jobs beside the limits of the machine and other tools: wall time, CPU time and peak memory, in
// rounds of
// shuffled order. It compares what leat wrote with the source, keeps the figures in bench/results, and makes docs/PERFORMANCE.md of them.
//
//	make bench                   # all jobs but those that take long
//	make bench JOB=csv-jsonl     # one
//	make bench JOB=stream        # all whose names begin so
//	make bench JOB=all           # also growth, soak and csv-10gb
//	make bench-page              # the page alone, of the results that are there
//	make bench-smoke             # every job once, tiny, only to see that it works
//
// A job ([job]) prepares its data and names contenders: leat's ways and the limits; peersOf adds other tools. A target ([target]) is
// worked out of
// results, and counts only if they are of the full size and leat's outputs were compared.
package main
