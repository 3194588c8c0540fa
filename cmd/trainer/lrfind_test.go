package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train/lrfind"
)

// TestLRFindCommand: what is printed, as text and as JSON, and the files that --out writes and replaces.
func TestLRFindCommand(t *testing.T) {
	dir := t.TempDir()
	find := []string{"lr-find", "cpu_stories_quick.yaml", "--steps", "10", "--set", "dataset.max_length=48"}
	for _, out := range []string{"lr.html", "lr.md", "lr.json"} {
		code, text, errOut := inProcess(t, dir, append(find, "--out", out)...)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, errOut)
		}
		for _, want := range []string{`(?m)^smoothed loss by learning rate, as a power of ten$`, `(?m)^ +−6 .* −1$`,
			`(?m)^steps          10, 1\.00e-06 to 1\.00e-01$`, `(?m)^suggestion     \S`, `(?m)^configured     1\.00e-03$`,
			`(?m)^chart          ` + regexp.QuoteMeta(out) + `$`} {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("it prints\n%s\nwithout %s", text, want)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, out)); err != nil {
			t.Error(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "lr.json"))
	var r lrfind.Report
	if err != nil || json.Unmarshal(data, &r) != nil || len(r.Points) != 10 {
		t.Errorf("%v: %s", err, data)
	}
	code, out, errOut := inProcess(t, dir, append(find, "--json", "--out", "lr.json")...)
	var printed lrfind.Report
	if err := json.Unmarshal([]byte(out), &printed); err != nil || code != 0 || printed.Points[9] != r.Points[9] {
		t.Errorf("exit code %d, %v: %s%s", code, err, out, errOut)
	}
	if err := os.WriteFile(filepath.Join(dir, "mine.html"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := trainer(t, dir, nil, "", append(find, "--out", "mine.html")...); code != exitUsage ||
		!strings.Contains(errOut, "mine.html") {
		t.Errorf("a file of a person is replaced: exit code %d, %s", code, errOut)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
		t.Error("output_dir was made")
	}
}
