//go:build !unix

package queue

import (
	"errors"
	"os/exec"
)

// alone leaves the command unchanged: this system has no sessions.
func alone(*exec.Cmd) {}

func terminate(int) error {
	return errors.New("this system can't ask a process to save and end: press Ctrl-C where it was started")
}

// hasOpen returns known false: this system does not report the open files of a process.
func hasOpen(int, string) (open, known bool) { return false, false }
