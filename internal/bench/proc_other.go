//go:build !linux

package bench

import (
	"errors"
	"time"
)

func cpuTime(int) (time.Duration, error) {
	return 0, errors.New("bench: CPU and memory of a process are read from /proc, which this system lacks")
}

func residentMiB(int) float64 { return 0 }

// Flushes is not known here.
func Flushes(string) int64 { return -1 }
