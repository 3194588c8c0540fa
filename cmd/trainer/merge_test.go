package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/infer"
)

// TestMergeNotesOnce: what holds of several adapters is one note that names them all.
func TestMergeNotesOnce(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"a"}, "a does not say what its adapter was trained over (it has no config.yaml); if that was a " +
			"4-bit base, --base nf4-double or nf4 adds it to what it was trained with"},
		{[]string{"a", "b"}, "a and b do not say what their adapters were trained over (they have no config.yaml); " +
			"if that was a 4-bit base, --base nf4-double or nf4 adds them to what they were trained with"},
		{[]string{"a", "b", "c"}, "a, b and c do not say"},
	} {
		var adapters []export.WeightedAdapter
		for _, n := range c.names {
			adapters = append(adapters, export.WeightedAdapter{Dir: filepath.Join(dir, n)})
		}
		_, _, notes, err := findTrained(baseAuto, adapters)
		if err != nil || len(notes) != 1 ||
			!strings.HasPrefix(strings.ReplaceAll(notes[0], dir+string(filepath.Separator), ""), c.want) {
			t.Errorf("%v: %q, %v", c.names, notes, err)
		}
	}
}

// TestExportBase: an adapter that becomes part of an exported model's weights is added to what merge adds it to.
func TestExportBase(t *testing.T) {
	dir := t.TempDir()
	config := "base_model: embedded:stories260K\nadapter: qlora\nquantization: {type: fp4}\ndataset: {path: " +
		"a.jsonl}\noutput_dir: o\n"
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for base, want := range map[string]string{baseAuto: "fp4", baseTrained: "fp4", "int8": "int8", baseOriginal: ""} {
		o := export.Options{Format: "gguf", Adapter: dir}
		if notes, err := findExportBase(&o, base); err != nil || notes != nil || (o.Trained == nil) != (want == "") ||
			want != "" && o.Trained.Type != want {
			t.Errorf("--base %s: %+v, %q, %v", base, o.Trained, notes, err)
		}
	}
	for format, beside := range map[string]bool{"gguf-lora": false, "ollama": true} {
		o := export.Options{Format: format, Adapter: dir, Separate: beside}
		if _, err := findExportBase(&o, baseAuto); err != nil || o.Trained != nil {
			t.Errorf("--format %s: %+v, %v", format, o.Trained, err)
		}
		if _, err := findExportBase(&o, baseOriginal); err == nil {
			t.Errorf("--format %s takes a --base", format)
		}
	}
}

// TestFoldersAnswerAsTrained: a run whose conversations end otherwise than the model's own leaves the template and the
// end of a turn in the adapter's folder, and a merge in the merged folder, with which the model answers as it does with
// the adapter.
func TestFoldersAnswerAsTrained(t *testing.T) {
	dir := chatPlace(t)
	other := "{% for m in messages %}{{ m.role }} says {{ m.content }}<s>{% endfor %}{% if add_generation_prompt " +
		"%}assistant says {% endif %}"
	put(t, dir, map[string]string{"other.jinja": other})
	for _, args := range [][]string{{"train", "run.yaml", "--set", "dataset.chat_template=other.jinja"},
		{"merge", "--adapter", "out", "--out", "merged", "--dtype", "fp32"}} {
		if code, _, errOut := trainer(t, dir, nil, "", args...); code != 0 {
			t.Fatal(errOut)
		}
	}
	for _, folder := range []string{"out", "merged", "out/checkpoint-2"} {
		for name, want := range map[string]string{"chat_template.jinja": other,
			"generation_config.json": `"eos_token_id": [1,2]`, "tokenizer_config.json": `"eos_token": "<s>"`} {
			if got, err := os.ReadFile(filepath.Join(dir, folder, name)); err != nil ||
				!strings.Contains(string(got), want) {
				t.Errorf("%s/%s: %s, %v", folder, name, got, err)
			}
		}
	}
	_, beside, _ := trainer(t, dir, nil, "", "generate", "--adapter", "out", "--chat", "--prompt", "hi",
		"--max-tokens", "8", "--json")
	code, merged, errOut := trainer(t, dir, nil, "", "generate", "--model", "merged", "--chat", "--prompt", "hi",
		"--max-tokens", "8", "--json")
	var a, b infer.Generated
	if err := errors.Join(json.Unmarshal([]byte(beside), &a), json.Unmarshal([]byte(merged), &b)); code != 0 ||
		err != nil || a.Text != b.Text || a.PromptTokens != b.PromptTokens {
		t.Errorf("%v: with the adapter %+v, merged %+v\n%s", err, a, b, errOut)
	}
}
