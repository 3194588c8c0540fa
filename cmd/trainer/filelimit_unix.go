//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// ignoreFileLimit makes a write beyond the file size limit (ulimit -f) fail with an error instead of ending the
// process.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }
