package adapter

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestHeadIsReadBack checks that a head's file is read as it was written, and refused where it does not fit the head.
func TestHeadIsReadBack(t *testing.T) {
	dir := t.TempDir()
	if h, err := ReadHead(dir, 3); err != nil || !reflect.DeepEqual(h, Head{}) || h.LabelName(1) != "LABEL_1" {
		t.Errorf("a folder without a file: %+v %v", h, err)
	}
	want := Head{Task: "sequence_classification", Problem: SingleLabel, Labels: []string{"bad", "fair", "good"}}
	files, err := want.Files(3)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, HeadFile)
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(string(files[HeadFile]))
	if h, err := ReadHead(dir, 3); err != nil || !reflect.DeepEqual(h, want) || h.LabelName(2) != "good" {
		t.Errorf("%+v %v, want %+v", h, err, want)
	}
	for text, message := range map[string]string{
		string(files[HeadFile]):                         "num_labels is 3, and the adapter's head has 2 scores",
		`{"num_labels":2,"id2label":{"0":"a"}}`:         "id2label has 1 labels, and the head has 2 scores",
		`{"num_labels":2,"id2label":{"0":"a","2":"b"}}`: "id2label has no label 1, and the head has 2 scores",
		`{"num_labels":2,"problem_type":"x"}`: `problem_type is "x", want one of [single_label_classification ` +
			`multi_label_classification regression]`,
		`[]`: "json: cannot unmarshal array into Go value of type adapter.headFile",
	} {
		write(text)
		if _, err := ReadHead(dir, 2); err == nil || err.Error() != "read "+path+": "+message {
			t.Errorf("%s: %v, want %s", text, err, message)
		}
	}
}

// FuzzReadHead: whatever the files of a folder with a head or with vectors are, reading them gives an error or a value.
func FuzzReadHead(f *testing.F) {
	f.Add(`{"num_labels":1,"id2label":{"0":"a"}}`, `[{"idx":0,"type":"sentence_transformers.models.Normalize"}]`,
		`{"pooling_mode_lasttoken":true}`)
	f.Add(`{`, `null`, `[1e999]`)
	f.Fuzz(func(t *testing.T, head, modules, pooling string) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "1_Pooling"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{HeadFile: head, modulesFile: modules, poolingFile: pooling} {
			if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if h, err := ReadHead(dir, 1); err == nil && len(h.Labels) > 1 {
			t.Errorf("%d labels of one score", len(h.Labels))
		}
		_, _ = ReadPooling(dir)
	})
}
