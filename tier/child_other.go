//go:build !unix

package tier

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func askStacks(cmd *exec.Cmd) { kill(cmd) }
func askStop(cmd *exec.Cmd)   { kill(cmd) }
func kill(cmd *exec.Cmd)      { cmd.Process.Kill() } //nolint:errcheck // it may be gone

// peakMemory returns 0: this system does not report the peak memory.
func peakMemory(*os.ProcessState) int64 { return 0 }
