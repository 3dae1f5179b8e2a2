package demo

import "syscall"

// dieWithParent makes a child end with this process, however it dies.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
