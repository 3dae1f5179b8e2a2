package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc, the same on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// Positions in /proc/<pid>/stat after the name.
const (
	statParent = 1
	// statTimes to statChildren are utime, stime, and those of children that have
	// ended.
	statTimes, statChildren = 11, 15
)

// statOf returns the fields of /proc/<pid>/stat that follow the name, which
// stands in parentheses.
func statOf(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < statChildren {
		return nil, fmt.Errorf("compare: /proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}

// tree returns processes with all that descend from them.
func tree(roots []int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return nil, errors.New("compare: CPU and memory are read from /proc, which this system lacks")
	}
	children := make(map[int][]int)
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue // not a process
		}
		fields, err := statOf(pid)
		if err != nil {
			continue // it has ended
		}
		if parent, err := strconv.Atoi(fields[statParent]); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	var out []int
	for todo := roots; len(todo) > 0; todo = todo[1:] {
		out = append(out, todo[0])
		todo = append(todo, children[todo[0]]...)
	}
	return out, nil
}

// cpuTime is the CPU time that process trees have used.
func cpuTime(roots []int) (sum time.Duration, err error) {
	pids, err := tree(roots)
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		fields, err := statOf(pid)
		if err != nil {
			continue // it has ended; its parent counts it
		}
		t, err := ticks(fields[statTimes:statChildren])
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// ownTime is the CPU time of one process without its children.
func ownTime(pid int) (time.Duration, error) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, fmt.Errorf("compare: %w", err)
	}
	return ticks(fields[statTimes : statTimes+2])
}

// machineTime is the CPU time that the whole machine has used.
func machineTime() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("compare: %w", err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	f := strings.Fields(line)
	if len(f) < 9 {
		return 0, fmt.Errorf("compare: /proc/stat begins with %q", line)
	}
	// user, nice, system; not idle and iowait; irq, softirq, steal.
	return ticks(append(f[1:4:4], f[6:9]...))
}

func ticks(fields []string) (sum time.Duration, err error) {
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("compare: a time in /proc: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// memoryMiB is the memory of process trees; what several share counts once.
func memoryMiB(roots []int) (float64, error) {
	pids, err := tree(roots)
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return 0, fmt.Errorf("compare: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
				kib, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					return 0, fmt.Errorf("compare: /proc/%d/smaps_rollup: %w", pid, err)
				}
				sum += kib / 1024
			}
		}
	}
	return sum, nil
}

// loadAverage is that of the last minute, 0 where there is none.
func loadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}
