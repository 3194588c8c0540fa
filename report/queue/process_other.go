//go:build !unix

package queue

import (
	"errors"
	"os/exec"
)

// alone leaves a process as it is: this system has no sessions.
func alone(*exec.Cmd) {}

func terminate(int) error {
	return errors.New("this system can't ask a process to save and end: press Ctrl-C where it was started")
}

// hasOpen: this system does not say what a process has open.
func hasOpen(int, string) (open, known bool) { return false, false }
