package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
)

func TestGenerateDevice(t *testing.T) {
	cuda := exitUnfit
	if n, _ := graph.GPUs(); n > 0 {
		cuda = exitDone
	}
	for device, want := range map[string]int{"cpu": exitDone, "auto": exitDone, "cuda": cuda, "tpu": exitUsage} {
		var out, errOut bytes.Buffer
		code := run([]string{"generate", "--model", "embedded:stories260K", "--prompt", "Once upon", "--max-tokens", "3", "--device", device}, strings.NewReader(""), &out, &errOut)
		if code != want || (code == exitDone) != (out.Len() > 0) || (code != exitDone) != strings.Contains(errOut.String(), device) {
			t.Errorf("--device %s: exit code %d, want %d; %q, %q", device, code, want, out.String(), errOut.String())
		}
	}
}
