// Command meter runs a shell command and says what it took: meter FILE COMMAND writes wall time, CPU time and the largest resident set to
// FILE.
//
// It is a program of its own because a process inherits, as its peak, the memory of the one that starts it: this one is small.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// said is what FILE has, as JSON: seconds and bytes, of the command and of all processes that it waited for.
type said struct {
	Wall float64 `json:"wall"`
	CPU  float64 `json:"cpu"`
	RSS  int64   `json:"rss"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "meter FILE COMMAND")
		os.Exit(2)
	}
	code, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "meter:", err)
	}
	os.Exit(code)
}

// run returns the command's exit code.
func run(file, command string) (code int, err error) {
	cmd := exec.Command("bash", "-o", "pipefail", "-c", command) //nolint:noctx // it ends by the signals that are passed on
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 1, err
	}
	s := said{Wall: time.Since(start).Seconds(), CPU: (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		s.RSS = u.Maxrss << 10 // Linux counts kilobytes
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return 1, err
	}
	return max(cmd.ProcessState.ExitCode(), 0) | killed(cmd.ProcessState), nil
}

// killed is the code of a process that a signal ended, as shells say it; 0: it ended by itself.
func killed(p *os.ProcessState) int {
	if s, ok := p.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return 0
}
