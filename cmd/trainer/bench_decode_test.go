package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestBenchDecodeRefuses: flags that do not go with --decode, and --decode without what it needs.
func TestBenchDecodeRefuses(t *testing.T) {
	for flags, want := range map[string]string{
		"--shape smollm2-135m --slots 2": "--slots goes with --decode",
		"--decode cpu_stories_quick.yaml": "--decode times generation of a model's shape: name " +
			"one with --shape",
		"--shape smollm2-135m --decode --batch 2": "--batch is of training steps; it does not go with " +
			"--decode",
		"--shape smollm2-135m --decode --slots 0":  "--slots 0: 1 to 256 sequences",
		"--shape smollm2-135m --decode --length 0": "--length 0: at least one token",
		"--shape smollm2-135m --decode --compare report.json": "--compare is of training steps; it does not go with " +
			"--decode",
	} {
		var out, errOut bytes.Buffer
		code := run(append([]string{"bench"}, strings.Fields(flags)...), strings.NewReader(""), &out, &errOut)
		if code != exitUsage || errOut.String() != "trainer: "+want+"\n" {
			t.Errorf("%s: exit code %d, %q, want %q", flags, code, errOut.String(), want)
		}
	}
}
