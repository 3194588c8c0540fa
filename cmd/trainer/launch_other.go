//go:build !linux

package main

import "os/exec"

// tie keeps a terminal's signals from a process. Only Linux ends it where launch is killed.
func tie(cmd *exec.Cmd) { apart(cmd) }
