//go:build unix

package runs

import (
	"errors"
	"syscall"
)

// Alive reports whether a process of this machine runs.
func Alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0) // signal 0 checks the process and sends nothing
	return err == nil || errors.Is(err, syscall.EPERM)
}
