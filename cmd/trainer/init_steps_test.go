package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/train/checkpoint"
)

// TestInitAnnouncesWhatHappens: the steps, evaluations and checkpoints that init writes down are those of the run.
func TestInitAnnouncesWhatHappens(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"packed.jsonl": strings.Repeat(`{"text": "`+strings.Repeat("Once upon a time there was a dog. ", 9)+"\"}\n",
			150),
		"few.jsonl":     strings.Repeat(`{"instruction": "Name a prime.", "output": "7"}`+"\n", 37),
		"heldout.jsonl": strings.Repeat(`{"instruction": "Name a prime.", "output": "7"}`+"\n", 210),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			code, out, errOut := trainer(t, dir, nil, "", "init", "--model", "embedded:stories260K", "--data", name,
				"--device", "cpu", "--out", "run.yaml")
			if code != 0 {
				t.Fatal(errOut)
			}
			config, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			said := func(text, pattern string) int {
				t.Helper()
				found := regexp.MustCompile(pattern).FindStringSubmatch(text)
				if found == nil {
					t.Fatalf("no %s in\n%s", pattern, text)
				}
				n, _ := strconv.Atoi(found[1])
				return n
			}
			steps := said(out, `tokens a row; (\d+) steps`)
			if n := said(string(config), `# (\d+) steps; more epochs`); n != steps {
				t.Errorf("the file says %d steps, init %d", n, steps)
			}
			checkpoints, evaluations := said(string(config), `# (\d+) checkpoints? in the run`), 0
			if strings.Contains(string(config), "eval_steps") {
				evaluations = said(string(config), `# (\d+) evaluations? in the run`)
			}
			code, out, errOut = trainer(t, dir, nil, "", "train", "run.yaml", "-q", "--set",
				"training.save_total_limit=0")
			if want := fmt.Sprintf("steps    %d of %d\n", steps, steps); code != 0 || !strings.Contains(out, want) {
				t.Fatalf("exit code %d, want %q\n%s%s", code, want, out, errOut)
			}
			metrics, err := os.ReadFile(filepath.Join(dir, "runs", "run", "metrics.jsonl"))
			if n := strings.Count(string(metrics), `"eval_loss"`); n != evaluations || err != nil {
				t.Errorf("%d evaluations, %d were announced: %v", n, evaluations, err)
			}
			saved, err := checkpoint.Steps(filepath.Join(dir, "runs", "run"))
			// the best are saved too
			if len(saved) < checkpoints || evaluations == 0 && len(saved) != checkpoints || err != nil {
				t.Errorf("checkpoints %v, %d were announced: %v", saved, checkpoints, err)
			}
		})
	}
}
