package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train/gradcheck"
)

// TestGradcheckCommand: what is printed, as text and as JSON, and what is refused.
func TestGradcheckCommand(t *testing.T) {
	dir := t.TempDir()
	check := []string{"gradcheck", "cpu_stories_quick.yaml", "--tokens", "48", "--layers", "2", "--show", "1"}
	code, out, errOut := trainer(t, dir, nil, "", check...)
	if code != 0 || errOut != "" {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	for _, want := range []string{`(?m)^model    embedded:stories260K, the first 2 of 5 layers, then the final norm ` +
		`and the head$`, `(?m)^device   cpu, fp32, compared with float64 on the CPU$`,
		`(?m)^data     48 tokens, \d+ of them trained, of gsm8k_300\.jsonl:\d+ and 3 more$`,
		`(?m)^ +\S+ +\S+ +\S+ +\S+  base_model\.model\.model\.layers\.[01]\.\S+\.lora_[AB]\.weight$`,
		`(?m)^ +\S+ +\S+ +\S+ +\S+  all$`, `(?m)^\(the worst 1 of 28 tensors; --show 0 prints all\)$`,
		`(?m)^verdict  all within their limits$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("it prints\n%s\nwithout %s", out, want)
		}
	}
	code, out, errOut = trainer(t, dir, nil, "", append(check, "--json")...)
	var r gradcheck.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || !r.OK || r.Layers != 2 || r.OfLayers != 5 ||
		len(r.Tensors) != 28 {
		t.Errorf("exit code %d, %v: %s%s", code, err, out, errOut)
	}
	for flags, want := range map[string]string{
		"--tokens 1":  "--tokens 1: must lie in 2 to 65536",
		"--layers -1": "--layers -1: 0 for as many as are quick, or how many",
	} {
		if code, _, errOut := trainer(t, dir, nil, "", append([]string{"gradcheck", "cpu_stories_quick.yaml"},
			strings.Fields(flags)...)...); code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d, %s", flags, code, errOut)
		}
	}
}
