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

// TestGenerateSampling: flags that are out of range are all named at once, and those in range decide what is said.
func TestGenerateSampling(t *testing.T) {
	generate := func(flags ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		code := run(append([]string{"generate", "--model", "embedded:stories260K", "--prompt", "Once upon a time", "--max-tokens", "24", "--device", "cpu"}, flags...), strings.NewReader(""), &out, &errOut)
		return code, out.String(), errOut.String()
	}
	code, _, said := generate("--min-p", "2", "--repetition-penalty", "0", "--frequency-penalty", "101", "--presence-penalty", "NaN", "--quantize", "q4")
	want := "trainer: --min-p 2: must lie in 0 to 1\n--repetition-penalty 0: must be above 0 and at most 100\n--frequency-penalty 101: must lie in -100 to 100\n" +
		"--presence-penalty NaN: must lie in -100 to 100\n--quantize q4: must be one of fp4, int8, nf4\n"
	if code != exitUsage || said != want {
		t.Errorf("exit code %d, %s\nwant %s", code, said, want)
	}
	_, plain, _ := generate()
	_, least, _ := generate("--temperature", "1.5", "--min-p", "1")
	if plain == "" || least != plain {
		t.Errorf("of the tokens that are as likely as the likeliest there is one: %q, without sampling %q", least, plain)
	}
	for _, flags := range [][]string{{"--repetition-penalty", "2"}, {"--quantize", "nf4"}, {"--temperature", "2", "--seed", "3"}} {
		code, other, said := generate(flags...)
		if code != exitDone || other == plain {
			t.Errorf("%v: exit code %d, %q as without; %s", flags, code, other, said)
		}
	}
}
