//go:build unix

package runs

import (
	"errors"
	"syscall"
)

// Alive tells whether a process of this machine runs.
func Alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0) // asks, and sends nothing
	return err == nil || errors.Is(err, syscall.EPERM)
}
