package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// dieWithParent makes a child end with this process, however it dies.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// frozen reports whether every thread of a process is stopped: the signal is on
// its way when the call that sends it returns.
func frozen(pid int) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false, fmt.Errorf("child: process %d is gone", pid)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		// The state follows the name, which stands in parentheses.
		_, after, ok := bytes.Cut(stat, []byte(") "))
		if !ok || len(after) == 0 || after[0] != 'T' {
			return false, nil
		}
	}
	return true, nil
}
