//go:build !unix

package main

import "os/exec"

// apart does nothing: Windows tells a console's processes of Ctrl-C itself, and no signal can be handed on.
func apart(*exec.Cmd) {}
