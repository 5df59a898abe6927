// Package benchtest has the rows that benchmarks work with, and how these report what a row takes. make allocs compares that.
package benchtest
