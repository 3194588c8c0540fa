package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// hideTyping turns off the terminal's echo until a line is read, so that keys typed ahead do not appear in the output.
// The keys are kept.
func hideTyping(f *os.File) {
	if state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
		state.Lflag &^= unix.ECHO
		_ = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, state)
	}
}
