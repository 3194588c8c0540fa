package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/infer/tasks"
)

// TestEvalRefuses: flags that cannot be meant, and the words that say so.
func TestEvalRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--task", "gsm9k", "--model", "m"},
			`there is no task "gsm9k": the built-in ones are gsm8k; a task of your own is a .yaml or .json file`},
		{[]string{"--task", "gsm8k"},
			"name a model: --model DIR, a configuration, or an adapter that names its base model: --adapter DIR"},
		{[]string{"--task", "none.yaml", "--model", "m"}, "read the task: open none.yaml: no such file or directory"},
		{[]string{"--task", "gsm8k", "--model", "m", "--by", "topic"},
			"--by is of the loss, a task names its own data: leave one of them out"},
		{[]string{"cpu_stories_quick", "--limit", "3"}, "--limit is of tasks: name one with --task"},
		{[]string{"--task", "gsm8k", "--model", "m", "--compare-base"},
			"--compare-base compares an adapter with its base model: name it with --adapter DIR"},
		{[]string{"--task", "gsm8k", "--model", "m", "--few-shot", "65"},
			"task gsm8k: few_shot: 65 must lie in 0 to 64"},
		{[]string{"--task", "gsm8k", "--model", "m", "--limit", "-1"}, "--limit -1: must be 0 or more"},
		{[]string{"cpu_stories_quick", "--task", "gsm8k", "--model", "m"}, "--model and --device are for tasks " +
			"without a configuration: use --set base_model=... and --set device=..."},
		{[]string{"cpu_stories_quick", "--split", "train[:5"},
			`dataset.sources[0].split has the term "train[:5": write train, train[:5%], train[10:200] or train[-5%:]`},
	} {
		code, _, errOut := trainer(t, t.TempDir(), nil, "", append([]string{"eval"}, c.args...)...)
		if code != 2 || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit code %d, %s\nwant %s", c.args, code, errOut, c.want)
		}
	}
}

// TestEvalAsks: an adapter against its base model, with the answers kept.
func TestEvalAsks(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rows.jsonl": `{"q":"Once upon a","a":"time"}` + "\n" + `{"q":"The little girl","a":"\u001b[31mzebra"}` + "\n",
		"t.yaml":     "kind: contains\ndata: rows.jsonl\nprompt: '{{ q }}'\nanswer: '{{ a }}'\nmax_tokens: 8\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, _, errOut := trainer(t, dir, nil, "", "train", "cpu_stories_quick", "--quiet", "--set",
		"training.max_steps=2", "--set", "output_dir=run", "--set", "expect={}",
		"--set", "training.sample_prompts=[Once]", "--set", "training.eval_tasks=[t.yaml]", "--set",
		"training.sample_max_tokens=4")
	if code != 0 {
		t.Fatalf("train: exit code %d, %s", code, errOut)
	}
	args := []string{"eval", "--task", "t.yaml", "--adapter", "run", "--compare-base", "--answers", "answers.jsonl"}
	code, out, errOut := trainer(t, dir, nil, "", append(args, "--json")...)
	var report taskReport
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || len(report.Changes) != 1 ||
		report.Tasks[0].Questions != 2 || report.Base[0].Adapter != "" {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, errOut)
	}
	text, err := os.ReadFile(filepath.Join(dir, "answers.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var last tasks.Answer
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || len(lines) != 4 ||
		last.Where != "rows.jsonl:2" || last.Adapter == "" || last.Answer == "" {
		t.Errorf("%v, %d answers, the last %+v", err, len(lines), last)
	}
	if code, out, errOut = trainer(t, dir, nil, "", args...); code != 0 ||
		!strings.Contains(out, "against the base model") {
		t.Errorf("exit code %d, %s%s", code, out, errOut)
	}
}
