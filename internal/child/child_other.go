//go:build !linux

package child

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// frozen can't be seen here.
func frozen(int) (bool, error) { return true, nil }
