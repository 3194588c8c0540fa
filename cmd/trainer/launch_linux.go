package main

import (
	"os/exec"
	"syscall"
)

// tie keeps a terminal's signals from a process, because launch forwards each signal once. It also makes the kernel
// kill the process with the thread that started it, so that nothing is left running if launch is killed.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
