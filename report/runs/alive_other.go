//go:build !unix

package runs

import "os"

// Alive tells whether a process of this machine runs.
func Alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	p, err := os.FindProcess(pid) // opens it where there is one
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}
