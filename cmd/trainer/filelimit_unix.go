//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// ignoreFileLimit makes a limit on the size of files (ulimit -f) an error of the write, not the end of the process.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }
