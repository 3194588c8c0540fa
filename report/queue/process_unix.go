//go:build unix

package queue

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// alone gives a process a session of its own, so that neither a closed terminal nor the end of this process ends it.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func terminate(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	return nil
}

// hasOpen reports whether a process has a file open; known is false if the system does not report it.
func hasOpen(pid int, path string) (open, known bool) {
	if runtime.GOOS != "linux" {
		return false, false
	}
	want, err := os.Stat(path)
	if err != nil {
		return false, true
	}
	fds := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	names, err := os.ReadDir(fds)
	if err != nil {
		return false, true
	}
	for _, n := range names {
		if info, err := os.Stat(filepath.Join(fds, n.Name())); err == nil && os.SameFile(info, want) {
			return true, true
		}
	}
	return false, true
}
