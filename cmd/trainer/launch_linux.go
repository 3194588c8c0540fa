package main

import (
	"os/exec"
	"syscall"
)

// tie keeps a terminal's signals from a process, to which they are handed on once, and ends it with the thread that
// starts it: even where launch is killed, nothing is left running.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
