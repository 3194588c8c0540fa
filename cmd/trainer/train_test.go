package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatARunSays: before the first step at most eight lines, the reports in full in the run's log or with -v, and at
// the end commands that use the adapter, of which each can be given.
func TestWhatARunSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := func(name string, more ...string) []string {
		return append([]string{"train", "cpu_stories_quick", "--set", "training.max_steps=2", "--set",
			"training.logging_steps=1", "--set", "expect.loss_decrease=0",
			"--set", "output_dir=" + name, "--workers", "2"}, more...)
	}
	code, _, errOut := trainer(t, dir, nil, "", args("short")...)
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, errOut)
	}
	before, _, _ := strings.Cut(errOut, "step 1/2")
	lines := strings.Split(strings.TrimSpace(before), "\n")
	if len(lines) > 8 {
		t.Errorf("%d lines before the first step:\n%s", len(lines), before)
	}
	for i, label := range []string{"data ", "model ", "run ", "memory ", "log "} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], label) {
			t.Errorf("line %d does not begin with %q:\n%s", i, label, before)
		}
	}
	_, next, ok := strings.Cut(errOut, "next     trainer generate --adapter short --prompt TEXT\n")
	if !ok || !strings.Contains(next, "trainer report short --out short.html\n") ||
		!strings.Contains(next, "trainer export --format gguf --adapter short --out short.gguf\n") {
		t.Errorf("the end is\n%s", errOut)
	}
	log, err := os.ReadFile(filepath.Join(dir, "short", "train.log"))
	if err != nil || !strings.Contains(string(log), "  rows: 300 read") || !strings.Contains(string(log),
		"  frozen weights ") {
		t.Errorf("%v; the log is\n%s", err, log)
	}
	code, _, errOut = trainer(t, dir, nil, "", args("long", "-v")...)
	if code != 0 || !strings.Contains(errOut, "\n  rows: 300 read") ||
		!strings.Contains(errOut, "\n  frozen weights ") || strings.Contains(errOut, "-v shows them") {
		t.Errorf("-v: exit code %d\n%s", code, errOut)
	}
	short := append([]string{"cpu_stories_quick.yaml"}, args("short-form", "-v")[2:]...)
	if code, out, errOut := trainer(t, dir, nil, "", short...); code != 0 ||
		!strings.Contains(errOut, "\n  rows: 300 read") {
		t.Errorf("trainer FILE -v: exit code %d\n%s%s", code, out, errOut)
	}
	if code, out, errOut := trainer(t, dir, nil, "", args("quiet", "-q")...); code != 0 ||
		strings.Contains(errOut, "next ") || strings.Contains(errOut, "model ") || !strings.HasPrefix(out, "steps ") {
		t.Errorf("-q: exit code %d\n%s%s", code, out, errOut)
	}
	code, out, _ := trainer(t, dir, nil, "", "-v")
	if code != 0 || !strings.HasPrefix(out, "trainer ") {
		t.Errorf("trainer -v: exit code %d, %s", code, out)
	}
}

func TestNextSteps(t *testing.T) {
	got := nextSteps("my runs/a", "my runs/a", 60)
	want := `next     trainer generate --adapter 'my runs/a' \
             --prompt TEXT
         trainer report 'my runs/a' --out 'my runs/a.html'
         trainer export --format gguf \
             --adapter 'my runs/a' --out 'my runs/a.gguf'`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
