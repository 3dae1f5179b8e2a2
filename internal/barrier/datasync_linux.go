package barrier

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// datasync syncs the content of a file and what is needed to read it.
func datasync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// dropCache has the content of a file, which is clean, read from the disk again.
func dropCache(f *os.File) error {
	return os.NewSyscallError("fadvise", unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
