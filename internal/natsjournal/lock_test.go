//go:build unix

package natsjournal

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

const lockHelper = "OPLEDGER_TEST_LOCK_DIR"

// TestMain lets the test binary be the process that holds a lock.
func TestMain(m *testing.M) {
	if dir := os.Getenv(lockHelper); dir != "" {
		if _, err := Lock(dir); err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("locked\n")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until killed
		return
	}
	os.Exit(m.Run())
}

func TestStoreFolderHasOneOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Lock(dir)
	wantError(t, err, ErrLocked)
	if !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v, want the holder's process id in it", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// A killed process leaves no lock behind.
func TestStoreFolderIsFreeAfterItsOwnerIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), lockHelper+"="+dir)
	in, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "locked\n" {
		t.Fatalf("owner said %q, error %v", line, err)
	}
	_, err = Lock(dir)
	wantError(t, err, ErrLocked)
	if !strings.Contains(err.Error(), strconv.Itoa(owner.Process.Pid)) {
		t.Errorf("got %v, want process id %d in it", err, owner.Process.Pid)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	l, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}
