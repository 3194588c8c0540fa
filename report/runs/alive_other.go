//go:build !unix

package runs

import "os"

// Alive reports whether a process of this machine runs.
func Alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	p, err := os.FindProcess(pid) // opens the process if it exists
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}
