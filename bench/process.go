package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// sample is what a process had at some time of its run.
type sample struct {
	At      float64 `json:"at"` // seconds from its start
	RSS     int64   `json:"rss"`
	Threads int64   `json:"threads"`
	Files   int64   `json:"files"` // open file descriptors
	State   int64   `json:"state"` // bytes of its state folder
}

// lookAt takes a sample of a process; false: it has ended, or this system has no /proc.
func lookAt(pid int, since time.Time, state string) (sample, bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return sample{}, false
	}
	s := sample{At: time.Since(since).Seconds()}
	for line := range strings.SplitSeq(string(status), "\n") {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			s.RSS = n << 10
		case "Threads":
			s.Threads = n
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil || s.RSS == 0 {
		return sample{}, false
	}
	s.Files = int64(len(files))
	s.State, err = sizeOf(state)
	return s, err == nil
}

// childOf is the first process that another one started; 0: there is none, or it can't be seen.
func childOf(pid int) int {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0
	}
	for _, t := range threads {
		said, _ := os.ReadFile(t) // a thread may have ended
		if all := strings.Fields(string(said)); len(all) > 0 {
			child, _ := strconv.Atoi(all[0])
			return child
		}
	}
	return 0
}

// ticks is how many of /proc's units of time are in a second, on all of Linux' machines.
const ticks = 100

// processCPU is how many seconds of CPU a process has used; 0: it can't be seen.
func processCPU(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may have blanks: what follows it begins with field 3. User time is field 14, system time 15.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks
}
