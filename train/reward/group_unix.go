//go:build unix

package reward

import (
	"os/exec"
	"syscall"
)

// alone gives a program a process group of its own, so that all of it can be killed.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// kill ends a program with the processes that it has started.
func kill(cmd *exec.Cmd) {
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
}
