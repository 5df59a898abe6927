// Command leat moves data and keeps it moved. leat --help lists its commands and exit codes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connectors/all"
	"github.com/leatdata/leat/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	tuneMemory(os.LookupEnv, memlimit.FromCgroup)
	reg, err := all.All()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leat:", err)
		return cli.ExitFailed
	}
	app := cli.App{
		Registry: reg, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Lookup: config.SystemLookup(), Now: time.Now, Drain: signals(),
	}
	return app.Run(context.Background(), os.Args[1:])
}

// signals returns a channel that the first ^C or SIGTERM closes. The second one ends the process at once, which loses nothing: what was
// not saved is read again.
func signals() <-chan struct{} {
	drain := make(chan struct{})
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ch
		close(drain)
		<-ch
		os.Exit(cli.ExitInterrupted)
	}()
	return drain
}

const (
	// gcPercent lets garbage grow to twice what lives: batches are short-lived and what lives is small.
	gcPercent = 200
	// memoryLimit is where collection gets eager, so that a bulk copy stays below 256 MB with all that is no Go memory: the program
	// itself, SQLite, DuckDB.
	memoryLimit = 112 << 20
)

// tuneMemory sets the garbage collector to bulk copies, unless the user set it. Where a container allows less memory, Go's part is at
// most half of that. Buffers follow the limit, see engine.Plan.Memory.
func tuneMemory(env func(string) (string, bool), container func() (uint64, error)) {
	if _, set := env("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	if _, set := env("GOMEMLIMIT"); set {
		return
	}
	limit := uint64(memoryLimit)
	if most, err := container(); err == nil && most > 0 { // an error: no limit is known
		limit = min(limit, most/2)
	}
	debug.SetMemoryLimit(int64(limit))
}
