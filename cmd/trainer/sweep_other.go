//go:build !unix

package main

import "os/exec"

// apart does nothing: Windows sends Ctrl-C to all processes of a console itself, and no signal can be forwarded.
func apart(*exec.Cmd) {}
