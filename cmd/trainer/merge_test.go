package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/export"
)

// TestMergeNotesOnce: what holds of several adapters is one note that names them all.
func TestMergeNotesOnce(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"a"}, "a does not say what its adapter was trained over (it has no config.yaml); if that was a 4-bit base, --base nf4-double or nf4 adds it to what it was trained with"},
		{[]string{"a", "b"}, "a and b do not say what their adapters were trained over (they have no config.yaml); if that was a 4-bit base, --base nf4-double or nf4 adds them to what they were trained with"},
		{[]string{"a", "b", "c"}, "a, b and c do not say"},
	} {
		var adapters []export.WeightedAdapter
		for _, n := range c.names {
			adapters = append(adapters, export.WeightedAdapter{Dir: filepath.Join(dir, n)})
		}
		_, _, notes, err := findTrained(baseAuto, adapters)
		if err != nil || len(notes) != 1 || !strings.HasPrefix(strings.ReplaceAll(notes[0], dir+string(filepath.Separator), ""), c.want) {
			t.Errorf("%v: %q, %v", c.names, notes, err)
		}
	}
}

// TestExportBase: an adapter that becomes part of an exported model's weights is added to what merge adds it to.
func TestExportBase(t *testing.T) {
	dir := t.TempDir()
	config := "base_model: embedded:stories260K\nadapter: qlora\nquantization: {type: fp4}\ndataset: {path: a.jsonl}\noutput_dir: o\n"
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for base, want := range map[string]string{baseAuto: "fp4", baseTrained: "fp4", "int8": "int8", baseOriginal: ""} {
		o := export.Options{Format: "gguf", Adapter: dir}
		if notes, err := findExportBase(&o, base); err != nil || notes != nil || (o.Trained == nil) != (want == "") || want != "" && o.Trained.Type != want {
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
