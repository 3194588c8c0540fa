package main

import (
	"strings"
	"testing"
)

// TestOldFlags: earlier spellings do what the present ones do, and no help lists them.
func TestOldFlags(t *testing.T) {
	dir := t.TempDir()
	for _, c := range [][2]string{
		{"generate --model embedded:stories260K --prompt Once --max-tokens 4 --quantization nf4",
			"generate --model embedded:stories260K --prompt Once --max-tokens 4 --quantize nf4"},
		{"inspect model --model embedded:stories260K", "inspect model embedded:stories260K"},
	} {
		code, out, errOut := trainer(t, dir, nil, "", strings.Fields(c[0])...)
		if oldCode, oldOut, _ := trainer(t, dir, nil, "", strings.Fields(c[1])...); code != 0 || oldCode != 0 ||
			out == "" || out != oldOut {
			t.Errorf("%s: exit code %d, %q: %s\n%s: exit code %d, %q", c[0], code, out, errOut, c[1], oldCode, oldOut)
		}
	}
	for _, command := range []string{"generate", "inspect model"} {
		_, out, _ := trainer(t, dir, nil, "", append(strings.Fields(command), "--help")...)
		if strings.Contains(out, "--quantize ") || strings.Contains(out, "model DIR |") {
			t.Errorf("%s lists an old spelling:\n%s", command, out)
		}
	}
}
