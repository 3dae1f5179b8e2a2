package barrier

import (
	"errors"
	"os"
	"syscall"
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
