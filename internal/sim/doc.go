// Package sim is a world to run pipelines in: a source, sinks and a state store that live in memory, know what is durable and what is
// not, and fail where a seed says so.
//
// A [World] outlives the processes that are simulated in it. Every call into it is a step with a number. A plan of faults makes the
// world crash before or after a step takes effect, answer with a transient error, or hide the outcome; after a crash nothing has any
// effect until [World.Restart], which forgets what was not durable. What an engine may never do (acknowledge what is not durable,
// use a retired value) is noted as a violation when it happens.
//
// It is meant for testing/synctest bubbles: stalls are sleeps on the bubble's clock.
package sim
