//go:build unix

package tier

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// ownGroup starts the command in a process group of its own, so that what it starts ends with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(cmd *exec.Cmd, s syscall.Signal) { syscall.Kill(-cmd.Process.Pid, s) } //nolint:errcheck // it may be gone

func askStacks(cmd *exec.Cmd) { signalGroup(cmd, syscall.SIGQUIT) }
func askStop(cmd *exec.Cmd)   { signalGroup(cmd, syscall.SIGTERM) }
func kill(cmd *exec.Cmd)      { signalGroup(cmd, syscall.SIGKILL) }

// peakMemory is the most bytes that a process had resident, mapped pages of files counted.
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
