package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestOwnConfigurationStays: output_dir: . where the user's configuration lies, and a folder with other files of theirs.
func TestOwnConfigurationStays(t *testing.T) {
	w := newWorkplace(t)
	w.write("other/tokenizer.json", "mine")
	w.write("other/metrics.csv", "mine")
	before := snapshot(t, w.dir)
	for _, resume := range []string{"", "auto"} {
		for dir, names := range map[string]string{".": "config.yaml", "other": "metrics.csv, tokenizer.json"} {
			o := run(t, w.dir, with("--set", "output_dir="+dir, "--set", "training.report_to=[csv]", "--set", "training.resume="+resume)...)
			want := "trainer: output_dir " + dir + " has " + names + ", which no run wrote and this one would replace: choose another output_dir\n"
			if o.code != 1 || !strings.HasSuffix(o.stderr, want) {
				t.Errorf("output_dir %s, resume %q: exit code %d\n%s", dir, resume, o.code, o.stderr)
			}
			if after := snapshot(t, w.dir); after != before {
				t.Fatalf("output_dir %s, resume %q: the files were\n%s\nare\n%s", dir, resume, before, after)
			}
		}
	}
	mustRun(t, w.dir, train...)
	again := with("--set", "training.max_steps=6")
	mustRun(t, w.dir, again...)
	if _, err := os.Stat(filepath.Join(w.dir, "out", "checkpoint-6")); err != nil {
		t.Errorf("a run can no longer be resumed: %v", err)
	}
}

// TestKilledMerge: a merge that was killed leaves nothing that refuses the next one into the same folder, be that new
// or one that the user made.
func TestKilledMerge(t *testing.T) {
	w := newWorkplace(t)
	mustRun(t, w.dir, train...)
	killed := 0
	for i := range 12 {
		out := filepath.Join(w.dir, "merged")
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			w.write("merged/README", "mine")
		}
		args := []string{"merge", "--model", "model", "--adapter", "out", "--out", "merged"}
		cmd := command(t, w.dir, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// until the folder it works in is there, and a moment more
		for try := 0; try < 2000; try++ {
			if partial, _ := filepath.Glob(filepath.Join(w.dir, ".partial-merged", "new", "*")); len(partial) > 0 {
				break
			}
			time.Sleep(200 * time.Microsecond)
		}
		time.Sleep(time.Duration(i) * 500 * time.Microsecond)
		sig := []os.Signal{os.Kill, os.Interrupt}[i/2%2]
		cmd.Process.Signal(sig) //nolint:errcheck // it may have ended
		if cmd.Wait() != nil {
			killed++
		}
		if left, _ := filepath.Glob(filepath.Join(w.dir, ".partial-merged*")); sig == os.Interrupt && len(left) > 0 {
			t.Errorf("an interrupted merge leaves %q", left)
		}
		if _, err := os.Stat(filepath.Join(out, "model.safetensors")); err != nil {
			mustRun(t, w.dir, args...)
			if left, _ := filepath.Glob(filepath.Join(w.dir, ".partial-merged*")); len(left) > 0 {
				t.Errorf("what a killed merge left is still there after the next: %q", left)
			}
		}
		if read(t, out, "config.json") != read(t, golden.StoriesDir(t), "config.json") {
			t.Error("config.json is another than the model's")
		}
		mustRun(t, w.dir, "generate", "--model", "merged", "--prompt", "Once", "--max-tokens", "1")
	}
	if killed == 0 {
		t.Error("no merge was killed")
	}
	t.Logf("%d merges were killed", killed)
}
