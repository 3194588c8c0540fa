//go:build unix

package tier

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// ownGroup starts the command in a process group of its own, so that its child processes end with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// it may be gone.
func signalGroup(cmd *exec.Cmd, s syscall.Signal) { syscall.Kill(-cmd.Process.Pid, s) } //nolint:errcheck

func askStacks(cmd *exec.Cmd) { signalGroup(cmd, syscall.SIGQUIT) }
func askStop(cmd *exec.Cmd)   { signalGroup(cmd, syscall.SIGTERM) }
func kill(cmd *exec.Cmd)      { signalGroup(cmd, syscall.SIGKILL) }

// peakMemory returns the largest resident size of a process in bytes, including mapped pages of files.
func peakMemory(p *os.ProcessState) int64 {
	usage, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return usage.Maxrss
	}
	return usage.Maxrss << 10
}
