package main

import (
	"strings"
	"testing"
)

// TestMissingDataIsUnfit: whatever reads the rows, data that is not on this machine ends it with the exit code of a
// machine that lacks something, as a model that is not there does.
func TestMissingDataIsUnfit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, command := range []string{"plan", "train", "inspect data", "eval", "bench", "gradcheck", "lr-find",
		"validate"} {
		for _, sets := range [][]string{
			{"dataset.path=nowhere.jsonl"}, {"dataset.path=no/such/folder"}, {"dataset.path=no*.jsonl"},
			{"dataset.path=org/name"},
			{"dataset.path=nowhere.jsonl", "dataset.streaming=true", "training.max_steps=3"}, {"base_model=org/name"},
			{"base_model=./nowhere"},
		} {
			if command == "validate" && strings.HasSuffix(sets[0], "=org/name") {
				continue // a note: --download fetches it
			}
			args := append(strings.Fields(command), "--config", "cpu_stories_quick", "--set", "training.report_to=[]",
				"--set", "output_dir=out")
			for _, set := range sets {
				args = append(args, "--set", set)
			}
			if code, out, errOut := trainer(t, dir, []string{"HF_HUB_OFFLINE=1", "HF_HOME=" + dir}, "",
				args...); code != exitUnfit {
				t.Errorf("%s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errOut)
			}
		}
	}
}
