package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer"
)

// TestNumbersWithSlashes checks that numbers such as rewards/margins reach the table, Prometheus, TensorBoard, expect,
// the report and a sweep.
func TestNumbersWithSlashes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{
		"pairs.jsonl": strings.Repeat(`{"prompt":"Once upon a time","chosen":" there was a dog.","rejected":" `+
			`no."}`+"\n", 10),
		"run.yaml": `
base_model: embedded:stories260K
output_dir: o
device: cpu
dataset: {path: pairs.jsonl, max_length: 64, val_split: 0.2}
training: {objective: dpo, max_steps: 4, warmup_ratio: 0, batch_size: 2, learning_rate: 2e-3, logging_steps: 1,
  eval_steps: 2, report_to: [csv, prometheus, tensorboard], metric_for_best_model: eval_rewards/margins}
expect: {at_least: {eval_rewards/accuracies: 0.5}}
`,
	})
	code, out, errOut := trainer(t, dir, nil, "", "train", "run.yaml", "-q")
	if code != 0 || !strings.Contains(out+errOut, "at_least.eval_rewards/accuracies at least 0.5: 1, met") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	events, err := filepath.Glob(filepath.Join(dir, "o", "tensorboard", "*"))
	if err != nil || len(events) != 1 {
		t.Fatalf("event files %v: %v", events, err)
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "o", "metrics.csv"):  ",rewards/chosen,rewards/rejected,rewards/accuracies,rewards/margins,",
		filepath.Join(dir, "o", "metrics.prom"): "\ntierlora_eval_rewards_margins{run=\"o\"} ",
		events[0]:                               "rewards/margins",
	} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, no %q", file, err, want)
		}
	}
	code, out, errOut = trainer(t, dir, nil, "", "report", "o", "--out", "-")
	if code != 0 || !strings.Contains(out, "best eval_rewards/margins") || !strings.Contains(out,
		"**rewards/accuracies**") {
		t.Errorf("report: exit code %d\n%s%s", code, out, errOut)
	}
	code, out, errOut = trainer(t, dir, nil, "", "eval", "run.yaml", "--adapter", "o")
	for _, want := range []string{"\nobjective            dpo\nreference            base\nloss                 0.",
		"\nrewards/accuracies   1.000000\n", "\nrewards/margins      ", "\nlogits/chosen        -",
		"\nmean_token_accuracy  0."} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("eval: exit code %d, no %q in\n%s%s", code, want, out, errOut)
		}
	}
	code, out, errOut = trainer(t, dir, nil, "", "eval", "run.yaml", "--adapter", "o", "--json")
	var report infer.EvalReport
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || report.Objective != "dpo" ||
		report.Reference != "base" || report.Numbers["rewards/accuracies"] != 1 {
		t.Errorf("eval --json: exit code %d, %v\n%s%s", code, err, out, errOut)
	}
	code, out, errOut = trainer(t, dir, nil, "", "sweep", "run.yaml", "--set", "dpo.beta=0.1,0.5", "--out", "sw")
	if code != 0 || strings.Count(errOut+out, "finished") != 2 || !strings.Contains(out,
		"sorted by eval_rewards/margins\n") {
		t.Errorf("sweep: exit code %d\n%s%s", code, out, errOut)
	}
	var sw sweepSummary
	text, err := os.ReadFile(filepath.Join(dir, "sw", sweepFile))
	if err := errors.Join(err, json.Unmarshal(text, &sw)); err != nil || sw.By != "eval_rewards/margins" ||
		len(sw.Groups) != 2 || *sw.Groups[0].Mean <= *sw.Groups[1].Mean || *sw.Groups[1].Mean <= 0 {
		t.Errorf("sweep.json does not have the larger margin first: %v\n%s", err, text)
	}
}
