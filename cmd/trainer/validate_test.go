package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestValidateLooksForFiles: a configuration whose data or model is not there is not ok, and each is named with its
// line.
func TestValidateLooksForFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const base = "base_model: embedded:stories260K\noutput_dir: out\n"
	write("rows.jsonl", `{"text":"a"}`)
	write("folder/train.jsonl", `{"text":"a"}`)
	write("nothing/notes.md", "x")
	for _, c := range []struct {
		name, config string
		code         int
		says         []string
	}{
		{"all there", base + "dataset: {path: rows.jsonl}\n", 0, nil},
		{"a folder", base + "dataset: {path: folder, val_path: rows.jsonl}\n", 0, nil},
		{"no rows", base + "dataset: {path: row.jsonl}\n", 3,
			[]string{"run.yaml:3:17: dataset.path: open row.jsonl: no such file or directory; the nearest name is " +
				"rows.jsonl", "1 problem in run.yaml; the configuration itself is right"}},
		{"no validation rows", base + "dataset:\n  path: rows.jsonl\n  val_path: gone.jsonl\n", 3,
			[]string{"run.yaml:5:13: dataset.val_path: open gone.jsonl: no such file or directory"}},
		{"sources", base + "dataset:\n  sources:\n  - {path: rows.jsonl}\n  - {path: gone.jsonl}\n  val_sources: " +
			"[{path: 'x*.jsonl'}]\n", 3, []string{
			"run.yaml:6:12: dataset.sources[1].path: open gone.jsonl: no such file or directory",
			"run.yaml:7:24: dataset.val_sources[0].path: no file matches x*.jsonl"}},
		{"a split that is not there", base + "dataset: {sources: [{path: folder, split: test}]}\n", 3,
			[]string{"dataset.sources[0].path: folder: "}},
		{"a folder without data", base + "dataset: {path: nothing}\n", 3,
			[]string{"run.yaml:3:17: dataset.path: the folder nothing "}},
		{"no model", "base_model: ./m\noutput_dir: out\ndataset: {path: rows.jsonl}\n", 3,
			[]string{"run.yaml:1:13: base_model: find model: the folder ./m does not exist"}},
		{"a folder that is no model", "base_model: folder/train.jsonl\noutput_dir: out\ndataset: {path: rows.jsonl}\n",
			3, []string{"run.yaml:1:13: base_model: find model: folder/train.jsonl is a file, expected a model " +
				"folder or org/name"}},
		{"no adapter", base + "dataset: {path: rows.jsonl}\nlora: {init_from: folder}\n", 3,
			[]string{"run.yaml:4:19: lora.init_from: folder: no adapter folder in PEFT's format"}},
		{"a missing folder of one that is here",
			"base_model: folder/m\noutput_dir: out\ndataset: {path: folder/rows}\n", 3, []string{
				"run.yaml:1:13: base_model: find model folder/m: there is no folder of that name",
				"run.yaml:3:17: dataset.path: find data set folder/rows: there is no file or folder of that name"}},
		{"on the hub", "base_model: org/name@v1\noutput_dir: out\ndataset: {path: org/rows@v2}\n", 0,
			[]string{"note: base_model: find model org/name@v1: ", "note: dataset.path: find data set org/rows: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			write("run.yaml", c.config)
			code, out, errOut := trainer(t, dir, nil, "", "validate", "run.yaml")
			if code != c.code || (code == 0) != strings.HasPrefix(out, "ok  run.yaml\n") {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, out, errOut)
			}
			for _, want := range c.says {
				if !strings.Contains(errOut, want) {
					t.Errorf("not said: %s\n%s", want, errOut)
				}
			}
			jsonCode, out, _ := trainer(t, dir, nil, "", "validate", "run.yaml", "--json")
			if jsonCode != c.code || strings.Contains(out, `"ok": true`) != (c.code == 0) {
				t.Errorf("--json: exit code %d\n%s", jsonCode, out)
			}
		})
	}
}

// TestValidateNeedsTemplate: conversations of a model without a chat template are a mistake of the configuration, which
// validate reports with its line before any row is read.
func TestValidateNeedsTemplate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("qa.csv", "question,answer\nHi,Hello\n")
	config := "base_model: embedded:stories260K\noutput_dir: runs/a\ndataset:\n  path: qa.csv\n"
	for keys, want := range map[string]string{
		"  as_chat: yes\n": "run.yaml:5:12: dataset.as_chat: the model's files hold no " +
			"chat template",
		"  format: sharegpt\n": "run.yaml:5:11: dataset.format: the model's files hold no chat " +
			"template",
		"  as_chat: yes\n  chat_template: chatml\n":  "",
		"  as_chat: auto\n":                          "",
		"  format: completion\n  max_length: 1024\n": "",
	} {
		write("run.yaml", config+keys)
		code, _, errOut := trainer(t, dir, nil, "", "validate", "run.yaml")
		if ok := want == ""; ok != (code == 0) || !ok && code != 2 || !strings.Contains(errOut, want) {
			t.Errorf("%q: exit code %d, want %q in\n%s", keys, code, want, errOut)
		}
	}
}
