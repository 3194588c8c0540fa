//go:build !linux

package main

import "os/exec"

// tie keeps a terminal's signals from a process. On this system the process outlives a launch that is killed.
func tie(cmd *exec.Cmd) { apart(cmd) }
