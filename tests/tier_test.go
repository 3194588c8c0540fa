package tests

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/tier"
)

// TestTierOnCPU: the tier that needs nothing but the program passes, and its report is there in all forms.
func TestTierOnCPU(t *testing.T) {
	dir := t.TempDir()
	o := run(t, dir, "tier", "cpu_stories_quick", "--set", "training.batch_size=1", "--report", "kept/one", "--json")
	if o.code != 0 || strings.Contains(o.stdout+o.stderr, "\x1b") {
		t.Fatalf("exit code %d\n%s", o.code, o.stderr)
	}
	var p tier.Report
	if err := json.Unmarshal([]byte(o.stdout), &p); err != nil {
		t.Fatal(err)
	}
	r := p.Tiers[0]
	if p.Status != tier.Pass || len(r.Steps) != 100 || r.Loss.Fall < 0.1 || r.Throughput.MedianMs <= 0 || len(p.Program.SHA256) != 64 || len(r.Memory.Samples) == 0 || len(p.Environment) == 0 {
		t.Errorf("%+v", r)
	}
	for name, want := range map[string]string{tier.ReportJSON: `"schema": "` + tier.Schema + `"`, tier.ReportMarkdown: "cpu_stories_quick", tier.ReportHTML: "<svg"} {
		if !strings.Contains(read(t, dir, "kept", "one", name), want) {
			t.Errorf("%s has no %s", name, want)
		}
	}
	if again := run(t, dir, "tier", "cpu_stories_quick", "--report", "kept/one"); again.code != 2 || !strings.Contains(again.stderr, "of an earlier validation: name another folder") {
		t.Errorf("into the same folder: exit code %d\n%s", again.code, again.stderr)
	}
}

// TestTierWithoutGPU: no GPU is a failure, in a report, also for all tiers; the others are skipped or fail too.
func TestTierWithoutGPU(t *testing.T) {
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := func(args ...string) (int, string) {
		cmd := exec.Command(filepath.Join(golden.Root(t), "scripts", "gpu-test.sh"), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "TRAINER="+program, "CUDA_VISIBLE_DEVICES=")
		text, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Skip("scripts/gpu-test.sh needs bash: ", err)
		}
		return cmd.ProcessState.ExitCode(), string(text)
	}
	if code, text := script("quick", "--report", "one"); code != 3 || !strings.Contains(text, "FAIL   a usable GPU: exit code 3: trainer: no GPU: ") || !strings.Contains(text, "0 of 1 passed, 1 failed, 0 skipped") {
		t.Errorf("exit code %d, want 3\n%s", code, text)
	}
	if !strings.Contains(read(t, dir, "one", tier.ReportMarkdown), "a usable GPU") {
		t.Errorf("report.md:\n%s", read(t, dir, "one", tier.ReportMarkdown))
	}
	if code, text := script("all", "--report", "two", "--allow-skip"); code != 3 || !strings.Contains(text, "1 failed, 4 skipped") || !strings.Contains(text, "skip   full               quick failed before it; --continue-on-error goes on") {
		t.Errorf("exit code %d, want 3\n%s", code, text)
	}
	if code, text := script("all", "--report", "three", "--continue-on-error"); code != 3 || !strings.Contains(text, "5 failed, 0 skipped") {
		t.Errorf("exit code %d, want 3\n%s", code, text)
	}
	for want, args := range map[string][]string{
		`there is no tier "quickly"; there are quick, convergence, memory, extended, full, `: {"quickly"},
		"name a tier: quick, convergence, memory, extended, full, ":                          {},
		"tiers of different sizes: write --base 135m=DIR, --base 1.1b=DIR, --base 7b=DIR":    {"all", "--base", "x"},
		"--time-limit -1s: must be above 0":                                                  {"quick", "--time-limit", "-1s"},
	} {
		if code, text := script(args...); code != 2 || !strings.Contains(text, want) {
			t.Errorf("%q: exit code %d, want 2\n%s", args, code, text)
		}
	}
	if code, text := script("--list"); code != 0 || !strings.Contains(text, "gpu_llama7b_full") {
		t.Errorf("--list: exit code %d\n%s", code, text)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
		t.Error("a mistaken command line made a folder")
	}
}

// TestTierOfEditedConfiguration: a configuration of the tier's name in the working folder wins, and one that names less
// than the tier does not pass, nor does another value by --set.
func TestTierOfEditedConfiguration(t *testing.T) {
	dir := t.TempDir()
	text := read(t, golden.Root(t), "configs", "cpu_stories_quick.yaml")
	for i, c := range []struct{ from, to, want string }{
		{"max_steps: 100", "max_steps: 99", "FAIL   the configuration names what the tier runs: training.max_steps is 99, the tier has 100"},
		{"adapter: qlora", "adapter: lora", "FAIL   the configuration names what the tier runs: adapter is lora, the tier has qlora"},
		{"double_quant: true", "double_quant: false", "quantization.double_quant is false, the tier has true"},
		{"max_steps: 100", "max_step: 100", "unknown key"},
	} {
		edited := strings.Replace(text, c.from, c.to, 1)
		if strings.Contains(c.to, "lora") {
			before, rest, _ := strings.Cut(edited, "quantization:")
			_, after, _ := strings.Cut(rest, "dataset:")
			edited = before + "dataset:" + after
		}
		if edited == text {
			t.Fatalf("the configuration has no %q", c.from)
		}
		write(t, filepath.Join(dir, "configs", "cpu_stories_quick.yaml"), edited)
		if o := run(t, dir, "tier", "cpu_stories_quick", "--report", string(rune('a'+i))); o.code != 1 || !strings.Contains(o.stdout, c.want) {
			t.Errorf("%s: exit code %d\n%s%s", c.to, o.code, o.stdout, o.stderr)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "configs")); err != nil {
		t.Fatal(err)
	}
	if o := run(t, dir, "tier", "cpu_stories_quick", "--report", "set", "--set", "training.max_steps=9"); o.code != 1 || !strings.Contains(o.stdout, "training.max_steps is 9, the tier has 100") {
		t.Errorf("--set: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}
