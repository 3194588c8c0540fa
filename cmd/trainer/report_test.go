package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
)

func TestReportCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, seed := range []string{"1", "2"} {
		args := append([]string{"train", "-q", "--set", "output_dir=run" + seed, "--set", "seed=" + seed, "--set",
			"expect.loss_decrease=0"}, small...)
		if code, _, errOut := trainer(t, dir, nil, "", args...); code != 0 {
			t.Fatal(errOut)
		}
	}
	before, err := os.ReadDir(filepath.Join(dir, "run1"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(code int, want string, args ...string) {
		t.Helper()
		got, out, errOut := trainer(t, dir, nil, "", append([]string{"report"}, args...)...)
		if got != code || !strings.Contains(out+errOut, want) {
			t.Errorf("report %v: exit code %d, want %d with %q:\n%s%s", args, got, code, want, out, errOut)
		}
	}
	page := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	check(0, "run1: finished: 3 steps in ", "run1")
	check(0, "page: report.html", "run1", "--title", "A <title>") // replaces the page before
	text := page("report.html")
	for _, want := range []string{report.Mark, "<h1>A &lt;title&gt;</h1>", "3 of 3",
		"<dt>base_model</dt><dd><b>embedded:stories260K</b>", "<dt>lora.alpha</dt>", "frozen weights",
		"Memory plan", "300 read"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	check(0, "# run1\n", "run1", "--out", "-")
	check(0, "page: both.md", "run1", "run2", "--out", "both.md")
	for _, want := range []string{report.MarkdownMark, "run1, 2 seeds", "| seed | 1 | 2 |"} {
		if text := page("both.md"); !strings.Contains(text, want) {
			t.Errorf("the comparison lacks %q:\n%s", want, text)
		}
	}
	check(0, `"status": "finished"`, "run1", "--json")

	// a folder stands for the runs below it, as it does for trainer ui; what has only a file of such a name is none
	trainer(t, dir, nil, "", append([]string{"train", "-q", "--set", "output_dir=more/failed", "--vram", "1MiB"},
		small...)...)
	for name, text := range map[string]string{"other/status.json": `{"state":"up"}`, "more/.hidden/metrics.jsonl": "",
		"more/notes/x": ""} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755),
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	check(0, "failed: failed, before the first step: the run does not fit: ", "more")
	check(0, "page: all.html", ".", "--out", "all.html")
	if code, out, _ := trainer(t, dir, nil, "", "report", ".", "run1", "--json"); code != 0 ||
		strings.Count(out, `"status": `) != 3 {
		t.Errorf("the runs below: exit code %d\n%s", code, out)
	}
	check(2, "other holds none of the files", "other")
	check(2, "more/notes holds none of the files", "more/notes")

	if err := os.WriteFile(filepath.Join(dir, "mine.html"), []byte("<p>mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	check(2, "there is a file that this command did not write", "run1", "--out", "mine.html")
	check(2, "takes the output folders of 1 to 100 runs, got 0")
	check(2, "nowhere", "nowhere")
	check(2, "both print", "run1", "--json", "--out", "-")
	if err := os.WriteFile(filepath.Join(dir, "run2", train.ConfigFile), []byte("a: &x [b]\nc: *x\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if check(0, "page: report.html", "run2"); !strings.Contains(page("report.html"), "it has an alias") {
		t.Error("the page does not say why it lists no settings")
	}
	if after, err := os.ReadDir(filepath.Join(dir, "run1")); err != nil || len(after) != len(before) {
		t.Errorf("the run's folder held %v, now %v (%v)", before, after, err)
	}
}

// The settings that differ are those that a run changed, and nothing else.
func TestSettingsThatDiffer(t *testing.T) {
	s := train.DefaultSpec()
	s.LoRA.R, s.Seed = 5, 7
	all, err := settingsOf(config.Render(s))
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	for _, x := range all {
		if x.Changed {
			changed = append(changed, x.Key+"="+x.Value+" not "+x.Default)
		}
	}
	if got := strings.Join(changed, " "); got != "lora.r=5 not 8 seed=7 not 42" || len(all) < 50 {
		t.Errorf("%d settings, changed: %s", len(all), got)
	}
}
