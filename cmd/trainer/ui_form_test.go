package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/report/live"
)

// TestEditText: a field's change reaches the text, comments stay, and what cannot be set is said.
func TestEditText(t *testing.T) {
	const text = "# mine\nbase_model: x   # small\nlora: {r: 8, alpha: 16}\n\ntraining:\n  epochs: 1 # one\ndataset:\n"
	for _, c := range []struct{ text, key, value, want string }{
		{text, "base_model", "y z", strings.Replace(text, "x  ", "y z  ", 1)},
		{text, "training.epochs", "2.5", strings.Replace(text, "epochs: 1", "epochs: 2.5", 1)},
		{text, "lora.r", "16", strings.Replace(text, "r: 8", "r: 16", 1)},
		{text, "base_model", "a: b", "# mine\nbase_model: 'a: b'   # small\n"},
		{text, "dataset.path", "rows.jsonl", "dataset:\n  path: rows.jsonl\n"},
		{text, "output_dir", "runs/x", "\noutput_dir: runs/x\n"},
		{text, "lora.target_modules", "q_proj; v_proj", "target_modules: [q_proj, v_proj]"},
		{text, "training.epochs", "", "training: {}\n"},
		{text, "training.max_steps", "", "# mine"},
		{"", "seed", "7", "seed: 7\n"},
		{text, "base_model", "7", `base_model: "7"`},
		{text, "nothing", "1", "error: nothing is no key with one value: change the text"},
		{text, "lora", "1", "error: lora is no key with one value: change the text"},
		{text, "lora.rank_pattern", "1", "error: lora.rank_pattern is no key with one value: change the text"},
		{"a: [", "seed", "1", "error: seed: the text is no YAML, mend it first: "},
		{"- a\n", "seed", "1", "error: seed: the text has no section there, mend it first"},
		{"lora: 5\n", "lora.r", "1", "error: lora.r: the text has no section there, mend it first"},
		{strings.Repeat("#", config.MaxBytes+1), "seed", "1", "error: a configuration has at most 1048576 bytes"},
	} {
		got, err := config.Edit([]byte(c.text), c.key, c.value)
		if err != nil {
			got = []byte("error: " + err.Error())
		}
		if !strings.Contains(string(got), c.want) {
			t.Errorf("%s=%s:\n%s\nwant\n%s", c.key, c.value, got, c.want)
		}
		if c.value != "" && err == nil && strings.Count(c.text, "#") < 100 &&
			strings.Count(string(got), "#") != strings.Count(c.text, "#") {
			t.Errorf("%s=%s loses a comment:\n%s", c.key, c.value, got)
		}
	}
}

// TestFields: the form has every key that is one value, and each of its templates is right.
func TestFields(t *testing.T) {
	all := fields()
	for _, k := range config.Root.Leaves() {
		has := slices.ContainsFunc(all, func(f live.Field) bool { return f.Key == k.Path })
		if has == (k.Kind == config.KindTable || k.Kind == config.KindRows) {
			t.Errorf("%s: in the form %v", k.Path, has)
		}
	}
	templates := templates()
	if len(templates) < 10 || templates[0].Name != "cpu_stories_quick" {
		t.Errorf("%d templates, the first %s", len(templates), templates[0].Name)
	}
	for _, x := range templates {
		c := checkedText([]byte(x.Text))
		for _, p := range c.Problems {
			if p.Key != "device" { // a GPU that is not here
				t.Errorf("%s: %s", x.Name, p.Message)
			}
		}
		if c.Values["base_model"] == "" {
			t.Errorf("%s: values %v", x.Name, c.Values)
		}
	}
	c := checkedText([]byte("model_name_or_path: x\nfinetuning_type: lora\nlora_rank: 8\n"))
	if len(c.Problems) < 4 || c.Problems[0].Message != "it looks like a configuration of LLaMA-Factory: trainer "+
		"import FILE --out run.yaml translates it" {
		t.Errorf("another program's text: %+v", c.Problems)
	}
	c = checkedText([]byte("base_model: x\ntraining:\n  learning_rte: 1\n"))
	if len(c.Problems) == 0 || !slices.ContainsFunc(c.Problems, func(p live.Problem) bool {
		return p.Line == 3 && strings.Contains(p.Message, "training.learning_rate")
	}) {
		t.Errorf("%+v", c.Problems)
	}
}

// TestBrokenUI: what trainer ui is given wrongly is said before anything is served.
func TestBrokenUI(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "run.yaml"), []byte("seed: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--port 70000: a port is a number from 0 to 65535", []string{"--port", "70000"}},
		{`invalid argument "x" for "--port" flag`, []string{"--port", "x"}},
		{"nowhere: no such file or directory; name a run's output folder (output_dir), or a folder of them",
			[]string{"nowhere"}},
		{"run.yaml is no folder; name a run's output folder (output_dir), or a folder of them", []string{"run.yaml"}},
		{"--host nowhere.invalid --port 0: ", []string{"--host", "nowhere.invalid", "--port", "0"}},
		{"--host 192.0.2.1 --port 0: ", []string{"--host", "192.0.2.1", "--port", "0"}},
		{"name another one with --queue", []string{"--queue", "run.yaml"}},
		{"trainer ui takes at most 100 folders, got 101: name the folder that holds them",
			slices.Repeat([]string{"."}, 101)},
		{"trainer ui work takes the queue's folder and the folders of runs", []string{"work"}},
	} {
		code, out, errOut := trainer(t, dir, nil, "", append([]string{"ui"}, c.args...)...)
		if code != 2 || out != "" || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit code %d, %s%s, want %q", c.args, code, out, errOut, c.want)
		}
	}
}

// TestFormRefusesFiles: the page's form says of tracking.metrics_file what a run would say, before it is started.
func TestFormRefusesFiles(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious.prom")
	if err := atomicfile.Write(precious, []byte("precious")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		precious:                        "is not a file of metrics that this program wrote",
		filepath.Join(dir, "x.sh"):      "must end in .prom",
		filepath.Join(dir, "new.prom"):  "",
		filepath.Join(dir, "precious/"): "must end in .prom",
	} {
		checked := checkedText(fmt.Appendf(nil, "base_model: embedded:stories260K\noutput_dir: r\ndataset: {path: "+
			"embedded:gsm8k_300.jsonl, format: completion}\ntraining: {max_steps: 1, report_to: "+
			"prometheus}\ntracking: {metrics_file: %q}\n", path))
		said := fmt.Sprint(checked.Problems)
		if want == "" && len(checked.Problems) > 0 || !strings.Contains(said, want) {
			t.Errorf("%s: %s, want %q", path, said, want)
		}
	}
}
