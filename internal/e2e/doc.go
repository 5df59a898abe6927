// Package e2e holds the tests that need several connectors at once, or the real binary: every pair of systems with every type, and
// runs that are killed and started again. It has no code of its own.
package e2e
