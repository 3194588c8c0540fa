package tests

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestPageMessages: the broken configuration of docs/TRAIN.md gives the messages that the page shows.
func TestPageMessages(t *testing.T) {
	_, block, ok := strings.Cut(read(t, golden.Root(t), "docs/TRAIN.md"), "$ cat bad.yaml\n")
	if !ok {
		t.Fatal("docs/TRAIN.md shows no bad.yaml")
	}
	block, _, _ = strings.Cut(block, "```")
	text, want, ok := strings.Cut(block, "$ trainer validate bad.yaml\n")
	if !ok {
		t.Fatal("docs/TRAIN.md does not validate bad.yaml")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bad.yaml"), text)
	if o := run(t, dir, "validate", "bad.yaml"); o.code != 2 || o.stdout != "" || o.stderr != want {
		t.Errorf("exit code %d, it says\n%s\nthe page says\n%s", o.code, o.stderr, want)
	}
}

// TestManifestHasTheCommit: the commit that the program was built from is in the manifest and in version --json. It is
// empty where the toolchain was told to leave it out.
func TestManifestHasTheCommit(t *testing.T) {
	dir := t.TempDir()
	mustRun(t, dir, "train", "cpu_stories_quick.yaml", "--quiet", "--set", "training.max_steps=2", "--set", "dataset.max_length=96", "--set", "expect.loss_decrease=0")
	type commit struct {
		Commit *string `json:"commit"`
		Dirty  *bool   `json:"dirty"`
	}
	parse := func(text string) commit {
		t.Helper()
		var c commit
		if err := json.Unmarshal([]byte(text), &c); err != nil || c.Commit == nil || c.Dirty == nil {
			t.Fatalf("no commit (%v) in\n%s", err, text)
		}
		return c
	}
	manifest := parse(read(t, dir, "runs/cpu_stories_quick/run_manifest.json"))
	version := parse(mustRun(t, dir, "version", "--json").stdout)
	if *manifest.Commit != *version.Commit || *manifest.Dirty != *version.Dirty {
		t.Errorf("the manifest has %s, %v; version has %s, %v", *manifest.Commit, *manifest.Dirty, *version.Commit, *version.Dirty)
	}
	cmd := exec.Command("git", "rev-parse", "HEAD")
	cmd.Dir = golden.Root(t)
	if head, err := cmd.Output(); err == nil && *version.Commit != "" && *version.Commit != strings.TrimSpace(string(head)) {
		t.Errorf("the commit is %q, git says %q", *version.Commit, head)
	}
}
