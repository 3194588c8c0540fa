//go:build !unix

package reward

import "os/exec"

// alone does nothing: there are no process groups.
func alone(*exec.Cmd) {}

// kill ends a program.
func kill(cmd *exec.Cmd) {
	cmd.Process.Kill() //nolint:errcheck // it may have ended
}
