package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// hideTyping keeps what is typed ahead out of the terminal's text until a line is read; it is not lost.
func hideTyping(f *os.File) {
	if state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
		state.Lflag &^= unix.ECHO
		_ = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, state)
	}
}
