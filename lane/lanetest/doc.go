// Package lanetest is the conformance kit of lane streams: what a [lane.Stream] and a [lane.Durable] promise, as tests that every
// implementation runs, and a [Disk], which is a storage in memory whose crashes and failures a test decides.
package lanetest
