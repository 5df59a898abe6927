// Command bench measures leat on whole jobs beside the limit of the machine and, where they are installed, other tools: wall time,
// CPU time and peak memory of each process, several rounds in turn (A B A B), medians. It writes docs/PERFORMANCE.md.
//
//	make bench-jobs                 # all jobs
//	make bench-jobs JOB=csv-jsonl   # one: its section of the page is replaced
//	make bench-jobs JOB=fanout      # all whose names begin so
package main
