// Package cli is the command line of leat: one file for each command, and around them what they share: how a pipeline becomes a plan
// (plan.go), where state is kept (home.go), progress (progress.go, bars.go), the summary (summary.go), messages (message.go), and the
// one place through which everything goes that might show a secret (redact.go).
//
// Data goes to standard output, everything else to standard error. [App.Run] returns the exit code and never ends the process.
package cli
