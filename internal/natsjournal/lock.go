package natsjournal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// LockFile is the name of the lock in the folder of an embedded store.
const LockFile = "opledger.lock"

// ErrLocked is returned when another process has the folder.
var ErrLocked = errors.New("natsjournal: store folder is locked")

// DirLock is the right to run the embedded server on a folder. The server has
// no lock of its own: two servers on one folder both start and both
// acknowledge into it (nats-server 2.15).
type DirLock struct{ f *os.File }

// Lock takes the folder, creating it if need be. The error wraps ErrLocked and
// names the holder's process id if another process has it. The lock ends with
// Close or with the process, however it dies.
func Lock(dir string) (*DirLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("natsjournal: lock %s: %w", dir, err)
	}
	path := filepath.Join(dir, LockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("natsjournal: lock %s: %w", dir, err)
	}
	if err := flock(f); err != nil {
		holder := holderOf(f)
		_ = f.Close()
		if errors.Is(err, ErrLocked) {
			return nil, fmt.Errorf("%w: %s is held by process %s", ErrLocked, dir, holder)
		}
		return nil, fmt.Errorf("natsjournal: lock %s: %w", dir, err)
	}
	if err := write(f, strconv.Itoa(os.Getpid())+"\n"); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("natsjournal: lock %s: %w", dir, err)
	}
	return &DirLock{f: f}, nil
}

// Close gives the folder back. The file stays: removing it would let two
// processes lock two files of the same name.
func (l *DirLock) Close() error { return l.f.Close() }

func write(f *os.File, text string) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

func holderOf(f *os.File) string {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return pid
	}
	return "(unknown)"
}
