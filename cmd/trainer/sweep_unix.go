//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// apart keeps a terminal's Ctrl-C from a process: it is forwarded once, and a second one would stop the run at once.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
